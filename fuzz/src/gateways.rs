//! The invariants of FastCGI, uwsgi and SCGI: what is read of a connection does not depend on how its bytes arrive,
//! reading never panics, and every step takes something.

use crate::Random;
use reading::Reading;
use wire::cgi::Framing;
use wire::message::{BodyLength, Limits, RequestHead};

// Wire's own tests read so too.
#[path = "../../crates/wire/tests/gateways/reading.rs"]
mod reading;

/// Random divisions of an input that are compared with the whole.
const DIVISIONS: u64 = 2;
/// Longer inputs do not come byte by byte.
const EACH_BYTE: usize = 256;

/// Returns the parts of a head, each after its length. Readable text would take most of a run's time.
fn head(head: &RequestHead<'_>) -> Vec<u8> {
    let mut noted = Vec::with_capacity(head.block.len() + 8 * head.fields.len() + 64);
    let mut note = |part: &[u8]| {
        noted.extend_from_slice(&part.len().to_le_bytes());
        noted.extend_from_slice(part);
    };
    note(head.method);
    note(head.target.raw);
    match head.body {
        BodyLength::None => note(b"none"),
        BodyLength::Known(length) => note(&length.to_le_bytes()),
        BodyLength::Unknown => note(b"unknown"),
    }
    for field in head.fields {
        note(field.name(head.block));
        note(field.value(head.block));
    }
    noted
}

/// Checks one protocol: FastCGI if `framing` is `None`.
fn check(framing: Option<Framing>, data: &[u8]) {
    let tight = Limits { request_line: 40, fields: 3, field_line: 32, head: 80, body: 24 };
    // The limits follow from the input, as its cuts do: more inputs in the same time show more than either of both.
    let limits = if Random::of(data, DIVISIONS).next() % 2 == 0 { tight } else { Limits::default() };
    let read = |cuts: &[usize]| Reading::of(framing, data, cuts, &limits, head).without_broken_bodies();
    let whole = read(&[]);
    for salt in 0..DIVISIONS {
        let mut random = Random::of(data, salt);
        let mut cuts: Vec<usize> =
            (0..1 + random.next() % 4).map(|_| (random.next() % (data.len() as u64 + 1)) as usize).collect();
        cuts.sort_unstable();
        assert_eq!(read(&cuts), whole, "cut at {cuts:?}");
    }
    if data.len() < EACH_BYTE {
        let each: Vec<usize> = (1..data.len()).collect();
        assert_eq!(read(&each), whole, "byte by byte");
    }
}

/// Checks the records of a FastCGI connection.
pub fn check_fastcgi(data: &[u8]) {
    check(None, data);
}

/// Checks the request of a uwsgi connection.
pub fn check_uwsgi(data: &[u8]) {
    check(Some(Framing::Uwsgi), data);
}

/// Checks the request of a SCGI connection.
pub fn check_scgi(data: &[u8]) {
    check(Some(Framing::Scgi), data);
}
