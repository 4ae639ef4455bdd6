//! Tests of connections that the application takes over: the engine no longer reads or writes them, and ends them with
//! the call, with the socket, or when it stops.

use crate::common::{Client, End, Plan, World, seconds, timeless};
use engine::{Config, HijackId, HijackRefusal, Hijacked, Progress, WebSocketConfig};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;
use std::time::Duration;
use wire::message::Draft;

const HANDSHAKE: &str = "GET /0 HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// The time for which the application may keep a socket after its call is over.
const LINGER: Duration = seconds(10);

/// A world with one client, whose request asks for a WebSocket and is being answered.
struct Pair {
    world: World,
    client: Client,
}

impl Pair {
    fn new(before: &[&str]) -> Self {
        Self::sending(before, HANDSHAKE)
    }

    /// Returns a pair whose client has sent `handshake`. `before`: requests that are answered first, each in its own
    /// packet.
    fn sending(before: &[&str], handshake: &str) -> Self {
        let config = Config { websocket: Some(WebSocketConfig::default()), ..timeless() };
        let mut world = World::unix(config, vec![Plan::sized(&[3]), Plan::sized(&[4])]);
        let mut client = world.client();
        for (index, request) in before.iter().enumerate() {
            world.ask(&mut client, request.as_bytes(), index + 1);
        }
        world.keeps = true;
        client.send(handshake);
        world.until("the request is dispatched", &mut [&mut client], |world, _| !world.calls.is_empty());
        Self { world, client }
    }

    fn hijack(&mut self) -> Result<Hijacked, HijackRefusal> {
        let now = self.world.now();
        let World { engine, calls, app, .. } = &mut self.world;
        engine.hijack(&calls[0].ticket, now, app)
    }

    /// Returns a pair whose connection belongs to the application.
    fn hijacked(before: &[&str]) -> (Self, OwnedFd, HijackId) {
        let mut pair = Self::new(before);
        let Hijacked { socket, id } = pair.hijack().expect("nothing is in its way");
        (pair, socket, id)
    }

    fn end_hijack(&mut self, id: HijackId) {
        let now = self.world.now();
        self.world.engine.end_hijack(id, now, &mut self.world.app);
    }

    fn complete(&mut self) {
        self.world.complete(0, |_| Progress::Done);
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.client.pump();
            self.world.settle();
        }
    }
}

/// Returns the bytes that can be read now; `None`: nothing has arrived.
fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = [0; 1000];
    match rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty()) {
        Ok((count, _)) => Some(buffer[..count].to_vec()),
        Err(Errno::WOULDBLOCK) => None,
        Err(error) => panic!("recv: {error}"),
    }
}

#[test]
fn hijacked_connection_is_neither_read_nor_written_nor_watched() {
    // The poller watches a connection that has waited for its second request, and no other connection.
    for before in [&[][..], &["GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"]] {
        let (mut pair, socket, _) = Pair::hijacked(before);
        pair.settle();
        let before = pair.client.received.len();
        let (received, sent) = (pair.world.statistics().bytes_in, pair.world.statistics().bytes_out);
        pair.client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        pair.client.pump();
        assert!(!pair.world.take_events(), "the poller still reports it");
        pair.settle();
        pair.world.advance(seconds(100_000));
        assert_eq!(receive(&socket).as_deref(), Some(&b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"[..]));
        assert_eq!(receive(&socket), None);
        rustix::net::send(&socket, b"HTTP/1.1 101 As I say\r\n\r\n", SendFlags::empty()).expect("the client is there");
        pair.settle();
        assert_eq!(&pair.client.received[before..], b"HTTP/1.1 101 As I say\r\n\r\n");
        let statistics = pair.world.statistics();
        assert_eq!((statistics.bytes_in, statistics.bytes_out), (received, sent));
        assert_eq!((statistics.websockets, statistics.running, statistics.connections), (1, 1, 1));
        assert_eq!((statistics.statuses[0], statistics.timeouts), (1, 0));
        // Only the application sees the client's actions.
        let ticket = &pair.world.calls[0].ticket;
        assert!(!pair.world.engine.has_peer_left(ticket));
        pair.client.hang_up();
        assert!(pair.world.engine.has_peer_left(&pair.world.calls[0].ticket));
        pair.settle();
        assert_eq!(pair.world.statistics().connections, 1);
        assert_eq!(receive(&socket).as_deref(), Some(&b""[..]));
    }
}

#[test]
fn response_of_a_call_that_has_hijacked_goes_nowhere() {
    let (mut pair, socket, id) = Pair::hijacked(&[]);
    let mut draft = Draft::default();
    draft.start(b"200 OK").expect("it is a status");
    pair.world.engine.reply(&pair.world.calls[0].ticket, |reply| {
        reply.begin(&draft, Some(0));
        reply.finish().expect("it is whole");
        reply.flush();
    });
    pair.settle();
    let refused =
        pair.world.engine.reply(&pair.world.calls[0].ticket, |reply| reply.refuse(500, "The server has failed."));
    assert!(!refused || pair.client.received.is_empty());
    pair.complete();
    drop(socket);
    pair.end_hijack(id);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    assert_eq!(pair.client.text(), "");
    pair.world.until_empty(&mut [&mut pair.client]);
}

#[test]
fn client_sees_the_end_when_the_application_closes_its_socket_during_the_call() {
    let (mut pair, socket, id) = Pair::hijacked(&[]);
    rustix::net::send(&socket, b"bye", SendFlags::empty()).expect("the client is there");
    drop(socket);
    pair.end_hijack(id);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    assert_eq!(pair.client.text(), "bye");
    let statistics = pair.world.statistics();
    assert_eq!((statistics.connections, statistics.running), (1, 1), "the slot is the call's");
    pair.complete();
    pair.world.until_empty(&mut [&mut pair.client]);
    let statistics = pair.world.statistics();
    assert_eq!((statistics.websockets, statistics.cut, statistics.timeouts), (0, 0, 0));
}

#[test]
fn connection_is_over_when_the_socket_is_closed_after_the_call() {
    let (mut pair, socket, id) = Pair::hijacked(&[]);
    pair.complete();
    pair.settle();
    assert_eq!(pair.world.statistics().connections, 1);
    rustix::net::send(&socket, b"late", SendFlags::empty()).expect("the client is there");
    drop(socket);
    pair.end_hijack(id);
    assert_eq!(pair.world.statistics().connections, 0);
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    assert_eq!(pair.client.text(), "late");
}

#[test]
fn application_that_forgets_its_socket_loses_it_some_seconds_after_the_call() {
    let (mut pair, socket, id) = Pair::hijacked(&[]);
    pair.world.advance(seconds(1000));
    pair.complete();
    let passed = pair.world.sleep_until(seconds(20), |world| world.statistics().connections == 0);
    assert!(passed >= LINGER, "{passed:?}");
    assert_eq!(receive(&socket).as_deref(), Some(&b""[..]), "who waits for the client is woken");
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
    assert_eq!(pair.world.statistics().timeouts, 1);
    // Another connection has the slot.
    let mut other = pair.world.client();
    other.send(HANDSHAKE);
    pair.world.until("the request is dispatched", &mut [&mut other], |world, _| !world.calls.is_empty());
    let hijacked = pair.hijack().expect("nothing is in its way");
    pair.end_hijack(id);
    pair.world.settle();
    rustix::net::send(&hijacked.socket, b"still here", SendFlags::empty()).expect("the client is there");
    other.pump();
    assert_eq!((other.text().as_str(), other.end), ("still here", None));
}

#[test]
fn call_that_fails_ends_the_connection_at_once() {
    let (mut pair, socket, _) = Pair::hijacked(&[]);
    pair.world.complete(0, |_| Progress::Cut);
    assert_eq!(pair.world.statistics().connections, 0);
    assert_eq!(receive(&socket).as_deref(), Some(&b""[..]));
    assert_eq!(pair.world.end(&mut pair.client), End::Closed);
}

#[test]
fn stop_waits_for_hijacked_connections_as_long_as_for_calls() {
    for has_returned in [false, true] {
        let (mut pair, socket, _) = Pair::hijacked(&[]);
        pair.world.engine.drain();
        pair.settle();
        if has_returned {
            pair.complete();
        }
        let now = pair.world.now();
        pair.world.engine.stop(now, Some(seconds(5)), Duration::ZERO);
        pair.settle();
        pair.world.advance(seconds(4));
        assert!(!pair.world.engine.is_stopped());
        assert_eq!((receive(&socket), pair.client.end), (None, None));
        pair.world.advance(seconds(1));
        assert!(pair.world.engine.is_stopped());
        assert_eq!(receive(&socket).as_deref(), Some(&b""[..]));
        let sent = rustix::net::send(&socket, b"x", SendFlags::NOSIGNAL);
        assert_eq!(sent, Err(Errno::PIPE), "a call that waits for room is woken");
        assert_eq!(pair.world.end(&mut pair.client), End::Closed);
        assert_eq!(pair.world.statistics().cut, 1);
        if !has_returned {
            pair.complete();
        }
        assert_eq!(pair.world.statistics().connections, 0);
    }
}

#[test]
fn connection_is_not_hijacked_where_bytes_could_be_read_or_written_twice() {
    // The client has sent more, which the engine holds.
    let mut pair = Pair::sending(&[], &format!("{HANDSHAKE}GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert!(matches!(pair.hijack(), Err(HijackRefusal::Pipelined)));
    // The request continues like any other.
    pair.world.keeps = false;
    pair.world.go_on_with(0);
    pair.world.until("both are answered", &mut [&mut pair.client], |_, clients| clients[0].answers.len() == 2);
    // Another request.
    let mut pair = Pair::sending(&[], "GET /0 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(matches!(pair.hijack(), Err(HijackRefusal::Over)));
    // A response that has begun.
    let mut pair = Pair::new(&[]);
    pair.world.step(0);
    assert!(matches!(pair.hijack(), Err(HijackRefusal::Over)));
    // A WebSocket of the engine's.
    let mut pair = Pair::new(&[]);
    let now = pair.world.now();
    let World { engine, calls, app, .. } = &mut pair.world;
    let accepted = engine.accept_websocket(&calls[0].ticket, None, [], now, app);
    assert!(matches!(accepted, Ok(Some(_))));
    assert!(matches!(pair.hijack(), Err(HijackRefusal::Over)));
    // A connection that is hijacked already, and is no longer a WebSocket.
    let (mut pair, _socket, _) = Pair::hijacked(&[]);
    assert!(matches!(pair.hijack(), Err(HijackRefusal::Over)));
    let now = pair.world.now();
    let World { engine, calls, app, .. } = &mut pair.world;
    let accepted = engine.accept_websocket(&calls[0].ticket, None, [], now, app);
    assert!(matches!(accepted, Ok(None)));
}

#[test]
fn responses_that_were_held_back_leave_before_the_connection_is_the_applications() {
    // Both requests arrive together, so the first response waits for the second.
    let mut pair = Pair::sending(&[], &format!("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n{HANDSHAKE}"));
    pair.world.go_on_with(1);
    pair.world.until("the second is dispatched", &mut [&mut pair.client], |world, _| world.is_out(0));
    let Hijacked { socket, .. } = pair.hijack().expect("nothing is in its way");
    rustix::net::send(&socket, b"mine", SendFlags::empty()).expect("the client is there");
    pair.settle();
    assert_eq!(pair.client.answers.len(), 1);
    assert!(pair.client.text().ends_with("mine"), "{}", pair.client.text());
}
