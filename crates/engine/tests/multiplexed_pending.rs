//! Many exchanges on a connection while no thread polls: health checks are answered, and requests that wait are
//! refused.

use crate::common::{Client, Plan, World, ms, seconds, timeless};
use crate::multiplexed::{Framed, Received, Response, ask, credit, framed, head, send, until, world};
use engine::{Config, Expired};
use sim::frames::{DATA, HEAD, HEAD_ONLY, RESET};
use std::time::Duration;

// -------------------------------------------------------------------------------------------- while no thread polls

const SERVICE_INTERVAL: Duration = ms(100);

fn check(stream: u32) -> Vec<u8> {
    framed(HEAD_ONLY, stream, b"GET /healthz HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// Returns a world with one thread, whose call of plan 0 does not return, and its client.
fn stuck(plans: usize) -> (World<Framed>, Client) {
    let config = Config { health_path: "/healthz".into(), header_timeout: Some(seconds(5)), ..timeless() };
    let mut world = world(config, (0..plans).map(|id| Plan::sized(&[5 + id])).collect());
    world.keeps = true;
    world.callers = 1;
    let mut busy = world.client();
    send(&mut world, &mut busy, ask(1, 0));
    assert_eq!(world.ids_out(), [0]);
    world.service_pending(SERVICE_INTERVAL);
    (world, busy)
}

/// Returns a client whose sent bytes are unread in the kernel.
fn sent(world: &World<Framed>, bytes: impl AsRef<[u8]>) -> Client {
    let mut client = world.client();
    client.send(bytes);
    client.pump();
    assert_eq!(client.unsent(), 0);
    client
}

#[test]
fn health_check_is_answered_on_a_new_connection_while_no_thread_polls() {
    let (mut world, mut busy) = stuck(2);
    // Frames that concern the protocol alone may come first; the second one asks for the application.
    let mut clients =
        [sent(&world, check(1)), sent(&world, [credit(7, 1), check(9)].concat()), sent(&world, ask(1, 1))];
    for _ in 0..3 {
        world.service_pending(SERVICE_INTERVAL);
    }
    for client in &mut clients {
        client.pump();
    }
    let [first, second, other] = &mut clients;
    for (client, stream) in [(&*first, 1), (&*second, 9)] {
        let received = Received::of(client);
        assert_eq!((received.at(stream).status(), received.at(stream).is_whole), (200, true));
        assert!(received.is_going_away && client.end.is_some());
    }
    assert_eq!(
        (Received::of(other).at(1), other.end),
        (Response::default(), None),
        "its request is for the application"
    );
    assert_eq!(world.statistics().health_checks, 2);
    // The application was called for none of them, and continues with its own requests.
    assert_eq!(world.ids_out(), [0]);
    world.keeps = false;
    world.go_on_with(0);
    until(&mut world, &mut busy, "the call is answered", |received| received.at(1).is_whole);
    until(&mut world, other, "the request is answered", |received| received.at(1).is_whole);
}

#[test]
fn requests_that_wait_are_refused_while_no_thread_polls() {
    let (mut world, mut busy) = stuck(3);
    // One request is queued on the connection of the call, one is unread on an idle connection, one on a new
    // connection.
    send(&mut world, &mut busy, ask(3, 1));
    let mut idle = world.client();
    world.settle();
    idle.send([head(HEAD, 1, 2), framed(DATA, 1, b"half"), ask(3, 2), framed(RESET, 1, b"")].concat());
    idle.pump();
    let now = world.now();
    let late = world.engine.expire(world.calls[0].ticket.call(), now);
    assert!(matches!(late, Expired::Answered { .. }));
    world.engine.refuse_waiting(now);
    busy.pump();
    idle.pump();
    let (of_busy, of_idle) = (Received::of(&busy), Received::of(&idle));
    assert_eq!((of_busy.at(1).status(), of_busy.at(3).status()), (504, 503));
    assert!(of_busy.at(3).is_whole && of_idle.at(3).is_whole && of_idle.at(1).is_whole);
    assert_eq!((of_idle.at(1).status(), of_idle.at(3).status()), (503, 503));
    assert_eq!(world.statistics().refused, 3);
    // The next poll reports to the application the request that it knew, and the connections continue.
    world.keeps = false;
    world.go_on_with(0);
    send(&mut world, &mut idle, ask(5, 1));
    until(&mut world, &mut idle, "it goes on", |received| received.at(5).is_whole);
    assert_eq!((world.statistics().queued, world.statistics().running, world.app.alive()), (0, 0, 0));
}

/// The connection is not new any more, so the time for its first head is over.
#[test]
fn new_connection_whose_request_was_refused_goes_on_when_a_thread_polls() {
    let (mut world, _busy) = stuck(2);
    let mut client = world.client();
    world.settle();
    client.send(ask(1, 1));
    client.pump();
    let now = world.now();
    world.engine.expire(world.calls[0].ticket.call(), now);
    world.engine.refuse_waiting(now);
    client.pump();
    assert_eq!(Received::of(&client).at(1).status(), 503);
    // The watchdog looks at the connection again.
    world.service_pending(seconds(3));
    world.service_pending(seconds(3));
    world.keeps = false;
    world.go_on_with(0);
    world.settle();
    client.send(ask(3, 1));
    client.pump();
    until(&mut world, &mut client, "it goes on", |received| received.at(3).is_whole);
    assert_eq!((Received::of(&client).at(3).status(), client.end), (200, None));
}
