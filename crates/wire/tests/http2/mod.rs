//! Every rule of HTTP/2 that a client can break, and the frames that answer it: one table of cases, each read whole,
//! byte by byte and at random splits.

mod client;
mod musts;
mod stories;
mod table;

use std::fmt::Write as _;
use wire::http1::Request;
use wire::http2::hpack::{Decoder, Encoder, Indexing, Literals};
use wire::http2::{ErrorCode, HeadScratch, Http2Event, PREFACE, ServerConnection, Violation};
use wire::message::{BodyLength, Draft, FieldLines, Limits, Stamp, Version};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 16;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const HAS_PRIORITY: u8 = 0x20;

fn limits() -> Limits {
    Limits { body: 1_000_000, head: 4000, field_line: 3000, fields: 60, ..Limits::default() }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A block of literals, which leave the table unchanged.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut encoder, mut out) = (Encoder::default(), Vec::new());
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Never, &mut out);
    }
    out
}

/// The pseudo-fields of a request with this method, and `more` fields.
fn fields<'a>(method: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    fields.extend_from_slice(more);
    fields
}

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&fields("GET", &[])))
}

fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&fields("POST", &[])))
}

fn request(more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&fields("GET", more)))
}

/// A whole connection: preface and SETTINGS, then these frames.
fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE.to_vec(), frame(SETTINGS, 0, 0, b"")].into_iter().chain(frames.iter().cloned()).flatten().collect()
}

/// The outcome of a connection: its events, and then the frames of the server other than the usual ones.
fn outcome(input: &[u8], ends: &[usize], limits: &Limits) -> String {
    let mut server = ServerConnection::default();
    server.open(10, limits);
    let (mut at, mut text, mut sent) = (0, String::new(), String::new());
    for &end in ends {
        loop {
            let scratch = &mut HeadScratch::default();
            let (used, is_over) = match server.next(&input[at..end], scratch, limits) {
                Ok((used, event)) => {
                    describe(&event, &mut text);
                    if let Http2Event::Data { stream, bytes, .. } = event {
                        let (stream, count) = (stream, bytes.len());
                        server.consumed(stream, count);
                    }
                    (used, matches!(used, 0))
                }
                Err(violation) => {
                    writeln!(text, "broken {}", violation.name()).unwrap();
                    (0, false)
                }
            };
            at += used;
            describe_frames(&mut server, &mut sent);
            if is_over || at == end {
                break;
            }
        }
    }
    text + &sent
}

fn describe(event: &Http2Event<'_, '_>, text: &mut String) {
    match event {
        Http2Event::More | Http2Event::Nothing | Http2Event::Credit { .. } => {}
        Http2Event::Head { stream, head, takes_trailers } => {
            assert_eq!(head.version, Version::Http2);
            let method = String::from_utf8_lossy(head.method);
            write!(text, "head {stream} {method} {}", String::from_utf8_lossy(head.target.raw)).unwrap();
            for field in head.fields {
                write!(text, " {}", String::from_utf8_lossy(field.line(head.block))).unwrap();
            }
            match head.body {
                BodyLength::None => {}
                BodyLength::Known(length) => write!(text, " body={length}").unwrap(),
                BodyLength::Unknown => text.push_str(" body"),
            }
            text.push_str(if *takes_trailers { " +trailers\n" } else { "\n" });
        }
        Http2Event::Data { stream, bytes, is_last } => {
            // A part that is cut is one part.
            let start = format!("data {stream} ");
            if text.lines().last().is_some_and(|line| line.starts_with(&start)) {
                text.pop();
            } else {
                text.push_str(&start);
            }
            text.push_str(&String::from_utf8_lossy(bytes));
            text.push('\n');
            if *is_last {
                writeln!(text, "end {stream}").unwrap();
            }
        }
        Http2Event::End { stream } => writeln!(text, "end {stream}").unwrap(),
        Http2Event::Reset { stream } => writeln!(text, "reset {stream}").unwrap(),
        Http2Event::Broken { stream, fault, .. } => writeln!(text, "fault {stream} {}", fault.name()).unwrap(),
    }
}

/// Describes the frames that the server sends, except SETTINGS and the first window.
fn describe_frames(server: &mut ServerConnection, text: &mut String) {
    let mut out = Vec::new();
    server.write_control(&mut out);
    for (kind, flags, stream, payload) in frames(&out) {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match kind {
            SETTINGS => assert!(flags & ACK != 0 || payload.len() == 24, "acknowledgements, and its own settings"),
            PING => writeln!(text, "> ping {flags} {payload:?}").unwrap(),
            RST_STREAM => writeln!(text, "> reset {stream} {}", number(0)).unwrap(),
            GOAWAY => writeln!(text, "> goaway {} {}", number(0), number(4)).unwrap(),
            WINDOW_UPDATE if stream == 0 && number(0) == (1 << 20) - 65_535 => {}
            WINDOW_UPDATE => writeln!(text, "> window {stream} {}", number(0)).unwrap(),
            _ => panic!("an unexpected frame {kind}"),
        }
    }
}

fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
        found.push((bytes[3], bytes[4], stream, bytes[9..9 + length].to_vec()));
        bytes = &bytes[9 + length..];
    }
    found
}

/// Random ends of pieces (xorshift).
fn random_ends(length: usize, seed: u64) -> Vec<usize> {
    let (mut state, mut at, mut ends) = (seed | 1, 0, Vec::new());
    while at < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at = (at + 1 + usize::try_from(state % 60).unwrap()).min(length);
        ends.push(at);
    }
    ends
}

/// Asserts the outcome of these frames behind a preface, however the bytes are cut.
fn assert_outcome(name: &str, input: &[u8], expected: &str) {
    let limits = limits();
    let mut lines = String::new();
    for line in expected.lines() {
        writeln!(lines, "{}", line.trim()).unwrap();
    }
    let expected = lines;
    if let Some(path) = std::env::var_os("HTTP2_CASES") {
        // scripts/http2_errors.py sends these bytes to servers.
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        let bytes = input.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let line = format!("{name}\t{bytes}\t{}\n", expected.replace('\n', ";"));
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
    }
    assert_eq!(outcome(input, &[input.len()], &limits), expected, "{name}, whole");
    // A long input cut into bytes would only repeat what short ones show.
    if input.len() < 20_000 {
        let each: Vec<usize> = (1..=input.len()).collect();
        assert_eq!(outcome(input, &each, &limits), expected, "{name}, byte by byte");
    }
    for seed in 1..=20 {
        assert_eq!(outcome(input, &random_ends(input.len(), seed), &limits), expected, "{name}, seed {seed}");
    }
}

// ------------------------------------------------------------------------------------------------------- responses

fn terms(takes_trailers: bool) -> Request {
    Request { version: Version::Http11, is_head: false, keep_alive: true, takes_trailers }
}

fn opened(frames: &[Vec<u8>]) -> ServerConnection {
    let (mut server, limits, input) = (ServerConnection::default(), limits(), connection(frames));
    server.open(10, &limits);
    let mut at = 0;
    while at < input.len() {
        let scratch = &mut HeadScratch::default();
        let (used, _) = server.next(&input[at..], scratch, &limits).expect("valid");
        at += used;
    }
    server.write_control(&mut Vec::new());
    server
}

fn draft(fields: &[(&str, &str)]) -> Draft {
    let mut draft = Draft::default();
    draft.start(b"200 OK").unwrap();
    for (name, value) in fields {
        draft.field(name.as_bytes(), value.as_bytes()).unwrap();
    }
    draft
}

/// The fields of a block.
fn decoded(decoder: &mut Decoder, block: &[u8]) -> String {
    let mut text = String::new();
    let end = decoder.decode(block, &mut Literals::default(), |name, value| {
        write!(text, "{}={};", String::from_utf8_lossy(name), String::from_utf8_lossy(value)).unwrap();
    });
    decoder.end_block(block.len() - end.unwrap().used).unwrap();
    text
}

#[test]
fn response_with_a_length_ends_with_its_last_byte() {
    let (mut server, mut out, stamp) = (opened(&[get(1)]), Vec::new(), Stamp::new("k", 0).unwrap());
    let mut sender = server.begin(1, &draft(&[("X-A", "b")]), terms(false), Some(5), &stamp, &mut out);
    assert_eq!(sender.open(5, &mut Vec::new()).0, 5);
    server.frame(1, b"hel", &mut out);
    server.frame(1, b"lo", &mut out);
    server.end_response(1, &mut out);
    server.forget_stream(1);
    assert!(!server.has_control(), "a complete stream needs no reset");
    let found = frames(&out);
    let kinds: Vec<(u8, u8)> = found.iter().map(|frame| (frame.0, frame.1)).collect();
    assert_eq!(kinds, [(HEADERS, END_HEADERS), (DATA, 0), (DATA, END_STREAM)]);
    let expected = ":status=200;x-a=b;content-length=5;date=Thu, 01 Jan 1970 00:00:00 GMT;server=k;";
    assert_eq!(decoded(&mut Decoder::default(), &found[0].3), expected);
}

#[test]
fn response_has_the_transport_security_of_the_stamp_unless_it_has_its_own() {
    let (mut server, mut stamp) = (opened(&[get(1), get(3)]), Stamp::new("", 0).unwrap());
    stamp.demand_transport_security(60, false);
    let mut decoder = Decoder::default();
    let mut head = |stream, fields: &[(&str, &str)]| {
        let mut out = Vec::new();
        server.begin(stream, &draft(fields), terms(false), Some(0), &stamp, &mut out);
        server.end_response(stream, &mut out);
        decoded(&mut decoder, &frames(&out)[0].3)
    };
    assert!(head(1, &[]).ends_with("strict-transport-security=max-age=60;"));
    let own = head(3, &[("Strict-Transport-Security", "max-age=1")]);
    assert_eq!(own.matches("strict-transport-security").count(), 1, "{own}");
}

#[test]
fn response_without_a_body_is_one_frame() {
    let (mut server, mut out, stamp) = (opened(&[get(1)]), Vec::new(), Stamp::new("", 0).unwrap());
    server.begin(1, &draft(&[]), terms(false), Some(0), &stamp, &mut out);
    server.end_response(1, &mut out);
    let kinds: Vec<(u8, u8)> = frames(&out).iter().map(|frame| (frame.0, frame.1)).collect();
    assert_eq!(kinds, [(HEADERS, END_HEADERS | END_STREAM)]);
}

#[test]
fn repeated_response_is_a_few_bytes_and_the_same_fields() {
    let (mut server, stamp) = (opened(&[get(1), get(3), get(5), get(7)]), Stamp::new("kirsch", 0).unwrap());
    let (mut decoder, mut lengths) = (Decoder::default(), Vec::new());
    for (stream, content_type) in [(1, "text/plain"), (3, "text/plain"), (5, "text/plain"), (7, "text/html")] {
        let mut out = Vec::new();
        server.begin(stream, &draft(&[("Content-Type", content_type)]), terms(false), Some(0), &stamp, &mut out);
        let found = frames(&out);
        let start = format!(":status=200;content-type={content_type};content-length=0;");
        assert!(decoded(&mut decoder, &found[0].3).starts_with(&start));
        lengths.push(found[0].3.len());
    }
    // 25 of them are the date, which is in no table.
    assert!(lengths[1] <= 33 && lengths[2] == lengths[1], "{lengths:?}");
}

#[test]
fn response_goes_as_far_as_both_windows() {
    let small = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]);
    let (mut server, stamp) = (opened(&[small, get(1), get(3)]), Stamp::new("", 0).unwrap());
    let mut out = Vec::new();
    server.begin(1, &draft(&[]), terms(false), None, &stamp, &mut out);
    assert_eq!(server.window(1), 10);
    server.frame(1, b"0123456789", &mut out);
    assert_eq!((server.window(1), server.window(3)), (0, 10));
    let limits = limits();
    let more = [frame(WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0]), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5])].concat();
    let scratch = &mut HeadScratch::default();
    let (used, event) = server.next(&more, scratch, &limits).unwrap();
    assert!(matches!(event, Http2Event::Credit { stream: 1 }));
    assert_eq!(server.window(1), 65_525, "the window of the connection");
    let scratch = &mut HeadScratch::default();
    server.next(&more[used..], scratch, &limits).unwrap();
    assert_eq!((server.window(1), server.window(3)), (65_525, 5));
}

#[test]
fn trailers_end_a_response() {
    let (mut server, mut out, stamp) =
        (opened(&[request(&[("te", "trailers")])]), Vec::new(), Stamp::new("", 0).unwrap());
    let mut head = draft(&[]);
    head.expect_trailers();
    server.begin(1, &head, terms(true), None, &stamp, &mut out);
    server.frame(1, b"a", &mut out);
    let mut trailers = FieldLines::default();
    trailers.trailer(b"Grpc-Status", b"0").unwrap();
    server.keep_trailers(1, &trailers);
    server.end_response(1, &mut out);
    let found = frames(&out);
    assert_eq!((found[2].0, found[2].1), (HEADERS, END_HEADERS | END_STREAM));
    let mut decoder = Decoder::default();
    decoded(&mut decoder, &found[0].3);
    assert_eq!(decoded(&mut decoder, &found[2].3), "grpc-status=0;");
}

#[test]
fn early_response_ends_the_request() {
    let (mut server, mut out, stamp) = (opened(&[post(1)]), Vec::new(), Stamp::new("", 0).unwrap());
    server.begin(1, &draft(&[]), terms(false), Some(0), &stamp, &mut out);
    server.end_response(1, &mut out);
    server.forget_stream(1);
    let mut text = String::new();
    describe_frames(&mut server, &mut text);
    assert_eq!(text, "> reset 1 0\n");
    // Bytes that were on their way are discarded, and their window is given back.
    let late = frame(DATA, 0, 1, &[0; 16_384]);
    for _ in 0..40 {
        let scratch = &mut HeadScratch::default();
        let (used, _) = server.next(&late, scratch, &limits()).unwrap();
        assert_eq!(used, late.len());
    }
    describe_frames(&mut server, &mut text);
    assert_eq!(text, "> reset 1 0\n> window 0 524288\n");
}

#[test]
fn stream_that_both_sides_have_ended_can_be_reset() {
    let (mut server, mut out, stamp) = (opened(&[get(1)]), Vec::new(), Stamp::new("", 0).unwrap());
    server.begin(1, &draft(&[]), terms(false), Some(0), &stamp, &mut out);
    server.end_response(1, &mut out);
    // Its call still runs, so the server has not forgotten it.
    let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    let scratch = &mut HeadScratch::default();
    let (_, event) = server.next(&reset, scratch, &limits()).unwrap();
    assert!(matches!(event, Http2Event::Reset { stream: 1 }));
    let scratch = &mut HeadScratch::default();
    let (_, event) = server.next(&reset, scratch, &limits()).unwrap();
    assert!(matches!(event, Http2Event::Nothing));
}

#[test]
fn expectation_is_met_once() {
    let head = frame(HEADERS, END_HEADERS, 1, &block(&fields("POST", &[("expect", "100-continue")])));
    let (mut server, mut out) = (opened(&[head]), Vec::new());
    server.tell_to_continue(1, &mut out);
    server.tell_to_continue(1, &mut out);
    let found = frames(&out);
    assert_eq!((found.len(), found[0].0, found[0].1), (1, HEADERS, END_HEADERS));
    assert_eq!(decoded(&mut Decoder::default(), &found[0].3), ":status=100;");
}

#[test]
fn connection_ends_in_two_steps() {
    let (mut server, limits, mut text) = (opened(&[get(1)]), limits(), String::new());
    server.drain();
    server.drain();
    assert!(!server.is_end_agreed());
    let mut out = Vec::new();
    server.write_control(&mut out);
    let found = frames(&out);
    assert_eq!((found.len(), found[0].0, &found[0].3[..]), (2, GOAWAY, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0][..]));
    // A request that was on its way is served; one behind the answer is not.
    let input = [get(3), frame(PING, ACK, 0, &found[1].3), get(5)].concat();
    let scratch = &mut HeadScratch::default();
    let (used, event) = server.next(&input, scratch, &limits).unwrap();
    assert!(matches!(event, Http2Event::Head { stream: 3, .. }));
    let scratch = &mut HeadScratch::default();
    let (_, event) = server.next(&input[used..], scratch, &limits).unwrap();
    assert!(matches!(event, Http2Event::Nothing) && server.is_end_agreed());
    describe_frames(&mut server, &mut text);
    assert_eq!(text, "> goaway 3 0\n");
}

#[test]
fn block_of_the_same_bytes_repeats_a_head() {
    let mut server = ServerConnection::default();
    let limits = limits();
    server.open(10, &limits);
    let input = connection(&[]);
    let scratch = &mut HeadScratch::default();
    let (used, _) = server.next(&input, scratch, &limits).unwrap();
    assert_eq!(used, input.len());
    let mut seen = Vec::new();
    for stream in [1, 3, 5, 7] {
        let head = get(stream);
        let mut scratch = HeadScratch::default();
        let (_, event) = server.next(&head, &mut scratch, &limits).unwrap();
        let Http2Event::Head { head, .. } = event else { panic!("a head") };
        seen.push((head.retained, head.is_repeated()));
    }
    assert_eq!(seen, [(false, false), (true, false), (false, true), (false, true)]);
}
