//! Pending connections while no thread polls: the end, the limits and the failures of what the ticker does.

use crate::common::{Address, Client, Event, World, listen, ms, seconds, timeless};
use crate::health::{CHECK, SERVICE_INTERVAL, answer, config, get, quiet, sent, service_pending, stuck};
use engine::Config;

#[test]
fn engine_is_stalled_when_a_connection_waits_at_its_listener() {
    for stalled_after in [Some(seconds(5)), None] {
        // The same without a health path.
        let (mut world, _busy) = stuck(Config { stalled_after, ..timeless() }, 1);
        for _ in 0..6 {
            assert!(!world.engine.is_stalled());
            world.service_pending(ms(999));
            let now = world.now();
            assert!(!world.engine.service_pending(now, true));
        }
        world.service_pending(ms(10));
        assert_eq!(world.engine.is_stalled(), stalled_after.is_some());
    }
}

#[test]
fn pending_checks_are_told_that_the_engine_drains_or_stops() {
    let (mut world, busy) = stuck(config(), 1);
    world.engine.drain();
    let mut client = sent(&world, CHECK);
    service_pending(&mut world);
    client.pump();
    assert_eq!(answer(&client), (503, "draining".into()));
    let mut mute = world.client();
    service_pending(&mut world);
    let now = world.now();
    world.engine.stop(now, Some(seconds(5)), seconds(60));
    mute.send(CHECK);
    mute.pump();
    world.service_pending(SERVICE_INTERVAL);
    mute.pump();
    assert_eq!(answer(&mute), (503, "draining".into()));
    world.go_on_with(0);
    world.settle();
    drop((mute, client, busy));
    world.until("it has stopped", &mut [], |world, _| world.engine.is_stopped());
}

#[test]
fn pending_connection_that_is_cut_was_reported_to_the_application() {
    let (mut world, busy) = stuck(config(), 2);
    let mut clients = [sent(&world, get(1)), world.client(), sent(&world, "GET /heal")];
    service_pending(&mut world);
    assert_eq!(world.statistics().connections, 4);
    let now = world.now();
    world.engine.stop(now, Some(ms(0)), ms(0));
    world.poll();
    assert_eq!(world.app.count(|event| matches!(event, Event::Connect { .. })), 4);
    world.go_on_with(0);
    world.settle();
    assert!(world.engine.is_stopped());
    assert_eq!((world.statistics().connections, world.statistics().running), (0, 0));
    for client in &mut clients {
        world.end(client);
    }
    drop(busy);
}

#[test]
fn panic_when_a_pending_connection_is_reported_closes_that_connection() {
    quiet();
    let (mut world, _busy) = stuck(config(), 2);
    let mut first = sent(&world, get(1));
    let mut second = sent(&world, get(1));
    service_pending(&mut world);
    world.app.panics_at_next = Some("planned");
    world.callers = 3;
    world.settle();
    assert_eq!((world.statistics().panics, world.app.panics()), (1, vec!["planned"]));
    world.end(&mut first);
    assert!(first.received.is_empty());
    world.go_on_with(1);
    world.settle();
    second.pump();
    assert_eq!(second.answers.len(), 1);
}

#[test]
fn pending_connection_does_not_inherit_a_place_in_the_queue() {
    let (mut world, _busy) = stuck(Config { queue_timeout: Some(seconds(10)), ..config() }, 4);
    let first = sent(&world, get(1));
    world.settle();
    assert_eq!(world.statistics().queued, 1);
    world.sleep_until(seconds(10) + crate::common::GRAIN, |world| world.statistics().queue_timeouts == 1);
    drop(first);
    world.until("it is gone", &mut [], |world, _| world.statistics().connections == 1);
    let mut queued = sent(&world, get(2));
    // This connection gets another slot, and the next one gets the first one's slot.
    world.settle();
    world.service_pending(SERVICE_INTERVAL);
    let mut pending = sent(&world, get(3));
    service_pending(&mut world);
    for (id, client) in [(0, None), (2, Some(&mut queued)), (3, Some(&mut pending))] {
        assert_eq!(world.ids_out(), [id]);
        world.go_on_with(id);
        world.settle();
        if let Some(client) = client {
            client.pump();
            assert_eq!(client.answers.len(), 1);
        }
    }
}

#[test]
fn pending_connections_of_all_listeners_are_serviced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("engine.sock");
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (tcp, address) = listen(None);
    let mut world = World::on(vec![tcp, unix.into()], vec![address, Address::Unix(path)], config(), vec![]);
    world.settle();
    world.service_pending(SERVICE_INTERVAL);
    let mut clients: Vec<_> = world.addresses.iter().map(|address| Client::connect(address, None)).collect();
    for client in &mut clients {
        client.send(CHECK);
        client.pump();
    }
    service_pending(&mut world);
    for client in &mut clients {
        client.pump();
        assert_eq!(answer(client), (200, "saturated".into()));
    }
}
