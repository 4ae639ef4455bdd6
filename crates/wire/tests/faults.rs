//! Every rule that a peer can break is reached: one table of rules and bytes for each role, each complete over the
//! rules, each case read whole and byte by byte.

use std::collections::HashSet;
use wire::http1::client::{self, Body, ServerFault};
use wire::http1::{BodyStep, Receiver, partial_request_line};
use wire::message::{Fault, Field, Limits, Version};

/// Step sizes in which a case is read.
const SMALLEST: usize = if cfg!(miri) { 1460 } else { 1 };
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\n";

fn limits() -> Limits {
    Limits { body: 1000, ..Limits::default() }
}

/// The ends of the pieces of `input`, each `step` bytes long.
fn every(input: &str, step: usize) -> Vec<usize> {
    (step..input.len()).step_by(step).chain([input.len()]).collect()
}

/// The fault that the server role reports for a stream whose pieces end at `ends`, and which ends then.
fn server_sees(input: &[u8], ends: &[usize]) -> Option<Fault> {
    let (limits, mut receiver, mut fields) = (limits(), Receiver::default(), Vec::<Field>::new());
    let (mut at, mut in_body) = (0, false);
    for &end in ends {
        loop {
            if in_body {
                match receiver.body(&input[at..end], &limits) {
                    Ok((used, found)) => {
                        at += used;
                        in_body = found != BodyStep::End;
                        if found == BodyStep::More {
                            break;
                        }
                    }
                    Err(fault) => return Some(fault),
                }
            } else {
                match receiver.head(&input[at..end], &mut fields, &limits) {
                    Ok(Some(head)) => at += head.length,
                    Ok(None) => break,
                    Err(fault) => return Some(fault),
                }
                in_body = true;
            }
        }
    }
    receiver.end_of_input(&input[at..]).err()
}

fn client_sees(input: &[u8], ends: &[usize]) -> Option<ServerFault> {
    let (limits, mut receiver, mut fields) = (limits(), client::Receiver::default(), Vec::<Field>::new());
    let (mut at, mut in_body) = (0, false);
    for &end in ends {
        loop {
            if in_body {
                match receiver.body(&input[at..end], &limits) {
                    Ok((used, found)) => {
                        at += used;
                        in_body = found != BodyStep::End;
                        if found == BodyStep::More {
                            break;
                        }
                    }
                    Err(fault) => return Some(fault),
                }
            } else {
                match receiver.head(&input[at..end], false, &mut fields, &limits) {
                    Ok(Some(reply)) => at += reply.length,
                    Ok(None) => break,
                    Err(fault) => return Some(fault),
                }
                in_body = true;
            }
        }
    }
    receiver.end_of_input(&input[at..]).err()
}

/// A request with these field lines besides Host.
fn with(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

fn chunked(body: &str) -> String {
    format!("{POST}{body}")
}

#[test]
fn every_fault_is_reached() {
    let long = |length| "x".repeat(length);
    let table = [
        (Fault::AsteriskWithoutOptions, "GET * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (Fault::BareCarriageReturn, with("A: b\rc\r\n")),
        (Fault::BareLineFeed, with("A: b\n")),
        (Fault::BodyTooLarge, with("Content-Length: 1001\r\n")),
        (Fault::ChunkEndMissing, chunked("1\r\nab\r\n")),
        (Fault::ChunkExtensionInvalid, chunked("1;=\r\na\r\n")),
        (Fault::ChunkLineTooLong, chunked(&format!("1;{}\r\n", long(4095)))),
        (Fault::ChunkSizeInvalid, chunked("x\r\n")),
        (Fault::ChunkSizeTooLarge, chunked("3e9\r\n")),
        (Fault::ColonMissing, with("A\r\n")),
        (Fault::ConnectRefused, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_owned()),
        (Fault::ContentLengthInvalid, with("Content-Length: +1\r\n")),
        (Fault::ContentLengthRepeated, with("Content-Length: 1\r\nContent-Length: 1\r\n")),
        (Fault::ExpectationUnknown, with("Expect: 200-ok\r\n")),
        (Fault::FieldLineTooLong, with(&format!("A: {}\r\n", long(8188)))),
        (Fault::FieldNameEmpty, with(": b\r\n")),
        (Fault::FieldNameInvalid, with("A(: b\r\n")),
        (Fault::FieldValueInvalid, with("A: \0\r\n")),
        (Fault::FieldsTooMany, with(&"A: b\r\n".repeat(100))),
        (Fault::HeadTooLarge, with(&format!("A: {}\r\n", long(8000)).repeat(9))),
        (Fault::Http2Preface, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
        (Fault::HostInvalid, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned()),
        (Fault::HostMissing, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (Fault::HostRepeated, with("Host: a\r\n")),
        (Fault::LineFolded, with(" b\r\n")),
        (Fault::MethodInvalid, "G@T / HTTP/1.1\r\n\r\n".to_owned()),
        (Fault::MethodTooLong, format!("{} / HTTP/1.1\r\n\r\n", long(33))),
        (Fault::ProxyProtocol, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n".to_owned()),
        (Fault::ProxyProtocol, "\r\n\r\n\0\r\nQUIT\n!".to_owned()),
        (Fault::RequestLineMalformed, "GET  / HTTP/1.1\r\n\r\n".to_owned()),
        (Fault::RequestLineTooLong, format!("GET /{} HTTP/1.1\r\n\r\n", long(8190))),
        (Fault::SpaceBeforeColon, with("A : b\r\n")),
        (Fault::SpaceBeforeFirstField, "GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_owned()),
        (Fault::GatewayProtocolOnHttp, "\x01\x01\0\x01\0\x08\0\0".to_owned()),
        (Fault::SshBanner, "SSH-2.0-OpenSSH_9.9\r\n".to_owned()),
        (Fault::TargetFormInvalid, "GET a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (Fault::TargetInvalid, "GET /# HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (Fault::TlsHandshake, "\x16\x03\x01\x02\0\x01".to_owned()),
        (Fault::TrailerForbidden, chunked("0\r\nHost: a\r\n\r\n")),
        (Fault::TrailersTooLarge, chunked(&format!("0\r\n{}\r\n", format!("A: {}\r\n", long(4093)).repeat(2)))),
        (Fault::TransferEncodingInvalid, with("Transfer-Encoding: chunked, chunked\r\n")),
        (Fault::TransferEncodingOnHttp10, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        (Fault::TransferEncodingUnsupported, with("Transfer-Encoding: gzip, chunked\r\n")),
        (Fault::TransferEncodingWithContentLength, with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")),
        (Fault::Truncated, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na".to_owned()),
        (Fault::VersionMalformed, "GET / http/1.1\r\n\r\n".to_owned()),
        (Fault::VersionUnsupported, "GET / HTTP/2.0\r\n\r\n".to_owned()),
    ];
    for (fault, input) in &table {
        for step in [input.len(), SMALLEST] {
            assert_eq!(
                server_sees(input.as_bytes(), &every(input, step)),
                Some(*fault),
                "{step} bytes at a time: {input:.80?}"
            );
        }
    }
    let reached: HashSet<Fault> = table.iter().map(|(fault, _)| *fault).collect();
    // The rules about trusted proxies are broken behind the reader: `forwarded.rs` reaches them.
    let of_proxies = [Fault::ForwardedContradictory, Fault::ForwardedInvalid];
    let of_readers = Fault::ALL
        .iter()
        .filter(|fault| !of_proxies.contains(fault) && !Fault::GATEWAY.contains(fault) && **fault != Fault::HTTP2);
    let missing: Vec<_> = of_readers.filter(|fault| !reached.contains(fault)).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}");
}

#[test]
fn sources_of_faults_name_the_rfc_section() {
    assert_eq!(Fault::HostMissing.source(), Some("RFC 9112 section 3.2"));
    assert_eq!(Fault::ContentLengthInvalid.source(), Some("RFC 9110 section 8.6"));
    assert_eq!(Fault::ExpectationUnknown.source(), Some("RFC 9110 section 10.1.1"));
    assert_eq!(Fault::ChunkExtensionInvalid.source(), Some("RFC 9112 section 7.1.1"));
    assert_eq!(Fault::FieldsTooMany.source(), None);
}

#[test]
fn partial_request_lines_are_read_as_far_as_possible() {
    let read = |input| partial_request_line(input).map(|line| (line.method, line.target, line.is_cut, line.version));
    let whole = Some((&b"GET"[..], &b"/a?b"[..], false, Some(Version::Http11)));
    assert_eq!(read(b"GET /a?b HTTP/1.1\r\nHost"), whole);
    assert_eq!(read(b"\r\nGET /a?b HTTP/1.1\r\n"), whole);
    assert_eq!(read(b"GET /a?b HTTP/9.9\r\n"), Some((&b"GET"[..], &b"/a?b"[..], false, None)));
    assert_eq!(read(b"GET /a?b HTTP/1.1"), Some((&b"GET"[..], &b"/a?b"[..], false, None)));
    assert_eq!(read(b"GET /a?b"), Some((&b"GET"[..], &b"/a?b"[..], true, None)));
    assert_eq!(read(b"GET /a\0b HTTP/1.1\r\n"), Some((&b"GET"[..], &b"/a"[..], true, None)));
    assert_eq!(read(b"GET "), Some((&b"GET"[..], &b""[..], true, None)));
    for nothing in [&b""[..], b"GET", b"\x16\x03\x01", b" / HTTP/1.1\r\n", b"G@T / HTTP/1.1\r\n"] {
        assert_eq!(read(nothing), None, "{nothing:?}");
    }
}

#[test]
fn every_server_fault_is_reached() {
    let message = ServerFault::Message;
    let ok = |rest: &str| format!("{OK}{rest}");
    let table = [
        (ServerFault::InterimsTooMany, "HTTP/1.1 102 Processing\r\n\r\n".repeat(65)),
        (ServerFault::ReasonInvalid, "HTTP/1.1 200 O\0\r\n\r\n".to_owned()),
        (ServerFault::StatusInvalid, "HTTP/1.1 099 Low\r\n\r\n".to_owned()),
        (ServerFault::StatusInvalid, "HTTP/1.1 2x0 Odd\r\n\r\n".to_owned()),
        (ServerFault::StatusLineMalformed, "HTTP/1.1 200\r\n\r\n".to_owned()),
        (ServerFault::StatusLineMalformed, "HTTP/1.1  200 OK\r\n\r\n".to_owned()),
        (ServerFault::StatusLineMalformed, "\r\nHTTP/1.1 200 OK\r\n\r\n".to_owned()),
        (ServerFault::StatusLineMalformed, "HTTP/1.1 \n200 OK\r\n\r\n".to_owned()),
        (ServerFault::StatusLineMalformed, "HTTP/1.1 2000 OK\r\n\r\n".to_owned()),
        (ServerFault::StatusLineMalformed, "nonsense\r\n".to_owned()),
        (ServerFault::StatusLineTooLong, format!("HTTP/1.1 200 {}\r\n\r\n", "x".repeat(8178))),
        (ServerFault::SwitchUnasked, "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned()),
        (ServerFault::VersionMalformed, "http/1.1 200 OK\r\n\r\n".to_owned()),
        (ServerFault::VersionUnsupported, "HTTP/2.0 200 OK\r\n\r\n".to_owned()),
        (message(Fault::BareLineFeed), "HTTP/1.1 200 OK\n\n".to_owned()),
        (message(Fault::BareCarriageReturn), "HTTP/1.1 200 O\rK\r\n\r\n".to_owned()),
        (message(Fault::SpaceBeforeColon), ok("A : b\r\n\r\n")),
        (message(Fault::LineFolded), ok("A: b\r\n c\r\n\r\n")),
        (message(Fault::FieldsTooMany), ok(&"A: b\r\n".repeat(101))),
        (message(Fault::ContentLengthInvalid), ok("Content-Length: 1, 1\r\n\r\n")),
        (message(Fault::ContentLengthRepeated), ok("Content-Length: 1\r\nContent-Length: 1\r\n\r\n")),
        (
            message(Fault::TransferEncodingWithContentLength),
            ok("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ),
        (message(Fault::TransferEncodingUnsupported), ok("Transfer-Encoding: gzip\r\n\r\n")),
        (message(Fault::TransferEncodingOnHttp10), "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
        (message(Fault::ChunkSizeInvalid), ok("Transfer-Encoding: chunked\r\n\r\n-1\r\n")),
        (message(Fault::BodyTooLarge), ok("Content-Length: 1001\r\n\r\n")),
        (message(Fault::BodyTooLarge), ok(&format!("\r\n{}", "x".repeat(1001)))),
        (message(Fault::Truncated), ok("Content-Length: 2\r\n\r\na")),
        (message(Fault::Truncated), ok("Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")),
        (message(Fault::Truncated), "HTTP/1.1 100 Continue\r\n\r\n".to_owned()),
        (message(Fault::Truncated), "HTTP/1.1".to_owned()),
    ];
    for (fault, input) in &table {
        for step in [input.len(), SMALLEST] {
            assert_eq!(
                client_sees(input.as_bytes(), &every(input, step)),
                Some(*fault),
                "{step} bytes at a time: {input:.80?}"
            );
        }
        assert!(!fault.explanation().is_empty() && !fault.name().is_empty());
    }
    let reached: HashSet<ServerFault> = table.iter().map(|(fault, _)| *fault).collect();
    let missing: Vec<_> = ServerFault::ALL.iter().filter(|fault| !reached.contains(fault)).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}");
}

#[test]
#[cfg_attr(miri, ignore = "inputs at the bounds take minutes there")]
fn limits_admit_values_up_to_themselves() {
    let long = |length| "x".repeat(length);
    for input in &[
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", long(8190 - 14)),
        format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", long(32)),
        with(&format!("A:{}\r\n", long(8188))),
        with(&"A: b\r\n".repeat(99)),
        with("Content-Length: 1000\r\n") + &long(1000),
        chunked(&format!("1;{}\r\na\r\n0\r\n\r\n", long(4094))),
        chunked(&format!("0\r\n{}\r\n", format!("A: {}\r\n", long(4090)).repeat(2))),
    ] {
        for step in [input.len(), SMALLEST] {
            assert_eq!(
                server_sees(input.as_bytes(), &every(input, step)),
                None,
                "{step} bytes at a time: {input:.80?}"
            );
        }
    }
    for input in &[
        format!("HTTP/1.1 200 {}\r\nContent-Length: 0\r\n\r\n", long(8190 - 13)),
        format!("{OK}\r\n{}", long(1000)),
        "HTTP/1.1 102 Processing\r\n\r\n".repeat(64) + "HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n",
    ] {
        for step in [input.len(), SMALLEST] {
            assert_eq!(
                client_sees(input.as_bytes(), &every(input, step)),
                None,
                "{step} bytes at a time: {input:.80?}"
            );
        }
    }
}

/// If a stream breaks several rules, the first one is reported, wherever the stream is cut. Input beyond a limit is too
/// long, whatever it contains.
#[test]
#[cfg_attr(miri, ignore = "inputs at the bounds take minutes there")]
fn first_broken_rule_is_reported_however_the_stream_is_cut() {
    let long = |length| "x".repeat(length);
    let large = format!("A: {}\r\n", long(8000)).repeat(8);
    for (fault, input) in [
        (Fault::HostRepeated, with("Host: b\r\nA(: b\r\n")),
        (Fault::ContentLengthInvalid, with("Content-Length: x\r\nA\r\n")),
        (Fault::TransferEncodingInvalid, with("Transfer-Encoding: ,\r\n b\r\n")),
        (Fault::SpaceBeforeColon, with("A \t : b\r\n")),
        (Fault::FieldNameInvalid, with("A \t b\r\n")),
        (Fault::ColonMissing, with("A\r\n")),
        (Fault::BareCarriageReturn, with("A\rb\r\n")),
        (Fault::LineFolded, chunked("0\r\nA: b\r\n c\r\n\r\n")),
        (Fault::ColonMissing, chunked("0\r\nA\r\n\r\n")),
        (Fault::RequestLineTooLong, format!("GET / HTTP/1.1{}\r\n", long(8190))),
        (Fault::FieldLineTooLong, with(&format!("{}(: b\r\n", long(8191)))),
        (Fault::FieldLineTooLong, with(&format!("A{}: b\r\n", " ".repeat(8190)))),
        (Fault::HeadTooLarge, with(&format!("{large}A: {}\0\r\n", long(4000)))),
        (Fault::TrailersTooLarge, chunked(&format!("0\r\nA: {}\r\nB: {}\0\r\n", long(8000), long(200)))),
        (Fault::ChunkLineTooLong, chunked(&format!("1;{}\n", long(4097)))),
    ] {
        let length = input.len();
        let mut cuts = vec![vec![length], every(&input, SMALLEST)];
        if length < 200 {
            cuts.extend((1..length).map(|cut| vec![cut, length]));
        }
        for ends in cuts {
            assert_eq!(server_sees(input.as_bytes(), &ends), Some(fault), "pieces end at {ends:.40?}: {input:.80?}");
        }
    }
}

#[test]
fn response_head_determines_framing_and_keep_alive() {
    let table = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", false, Body::Length(3), true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: x, Close\r\n", false, Body::Length(3), false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n", false, Body::Chunked, true),
        ("HTTP/1.1 200 OK\r\n", false, Body::UntilClose, false),
        ("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n", false, Body::UntilClose, false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n", false, Body::Length(3), false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: Keep-Alive\r\n", false, Body::Length(3), true),
        ("HTTP/1.7 200 OK\r\nContent-Length: 3\r\n", false, Body::Length(3), true),
        // No body, whatever the fields say (RFC 9112 section 6.3), even beyond the limit.
        ("HTTP/1.1 204 \r\nContent-Length: 3\r\n", false, Body::None, true),
        ("HTTP/1.1 304 \r\nTransfer-Encoding: chunked\r\n", false, Body::None, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n", true, Body::None, true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", true, Body::None, true),
        ("HTTP/1.1 200 OK\r\n", true, Body::None, true),
        ("HTTP/1.0 200 OK\r\n", true, Body::None, false),
        ("HTTP/1.1 103 Early Hints\r\nConnection: close\r\n", false, Body::None, true),
    ];
    for (head, answers_head, body, keep_alive) in table {
        let input = format!("{head}\r\nabc");
        let (mut receiver, mut fields) = (client::Receiver::default(), Vec::new());
        let reply = receiver.head(input.as_bytes(), answers_head, &mut fields, &limits()).unwrap().expect("whole");
        assert_eq!((reply.body, reply.keep_alive), (body, keep_alive), "{head:?}");
        assert_eq!(reply.is_interim, reply.status < 200);
        let rest = &input.as_bytes()[reply.length..];
        if body == Body::UntilClose {
            assert_eq!(receiver.body(rest, &limits()), Ok((3, BodyStep::Data(b"abc"))));
            assert_eq!(receiver.body(b"", &limits()), Ok((0, BodyStep::More)));
            assert_eq!(receiver.end_of_input(b""), Ok(()));
            assert_eq!(receiver.body(b"", &limits()), Ok((0, BodyStep::End)));
        }
        if body == Body::None {
            assert_eq!(receiver.body(rest, &limits()), Ok((0, BodyStep::End)));
            assert_eq!(receiver.end_of_input(b"").is_ok(), !reply.is_interim);
            assert!(receiver.end_of_input(rest).is_err());
        }
    }
}
