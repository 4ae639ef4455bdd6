//! The client's side: what it makes of a server's frames, and the rules that a server can break.

use super::*;
use wire::http2::{ClientConnection, ClientEvent};

/// Returns what a client with two GETs (streams 1 and 3), an upload (5) and a HEAD (7) makes of a server's frames,
/// cut at each of `ends`.
fn told(input: &[u8], ends: &[usize]) -> String {
    let mut client = ClientConnection::new(65_535, 70_000);
    let mut out = Vec::new();
    for (method, ends) in [("GET", true), ("GET", true), ("POST", false), ("HEAD", true)] {
        let fields = fields(method, &[]);
        client.begin(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), ends, &mut out);
    }
    let (mut at, mut text) = (0, String::new());
    for &end in ends {
        loop {
            let used = match client.next(&input[at..end]) {
                Ok((used, event)) => {
                    describe_event(&event, &mut text);
                    used
                }
                Err(violation) => return text + "broken " + violation.name(),
            };
            at += used;
            if used == 0 {
                break;
            }
        }
    }
    assert_eq!(at, input.len(), "all frames are read: {text}");
    client.write_control(&mut out);
    text
}

fn describe_event(event: &ClientEvent<'_, '_>, text: &mut String) {
    match *event {
        ClientEvent::More | ClientEvent::Nothing => {}
        ClientEvent::Head { stream, status, fields, length, is_last } => {
            let fields = String::from_utf8_lossy(fields).replace('\n', ";");
            writeln!(text, "head {stream} {status} {fields} {length:?} {is_last}").unwrap();
        }
        ClientEvent::Data { stream, bytes, flow, is_last } => {
            writeln!(text, "data {stream} {} {flow} {is_last}", String::from_utf8_lossy(bytes)).unwrap();
        }
        ClientEvent::Trailers { stream } => writeln!(text, "trailers {stream}").unwrap(),
        ClientEvent::Reset { stream, code } => writeln!(text, "reset {stream} {code}").unwrap(),
        ClientEvent::Credit { stream } => writeln!(text, "credit {stream}").unwrap(),
        ClientEvent::GoAway { last, code } => writeln!(text, "goaway {last} {code}").unwrap(),
    }
}

fn head(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &block(fields))
}

/// Checks each case whole, byte by byte and in two parts. SETTINGS come first in each.
fn check(cases: Vec<(&str, Vec<Vec<u8>>, String)>) {
    for (name, frames, expected) in cases {
        let input = [frame(SETTINGS, 0, 0, b"")].into_iter().chain(frames).collect::<Vec<_>>().concat();
        let expected = format!("credit 0\n{expected}");
        let bytes: Vec<usize> = (1..=input.len()).collect();
        for ends in [&[input.len()][..], &bytes, &[input.len() / 2, input.len()]] {
            assert_eq!(told(&input, ends), expected, "{name}");
        }
    }
}

#[test]
fn client_reads_responses() {
    let ok = [(":status", "200"), ("content-length", "5")];
    check(vec![
        (
            "response",
            vec![head(1, 0, &ok), frame(DATA, END_STREAM, 1, b"Hello")],
            "head 1 200 content-length: 5; Some(5) false\ndata 1 Hello 5 true\n".into(),
        ),
        (
            "reset behind a whole response",
            vec![
                head(1, 0, &ok),
                frame(DATA, END_STREAM, 1, b"Hello"),
                frame(RST_STREAM, 0, 1, &[0; 4]),
                frame(RST_STREAM, 0, 1, &[0; 4]),
            ],
            "head 1 200 content-length: 5; Some(5) false\ndata 1 Hello 5 true\n".into(),
        ),
        (
            "padding counts towards the windows",
            vec![head(1, 0, &ok), frame(DATA, PADDED | END_STREAM, 1, b"\x02Hello\0\0")],
            "head 1 200 content-length: 5; Some(5) false\ndata 1 Hello 8 true\n".into(),
        ),
        (
            "interim response, and trailers",
            vec![
                head(3, 0, &[(":status", "103"), ("link", "a")]),
                head(3, 0, &[(":status", "200")]),
                head(3, END_STREAM, &[("grpc-status", "0")]),
            ],
            "head 3 103 link: a; None false\nhead 3 200  None false\ntrailers 3\n".into(),
        ),
        ("HEAD", vec![head(7, END_STREAM, &ok)], "head 7 200 content-length: 5; Some(5) true\n".into()),
        ("reset", vec![frame(RST_STREAM, 0, 5, &[0, 0, 0, 7])], "reset 5 7\n".into()),
        ("credit", vec![frame(WINDOW_UPDATE, 0, 5, &[0, 0, 0, 7])], "credit 5\n".into()),
        ("end", vec![frame(GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0])], "goaway 5 0\n".into()),
        ("frame of an unknown kind", vec![frame(0xee, 0xff, 9, b"abc")], String::new()),
        ("ping", vec![frame(PING, 0, 0, b"12345678")], String::new()),
    ]);
}

#[test]
fn client_finds_each_rule_that_a_server_breaks() {
    use Violation as V;
    let ok = || head(1, 0, &[(":status", "200")]);
    let five = || head(1, 0, &[(":status", "200"), ("content-length", "5")]);
    let malformed = |fields: &[(&str, &str)]| vec![head(1, END_STREAM, fields)];
    let all: Vec<(&str, Vec<Vec<u8>>, V)> = vec![
        ("large frame", vec![frame(DATA, 0, 1, &[0; 16_385])], V::FrameTooLarge),
        ("setting that allows to push", vec![frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1])], V::SettingInvalid),
        ("headers on the connection", vec![head(0, 0, &[(":status", "200")])], V::StreamZeroMisused),
        ("settings on a stream", vec![frame(SETTINGS, 0, 1, b"")], V::StreamZeroMisused),
        ("goaway on a stream", vec![frame(GOAWAY, 0, 1, &[0; 8])], V::StreamZeroMisused),
        ("settings of 5", vec![frame(SETTINGS, 0, 0, &[0; 5])], V::FrameLengthInvalid),
        ("window update of 3", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])], V::FrameLengthInvalid),
        ("frame size of 16,383", vec![frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff])], V::SettingInvalid),
        ("line feed in a value", malformed(&[(":status", "200"), ("a", "b\nc")]), V::HeadMalformed),
        ("pseudo-field of a request", malformed(&[(":status", "200"), (":path", "/")]), V::HeadMalformed),
        ("push", vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])], V::StreamIdInvalid),
        ("data on the connection", vec![frame(DATA, 0, 0, b"")], V::StreamZeroMisused),
        ("ping on a stream", vec![frame(PING, 0, 1, &[0; 8])], V::StreamZeroMisused),
        ("response without a request", vec![head(9, 0, &[(":status", "200")])], V::IdleStream),
        ("response on an even stream", vec![head(2, 0, &[(":status", "200")])], V::IdleStream),
        ("body before the head", vec![frame(DATA, 0, 1, b"a")], V::HeadMalformed),
        ("continuation alone", vec![frame(CONTINUATION, 4, 1, b"")], V::ContinuationUnexpected),
        ("frame in a block", vec![frame(HEADERS, 0, 1, b""), frame(PING, 0, 0, &[0; 8])], V::ContinuationExpected),
        ("bad index", vec![frame(HEADERS, END_HEADERS, 1, &[0x80])], V::CompressionInvalid),
        ("no status", malformed(&[("a", "b")]), V::HeadMalformed),
        ("status of two digits", malformed(&[(":status", "20")]), V::HeadMalformed),
        ("two statuses", malformed(&[(":status", "200"), (":status", "200")]), V::HeadMalformed),
        ("status behind a field", malformed(&[("a", "b"), (":status", "200")]), V::HeadMalformed),
        ("status 101", vec![head(1, 0, &[(":status", "101")])], V::HeadMalformed),
        ("interim response that ends", malformed(&[(":status", "100")]), V::HeadMalformed),
        ("upper case", malformed(&[(":status", "200"), ("A", "b")]), V::HeadMalformed),
        ("connection", malformed(&[(":status", "200"), ("connection", "close")]), V::HeadMalformed),
        ("transfer-encoding", malformed(&[(":status", "200"), ("transfer-encoding", "chunked")]), V::HeadMalformed),
        ("space around a value", malformed(&[(":status", "200"), ("a", " b")]), V::HeadMalformed),
        ("body without the declared end", vec![five(), frame(DATA, END_STREAM, 1, b"a")], V::ContentLengthWrong),
        ("body that is too long", vec![five(), frame(DATA, 0, 1, b"123456")], V::ContentLengthWrong),
        ("trailers before the declared end", vec![five(), head(1, END_STREAM, &[("a", "b")])], V::ContentLengthWrong),
        ("trailers that do not end", vec![ok(), head(1, 0, &[("a", "b")])], V::HeadMalformed),
        ("status in trailers", vec![ok(), head(1, END_STREAM, &[(":status", "200")])], V::HeadMalformed),
        ("long padding", vec![ok(), frame(DATA, PADDED, 1, &[1])], V::PaddingInvalid),
        ("ping of 7", vec![frame(PING, 0, 0, &[0; 7])], V::FrameLengthInvalid),
        ("settings acknowledged with a setting", vec![frame(SETTINGS, ACK, 0, &[0; 6])], V::FrameLengthInvalid),
        ("goaway of 7", vec![frame(GOAWAY, 0, 0, &[0; 7])], V::FrameLengthInvalid),
        ("reset of 3", vec![frame(RST_STREAM, 0, 1, &[0; 3])], V::FrameLengthInvalid),
        ("window of 2^31", vec![frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])], V::WindowTooLarge),
        ("window update by 0", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])], V::WindowUpdateEmpty),
        ("window of an idle stream", vec![frame(WINDOW_UPDATE, 0, 9, &[0, 0, 0, 1])], V::IdleStream),
    ];
    for (name, frames, violation) in all {
        let input = [frame(SETTINGS, 0, 0, b"")].into_iter().chain(frames).collect::<Vec<_>>().concat();
        let found = told(&input, &[input.len()]);
        assert!(found.ends_with(&format!("broken {}", violation.name())), "{name}: {found}");
    }
    let grown =
        [frame(GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0]), frame(GOAWAY, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 0])].concat();
    let input = [frame(SETTINGS, 0, 0, b""), grown].concat();
    assert!(told(&input, &[input.len()]).ends_with(V::StreamIdInvalid.name()), "a last stream that grows");
    assert_eq!(told(&frame(PING, 0, 0, &[0; 8]), &[17]), format!("broken {}", V::SettingsMissing.name()));
    // Five frames of 16 KiB are more than the window of the connection.
    let data = (0..5).map(|_| frame(DATA, 0, 1, &[0; 16_384])).collect::<Vec<_>>().concat();
    let input = [frame(SETTINGS, 0, 0, b""), ok(), data].concat();
    assert!(told(&input, &[input.len()]).ends_with(V::WindowExceeded.name()), "more than the window");
}

#[test]
fn client_keeps_to_what_the_server_takes() {
    let mut client = ClientConnection::new(65_535, 65_535);
    let mut out = Vec::new();
    let settings = [[0, 3, 0, 0, 0, 1], [0, 4, 0, 0, 0, 100]].concat();
    client.next(&frame(SETTINGS, 0, 0, &settings)).unwrap();
    assert_eq!((client.most_streams(), client.may_open()), (Some(1), true));
    let fields = fields("POST", &[]);
    let stream = client.begin(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())), false, &mut out);
    assert!(!client.may_open(), "the server takes one stream");
    assert_eq!(client.window(stream), 100);
    client.data(stream, &[b'a'; 100], false, &mut out);
    assert_eq!(client.window(stream), 0);
    client.next(&frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 50])).unwrap();
    assert_eq!(client.window(stream), 50);
    client.reset(stream, ErrorCode::Cancel, &mut out);
    assert!(client.may_open(), "the stream is over");
    client.next(&frame(GOAWAY, 0, 0, &[0; 8])).unwrap();
    assert!(!client.may_open(), "the server ends the connection");
    // The server reads what the client has written.
    let text = outcome(&out, &[out.len()], &limits());
    assert!(text.starts_with("head 1 POST / host: a body\ndata 1 aaaa"), "{text}");
    assert!(text.contains("reset 1"), "{text}");
}
