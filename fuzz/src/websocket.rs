//! Properties of WebSocket that hold for any input of a peer.

use crate::Random;
use std::cell::RefCell;
use wire::http1;
use wire::message::{Limits, Stamp};
use wire::websocket::client::Offer;
use wire::websocket::{
    Agreement, Carrier, CloseCode, Compression, Connection, Deflate, DeflateSettings, Event, Keys, Kind, Opening,
    Outgoing, Prepared, Role, Wait, WebSocketLimits,
};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const FIELDS: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";

/// The largest message of a connection.
const MESSAGE: usize = 3000;

/// Returns the agreement with a client that sends `fields`; `None` if they are not valid.
fn agreement(fields: &[u8], settings: DeflateSettings) -> Option<(Agreement, Vec<String>)> {
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\n", fields, b"\r\n"].concat();
    let (mut receiver, mut places) = (http1::Receiver::default(), Vec::new());
    let head = receiver.head(&head, &mut places, &Limits::default()).ok()??;
    let opening = Opening::read(&head.request, Carrier::Http1).ok()?;
    let offered: Vec<String> = opening.subprotocols().iter().map(|&name| name.to_owned()).collect();
    let chosen = offered.last().map(String::as_str);
    Some((opening.agree(chosen, Some(settings)).expect("it is offered"), offered))
}

fn deflate(client_context_bits: Option<u8>) -> Option<Deflate> {
    let fields = format!(
        "{FIELDS}Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
    );
    let settings = DeflateSettings { client_context_bits, ..DeflateSettings::default() };
    agreement(fields.as_bytes(), settings).expect("it is valid").0.deflate
}

fn limits() -> WebSocketLimits {
    WebSocketLimits { message: MESSAGE, ..WebSocketLimits::default() }
}

/// The result of a connection for its input.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    events: Vec<(String, Vec<u8>)>,
    answer: Vec<u8>,
    code: u16,
    wait: Wait,
}

/// Returns the outcome of `data`, which is the same whole and in pieces that end at random places.
fn receive_any(data: &[u8], compression: &mut Compression, connection: impl Fn() -> Connection) -> Outcome {
    let whole = receive(connection(), data, &[], compression);
    let mut random = Random::of(data, 0);
    let mut sets: Vec<Vec<usize>> = (0..3)
        .map(|most| (0..1 + random.below(4 * most + 1)).map(|_| random.below(data.len() + 1)).collect())
        .collect();
    if data.len() <= 256 && random.below(4) == 0 {
        sets.push((0..data.len()).collect());
    }
    for mut cuts in sets {
        cuts.sort_unstable();
        assert_eq!(receive(connection(), data, &cuts, compression), whole, "cut at {cuts:?}");
    }
    whole
}

/// Passes `data` to a connection, in pieces that end at `cuts` and at its end.
fn receive(mut connection: Connection, data: &[u8], cuts: &[usize], compression: &mut Compression) -> Outcome {
    let (mut events, mut answer, mut at) = (Vec::new(), Vec::new(), 0);
    // The largest window of any connection here.
    let context = 1 << 15;
    // As much as a decompressor takes.
    let inflater = 44 << 10;
    let mut is_over = false;
    for &cut in cuts.iter().chain([&data.len()]) {
        while at < cut {
            let mut input = data[at..cut].to_vec();
            let (used, event) = connection.next(&mut input, compression);
            assert!(used > 0 && at + used <= cut, "it takes what it is offered");
            at += used;
            let event = match event {
                Event::Nothing => None,
                Event::Message { kind, bytes } => {
                    assert!(bytes.len() <= MESSAGE);
                    assert!(kind == Kind::Binary || str::from_utf8(&bytes).is_ok());
                    Some((format!("{kind:?}"), bytes.into_owned()))
                }
                Event::Pong(payload) => Some(("pong".into(), payload.to_vec())),
                Event::Close(frame) => Some((format!("close {}", frame.number()), frame.reason.as_bytes().to_vec())),
                Event::Fault(fault) => Some((fault.name().into(), Vec::new())),
            };
            if let Some(event) = event {
                assert!(!is_over, "nothing is read behind a close or a fault");
                events.push(event);
                is_over = !connection.is_open();
            }
            let most = 2 * MESSAGE + 1024 + context + inflater;
            assert!(connection.kept_bytes() <= most, "{} bytes", connection.kept_bytes());
            connection.flush(0, &mut answer);
            assert!(!connection.owes_answer());
        }
    }
    assert_eq!(is_over, connection.waits_for() == Wait::End);
    Outcome { events, answer, code: connection.close_code(), wait: connection.waits_for() }
}

/// Any bytes are the same events and the same answer whole and in pieces, within the limits, for servers and clients
/// with any agreement; the answer is what the other role can read.
pub fn check_websocket(data: &[u8]) {
    // To allocate the compressors would take most of the time.
    COMPRESSION.with_borrow_mut(|compression| check_all(data, compression));
}

thread_local! {
    static COMPRESSION: RefCell<Compression> = RefCell::new(Compression::new(1));
    static AGREEMENTS: [Option<Deflate>; 3] = [None, Some(9), Some(15)].map(deflate);
}

fn check_all(data: &[u8], compression: &mut Compression) {
    let [anew, small, large] = AGREEMENTS.with(|agreements| *agreements);
    for (is_server, deflate) in [(true, None), (true, anew), (true, small), (false, None), (false, large)] {
        let role = |is_server| if is_server { Role::Server } else { Role::Client(Keys::new(7)) };
        let connection = || Connection::new(role(is_server), deflate, limits());
        let Outcome { events, answer, code, wait } = receive_any(data, compression, connection);
        if deflate.is_none() {
            let received: usize = events.iter().map(|(_, bytes)| bytes.len()).sum();
            assert!(received <= data.len(), "more out than in");
        }
        assert!(code == CloseCode::ABNORMAL || wait == Wait::End);
        let peer = Connection::new(role(!is_server), None, limits());
        let heard = receive(peer, &answer, &[], compression);
        let is_answer = |name: &str| name == "pong" || name.starts_with("close ");
        assert!(heard.events.iter().all(|(name, _)| is_answer(name)), "{heard:?}");
        assert_eq!(heard.wait, wait, "a close is sent when the connection ends, and only then");
    }
    let mut random = Random::of(data, 3);
    // Each message is compressed from the start, which takes as long as much of the above.
    if random.below(16) == 0 {
        for deflate in [anew, small, large] {
            check_round_trip(data, deflate, &mut random, compression);
        }
    }
}

/// Checks that the bytes, cut into messages, arrive as they were sent.
fn check_round_trip(data: &[u8], deflate: Option<Deflate>, random: &mut Random, compression: &mut Compression) {
    let is_client = random.below(2) == 0;
    let role = |is_client| if is_client { Role::Client(Keys::new(data.len() as u64)) } else { Role::Server };
    let mut sender = Connection::new(role(is_client), deflate, WebSocketLimits::default());
    let (mut stream, mut expected) = (Vec::new(), Vec::new());
    for part in data.chunks(1 + random.below(MESSAGE)) {
        // Some messages are long enough to be compressed.
        let message = part.repeat(1 + random.below(MESSAGE / part.len()));
        expected.push(("Binary".to_owned(), message.clone()));
        let outgoing = Outgoing::Binary(&message);
        match random.below(3) {
            0 => sender.send(outgoing, compression, 0, &mut stream).expect("it is open"),
            1 if !is_client => {
                let prepared = Prepared::new(outgoing);
                stream.extend_from_slice(sender.prepared(&prepared, compression, 0).expect("it is open"));
            }
            _ => {
                let (first, last) = message.split_at(random.below(message.len() + 1));
                sender.part(Outgoing::Binary(first), false, 0, &mut stream).expect("it is open");
                sender.part(Outgoing::Binary(last), true, 0, &mut stream).expect("it is open");
            }
        }
    }
    sender.close(CloseCode::NORMAL, "", &mut stream).expect("it is open");
    expected.push(("close 1000".to_owned(), Vec::new()));
    // A client keeps what its server may refer to; both sides here send without a context.
    let receiver = || Connection::new(role(!is_client), deflate, limits());
    assert_eq!(receive_any(&stream, compression, receiver).events, expected);
}

/// Fields of a request, behind Host: whatever they offer, what is agreed on is written in well-formed fields, was
/// offered, and is a connection that works. A client that offered as ours does accepts it.
pub fn check_handshake(fields: &[u8]) {
    for client_context_bits in [None, Some(12)] {
        let settings = DeflateSettings { window_bits: 13, client_context_bits };
        let Some((agreement, offered)) = agreement(fields, settings) else { continue };
        let mut head = Vec::new();
        let stamp = Stamp::new("", 0).expect("an empty name is valid");
        agreement.write([], &stamp, &mut head).expect("there are no fields of an application");
        let text = String::from_utf8(head).expect("it is ASCII");
        let lines: Vec<&str> = text.strip_suffix("\r\n\r\n").expect("a blank line").split("\r\n").collect();
        assert_eq!(lines[0], "HTTP/1.1 101 Switching Protocols");
        let answer: Vec<(&[u8], &[u8])> = lines[1..]
            .iter()
            .map(|line| line.split_once(": ").expect("a field"))
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
            .collect();
        assert_eq!(answer.len(), 3 + agreement.fields.len(), "{text}");
        if agreement
            .fields
            .iter()
            .any(|(name, value)| *name == "sec-websocket-accept" && value == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        {
            let subprotocols: Vec<&str> = offered.iter().map(String::as_str).collect();
            let offer = Offer { target: "/", host: "a", key: KEY, subprotocols: &subprotocols, deflate: true };
            let found = offer.judge(101, &answer).expect("the client accepts it");
            assert_eq!(found.deflate.is_some(), agreement.deflate.is_some());
            assert_eq!(found.subprotocol.as_ref(), offered.last());
            let mut compression = Compression::new(1);
            let mut out = Vec::new();
            let mut server = Connection::new(Role::Server, agreement.deflate, limits());
            let message = fields.repeat(2);
            server.send(Outgoing::Binary(&message), &mut compression, 0, &mut out).expect("it is open");
            let limits = WebSocketLimits { message: message.len(), ..limits() };
            let mut client = Connection::new(Role::Client(Keys::new(1)), found.deflate, limits);
            // A compressed message is inflated in several steps.
            let mut at = 0;
            loop {
                let (used, event) = client.next(&mut out[at..], &mut compression);
                assert!(used > 0, "the message arrives");
                at += used;
                if event != Event::Nothing {
                    assert_eq!(event, Event::Message { kind: Kind::Binary, bytes: message.into() });
                    break;
                }
            }
        }
    }
}
