//! The responses of scripted applications, in the simulator's worlds and in the engine's own tests.

use std::fs::File;
use std::io::Write;
use wire::message::Draft;

/// Bytes before the part of a response in its [`file`], which no response has.
const BEFORE: &[u8] = b"not this";

/// Returns the bytes `from` to `from + length` of body number `id`. The bytes differ at each position and for each
/// body.
pub fn pattern(id: usize, from: usize, length: usize) -> Vec<u8> {
    let of = |place: usize| ((place as u64 ^ (id as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (from..from + length).map(of).collect()
}

/// Returns a file with these bytes of the [`pattern`], without the last `missing` of them, and the offset at which they
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

/// Returns the head of a response, with the Content-Length that its application declares.
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
