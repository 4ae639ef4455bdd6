//! Time limits, by a clock that only the test advances.
//!
//! Connections are Unix sockets, on which bytes arrive at once: the next poll finds all bytes that a client has sent.

use crate::common::{Client, End, Event, GRAIN, Op, Plan, World, ms, pattern, seconds, timeless};
use engine::Config;
use std::time::Duration;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// Sends bytes, polls, and receives.
fn exchange(world: &mut World, client: &mut Client, bytes: impl AsRef<[u8]>) {
    client.send(bytes);
    client.pump();
    assert_eq!(client.unsent(), 0);
    world.settle();
    client.pump();
}

/// Checks that nothing expires until just before `limit` from now, that the engine asks for a poll in time, and that
/// the limit expires then.
fn expires_after(world: &mut World, limit: Duration, expired: impl Fn(&World) -> bool) {
    world.settle();
    assert!(!expired(world), "expired at once");
    let timeout = world.timeout().expect("something is due");
    assert!(!timeout.is_zero() && timeout <= limit + GRAIN, "asks for a turn in {timeout:?}");
    world.advance(limit.saturating_sub(ms(1)));
    assert!(!expired(world), "expired too early");
    let passed = world.sleep_until(ms(1) + GRAIN, expired);
    assert!(passed <= ms(1) + GRAIN);
}

#[test]
fn head_gets_408_at_the_header_timeout() {
    let config = Config { header_timeout: Some(seconds(15)), ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[1])]);
    let mut client = world.client();
    exchange(&mut world, &mut client, "GET /0 HTTP/1.1\r\nHo");
    // More bytes of the head do not extend the time.
    world.advance(seconds(10));
    exchange(&mut world, &mut client, "st: a\r\n");
    expires_after(&mut world, seconds(5), |world| world.statistics().timeouts == 1);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers[0].status, client.answers[0].keep_alive), (408, false));
    assert_eq!(world.app.log.last(), Some(&Event::Refused { status: 408, fault: None }));
    drop(client);
    world.until_empty(&mut []);
}

#[test]
fn silent_connection_is_closed_without_a_response() {
    let config = Config { header_timeout: Some(seconds(15)), ..timeless() };
    let mut world = World::unix(config, vec![]);
    let mut client = world.client();
    expires_after(&mut world, seconds(15), |world| world.statistics().connections == 0);
    assert_eq!(world.end(&mut client), End::Closed);
    assert!(client.received.is_empty());
    assert_eq!((world.statistics().refused, world.app.log.len()), (0, 1));
}

#[test]
fn each_half_sent_head_has_its_own_timeout() {
    let config = Config { header_timeout: Some(seconds(15)), keep_alive: Some(seconds(15)), ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[1])]);
    let mut client = world.client();
    let request = get(0);
    let (start, end) = request.split_at(20);
    exchange(&mut world, &mut client, start);
    for round in 1..=10 {
        world.advance(seconds(10));
        exchange(&mut world, &mut client, format!("{end}{start}"));
        assert_eq!((client.answers.len(), client.end), (round, None), "{:?}", world.app.log.last());
    }
    // The last half has only its own time.
    expires_after(&mut world, seconds(15), |world| world.statistics().timeouts == 1);
}

#[test]
fn header_timeout_begins_with_the_first_byte() {
    let config = Config { header_timeout: Some(seconds(5)), keep_alive: Some(seconds(75)), ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[1])]);
    let mut client = world.client();
    exchange(&mut world, &mut client, get(0));
    world.advance(seconds(70));
    exchange(&mut world, &mut client, "G");
    world.advance(ms(4900));
    exchange(&mut world, &mut client, &get(0)[1..]);
    assert_eq!(client.answers.len(), 2);
}

#[test]
fn body_that_pauses_too_long_gets_408() {
    let config = Config { body_timeout: Some(seconds(30)), ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[1])]);
    let mut client = world.client();
    exchange(&mut world, &mut client, "PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
    for _ in 0..5 {
        world.advance(seconds(29));
        exchange(&mut world, &mut client, "d");
    }
    expires_after(&mut world, seconds(30), |world| world.statistics().timeouts == 1);
    assert_eq!(world.app.log.last(), Some(&Event::AbandonRequest { id: 0, status: Some(408) }));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(client.answers[0].status, 408);
    assert_eq!(world.app.alive(), 0);
}

#[test]
fn body_below_its_rate_gets_408() {
    let config = Config { body_timeout: Some(seconds(30)), min_rate: 500, ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[1])]);
    let head = "PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";

    let mut steady = world.client();
    exchange(&mut world, &mut steady, head);
    for second in 0..100 {
        assert_eq!(world.statistics().timeouts, 0, "cut after {second} s although it kept the rate");
        world.advance(seconds(1));
        exchange(&mut world, &mut steady, [b'x'; 600]);
    }
    assert_eq!(steady.answers.len(), 1);
    drop(steady);

    let mut slow = world.client();
    exchange(&mut world, &mut slow, head);
    let mut passed = 0;
    while world.statistics().timeouts == 0 {
        assert!(passed < 60, "still there after {passed} s");
        world.advance(seconds(1));
        exchange(&mut world, &mut slow, [b'x'; 200]);
        passed += 1;
    }
    // 30 s, and the time that 200 bytes a second have earned until then, at 500 bytes for a second.
    assert!((45..=55).contains(&passed), "cut after {passed} s");
    assert_eq!(slow.answers[0].status, 408);
    assert_eq!(world.app.log.last(), Some(&Event::AbandonRequest { id: 0, status: Some(408) }));
}

/// While no thread of the server reads, bytes that a client has sent in time may wait in the buffers of its own side.
#[test]
fn client_has_time_once_more_if_all_threads_were_busy() {
    for (first, rest) in [
        ("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabc", "d"),
        ("GET /0 HTTP/1.1\r\nHost: a", "\r\n\r\n"),
    ] {
        let limit = Some(seconds(30));
        let config = Config { body_timeout: limit, header_timeout: limit, ..timeless() };
        let mut world = World::unix(config, vec![Plan::sized(&[1])]);
        let (mut late, mut silent) = (world.client(), world.client());
        exchange(&mut world, &mut late, first);
        exchange(&mut world, &mut silent, first);
        world.advance_while_busy(seconds(32));
        assert_eq!(world.statistics().timeouts, 0);
        exchange(&mut world, &mut late, rest);
        assert_eq!(late.answers[0].status, 200);
        // The poll came 2 s too late.
        expires_after(&mut world, seconds(2), |world| world.statistics().timeouts == 1);

        let mut busy = world.client();
        exchange(&mut world, &mut busy, first);
        world.advance_while_busy(seconds(32));
        assert_eq!(world.statistics().timeouts, 1);
        world.advance_while_busy(seconds(32));
        assert_eq!(world.statistics().timeouts, 2, "a wait is excused once");
    }
}

#[test]
fn peer_that_does_not_read_is_cut() {
    let config = Config { write_timeout: Some(seconds(30)), ..timeless() };
    let (listener, address) = crate::common::listen(Some(16 << 10));
    let mut world = World::on(vec![listener], vec![address], config, vec![Plan::sized(&[50_000; 20])]);
    let mut client = world.client();
    client.reads = false;
    client.send(get(0));
    world.until("the application is called", &mut [&mut client], |world, _| !world.app.called().is_empty());
    expires_after(&mut world, seconds(30), |world| world.statistics().timeouts == 1);
    assert_eq!((world.app.abandoned(0), world.statistics().connections), (1, 0));
    client.reads = true;
    assert_eq!(world.end(&mut client), End::Reset);
    assert!(client.answers.is_empty());
}

/// Reads `rate` bytes a second. Returns true if the complete answer arrived.
fn reads_at(rate: usize, plan: Plan) -> bool {
    let config = Config { write_timeout: Some(seconds(30)), min_rate: 10_000, ..timeless() };
    let mut world = World::unix(config, vec![plan]);
    let mut client = world.client();
    client.reads = false;
    client.send(get(0));
    client.pump();
    for _ in 0..4_000_000 / rate {
        world.advance(seconds(1));
        world.settle();
        client.pump_in(rate);
        if client.end.is_some() {
            return false;
        }
        if let [answer] = &client.answers[..] {
            assert!(answer.body == pattern(0, 0, 2_000_000));
            return true;
        }
    }
    panic!("neither cut nor whole: {} bytes", client.received.len());
}

#[test]
fn peer_that_reads_below_its_rate_is_cut() {
    let mut flushed = vec![Op::Begin];
    let mut yielding = vec![Op::Begin];
    for _ in 0..400 {
        flushed.extend([Op::Write(5000), Op::Flush]);
        yielding.extend([Op::Write(5000), Op::Yield]);
    }
    let file = vec![Op::File { length: 2_000_000, missing: 0 }];
    let plans =
        [Plan::of(flushed), Plan::of(yielding), Plan::of(file), Plan::sized(&[2_000_000]), Plan::sized(&[20_000; 100])];
    for plan in plans {
        assert!(reads_at(20_000, plan.clone()), "cut although it read fast enough: {:?}", &plan.ops[..2]);
        // Also a response that never makes the peer wait for longer than the timeout.
        for rate in [2000, 5000] {
            assert!(!reads_at(rate, plan.clone()), "not cut although {rate} are too slow: {:?}", &plan.ops[..2]);
        }
    }
}

#[test]
fn idle_connection_is_closed_without_a_response() {
    let config = Config { keep_alive: Some(seconds(75)), ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[1])]);
    let mut client = world.client();
    for count in 1..=3 {
        exchange(&mut world, &mut client, get(0));
        assert_eq!(client.answers.len(), count);
        world.advance(seconds(74));
        assert_eq!(world.statistics().connections, 1);
    }
    exchange(&mut world, &mut client, get(0));
    expires_after(&mut world, seconds(75), |world| world.statistics().connections == 0);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers.len(), client.has_part(), world.statistics().timeouts), (4, false, 0));
}

#[test]
fn lingering_ends_at_its_timeout() {
    let mut world = World::unix(timeless(), vec![]);
    let mut client = world.client();
    exchange(&mut world, &mut client, "GET / HTTP/9.9\r\n\r\n");
    assert_eq!((client.answers[0].status, client.end), (505, Some(End::Closed)));
    assert_eq!(world.statistics().connections, 1);
    // Sending more does not extend the time.
    world.advance(seconds(1));
    exchange(&mut world, &mut client, "more");
    expires_after(&mut world, seconds(1), |world| world.statistics().connections == 0);
}

#[test]
fn idle_connection_releases_its_buffers() {
    for keep_alive in [None, Some(seconds(75))] {
        let mut world = World::unix(Config { keep_alive, ..timeless() }, vec![Plan::sized(&[1])]);
        let mut client = world.client();
        let idle = |world: &World| world.app.count(|event| *event == Event::Idle { connection: 0 });
        let last_repeated = |world: &World| {
            world.app.log.iter().rev().find_map(|event| match event {
                Event::Begin { repeated, .. } => Some(*repeated),
                _ => None,
            })
        };
        for round in 0..3 {
            for _ in 0..4 {
                exchange(&mut world, &mut client, get(0));
                world.advance(ms(800));
            }
            assert_eq!((idle(&world), last_repeated(&world)), (round, Some(true)), "round {round}");
            let passed = world.sleep_until(seconds(3), |world| idle(world) == round + 1);
            assert!(ms(800) + passed >= seconds(1), "idle after {passed:?}");
            // The engine reports the connection as idle only once.
            world.advance(seconds(5));
            world.advance(seconds(5));
            assert_eq!(idle(&world), round + 1);
            exchange(&mut world, &mut client, get(0));
            assert_eq!(last_repeated(&world), Some(false), "round {round}: released data is used again");
            assert_eq!(client.answers.len(), (round + 1) * 5);
        }
    }
}

#[test]
fn only_so_many_idle_connections_keep_their_buffers() {
    let mut world = World::unix(Config { warm: 2, ..timeless() }, vec![Plan::sized(&[1])]);
    let mut clients: Vec<Client> = (0..4).map(|_| world.client()).collect();
    let released = |world: &World| world.app.count(|event| matches!(event, Event::Idle { .. }));
    let mut ask = |world: &mut World, index: usize| {
        exchange(world, &mut clients[index], get(0));
        world.settle();
    };
    for index in 0..4 {
        ask(&mut world, index);
    }
    assert_eq!(released(&world), 2, "two of four keep their buffers");
    ask(&mut world, 0);
    ask(&mut world, 3);
    assert_eq!(released(&world), 3, "the first keeps its buffers and the last finds no room");
    // After a second the two have released theirs, too, and make room for others.
    world.advance(seconds(2));
    assert_eq!(released(&world), 5);
    ask(&mut world, 2);
    ask(&mut world, 3);
    assert_eq!(released(&world), 5);
    drop(clients);
    world.until_empty(&mut []);
    let mut client = world.client();
    exchange(&mut world, &mut client, get(0));
    world.settle();
    assert_eq!(released(&world), 5, "closed connections keep nothing");
}

#[test]
fn engine_without_time_limits_waits_only_for_events() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[1])]);
    assert_eq!(world.timeout(), Some(Duration::ZERO), "connections may wait already");
    world.settle();
    assert_eq!(world.timeout(), None);
    let mut client = world.client();
    exchange(&mut world, &mut client, "GET /0 HTTP");
    assert_eq!(world.timeout(), None);
    exchange(&mut world, &mut client, "/1.1\r\nHost: a\r\n\r\n");
    world.sleep_until(seconds(3), |world| world.app.log.contains(&Event::Idle { connection: 0 }));
    assert_eq!(world.timeout(), None);
}

/// Every wait that the engine asks for is useful, with all limits set and connections in all states.
#[test]
fn engine_polled_only_when_due_does_not_spin() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[1]), Plan::sized(&[400_000; 10])]);
    let mut clients = Vec::new();
    let starts = [
        String::new(),
        "GET /0".into(),
        get(0),
        get(0) + "GET",
        get(1),
        "PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab".into(),
        "GET / HTTP/7.0\r\n\r\n".into(),
    ];
    for start in starts {
        let mut client = world.client();
        client.reads = false;
        client.send(start);
        client.pump();
        clients.push(client);
    }
    world.settle();
    assert_eq!(world.statistics().connections, clients.len() as u64);
    let mut turns = 0;
    let mut time = Duration::ZERO;
    while world.statistics().connections > 0 {
        let wait = world.timeout().expect("every connection has a limit");
        time += wait;
        turns += 1;
        assert!(time <= seconds(76) && turns < 50, "{turns} turns in {time:?}");
        world.advance(wait);
        world.settle();
    }
    assert!(time >= seconds(75), "the idle connection was closed after {time:?}");
    assert_eq!(world.app.alive(), 0);
}
