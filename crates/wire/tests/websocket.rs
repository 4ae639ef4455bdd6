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
    AcceptMisuse, Carrier, CloseCode, Compression, Connection, ControlPayload, Deflate, DeflateSettings, Event, Keys,
    Kind, Opening, Outgoing, Prepared, Role, SendError, Wait, WebSocketFault, WebSocketLimits, WebSocketRefusal,
    wants_websocket,
};

const RANDOM_SPLITS: usize = 20;

/// A corpus case writes bytes as latin-1.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}

struct Random(u64);

impl Random {
    fn seeded() -> Self {
        let seed = std::env::var("KIRSCH_SEED").ok().map_or(17, |seed| seed.parse().expect("a number"));
        println!("KIRSCH_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
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
    /// What is sent back.
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

/// What a server agrees to that is offered `offer`.
fn agreed(offer: &str, settings: DeflateSettings) -> Option<Deflate> {
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
    /// What the application chooses.
    subprotocol: Option<String>,
    window_bits: Option<u8>,
    client_context_bits: Option<u8>,
    #[serde(default)]
    fields: Vec<[String; 2]>,
}

/// Reads the head of a request and gives what its handshake is to `then`.
fn open<T>(bytes: &[u8], then: impl FnOnce(Opening<'_>) -> T) -> Result<T, WebSocketRefusal> {
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

const OFFER: Offer<'_> = Offer {
    target: "/chat?room=1",
    host: "example.com",
    key: "dGhlIHNhbXBsZSBub25jZQ==",
    subprotocols: &["chat", "superchat"],
    deflate: true,
};

fn stamp() -> Stamp {
    Stamp::new("kirsch", 0).unwrap()
}

fn answer(offer: &Offer<'_>, bytes: &[u8]) -> Result<Answer, AnswerFault> {
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

// ---- a client and a server, joined

struct Pair {
    client: Connection,
    server: Connection,
    compression: Compression,
}

/// What an end has received: messages, and how the connection ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    messages: Vec<(Kind, Vec<u8>)>,
    pongs: Vec<Vec<u8>>,
    close: Option<(u16, String)>,
    fault: Option<WebSocketFault>,
}

/// Gives `bytes` to `end`, whose answers are returned.
fn hear(end: &mut Connection, bytes: &[u8], compression: &mut Compression) -> (Heard, Vec<u8>) {
    let (mut heard, mut out, mut at) = (Heard::default(), Vec::new(), 0);
    let mut input = bytes.to_vec();
    while at < input.len() {
        let (used, event) = end.next(&mut input[at..], compression);
        at += used;
        match event {
            Event::Nothing => {}
            Event::Message { kind, bytes } => heard.messages.push((kind, bytes.into_owned())),
            Event::Pong(payload) => heard.pongs.push(payload.to_vec()),
            Event::Close(frame) => heard.close = Some((frame.number(), frame.reason.to_string())),
            Event::Fault(fault) => heard.fault = Some(fault),
        }
        end.flush(0, &mut out);
    }
    (heard, out)
}

fn pair(settings: Option<DeflateSettings>) -> Pair {
    let offer = Offer { deflate: settings.is_some(), ..OFFER };
    let (mut request, mut head) = (Vec::new(), Vec::new());
    assert!(offer.write(&mut request));
    let agreement = open(&request, |opening| opening.agree(None, settings).unwrap()).unwrap();
    agreement.write([], &stamp(), &mut head).unwrap();
    let found = answer(&offer, &head).unwrap();
    assert_eq!(found.deflate.is_some(), settings.is_some());
    let limits = WebSocketLimits::default();
    Pair {
        client: Connection::new(Role::Client(Keys::new(5)), found.deflate, limits),
        server: Connection::new(Role::Server, agreement.deflate, limits),
        compression: Compression::new(6),
    }
}

fn all_settings() -> Vec<Option<DeflateSettings>> {
    let some = |window_bits, client_context_bits| Some(DeflateSettings { window_bits, client_context_bits });
    vec![None, some(15, None), some(9, None), some(12, Some(9)), some(9, Some(12)), some(15, Some(15))]
}

#[test]
fn any_message_arrives_in_both_directions_with_any_agreement() {
    let mut random = Random::seeded();
    for settings in all_settings() {
        let Pair { mut client, mut server, mut compression } = pair(settings);
        for round in 0..60 {
            let length = random.below([10, 300, 3000, 200_000][round % 4]);
            let letters = [2, 30, 256][random.below(3)];
            let bytes: Vec<u8> = (0..length).map(|_| u8::try_from(random.below(letters)).expect("a byte")).collect();
            let text = latin1(&bytes);
            let message = if round % 3 == 0 { Outgoing::Text(&text) } else { Outgoing::Binary(&bytes) };
            let (from, to) = if round % 2 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let mut out = Vec::new();
            from.send(message, &mut compression, 0, &mut out).unwrap();
            assert!(out.len() <= message.bytes().len() + 14, "what does not get shorter is sent as it is");
            let (heard, answer) = hear(to, &out, &mut compression);
            assert_eq!(heard.messages, [(message.kind(), message.bytes().to_vec())], "{settings:?} round {round}");
            assert!(answer.is_empty());
        }
    }
}

#[test]
fn text_that_repeats_itself_is_sent_compressed() {
    let text = "the quick brown fox ".repeat(200);
    for (settings, is_smaller) in all_settings().into_iter().map(|settings| (settings, settings.is_some())) {
        let Pair { mut server, mut compression, .. } = pair(settings);
        let mut out = Vec::new();
        server.send(Outgoing::Text(&text), &mut compression, 0, &mut out).unwrap();
        assert_eq!(out.len() < text.len() / 10, is_smaller, "{settings:?}: {} bytes", out.len());
        assert_eq!(out[0] & 0x40 != 0, is_smaller);
    }
}

/// A compressor that looked back further than was agreed on would be read by a peer that keeps more, and not by one that
/// keeps what was agreed on.
#[test]
fn compressor_looks_back_no_further_than_the_window_that_is_agreed_on() {
    let mut random = Random::seeded();
    for bits in 9..=15u8 {
        // Noise that comes again at a distance just within the window, and just beyond it.
        for distance in [(1usize << bits) - 290, (1 << bits) + 1] {
            let noise: Vec<u8> = (0..distance).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect();
            let message = [&noise[..], &noise[..200]].concat();
            let Pair { mut server, mut compression, .. } =
                pair(Some(DeflateSettings { window_bits: bits, client_context_bits: None }));
            let mut out = Vec::new();
            server.send(Outgoing::Binary(&message), &mut compression, 0, &mut out).unwrap();
            let looks_back = out.len() < message.len() - 100;
            assert_eq!(looks_back, distance < 1 << bits, "{bits} bits, distance {distance}, {} bytes", out.len());
        }
    }
}

#[test]
fn message_in_parts_may_be_interrupted_by_pings_but_not_by_messages() {
    let Pair { mut client, mut server, mut compression } = pair(Some(DeflateSettings::default()));
    let mut out = Vec::new();
    server.part(Outgoing::Text("one "), false, 0, &mut out).unwrap();
    server.ping(&ControlPayload::new(b"p").unwrap(), &mut out).unwrap();
    let prepared = Prepared::new(Outgoing::Text("prepared"));
    assert_eq!(server.send(Outgoing::Text("x"), &mut compression, 0, &mut out), Err(SendError::MessageOpen));
    assert_eq!(server.head(Kind::Text, 1, 0).unwrap_err(), SendError::MessageOpen);
    assert_eq!(server.prepared(&prepared, &mut compression, 0), Err(SendError::MessageOpen));
    assert_eq!(server.part(Outgoing::Binary(b"x"), true, 0, &mut out), Err(SendError::KindChanged));
    server.part(Outgoing::Text("two "), false, 0, &mut out).unwrap();
    server.part(Outgoing::Text(""), true, 0, &mut out).unwrap();
    server.send(Outgoing::Binary(b"next"), &mut compression, 0, &mut out).unwrap();
    let (heard, answer) = hear(&mut client, &out, &mut compression);
    assert_eq!(heard.messages, [(Kind::Text, b"one two ".to_vec()), (Kind::Binary, b"next".to_vec())]);
    let (heard, _) = hear(&mut server, &answer, &mut compression);
    assert_eq!(heard.pongs, [b"p"]);
}

#[test]
fn head_and_payload_make_the_frame_that_send_writes() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    for length in [0usize, 125, 126, 65_535, 65_536] {
        let bytes = vec![b'x'; length];
        let mut out = Vec::new();
        server.send(Outgoing::Binary(&bytes), &mut compression, 0, &mut out).unwrap();
        let head = server.head(Kind::Binary, length as u64, 0).unwrap().expect("nothing is compressed or masked");
        assert_eq!([&head, &bytes[..]].concat(), out);
    }
    assert!(client.head(Kind::Binary, 1, 0).unwrap().is_none(), "a client masks the payload");
    let Pair { mut server, .. } = pair(Some(DeflateSettings::default()));
    assert!(server.head(Kind::Binary, 100_000, 0).unwrap().is_none(), "it may be compressed");
}

#[test]
fn prepared_message_is_what_send_writes_for_each_agreement() {
    let mut compression = Compression::new(6);
    let text = "to all of you ".repeat(100);
    for message in [Outgoing::Text(&text), Outgoing::Binary(b"short"), Outgoing::Text("")] {
        let prepared = Prepared::new(message);
        assert_eq!(prepared.payload(), message.bytes());
        for settings in all_settings() {
            let Pair { mut client, mut server, .. } = pair(settings);
            let mut out = Vec::new();
            server.send(message, &mut compression, 0, &mut out).unwrap();
            let bytes = server.prepared(&prepared, &mut compression, 0).unwrap().to_vec();
            assert_eq!(bytes, out, "{settings:?}");
            let (heard, _) = hear(&mut client, &bytes, &mut compression);
            assert_eq!(heard.messages, [(message.kind(), message.bytes().to_vec())]);
        }
    }
}

#[test]
fn close_is_answered_and_the_server_ends_the_transport() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    let (mut out, mut late) = (Vec::new(), Vec::new());
    client.send(Outgoing::Text("on its way"), &mut compression, 0, &mut late).unwrap();
    server.close(CloseCode::SERVICE_RESTART, "restart", &mut out).unwrap();
    assert_eq!((server.waits_for(), server.is_open()), (Wait::Close, false));
    assert_eq!(server.send(Outgoing::Text("x"), &mut compression, 0, &mut out), Err(SendError::Closed));
    assert_eq!(server.ping(&ControlPayload::default(), &mut out), Err(SendError::Closed));
    assert_eq!(server.close(CloseCode::NORMAL, "", &mut out), Err(SendError::Closed));
    // What was on its way is discarded, and a ping is not answered any more.
    client.ping(&ControlPayload::default(), &mut late).unwrap();
    assert_eq!(hear(&mut server, &late, &mut compression), (Heard::default(), Vec::new()));
    let (heard, answer) = hear(&mut client, &out, &mut compression);
    assert_eq!(heard.close, Some((1012, "restart".into())));
    assert_eq!((client.waits_for(), client.close_code()), (Wait::End, 1012));
    let (heard, nothing) = hear(&mut server, &answer, &mut compression);
    assert_eq!((heard.close, nothing), (Some((1012, String::new())), Vec::new()));
    assert_eq!((server.waits_for(), server.close_code()), (Wait::End, 1012));
}

#[test]
fn answer_to_a_fault_can_be_put_off() {
    let Pair { mut server, mut compression, .. } = pair(None);
    let mut out = Vec::new();
    let mut unknown = b"\x83\x80\0\0\0\0".to_vec();
    assert_eq!(server.next(&mut unknown, &mut compression).1, Event::Fault(WebSocketFault::OpcodeUnknown));
    server.postpone(WebSocketFault::OpcodeUnknown);
    assert_eq!((server.waits_for(), server.is_open(), server.owes_answer()), (Wait::Caller, true, false));
    server.send(Outgoing::Text("x"), &mut compression, 0, &mut out).unwrap();
    server.flush(0, &mut out);
    assert_eq!(out, b"\x81\x01x");
    // What follows is not read.
    let mut text = b"\x81\x80\0\0\0\0".to_vec();
    assert_eq!(server.next(&mut text, &mut compression), (6, Event::Nothing));
    assert_eq!(server.take_up(), Some(WebSocketFault::OpcodeUnknown));
    assert_eq!((server.take_up(), server.is_open(), server.waits_for()), (None, false, Wait::End));
    out.clear();
    server.flush(0, &mut out);
    assert_eq!(&out[2..4], 1002u16.to_be_bytes());
    // Nothing is put off where there is nothing to answer.
    server.postpone(WebSocketFault::OpcodeUnknown);
    assert_eq!((server.take_up(), server.waits_for()), (None, Wait::End));
}

#[test]
fn both_sides_may_close_at_once() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    let (mut from_server, mut from_client) = (Vec::new(), Vec::new());
    server.close(CloseCode::GOING_AWAY, "", &mut from_server).unwrap();
    client.close(CloseCode::NORMAL, "", &mut from_client).unwrap();
    assert!(hear(&mut client, &from_server, &mut compression).1.is_empty());
    assert!(hear(&mut server, &from_client, &mut compression).1.is_empty());
    assert_eq!((client.close_code(), server.close_code()), (1001, 1000));
    assert_eq!((client.waits_for(), server.waits_for()), (Wait::End, Wait::End));
}

#[test]
fn pings_are_answered_by_one_pong_while_output_waits() {
    let limits = WebSocketLimits { backlog: 1000, ..WebSocketLimits::default() };
    let mut server = Connection::new(Role::Server, None, limits);
    let Pair { mut client, mut compression, .. } = pair(None);
    let mut out = Vec::new();
    for number in 0..100u8 {
        let mut ping = Vec::new();
        client.ping(&ControlPayload::new(&[number]).unwrap(), &mut ping).unwrap();
        let (used, event) = server.next(&mut ping, &mut compression);
        assert_eq!((used, event), (7, Event::Nothing));
        server.flush(1001, &mut out);
    }
    assert!(out.is_empty() && server.owes_answer());
    assert!(server.kept_bytes() < 200, "unanswered pings do not pile up: {} bytes", server.kept_bytes());
    server.flush(1000, &mut out);
    assert_eq!(out, [0x8a, 1, 99]);
    assert!(!server.owes_answer());
}

#[test]
fn message_is_refused_while_too_much_waits_to_be_sent() {
    let limits = WebSocketLimits { backlog: 1000, ..WebSocketLimits::default() };
    let mut server = Connection::new(Role::Server, None, limits);
    let (mut compression, mut out) = (Compression::new(6), Vec::new());
    assert_eq!(server.send(Outgoing::Text("x"), &mut compression, 1001, &mut out), Err(SendError::QueueFull));
    assert_eq!(server.part(Outgoing::Text("x"), true, 1001, &mut out), Err(SendError::QueueFull));
    assert_eq!(server.head(Kind::Text, 1, 1001).unwrap_err(), SendError::QueueFull);
    let prepared = Prepared::new(Outgoing::Text("x"));
    assert_eq!(server.prepared(&prepared, &mut compression, 1001), Err(SendError::QueueFull));
    assert!(out.is_empty());
    // A message larger than the limit can be sent when nothing waits, and a close always.
    assert_eq!(server.send(Outgoing::Binary(&[0; 5000]), &mut compression, 1000, &mut out), Ok(()));
    assert_eq!(server.close(CloseCode::POLICY, "", &mut out), Ok(()));
}

#[test]
fn close_reason_is_cut_where_a_character_ends() {
    let Pair { mut client, mut server, mut compression } = pair(None);
    let mut out = Vec::new();
    server.close(CloseCode::new(4000).unwrap(), &"é".repeat(100), &mut out).unwrap();
    let (heard, _) = hear(&mut client, &out, &mut compression);
    assert_eq!(heard.close, Some((4000, "é".repeat(61))));
}

#[test]
fn close_codes_that_no_frame_may_carry_cannot_be_made() {
    let allowed: Vec<u16> = (0..=u16::MAX).filter(|&number| CloseCode::new(number).is_some()).collect();
    let expected: Vec<u16> = (1000..=1003).chain(1007..=1014).chain(3000..=4999).collect();
    assert_eq!(allowed, expected);
}

/// A bomb is refused when the limit is passed: what it would become is never in memory.
#[test]
fn bomb_does_not_grow_beyond_the_limit() {
    let settings = DeflateSettings::default();
    let Pair { mut client, mut compression, .. } = pair(Some(settings));
    let mut out = Vec::new();
    client.send(Outgoing::Binary(&vec![0; 64 << 20]), &mut compression, 0, &mut out).unwrap();
    assert!(out.len() < 100_000);
    let limits = WebSocketLimits { message: 100_000, ..WebSocketLimits::default() };
    let mut server = Connection::new(Role::Server, agreed("permessage-deflate", settings), limits);
    let mut most = 0;
    let mut fault = None;
    for part in out.chunks_mut(10) {
        if let (_, Event::Fault(found)) = server.next(part, &mut compression) {
            fault = Some(found);
            break;
        }
        most = most.max(server.kept_bytes());
    }
    assert_eq!(fault, Some(WebSocketFault::MessageTooLarge));
    assert!(most < 300_000, "{most} bytes");
}

/// What ten thousand idle peers cost. The engine's own part of a connection comes on top.
#[test]
fn idle_connection_is_small_and_has_nothing_on_the_heap() {
    println!("a connection takes {} bytes", size_of::<Connection>());
    assert!(size_of::<Connection>() <= 256);
    let Pair { mut client, mut server, mut compression } = pair(Some(DeflateSettings::default()));
    let text = "and then it is over ".repeat(1000);
    let mut out = Vec::new();
    client.send(Outgoing::Text(&text), &mut compression, 0, &mut out).unwrap();
    assert!(out.len() < 1000, "it is compressed");
    for byte in &mut out {
        server.next(std::slice::from_mut(byte), &mut compression);
    }
    assert_eq!(server.kept_bytes(), 0, "after a message nothing is kept");
}

#[test]
fn context_of_a_client_takes_no_more_than_its_window() {
    let Pair { mut client, mut server, mut compression } =
        pair(Some(DeflateSettings { window_bits: 15, client_context_bits: Some(12) }));
    for round in 0..50usize {
        let text = format!("message {round} ").repeat(1 + round * 20);
        let mut out = Vec::new();
        client.send(Outgoing::Text(&text), &mut compression, 0, &mut out).unwrap();
        hear(&mut server, &out, &mut compression);
    }
    assert_eq!(server.kept_bytes(), 4096);
}
