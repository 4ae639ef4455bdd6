//! The responses of scripted applications, for the simulator's worlds and the engine's own tests.

use std::fs::File;
use std::io::Write;
use wire::message::Draft;

/// The bytes in a [`file`] before the part of a response. No response contains them.
const BEFORE: &[u8] = b"not this";

/// Returns the bytes from `from` to `from + length` of body number `id`. Each body has different bytes, and they differ
/// from position to position.
pub fn pattern(id: usize, from: usize, length: usize) -> Vec<u8> {
    let of = |place: usize| ((place as u64 ^ (id as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (from..from + length).map(of).collect()
}

/// Returns a file with these bytes of the [`pattern`], without the last `missing` ones, and the offset at which they
/// begin.
///
/// # Panics
/// If the directory of temporary files is full.
pub fn file(id: usize, from: usize, length: usize, missing: usize) -> (File, u64) {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(BEFORE).expect("space for the file");
    file.write_all(&pattern(id, from, length - missing)).expect("space for the file");
    (file, BEFORE.len() as u64)
}

/// Returns the head of a response, with Content-Length if `declared` has a value.
///
/// # Panics
/// If the status or a field is malformed.
pub fn head(status: &str, fields: &[(&str, &str)], declared: Option<u64>) -> Draft {
    let mut draft = Draft::default();
    draft.start(status.as_bytes()).expect("a status");
    for (name, value) in fields {
        draft.field(name.as_bytes(), value.as_bytes()).expect("a field");
    }
    if let Some(length) = declared {
        draft.field(b"Content-Length", length.to_string().as_bytes()).expect("a length");
    }
    draft
}
