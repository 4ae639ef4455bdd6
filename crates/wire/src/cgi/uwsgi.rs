//! The uwsgi protocol: a header of four bytes, a block of variables, and the body.
//!
//! <https://uwsgi-docs.readthedocs.io/en/latest/Protocol.html>: modifier1 (1 byte), the size of the block (2 bytes,
//! little-endian), modifier2 (1 byte). In the block, the length (2 bytes, little-endian) precedes each name and each
//! value.

use crate::message::Fault;
use crate::other_protocols;

/// Returns the start and the end of a request's block, and the start of its body; `None` if the block is incomplete.
pub(super) fn frame(input: &[u8]) -> Result<Option<(usize, usize, usize)>, Fault> {
    let &[modifier1, low, high, modifier2, ..] = input else { return Ok(None) };
    // 30 is a request for a Python application too, whose PATH_INFO begins with SCRIPT_NAME; the code that splits the
    // path detects this itself. Other values address other features of uWSGI, such as its caches or its spooler.
    if !matches!(modifier1, 0 | 30) || modifier2 != 0 {
        return other_protocols::on_gateway(input).map_or(Ok(None), Err);
    }
    let end = 4 + usize::from(u16::from_le_bytes([low, high]));
    Ok((input.len() >= end).then_some((4, end, end)))
}

/// Returns the name or the value at the front of a block, and the bytes after it.
pub(super) fn text(block: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let (length, rest) = block.split_first_chunk::<2>().ok_or(Fault::VariablesMalformed)?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(Fault::VariablesMalformed)
}

/// Returns true for variables that make uWSGI load code, choose another application or interpreter, or change the
/// environment. They are dropped, because only the command line chooses the application. `UWSGI_SCHEME` is kept,
/// because it describes the request.
pub(super) fn is_ignored(name: &[u8]) -> bool {
    name.starts_with(b"UWSGI_") && name != b"UWSGI_SCHEME"
}
