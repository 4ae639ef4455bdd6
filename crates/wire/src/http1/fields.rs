//! Field lines of heads and trailer sections (RFC 9112 section 5).

use crate::grammar::{is_space, token_end, value_end};
use crate::message::{Fault, Field};

/// The result of reading one line of a block.
pub(super) enum Line {
    /// A field line, and the position of the next line.
    Field(Field, usize),
    /// The blank line, and the position of the first byte after the block.
    End(usize),
    /// The line is incomplete.
    Partial,
}

/// Reads the line of `block` that begins at `at`.
pub(super) fn field_line(block: &[u8], at: usize, limit: usize) -> Result<Line, Fault> {
    let Some(&first) = block.get(at) else { return Ok(Line::Partial) };
    if first == b'\r' {
        return line_end(block, at).map(|end| end.map_or(Line::Partial, Line::End));
    }
    if is_space(first) {
        return Err(if at == 0 { Fault::SpaceBeforeFirstField } else { Fault::LineFolded });
    }
    let name_end = token_end(block, at);
    match block.get(name_end) {
        Some(b':') if name_end > at => {}
        Some(_) => return name_fault(block, at, name_end, limit),
        None if block.len() - at > limit => return Err(Fault::FieldLineTooLong),
        None => return Ok(Line::Partial),
    }
    let mut value = name_end + 1;
    while block.get(value).is_some_and(|&b| is_space(b)) {
        value += 1;
    }
    let stop = value_end(block, value);
    if stop - at > limit {
        return Err(Fault::FieldLineTooLong);
    }
    match block.get(stop) {
        Some(b'\r' | b'\n') => {}
        Some(_) => return Err(Fault::FieldValueInvalid),
        None => return Ok(Line::Partial),
    }
    let Some(next) = line_end(block, stop)? else { return Ok(Line::Partial) };
    let mut value_end = stop;
    while value_end > value && is_space(block[value_end - 1]) {
        value_end -= 1;
    }
    debug_assert!(at <= name_end && name_end < value && value <= value_end && value_end <= block.len());
    // The limits keep a head far below 4 GiB, so the offsets fit.
    #[allow(clippy::cast_possible_truncation)]
    let field = Field { line: at as u32, name_end: name_end as u32, value: value as u32, value_end: value_end as u32 };
    Ok(Line::Field(field, next))
}

/// Returns the position after the line break at `at`, which is a CR or LF; `None` if the LF after a CR has not arrived
/// yet.
pub(super) fn line_end(bytes: &[u8], at: usize) -> Result<Option<usize>, Fault> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\n'), _) => Err(Fault::BareLineFeed),
        (Some(b'\r'), Some(b'\n')) => Ok(Some(at + 2)),
        (Some(b'\r'), None) => Ok(None),
        _ => Err(Fault::BareCarriageReturn),
    }
}

/// Returns the fault of a line that begins at `at` and whose name ends at `stop` without a colon; [`Line::Partial`] if
/// the bytes that decide have not arrived.
fn name_fault(block: &[u8], at: usize, stop: usize, limit: usize) -> Result<Line, Fault> {
    let first = block[stop];
    let spaces = block[stop..].iter().take_while(|&&b| is_space(b)).count();
    if stop + spaces - at > limit {
        return Err(Fault::FieldLineTooLong);
    }
    let decisive = stop + if first == b'\r' { 1 } else { spaces };
    let Some(&byte) = block.get(decisive) else { return Ok(Line::Partial) };
    Err(match (first, byte) {
        (b':', _) => Fault::FieldNameEmpty,
        (b'\n', _) => Fault::BareLineFeed,
        (b'\r', b'\n') => Fault::ColonMissing,
        (b'\r', _) => Fault::BareCarriageReturn,
        (b' ' | b'\t', b':') => Fault::SpaceBeforeColon,
        _ => Fault::FieldNameInvalid,
    })
}
