//! SCGI: a netstring of NUL-terminated names and values, followed by the body.
//!
//! <https://python.ca/scgi/protocol.txt>: the variable `CONTENT_LENGTH` is required and comes first, and the variable
//! SCGI is "1".

use crate::message::{Fault, Limits};
use crate::other_protocols;

/// The maximum number of digits in a netstring's length.
const DIGITS: usize = 10;

/// Returns the start and the end of a request's block, and the start of its body; `None` if the block is incomplete.
pub(super) fn frame(input: &[u8], limits: &Limits) -> Result<Option<(usize, usize, usize)>, Fault> {
    if input.first().is_some_and(|first| !first.is_ascii_digit()) {
        return other_protocols::on_gateway(input).map_or(Ok(None), Err);
    }
    let Some(colon) = input.iter().take(DIGITS + 1).position(|&byte| byte == b':') else {
        let is_cut = input.len() <= DIGITS && input.iter().all(u8::is_ascii_digit);
        return if is_cut { Ok(None) } else { Err(Fault::RecordMalformed) };
    };
    let length = crate::grammar::decimal(&input[..colon]).ok_or(Fault::RecordMalformed)?;
    let length = usize::try_from(length).map_err(|_| Fault::HeadTooLarge)?;
    // Each variable has two more bytes than its name and its value.
    if length > super::variables::most_bytes(limits).saturating_mul(2) {
        return Err(Fault::HeadTooLarge);
    }
    let end = colon + 1 + length;
    match input.get(end) {
        None => Ok(None),
        Some(b',') if input[..end].ends_with(b"\0") => Ok(Some((colon + 1, end, end + 1))),
        Some(_) => Err(Fault::RecordMalformed),
    }
}

/// Returns the name or the value at the front of a block, and the bytes after it.
pub(super) fn text(block: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let end = memchr::memchr(0, block).ok_or(Fault::VariablesMalformed)?;
    Ok((&block[..end], &block[end + 1..]))
}
