//! The invariants of FastCGI, uwsgi and SCGI: what is read of a connection does not depend on how its bytes arrive,
//! reading never panics, and every step takes something.

use crate::Random;
use reading::Reading;
use wire::cgi::Framing;
use wire::message::{Limits, RequestHead};

// Wire's own tests read so too.
#[path = "../../crates/wire/tests/gateways/reading.rs"]
mod reading;

/// Random divisions of an input that are compared with the whole.
const DIVISIONS: u64 = 3;

/// What is noted of a head.
fn head(head: &RequestHead<'_>) -> String {
    let fields: Vec<_> = head.fields.iter().map(|field| (field.name(head.block), field.value(head.block))).collect();
    format!("{:?} {:?} {:?} {fields:?}", head.method, head.target.raw, head.body)
}

/// `framing`: `None` for FastCGI.
fn check(framing: Option<Framing>, data: &[u8]) {
    let tight = Limits { request_line: 40, fields: 3, field_line: 32, head: 80, body: 24 };
    for limits in [tight, Limits::default()] {
        let read = |cuts: &[usize]| Reading::of(framing, data, cuts, &limits, head).without_broken_bodies();
        let whole = read(&[]);
        for salt in 0..DIVISIONS {
            let mut random = Random::of(data, salt);
            let mut cuts: Vec<usize> =
                (0..1 + random.next() % 4).map(|_| (random.next() % (data.len() as u64 + 1)) as usize).collect();
            cuts.sort_unstable();
            assert_eq!(read(&cuts), whole, "cut at {cuts:?}");
        }
        if data.len() < 1 << 10 {
            let each: Vec<usize> = (1..data.len()).collect();
            assert_eq!(read(&each), whole, "byte by byte");
        }
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
