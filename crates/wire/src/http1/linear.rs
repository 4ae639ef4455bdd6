//! Tests that the work is linear in the received bytes, however they are split.
//!
//! A measurement of time would show this only roughly. [`examined`] counts the bytes that the scanning functions
//! examine, which is the same in every run. The worst case are single bytes: a reader that starts over with every piece
//! examines *n²/2* bytes.

use super::client;
use super::{BodyStep, Receiver};
use crate::grammar::examined;
use crate::message::Limits;

/// The maximum factor by which reading a message in pieces may cost more than reading it whole. Each byte may be
/// examined in four steps: the search for line feeds, the parsing of each line as it ends, the parsing of the whole
/// head, and one more parsing of the first line.
const MOST: u64 = 4;

/// Reads one request from ever longer prefixes of `input`. Returns the number of bytes examined.
fn request(input: &[u8], step: usize) -> u64 {
    examined::take();
    let (limits, mut receiver, mut fields) = (Limits::default(), Receiver::default(), Vec::new());
    let (mut at, mut in_body) = (0, false);
    for end in (step..input.len()).step_by(step).chain([input.len()]) {
        if !in_body {
            match receiver.head(&input[at..end], &mut fields, &limits).expect("valid") {
                Some(head) => at += head.length,
                None => continue,
            }
            in_body = true;
        }
        loop {
            let (used, found) = receiver.body(&input[at..end], &limits).expect("valid");
            at += used;
            match found {
                BodyStep::End => {
                    assert_eq!(at, input.len());
                    return examined::take();
                }
                BodyStep::More => break,
                _ => {}
            }
        }
    }
    panic!("the request is not over after {at} of {} bytes", input.len());
}

fn response_head(input: &[u8], step: usize) -> u64 {
    examined::take();
    let (limits, mut receiver, mut fields) = (Limits::default(), client::Receiver::default(), Vec::new());
    for end in (step..input.len()).step_by(step).chain([input.len()]) {
        if let Some(reply) = receiver.head(&input[..end], false, &mut fields, &limits).expect("valid") {
            assert_eq!(reply.length, input.len());
            return examined::take();
        }
    }
    panic!("the response is not over");
}

/// Returns a block of field lines, each `length` bytes long, that fills 64 KiB as far as possible, with its blank line.
fn block(length: usize) -> Vec<u8> {
    let mut block = b"Host: a\r\n".to_vec();
    for nth in 10..99 {
        let name = format!("Field-{nth}: ");
        let line = format!("{name}{}\r\n", "y".repeat(length - name.len() - 2));
        if block.len() + line.len() + 2 > 65_536 {
            break;
        }
        block.extend_from_slice(line.as_bytes());
    }
    block.extend_from_slice(b"\r\n");
    block
}

fn assert_linear(what: &str, input: &[u8], read: impl Fn(&[u8], usize) -> u64) {
    let whole = read(input, input.len());
    assert!(whole >= input.len() as u64 / 2, "{what}: the count is not armed: {whole} for {} bytes", input.len());
    for step in if cfg!(miri) { vec![1460] } else { vec![1, 2, 3, 7, 100, 1460] } {
        let pieces = read(input, step);
        assert!(pieces <= MOST * whole, "{what}, {step} bytes at a time: {pieces} examined, whole {whole}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "heads of 64 KiB at every step take minutes there")]
fn heads() {
    // With the longest allowed request line, the input exceeds the limit of a request head.
    let longest = format!("GET /{} HTTP/1.1\r\n", "p".repeat(8190 - 14)).into_bytes();
    for length in [40, 735, 8000] {
        let block = block(length);
        assert_linear("request head", &[&b"GET / HTTP/1.1\r\n"[..], &block].concat(), request);
        assert_linear("request head, long line", &[&longest[..], &block].concat(), request);
        let status = format!("HTTP/1.1 200 {}\r\n", "r".repeat(8000));
        assert_linear("response head", &[status.as_bytes(), &block].concat(), response_head);
    }
    assert!(block(735).len() > 65_000);
}

#[test]
fn a_name_without_end_and_a_value_of_space() {
    let name = "n".repeat(8000);
    let input = format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: {}v\r\n{name}:\r\n\r\n", " ".repeat(180));
    assert_linear("long names", input.as_bytes(), request);
}

#[test]
fn chunk_lines_and_trailers() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extended = format!("1;{}\r\nx\r\n", "e".repeat(4000)).repeat(15);
    let trailer = format!("{}: {}\r\n", "t".repeat(4000), "v".repeat(4000));
    assert_linear("chunk extensions", format!("{head}{extended}0\r\n\r\n").as_bytes(), request);
    assert_linear("trailers", format!("{head}0\r\n{trailer}\r\n").as_bytes(), request);
    let tiny = "1\r\nx\r\n".repeat(2000);
    assert_linear("tiny chunks", format!("{head}{tiny}0\r\n\r\n").as_bytes(), request);
}
