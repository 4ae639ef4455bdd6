//! One case for each rule.

use super::*;
use std::collections::HashSet;
use wire::http2::Violation as V;

/// A connection and its outcome.
type Case = (&'static str, Vec<Vec<u8>>, String);

fn reset(code: ErrorCode) -> String {
    format!("> reset 1 {}", code as u32)
}

fn broken(violation: Violation) -> String {
    broken_after(violation, 0)
}

fn broken_after(violation: Violation, last: u32) -> String {
    format!("broken {}\n> goaway {last} {}", violation.name(), violation.code() as u32)
}

/// A whole request on stream 1, as it is reported.
const HEAD: &str = "head 1 GET / host: a\n";
const POST: &str = "head 1 POST / host: a body\n";

fn check(cases: Vec<Case>) {
    for (name, frames, expected) in cases {
        assert_outcome(name, &connection(&frames), &expected);
    }
}

#[test]
fn rules_of_connections_are_answered_with_goaway() {
    let settings = |name: u16, value: u32| {
        let payload = [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &payload)
    };
    check(vec![
        // RFC 9113 section 4.2.
        ("large frame", vec![frame(DATA, 0, 1, &[0; 16_385])], broken(V::FrameTooLarge)),
        ("ping of 7", vec![frame(PING, 0, 0, &[0; 7])], broken(V::FrameLengthInvalid)),
        (
            "reset of 3",
            vec![get(1), frame(RST_STREAM, 0, 1, &[0; 3])],
            HEAD.to_owned() + &broken_after(V::FrameLengthInvalid, 1),
        ),
        ("window update of 3", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])], broken(V::FrameLengthInvalid)),
        ("settings of 5", vec![frame(SETTINGS, 0, 0, &[0; 5])], broken(V::FrameLengthInvalid)),
        ("settings ack of 6", vec![frame(SETTINGS, ACK, 0, &[0; 6])], broken(V::FrameLengthInvalid)),
        ("goaway of 7", vec![frame(GOAWAY, 0, 0, &[0; 7])], broken(V::FrameLengthInvalid)),
        (
            "padded data of 0",
            vec![post(1), frame(DATA, PADDED, 1, b"")],
            POST.to_owned() + &broken_after(V::FrameLengthInvalid, 1),
        ),
        (
            "headers too short for a priority",
            vec![frame(HEADERS, HAS_PRIORITY | END_HEADERS, 1, &[0; 4])],
            broken(V::FrameLengthInvalid),
        ),
        ("priority of 4 on an idle stream", vec![frame(PRIORITY, 0, 1, &[0; 4])], broken(V::FrameLengthInvalid)),
        // Section 4.3.
        ("bad index", vec![frame(HEADERS, END_HEADERS, 1, &[0x80])], broken_after(V::CompressionInvalid, 1)),
        ("cut block", vec![frame(HEADERS, END_HEADERS, 1, &[0x41])], broken_after(V::CompressionInvalid, 1)),
        (
            "frame in a block",
            vec![frame(HEADERS, 0, 1, &[0x82]), frame(PING, 0, 0, &[0; 8])],
            broken_after(V::ContinuationExpected, 1),
        ),
        (
            "continuation of another stream",
            vec![frame(HEADERS, 0, 1, &[0x82]), frame(CONTINUATION, 4, 3, b"")],
            broken_after(V::ContinuationExpected, 1),
        ),
        (
            "unknown frame in a block",
            vec![frame(HEADERS, 0, 1, &[0x82]), frame(0xee, 0, 0, b"")],
            broken_after(V::ContinuationExpected, 1),
        ),
        // Section 5.1.
        ("data on an idle stream", vec![frame(DATA, 0, 1, b"aaaaaaaaaaaaaaaa")], broken(V::IdleStream)),
        ("reset of an idle stream", vec![frame(RST_STREAM, 0, 1, &[0; 4])], broken(V::IdleStream)),
        ("window of an idle stream", vec![frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])], broken(V::IdleStream)),
        ("even stream", vec![get(2)], broken(V::StreamIdInvalid)),
        (
            "stream that was left out",
            vec![frame(HEADERS, 5, 5, &block(&fields("GET", &[]))), get(3)],
            "head 5 GET / host: a\n".to_owned() + &broken_after(V::StreamIdInvalid, 5),
        ),
        (
            "data on a stream that was left out",
            vec![frame(HEADERS, 5, 5, &block(&fields("GET", &[]))), frame(DATA, 0, 3, b"aaaaaaaaaaaaaaaa")],
            "head 5 GET / host: a\n".to_owned() + &broken_after(V::StreamEnded, 5),
        ),
        // Section 6.
        ("data on the connection", vec![frame(DATA, 0, 0, b"a")], broken(V::StreamZeroMisused)),
        ("headers on the connection", vec![get(0)], broken(V::StreamZeroMisused)),
        ("settings on a stream", vec![frame(SETTINGS, 0, 1, b"")], broken(V::StreamZeroMisused)),
        ("ping on a stream", vec![frame(PING, 0, 1, &[0; 8])], broken(V::StreamZeroMisused)),
        ("goaway on a stream", vec![frame(GOAWAY, 0, 1, &[0; 8])], broken(V::StreamZeroMisused)),
        (
            "long padding of data",
            vec![post(1), frame(DATA, PADDED, 1, &[1])],
            POST.to_owned() + &broken_after(V::PaddingInvalid, 1),
        ),
        (
            "long padding of headers",
            vec![frame(HEADERS, PADDED | END_HEADERS, 1, &[2, 0x82])],
            broken(V::PaddingInvalid),
        ),
        ("push", vec![frame(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2])], broken(V::PushFromClient)),
        ("continuation alone", vec![frame(CONTINUATION, 4, 1, b"")], broken(V::ContinuationUnexpected)),
        ("window update by 0", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])], broken(V::WindowUpdateEmpty)),
        (
            "window beyond 2^31-1",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])],
            broken(V::WindowTooLarge),
        ),
        ("push of 2", vec![settings(2, 2)], broken(V::SettingInvalid)),
        ("frame size of 16,383", vec![settings(5, 16_383)], broken(V::SettingInvalid)),
        ("frame size of 2^24", vec![settings(5, 1 << 24)], broken(V::SettingInvalid)),
        ("window of 2^31", vec![settings(4, 1 << 31)], broken(V::SettingWindowTooLarge)),
        ("priorities of RFC 7540 of 2", vec![settings(9, 2)], broken(V::SettingInvalid)),
        (
            "settings that make a window too large",
            vec![get(1), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), settings(4, 0x7fff_ffff)],
            HEAD.to_owned() + &broken_after(V::WindowTooLarge, 1),
        ),
        // RFC 9218 section 7.1, RFC 7540 section 5.3.1.
        ("priority update of stream 0", vec![frame(PRIORITY_UPDATE, 0, 0, &[0; 4])], broken(V::PriorityInvalid)),
        (
            "priority update on a stream",
            vec![frame(PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1])],
            broken(V::StreamZeroMisused),
        ),
        ("priority of itself, idle", vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])], broken(V::PriorityInvalid)),
    ]);
    assert_outcome("no preface", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &broken(V::PrefaceInvalid));
    let without_settings = [PREFACE.to_vec(), get(1)].concat();
    assert_outcome("no settings", &without_settings, &broken(V::SettingsMissing));
}

#[test]
fn rules_of_streams_are_answered_with_a_reset() {
    use ErrorCode as E;
    let data = |flags: u8, bytes: &[u8]| frame(DATA, flags, 1, bytes);
    let text = |parts: &[&str]| parts.concat();
    let over = "reset 1\n";
    check(vec![
        (
            "window update by 0",
            vec![get(1), frame(WINDOW_UPDATE, 0, 1, &[0; 4])],
            text(&[HEAD, over, &reset(E::ProtocolError)]),
        ),
        (
            "window beyond 2^31-1",
            vec![get(1), frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff])],
            text(&[HEAD, over, &reset(E::FlowControlError)]),
        ),
        ("data behind the end", vec![get(1), data(0, &[b'a'; 16])], text(&[HEAD, over, &reset(E::StreamClosed)])),
        ("headers behind the end", vec![get(1), get(1)], text(&[HEAD, over, &reset(E::StreamClosed)])),
        (
            "data behind a reset",
            vec![post(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), data(0, &[b'a'; 16])],
            text(&[POST, over, &reset(E::StreamClosed)]),
        ),
        (
            // RFC 9113 section 5.4.2.
            "frames behind a reset, of which the first alone is answered",
            vec![
                post(1),
                frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
                data(0, &[b'a'; 16]),
                data(0, &[b'a'; 16]),
                frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 0]),
                get(1),
            ],
            text(&[POST, over, &reset(E::StreamClosed)]),
        ),
        (
            "headers behind a reset",
            vec![get(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), get(1)],
            text(&[HEAD, over, &reset(E::StreamClosed)]),
        ),
        ("trailers that end nothing", vec![post(1), post(1)], text(&[POST, over, &reset(E::ProtocolError)])),
        (
            "pseudo-field in trailers",
            vec![post(1), frame(HEADERS, 5, 1, &block(&[(":path", "/")]))],
            text(&[POST, over, &reset(E::ProtocolError)]),
        ),
        (
            "body longer than declared",
            vec![frame(HEADERS, 4, 1, &block(&fields("POST", &[("content-length", "1")]))), data(0, &[b'a'; 16])],
            text(&["head 1 POST / host: a content-length: 1 body=1\n", over, &reset(E::ProtocolError)]),
        ),
        (
            "body shorter than declared",
            vec![frame(HEADERS, 4, 1, &block(&fields("POST", &[("content-length", "1")]))), data(END_STREAM, b"")],
            text(&["head 1 POST / host: a content-length: 1 body=1\n", over, &reset(E::ProtocolError)]),
        ),
        (
            "priority of itself",
            vec![get(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])],
            text(&[HEAD, over, &reset(E::ProtocolError)]),
        ),
        (
            "priority of 4 behind a reset",
            vec![get(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), frame(PRIORITY, 0, 1, &[0; 4])],
            text(&[HEAD, over, &reset(E::FrameSizeError)]),
        ),
        ("priority of 4", vec![get(1), frame(PRIORITY, 0, 1, &[0; 4])], text(&[HEAD, over, &reset(E::FrameSizeError)])),
        (
            "headers with a priority of themselves",
            vec![frame(HEADERS, HAS_PRIORITY | 5, 1, &[&[0, 0, 0, 1, 0][..], &block(&fields("GET", &[]))].concat())],
            reset(E::ProtocolError),
        ),
    ]);
}

#[test]
fn malformed_heads_are_reset_and_never_reported() {
    let malformed = reset(ErrorCode::ProtocolError);
    let head = |fields: &[(&str, &str)]| vec![frame(HEADERS, 5, 1, &block(fields))];
    let pseudo = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let without = |name: &str| pseudo.iter().copied().filter(|field| field.0 != name).collect::<Vec<_>>();
    let with = |name: &'static str, value: &'static str| {
        let mut fields = without(name);
        fields.push((name, value));
        head(&fields)
    };
    let mut cases: Vec<Case> = Vec::new();
    for (name, value) in [
        ("X-Upper", "a"),
        ("", "a"),
        ("a b", "a"),
        ("a:", "a"),
        ("x", "a\r\nb"),
        ("x", "a\0"),
        ("x", " a"),
        ("x", "a\t"),
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        (":unknown", "a"),
        (":path", "/"),
        (":status", "200"),
        ("content-length", "1"),
        ("content-length", "+0"),
        ("host", "b"),
    ] {
        cases.push((name, vec![request(&[(name, value)])], malformed.clone()));
    }
    for name in [":method", ":scheme", ":path"] {
        cases.push((name, head(&without(name)), malformed.clone()));
    }
    for (name, value) in [
        (":path", ""),
        (":path", "a"),
        (":path", "http://a/"),
        (":path", "/ b"),
        (":path", "/#b"),
        (":method", "G T"),
        (":method", ""),
        (":authority", "b@a"),
        (":authority", ""),
        (":protocol", "websocket"),
    ] {
        cases.push((name, with(name, value), malformed.clone()));
    }
    let late = [("x", "a"), (":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    cases.push(("pseudo-field behind a field", head(&late), malformed.clone()));
    cases.push(("CONNECT with a path", with(":method", "CONNECT"), malformed.clone()));
    let lengths = [("content-length", "0"), ("content-length", "0")];
    cases.push(("lengths", vec![request(&lengths)], malformed));
    check(cases);
}

#[test]
fn faults_of_all_protocols_are_answered_with_their_status() {
    let fault = |name: &str| format!("fault 1 {name}");
    let head = |fields: &[(&str, &str)]| vec![frame(HEADERS, 5, 1, &block(fields))];
    let pseudo = |method: &'static str, path: &'static str, host: &'static str| {
        [(":method", method), (":scheme", "http"), (":path", path), (":authority", host)]
    };
    let long = "a".repeat(2999);
    let many: Vec<(&str, &str)> = vec![("x", ""); 60];
    let crumbs: Vec<(&str, &str)> = vec![("cookie", "a"); 90];
    let joined = vec!["a"; 90].join("; ");
    let mut cases: Vec<Case> = vec![
        ("no host", head(&[(":method", "GET"), (":scheme", "http"), (":path", "/")]), fault("HostMissing")),
        ("host", head(&pseudo("GET", "/", "a b")), fault("HostInvalid")),
        ("asterisk", head(&pseudo("GET", "*", "a")), fault("AsteriskWithoutOptions")),
        ("connect", head(&[(":method", "CONNECT"), (":authority", "a:1")]), fault("ConnectRefused")),
        ("method", head(&pseudo("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH", "/", "a")), fault("MethodTooLong")),
        ("expectation", vec![request(&[("expect", "a")])], fault("ExpectationUnknown")),
        ("fields", vec![request(&many)], fault("FieldsTooMany")),
        ("crumbs", vec![request(&crumbs)], format!("head 1 GET / host: a cookie: {joined}")),
        ("options", head(&pseudo("OPTIONS", "*", "a")), "head 1 OPTIONS * host: a".to_owned()),
        (
            "host alone",
            head(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "b")]),
            "head 1 GET / host: b".to_owned(),
        ),
        (
            "host twice",
            vec![request(&[("host", "A"), ("te", "trailers")])],
            "head 1 GET / host: a te: trailers +trailers".to_owned(),
        ),
        (
            "length",
            vec![frame(HEADERS, 4, 1, &block(&fields("POST", &[("content-length", "1000001")])))],
            fault("BodyTooLarge"),
        ),
        (
            "trailers",
            vec![post(1), frame(DATA, 0, 1, &[b'a'; 20]), frame(HEADERS, 5, 1, &block(&[("x", "y")]))],
            format!("{POST}data 1 {}\nend 1", "a".repeat(20)),
        ),
        (
            "host in trailers",
            vec![post(1), frame(DATA, 0, 1, &[b'a'; 20]), frame(HEADERS, 5, 1, &block(&[("host", "b")]))],
            format!("{POST}data 1 {}\n{}", "a".repeat(20), fault("TrailerForbidden")),
        ),
        (
            "padded body",
            vec![post(1), frame(DATA, PADDED | END_STREAM, 1, &[&[5][..], &[b'a'; 20], &[0; 5]].concat())],
            format!("{POST}data 1 {}\nend 1", "a".repeat(20)),
        ),
    ];
    cases.push(("line", vec![request(&[("x", &long)])], fault("FieldLineTooLong")));
    check(cases);
}

#[test]
fn floods_end_the_connection() {
    let limits = Limits { head: 4000, ..Limits::default() };
    let calm = |violation: Violation, frames: Vec<Vec<u8>>| {
        let input = connection(&frames);
        let text = outcome(&input, &[input.len()], &limits);
        assert!(
            text.contains(&format!("broken {}\n", violation.name())),
            "{violation:?}: {}",
            &text[..text.len().min(900)]
        );
        assert!(text.contains(&format!(" {}\n", violation.code() as u32)));
    };
    let flood = |one: Vec<u8>| vec![one; 4001];
    calm(Violation::FramesTooMany, flood(frame(PING, 0, 0, &[0; 8])));
    calm(Violation::FramesTooMany, flood(frame(SETTINGS, 0, 0, b"")));
    calm(Violation::FramesTooMany, flood(frame(PRIORITY, 0, 9, &[0; 5])));
    calm(Violation::FramesTooMany, flood(frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1, b'u', b'=', b'1'])));
    calm(Violation::FramesTooMany, flood(frame(0xee, 0, 0, b"")));
    let mut empty = vec![post(1)];
    empty.extend(flood(frame(DATA, 0, 1, b"")));
    calm(Violation::FramesTooMany, empty);
    let mut tiny = vec![post(1)];
    tiny.extend(flood(frame(DATA, 0, 1, b"a")));
    calm(Violation::FramesTooMany, tiny);
    // Rapid reset, and streams that the server has to reset.
    let resets = (0..201).flat_map(|at| [get(2 * at + 1), frame(RST_STREAM, 0, 2 * at + 1, &[0, 0, 0, 8])]);
    calm(Violation::ResetsTooMany, resets.collect());
    let provoked = (0..201).flat_map(|at| [get(2 * at + 1), frame(WINDOW_UPDATE, 0, 2 * at + 1, &[0; 4])]);
    calm(Violation::ProvokedResetsTooMany, provoked.collect());
    let refused = (0..212).map(|at| get(2 * at + 1));
    calm(Violation::ProvokedResetsTooMany, refused.collect());
    // Blocks: many fragments, and a bomb of indexed fields.
    let mut fragments = vec![frame(HEADERS, 0, 1, b"")];
    fragments.extend(vec![frame(CONTINUATION, 0, 1, b""); 40]);
    calm(Violation::HeadTooLarge, fragments);
    calm(Violation::HeadTooLarge, vec![frame(HEADERS, 5, 1, &[0x82; 16_000])]);
    // Windows.
    let mut beyond = vec![post(1), post(3), post(5), post(7), post(9)];
    beyond.extend((0..65).map(|at| frame(DATA, 0, 2 * (at % 5) + 1, &[0; 16_384])));
    let input = connection(&beyond);
    let (mut server, mut at, mut result) = (ServerConnection::default(), 0, None);
    server.open(10, &limits);
    while at < input.len() && result.is_none() {
        match server.next(&input[at..], &mut HeadScratch::default(), &limits) {
            Ok((used, _)) => at += used,
            Err(violation) => result = Some(violation),
        }
    }
    assert_eq!(result, Some(Violation::WindowExceeded));
}

#[test]
fn bodies_get_their_windows_back() {
    let mut frames = vec![post(1)];
    frames.extend(vec![frame(DATA, 0, 1, &[0; 16_384]); 64]);
    let input = connection(&frames);
    let limits = Limits { body: 1 << 30, ..Limits::default() };
    let text = outcome(&input, &[input.len()], &limits);
    assert_eq!(text.matches("> window 1 131072\n").count(), 8);
    assert_eq!(text.matches("> window 0 524288\n").count(), 2);
}

#[test]
fn body_that_is_read_goes_on_beside_unread_ones() {
    let limits = Limits { body: 1 << 30, ..Limits::default() };
    // Three bodies that nobody reads leave a quarter of the connection's window.
    let mut frames = vec![post(1), post(3), post(5), post(7)];
    for stream in [1, 3, 5] {
        frames.extend(vec![frame(DATA, 0, stream, &[0; 16_384]); 16]);
    }
    let mut server = ServerConnection::default();
    server.open(10, &limits);
    let mut window: usize = 1 << 20;
    let mut input = connection(&frames);
    for sent in 0..256 {
        while !input.is_empty() {
            let scratch = &mut HeadScratch::default();
            let (used, event) = server.next(&input, scratch, &limits).expect("the connection goes on");
            let read = if let Http2Event::Data { stream: 7, bytes, .. } = event { bytes.len() } else { 0 };
            input.drain(..used);
            server.consumed(7, read);
        }
        let mut text = String::new();
        describe_frames(&mut server, &mut text);
        let given =
            text.lines().filter_map(|line| line.strip_prefix("> window 0 ")).map(|it| it.parse::<usize>().unwrap());
        // The first one is the window of the connection itself.
        window += if sent == 0 { 0 } else { given.sum() };
        let used = if sent == 0 { 3 * 16 } else { 0 } + 1;
        window = window.checked_sub(used * 16_384).expect("the client may send on");
        input = frame(DATA, 0, 7, &[0; 16_384]);
    }
}

#[test]
fn stream_beyond_its_window_is_reset() {
    let mut frames = vec![post(1)];
    frames.extend(vec![frame(DATA, 0, 1, &[0; 16_384]); 17]);
    let (input, limits) = (connection(&frames), limits());
    let (mut server, mut at, mut is_reset) = (ServerConnection::default(), 0, false);
    server.open(10, &limits);
    while at < input.len() {
        let scratch = &mut HeadScratch::default();
        let (used, event) = server.next(&input[at..], scratch, &limits).expect("the connection goes on");
        is_reset |= matches!(event, Http2Event::Reset { stream: 1 });
        at += used;
    }
    assert!(is_reset);
    let mut text = String::new();
    describe_frames(&mut server, &mut text);
    assert!(text.contains("> reset 1 3\n"), "{text}");
}

#[test]
fn every_violation_is_reached() {
    let text = include_str!("table.rs");
    let reached: HashSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    // Answered with a reset, whose code the cases have instead of the rule's name.
    let by_code =
        [Violation::ContentLengthWrong, Violation::HeadMalformed, Violation::StreamEnded, Violation::StreamsTooMany];
    for violation in Violation::ALL {
        assert!(by_code.contains(violation) || reached.contains(violation.name()), "{violation:?}");
    }
}
