//! Listeners: several at a time, TCP and Unix, and the limit of connections.

use crate::common::{Address, Client, End, Event, Pause, Plan, World, listen, local_of, ms, timeless};
use engine::{Config, Engine, Local, Now, Os, Readiness};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

const GET: &[u8] = b"GET /0 HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn all_listeners_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("engine.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let (first, first_address) = listen(None);
    let (second, second_address) = listen(None);
    let listeners = vec![first, unix.into(), second];
    let addresses = vec![first_address, Address::Unix(path), second_address];
    let mut world = World::on(listeners, addresses, timeless(), vec![Plan::sized(&[5])]);
    let locals: Vec<Local> = world.addresses.iter().map(local_of).collect();
    assert_eq!(world.engine.locals(), locals);
    let mut clients: Vec<_> = world.addresses.iter().map(|address| Client::connect(address, None)).collect();
    for index in [2, 0, 1, 1, 2, 0] {
        let answers = clients[index].answers.len() + 1;
        world.ask(&mut clients[index], GET, answers);
    }
    let mut connected: Vec<_> = world
        .app
        .log
        .iter()
        .filter_map(|event| match event {
            Event::Connect { listener, has_address } => Some((*listener, *has_address)),
            _ => None,
        })
        .collect();
    connected.sort_unstable();
    assert_eq!(connected, [(0, true), (1, false), (2, true)]);
}

#[test]
fn engine_refuses_a_descriptor_that_does_not_listen() {
    let file = tempfile::tempfile().unwrap();
    let (net, ..) = Os::new().unwrap();
    assert!(
        Engine::<crate::common::Script>::new(
            net,
            vec![OwnedFd::from(file).into()],
            timeless(),
            Now { monotonic: Duration::ZERO, wall: Duration::ZERO }
        )
        .is_err()
    );
}

#[test]
fn engine_refuses_a_server_field_with_a_line_break() {
    let config = Config { server: "kirsch\r\nX: y".into(), ..timeless() };
    let (listener, _) = listen(None);
    let (net, ..) = Os::new().unwrap();
    assert!(
        Engine::<crate::common::Script>::new(
            net,
            vec![listener.into()],
            config,
            Now { monotonic: Duration::ZERO, wall: Duration::ZERO }
        )
        .is_err()
    );
}

#[test]
fn waiting_connections_are_accepted_without_a_new_event() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
    world.settle();
    // More connections than one poll accepts, announced by one event.
    let clients: Vec<_> = (0..100).map(|_| world.client()).collect();
    world.poll();
    let first = world.statistics().accepted;
    assert!(first > 0 && first < 100, "{first} in one turn");
    assert_eq!(world.timeout(), Some(ms(0)));
    world.settle();
    assert_eq!(world.statistics().accepted, 100);
    drop(clients);
    world.until_empty(&mut []);
}

#[test]
fn accepting_pauses_at_the_limit_and_resumes_when_a_connection_closes() {
    let config = Config { connections: 2, ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[5])]);
    let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(GET);
        client.pump();
    }
    world.settle();
    assert_eq!((world.statistics().connections, world.statistics().requests), (2, 2));
    assert_eq!(world.statistics().accept_pauses, 1);
    assert_eq!(world.app.pauses(), [Pause::Connections(2)]);
    // The engine retries at intervals, and does not report the pause again.
    for round in 0..5 {
        let timeout = world.timeout().expect("it will look again");
        assert!(timeout > ms(0) && timeout <= ms(200), "round {round}: {timeout:?}");
        world.advance(timeout);
    }
    assert_eq!(world.statistics().accepted, 2);
    assert_eq!(world.app.pauses().len(), 1);
    // Accepted connections are served.
    world.ask(&mut clients[1], GET, 2);
    // A closing connection makes room at once.
    drop(clients.remove(0));
    world.until("the next one is answered", &mut [&mut clients[1]], |_, clients| clients[0].answers.len() == 1);
    assert_eq!((world.statistics().accepted, world.statistics().connections), (3, 2));
    clients[0].end_sending();
    assert_eq!(world.end(&mut clients[0]), End::Closed);
    world.until("so is the last", &mut [&mut clients[2]], |_, clients| clients[0].answers.len() == 1);
    drop(clients);
    world.until_empty(&mut []);
}

/// A connection that closes before it was ever watched makes room like any other.
#[test]
fn short_connections_are_accepted_one_by_one_at_a_low_limit() {
    let config = Config { connections: 1, ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[5])]);
    let mut clients: Vec<_> = (0..20).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send("GET /0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.pump();
    }
    world.settle();
    for client in &mut clients {
        client.pump();
        assert_eq!((client.answers.len(), client.end), (1, Some(End::Closed)));
    }
    assert_eq!(world.statistics().accepted, 20);
}

#[test]
fn longest_idle_connection_is_closed_at_the_limit_if_configured() {
    let config = Config { connections: 2, evicts_silent: true, ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[5])]);
    let mut oldest = world.client();
    world.settle();
    world.advance(ms(10));
    let mut younger = world.client();
    world.settle();
    world.advance(ms(10));
    let mut new_client = world.client();
    new_client.send(GET);
    world.until("the new client is answered", &mut [&mut new_client], |_, clients| clients[0].answers.len() == 1);
    assert_eq!(world.end(&mut oldest), End::Closed);
    world.ask(&mut younger, GET, 1);
    assert_eq!((world.statistics().accept_pauses, world.statistics().connections), (0, 2));
    drop((younger, new_client));
}

#[test]
fn limit_is_not_reported_when_no_connection_waits() {
    let config = Config { connections: 2, ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[5])]);
    let clients = [world.client(), world.client()];
    world.settle();
    assert_eq!(world.statistics().connections, 2);
    assert_eq!((world.statistics().accept_pauses, world.app.pauses().len()), (0, 0));
    drop(clients);
}

#[test]
fn waker_ends_a_wait_from_another_thread() {
    let mut world = World::new(timeless(), vec![]);
    world.settle();
    let waker = world.waker.clone();
    let thread = std::thread::spawn(move || waker.wake());
    let mut ready = Vec::new();
    world.poller.wait(None, &mut ready).unwrap();
    assert_eq!(ready, [Readiness::Woken]);
    thread.join().unwrap();
    world.engine.notice(&mut ready);
    assert!(ready.is_empty());
    world.settle();
    // However often the waker was called, one poll is enough.
    for _ in 0..100_000 {
        world.waker.wake();
    }
    world.settle();
    assert!(!world.take_events());
}
