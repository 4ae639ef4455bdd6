//! Calls that miss their deadline, and requests that wait while such a call keeps every thread.

use crate::common::{Client, End, Event, Plan, World, seconds, timeless};
use engine::Expired;

fn post(id: usize) -> String {
    format!("POST /{id} HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n")
}

/// Returns a client whose sent bytes are unread in the kernel.
fn sent(world: &World, bytes: impl AsRef<[u8]>) -> Client {
    let mut client = world.client();
    client.send(bytes);
    client.pump();
    assert_eq!(client.unsent(), 0);
    client
}

/// Returns a world whose only thread runs the call of plan 0.
fn busy(plans: Vec<Plan>) -> World {
    let mut world = World::unix(timeless(), plans);
    world.keeps = true;
    world.callers = 1;
    world
}

fn expire(world: &mut World) -> Expired {
    let (call, now) = (world.calls[0].ticket.call(), world.now());
    world.engine.expire(call, now)
}

fn refuse_waiting(world: &mut World) {
    let now = world.now();
    world.engine.refuse_waiting(now);
}

/// The engine calls the application for no other request, and all gauges return to zero.
fn assert_nothing_is_left(world: &mut World, clients: &mut [&mut Client]) {
    world.until_empty(clients);
    let statistics = world.statistics();
    assert_eq!([statistics.running, statistics.suspended, statistics.queued, statistics.connections], [0; 4]);
}

#[test]
fn client_of_a_late_call_gets_one_504_and_nothing_of_its_response() {
    let mut world = busy(vec![Plan::sized(&[5]).impolite(), Plan::sized(&[6])]);
    let mut client = sent(&world, post(0) + &post(1));
    world.settle();
    assert_eq!(world.ids_out(), [0]);

    assert!(matches!(expire(&mut world), Expired::Answered { .. }));
    client.pump();
    assert_eq!(client.answers.len(), 1, "{}", client.text());
    assert_eq!((client.answers[0].status, client.answers[0].keep_alive), (504, false));
    let received = client.received.len();

    world.go_on_with(0);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.received.len(), received, "{}", client.text());
    assert_eq!(world.app.count(|event| matches!(event, Event::Begin { .. })), 1);
    drop(client);
    assert_nothing_is_left(&mut world, &mut []);
}

#[test]
fn late_call_is_cut_when_its_response_has_begun() {
    let mut world = busy(vec![Plan::sized(&[5, 6]).impolite()]);
    let mut client = sent(&world, post(0));
    world.settle();
    // The head and the first part.
    assert!(world.step(0) && world.step(0));
    assert_eq!(expire(&mut world), Expired::Cut { body_bytes: 5 });
    world.go_on_with(0);
    world.end(&mut client);
    assert!(client.answers.is_empty() && client.has_part(), "{}", client.text());
    drop(client);
    assert_nothing_is_left(&mut world, &mut []);
}

#[test]
fn blocked_engine_refuses_each_waiting_request_once() {
    let mut world = busy(vec![Plan::sized(&[5]).impolite(), Plan::sized(&[6])]);
    let mut late = sent(&world, post(0));
    world.settle();
    let mut queued = sent(&world, post(1));
    world.settle();
    assert_eq!(world.statistics().queued, 1);
    expire(&mut world);

    refuse_waiting(&mut world);
    refuse_waiting(&mut world);
    queued.pump();
    assert_eq!(queued.answers.len(), 1, "{}", queued.text());
    assert_eq!(queued.answers[0].status, 503);
    assert!(queued.answers[0].head.contains("Retry-After: "), "{}", queued.answers[0].head);
    assert_eq!((world.statistics().queued, world.statistics().refused), (0, 1));

    world.go_on_with(0);
    world.until("both connections end", &mut [&mut late, &mut queued], |_, clients| {
        clients.iter().all(|client| client.end.is_some())
    });
    assert_eq!((late.answers.len(), queued.answers.len()), (1, 1));
    drop((late, queued));
    assert_nothing_is_left(&mut world, &mut []);
}

/// The bytes were read while no thread polled the engine, so the socket does not become readable for them again.
#[test]
fn malformed_head_is_refused_when_the_engine_is_polled_again() {
    let mut world = busy(vec![Plan::sized(&[5]).impolite()]);
    let late = sent(&world, post(0));
    let mut client = world.client();
    world.settle();
    assert_eq!(world.statistics().connections, 2);
    client.send("GET /1 HTTP/9.1\r\nHost: a.example\r\n\r\n");
    client.pump();
    expire(&mut world);
    refuse_waiting(&mut world);
    client.pump();
    assert!(client.answers.is_empty(), "{}", client.text());

    world.go_on_with(0);
    world.advance(seconds(1));
    world.settle();
    client.pump();
    assert_eq!(client.answers.len(), 1, "{}", client.text());
    assert_eq!(client.answers[0].status, 505);
    drop((late, client));
    assert_nothing_is_left(&mut world, &mut []);
}
