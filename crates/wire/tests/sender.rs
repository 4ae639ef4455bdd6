//! The written bytes: responses of `Draft`, `Sender` and `refuse`, and requests of the client role.

use wire::http1::client::{self, ClientMisuse, Content};
use wire::http1::{CONTINUE, Request, Sender, close_after, write_early_hints, write_page};
use wire::message::{Draft, FieldLines, Misuse, Page, Stamp, Version};

const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

fn stamp(server: &str) -> Stamp {
    Stamp::new(server, 784_111_777).expect("a field value")
}

fn draft(status: &str, fields: &[(&str, &str)]) -> Result<Draft, Misuse> {
    let mut draft = Draft::default();
    draft.start(status.as_bytes())?;
    for (name, value) in fields {
        draft.field(name.as_bytes(), value.as_bytes())?;
    }
    Ok(draft)
}

/// One response with these parts, and the expected result.
struct Case<'a> {
    status: &'a str,
    fields: &'a [(&'a str, &'a str)],
    version: Version,
    is_head: bool,
    keep_alive: bool,
    /// The body's length, if the server knows it.
    known: Option<u64>,
    parts: &'a [&'a str],
    /// Expected: the head without its status line, the application's fields and Date; and what follows the head.
    head: &'a str,
    body: &'a str,
    keeps_alive: bool,
    needs_reset: bool,
    result: Result<(), Misuse>,
}

const PLAIN: Case = Case {
    status: "200 OK",
    fields: &[],
    version: Version::Http11,
    is_head: false,
    keep_alive: true,
    known: None,
    parts: &["hello"],
    head: "",
    body: "",
    keeps_alive: true,
    needs_reset: false,
    result: Ok(()),
};

/// Longer than other functions: it is the table of these cases.
#[test]
fn responses_are_framed_by_request_and_status() {
    let length5 = &[("Content-Length", "5")][..];
    let cases = [
        // Framing: declared, known, chunked, until close.
        Case { fields: length5, head: "Content-Length: 5\r\n", body: "hello", ..PLAIN },
        Case { known: Some(5), head: "Content-Length: 5\r\n", body: "hello", ..PLAIN },
        Case { head: "Transfer-Encoding: chunked\r\n", body: "5\r\nhello\r\n0\r\n\r\n", ..PLAIN },
        Case {
            parts: &["hello", "", "sixteen bytes ok", "!"],
            head: "Transfer-Encoding: chunked\r\n",
            body: "5\r\nhello\r\n10\r\nsixteen bytes ok\r\n1\r\n!\r\n0\r\n\r\n",
            ..PLAIN
        },
        Case { parts: &[], head: "Transfer-Encoding: chunked\r\n", body: "0\r\n\r\n", ..PLAIN },
        Case { parts: &[], known: Some(0), head: "Content-Length: 0\r\n", ..PLAIN },
        Case {
            version: Version::Http10,
            head: "Connection: close\r\n",
            body: "hello",
            keeps_alive: false,
            needs_reset: true,
            ..PLAIN
        },
        Case {
            version: Version::Http10,
            fields: length5,
            head: "Content-Length: 5\r\nConnection: keep-alive\r\n",
            body: "hello",
            ..PLAIN
        },
        Case {
            version: Version::Http10,
            keep_alive: false,
            known: Some(5),
            head: "Content-Length: 5\r\nConnection: close\r\n",
            body: "hello",
            keeps_alive: false,
            ..PLAIN
        },
        // Close or keep-alive, as the request or the application asks.
        Case {
            keep_alive: false,
            fields: length5,
            head: "Content-Length: 5\r\nConnection: close\r\n",
            body: "hello",
            keeps_alive: false,
            ..PLAIN
        },
        Case {
            fields: &[("Content-Length", "5"), ("connection", "Keep-Alive, CLOSE")],
            head: "Content-Length: 5\r\nConnection: close\r\n",
            body: "hello",
            keeps_alive: false,
            ..PLAIN
        },
        // No body, whatever the application yields.
        Case { status: "204 No Content", ..PLAIN },
        Case { status: "204 No Content", fields: length5, ..PLAIN },
        Case { status: "205 Reset Content", head: "Content-Length: 0\r\n", ..PLAIN },
        Case { status: "205 Reset Content", fields: length5, head: "Content-Length: 0\r\n", ..PLAIN },
        Case { status: "304 Not Modified", known: Some(5), ..PLAIN },
        Case { status: "304 Not Modified", fields: length5, head: "Content-Length: 5\r\n", ..PLAIN },
        Case { is_head: true, known: Some(5), ..PLAIN },
        Case { is_head: true, fields: length5, head: "Content-Length: 5\r\n", ..PLAIN },
        Case { is_head: true, version: Version::Http10, head: "Connection: keep-alive\r\n", ..PLAIN },
        // The declared length is enforced.
        Case {
            fields: length5,
            parts: &["hel", "lo, world", "!"],
            head: "Content-Length: 5\r\n",
            body: "hel",
            result: Err(Misuse::BodyTooLong),
            ..PLAIN
        },
        Case {
            fields: length5,
            parts: &["hel"],
            head: "Content-Length: 5\r\n",
            body: "hel",
            result: Err(Misuse::BodyTooShort),
            ..PLAIN
        },
    ];
    for (nth, case) in cases.iter().enumerate() {
        let request = Request {
            version: case.version,
            is_head: case.is_head,
            keep_alive: case.keep_alive,
            takes_trailers: false,
        };
        let mut out = Vec::new();
        let draft = draft(case.status, case.fields).expect("a draft");
        let mut sender = Sender::begin(&draft, request, case.known, &stamp(""), &mut out);
        let mut result = Ok(());
        let mut sent = 0;
        for part in case.parts {
            let (admitted, verdict) = sender.open(part.len() as u64, &mut out);
            out.extend_from_slice(&part.as_bytes()[..usize::try_from(admitted).unwrap()]);
            sender.close(admitted, &mut out);
            sent += admitted;
            result = result.and(verdict);
        }
        result = result.and(sender.finish(&mut out));
        // Date stands between the framing and Connection.
        let (framing, connection) = case.head.split_at(case.head.find("Connection").unwrap_or(case.head.len()));
        let expected = format!("HTTP/1.1 {}\r\n{framing}{DATE}{connection}\r\n{}", case.status, case.body);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "case {nth}");
        assert_eq!(result, case.result, "case {nth}");
        assert_eq!(sender.keeps_alive(), case.keeps_alive, "case {nth}");
        assert_eq!(sender.needs_reset(), case.needs_reset, "case {nth}");
        assert_eq!(sender.body_bytes(), sent, "case {nth}");
    }
}

#[test]
fn bodiless_responses_are_recognised() {
    let is_bodiless = |status, is_head, known| {
        let request = Request { version: Version::Http11, is_head, keep_alive: true, takes_trailers: false };
        Sender::begin(&draft(status, &[]).unwrap(), request, known, &stamp(""), &mut Vec::new()).is_bodiless()
    };
    for status in ["204 No Content", "205 Reset Content", "304 Not Modified"] {
        assert!(is_bodiless(status, false, None), "{status}");
    }
    assert!(is_bodiless("200 OK", true, Some(5)));
    assert!(!is_bodiless("200 OK", false, None));
    assert!(!is_bodiless("200 OK", false, Some(0)));
}

#[test]
fn every_misuse_of_a_draft_is_refused() {
    type Fields<'a> = &'a [(&'a str, &'a str)];

    let table: &[(Misuse, &str, Fields)] = &[
        (Misuse::ContentLengthInvalid, "200 OK", &[("Content-Length", "-1")]),
        (Misuse::ContentLengthInvalid, "200 OK", &[("Content-Length", "9223372036854775808")]),
        (Misuse::ContentLengthRepeated, "200 OK", &[("Content-Length", "1"), ("content-length", "1")]),
        (Misuse::HopByHop, "200 OK", &[("Connection", "upgrade")]),
        (Misuse::HopByHop, "200 OK", &[("Keep-Alive", "timeout=5")]),
        (Misuse::HopByHop, "200 OK", &[("Proxy-Authenticate", "x")]),
        (Misuse::HopByHop, "200 OK", &[("Proxy-Authorization", "x")]),
        (Misuse::HopByHop, "200 OK", &[("TE", "trailers")]),
        (Misuse::HopByHop, "200 OK", &[("Trailer", "x")]),
        (Misuse::HopByHop, "200 OK", &[("Trailers", "x")]),
        (Misuse::HopByHop, "200 OK", &[("Transfer-Encoding", "chunked")]),
        (Misuse::HopByHop, "200 OK", &[("Upgrade", "h2c")]),
        (Misuse::NameInvalid, "200 OK", &[("", "x")]),
        (Misuse::NameInvalid, "200 OK", &[("A B", "x")]),
        (Misuse::NameInvalid, "200 OK", &[("A:", "x")]),
        (Misuse::NameInvalid, "200 OK", &[("A\r\nB", "x")]),
        (Misuse::ReasonInvalid, "200 OK\r\nInjected: x", &[]),
        (Misuse::StatusInformational, "100 Continue", &[]),
        (Misuse::StatusInformational, "199 Odd", &[]),
        (Misuse::StatusMalformed, "", &[]),
        (Misuse::StatusMalformed, "200", &[]),
        (Misuse::StatusMalformed, "2000 OK", &[]),
        (Misuse::StatusMalformed, "20x OK", &[]),
        (Misuse::StatusMalformed, "099 Low", &[]),
        (Misuse::StatusMalformed, " 200 OK", &[]),
        (Misuse::ValueInvalid, "200 OK", &[("A", "b\r\nInjected: x")]),
        (Misuse::ValueInvalid, "200 OK", &[("A", "b\nInjected: x")]),
        (Misuse::ValueInvalid, "200 OK", &[("A", "b\0")]),
    ];
    for (misuse, status, fields) in table {
        assert_eq!(draft(status, fields).err(), Some(*misuse), "{status:?} {fields:?}");
        assert!(!misuse.to_string().is_empty());
    }
    // The misuses of a body are covered by the first test, that of a trailer by one of its own. Here every variant is
    // named, so that a new one is not forgotten.
    let reached = |misuse| table.iter().any(|(found, ..)| *found == misuse);
    for misuse in [
        Misuse::BodyTooLong,
        Misuse::BodyTooShort,
        Misuse::ContentLengthInvalid,
        Misuse::ContentLengthRepeated,
        Misuse::HopByHop,
        Misuse::NameInvalid,
        Misuse::ReasonInvalid,
        Misuse::StatusInformational,
        Misuse::StatusMalformed,
        Misuse::TrailerForbidden,
        Misuse::ValueInvalid,
    ] {
        match misuse {
            Misuse::BodyTooLong | Misuse::BodyTooShort | Misuse::TrailerForbidden => {}
            Misuse::ContentLengthInvalid
            | Misuse::ContentLengthRepeated
            | Misuse::HopByHop
            | Misuse::NameInvalid
            | Misuse::ReasonInvalid
            | Misuse::StatusInformational
            | Misuse::StatusMalformed
            | Misuse::ValueInvalid => assert!(reached(misuse), "{misuse:?}"),
        }
    }
    assert_eq!(Stamp::new("a\r\nb", 0).err(), Some(Misuse::ValueInvalid));
}

#[test]
fn draft_returns_its_fields_and_can_be_started_again() {
    let mut held = draft("404 Not Found", &[("A", "b:c "), ("Content-Length", " 07 "), ("D", "")]).unwrap();
    assert_eq!((held.status(), held.content_length(), held.is_empty()), (404, Some(7), false));
    let fields: Vec<_> = held.fields().collect();
    assert_eq!(fields, [(&b"A"[..], &b"b:c"[..]), (b"D", b"")]);
    held.start(b"200 ").unwrap();
    assert_eq!((held.status(), held.content_length(), held.fields().count()), (200, None, 0));
    held.clear();
    assert!(held.is_empty());
}

#[test]
fn trailers_follow_the_body_where_the_client_takes_them() {
    let chunked = "Transfer-Encoding: chunked\r\nTrailer: x-sum, x-time\r\n";
    // (version, HEAD, TE: trailers, status, Content-Length; head, body)
    let cases = [
        (Version::Http11, false, true, "200 OK", None, chunked, "5\r\nhello\r\n0\r\nX-Sum: 1\r\nx-time: \r\n\r\n"),
        // One framing: the declared length gives way, and is held to.
        (Version::Http11, false, true, "200 OK", Some("5"), chunked, "5\r\nhello\r\n0\r\nX-Sum: 1\r\nx-time: \r\n\r\n"),
        (Version::Http11, false, false, "200 OK", None, "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        (Version::Http11, false, false, "200 OK", Some("5"), "Content-Length: 5\r\n", "hello"),
        (Version::Http10, false, true, "200 OK", Some("5"), "Content-Length: 5\r\n", "hello"),
        (Version::Http11, true, true, "200 OK", None, "", ""),
        (Version::Http11, false, true, "204 No Content", None, "", ""),
        (Version::Http11, false, true, "205 Reset Content", None, "Content-Length: 0\r\n", ""),
    ];
    let mut trailers = FieldLines::default();
    trailers.trailer(b"X-Sum", b"1").unwrap();
    trailers.trailer(b"x-time", b"").unwrap();
    for (version, is_head, takes_trailers, status, length, head, body) in cases {
        let request = Request { version, is_head, keep_alive: true, takes_trailers };
        let mut draft = Draft::default();
        draft.start(status.as_bytes()).unwrap();
        draft.expect_trailers();
        draft.field(b"Trailer", b"x-sum").unwrap();
        if let Some(length) = length {
            draft.field(b"Content-Length", length.as_bytes()).unwrap();
        }
        draft.field(b"trailer", b"x-time").unwrap();
        let mut out = Vec::new();
        let mut sender = Sender::begin(&draft, request, None, &stamp(""), &mut out);
        let admitted = sender.open(5, &mut out).0;
        out.extend_from_slice(&b"hello"[..usize::try_from(admitted).unwrap()]);
        sender.close(admitted, &mut out);
        sender.finish_with(&trailers, &mut out).unwrap();
        let connection = if version == Version::Http10 { "Connection: keep-alive\r\n" } else { "" };
        let expected = format!("HTTP/1.1 {status}\r\n{head}{DATE}{connection}\r\n{body}");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert!(sender.is_whole() && sender.keeps_alive());
    }
}

#[test]
fn body_before_trailers_is_held_to_its_declared_length() {
    let request = Request { version: Version::Http11, is_head: false, keep_alive: true, takes_trailers: true };
    let mut draft = Draft::default();
    draft.start(b"200 OK").unwrap();
    draft.expect_trailers();
    draft.field(b"Content-Length", b"5").unwrap();
    let mut sender = Sender::begin(&draft, request, None, &stamp(""), &mut Vec::new());
    assert_eq!(sender.open(4, &mut Vec::new()), (4, Ok(())));
    assert_eq!(sender.finish_with(&FieldLines::default(), &mut Vec::new()), Err(Misuse::BodyTooShort));
    assert!(!sender.is_whole());
    assert_eq!(sender.open(2, &mut Vec::new()), (0, Err(Misuse::BodyTooLong)));
}

#[test]
fn trailers_and_early_hints_are_checked_like_heads() {
    let mut lines = FieldLines::default();
    for name in ["Content-Length", "transfer-encoding", "Host", "set-cookie", "content-type", "Trailer", "te"] {
        assert_eq!(lines.trailer(name.as_bytes(), b"1"), Err(Misuse::TrailerForbidden), "{name}");
    }
    assert_eq!(lines.trailer(b"a b", b"1"), Err(Misuse::NameInvalid));
    assert_eq!(lines.trailer(b"a", b"1\r\nb: 2"), Err(Misuse::ValueInvalid));
    assert_eq!(lines.field(b"link", b"1\nb"), Err(Misuse::ValueInvalid));
    assert!(lines.is_empty());
    lines.field(b"link", b"</a.css>; rel=preload").unwrap();
    let mut out = Vec::new();
    write_early_hints(&lines, &mut out);
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
}

#[test]
fn fields_of_the_application_replace_the_stamp() {
    let request = Request { version: Version::Http11, is_head: false, keep_alive: true, takes_trailers: false };
    let write = |fields: &[(&str, &str)], stamp: &Stamp| {
        let mut out = Vec::new();
        Sender::begin(&draft("200 OK", fields).unwrap(), request, Some(0), stamp, &mut out);
        String::from_utf8(out).unwrap()
    };
    let mut stamp = stamp("kirsch");
    assert_eq!(write(&[], &stamp), format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{DATE}Server: kirsch\r\n\r\n"));
    assert_eq!(
        write(&[("DATE", "today"), ("server", "mine")], &stamp),
        "HTTP/1.1 200 OK\r\nDATE: today\r\nserver: mine\r\nContent-Length: 0\r\n\r\n"
    );
    stamp.set_time(0);
    assert!(write(&[], &stamp).contains("\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"));
}

#[test]
fn refusals_are_complete_and_close_the_connection() {
    let page = "431 Request Header Fields Too Large\nThere are too many header lines.\n";
    for is_head in [false, true] {
        let mut out = Vec::new();
        let sender = {
            let text = Page::text(431, "There are too many header lines.");
            write_page(&Page::error(431, &text, None), close_after(is_head), &stamp("kirsch"), &mut out)
        };
        assert!(!sender.keeps_alive());
        assert_eq!(sender.body_bytes(), if is_head { 0 } else { page.len() as u64 });
        let expected = format!(
            "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n{DATE}Server: kirsch\r\nConnection: close\r\n\r\n{}",
            page.len(),
            if is_head { "" } else { page }
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
    assert_eq!(CONTINUE, b"HTTP/1.1 100 Continue\r\n\r\n");
}

#[test]
fn json_responses_of_the_server_are_complete_and_close_the_connection() {
    let json = "{\"status\":\"alive\"}\n";
    for (is_head, status, phrase, retry_after) in
        [(false, 200, "OK", None), (true, 200, "OK", None), (false, 503, "Service Unavailable", Some(7))]
    {
        let mut out = Vec::new();
        let sender = write_page(
            &Page::status_report(status, json, retry_after),
            close_after(is_head),
            &stamp("kirsch"),
            &mut out,
        );
        assert!(!sender.keeps_alive());
        let expected = format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n{}\
             Content-Length: {}\r\n{DATE}Server: kirsch\r\nConnection: close\r\n\r\n{}",
            retry_after.map_or(String::new(), |seconds: u64| format!("Retry-After: {seconds}\r\n")),
            json.len(),
            if is_head { "" } else { json }
        );
        // The sender decides the order of two fields that the server itself writes.
        let (mut lines, mut wanted): (Vec<_>, Vec<_>) =
            (str::from_utf8(&out).unwrap().split("\r\n").collect(), expected.split("\r\n").collect());
        lines.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(lines, wanted);
    }
}

// -------------------------------------------------------------------------------------------------------- requests

fn request(
    (method, target, version): (&str, &str, Version),
    fields: &[(&str, &str)],
    content: Content,
    parts: &[&str],
    trailers: &[(&str, &str)],
) -> Result<String, ClientMisuse> {
    let mut draft = client::Draft::new(method.as_bytes(), target.as_bytes(), version)?;
    for (name, value) in fields {
        draft.field(name.as_bytes(), value.as_bytes())?;
    }
    let mut out = Vec::new();
    let mut sender = client::Sender::begin(&draft, content, &mut out)?;
    for part in parts {
        sender.open(part.len() as u64, &mut out)?;
        out.extend_from_slice(part.as_bytes());
        sender.close(part.len() as u64, &mut out);
    }
    let trailers: Vec<_> = trailers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    sender.finish(&trailers, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn requests_are_written_byte_for_byte() {
    let (get, post) = (("GET", "/a?b", Version::Http11), ("POST", "/", Version::Http11));
    let host = ("Host", "a:1");
    let cases: [(Result<String, ClientMisuse>, &str); 8] = [
        (request(get, &[host], Content::None, &[], &[]), "GET /a?b HTTP/1.1\r\nHost: a:1\r\n\r\n"),
        (request(("GET", "/", Version::Http10), &[], Content::None, &[], &[]), "GET / HTTP/1.0\r\n\r\n"),
        (
            request(("GET", "/", Version::Http10), &[("Connection", "keep-alive")], Content::None, &[], &[]),
            "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
        ),
        (
            request(get, &[("connection", "Close"), host], Content::None, &[], &[]),
            "GET /a?b HTTP/1.1\r\nHost: a:1\r\nConnection: close\r\n\r\n",
        ),
        (
            request(("OPTIONS", "*", Version::Http11), &[host], Content::Length(0), &[""], &[]),
            "OPTIONS * HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            request(post, &[host, ("Expect", "100-continue")], Content::Length(5), &["he", "", "llo"], &[]),
            "POST / HTTP/1.1\r\nHost: a:1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        ),
        (
            request(post, &[host], Content::Chunked, &["hello", "", "!"], &[("X", "1"), ("Y", "")]),
            "POST / HTTP/1.1\r\nHost: a:1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nX: 1\r\nY: \r\n\r\n",
        ),
        (
            request(post, &[host], Content::Chunked, &[], &[]),
            "POST / HTTP/1.1\r\nHost: a:1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
    ];
    for (written, expected) in cases {
        assert_eq!(written.as_deref(), Ok(expected));
    }
    let mut draft = client::Draft::new(b"PUT", b"/", Version::Http11).unwrap();
    assert!(draft.keeps_alive() && !draft.expects_continue());
    draft.field(b"expect", b"100-Continue").unwrap();
    draft.field(b"Connection", b"close").unwrap();
    assert!(!draft.keeps_alive() && draft.expects_continue());
}

#[test]
fn every_misuse_of_a_request_is_refused() {
    let get = ("GET", "/", Version::Http11);
    let host = ("Host", "a");
    let message = ClientMisuse::Message;
    let with = |field: (&str, &str)| request(get, &[host, field], Content::None, &[], &[]);
    let chunked = |trailers: &[(&str, &str)]| request(get, &[host], Content::Chunked, &[], trailers);
    let first =
        |method: &str, target: &str| request((method, target, Version::Http11), &[host], Content::None, &[], &[]);
    let table = [
        (ClientMisuse::ChunkedOnHttp10, request(("POST", "/", Version::Http10), &[host], Content::Chunked, &[], &[])),
        (ClientMisuse::Connect, first("CONNECT", "a:1")),
        (ClientMisuse::FramingField, with(("content-length", "1"))),
        (ClientMisuse::FramingField, with(("Transfer-Encoding", "chunked"))),
        (ClientMisuse::HostInvalid, request(get, &[("Host", "a/b")], Content::None, &[], &[])),
        (ClientMisuse::HostMissing, request(get, &[], Content::None, &[], &[])),
        (ClientMisuse::HostRepeated, with(("host", "b"))),
        (ClientMisuse::MethodInvalid, first("", "/")),
        (ClientMisuse::MethodInvalid, first("G T", "/")),
        (ClientMisuse::MethodInvalid, first("GET / HTTP/1.1\r\n", "/")),
        (ClientMisuse::TargetInvalid, first("GET", "")),
        (ClientMisuse::TargetInvalid, first("GET", "a")),
        (ClientMisuse::TargetInvalid, first("GET", "*")),
        (ClientMisuse::TargetInvalid, first("GET", "/#a")),
        (ClientMisuse::TargetInvalid, first("GET", "/ HTTP/1.1\r\nInjected: x\r\n")),
        (ClientMisuse::TargetInvalid, first("GET", "http://")),
        (ClientMisuse::TrailerForbidden, chunked(&[("Content-Length", "1")])),
        (ClientMisuse::TrailerForbidden, chunked(&[("host", "a")])),
        (ClientMisuse::TrailerWithoutChunks, request(get, &[host], Content::None, &[], &[("A", "b")])),
        (message(Misuse::NameInvalid), with(("A\r\nB", "c"))),
        (message(Misuse::NameInvalid), chunked(&[("A:", "b")])),
        (message(Misuse::ValueInvalid), with(("A", "b\r\nInjected: x"))),
        (message(Misuse::ValueInvalid), chunked(&[("A", "b\r\n\r\nGET / HTTP/1.1")])),
        (message(Misuse::HopByHop), with(("Connection", "upgrade"))),
        (message(Misuse::HopByHop), with(("Upgrade", "h2c"))),
        (message(Misuse::HopByHop), with(("TE", "trailers"))),
        (message(Misuse::HopByHop), with(("Keep-Alive", "timeout=5"))),
        (message(Misuse::BodyTooLong), request(get, &[host], Content::None, &["a"], &[])),
        (message(Misuse::BodyTooLong), request(get, &[host], Content::Length(1), &["ab"], &[])),
        (message(Misuse::BodyTooShort), request(get, &[host], Content::Length(2), &["a"], &[])),
    ];
    for (misuse, written) in &table {
        assert_eq!(written, &Err(*misuse));
        assert!(!misuse.to_string().is_empty());
    }
    for misuse in ClientMisuse::ALL {
        assert!(table.iter().any(|(reached, _)| reached == misuse), "not reached: {misuse:?}");
    }
}

#[test]
fn transport_security_is_written_unless_the_application_has_set_it() {
    let mut stamp = stamp("");
    stamp.demand_transport_security(60, true);
    let written = |fields: &[(&str, &str)]| {
        let mut out = Vec::new();
        let draft = draft("200 OK", fields).unwrap();
        Sender::begin(&draft, close_after(false), Some(0), &stamp, &mut out);
        // A copy knows it too.
        let mut again = Vec::new();
        Sender::begin(&draft.clone(), close_after(false), Some(0), &stamp, &mut again);
        assert_eq!(out, again);
        String::from_utf8(out).unwrap()
    };
    assert!(written(&[]).contains("\r\nStrict-Transport-Security: max-age=60; includeSubDomains\r\n"));
    let own = written(&[("strict-transport-security", "max-age=1")]);
    assert_eq!(own.to_lowercase().matches("strict-transport-security").count(), 1);
}
