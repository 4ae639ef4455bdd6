//! Tests of many exchanges on one connection, with a protocol of frames: each exchange has its own state, window,
//! deadline and end, and a delay of one exchange delays no other.

use crate::common::{Client, Event, GRAIN, Kind, Manner, Op, OverSockets, Plan, World, ms, pattern, seconds, timeless};
use engine::{Config, Expired, OnlyMultiplexed};
use sim::frames::{self, CREDIT, DATA, END, Frames, GOAWAY, HEAD, HEAD_ONLY, RESET, SETTINGS, WINDOW, frame};
use std::cell::RefCell;
use std::collections::BTreeMap;

pub(crate) type Framed = OverSockets<OnlyMultiplexed<Frames>>;

/// The kind of connections whose protocol cannot announce that no further exchange is begun, as FastCGI cannot.
pub(crate) type Mute = OverSockets<OnlyMultiplexed<Frames<false>>>;

pub(crate) fn world(config: Config, plans: Vec<Plan>) -> World<Framed> {
    World::of_kind(config, plans)
}

/// The response that a client has received in one exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
    pub(crate) reset: Option<u8>,
    /// The number of further bytes of the request's body that the server takes.
    pub(crate) credit: usize,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.head.get(..3).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// Everything that a client has received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) exchanges: BTreeMap<u32, Response>,
    pub(crate) settings: Option<u16>,
    pub(crate) is_going_away: bool,
}

impl Received {
    pub(crate) fn of(client: &Client) -> Self {
        let (mut received, mut rest) = (Self::default(), &client.received[..]);
        while let Some(frame) = frames::read(rest) {
            rest = &rest[frame.length..];
            let response = received.exchanges.entry(frame.stream).or_default();
            // Frames about the request, which the server may send after it has answered.
            let is_of_request = frame.kind == CREDIT || (frame.kind, frame.payload) == (RESET, b"c");
            assert!(!response.is_whole || is_of_request, "{frame:?} comes behind the end of its response");
            match frame.kind {
                HEAD_ONLY => response.head = String::from_utf8(frame.payload.to_vec()).expect("a head is text"),
                DATA => response.body.extend_from_slice(frame.payload),
                END => response.is_whole = true,
                RESET => response.reset = Some(frame.payload[0]),
                CREDIT => {
                    let bytes = frame.payload.try_into().expect("a credit has four bytes");
                    response.credit += u32::from_be_bytes(bytes) as usize;
                }
                SETTINGS => received.settings = Some(u16::from_be_bytes(frame.payload.try_into().expect("two bytes"))),
                GOAWAY => received.is_going_away = true,
                other => panic!("a frame of kind {other}"),
            }
        }
        received
    }

    pub(crate) fn at(&self, stream: u32) -> Response {
        self.exchanges.get(&stream).cloned().unwrap_or_default()
    }
}

pub(crate) fn head(kind: u8, stream: u32, id: usize) -> Vec<u8> {
    let mut out = Vec::new();
    frame(kind, stream, format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n").as_bytes(), &mut out);
    out
}

/// Returns a request without a body, for plan `id`.
pub(crate) fn ask(stream: u32, id: usize) -> Vec<u8> {
    head(HEAD_ONLY, stream, id)
}

pub(crate) fn framed(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame(kind, stream, payload, &mut out);
    out
}

pub(crate) fn credit(stream: u32, bytes: u32) -> Vec<u8> {
    framed(CREDIT, stream, &bytes.to_be_bytes())
}

pub(crate) fn until<K: Kind>(world: &mut World<K>, client: &mut Client, what: &str, done: impl Fn(&Received) -> bool) {
    world.until(what, &mut [client], |_, clients| done(&Received::of(clients[0])));
}

/// Sends bytes, and has the engine receive them.
pub(crate) fn send<K: Kind>(world: &mut World<K>, client: &mut Client, bytes: impl AsRef<[u8]>) {
    client.send(bytes);
    while client.unsent() > 0 {
        client.pump();
        world.settle();
    }
    world.settle();
    client.pump();
}

#[test]
fn exchanges_are_answered_in_any_order() {
    let mut world = world(timeless(), vec![Plan::sized(&[5]), Plan::sized(&[6]), Plan::sized(&[7])]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, [ask(1, 0), ask(3, 1), ask(5, 2)].concat());
    assert_eq!(world.ids_out(), [0, 1, 2]);
    for (id, stream) in [(1, 3), (2, 5), (0, 1)] {
        world.go_on_with(id);
        until(&mut world, &mut client, "the answer is whole", |received| received.at(stream).is_whole);
        assert_eq!(Received::of(&client).at(stream).body, pattern(id, 0, 5 + id));
    }
    assert_eq!(client.end, None);
    assert_eq!((world.statistics().requests, world.statistics().running), (3, 0));
}

#[test]
fn bodies_of_interleaved_requests_reach_their_own_calls() {
    for buffer_bodies in [true, false] {
        let ops = if buffer_bodies { vec![Op::Echo] } else { vec![Op::EchoAll(1000)] };
        let config = Config { buffer_bodies, ..timeless() };
        let mut world = world(config, vec![Plan::of(ops.clone()), Plan::of(ops)]);
        let mut client = world.client();
        let bodies = [pattern(7, 0, 20_000), pattern(8, 0, 30_000)];
        let mut bytes = [head(HEAD, 1, 0), head(HEAD, 2, 1)].concat();
        for part in 0..10 {
            for (body, stream) in bodies.iter().zip([1, 2]) {
                let length = body.len() / 10;
                let kind = if part == 9 { END } else { DATA };
                bytes.extend(framed(kind, stream, &body[part * length..(part + 1) * length]));
            }
        }
        send(&mut world, &mut client, bytes);
        until(&mut world, &mut client, "both are answered", |received| {
            received.at(1).is_whole && received.at(2).is_whole
        });
        let received = Received::of(&client);
        assert!(received.at(1).body == bodies[0] && received.at(2).body == bodies[1]);
        assert_eq!(world.app.alive(), 0);
    }
}

#[test]
fn slow_reader_holds_up_its_own_exchange_only() {
    const LENGTH: usize = 5 * WINDOW;
    let plans = vec![Plan::sized(&[LENGTH / 5; 5]), Plan::sized(&[9]), Plan::sized(&[LENGTH / 5; 5])];
    let mut world = world(timeless(), plans);
    let mut client = world.client();
    send(&mut world, &mut client, ask(1, 0));
    until(&mut world, &mut client, "the window is used up", |received| received.at(1).body.len() == WINDOW);
    world.settle();
    assert_eq!(world.statistics().suspended, 1, "no thread waits with the slow exchange");
    // A fast response beside it, and one that is as long but whose client takes it.
    send(&mut world, &mut client, [ask(3, 1), ask(5, 2), credit(5, u32::MAX)].concat());
    until(&mut world, &mut client, "the fast ones are answered", |received| {
        received.at(3).is_whole && received.at(5).is_whole
    });
    let received = Received::of(&client);
    assert_eq!(received.at(1).body.len(), WINDOW);
    assert!(received.at(5).body == pattern(2, 0, LENGTH));
    // The response continues by as many bytes as the client allows.
    send(&mut world, &mut client, credit(1, 1000));
    until(&mut world, &mut client, "it has 1000 bytes more", |received| received.at(1).body.len() == WINDOW + 1000);
    send(&mut world, &mut client, credit(1, u32::MAX));
    until(&mut world, &mut client, "the slow one is whole", |received| received.at(1).is_whole);
    assert!(Received::of(&client).at(1).body == pattern(0, 0, LENGTH));
    assert_eq!((world.app.alive(), world.app.parts_alive()), (0, 0));
}

#[test]
fn call_that_waits_in_the_middle_is_woken_by_its_own_client() {
    let waits = |parts: &[usize]| Plan { manner: Manner::Waits, ..Plan::sized(parts) };
    let mut world = world(timeless(), vec![waits(&[WINDOW, WINDOW, 10]), Plan::sized(&[3])]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, ask(1, 0));
    while !world.calls[0].waits {
        world.step(0);
    }
    send(&mut world, &mut client, [ask(2, 1), credit(2, 5)].concat());
    world.note_woken();
    assert!(world.calls[0].waits, "the credit was for another exchange");
    world.go_on_with(1);
    send(&mut world, &mut client, credit(1, u32::MAX));
    world.note_woken();
    assert!(!world.calls[0].waits);
    world.go_on_with(0);
    until(&mut world, &mut client, "both are answered", |received| received.at(1).is_whole && received.at(2).is_whole);
    assert_eq!(Received::of(&client).at(1).body.len(), 2 * WINDOW + 10);
}

#[test]
fn reset_ends_one_exchange_in_whatever_state() {
    let big = Plan::sized(&[WINDOW; 3]);
    let plans = vec![Plan::of(vec![Op::Echo]), Plan::sized(&[1]), Plan::sized(&[2]), big, Plan::sized(&[4])];
    let mut world = world(timeless(), plans);
    world.keeps = true;
    world.callers = 2;
    let mut client = world.client();
    // 1 is being received, 3 waits for its client, 2 runs, 4 runs, 1 is queued.
    send(&mut world, &mut client, [head(HEAD, 1, 0), framed(DATA, 1, b"half"), ask(2, 3)].concat());
    world.go_on_with(3);
    send(&mut world, &mut client, [ask(3, 2), ask(4, 4)].concat());
    assert_eq!(world.ids_out(), [2, 4]);
    send(&mut world, &mut client, ask(5, 1));
    assert_eq!((world.statistics().queued, world.statistics().suspended), (1, 1));
    let resets: Vec<u8> = [1, 2, 3, 5].into_iter().flat_map(|stream| framed(RESET, stream, b"")).collect();
    send(&mut world, &mut client, resets);
    assert_eq!(world.app.abandoned(3), 1, "the suspended response is given back");
    assert_eq!(world.app.count(|event| matches!(event, Event::AbandonRequest { id: 0 | 1, status: None })), 2);
    assert_eq!((world.statistics().queued, world.statistics().suspended), (0, 0));
    assert!(world.engine.is_gone(&world.calls[world.index_of(2)].ticket));
    assert!(!world.engine.is_gone(&world.calls[world.index_of(4)].ticket));
    // The engine sends no output of the call of 3; it answers 4, and the connection continues.
    world.go_on_with(2);
    world.go_on_with(4);
    until(&mut world, &mut client, "the other one is answered", |received| received.at(4).is_whole);
    let received = Received::of(&client);
    assert_eq!(received.at(4).body, pattern(4, 0, 4));
    assert_eq!((received.at(3), client.end), (Response::default(), None));
    assert_eq!((world.statistics().running, world.app.alive(), world.app.parts_alive()), (0, 0, 0));
    // The places are free again.
    send(&mut world, &mut client, ask(9, 4));
    world.go_on_with(4);
    until(&mut world, &mut client, "a new one is answered", |received| received.at(9).is_whole);
}

#[test]
fn exchanges_beyond_the_bound_are_refused_and_the_others_go_on() {
    let mut world = world(Config { exchanges: 2, ..timeless() }, vec![Plan::sized(&[3]); 4]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, [ask(1, 0), ask(2, 1), ask(3, 2)].concat());
    until(&mut world, &mut client, "the third one is refused", |received| received.at(3).reset.is_some());
    assert_eq!((Received::of(&client).settings, Received::of(&client).at(3).reset), (Some(2), Some(b'r')));
    assert_eq!((world.ids_out(), world.statistics().refused), (vec![0, 1], 1));
    world.go_on_with(0);
    send(&mut world, &mut client, ask(4, 3));
    assert_eq!(world.ids_out(), [1, 3]);
    world.go_on_with(1);
    world.go_on_with(3);
    until(&mut world, &mut client, "the others are answered", |received| {
        [1, 2, 4].iter().all(|&stream| received.at(stream).is_whole)
    });
}

#[test]
fn drain_finishes_what_is_under_way_and_begins_nothing_more() {
    for stops in [false, true] {
        let mut world = world(timeless(), vec![Plan::sized(&[3]), Plan::sized(&[2 * WINDOW]), Plan::sized(&[3])]);
        world.keeps = true;
        let mut client = world.client();
        send(&mut world, &mut client, [ask(1, 0), ask(2, 1)].concat());
        if stops {
            let now = world.now();
            world.engine.stop(now, Some(seconds(60)), ms(100));
        } else {
            world.engine.drain();
        }
        send(&mut world, &mut client, ask(3, 2));
        until(&mut world, &mut client, "the end is announced", |received| {
            received.is_going_away && received.at(3).reset == Some(b'r')
        });
        assert_eq!(world.ids_out(), [0, 1]);
        world.go_on_with(0);
        world.go_on_with(1);
        world.keeps = false;
        until(&mut world, &mut client, "the fast one is whole", |received| received.at(1).is_whole);
        assert_eq!(client.end, None, "the slow one is still under way");
        send(&mut world, &mut client, credit(2, u32::MAX));
        world.end(&mut client);
        let received = Received::of(&client);
        assert!(received.at(2).is_whole && received.at(2).body == pattern(1, 0, 2 * WINDOW));
        client.hang_up();
        world.until_empty(&mut [&mut client]);
        if stops {
            world.settle();
            assert!(world.engine.is_stopped());
        }
    }
}

#[test]
fn deadline_of_one_call_ends_that_exchange_only() {
    let begun = Plan::of(vec![Op::Begin, Op::Write(9), Op::Flush, Op::Write(9)]);
    let mut world = world(timeless(), vec![Plan::sized(&[3]), begun, Plan::sized(&[5])]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, [ask(1, 0), ask(2, 1), ask(3, 2)].concat());
    for _ in 0..3 {
        let index = world.index_of(1);
        world.step(index);
    }
    let now = world.now();
    let calls: Vec<_> = [0, 1].iter().map(|&id| world.calls[world.index_of(id)].ticket.call()).collect();
    let expired: Vec<_> = calls.into_iter().map(|call| world.engine.expire(call, now)).collect();
    assert!(matches!(expired[0], Expired::Answered { body_bytes: 1.. }), "{expired:?}");
    assert_eq!(expired[1], Expired::Cut { body_bytes: 9 });
    until(&mut world, &mut client, "both clients know", |received| {
        received.at(1).is_whole && received.at(2).reset == Some(b'x')
    });
    assert_eq!(Received::of(&client).at(1).status(), 504);
    // The engine discards the later output of the expired calls, and the third call continues.
    for id in [0, 1, 2] {
        world.go_on_with(id);
    }
    until(&mut world, &mut client, "the third one is answered", |received| received.at(3).is_whole);
    let received = Received::of(&client);
    assert_eq!(received.at(3).body, pattern(2, 0, 5));
    assert_eq!((received.at(2).body.len(), client.end), (9, None));
    assert_eq!((world.statistics().running, world.app.alive(), world.app.parts_alive()), (0, 0, 0));
}

#[test]
fn client_that_takes_nothing_for_too_long_loses_that_exchange_only() {
    let config = Config { write_timeout: Some(seconds(5)), ..timeless() };
    let mut world = world(config, vec![Plan::sized(&[2 * WINDOW; 2]), Plan::sized(&[3])]);
    let mut client = world.client();
    send(&mut world, &mut client, ask(1, 0));
    until(&mut world, &mut client, "the window is used up", |received| received.at(1).body.len() == WINDOW);
    world.settle();
    let passed = world.sleep_until(seconds(6), |world| world.statistics().timeouts == 1);
    assert!(passed >= seconds(5) && passed <= seconds(5) + 2 * GRAIN, "{passed:?}");
    until(&mut world, &mut client, "its exchange is reset", |received| received.at(1).reset == Some(b'x'));
    send(&mut world, &mut client, ask(2, 1));
    until(&mut world, &mut client, "another one is answered", |received| received.at(2).is_whole);
    assert_eq!((world.app.abandoned(0), world.app.alive(), client.end), (1, 0, None));
}

#[test]
fn body_that_stops_is_refused_on_its_own_exchange() {
    let config = Config { body_timeout: Some(seconds(5)), ..timeless() };
    let mut world = world(config, vec![Plan::of(vec![Op::Echo]), Plan::sized(&[3])]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, [head(HEAD, 1, 0), framed(DATA, 1, b"half"), ask(2, 1)].concat());
    world.sleep_until(seconds(6), |world| world.statistics().timeouts == 1);
    until(&mut world, &mut client, "it is refused", |received| received.at(1).is_whole);
    assert_eq!(Received::of(&client).at(1).status(), 408);
    world.go_on_with(1);
    until(&mut world, &mut client, "the other one is answered", |received| received.at(2).is_whole);
    assert_eq!(client.end, None);
}

#[test]
fn body_beyond_its_window_is_refused_on_its_own_exchange() {
    let config = Config { buffer_bodies: false, ..timeless() };
    let mut world = world(config, vec![Plan::of(vec![Op::ReadAll(100_000), Op::Echo]), Plan::sized(&[3])]);
    world.keeps = true;
    let mut client = world.client();
    let part = vec![b'x'; WINDOW / 2];
    let bytes = [head(HEAD, 1, 0), ask(2, 1)];
    let data: Vec<u8> = (0..3).flat_map(|_| framed(DATA, 1, &part)).collect();
    send(&mut world, &mut client, [bytes.concat(), data].concat());
    world.keeps = false;
    world.go_on_with_woken();
    until(&mut world, &mut client, "both have their answers", |received| {
        received.at(1).is_whole && received.at(2).is_whole
    });
    let received = Received::of(&client);
    assert_eq!((received.at(1).status(), received.at(2).status()), (413, 200));
    assert_eq!(world.app.broken(0), Some(413), "the call that reads it is told why");
}

#[test]
fn client_that_breaks_the_protocol_loses_the_connection() {
    for bytes in [framed(b'?', 1, b""), [ask(3, 0), ask(3, 0)].concat()] {
        let mut world = world(timeless(), vec![Plan::sized(&[3])]);
        world.keeps = true;
        let mut client = world.client();
        send(&mut world, &mut client, bytes);
        // On a Unix socket the client sees the cut when the running call has returned.
        world.keeps = false;
        world.go_on_with_woken();
        world.end(&mut client);
        world.until_empty(&mut [&mut client]);
        assert_eq!(world.statistics().refused, 1);
    }
}

#[test]
fn client_that_leaves_ends_all_exchanges() {
    let plans = vec![Plan::of(vec![Op::Echo]), Plan::sized(&[3 * WINDOW; 2]), Plan::sized(&[3])];
    let mut world = world(timeless(), plans);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, [head(HEAD, 1, 0), ask(2, 1)].concat());
    world.go_on_with(1);
    send(&mut world, &mut client, ask(3, 2));
    client.reset();
    world.until("the client is gone", &mut [], |world, _| world.app.abandoned(1) == 1);
    assert_eq!(world.ids_out(), [2]);
    assert!(world.engine.has_peer_left(&world.calls[0].ticket));
    world.keeps = false;
    world.go_on_with_woken();
    world.until_empty(&mut []);
    assert_eq!((world.statistics().running, world.app.parts_alive()), (0, 0));
}

#[test]
fn reset_of_a_late_call_does_not_get_into_the_middle_of_a_frame() {
    const LENGTH: usize = 1 << 20;
    let begun = Plan::of(vec![Op::Begin, Op::Write(9), Op::Flush, Op::Write(9)]);
    let mut world = world(timeless(), vec![Plan::sized(&[LENGTH; 2]), begun, Plan::sized(&[3])]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, [ask(1, 1), ask(2, 2), ask(3, 0), credit(3, u32::MAX)].concat());
    for _ in 0..3 {
        let index = world.index_of(1);
        world.step(index);
    }
    client.pump();
    client.reads = false;
    world.go_on_with(0);
    world.settle();
    assert_eq!(world.statistics().suspended, 1, "output waits, and its end is in the middle of a frame");
    // The socket takes bytes again, and the engine does not know.
    client.pump_in(usize::MAX);
    let now = world.now();
    let calls: Vec<_> = [1, 2].iter().map(|&id| world.calls[world.index_of(id)].ticket.call()).collect();
    let expired: Vec<_> = calls.into_iter().map(|call| world.engine.expire(call, now)).collect();
    assert!(matches!(expired[..], [Expired::Cut { .. }, Expired::Answered { .. }]), "{expired:?}");
    client.reads = true;
    world.keeps = false;
    for id in [1, 2] {
        world.go_on_with(id);
    }
    until(&mut world, &mut client, "all have an end", |received| {
        received.at(3).is_whole && received.at(1).reset == Some(b'x') && received.at(2).is_whole
    });
    let received = Received::of(&client);
    assert!(received.at(3).body == pattern(0, 0, 2 * LENGTH));
    assert_eq!((received.at(1).body.len(), received.at(2).status()), (9, 504));
}

#[test]
fn response_that_is_suspended_when_its_file_is_too_short_is_given_back() {
    let file = Op::File { length: 4 * WINDOW, missing: 2 * WINDOW };
    let mut world = world(timeless(), vec![Plan::of(vec![Op::Begin, file, Op::Write(3)]), Plan::sized(&[4])]);
    let mut client = world.client();
    send(&mut world, &mut client, ask(1, 0));
    until(&mut world, &mut client, "the window is used up", |received| received.at(1).body.len() == WINDOW);
    world.settle();
    assert_eq!(world.statistics().suspended, 1);
    send(&mut world, &mut client, credit(1, u32::MAX));
    until(&mut world, &mut client, "it is cut", |received| received.at(1).reset == Some(b'x'));
    world.settle();
    assert_eq!((world.statistics().suspended, world.app.alive(), world.app.parts_alive()), (0, 0, 0));
    // The response was given back to the application, not dropped.
    assert!(world.app.log.contains(&Event::Abandon { id: 0 }), "{:?}", world.app.log);
    send(&mut world, &mut client, ask(2, 1));
    until(&mut world, &mut client, "the connection goes on", |received| received.at(2).is_whole);
}

#[test]
fn call_that_waits_for_its_client_when_its_file_is_too_short_is_woken() {
    let file = Op::File { length: 4 * WINDOW, missing: 2 * WINDOW };
    let plan = Plan { manner: Manner::Waits, ..Plan::of(vec![Op::Begin, file, Op::Write(3)]) };
    let mut world = world(timeless(), vec![plan, Plan::sized(&[4])]);
    let mut client = world.client();
    send(&mut world, &mut client, ask(1, 0));
    until(&mut world, &mut client, "the window is used up", |received| received.at(1).body.len() == WINDOW);
    world.settle();
    assert!(world.calls[0].waits);
    send(&mut world, &mut client, credit(1, u32::MAX));
    until(&mut world, &mut client, "it is cut", |received| received.at(1).reset == Some(b'x'));
    world.settle();
    assert_eq!((world.ids_out(), world.statistics().running, world.app.alive()), (vec![], 0, 0));
}

#[test]
fn requests_that_the_queue_has_no_room_for_are_refused_on_their_own_exchanges() {
    let config = Config { queue: 1, queue_timeout: Some(seconds(5)), ..timeless() };
    let mut world = world(config, (0..5).map(|id| Plan::sized(&[5 + id])).collect());
    (world.keeps, world.callers) = (true, 1);
    let mut busy = world.client();
    let mut idle = world.client();
    world.settle();
    send(&mut world, &mut busy, [ask(1, 0), ask(2, 1)].concat());
    // Its connection has nothing under way.
    send(&mut world, &mut idle, [ask(1, 2), ask(2, 3)].concat());
    until(&mut world, &mut idle, "both are refused", |received| {
        received.at(1).reset == Some(b'r') && received.at(2).reset == Some(b'r')
    });
    // The waiting request is refused with a page when its time is up, and no other request is.
    world.advance(seconds(6));
    until(&mut world, &mut busy, "the second one is refused", |received| received.at(2).is_whole);
    idle.pump();
    let received = Received::of(&idle);
    assert!(received.exchanges.keys().all(|stream| [0, 1, 2].contains(stream)), "{received:?}");
    assert_eq!((received.at(1).head, idle.end), (String::new(), None));
    world.keeps = false;
    world.go_on_with(0);
    send(&mut world, &mut idle, ask(3, 4));
    until(&mut world, &mut idle, "the connection goes on", |received| received.at(3).is_whole);
}

/// A call that reads its body in small parts reads its connection with each part.
#[test]
fn call_that_reads_begins_no_more_requests_than_the_queue_has_room_for() {
    let config = Config { buffer_bodies: false, queue: 2, ..timeless() };
    let mut plans = vec![Plan::of(vec![Op::ReadAll(10)])];
    plans.extend((1..9).map(|id| Plan::sized(&[5 + id])));
    let mut world = world(config, plans);
    (world.keeps, world.callers) = (true, 2);
    let mut client = world.client();
    send(&mut world, &mut client, head(HEAD, 1, 0));
    assert_eq!(world.ids_out(), [0]);
    let asks = (2..10).flat_map(|stream| ask(stream, stream as usize - 1));
    client.send(framed(DATA, 1, &[b'a'; 500]).into_iter().chain(asks).collect::<Vec<_>>());
    client.pump();
    // The poll that reads them returns the first request to a thread.
    world.take_events();
    let now = world.now();
    let work = world.engine.poll(now, &mut world.app, true).expect("a request is ready");
    world.take_up(work);
    assert_eq!((world.ids_out(), client.unsent()), (vec![0, 1], 0));
    for _ in 0..10 {
        assert!(world.step(0));
    }
    world.settle();
    assert_eq!((world.ids_out(), world.statistics().queued), (vec![0, 1], 2));
    until(&mut world, &mut client, "the others are refused", |received| {
        (2..10).filter(|&stream| received.at(stream).reset == Some(b'r')).count() == 5
    });
}

// ------------------------------------------------------------------------------------------------------- drain, stop

/// Drains the engine, or stops it with a grace that outlasts the test.
pub(crate) fn drain<K: Kind>(world: &mut World<K>, stops: bool) {
    let now = world.now();
    if stops { world.engine.stop(now, Some(seconds(60)), seconds(30)) } else { world.engine.drain() }
}

#[test]
fn idle_connection_is_told_of_drain_and_closed() {
    for stops in [false, true] {
        let mut world = world(timeless(), vec![Plan::sized(&[3])]);
        let mut client = world.client();
        send(&mut world, &mut client, ask(1, 0));
        until(&mut world, &mut client, "it is answered", |received| received.at(1).is_whole);
        world.settle();
        drain(&mut world, stops);
        world.end(&mut client);
        let received = Received::of(&client);
        assert!(received.is_going_away, "stops: {stops}");
        assert_eq!(received.exchanges.keys().filter(|&&stream| stream != 0).count(), 1);
        client.hang_up();
        world.until_empty(&mut [&mut client]);
    }
}

#[test]
fn first_request_of_a_new_connection_is_answered_during_drain() {
    for stops in [false, true] {
        let mut world = world(timeless(), vec![Plan::sized(&[3]), Plan::sized(&[4])]);
        let mut client = world.client();
        world.settle();
        drain(&mut world, stops);
        world.settle();
        send(&mut world, &mut client, ask(1, 0));
        world.end(&mut client);
        let received = Received::of(&client);
        assert!(received.at(1).is_whole && received.is_going_away, "stops: {stops}");
    }
}

#[test]
fn connection_that_cannot_be_told_of_drain_is_closed_behind_its_next_exchange() {
    for stops in [false, true] {
        let mut world = World::<Mute>::of_kind(timeless(), vec![Plan::sized(&[3]), Plan::sized(&[4])]);
        let mut client = world.client();
        send(&mut world, &mut client, ask(1, 0));
        until(&mut world, &mut client, "it is answered", |received| received.at(1).is_whole);
        drain(&mut world, stops);
        world.settle();
        client.pump();
        assert_eq!(client.end, None, "its client may be sending a request just now");
        send(&mut world, &mut client, ask(2, 1));
        world.end(&mut client);
        let received = Received::of(&client);
        assert!(received.at(2).is_whole && !received.is_going_away, "stops: {stops}");
    }
}

#[test]
fn connection_that_cannot_be_told_of_drain_is_closed_behind_the_exchanges_under_way() {
    let mut world = World::<Mute>::of_kind(timeless(), vec![Plan::sized(&[3]), Plan::sized(&[4])]);
    world.keeps = true;
    let mut client = world.client();
    send(&mut world, &mut client, [ask(1, 0), ask(2, 1)].concat());
    world.engine.drain();
    world.settle();
    world.go_on_with(0);
    until(&mut world, &mut client, "the first one is answered", |received| received.at(1).is_whole);
    assert_eq!(client.end, None);
    world.go_on_with(1);
    world.end(&mut client);
    assert!(Received::of(&client).at(2).is_whole);
}

#[test]
fn connection_that_cannot_be_told_of_stop_is_closed_after_the_grace() {
    let mut world = World::<Mute>::of_kind(timeless(), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    send(&mut world, &mut client, ask(1, 0));
    until(&mut world, &mut client, "it is answered", |received| received.at(1).is_whole);
    let now = world.now();
    world.engine.stop(now, Some(seconds(60)), seconds(5));
    let client = RefCell::new(client);
    let passed = world.sleep_until(seconds(6), |_| {
        client.borrow_mut().pump();
        client.borrow().end.is_some()
    });
    assert!(passed >= seconds(5) && passed <= seconds(5) + 2 * GRAIN, "{passed:?}");
}

#[test]
fn client_is_told_when_its_connection_has_been_idle_for_too_long() {
    let config = Config { keep_alive: Some(seconds(5)), ..timeless() };
    let mut world = world(config, vec![Plan::sized(&[3])]);
    let mut client = world.client();
    send(&mut world, &mut client, ask(1, 0));
    until(&mut world, &mut client, "it is answered", |received| received.at(1).is_whole);
    world.settle();
    let client = RefCell::new(client);
    let passed = world.sleep_until(seconds(6), |_| {
        client.borrow_mut().pump();
        Received::of(&client.borrow()).is_going_away
    });
    assert!(passed >= seconds(5) && passed <= seconds(5) + 2 * GRAIN, "{passed:?}");
    world.end(&mut client.borrow_mut());
}
