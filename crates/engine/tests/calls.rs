//! Calls that take long: the engine serves other connections meanwhile, and keeps the connection until the call
//! completes, whatever its peer does.

use crate::common::{Call, Client, End, Event, GRAIN, How, Manner, Op, Plan, World, ms, pattern, seconds, timeless};
use engine::{Awaited, Config, Progress, STOP_GRACE};
use std::time::Duration;

/// The size of the send buffer in bytes, so small that large answers do not fit.
const SEND_BUFFER: Option<usize> = Some(16 << 10);

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// A world in which the test runs the operations of calls.
fn keeping(mut world: World) -> World {
    world.keeps = true;
    world
}

/// Returns a client whose call of plan `id` is running.
fn calling(world: &mut World, id: usize) -> Client {
    let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
    client.send(get(id));
    world.until("it is called", &mut [&mut client], |world, _| world.is_out(id));
    client
}

fn has_left(world: &World, id: usize) -> bool {
    let Call { ticket, .. } = &world.calls[world.index_of(id)];
    world.engine.has_peer_left(ticket)
}

#[test]
fn calls_complete_in_any_order() {
    let orders: Vec<[usize; 4]> = (0..256)
        .map(|number| [number % 4, number / 4 % 4, number / 16 % 4, number / 64])
        .filter(|order| (0..4).all(|id| order.contains(&id)))
        .collect();
    assert_eq!(orders.len(), 24);
    for order in orders {
        let plans = (0..8).map(|id| Plan::sized(&[id * 1000 + 5, 10_000])).collect();
        let mut world = keeping(World::unix(timeless(), plans));
        let mut clients: Vec<_> = (0..4)
            .map(|id| {
                let mut client = world.client();
                client.send(get(id) + &get(id + 4));
                client.pump();
                client
            })
            .collect();
        world.settle();
        assert_eq!((world.ids_out(), world.statistics().running), (vec![0, 1, 2, 3], 4));
        for round in [0, 4] {
            // One operation of one call, then of the next, so that all are in progress at the same time.
            for _ in 0..2 {
                for call in 0..4 {
                    assert!(world.step(call));
                }
            }
            for id in order {
                world.go_on_with(id + round);
                world.settle();
                assert!(!world.is_out(id + round));
            }
        }
        assert_eq!(world.statistics().running, 0);
        for (id, client) in clients.iter_mut().enumerate() {
            client.pump();
            assert_eq!(client.answers.len(), 2);
            assert_eq!(client.answers[0].body, pattern(id, 0, id * 1000 + 10_005));
            assert_eq!(client.answers[1].body, pattern(id + 4, 0, (id + 4) * 1000 + 10_005));
        }
    }
}

#[test]
fn slot_is_kept_until_its_call_completes() {
    let plans = vec![Plan::sized(&[50, 60]), Plan::sized(&[7]), Plan::sized(&[5000; 3])];
    for leave in [Client::reset, drop] {
        let mut world = keeping(World::new(timeless(), plans.clone()));
        let client = calling(&mut world, 0);
        assert!(!has_left(&world, 0));
        leave(client);
        world.until("it has left", &mut [], |world, _| has_left(world, 0));
        world.settle();
        assert_eq!((world.statistics().connections, world.statistics().running), (1, 1));
        // Other clients connect, are served, and close.
        for _ in 0..3 {
            let mut other = calling(&mut world, 1);
            world.go_on_with(1);
            world.until("it is answered", &mut [&mut other], |_, clients| clients[0].answers.len() == 1);
            assert_eq!(other.answers[0].body, pattern(1, 0, 7));
            drop(other);
            world.until("it is gone", &mut [], |world, _| world.statistics().connections == 1);
        }
        let mut other = calling(&mut world, 2);
        world.go_on_with(0);
        world.until("the slot is free", &mut [], |world, _| world.statistics().connections == 1);
        assert_eq!(world.app.count(|event| matches!(event, Event::End { id: 0, .. } | Event::Abandon { id: 0 })), 1);
        world.go_on_with(2);
        world.until("the other is answered", &mut [&mut other], |_, clients| clients[0].answers.len() == 1);
        assert_eq!(other.answers[0].body, pattern(2, 0, 15_000));
        drop(other);
        world.until_empty(&mut []);
        assert_eq!((world.statistics().running, world.statistics().cut), (0, 0));
    }
}

#[test]
fn peer_that_closed_its_sending_side_gets_its_answer() {
    let mut world = keeping(World::unix(timeless(), vec![Plan::sized(&[50, 60])]));
    let mut client = calling(&mut world, 0);
    client.end_sending();
    client.pump();
    world.settle();
    assert!(has_left(&world, 0), "as far as can be seen");
    world.go_on_with(0);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].body, pattern(0, 0, 110));
}

/// A peer on TCP sees the cut at once; a peer on a Unix socket sees it when the call completes.
#[test]
fn end_of_a_stop_cuts_running_calls() {
    for on_tcp in [true, false] {
        let plans = vec![Plan::of(vec![Op::Write(50), Op::Flush, Op::Write(60)])];
        let mut world = keeping(if on_tcp { World::new(timeless(), plans) } else { World::unix(timeless(), plans) });
        let mut clients = [calling(&mut world, 0), calling(&mut world, 0)];
        // One call has written something, the other has not.
        for _ in 0..2 {
            world.step(0);
        }
        let now = world.now();
        world.engine.stop(now, Some(seconds(10)), STOP_GRACE);
        world.settle();
        assert_eq!(world.timeout(), Some(seconds(10)));
        world.advance(seconds(10));
        // The server need not wait for calls that may never return.
        assert!(world.engine.is_stopped());
        assert_eq!((world.statistics().cut, world.statistics().connections), (2, 2));
        assert_eq!(world.timeout(), None, "no deadline remains");
        if on_tcp {
            for client in &mut clients {
                assert_eq!(world.end(client), End::Reset);
            }
        }
        assert!(has_left(&world, 0));
        for _ in 0..2 {
            world.go_on(0);
            assert!(world.statistics().running == 0 || world.engine.is_gone(&world.calls[0].ticket));
            world.settle();
        }
        assert!(world.engine.is_stopped());
        let statistics = world.statistics();
        assert_eq!((statistics.cut, statistics.connections, world.app.alive()), (2, 0, 0));
        for client in &mut clients {
            world.end(client);
            assert!(client.answers.is_empty());
        }
    }
}

/// A response that lasts until the close would look whole if it ended in order.
#[test]
fn cut_during_a_call_is_visible() {
    let ops = vec![Op::Write(10), Op::File { length: 10_000, missing: 1 }, Op::Flush, Op::Write(5)];
    let plans = vec![Plan { manner: Manner::Waits, ..Plan::of(ops.clone()) }, Plan::of(ops).impolite()];
    for id in 0..2 {
        let mut world = keeping(World::new(timeless(), plans.clone()));
        let mut client = world.client();
        client.send(format!("GET /{id} HTTP/1.0\r\n\r\n"));
        world.until("it is called", &mut [&mut client], |world, _| world.is_out(id));
        while world.is_out(id) {
            world.step(0);
            world.settle();
            world.note_woken();
            client.pump();
            assert_ne!(client.end, Some(End::Closed));
        }
        assert_eq!(world.end(&mut client), End::Reset);
        assert!(client.answers.is_empty());
        world.until_empty(&mut []);
        assert_eq!(world.app.count(|event| *event == Event::FileShrank), 1);
        assert_eq!(world.statistics().cut, 1);
    }
}

#[test]
fn output_is_sent_while_the_application_is_busy() {
    let config = Config { write_timeout: Some(seconds(30)), ..timeless() };
    let plans = vec![Plan::of(vec![Op::Write(400_000), Op::Flush, Op::Write(5)]).impolite()];
    let mut world = keeping(World::with_send_buffer(config, plans, SEND_BUFFER));
    let mut client = calling(&mut world, 0);
    client.reads = false;
    world.step(0);
    world.step(0);
    world.settle();
    assert!(world.statistics().bytes_out < 400_000);
    // The peer is slow, and the application slower.
    let mut time = Duration::ZERO;
    while client.received.len() < 400_000 {
        world.advance(seconds(1));
        world.settle();
        client.pump_in(5000);
        time += seconds(1);
        assert!(time < seconds(200), "only {} bytes have come", client.received.len());
    }
    assert!(time > seconds(60), "the transfer took long");
    assert_eq!((world.statistics().timeouts, world.calls.len()), (0, 1));
    client.reads = true;
    world.go_on_with(0);
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(client.answers[0].body == pattern(0, 0, 400_005));
}

#[test]
fn peer_that_does_not_read_is_cut_during_the_call() {
    // Writes of the application do not count as progress of the peer.
    for writes in [false, true] {
        let config = Config { write_timeout: Some(seconds(30)), ..timeless() };
        let mut ops = vec![Op::Write(400_000), Op::Flush];
        ops.extend([Op::Write(1), Op::Flush].repeat(20));
        let plans = vec![Plan::of(ops).impolite()];
        let mut world = keeping(World::with_send_buffer(config, plans, SEND_BUFFER));
        let mut client = calling(&mut world, 0);
        client.reads = false;
        world.step(0);
        world.step(0);
        world.settle();
        for second in 0..29 {
            assert_eq!(world.statistics().timeouts, 0, "after {second} s");
            world.advance(seconds(1));
            if writes {
                world.step(0);
            }
        }
        world.sleep_until(seconds(1) + GRAIN, |world| world.statistics().timeouts == 1);
        assert!(has_left(&world, 0));
        client.reads = true;
        assert_eq!(world.end(&mut client), End::Reset);
        world.go_on_with(0);
        world.until_empty(&mut []);
    }
}

#[test]
fn response_of_a_gone_peer_is_abandoned_when_its_call_completes() {
    for progress in [Progress::Blocked, Progress::Yield] {
        let mut world = keeping(World::new(timeless(), vec![Plan::of(vec![Op::Write(50), Op::Flush])]));
        let client = calling(&mut world, 0);
        client.reset();
        world.until("it has left", &mut [], |world, _| has_left(world, 0));
        // The first write may still succeed; a flush after it cannot.
        world.step(0);
        if world.is_out(0) {
            world.complete(0, progress);
        }
        world.callers = 0;
        world.until_empty(&mut []);
        assert_eq!((world.app.abandoned(0), world.app.resumed(0)), (1, 0));
    }
}

#[test]
fn empty_response_to_a_gone_peer_is_not_reported() {
    let config = timeless();
    let mut world = keeping(World::unix(config, vec![Plan::of(vec![Op::Done])]));
    let client = calling(&mut world, 0);
    drop(client);
    let now = world.now();
    world.engine.stop(now, Some(ms(0)), STOP_GRACE);
    world.settle();
    world.go_on_with(0);
    world.until_empty(&mut []);
    assert_eq!((world.app.panics().len(), world.statistics().bytes_out), (0, 0));
    assert_eq!(world.app.log.last(), Some(&Event::End { id: 0, how: How::Done }));
}

// ------------------------------------------------------------------------------ waiting for output within a call

/// Returns a world with a call of plan 0 that waits for its peer to read, and its client.
fn waiting(config: Config, ops: Vec<Op>) -> (World, Client) {
    let plans = vec![Plan { manner: Manner::Waits, ..Plan::of(ops) }];
    let mut world = keeping(World::with_send_buffer(config, plans, SEND_BUFFER));
    let mut client = calling(&mut world, 0);
    client.reads = false;
    while !world.calls[0].waits {
        world.step(0);
        world.note_woken();
    }
    world.settle();
    assert!(world.app.woken.is_empty());
    (world, client)
}

fn wakes(world: &World) -> usize {
    world.app.count(|event| matches!(event, Event::Wake { .. }))
}

#[test]
fn call_waiting_for_output_is_woken_when_all_is_sent() {
    let (mut world, mut client) = waiting(timeless(), vec![Op::Write(300_000), Op::Write(10)]);
    while client.received.len() < 150_000 {
        client.pump_in(10_000);
        world.settle();
        assert!(world.app.woken.is_empty());
    }
    let before = wakes(&world);
    client.reads = true;
    world.until("it is woken", &mut [&mut client], |world, _| !world.app.woken.is_empty());
    world.note_woken();
    let ticket = &world.calls[0].ticket;
    assert!(!world.engine.reply(ticket, |reply| reply.is_full()));
    world.settle();
    assert_eq!(wakes(&world), before + 1);
    world.go_on_with(0);
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(client.answers[0].body == pattern(0, 0, 300_010));
}

#[test]
fn call_waiting_for_output_is_woken_when_the_peer_is_gone() {
    let (mut world, client) = waiting(timeless(), vec![Op::Write(300_000), Op::Write(10)]);
    client.reset();
    world.until("it is woken", &mut [], |world, _| !world.app.woken.is_empty());
    world.note_woken();
    assert!(has_left(&world, 0));
    world.go_on_with(0);
    world.until_empty(&mut []);
    assert_eq!(world.app.log.last(), Some(&Event::End { id: 0, how: How::Cut }));
}

#[test]
fn call_waiting_for_output_is_woken_at_the_write_timeout() {
    let config = Config { write_timeout: Some(seconds(30)), ..timeless() };
    let (mut world, mut client) = waiting(config, vec![Op::Write(300_000), Op::Write(10)]);
    world.advance(seconds(29));
    assert!(world.app.woken.is_empty());
    world.sleep_until(seconds(1) + GRAIN, |world| !world.app.woken.is_empty());
    world.note_woken();
    assert_eq!(world.statistics().timeouts, 1);
    client.reads = true;
    assert_eq!(world.end(&mut client), End::Reset);
    world.go_on_with(0);
    world.until_empty(&mut []);
}

#[test]
fn call_waiting_for_output_is_woken_at_the_end_of_a_stop() {
    let (mut world, _client) = waiting(timeless(), vec![Op::Write(300_000), Op::Write(10)]);
    let now = world.now();
    world.engine.stop(now, Some(seconds(10)), STOP_GRACE);
    world.settle();
    assert!(world.app.woken.is_empty());
    world.advance(seconds(10));
    assert_eq!(world.app.woken.len(), 1, "in the same turn");
    world.note_woken();
    world.go_on_with(0);
    world.settle();
    assert!(world.engine.is_stopped());
}

#[test]
fn call_without_pending_output_is_woken_at_once() {
    let mut world = keeping(World::unix(timeless(), vec![Plan::sized(&[5])]));
    let mut client = calling(&mut world, 0);
    let now = world.now();
    let call = &world.calls[0];
    world.engine.wait_for_output(&call.ticket, 7, now, &mut world.app);
    assert_eq!(world.app.woken, [7]);
    world.engine.wait_for_input(&call.ticket, 8, now, &mut world.app);
    assert_eq!(world.app.woken, [7, 8]);
    world.app.woken.clear();
    world.go_on_with(0);
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
}

#[test]
fn call_that_waits_for_any_is_woken_once_when_its_client_leaves() {
    let mut world = keeping(World::unix(timeless(), vec![Plan::sized(&[5])]));
    let client = calling(&mut world, 0);
    let now = world.now();
    let awaited = Awaited::DEPARTURE;
    world.engine.wait_for_any(&world.calls[0].ticket, awaited, 7, now, &mut world.app);
    world.settle();
    assert!(world.app.woken.is_empty(), "the client is there");
    drop(client);
    while world.app.woken.is_empty() {
        assert!(world.wait(&[]), "the poller reports the end of the client's input");
        world.poll();
    }
    assert_eq!(world.app.woken, [7]);
    world.engine.wait_for_any(&world.calls[0].ticket, awaited.or(Awaited::INPUT), 8, now, &mut world.app);
    assert_eq!(world.app.woken, [7, 8], "what is the case already wakes at once");
    world.app.woken.clear();
    world.go_on_with(0);
    world.settle();
}

#[test]
fn call_that_stops_waiting_is_not_woken() {
    let (mut world, mut client) = waiting(timeless(), vec![Op::Write(300_000), Op::Write(10)]);
    let before = wakes(&world);
    world.engine.stop_waiting(&world.calls[0].ticket);
    client.reads = true;
    world.until("everything has arrived", &mut [&mut client], |world, clients| {
        clients[0].received.len() as u64 == world.statistics().bytes_out && clients[0].received.len() > 300_000
    });
    assert_eq!(wakes(&world), before);
    world.calls[0].waits = false;
    world.go_on_with(0);
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
}

/// A part of a file is not sent when it is written, so no event would report that it was sent.
#[test]
fn call_can_wait_for_a_file_part_that_was_never_sent() {
    let file = Op::File { length: 5000, missing: 0 };
    let ops = vec![Op::Write(300_000), file, Op::Write(10), file, file];
    let length = Plan::of(ops.clone()).length();
    let plan = Plan { manner: Manner::Waits, ..Plan::of(ops) };
    let mut world = World::with_send_buffer(timeless(), vec![plan], SEND_BUFFER);
    let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
    world.ask(&mut client, get(0).as_bytes(), 1);
    assert!(client.answers[0].body == pattern(0, 0, length));
}

#[test]
fn thread_that_waits_for_output_is_woken_when_the_call_completes() {
    // Another thread than the call's own may wait for its peer. Only this event can wake it.
    for progress in [Progress::Done, Progress::Cut] {
        let (mut world, client) = waiting(timeless(), vec![Op::Write(300_000), Op::Write(10)]);
        world.complete(0, |_| progress);
        assert_eq!(std::mem::take(&mut world.app.woken).len(), 1);
        drop(client);
    }
}
