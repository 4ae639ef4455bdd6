//! Requests that wait for a thread to call the application: in order, not too many, not too long, and none is lost.
//!
//! Connections are Unix sockets, on which bytes arrive at once, and the test runs the operations of calls.

use crate::common::{Client, End, Event, GRAIN, Op, Plan, World, ms, pattern, seconds, timeless};
use engine::{Config, STOP_GRACE};

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// Returns a world in which `callers` calls may run, and run until the test ends them.
fn busy(config: Config, plans: usize, callers: usize) -> World {
    keeping(World::unix(config, vec![Plan::sized(&[5]); plans]), callers)
}

fn keeping(mut world: World, callers: usize) -> World {
    world.callers = callers;
    world.keeps = true;
    world
}

/// Sends bytes, and lets the engine do all possible work.
fn send(world: &mut World, client: &mut Client, bytes: impl AsRef<[u8]>) {
    client.send(bytes);
    client.pump();
    assert_eq!(client.unsent(), 0);
    world.settle();
}

/// Returns `count` clients, each of which has sent a request for the plan of its number, one after the other.
fn asking(world: &mut World, count: usize) -> Vec<Client> {
    let ask = |id| {
        let mut client = world.client();
        send(world, &mut client, get(id));
        client
    };
    (0..count).map(ask).collect()
}

/// Ends the only call, and lets the engine continue until no output is deferred.
fn finish(world: &mut World, id: usize) {
    assert_eq!(world.ids_out(), [id]);
    world.go_on_with(id);
    world.settle();
    world.engine.tick();
    world.engine.tick();
}

fn answers(client: &mut Client) -> usize {
    client.pump();
    client.answers.len()
}

/// Checks that the only answer is 503 and the close.
fn was_refused(world: &mut World, client: &mut Client, retry_after: &str) {
    was_refused_because(world, client, retry_after, "The server has too much to do at the moment.");
}

fn was_refused_because(world: &mut World, client: &mut Client, retry_after: &str, reason: &str) {
    assert_eq!(world.end(client), End::Closed);
    assert_eq!((client.answers.len(), client.answers[0].status, client.answers[0].keep_alive), (1, 503, false));
    assert!(client.answers[0].head.contains(&format!("\r\nRetry-After: {retry_after}\r\n")), "{}", client.text());
    assert!(client.text().ends_with(&format!("503 Service Unavailable\n{reason}\n")), "{}", client.text());
}

#[test]
fn requests_are_called_in_order() {
    let mut world = busy(timeless(), 5, 1);
    let mut clients = asking(&mut world, 5);
    let statistics = world.statistics();
    assert_eq!((statistics.requests, statistics.running, statistics.queued), (1, 1, 4));
    for (id, client) in clients.iter_mut().enumerate() {
        assert_eq!(answers(client), 0);
        finish(&mut world, id);
        assert_eq!(answers(client), 1);
        assert_eq!(client.answers[0].body, pattern(id, 0, 5));
    }
    let statistics = world.statistics();
    assert_eq!((statistics.requests, statistics.running, statistics.queued), (5, 0, 0));
}

#[test]
fn queued_requests_are_called_as_calls_complete() {
    let mut world = busy(timeless(), 6, 3);
    let mut clients = asking(&mut world, 6);
    assert_eq!((world.ids_out(), world.statistics().queued), (vec![0, 1, 2], 3));
    // In any order: each call that completes makes room for the request that has waited longest.
    for (id, out) in [(1, vec![0, 2, 3]), (3, vec![0, 2, 4]), (0, vec![2, 4, 5])] {
        world.go_on_with(id);
        world.settle();
        assert_eq!(world.ids_out(), out);
        assert_eq!(answers(&mut clients[id]), 1);
    }
}

#[test]
fn full_queue_pauses_reading_and_drops_nothing() {
    let mut world = busy(Config { queue: 2, ..timeless() }, 7, 1);
    let mut clients = asking(&mut world, 6);
    let taken = 3 * get(0).len() as u64;
    let begun = |world: &World| world.app.count(|event| matches!(event, Event::Begin { .. }));
    assert_eq!((world.statistics().queued, world.statistics().bytes_in, begun(&world)), (2, taken, 3));
    // Bytes that arrive now stay in the kernel, and are no reason to poll.
    send(&mut world, &mut clients[4], get(6).repeat(100));
    assert_eq!((world.statistics().queued, world.statistics().bytes_in, begun(&world)), (2, taken, 3));
    assert_eq!(world.timeout(), None);
    for (id, client) in clients.iter_mut().enumerate() {
        finish(&mut world, id);
        assert_eq!(answers(client), 1);
        assert!(world.statistics().queued <= 2);
    }
    for count in 2..=101 {
        finish(&mut world, 6);
        assert_eq!(answers(&mut clients[4]), count);
    }
    assert!(world.ids_out().is_empty());
    assert_eq!(world.statistics().refused, 0);
}

#[test]
fn paused_connections_are_read_before_later_ones() {
    let mut world = busy(Config { queue: 1, ..timeless() }, 5, 1);
    let mut late = world.client();
    world.settle();
    let mut clients = asking(&mut world, 4);
    // When there is room for one request, both the late one and the paused ones could be read.
    late.send(get(4));
    late.pump();
    for (id, client) in clients.iter_mut().enumerate() {
        finish(&mut world, id);
        assert_eq!(answers(client), 1);
    }
    finish(&mut world, 4);
    assert_eq!(answers(&mut late), 1);
}

#[test]
fn connections_are_paused_when_there_is_no_queue_and_no_free_call() {
    let mut world = busy(Config { queue: 0, ..timeless() }, 3, 1);
    let mut clients = asking(&mut world, 3);
    assert_eq!((world.statistics().queued, world.statistics().bytes_in), (0, get(0).len() as u64));
    assert_eq!(world.timeout(), None);
    for (id, client) in clients.iter_mut().enumerate() {
        finish(&mut world, id);
        assert_eq!(answers(client), 1);
    }
}

#[test]
fn answer_is_sent_while_the_next_request_is_paused() {
    let mut world = busy(Config { queue: 0, ..timeless() }, 3, 1);
    let mut client = world.client();
    send(&mut world, &mut client, get(0) + &get(1));
    let mut other = world.client();
    send(&mut world, &mut other, get(2));
    world.go_on_with(0);
    assert_eq!(answers(&mut client), 1, "it needs no free call");
    world.settle();
    // The other connection has waited longer.
    finish(&mut world, 2);
    finish(&mut world, 1);
    assert_eq!((answers(&mut client), answers(&mut other)), (2, 1));
}

#[test]
fn answer_is_sent_to_a_slow_reader_while_the_next_request_waits() {
    let plans = vec![Plan::sized(&[100_000]).impolite(), Plan::sized(&[5])];
    let mut world = keeping(World::with_send_buffer(timeless(), plans, Some(16 << 10)), 1);
    let mut client = Client::connect(&world.addresses[0], Some(16 << 10));
    client.reads = false;
    client.send(get(0) + &get(1));
    world.until("the first is called", &mut [&mut client], |world, _| world.is_out(0));
    world.until("both requests have arrived", &mut [&mut client], |world, _| {
        world.statistics().bytes_in == 2 * get(0).len() as u64
    });
    world.callers = 0;
    world.go_on_with(0);
    world.settle();
    assert_eq!(world.statistics().queued, 1);
    assert!(world.statistics().bytes_out < 100_000);
    client.reads = true;
    world.until("the first is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(client.answers[0].body == pattern(0, 0, 100_000));
    world.callers = 1;
    world.settle();
    world.go_on_with(1);
    world.until("the second is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 2);
}

#[test]
fn queued_request_gets_503_at_the_queue_timeout() {
    let config = Config { queue: 2, queue_timeout: Some(seconds(10)), ..timeless() };
    let mut world = busy(config, 5, 1);
    // One is called, two are queued, one is paused.
    let mut clients = asking(&mut world, 2);
    world.advance(seconds(1));
    for id in [2, 3] {
        let mut client = world.client();
        send(&mut world, &mut client, get(id));
        clients.push(client);
    }
    assert_eq!(world.statistics().queued, 2);
    let timeout = world.timeout().expect("a queue timeout is due");
    assert!(timeout <= seconds(9) + GRAIN, "{timeout:?}");
    world.advance(ms(8999));
    world.settle();
    assert_eq!(world.statistics().queue_timeouts, 0);
    world.sleep_until(ms(1) + GRAIN, |world| world.statistics().queue_timeouts == 1);
    was_refused(&mut world, &mut clients[1], "10");
    assert_eq!(world.app.count(|event| *event == Event::AbandonRequest { id: 1, status: Some(503) }), 1);
    // This has made room for the paused one, whose timeout still runs.
    world.settle();
    assert_eq!(world.statistics().queued, 2);
    world.sleep_until(seconds(1) + GRAIN, |world| world.statistics().queue_timeouts == 3);
    was_refused(&mut world, &mut clients[2], "10");
    was_refused(&mut world, &mut clients[3], "10");
    assert_eq!((world.statistics().queued, world.statistics().timeouts, world.statistics().refused), (0, 0, 3));
    let mut late = world.client();
    send(&mut world, &mut late, get(4));
    finish(&mut world, 0);
    finish(&mut world, 4);
    assert_eq!((answers(&mut clients[0]), answers(&mut late)), (1, 1));
    assert_eq!(world.app.called(), [0, 4], "a refused request is never called");
}

#[test]
fn paused_request_gets_503_at_the_queue_timeout() {
    let config = Config { queue: 0, queue_timeout: Some(ms(200)), ..timeless() };
    let mut world = busy(config, 2, 1);
    let mut clients = asking(&mut world, 2);
    world.sleep_until(ms(200) + GRAIN, |world| world.statistics().queue_timeouts == 1);
    was_refused(&mut world, &mut clients[1], "1");
    assert_eq!(world.app.log.last(), Some(&Event::Refused { status: 503, fault: None }));
    finish(&mut world, 0);
    assert_eq!((answers(&mut clients[0]), world.app.called()), (1, vec![0]));
}

/// The place in the queue of a closed connection does not pass to the next connection in the same slot.
#[test]
fn place_in_the_queue_is_not_inherited_with_a_slot() {
    let config = Config { queue_timeout: Some(seconds(10)), ..timeless() };
    let mut world = busy(config, 4, 1);
    let mut clients = asking(&mut world, 2);
    world.sleep_until(seconds(10) + GRAIN, |world| world.statistics().queue_timeouts == 1);
    let mut second = world.client();
    send(&mut world, &mut second, get(2));
    world.end(&mut clients[1]);
    drop(clients.pop());
    world.until("it is gone", &mut [], |world, _| world.statistics().connections == 2);
    // This connection gets the slot of the closed one.
    let mut third = world.client();
    send(&mut world, &mut third, get(3));
    assert_eq!(world.statistics().queued, 2);
    finish(&mut world, 0);
    finish(&mut world, 2);
    finish(&mut world, 3);
    assert_eq!((answers(&mut second), answers(&mut third)), (1, 1));
}

#[test]
fn queued_request_of_a_gone_peer_is_not_called() {
    for queue in [0, 10] {
        let mut world = busy(Config { queue, ..timeless() }, 4, 1);
        let mut clients = asking(&mut world, 4);
        // One is closed, one has only closed its sending side.
        drop(clients.remove(1));
        clients[1].end_sending();
        clients[1].pump();
        world.settle();
        finish(&mut world, 0);
        finish(&mut world, 3);
        let reason = "The client closed its side of the connection while the request was queued.";
        was_refused_because(&mut world, &mut clients[1], "1", reason);
        assert_eq!((answers(&mut clients[0]), answers(&mut clients[2])), (1, 1));
        assert_eq!((world.app.called(), world.statistics().left, world.statistics().queued), (vec![0, 3], 2, 0));
        for id in [1, 2] {
            assert_eq!(world.app.count(|event| *event == Event::AbandonRequest { id, status: Some(503) }), 1);
        }
        drop(clients);
        world.until_empty(&mut []);
    }
}

#[test]
fn queued_requests_are_answered_during_a_stop() {
    let mut world = busy(Config { queue: 2, queue_timeout: Some(seconds(60)), ..Config::default() }, 4, 1);
    let mut clients = asking(&mut world, 4);
    let mut quiet = world.client();
    world.settle();
    let now = world.now();
    world.engine.stop(now, None, STOP_GRACE);
    world.settle();
    // Longer than the grace of idle connections.
    world.advance(seconds(5));
    world.settle();
    for (id, client) in clients.iter_mut().enumerate() {
        finish(&mut world, id);
        assert_eq!(answers(client), 1);
        assert!(!client.answers[0].keep_alive);
        assert_eq!(world.end(client), End::Closed);
    }
    drop(clients);
    // One that had sent nothing yet was paused, too. Its grace begins now.
    world.sleep_until(seconds(1), |world| world.engine.is_stopped());
    assert_eq!(world.end(&mut quiet), End::Closed);
    assert_eq!((world.statistics().cut, world.statistics().refused, quiet.received.len()), (0, 0, 0));
}

#[test]
fn queued_requests_are_cut_at_the_end_of_a_stop() {
    let mut world = busy(Config { queue: 1, ..timeless() }, 3, 1);
    let mut clients = asking(&mut world, 3);
    let now = world.now();
    world.engine.stop(now, Some(seconds(10)), STOP_GRACE);
    world.settle();
    world.advance(seconds(10));
    assert_eq!((world.statistics().queued, world.statistics().connections), (0, 1));
    assert_eq!(world.app.count(|event| *event == Event::AbandonRequest { id: 1, status: None }), 1);
    for client in &mut clients[1..] {
        world.end(client);
        assert!(client.received.is_empty());
    }
    world.go_on_with(0);
    world.settle();
    assert!(world.engine.is_stopped());
    assert_eq!(world.app.called(), [0]);
}

#[test]
fn suspended_responses_resume_when_no_call_may_begin() {
    let plans = vec![Plan::of(vec![Op::Write(5), Op::Yield, Op::Write(5)]), Plan::sized(&[50_000; 20])];
    let mut world = World::unix(timeless(), plans);
    let mut yields = world.client();
    let mut slow = world.client();
    slow.reads = false;
    let mut gone = world.client();
    gone.reads = false;
    for (client, id) in [(&mut yields, 0), (&mut slow, 1), (&mut gone, 1)] {
        client.send(get(id));
        client.pump();
    }
    world.poll();
    world.callers = 0;
    assert_eq!((world.app.called().len(), world.app.resumed(0)), (3, 0));
    drop(gone);
    slow.reads = true;
    world.until("both are answered", &mut [&mut yields, &mut slow], |_, clients| {
        clients.iter().all(|client| client.answers.len() == 1)
    });
    world.settle();
    assert_eq!((world.app.abandoned(1), world.app.resumed(0)), (1, 1));
}
