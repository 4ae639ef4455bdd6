//! The corpus of `tests/corpus/websocket` against both roles of WebSocket: every case whole, byte by byte, cut at each
//! position, and at seeded random positions (`KIRSCH_SEED`, or a fixed seed); and what the corpus cannot say.
//!
//! The file is long because each rule of the three RFCs that a client can break has its case.
#![cfg(not(miri))]

use serde::Deserialize;
use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use wire::http1::{self, client as http_client};
use wire::message::{Limits, Stamp};
use wire::websocket::client::{Answer, AnswerFault, Offer};
use wire::websocket::{
    AcceptMisuse, Carrier, Compression, Connection, Deflate, DeflateSettings, Event, Keys, Kind, Opening, Role,
    WebSocketFault, WebSocketLimits, WebSocketRefusal, wants_websocket,
};

const RANDOM_SPLITS: usize = 20;

/// A corpus case writes bytes as latin-1.
pub(crate) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("KIRSCH_SEED").ok().map_or(17, |seed| seed.parse().expect("a number"));
        println!("KIRSCH_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound.max(1)
    }
}

fn folder<T: for<'a> Deserialize<'a>>(kind: &str) -> Vec<(String, Vec<u8>, T)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/websocket").join(kind);
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).expect("the corpus is in the source tree") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension != "json") {
            let name = format!("{kind}/{}", path.file_stem().unwrap().to_str().unwrap());
            let text = fs::read(path.with_extension("json")).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            let case = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}.json: {error}"));
            cases.push((name, fs::read(&path).unwrap(), case));
        }
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() >= 25, "{kind} has only {} cases", cases.len());
    cases
}

// ---- frames

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameCase {
    rule: String,
    #[serde(default)]
    role: CaseRole,
    /// The answer to this offer of permessage-deflate has been sent before.
    deflate: Option<String>,
    /// The window of the client's context that the server keeps, in bits.
    client_context_bits: Option<u8>,
    /// The largest message.
    message: Option<usize>,
    events: Vec<[String; 2]>,
    fault: Option<String>,
    /// The bytes that are sent back.
    answer: String,
    close_code: u16,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CaseRole {
    #[default]
    Server,
    Client,
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    events: Vec<[String; 2]>,
    fault: Option<String>,
    answer: String,
    close_code: u16,
}

/// Returns the parameters that a server agrees to if a client offers `offer`.
pub(crate) fn agreed(offer: &str, settings: DeflateSettings) -> Option<Deflate> {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: {offer}\r\n\r\n"
    );
    open(head.as_bytes(), |opening| opening.agree(None, Some(settings)).unwrap().deflate).unwrap()
}

fn connection(case: &FrameCase) -> Connection {
    let settings = DeflateSettings { client_context_bits: case.client_context_bits, ..DeflateSettings::default() };
    let limits = WebSocketLimits { message: case.message.unwrap_or(1 << 20), ..WebSocketLimits::default() };
    let deflate = case.deflate.as_deref().map(|offer| agreed(offer, settings).expect("the offer is accepted"));
    let role = match case.role {
        CaseRole::Server => Role::Server,
        CaseRole::Client => Role::Client(Keys::new(0)),
    };
    Connection::new(role, deflate, limits)
}

fn run(mut connection: Connection, bytes: &[u8], cuts: &[usize], compression: &mut Compression) -> Outcome {
    let mut outcome = Outcome { events: Vec::new(), fault: None, answer: String::new(), close_code: 0 };
    let mut answer = Vec::new();
    let mut at = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        while at < cut {
            let mut input = bytes[at..cut].to_vec();
            let (used, event) = connection.next(&mut input, compression);
            assert!(used > 0, "it takes what it is offered");
            at += used;
            match event {
                Event::Nothing => {}
                Event::Message { kind, bytes } => {
                    assert!(kind == Kind::Binary || str::from_utf8(&bytes).is_ok());
                    outcome.events.push([format!("{kind:?}").to_lowercase(), latin1(&bytes)]);
                }
                Event::Pong(payload) => outcome.events.push(["pong".into(), latin1(&payload)]),
                Event::Close(frame) => {
                    outcome.events.push(["close".into(), format!("{} {}", frame.number(), frame.reason).trim().into()]);
                }
                Event::Fault(fault) => {
                    assert!(outcome.fault.is_none(), "one fault ends a connection");
                    outcome.fault = Some(fault.name().into());
                }
            }
            connection.flush(0, &mut answer);
        }
    }
    outcome.answer = latin1(&answer);
    outcome.close_code = connection.close_code();
    outcome
}

#[test]
fn every_case_of_frames_is_read_as_it_says_however_it_is_cut() {
    let mut random = Random::seeded();
    let mut compression = Compression::new(6);
    let mut reached = HashSet::new();
    for (name, bytes, case) in folder::<FrameCase>("frames") {
        assert!(case.rule.starts_with("RFC "), "{name}: the rule says where it is written");
        let expected = Outcome {
            events: case.events.clone(),
            fault: case.fault.clone(),
            answer: case.answer.clone(),
            close_code: case.close_code,
        };
        reached.extend(case.fault.clone());
        let mut check = |cuts: &[usize], how: &str| {
            assert_eq!(run(connection(&case), &bytes, cuts, &mut compression), expected, "{name} {how} {cuts:?}");
        };
        check(&[], "whole");
        if bytes.len() < 5000 {
            check(&(0..bytes.len()).collect::<Vec<_>>(), "byte by byte");
            (0..bytes.len()).for_each(|cut| check(&[cut], "cut at"));
        }
        for _ in 0..RANDOM_SPLITS {
            let mut cuts: Vec<usize> = (0..6).map(|_| random.below(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            check(&cuts, "cut at");
        }
    }
    let missing: Vec<_> = WebSocketFault::ALL.iter().filter(|fault| !reached.contains(fault.name())).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}");
}

// ---- the opening handshake

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HandshakeCase {
    rule: String,
    /// The handshake is carried by HTTP/2's CONNECT.
    #[serde(default)]
    connect: bool,
    #[serde(default)]
    wants_websocket: Option<bool>,
    refusal: Option<String>,
    #[serde(default)]
    subprotocols: Vec<String>,
    /// The subprotocol that the application chooses.
    subprotocol: Option<String>,
    window_bits: Option<u8>,
    client_context_bits: Option<u8>,
    #[serde(default)]
    fields: Vec<[String; 2]>,
}

/// Reads the head of a request and gives what its handshake is to `then`.
pub(crate) fn open<T>(bytes: &[u8], then: impl FnOnce(Opening<'_>) -> T) -> Result<T, WebSocketRefusal> {
    open_by(bytes, Carrier::Http1, then)
}

fn open_by<T>(bytes: &[u8], carrier: Carrier, then: impl FnOnce(Opening<'_>) -> T) -> Result<T, WebSocketRefusal> {
    let (mut receiver, mut fields) = (http1::Receiver::default(), Vec::new());
    let head = receiver.head(bytes, &mut fields, &Limits::default()).unwrap().expect("the head is whole");
    let mut request = head.request;
    if carrier == Carrier::Connect {
        request.method = b"CONNECT";
    }
    Opening::read(&request, carrier).map(then)
}

#[test]
fn every_case_of_handshakes_is_answered_as_it_says() {
    let mut reached = HashSet::new();
    for (name, bytes, case) in folder::<HandshakeCase>("handshakes") {
        assert!(case.rule.starts_with("RFC "), "{name}: the rule says where it is written");
        let carrier = if case.connect { Carrier::Connect } else { Carrier::Http1 };
        if let Some(wants) = case.wants_websocket {
            let (mut receiver, mut fields) = (http1::Receiver::default(), Vec::new());
            let head = receiver.head(&bytes, &mut fields, &Limits::default()).unwrap().expect("the head is whole");
            assert_eq!(wants_websocket(&head.request), wants, "{name}");
        }
        let default = DeflateSettings::default();
        let settings = DeflateSettings {
            window_bits: case.window_bits.unwrap_or(default.window_bits),
            client_context_bits: case.client_context_bits,
        };
        let found = open_by(&bytes, carrier, |opening| {
            assert_eq!(opening.subprotocols(), case.subprotocols, "{name}");
            opening.agree(case.subprotocol.as_deref(), Some(settings)).unwrap()
        });
        let found = found.map(|agreement| {
            agreement.fields.into_iter().map(|(name, value)| [name.to_owned(), value]).collect::<Vec<_>>()
        });
        let expected = match &case.refusal {
            Some(refusal) => {
                reached.insert(refusal.clone());
                Err(refusal.clone())
            }
            None => Ok(case.fields),
        };
        assert_eq!(found.map_err(|refusal| refusal.name().to_owned()), expected, "{name}");
    }
    let missing: Vec<_> = WebSocketRefusal::ALL.iter().filter(|refusal| !reached.contains(refusal.name())).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}");
}

pub(crate) const OFFER: Offer<'_> = Offer {
    target: "/chat?room=1",
    host: "example.com",
    key: "dGhlIHNhbXBsZSBub25jZQ==",
    subprotocols: &["chat", "superchat"],
    deflate: true,
};

pub(crate) fn stamp() -> Stamp {
    Stamp::new("kirsch", 0).unwrap()
}

pub(crate) fn answer(offer: &Offer<'_>, bytes: &[u8]) -> Result<Answer, AnswerFault> {
    let text = str::from_utf8(bytes).unwrap();
    let (first, rest) = text.split_once("\r\n").unwrap();
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let lines = rest.strip_suffix("\r\n\r\n").unwrap().split("\r\n");
    let fields: Vec<_> =
        lines.map(|line| line.split_once(": ").unwrap()).map(|(a, b)| (a.as_bytes(), b.as_bytes())).collect();
    offer.judge(status, &fields)
}

#[test]
fn client_and_server_agree() {
    let mut request = Vec::new();
    assert!(OFFER.write(&mut request));
    let agreement =
        open(&request, |opening| opening.agree(Some("superchat"), Some(DeflateSettings::default())).unwrap()).unwrap();
    let mut head = Vec::new();
    agreement.write([(&b"Set-Cookie"[..], &b"a=b"[..])], &stamp(), &mut head).unwrap();
    assert_eq!(
        latin1(&head),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: superchat\r\n\
         Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n\
         Set-Cookie: a=b\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: kirsch\r\n\r\n"
    );
    let found = answer(&OFFER, &head).unwrap();
    assert_eq!(found.subprotocol.as_deref(), Some("superchat"));
    assert!(found.deflate.is_some());
}

#[test]
fn client_refuses_an_answer_that_it_did_not_ask_for() {
    let good = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    let with = |more: &str| format!("{good}{more}\r\n");
    assert!(answer(&OFFER, with("").as_bytes()).is_ok());
    let cases = [
        (with("").replace("101", "200"), AnswerFault::NotSwitched(200)),
        (with("").replace("Upgrade: websocket", "Upgrade: h2c"), AnswerFault::UpgradeMissing),
        (with("").replace("Connection: Upgrade", "Connection: close"), AnswerFault::ConnectionMissing),
        (with("").replace("s3pP", "S3pP"), AnswerFault::AcceptWrong),
        (with("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), AnswerFault::AcceptWrong),
        (with("Sec-WebSocket-Protocol: other\r\n"), AnswerFault::SubprotocolNotOffered),
        (with("Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: chat\r\n"), AnswerFault::SubprotocolNotOffered),
        (with("Sec-WebSocket-Extensions: foo\r\n"), AnswerFault::ExtensionNotOffered),
        (with("Sec-WebSocket-Extensions: permessage-deflate; mystery\r\n"), AnswerFault::ExtensionNotOffered),
        (
            with("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"),
            AnswerFault::ExtensionNotOffered,
        ),
        (
            with("Sec-WebSocket-Extensions: permessage-deflate, permessage-deflate\r\n"),
            AnswerFault::ExtensionNotOffered,
        ),
    ];
    for (bytes, fault) in cases {
        assert_eq!(answer(&OFFER, bytes.as_bytes()), Err(fault), "{bytes}");
    }
    let plain = Offer { deflate: false, ..OFFER };
    let found = answer(&plain, with("Sec-WebSocket-Extensions: permessage-deflate\r\n").as_bytes());
    assert_eq!(found, Err(AnswerFault::ExtensionNotOffered));
}

#[test]
fn client_writes_no_malformed_request() {
    for bad in [
        Offer { target: "/a b", ..OFFER },
        Offer { target: "", ..OFFER },
        Offer { host: "a\r\nEvil: 1", ..OFFER },
        Offer { key: "short", ..OFFER },
        Offer { subprotocols: &["a,b"], ..OFFER },
    ] {
        let mut out = Vec::new();
        assert!(!bad.write(&mut out) && out.is_empty(), "{bad:?}");
    }
}

#[test]
fn accept_refuses_fields_that_are_not_the_applications() {
    let mut request = Vec::new();
    assert!(OFFER.write(&mut request));
    let agree = |name: &str| open(&request, |opening| opening.agree(Some(name), None)).unwrap();
    assert_eq!(agree("other"), Err(AcceptMisuse::SubprotocolNotOffered));
    let agreement = agree("chat").unwrap();
    assert_eq!(agreement.deflate, None);
    for (name, value, misuse) in [
        ("Sec-WebSocket-Protocol", "chat", AcceptMisuse::FieldReserved),
        ("sec-websocket-extensions", "foo", AcceptMisuse::FieldReserved),
        ("Sec-WebSocket-Accept", "x", AcceptMisuse::FieldReserved),
        ("Connection", "close", AcceptMisuse::FieldReserved),
        ("Content-Length", "0", AcceptMisuse::FieldReserved),
        ("Transfer-Encoding", "chunked", AcceptMisuse::FieldReserved),
        ("Bad Name", "x", AcceptMisuse::NameInvalid),
        ("X", "a\r\nEvil: 1", AcceptMisuse::ValueInvalid),
    ] {
        let mut out = b"kept".to_vec();
        let written =
            agreement.write([(&b"X-First"[..], &b"1"[..]), (name.as_bytes(), value.as_bytes())], &stamp(), &mut out);
        assert_eq!(written, Err(misuse), "{name}");
        assert_eq!(out, b"kept");
    }
}

#[test]
fn refusal_is_a_whole_response_that_says_what_to_do() {
    let written = |refusal: WebSocketRefusal| {
        let (text, mut out) = (refusal.text(), Vec::new());
        let request = http1::close_after(false);
        let mut sender = http1::Sender::begin(&refusal.draft(&text), request, None, &stamp(), &mut out);
        let (admitted, _) = sender.open(text.len() as u64, &mut out);
        assert_eq!(admitted, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
        String::from_utf8(out).unwrap()
    };
    let version = written(WebSocketRefusal::VersionUnsupported);
    assert!(version.starts_with("HTTP/1.1 426 Upgrade Required\r\n"), "{version}");
    assert!(version.contains("\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n"), "{version}");
    assert!(version.ends_with("\r\n\r\n426 Upgrade Required\nSec-WebSocket-Version must be 13.\n"), "{version}");
    let method = written(WebSocketRefusal::MethodNotAllowed);
    assert!(method.starts_with("HTTP/1.1 405 Method Not Allowed\r\n") && method.contains("\r\nAllow: GET\r\n"));
    for &refusal in WebSocketRefusal::ALL {
        let bytes = written(refusal);
        let (mut receiver, mut fields) = (http_client::Receiver::default(), Vec::new());
        let reply = receiver.head(bytes.as_bytes(), false, &mut fields, &Limits::default());
        assert!(matches!(reply, Ok(Some(_))), "{refusal:?}: {bytes}");
    }
}
