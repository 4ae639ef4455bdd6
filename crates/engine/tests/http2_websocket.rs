//! WebSockets over streams of HTTP/2 (RFC 8441), through real sockets.

use crate::common::{Client, GRAIN, Op, Plan, World, seconds};
use crate::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS, Versions, WINDOW_UPDATE};
use crate::http2::{body, frame, frames, get, preface, statuses, until_whole};
use crate::websocket::{Got, config, quiet};
use engine::{Awaited, Config, Incoming, Progress, Room, WebSocketConfig, WebSocketEnd, WebSocketId};
use wire::http2::hpack::{Encoder, Indexing};
use wire::message::Draft;
use wire::websocket::{
    self as wire_frames, CloseCode, Compression, Keys, Kind, Outgoing, Role, SendError, WebSocketLimits,
};

/// Returns the request for a WebSocket that plan `id` answers.
fn connect(stream: u32, id: usize, protocol: &str, version: &str) -> Vec<u8> {
    let (mut encoder, mut block, path) = (Encoder::default(), Vec::new(), format!("/{id}"));
    let fields = [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":path", &path),
        (":authority", "a.example"),
        ("sec-websocket-version", version),
    ];
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes(), Indexing::Never, &mut block);
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A world with one client, which has WebSockets on streams.
struct Tunnel {
    world: World<Versions>,
    client: Client,
    end: wire_frames::Connection,
    compression: Compression,
    /// The bytes of stream 1 that have been read.
    at: usize,
}

impl Tunnel {
    fn new(config: Config, settings: &[u8]) -> Self {
        let plans = vec![Plan::of(vec![Op::Await(usize::MAX)]), Plan::sized(&[3])];
        let mut world: World<Versions> = World::of_kind(config, plans);
        world.keeps = true;
        let mut client = world.client();
        let begin = [preface(), frame(SETTINGS, 0, 0, settings), connect(1, 0, "websocket", "13")].concat();
        client.send(begin);
        world.until("the request is dispatched", &mut [&mut client], |world, _| !world.calls.is_empty());
        let limits = WebSocketLimits { backlog: usize::MAX, ..WebSocketLimits::default() };
        let end = wire_frames::Connection::new(Role::Client(Keys::new(7)), None, limits);
        Self { world, client, end, compression: Compression::new(6), at: 0 }
    }

    fn open(config: Config, settings: &[u8]) -> (Self, WebSocketId) {
        let mut tunnel = Self::new(config, settings);
        let now = tunnel.world.now();
        let World { engine, calls, app, .. } = &mut tunnel.world;
        let id = engine.accept_websocket(&calls[0].ticket, None, [], now, app).expect("nothing is wrong with it");
        tunnel.settle();
        assert_eq!(statuses(&tunnel.client), [(1, "200".to_owned())]);
        (tunnel, id.expect("the client is there"))
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.client.pump();
            self.world.settle();
        }
    }

    fn send(&mut self, message: Outgoing<'_>) {
        let mut out = Vec::new();
        self.end.send(message, &mut self.compression, 0, &mut out).expect("it is open");
        // Frames of the two protocols have nothing to do with each other.
        for part in out.chunks(1000) {
            self.client.send(frame(DATA, 0, 1, part));
        }
    }

    fn next(&mut self, id: WebSocketId) -> Result<(Kind, Vec<u8>), u16> {
        for _ in 0..1000 {
            let now = self.world.now();
            match self.world.engine.receive_message(id, now, &mut self.world.app) {
                Incoming::Message(message) => return Ok(message),
                Incoming::End(WebSocketEnd { code, .. }) => return Err(code),
                Incoming::Pending => self.settle(),
            }
        }
        panic!("neither a message nor an end: {:?}", self.world.statistics());
    }

    fn reply(&mut self, id: WebSocketId, message: Outgoing<'_>) -> Result<Room, SendError> {
        let now = self.world.now();
        let World { engine, app, .. } = &mut self.world;
        match message {
            Outgoing::Text(_) => engine.send_message(id, message, now, app),
            Outgoing::Binary(bytes) => engine.send_binary(id, app.part(bytes.to_vec()), now, app),
        }
    }

    fn got(&mut self) -> Vec<Got> {
        self.settle();
        let mut got = Vec::new();
        let mut bytes = body(&self.client, 1).0.split_off(self.at);
        self.at += bytes.len();
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            let (used, event) = self.end.next(rest, &mut self.compression);
            match event {
                wire_frames::Event::Message { kind, bytes } => got.push(Got::Message(kind, bytes.into_owned())),
                wire_frames::Event::Close(frame) => got.push(Got::Closed(frame.number(), frame.reason.into())),
                wire_frames::Event::Nothing if self.end.owes_answer() => got.push(Got::Pinged),
                wire_frames::Event::Nothing | wire_frames::Event::Pong(_) => {}
                wire_frames::Event::Fault(fault) => panic!("the engine broke {fault:?}"),
            }
            rest = &mut rest[used..];
        }
        got
    }

    fn answer(&mut self) {
        let mut out = Vec::new();
        self.end.flush(0, &mut out);
        self.client.send(frame(DATA, 0, 1, &out));
        self.settle();
    }

    fn complete(&mut self) {
        self.world.complete(0, |_| Progress::Done);
        self.settle();
    }
}

#[test]
fn messages_go_both_ways_on_a_stream_beside_other_requests() {
    let (mut tunnel, id) = Tunnel::open(config(quiet()), b"");
    tunnel.send(Outgoing::Text("hello"));
    let large = vec![7; 70_000];
    tunnel.send(Outgoing::Binary(&large));
    assert_eq!(tunnel.next(id), Ok((Kind::Text, b"hello".to_vec())));
    assert_eq!(tunnel.next(id), Ok((Kind::Binary, large)));
    tunnel.reply(id, Outgoing::Text("news")).expect("it is open");
    tunnel.reply(id, Outgoing::Binary(&[8; 10_000])).expect("it is open");
    let news = [Got::Message(Kind::Text, b"news".to_vec()), Got::Message(Kind::Binary, vec![8; 10_000])];
    assert_eq!(tunnel.got(), news);
    tunnel.client.send(get(3, 1));
    tunnel.settle();
    let other = tunnel.world.index_of(1);
    tunnel.world.go_on(other);
    until_whole(&mut tunnel.world, &mut tunnel.client, &[3]);
    assert_eq!(tunnel.world.statistics().websockets, 1);
    // The client closes: the server answers, and ends the stream.
    let mut out = Vec::new();
    tunnel.end.close(CloseCode::NORMAL, "bye", &mut out).expect("it is open");
    tunnel.client.send(frame(DATA, 0, 1, &out));
    assert_eq!(tunnel.next(id), Err(1000));
    assert_eq!(tunnel.got(), [Got::Closed(1000, String::new())]);
    tunnel.complete();
    assert!(body(&tunnel.client, 1).1, "END_STREAM has been sent");
    assert_eq!(tunnel.world.statistics().websockets, 0);
    assert_eq!(tunnel.reply(id, Outgoing::Text("late")), Err(SendError::Closed));
    tunnel.client.send(get(5, 1));
    tunnel.settle();
    tunnel.world.go_on_with(1);
    until_whole(&mut tunnel.world, &mut tunnel.client, &[5]);
}

#[test]
fn call_that_listens_is_resumed_for_each_message() {
    let (mut tunnel, id) = Tunnel::open(config(quiet()), b"");
    tunnel.world.complete(0, Progress::Listening);
    tunnel.settle();
    assert_eq!((tunnel.world.statistics().running, tunnel.world.statistics().suspended), (0, 1));
    for number in 0..3 {
        tunnel.send(Outgoing::Binary(&[number]));
        tunnel.settle();
        assert_eq!(tunnel.world.ids_out(), [0]);
        assert_eq!(tunnel.next(id), Ok((Kind::Binary, vec![number])));
        tunnel.world.complete(0, Progress::Listening);
        tunnel.settle();
    }
    // The application closes: the client answers, and the stream ends.
    let now = tunnel.world.now();
    tunnel.world.engine.close_websocket(id, CloseCode::NORMAL, "done", now, &mut tunnel.world.app);
    assert_eq!(tunnel.got(), [Got::Closed(1000, "done".to_owned())]);
    tunnel.answer();
    assert_eq!(tunnel.next(id), Err(1000));
    tunnel.complete();
    assert_eq!((tunnel.world.statistics().websockets, tunnel.world.statistics().suspended), (0, 0));
    assert!(body(&tunnel.client, 1).1);
}

#[test]
fn reset_and_end_of_the_stream_are_1006() {
    for end in [frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), frame(DATA, END_STREAM, 1, b"")] {
        let (mut tunnel, id) = Tunnel::open(config(quiet()), b"");
        let now = tunnel.world.now();
        let (ticket, app) = (&tunnel.world.calls[0].ticket, &mut tunnel.world.app);
        let number = tunnel.world.calls[0].course.number;
        tunnel.world.engine.wait_for_any(ticket, Awaited::INPUT.or(Awaited::DEPARTURE), number, now, app);
        tunnel.client.send(end);
        tunnel.settle();
        assert_eq!(tunnel.world.app.woken, [number]);
        tunnel.world.app.woken.clear();
        assert_eq!(tunnel.next(id), Err(1006));
        assert_eq!(tunnel.reply(id, Outgoing::Text("late")), Err(SendError::Closed));
        tunnel.complete();
        assert_eq!(tunnel.world.statistics().websockets, 0);
        tunnel.client.send(get(3, 1));
        tunnel.settle();
        tunnel.world.go_on_with(1);
        until_whole(&mut tunnel.world, &mut tunnel.client, &[3]);
    }
}

#[test]
fn messages_wait_for_the_window_of_their_stream() {
    let (mut tunnel, id) = Tunnel::open(config(quiet()), &[0, 4, 0, 0, 0, 10]);
    let large = vec![1; 70_000];
    assert_eq!(tunnel.reply(id, Outgoing::Binary(&large)), Ok(Room::Full));
    tunnel.settle();
    assert_eq!(body(&tunnel.client, 1).0.len(), 10);
    tunnel.client.send([get(3, 1), frame(WINDOW_UPDATE, 0, 3, &[0, 0, 4, 0])].concat());
    tunnel.settle();
    tunnel.world.go_on_with(1);
    until_whole(&mut tunnel.world, &mut tunnel.client, &[3]);
    tunnel.client.send([frame(WINDOW_UPDATE, 0, 1, &[0, 2, 0, 0]), frame(WINDOW_UPDATE, 0, 0, &[0, 2, 0, 0])].concat());
    assert_eq!(tunnel.got(), [Got::Message(Kind::Binary, large)]);
}

#[test]
fn messages_that_are_not_taken_keep_their_client_back() {
    let websocket = WebSocketConfig { queue: 2, ..quiet() };
    let (mut tunnel, id) = Tunnel::open(config(websocket), b"");
    for number in 0..200 {
        tunnel.send(Outgoing::Binary(&[number; 1000]));
    }
    tunnel.settle();
    let credit = |client: &Client| frames(client).iter().filter(|it| it.0 == WINDOW_UPDATE && it.2 == 1).count();
    assert_eq!(credit(&tunnel.client), 0);
    for number in 0..200 {
        assert_eq!(tunnel.next(id), Ok((Kind::Binary, vec![number; 1000])));
    }
    tunnel.settle();
    assert_eq!(credit(&tunnel.client), 1, "half a window has been read");
}

#[test]
fn silent_client_is_pinged_and_given_up() {
    let websocket = WebSocketConfig {
        ping_interval: Some(seconds(5)),
        ping_timeout: Some(seconds(3)),
        ..WebSocketConfig::default()
    };
    let (mut tunnel, id) = Tunnel::open(config(websocket), b"");
    tunnel.world.advance(seconds(5) + GRAIN);
    assert_eq!(tunnel.got(), [Got::Pinged]);
    tunnel.answer();
    tunnel.world.advance(seconds(5) + GRAIN);
    assert_eq!(tunnel.got(), [Got::Pinged]);
    tunnel.world.advance(seconds(3) + GRAIN);
    assert_eq!(tunnel.next(id), Err(1006));
    tunnel.complete();
    assert_eq!(tunnel.world.statistics().websockets, 0);
}

#[test]
fn client_that_takes_no_messages_is_cut_after_the_write_timeout() {
    let config = Config { write_timeout: Some(seconds(5)), ..config(quiet()) };
    let (mut tunnel, id) = Tunnel::open(config, &[0, 4, 0, 0, 0, 10]);
    tunnel.reply(id, Outgoing::Text("more than ten bytes")).expect("it is open");
    tunnel.settle();
    tunnel.world.advance(seconds(5) + GRAIN);
    tunnel.settle();
    assert!(frames(&tunnel.client).iter().any(|it| it.0 == RST_STREAM && it.2 == 1));
    assert_eq!(tunnel.next(id), Err(1006));
    tunnel.complete();
    assert_eq!(tunnel.world.statistics().websockets, 0);
}

#[test]
fn response_of_an_application_that_knows_nothing_of_websockets_is_no_acceptance() {
    for (status, expected) in [("200 OK", "501"), ("204 No Content", "501"), ("404 Not Found", "404")] {
        let mut tunnel = Tunnel::new(config(quiet()), b"");
        let mut draft = Draft::default();
        draft.start(status.as_bytes()).expect("it is a status");
        tunnel.world.engine.reply(&tunnel.world.calls[0].ticket, |reply| {
            reply.begin(&draft, Some(0));
            reply.finish().expect("it has no body");
        });
        tunnel.complete();
        assert_eq!(statuses(&tunnel.client), [(1, expected.to_owned())]);
    }
}

#[test]
fn request_that_is_no_handshake_is_refused() {
    for (protocol, version, status) in [("websocket", "8", "426"), ("connect-udp", "13", "501")] {
        let mut world: World<Versions> = World::of_kind(config(quiet()), vec![Plan::sized(&[3])]);
        let mut client = world.client();
        client.send([preface(), connect(1, 0, protocol, version)].concat());
        world.until("it is answered", &mut [&mut client], |_, clients| !statuses(clients[0]).is_empty());
        assert_eq!(statuses(&client), [(1, status.to_owned())]);
    }
}

#[test]
fn end_of_the_server_closes_the_websocket() {
    let (mut tunnel, id) = Tunnel::open(config(quiet()), b"");
    let now = tunnel.world.now();
    tunnel.world.engine.stop(now, None, seconds(30));
    assert_eq!(tunnel.got(), [Got::Closed(1001, String::new())]);
    tunnel.answer();
    assert_eq!(tunnel.next(id), Err(1001));
    tunnel.complete();
    assert!(body(&tunnel.client, 1).1);
    assert_eq!(tunnel.world.statistics().websockets, 0);
}
