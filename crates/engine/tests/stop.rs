//! The graceful end: nobody is turned away who was let in, and everybody is gone in time.

mod common;

use common::{Client, End, Event, GRAIN, Op, Plan, World, ms, pattern, seconds, tcp_listener, timeless};
use engine::{Config, STOP_GRACE};
use std::time::Duration;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn stop(world: &mut World, timeout: Option<Duration>) {
    let now = world.now();
    world.engine.stop(now, timeout, STOP_GRACE);
    assert!(!world.engine.is_stopped(), "it has not been polled");
    assert_eq!(world.timeout(), Some(ms(0)), "stopping is something to do");
}

#[test]
fn an_engine_without_connections_stops_in_one_turn() {
    for timeout in [None, Some(seconds(30)), Some(ms(0))] {
        let mut world = World::unix(Config::default(), vec![]);
        world.settle();
        stop(&mut world, timeout);
        world.turn();
        assert!(world.engine.is_stopped());
    }
}

#[test]
fn the_listeners_close() {
    let (listener, address) = tcp_listener(None);
    let common::Address::Tcp(tcp) = address.clone() else { unreachable!() };
    let mut world = World::on(vec![listener], vec![address], timeless(), vec![]);
    stop(&mut world, None);
    world.turn();
    let error = std::net::TcpStream::connect(tcp).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(world.engine.locals().len(), 1, "where it listened is still known");
}

#[test]
fn an_idle_connection_has_a_grace_and_no_more() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    let mut asks = world.client();
    let mut fresh = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    world.ask(&mut asks, get(0).as_bytes(), 1);
    stop(&mut world, Some(seconds(30)));
    world.settle();
    assert_eq!(world.statistics().connections, 3);
    // A request that was on its way is answered, and is the last one.
    world.advance(STOP_GRACE.saturating_sub(ms(10)));
    world.ask(&mut asks, get(0).as_bytes(), 2);
    assert_eq!((asks.answers[0].keep_alive, asks.answers[1].keep_alive), (true, false));
    assert_eq!(world.end(&mut asks), End::Closed);
    drop(asks);
    world.sleep_until(ms(10) + GRAIN, |world| world.engine.is_stopped());
    assert_eq!(world.end(&mut idle), End::Closed);
    assert_eq!(world.end(&mut fresh), End::Closed);
    assert_eq!((idle.answers.len(), fresh.received.len()), (1, 0));
    assert_eq!(world.statistics().cut, 0);
}

#[test]
fn half_sent_head_has_the_grace_of_an_idle_connection() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    let mut halves: Vec<_> = (0..3).map(|_| world.client()).collect();
    world.ask(&mut halves[0], get(0).as_bytes(), 1);
    world.ask(&mut halves[2], get(0).as_bytes(), 1);
    for client in &mut halves[..2] {
        client.send(&get(0)[..20]);
        client.pump();
    }
    world.settle();
    stop(&mut world, Some(seconds(30)));
    world.settle();
    world.advance(STOP_GRACE.saturating_sub(ms(10)));
    world.settle();
    assert_eq!(world.statistics().connections, 3);
    // The rest of one comes in time, and one begins only now.
    world.ask(&mut halves[1], &get(0).as_bytes()[20..], 1);
    assert_eq!((halves[1].answers[0].status, halves[1].answers[0].keep_alive), (200, false));
    halves[2].send(&get(0)[..20]);
    halves[2].pump();
    world.settle();
    // The first is told that it may ask again, and somewhere else. Neither is waited for beyond its grace.
    world.sleep_until(ms(10) + GRAIN, |world| world.statistics().refused == 1);
    world.sleep_until(STOP_GRACE + GRAIN, |world| world.statistics().refused == 2);
    for client in [0, 2] {
        let client = &mut halves[client];
        assert_eq!(world.end(client), End::Closed);
        assert_eq!(client.answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 408]);
        assert!(!client.answers[1].keep_alive);
    }
    drop(halves);
    world.until("it has stopped", &mut [], |world, _| world.engine.is_stopped());
    assert_eq!((world.statistics().cut, world.app.called().len()), (0, 3));
}

/// Of a head byte by byte none extends its time.
#[test]
fn trickling_head_does_not_hold_up_a_stop() {
    let mut world = World::unix(timeless(), vec![]);
    let mut client = world.client();
    client.send("GET /");
    client.pump();
    world.settle();
    stop(&mut world, Some(seconds(30)));
    world.settle();
    let mut passed = ms(0);
    while world.statistics().refused == 0 {
        assert!(passed < STOP_GRACE + 2 * GRAIN, "it is waited for after {passed:?}");
        client.send("a");
        client.pump();
        world.advance(ms(50));
        passed += ms(50);
    }
    assert!(passed + ms(50) >= STOP_GRACE, "refused after {passed:?}");
}

/// A whole request that could not be read yet is not taken for half of one, whatever its grace.
#[test]
fn whole_requests_are_answered_by_a_stop_without_grace() {
    let config = Config { queue: 0, ..timeless() };
    let mut world = World::unix(config, vec![Plan::sized(&[5])]);
    world.keeps = true;
    world.callers = 1;
    let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(get(0));
        client.pump();
        world.settle();
    }
    assert_eq!(world.calls.len(), 1);
    let now = world.now();
    world.engine.stop(now, None, ms(0));
    world.settle();
    for _ in 0..5 {
        world.advance(GRAIN);
        world.settle();
    }
    while !world.calls.is_empty() {
        world.go_on(0);
        world.settle();
    }
    for client in &mut clients {
        client.pump();
        assert_eq!(client.answers.len(), 1);
    }
}

/// Stops, with so much time for idle connections.
fn stop_gracing(world: &mut World, timeout: Option<Duration>, grace: Duration) {
    let now = world.now();
    world.engine.stop(now, timeout, grace);
    world.settle();
}

#[test]
fn a_longer_grace_waits_for_each_idle_connection_to_ask_once_more() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    let mut asks = world.client();
    let mut fresh = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    world.ask(&mut asks, get(0).as_bytes(), 1);
    world.settle();
    stop_gracing(&mut world, Some(seconds(60)), seconds(20));
    world.advance(seconds(14));
    assert_eq!(world.statistics().connections, 3);
    // One that has never asked has no more time for it than it had before the stop.
    world.sleep_until(seconds(1) + GRAIN, |world| world.statistics().connections == 2);
    assert_eq!((world.end(&mut fresh), fresh.received.len()), (End::Closed, 0));
    world.ask(&mut asks, get(0).as_bytes(), 2);
    assert!(!asks.answers[1].keep_alive);
    assert_eq!(world.end(&mut asks), End::Closed);
    drop(asks);
    assert!(!world.engine.is_stopped());
    world.sleep_until(seconds(5) + GRAIN, |world| world.engine.is_stopped());
    assert_eq!((world.end(&mut idle), world.statistics().cut), (End::Closed, 0));
}

#[test]
fn an_idle_connection_stays_no_longer_than_it_would_have() {
    let config = Config { keep_alive: Some(seconds(2)), ..Config::default() };
    let mut world = World::unix(config, vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    world.advance(seconds(1));
    stop_gracing(&mut world, None, seconds(3600));
    world.sleep_until(seconds(1) + GRAIN, |world| world.engine.is_stopped());
    assert_eq!(world.end(&mut idle), End::Closed);
}

#[test]
fn the_grace_ends_with_the_time_for_everything() {
    for (timeout, grace) in [(seconds(3), seconds(60)), (seconds(3), Duration::MAX), (ms(0), seconds(60))] {
        let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
        let mut idle = world.client();
        world.ask(&mut idle, get(0).as_bytes(), 1);
        stop_gracing(&mut world, Some(timeout), grace);
        assert_eq!(world.engine.is_stopped(), timeout.is_zero());
        world.sleep_until(timeout, |world| world.engine.is_stopped());
        assert_eq!((world.end(&mut idle), world.statistics().cut), (End::Closed, 0));
    }
}

#[test]
fn a_second_stop_can_only_shorten_the_grace() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    stop_gracing(&mut world, None, seconds(60));
    stop_gracing(&mut world, None, seconds(90));
    assert!(world.timeout().is_some_and(|due| due <= seconds(60) + GRAIN), "{:?}", world.timeout());
    // From the moment on at which it is said.
    world.advance(seconds(10));
    stop_gracing(&mut world, None, seconds(5));
    assert!(world.timeout().is_some_and(|due| due <= seconds(5) + GRAIN), "{:?}", world.timeout());
    stop_gracing(&mut world, None, seconds(20));
    world.sleep_until(seconds(5) + GRAIN, |world| world.engine.is_stopped());
    assert_eq!(world.end(&mut idle), End::Closed);
}

#[test]
fn no_grace_closes_idle_connections_at_once_and_nothing_else() {
    let plans = vec![Plan::sized(&[5]), Plan::of(vec![Op::Yield, Op::Write(5)])];
    let mut world = World::unix(timeless(), plans);
    let mut idle = world.client();
    let mut busy = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    busy.send(get(1));
    busy.pump();
    world.turn();
    let now = world.now();
    world.engine.stop(now, None, ms(0));
    world.ask(&mut busy, b"", 1);
    assert!(!busy.answers[0].keep_alive);
    world.sleep_until(GRAIN, |world| world.statistics().connections <= 1);
    assert_eq!(world.end(&mut idle), End::Closed);
}

#[test]
fn who_drains_goes_on_and_keeps_nobody() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    let mut asks = world.client();
    for client in [&mut idle, &mut asks] {
        world.ask(client, get(0).as_bytes(), 1);
        assert!(client.answers[0].keep_alive);
    }
    world.engine.drain();
    world.settle();
    // Who asks is told to go elsewhere the next time, whoever is new too.
    let mut new = world.client();
    for (client, answers) in [(&mut asks, 2), (&mut new, 1)] {
        world.ask(client, get(0).as_bytes(), answers);
        assert!(!client.answers[answers - 1].keep_alive);
        assert_eq!(world.end(client), End::Closed);
    }
    // Who does not, stays for as long as ever.
    world.advance(seconds(60));
    world.settle();
    assert_eq!((world.statistics().connections, idle.end, world.engine.is_stopped()), (1, None, false));
    world.ask(&mut idle, get(0).as_bytes(), 2);
    assert!(!idle.answers[1].keep_alive);
    assert_eq!(world.end(&mut idle), End::Closed);
    drop((idle, asks, new));
    world.until_empty(&mut []);
    assert!(!world.engine.is_stopped());
    stop_gracing(&mut world, Some(seconds(30)), STOP_GRACE);
    assert!(world.engine.is_stopped());
}

#[test]
fn who_waits_in_the_backlog_is_let_in_first() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    world.settle();
    // More than a turn accepts otherwise.
    let mut clients: Vec<Client> = (0..100).map(|_| world.client()).collect();
    for client in &mut clients[1..] {
        client.send(get(0));
        client.pump();
    }
    stop(&mut world, Some(seconds(30)));
    world.turn();
    assert_eq!(world.statistics().accepted, 100);
    world.settle();
    for client in &mut clients[1..] {
        client.pump();
        assert_eq!(client.answers.len(), 1);
    }
    // The first has said nothing yet, and has its grace to do so.
    assert_eq!(clients[0].end, None);
    world.ask(&mut clients[0], get(0).as_bytes(), 1);
    assert!(!clients[0].answers[0].keep_alive);
    drop(clients);
    world.until("it has stopped", &mut [], |world, _| world.engine.is_stopped());
}

#[test]
fn what_is_under_way_is_finished() {
    let plans = vec![Plan::sized(&[50_000; 20]), Plan::of(vec![Op::Echo])];
    let mut world = World::unix(Config::default(), plans);
    let mut answered = world.client();
    answered.reads = false;
    answered.send(get(0));
    let mut uploads = world.client();
    uploads.send("PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    for client in [&mut answered, &mut uploads] {
        client.pump();
    }
    world.settle();
    assert_eq!((world.statistics().connections, world.app.alive()), (2, 2));
    stop(&mut world, Some(seconds(30)));
    world.settle();
    // Longer than an idle connection's grace.
    for _ in 0..3 {
        world.advance(seconds(1));
        world.settle();
        assert_eq!(world.statistics().connections, 2);
    }
    world.ask(&mut uploads, b"half", 1);
    assert_eq!(uploads.answers[0].body, b"halfhalf");
    // Its answer began after the stop, and says so.
    assert!(!uploads.answers[0].keep_alive);
    answered.reads = true;
    world.until("the large answer is here", &mut [&mut answered], |_, clients| clients[0].answers.len() == 1);
    assert!(answered.answers[0].body == pattern(0, 0, 1_000_000));
    world.end(&mut uploads);
    drop(uploads);
    // What was promised to go on is closed like an idle one.
    let passed = world.sleep_until(STOP_GRACE + GRAIN, |world| world.engine.is_stopped());
    assert!(passed >= STOP_GRACE.saturating_sub(GRAIN), "after {passed:?}");
    assert_eq!(world.end(&mut answered), End::Closed);
    assert_eq!((world.statistics().cut, world.app.alive()), (0, 0));
}

#[test]
fn the_deadline_cuts_what_is_left() {
    let plans = vec![Plan::sized(&[50_000; 20]), Plan::of(vec![Op::Echo])];
    let (listener, address) = tcp_listener(Some(16 << 10));
    let mut world = World::on(vec![listener], vec![address], timeless(), plans);
    let mut answered = world.client();
    answered.reads = false;
    answered.send(get(0));
    let mut uploads = world.client();
    uploads.send("PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    world.until("both are under way", &mut [&mut answered, &mut uploads], |world, _| world.app.alive() == 2);
    world.settle();
    stop(&mut world, Some(seconds(10)));
    world.settle();
    let timeout = world.timeout().expect("the deadline is due");
    assert!(timeout > ms(0) && timeout <= seconds(10));
    world.advance(ms(9999));
    assert!(!world.engine.is_stopped());
    world.advance(ms(1));
    assert!(world.engine.is_stopped());
    assert_eq!((world.app.abandoned(0), world.app.alive()), (1, 0));
    assert_eq!(world.app.count(|event| *event == Event::AbandonRequest { id: 1, status: None }), 1);
    assert_eq!(world.statistics().cut, 2);
    answered.reads = true;
    assert_eq!((world.end(&mut answered), world.end(&mut uploads)), (End::Reset, End::Reset));
}

#[test]
fn a_second_stop_can_only_be_sooner() {
    let mut world = World::unix(timeless(), vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    client.send("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    client.pump();
    world.settle();
    stop(&mut world, None);
    world.settle();
    // Nothing will ever be due, so nothing is asked for.
    assert_eq!(world.timeout(), None);
    let again = |world: &mut World, timeout| {
        let now = world.now();
        world.engine.stop(now, timeout, STOP_GRACE);
        world.turn();
    };
    again(&mut world, Some(seconds(60)));
    again(&mut world, Some(seconds(10)));
    again(&mut world, Some(seconds(90)));
    again(&mut world, None);
    assert_eq!(world.timeout(), Some(seconds(10)));
    world.advance(seconds(9));
    assert!(!world.engine.is_stopped());
    world.advance(seconds(1));
    assert!(world.engine.is_stopped());
    drop(client);
}

#[test]
fn a_stop_at_once_cuts_at_once() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[50_000; 20])]);
    let mut client = world.client();
    client.reads = false;
    client.send(get(0));
    client.pump();
    world.settle();
    assert_eq!(world.app.alive(), 1);
    stop(&mut world, Some(ms(0)));
    world.turn();
    assert!(world.engine.is_stopped());
    assert_eq!((world.app.abandoned(0), world.app.alive()), (1, 0));
}

/// Also one that is already at work, if its response has not begun.
#[test]
fn a_stop_ends_connections_with_the_answers_that_have_not_begun() {
    let mut world = World::unix(timeless(), vec![Plan::of(vec![Op::Yield, Op::Write(5)])]);
    let mut client = world.client();
    client.send(get(0));
    client.pump();
    world.turn();
    assert_eq!((world.app.called(), world.app.resumed(0)), (vec![0], 0));
    stop(&mut world, None);
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(!client.answers[0].keep_alive);
    assert_eq!(world.end(&mut client), End::Closed);
}

/// Lingering is for those who are still sending; it does not hold up a stop beyond its own end.
#[test]
fn a_lingering_connection_does_not_hold_up_a_stop() {
    let mut world = World::unix(Config::default(), vec![]);
    let mut client = world.client();
    client.send("GET / HTTP/5.0\r\n\r\n");
    client.pump();
    world.settle();
    stop(&mut world, Some(seconds(30)));
    world.settle();
    assert!(!world.engine.is_stopped());
    let passed = world.sleep_until(seconds(2) + GRAIN, |world| world.engine.is_stopped());
    assert!(passed >= seconds(1));
    assert_eq!(world.statistics().cut, 0);
}
