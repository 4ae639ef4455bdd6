//! The invariants of HTTP/2: what is read of a connection does not depend on how its bytes arrive, reading never panics,
//! every step takes something, and the frames that answer are well-formed and bounded.

use crate::Random;
use std::fmt::Write as _;
use wire::http2::{HeadScratch, Http2Event, PREFACE, ServerConnection};
use wire::message::Limits;

/// Random divisions of an input that are compared with the whole.
const DIVISIONS: u64 = 2;
/// Streams that may be under way at a time.
const STREAMS: usize = 5;

/// Returns the events of a connection that begins with the preface and empty SETTINGS, and then the frames that answer.
fn outcome(data: &[u8], cuts: &[usize], limits: &Limits) -> (String, Vec<u8>) {
    let input = [&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0], data].concat();
    let mut server = ServerConnection::default();
    server.take_websockets();
    server.open(STREAMS, limits);
    let (mut at, mut text, mut control) = (0, String::new(), Vec::new());
    let mut last_data = None;
    for end in cuts.iter().map(|cut| cut + input.len() - data.len()).chain([input.len()]) {
        while at < end {
            let (used, consumed) = match server.next(&input[at..end], &mut HeadScratch::default(), limits) {
                Ok((used, event)) => (used, describe(&event, &mut text, &mut last_data)),
                Err(violation) => {
                    text.push_str(violation.name());
                    (0, None)
                }
            };
            assert!(used <= end - at, "used more than there was");
            if let Some((stream, count)) = consumed {
                server.consumed(stream, count);
            }
            at += used;
            server.write_control(&mut control);
            if used == 0 {
                break;
            }
        }
    }
    (text, control)
}

/// Appends an event, in which a body that is cut is the same as one that is not. Returns the bytes of a body to be
/// consumed.
fn describe(event: &Http2Event<'_, '_>, text: &mut String, last: &mut Option<u32>) -> Option<(u32, usize)> {
    let before = last.take();
    match event {
        Http2Event::More | Http2Event::Nothing | Http2Event::Credit { .. } => *last = before,
        Http2Event::Head { stream, head, takes_trailers } => {
            assert!(!head.method.is_empty() && !head.target.raw.is_empty());
            assert!(head.field(b"host").is_some(), "a request has a host");
            for field in head.fields {
                assert!(!field.value(head.block).iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
            }
            write!(text, "|head {stream} {takes_trailers} {:?} {:?} ", head.body, head.is_websocket).ok();
            text.extend(head.block.iter().map(|&byte| char::from(byte)));
        }
        Http2Event::Data { stream, bytes, is_last } => {
            assert!(!bytes.is_empty());
            if before != Some(*stream) {
                write!(text, "|data {stream} ").ok();
            }
            text.extend(bytes.iter().map(|&byte| char::from(byte)));
            if *is_last {
                write!(text, "|end {stream}").ok();
            } else {
                *last = Some(*stream);
            }
            return Some((*stream, bytes.len()));
        }
        Http2Event::End { stream } => drop(write!(text, "|end {stream}")),
        Http2Event::Reset { stream } => drop(write!(text, "|reset {stream}")),
        Http2Event::Broken { stream, fault, .. } => drop(write!(text, "|broken {stream} {}", fault.name())),
    }
    None
}

/// Checks what a client sends behind the preface and its first SETTINGS.
pub fn check_http2(data: &[u8]) {
    // The part of a body that is too large depends on its cuts.
    let tight = Limits { request_line: 40, fields: 3, field_line: 32, head: 200, ..Limits::default() };
    let limits = if Random::of(data, DIVISIONS).next() % 2 == 0 { tight } else { Limits::default() };
    let (events, control) = outcome(data, &[], &limits);
    let mut rest = &control[..];
    while let Some(&[a, b, c, kind, ..]) = rest.first_chunk::<9>() {
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        assert!(length <= 16_384 && kind <= 8, "a frame of the server is well-formed");
        rest = &rest[9 + length..];
    }
    assert!(rest.is_empty(), "a frame of the server is whole");
    for salt in 0..DIVISIONS {
        let mut random = Random::of(data, salt);
        let mut cuts: Vec<usize> = (0..1 + random.below(4)).map(|_| random.below(data.len() + 1)).collect();
        cuts.sort_unstable();
        assert_eq!(outcome(data, &cuts, &limits).0, events, "cut at {cuts:?}");
    }
}
