//! Calls of a WebSocket: given back between messages, late, over, or told to stop.

use crate::common::{End, Event, Plan, World};
use crate::websocket::{Got, Pair, config, handshake, quiet};
use engine::{Awaited, Progress, Room, WebSocketConfig};
use std::time::Duration;
use wire::message::Draft;
use wire::websocket::{Kind, Outgoing, SendError};

#[test]
fn call_that_listens_is_given_back_and_resumed_for_each_message_and_the_end() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.world.complete(0, Progress::Listening);
    pair.world.settle();
    assert_eq!((pair.world.statistics().running, pair.world.statistics().suspended), (0, 1));
    // While it listens, others can send.
    assert_eq!(pair.reply(id, Outgoing::Text("news")), Ok(Room::Left));
    assert_eq!(pair.got(), [Got::Message(Kind::Text, b"news".to_vec())]);
    for number in 0..3 {
        pair.send(Outgoing::Binary(&[number]));
        pair.settle();
        let Some(call) = pair.world.calls.first() else { panic!("it is resumed: {:?}", pair.world.app.log) };
        assert_eq!(call.course.id, 0);
        assert_eq!(pair.next(id), Ok((Kind::Binary, vec![number])));
        pair.world.complete(0, Progress::Listening);
        pair.settle();
        assert!(pair.world.calls.is_empty());
    }
    pair.client.end_sending();
    pair.settle();
    assert_eq!(pair.world.calls.len(), 1, "it is resumed for the end");
    assert_eq!(pair.next(id), Err((1006, String::new())));
    pair.complete();
    pair.world.until_empty(&mut [&mut pair.client]);
    assert_eq!(pair.reply(id, Outgoing::Text("late")), Err(SendError::Closed));
}

#[test]
fn message_waits_for_a_thread_as_a_request_does() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.world.complete(0, Progress::Listening);
    pair.world.callers = 0;
    pair.send(Outgoing::Text("one"));
    pair.send(Outgoing::Text("two"));
    pair.settle();
    assert_eq!((pair.world.calls.len(), pair.world.statistics().queued), (0, 1));
    // A request that arrives later is queued after it.
    let mut other = pair.world.client();
    other.send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    pair.settle();
    other.pump();
    pair.settle();
    assert_eq!(pair.world.statistics().queued, 2);
    pair.world.callers = 1;
    pair.settle();
    assert_eq!(pair.next(id), Ok((Kind::Text, b"one".to_vec())));
    pair.world.complete(0, Progress::Listening);
    pair.settle();
    assert_eq!(pair.world.calls[0].course.id, 1);
    pair.world.engine.reply(&pair.world.calls[0].ticket, |reply| reply.refuse(500, ""));
    pair.world.complete(0, |_| Progress::Done);
    pair.settle();
    assert_eq!(pair.world.calls[0].course.id, 0);
    assert_eq!(pair.next(id), Ok((Kind::Text, b"two".to_vec())));
    assert_eq!(pair.world.statistics().queued, 0);
    // The engine gives up a response that waits when its client leaves.
    pair.world.complete(0, Progress::Listening);
    pair.world.callers = 0;
    pair.send(Outgoing::Text("three"));
    pair.settle();
    assert_eq!(pair.world.statistics().queued, 1);
    let now = pair.world.now();
    pair.world.engine.stop(now, Some(Duration::ZERO), Duration::ZERO);
    pair.settle();
    assert_eq!((pair.world.statistics().queued, pair.world.statistics().suspended), (0, 0));
}

#[test]
fn call_for_a_message_that_misses_its_deadline_closes_with_1011() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.world.complete(0, Progress::Listening);
    pair.send(Outgoing::Text("slow"));
    pair.settle();
    let (call, now) = (pair.world.calls[0].ticket.call(), pair.world.now());
    let expired = pair.world.engine.expire(call, now);
    assert!(matches!(expired, engine::Expired::Cut { body_bytes: 0 }), "{expired:?}");
    assert_eq!(pair.got(), [Got::Closed(1011, "the application did not answer in time".to_owned())]);
    assert_eq!(pair.reply(id, Outgoing::Text("late")), Err(SendError::Closed));
    pair.client.hang_up();
    pair.settle();
    pair.world.complete(0, Progress::Listening);
    pair.world.until_empty(&mut [&mut pair.client]);
    assert_eq!(pair.world.statistics().suspended, 0);
}

#[test]
fn response_of_a_call_that_has_accepted_goes_nowhere() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    let mut draft = Draft::default();
    draft.start(b"200 OK").expect("it is a status");
    pair.world.engine.reply(&pair.world.calls[0].ticket, |reply| {
        reply.begin(&draft, Some(0));
        reply.flush();
        assert!(reply.is_gone());
    });
    let written = pair.world.engine.reply(&pair.world.calls[0].ticket, |reply| reply.refuse(500, "It has failed."));
    assert!(!written);
    pair.reply(id, Outgoing::Text("goes on")).expect("it is open");
    pair.world.complete(0, |_| Progress::Done);
    pair.settle();
    assert_eq!(pair.got(), [Got::Message(Kind::Text, b"goes on".to_vec()), Got::Closed(1000, String::new())]);
    assert_eq!(pair.world.statistics().statuses, [1, 0, 0, 0, 0]);
}

#[test]
fn call_that_does_not_come_to_its_end_closes_with_1011() {
    let (mut pair, _) = Pair::open(config(quiet()), b"");
    let now = pair.world.now();
    let World { engine, calls, app, .. } = &mut pair.world;
    engine.fail(calls.remove(0).ticket, now, app);
    pair.settle();
    assert_eq!(pair.got(), [Got::Closed(1011, String::new())]);
    pair.client.hang_up();
    pair.world.until_empty(&mut [&mut pair.client]);
}

#[test]
fn broken_handshake_is_an_ordinary_request_where_the_application_is_to_judge() {
    let lenient = WebSocketConfig { refuses_broken: false, ..quiet() };
    let mut world = World::unix(config(lenient), vec![Plan::sized(&[3])]);
    let mut client = world.client();
    let broken = handshake("").replace("Version: 13", "Version: 8");
    world.ask(&mut client, broken.as_bytes(), 1);
    // The answer is the last one of its connection: a proxy may consider any answer an upgrade.
    assert_eq!((client.answers[0].status, client.answers[0].keep_alive), (200, false));
    assert_eq!(world.end(&mut client), End::Closed);
}

/// Such a head is compared with the one before; only the value of Upgrade differs.
#[test]
fn head_that_repeats_another_one_asks_for_a_websocket_nevertheless() {
    let mut pair = Pair::new(config(quiet()));
    pair.world.app.plans[0] = Plan::sized(&[5]);
    pair.world.keeps = false;
    let ordinary = handshake("").replace("Upgrade: websocket", "Upgrade: h2c-or-so");
    pair.world.ask(&mut pair.client, ordinary.as_bytes(), 1);
    pair.world.ask(&mut pair.client, ordinary.as_bytes(), 2);
    pair.world.keeps = true;
    pair.client.send(handshake(""));
    pair.world.until("it is dispatched", &mut [&mut pair.client], |world, _| !world.calls.is_empty());
    let now = pair.world.now();
    let World { engine, calls, app, .. } = &mut pair.world;
    assert!(matches!(engine.accept_websocket(&calls[0].ticket, None, [], now, app), Ok(Some(_))));
    pair.complete();
}

#[test]
fn waiter_of_a_websocket_is_woken_while_no_call_is_out() {
    let (mut pair, id) = Pair::open(config(quiet()), b"");
    pair.world.complete(0, Progress::Listening);
    let wakes = |pair: &Pair| pair.world.app.log.iter().filter(|event| matches!(event, Event::Wake { .. })).count();
    let wait = |pair: &mut Pair, awaited| {
        let now = pair.world.now();
        pair.world.engine.wait_for_websocket(id, awaited, 17, now, &mut pair.world.app);
    };
    wait(&mut pair, Awaited::OUTPUT);
    assert_eq!(wakes(&pair), 1, "there is room at once");
    wait(&mut pair, Awaited::INPUT);
    assert_eq!(wakes(&pair), 1);
    pair.client.hang_up();
    pair.world.until("it is resumed for the end", &mut [], |world, _| !world.calls.is_empty());
    assert_eq!(wakes(&pair), 2);
    pair.complete();
    pair.settle();
    wait(&mut pair, Awaited::INPUT);
    assert_eq!(wakes(&pair), 3, "it has gone");
}
