//! Tests of the engine's part of WebSockets, beyond the frames of `wire::websocket`: the upgrade, the queue of
//! messages, backpressure, pings, closing, and the end of the server.

use crate::common::{Client, End, Event, GRAIN, Op, Plan, World, seconds, timeless};
use engine::{Awaited, Config, Incoming, Progress, Room, WebSocketConfig, WebSocketId};
use std::time::Duration;
use wire::websocket::{
    self as frames, CloseCode, Compression, ControlPayload, Keys, Kind, Outgoing, Role, SendError, WebSocketLimits,
};

pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

pub(crate) fn handshake(extra: &str) -> String {
    format!(
        "GET /0 HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n\
         Sec-WebSocket-Version: 13\r\n{extra}\r\n"
    )
}

pub(crate) fn config(websocket: WebSocketConfig) -> Config {
    Config { websocket: Some(websocket), ..timeless() }
}

pub(crate) fn quiet() -> WebSocketConfig {
    WebSocketConfig { ping_interval: None, ping_timeout: None, ..WebSocketConfig::default() }
}

/// A world with one client, whose WebSocket the test accepts and uses.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) client: Client,
    /// The client's end.
    pub(crate) end: frames::Connection,
    pub(crate) compression: Compression,
    /// The number of received bytes that have been read.
    pub(crate) at: usize,
}

/// A frame that a client has received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Message(Kind, Vec<u8>),
    Pinged,
    Closed(u16, String),
}

impl Pair {
    pub(crate) fn new(config: Config) -> Self {
        let mut world = World::unix(config, vec![Plan::of(vec![Op::Await(usize::MAX)]), Plan::sized(&[3])]);
        world.keeps = true;
        let client = world.client();
        let limits = WebSocketLimits { backlog: usize::MAX, ..WebSocketLimits::default() };
        let end = frames::Connection::new(Role::Client(Keys::new(7)), None, limits);
        Self { world, client, end, compression: Compression::new(6), at: 0 }
    }

    /// Returns a pair with an open WebSocket. The client sends `behind` directly after the handshake.
    pub(crate) fn open(config: Config, behind: &[u8]) -> (Self, WebSocketId) {
        let mut pair = Self::new(config);
        pair.client.send([handshake("").as_bytes(), behind].concat());
        pair.world.until("the request is dispatched", &mut [&mut pair.client], |world, _| !world.calls.is_empty());
        let id = pair.accept();
        (pair, id)
    }

    pub(crate) fn accept(&mut self) -> WebSocketId {
        let now = self.world.now();
        let World { engine, calls, app, .. } = &mut self.world;
        let id = engine.accept_websocket(&calls[0].ticket, None, [], now, app).expect("nothing is wrong with it");
        self.world.until("it is accepted", &mut [&mut self.client], |_, clients| {
            clients[0].received.windows(4).any(|bytes| bytes == b"\r\n\r\n")
        });
        let head = self.client.text();
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        assert!(head.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
        self.at = head.find("\r\n\r\n").expect("it is whole") + 4;
        id.expect("the client is there")
    }

    pub(crate) fn send(&mut self, message: Outgoing<'_>) {
        let mut out = Vec::new();
        self.end.send(message, &mut self.compression, 0, &mut out).expect("it is open");
        self.client.send(out);
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..20 {
            self.client.pump();
            self.world.settle();
        }
    }

    pub(crate) fn take(&mut self, id: WebSocketId) -> Incoming<(Kind, Vec<u8>)> {
        let now = self.world.now();
        self.world.engine.receive_message(id, now, &mut self.world.app)
    }

    /// Returns the next message, or the end, once it has arrived.
    pub(crate) fn next(&mut self, id: WebSocketId) -> Result<(Kind, Vec<u8>), (u16, String)> {
        for _ in 0..10_000 {
            match self.take(id) {
                Incoming::Message(message) => return Ok(message),
                Incoming::End(end) => return Err((end.code, end.reason.into())),
                Incoming::Pending => {
                    self.client.pump();
                    self.world.settle();
                }
            }
        }
        panic!("neither a message nor an end: {:?}", self.world.statistics());
    }

    pub(crate) fn reply(&mut self, id: WebSocketId, message: Outgoing<'_>) -> Result<Room, SendError> {
        let now = self.world.now();
        let World { engine, app, .. } = &mut self.world;
        match message {
            Outgoing::Text(_) => engine.send_message(id, message, now, app),
            // A large message is sent without copying it.
            Outgoing::Binary(bytes) => engine.send_binary(id, app.part(bytes.to_vec()), now, app),
        }
    }

    pub(crate) fn close(&mut self, id: WebSocketId, code: u16, reason: &str) {
        let (now, code) = (self.world.now(), CloseCode::new(code).expect("a code for frames"));
        self.world.engine.close_websocket(id, code, reason, now, &mut self.world.app);
    }

    pub(crate) fn complete(&mut self) {
        self.world.complete(0, |_| Progress::Done);
    }

    /// Returns the frames that have arrived since the last call.
    pub(crate) fn got(&mut self) -> Vec<Got> {
        self.settle();
        let mut got = Vec::new();
        let mut bytes = self.client.received[self.at..].to_vec();
        self.at = self.client.received.len();
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let (used, event) = self.end.next(rest, &mut self.compression);
            match event {
                frames::Event::Message { kind, bytes } => got.push(Got::Message(kind, bytes.into_owned())),
                frames::Event::Close(frame) => got.push(Got::Closed(frame.number(), frame.reason.into())),
                frames::Event::Nothing if self.end.owes_answer() => got.push(Got::Pinged),
                frames::Event::Nothing | frames::Event::Pong(_) => {}
                frames::Event::Fault(fault) => panic!("the engine broke {fault:?}"),
            }
            rest = &mut rest[used..];
        }
        got
    }

    /// Sends the frames that the client has to answer with.
    pub(crate) fn answer(&mut self) {
        let mut out = Vec::new();
        self.end.flush(0, &mut out);
        self.client.send(out);
        self.settle();
    }
}

#[test]
fn messages_come_and_go_whole_byte_by_byte_and_cut_anywhere() {
    let mut bytes = Vec::new();
    let limits = WebSocketLimits { backlog: usize::MAX, ..WebSocketLimits::default() };
    let mut end = frames::Connection::new(Role::Client(Keys::new(1)), None, limits);
    let mut compression = Compression::new(6);
    let texts = ["", "héllo", &"x".repeat(125), &"y".repeat(70_000)];
    for text in texts {
        end.send(Outgoing::Text(text), &mut compression, 0, &mut bytes).expect("it is open");
        end.ping(&ControlPayload::default(), &mut bytes).expect("it is open");
        end.send(Outgoing::Binary(text.as_bytes()), &mut compression, 0, &mut bytes).expect("it is open");
    }
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for way in 0..12 {
        let (mut pair, id) = Pair::open(config(quiet()), &bytes[..way.min(bytes.len())]);
        let mut rest = &bytes[way..];
        while !rest.is_empty() {
            let count = match way {
                0 => rest.len(),
                // With the long messages this would take long.
                1 if bytes.len() - rest.len() < 400 => 1,
                _ => random.usize(1..=rest.len().min(9000)),
            };
            pair.client.send(&rest[..count]);
            rest = &rest[count..];
            while pair.client.unsent() > 0 {
                pair.client.pump();
                pair.world.settle();
                if let Incoming::Message((kind, bytes)) = pair.take(id) {
                    echo(&mut pair, id, kind, &bytes);
                }
            }
        }
        let mut expected = Vec::new();
        for text in texts {
            expected.push(Got::Message(Kind::Text, text.as_bytes().to_vec()));
            expected.push(Got::Message(Kind::Binary, text.as_bytes().to_vec()));
        }
        let mut got = pair.got();
        while got.len() < expected.len() {
            if let Incoming::Message((kind, bytes)) = pair.take(id) {
                echo(&mut pair, id, kind, &bytes);
            }
            got.append(&mut pair.got());
        }
        assert!(got == expected, "way {way}");
    }
}

pub(crate) fn echo(pair: &mut Pair, id: WebSocketId, kind: Kind, bytes: &[u8]) {
    let message = match kind {
        Kind::Text => Outgoing::Text(std::str::from_utf8(bytes).expect("text is UTF-8")),
        Kind::Binary => Outgoing::Binary(bytes),
    };
    while pair.reply(id, message) == Err(SendError::QueueFull) {
        pair.client.pump();
        pair.world.settle();
    }
}

#[test]
fn handshake_that_breaks_a_rule_is_refused_without_the_application() {
    let good = handshake("");
    let cases = [
        (good.replace("Version: 13", "Version: 8"), 426, "Sec-WebSocket-Version: 13"),
        (good.replace(KEY, "short"), 400, "Sec-WebSocket-Key is not 16 bytes"),
        (good.replace("GET", "POST"), 405, "Allow: GET"),
        (good.replace("Connection: Upgrade", "Connection: close"), 400, "does not name Upgrade"),
    ];
    for (request, status, text) in cases {
        let mut pair = Pair::new(config(quiet()));
        pair.client.send(request);
        assert_eq!(pair.world.end(&mut pair.client), End::Closed);
        assert_eq!(pair.client.answers[0].status, status);
        assert!(pair.client.text().contains(text), "{}", pair.client.text());
        assert!(!pair.world.app.log.iter().any(|event| matches!(event, Event::Begin { .. })));
    }
}

#[test]
fn request_that_asks_is_an_ordinary_one_where_websockets_are_off() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    world.ask(&mut client, handshake("").as_bytes(), 1);
    assert_eq!((client.answers[0].status, client.answers[0].keep_alive), (200, true));
}

#[test]
fn connection_goes_on_after_an_ordinary_answer() {
    let mut pair = Pair::new(config(quiet()));
    pair.world.app.plans[0] = Plan::sized(&[5]);
    pair.world.keeps = false;
    let requests = format!("{}{}", handshake(""), "GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    pair.world.ask(&mut pair.client, requests.as_bytes(), 2);
    assert_eq!(pair.client.answers.iter().map(|answer| answer.body.len()).collect::<Vec<_>>(), [5, 3]);
}

#[test]
fn client_that_closes_gets_its_code_back_and_the_application_has_it() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.send(Outgoing::Text("last"));
    let mut out = Vec::new();
    pair.end.close(CloseCode::new(4001).expect("a code"), "enough", &mut out).expect("it is open");
    pair.client.send(out);
    assert_eq!(pair.next(id), Ok((Kind::Text, b"last".to_vec())));
    assert_eq!(pair.next(id), Err((4001, "enough".to_owned())));
    assert_eq!(pair.got(), [Got::Closed(4001, String::new())]);
    assert_eq!(pair.reply(id, Outgoing::Text("late")), Err(SendError::Closed));
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    assert_eq!(pair.next(id), Err((4001, "enough".to_owned())), "the end is said again");
    pair.complete();
    pair.client.hang_up();
    pair.world.until_empty(&mut [&mut pair.client]);
    assert_eq!(pair.world.statistics().websockets, 0);
}

#[test]
fn connection_that_ends_without_a_close_frame_is_1006() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.send(Outgoing::Binary(b"last"));
    pair.client.end_sending();
    assert_eq!(pair.next(id), Ok((Kind::Binary, b"last".to_vec())));
    assert_eq!(pair.next(id), Err((1006, String::new())));
    assert_eq!(pair.reply(id, Outgoing::Text("late")), Err(SendError::Closed));
    pair.complete();
    pair.world.until_empty(&mut [&mut pair.client]);
}

#[test]
fn broken_rules_close_with_their_codes() {
    let limits = WebSocketConfig { message: 1000, ..quiet() };
    let cases: [(&[u8], u16); 6] = [
        (&[0x82, 0x01, 0x00], 1002),
        (&[0xc2, 0x80, 0, 0, 0, 0], 1002),
        (&[0x80, 0x80, 0, 0, 0, 0], 1002),
        (&[0x89, 0xfe, 0x00, 0x7e, 0, 0, 0, 0], 1002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
        (&[0x82, 0xfe, 0x03, 0xe9, 0, 0, 0, 0], 1009),
    ];
    for (bytes, code) in cases {
        for split in 0..bytes.len() {
            let (mut pair, id) = Pair::open(config(limits.clone()), &bytes[..split]);
            pair.client.send(&bytes[split..]);
            assert_eq!(pair.next(id).expect_err("no message follows").0, code, "{bytes:x?}");
            let got = pair.got();
            assert!(matches!(got[..], [Got::Closed(closed, _)] if closed == code), "{bytes:x?}: {got:?}");
            assert_eq!(pair.world.end(&mut pair.client), End::Closed);
            pair.complete();
        }
    }
}

/// Returns a world whose client has sent two messages and, together with them, a frame of an unknown kind.
pub(crate) fn broken_behind_two_messages() -> (Pair, WebSocketId) {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    let mut out = Vec::new();
    for text in ["one", "two"] {
        pair.end.send(Outgoing::Text(text), &mut pair.compression, 0, &mut out).expect("it is open");
    }
    out.extend_from_slice(b"\x83\x80\0\0\0\0");
    pair.client.send(out);
    pair.settle();
    (pair, id)
}

#[test]
fn messages_before_a_broken_rule_are_answered_before_it_closes() {
    let (mut pair, id) = broken_behind_two_messages();
    let mut expected = Vec::new();
    for text in ["one", "two"] {
        assert_eq!(pair.next(id), Ok((Kind::Text, text.as_bytes().to_vec())));
        assert_eq!(pair.reply(id, Outgoing::Text(text)), Ok(Room::Left));
        expected.push(Got::Message(Kind::Text, text.as_bytes().to_vec()));
    }
    assert_eq!(pair.got(), expected, "it does not close before the application has asked for more");
    let reason = "An opcode is not known.";
    assert_eq!(pair.next(id), Err((1002, reason.to_owned())));
    assert_eq!(pair.got(), [Got::Closed(1002, reason.to_owned())]);
    assert_eq!(pair.reply(id, Outgoing::Text("late")), Err(SendError::Closed));
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    pair.complete();
}

#[test]
fn broken_rule_closes_whatever_the_application_does_with_the_messages_before_it() {
    let broken = [Got::Closed(1002, "An opcode is not known.".to_owned())];
    // It takes none of them.
    let (mut pair, id) = broken_behind_two_messages();
    assert_eq!(pair.got(), []);
    pair.world.advance(seconds(10) + GRAIN);
    assert_eq!(pair.got(), broken);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    assert_eq!(pair.next(id), Ok((Kind::Text, b"one".to_vec())), "it may take them still");
    // Its call is over.
    let (mut pair, _) = broken_behind_two_messages();
    pair.complete();
    assert_eq!(pair.got(), broken);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    // The application closes the WebSocket itself. The engine does not wait for the client's answer, because it would
    // not read it.
    let (mut pair, id) = broken_behind_two_messages();
    pair.close(id, 4000, "enough");
    assert_eq!(pair.got(), [Got::Closed(4000, "enough".to_owned())]);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    assert!(matches!(pair.next(id), Ok((Kind::Text, _))));
    // The client leaves, and the application still gets the code of the broken rule after the messages.
    let (Pair { mut world, client, .. }, id) = broken_behind_two_messages();
    client.reset();
    world.settle();
    let now = world.now();
    let mut take = || world.engine.receive_message(id, now, &mut world.app);
    assert!(matches!((take(), take()), (Incoming::Message(_), Incoming::Message(_))));
    assert!(matches!(take(), Incoming::End(end) if end.code == 1002));
}

#[test]
fn nothing_is_read_while_the_queue_is_full() {
    let (mut pair, id) = Pair::open(config(WebSocketConfig { queue: 4, ..quiet() }), b"");
    for number in 0..1000 {
        pair.send(Outgoing::Binary(&[u8::try_from(number % 251).expect("a byte"); 1000]));
    }
    pair.settle();
    // The input that the engine has taken is bounded: its queue and one receive.
    assert!(pair.world.statistics().bytes_in < 4 * 1100 + (64 << 10) + 300, "{:?}", pair.world.statistics());
    for number in 0..1000 {
        let expected = vec![u8::try_from(number % 251).expect("a byte"); 1000];
        assert_eq!(pair.next(id), Ok((Kind::Binary, expected)), "message {number}");
    }
}

#[test]
fn sends_are_refused_above_the_mark_and_the_waiter_is_woken_below() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.client.reads = false;
    let part = vec![b'z'; 30_000];
    let mut sent = 0;
    while pair.reply(id, Outgoing::Binary(&part)) == Ok(Room::Left) {
        sent += 1;
        assert!(sent < 1000, "the client reads nothing");
    }
    assert_eq!(pair.reply(id, Outgoing::Binary(&part)), Err(SendError::QueueFull));
    let now = pair.world.now();
    let World { engine, calls, app, .. } = &mut pair.world;
    engine.wait_for_any(&calls[0].ticket, Awaited::OUTPUT, 17, now, app);
    pair.world.settle();
    assert!(pair.world.app.woken.is_empty());
    // While output waits, the engine still reads the client's frames.
    pair.send(Outgoing::Text("still here"));
    assert_eq!(pair.next(id), Ok((Kind::Text, b"still here".to_vec())));
    pair.client.reads = true;
    assert_eq!(pair.got().len(), sent + 1);
    assert_eq!(std::mem::take(&mut pair.world.app.woken), [17]);
    assert_eq!(pair.reply(id, Outgoing::Binary(&part)), Ok(Room::Left));
}

#[test]
fn flood_of_pings_of_a_client_that_does_not_read_is_bounded() {
    let (mut pair, _) = Pair::open(config(quiet()), b"");
    pair.client.reads = false;
    let mut out = Vec::new();
    let payload = ControlPayload::new(&[b'p'; 125]).expect("as long as it may be");
    for _ in 0..20_000 {
        pair.end.ping(&payload, &mut out).expect("it is open");
    }
    pair.client.send(&out);
    for _ in 0..200 {
        pair.settle();
    }
    let sent = (handshake("").len() + out.len()) as u64;
    assert_eq!(pair.world.statistics().bytes_in, sent, "all of it is read");
    pair.client.reads = true;
    pair.settle();
    let received = pair.client.received.len() - pair.at;
    // The pongs received are bounded by the buffers of the kernel and the engine's limit on waiting output.
    assert!(received < out.len() / 2, "{received} bytes of {}", out.len());
}

#[test]
fn client_is_pinged_and_given_up_when_nothing_comes() {
    let times = WebSocketConfig {
        ping_interval: Some(seconds(20)),
        ping_timeout: Some(seconds(10)),
        ..WebSocketConfig::default()
    };
    let (mut pair, id) = Pair::open(config(times), b"");
    for _ in 0..5 {
        pair.world.advance(seconds(20) + GRAIN);
        assert_eq!(pair.got(), [Got::Pinged]);
        pair.answer();
        pair.world.advance(seconds(9));
        assert_eq!(pair.got(), []);
        pair.world.advance(seconds(11) + GRAIN);
        assert_eq!(pair.got(), [Got::Pinged]);
        pair.answer();
    }
    assert!(matches!(pair.take(id), Incoming::Pending));
}

#[test]
fn silent_client_is_1006_after_the_ping_timeout_and_any_bytes_count() {
    let times = WebSocketConfig {
        ping_interval: Some(seconds(20)),
        ping_timeout: Some(seconds(10)),
        ..WebSocketConfig::default()
    };
    let (mut pair, id) = Pair::open(config(times), b"");
    pair.world.advance(seconds(20) + GRAIN);
    assert_eq!(pair.got(), [Got::Pinged]);
    // Half a frame shows that the client is alive.
    pair.client.send([0x81]);
    pair.settle();
    pair.world.advance(seconds(11));
    assert!(matches!(pair.take(id), Incoming::Pending));
    pair.world.advance(seconds(9) + GRAIN);
    assert_eq!(pair.got(), [Got::Pinged]);
    pair.world.advance(seconds(10) + GRAIN);
    pair.world.settle();
    assert_eq!(pair.next(id), Err((1006, String::new())));
    assert_eq!(pair.got(), [Got::Closed(1011, "keepalive ping timeout".to_owned())]);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    pair.complete();
    pair.client.hang_up();
    pair.world.until_empty(&mut [&mut pair.client]);
}

#[test]
fn client_is_not_judged_while_the_application_takes_no_messages() {
    let times = WebSocketConfig {
        ping_interval: Some(seconds(20)),
        ping_timeout: Some(seconds(10)),
        queue: 1,
        ..WebSocketConfig::default()
    };
    let (mut pair, id) = Pair::open(config(times), b"");
    pair.send(Outgoing::Text("one"));
    pair.send(Outgoing::Text("two"));
    pair.settle();
    for _ in 0..10 {
        pair.world.advance(seconds(15));
    }
    assert_eq!(pair.next(id), Ok((Kind::Text, b"one".to_vec())));
    assert_eq!(pair.next(id), Ok((Kind::Text, b"two".to_vec())));
    pair.settle();
    assert!(matches!(pair.take(id), Incoming::Pending));
}

#[test]
fn client_that_does_not_answer_a_close_frame_has_ten_seconds() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.close(id, 4000, "bye");
    assert_eq!(pair.next(id), Err((4000, "bye".to_owned())));
    pair.complete();
    assert_eq!(pair.got(), [Got::Closed(4000, "bye".to_owned())]);
    pair.world.advance(seconds(9));
    assert_eq!(pair.client.end, None);
    pair.world.advance(seconds(1) + GRAIN);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    pair.client.hang_up();
    pair.world.until_empty(&mut [&mut pair.client]);
}

#[test]
fn call_that_ends_without_closing_closes_with_1000() {
    let (mut pair, _) = Pair::open(config(quiet()), b"");
    pair.complete();
    assert_eq!(pair.got(), [Got::Closed(1000, String::new())]);
    pair.answer();
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    pair.client.hang_up();
    pair.world.until_empty(&mut [&mut pair.client]);
}

#[test]
fn message_that_does_not_come_to_its_end_is_1008() {
    let config = Config { body_timeout: Some(seconds(30)), min_rate: 500, ..config(quiet()) };
    let (mut pair, id) = Pair::open(config, b"");
    pair.client.send([0x02, 0x81, 0, 0, 0, 0, 1]);
    pair.settle();
    for _ in 0..4 {
        // Empty fragments and pongs do not count as progress.
        pair.world.advance(seconds(10));
        pair.client.send([0x00, 0x80, 0, 0, 0, 0, 0x8a, 0x80, 0, 0, 0, 0]);
        pair.settle();
    }
    assert_eq!(pair.next(id), Err((1006, String::new())));
    assert_eq!(pair.got(), [Got::Closed(1008, "a message took too long to arrive".to_owned())]);
    pair.complete();
}

#[test]
fn drain_closes_with_1012_and_stop_with_1001() {
    for (drains, code) in [(true, 1012), (false, 1001)] {
        let (mut pair, id) = Pair::open(config(quiet()), b"");
        pair.send(Outgoing::Text("before"));
        pair.settle();
        let now = pair.world.now();
        if drains {
            pair.world.engine.drain();
        }
        pair.world.engine.stop(now, Some(seconds(30)), Duration::ZERO);
        pair.settle();
        assert_eq!(pair.got(), [Got::Closed(code, String::new())]);
        assert_eq!(pair.next(id), Ok((Kind::Text, b"before".to_vec())));
        assert_eq!(pair.next(id), Err((code, String::new())));
        pair.complete();
        assert!(!pair.world.engine.is_stopped());
        pair.answer();
        pair.client.hang_up();
        pair.world.until("it has stopped", &mut [&mut pair.client], |world, _| world.engine.is_stopped());
    }
}
