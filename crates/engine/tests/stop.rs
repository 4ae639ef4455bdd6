//! Graceful stop: every accepted connection is served, and all connections are closed in time.

use crate::common::{Client, End, Event, GRAIN, Op, Plan, World, listen, ms, pattern, seconds, timeless};
use engine::{Config, STOP_GRACE, UNUSED_GRACE};
use std::time::Duration;

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn stop(world: &mut World, timeout: Option<Duration>) {
    let now = world.now();
    world.engine.stop(now, timeout, STOP_GRACE);
    assert!(!world.engine.is_stopped(), "it has not been polled");
    assert_eq!(world.timeout(), Some(ms(0)), "stopping is work that is due");
}

#[test]
fn engine_without_connections_stops_in_one_poll() {
    for timeout in [None, Some(seconds(30)), Some(ms(0))] {
        let mut world = World::unix(Config::default(), vec![]);
        world.settle();
        stop(&mut world, timeout);
        world.poll();
        assert!(world.engine.is_stopped());
    }
}

#[test]
fn listeners_close_when_the_engine_stops() {
    let (listener, address) = listen(None);
    let crate::common::Address::Tcp(tcp) = address.clone() else { unreachable!() };
    let mut world = World::on(vec![listener], vec![address], timeless(), vec![]);
    stop(&mut world, None);
    world.poll();
    let error = std::net::TcpStream::connect(tcp).expect_err("the listener is closed");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(world.engine.locals().len(), 1, "its addresses are still known");
}

#[test]
fn idle_connection_is_closed_after_its_grace() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    let mut asks = world.client();
    let mut fresh = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    world.ask(&mut asks, get(0).as_bytes(), 1);
    stop(&mut world, Some(seconds(30)));
    world.settle();
    assert_eq!(world.statistics().connections, 3);
    // A request that was on its way is answered; it is the last one.
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
    // The rest of one head arrives in time, and another head begins only now.
    world.ask(&mut halves[1], &get(0).as_bytes()[20..], 1);
    assert_eq!((halves[1].answers[0].status, halves[1].answers[0].keep_alive), (200, false));
    halves[2].send(&get(0)[..20]);
    halves[2].pump();
    world.settle();
    // The engine tells the first client to try again elsewhere. The stop waits for neither longer than its grace.
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

/// Bytes of a head do not extend its time.
#[test]
fn trickling_head_does_not_delay_a_stop() {
    let mut world = World::unix(timeless(), vec![]);
    let mut client = world.client();
    client.send("GET /");
    client.pump();
    world.settle();
    stop(&mut world, Some(seconds(30)));
    world.settle();
    let mut passed = ms(0);
    while world.statistics().refused == 0 {
        assert!(passed < STOP_GRACE + 2 * GRAIN, "the stop still waits after {passed:?}");
        client.send("a");
        client.pump();
        world.advance(ms(50));
        passed += ms(50);
    }
    assert!(passed + ms(50) >= STOP_GRACE, "refused after {passed:?}");
}

/// A whole request that could not be read yet is not taken for half a request, whatever its grace.
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

/// Stops with this time limit, and this grace for idle connections.
fn stop_gracing(world: &mut World, timeout: Option<Duration>, grace: Duration) {
    let now = world.now();
    world.engine.stop(now, timeout, grace);
    world.settle();
}

#[test]
fn longer_grace_waits_for_one_more_request_of_each_idle_connection() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    let mut asks = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    world.ask(&mut asks, get(0).as_bytes(), 1);
    world.settle();
    stop_gracing(&mut world, Some(seconds(60)), seconds(20));
    world.advance(seconds(15));
    assert_eq!(world.statistics().connections, 2);
    world.ask(&mut asks, get(0).as_bytes(), 2);
    assert!(!asks.answers[1].keep_alive);
    assert_eq!(world.end(&mut asks), End::Closed);
    drop(asks);
    assert!(!world.engine.is_stopped());
    world.sleep_until(seconds(5) + GRAIN, |world| world.engine.is_stopped());
    assert_eq!((world.end(&mut idle), world.statistics().cut), (End::Closed, 0));
}

#[test]
fn connection_that_never_sent_a_byte_does_not_keep_a_stopping_engine_alive() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
    let mut silent = world.client();
    let mut late = world.client();
    let mut slow = world.client();
    world.settle();
    stop_gracing(&mut world, Some(seconds(60)), seconds(30));
    world.advance(UNUSED_GRACE.saturating_sub(ms(100)));
    assert_eq!(world.statistics().connections, 3);
    // A request that arrives until then is answered, and one that has begun may take as long as others.
    world.ask(&mut late, get(0).as_bytes(), 1);
    assert_eq!(world.end(&mut late), End::Closed);
    drop(late);
    slow.send("GET /0 HTTP/1.1\r\n");
    slow.pump();
    world.settle();
    world.sleep_until(ms(100) + 2 * GRAIN, |world| world.statistics().connections == 1);
    assert_eq!((world.end(&mut silent), silent.received.len()), (End::Closed, 0));
    world.advance(seconds(20));
    world.ask(&mut slow, b"Host: a.example\r\n\r\n", 1);
    assert_eq!(world.end(&mut slow), End::Closed);
    drop(slow);
    world.settle();
    assert!(world.engine.is_stopped());
    assert_eq!(world.statistics().cut, 0);
}

#[test]
fn grace_does_not_extend_the_keep_alive_timeout() {
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
fn grace_ends_with_the_time_limit_of_the_stop() {
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
fn second_stop_can_only_shorten_the_grace() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    stop_gracing(&mut world, None, seconds(60));
    stop_gracing(&mut world, None, seconds(90));
    assert!(world.timeout().is_some_and(|due| due <= seconds(60) + GRAIN), "{:?}", world.timeout());
    // The grace counts from the stop that shortens it.
    world.advance(seconds(10));
    stop_gracing(&mut world, None, seconds(5));
    assert!(world.timeout().is_some_and(|due| due <= seconds(5) + GRAIN), "{:?}", world.timeout());
    stop_gracing(&mut world, None, seconds(20));
    world.sleep_until(seconds(5) + GRAIN, |world| world.engine.is_stopped());
    assert_eq!(world.end(&mut idle), End::Closed);
}

#[test]
fn stop_without_grace_closes_only_idle_connections_at_once() {
    let plans = vec![Plan::sized(&[5]), Plan::of(vec![Op::Yield, Op::Write(5)])];
    let mut world = World::unix(timeless(), plans);
    let mut idle = world.client();
    let mut busy = world.client();
    world.ask(&mut idle, get(0).as_bytes(), 1);
    busy.send(get(1));
    busy.pump();
    world.poll();
    let now = world.now();
    world.engine.stop(now, None, ms(0));
    world.ask(&mut busy, b"", 1);
    assert!(!busy.answers[0].keep_alive);
    world.sleep_until(GRAIN, |world| world.statistics().connections <= 1);
    assert_eq!(world.end(&mut idle), End::Closed);
}

#[test]
fn draining_engine_serves_and_closes_each_connection_after_its_response() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    let mut idle = world.client();
    let mut asks = world.client();
    for client in [&mut idle, &mut asks] {
        world.ask(client, get(0).as_bytes(), 1);
        assert!(client.answers[0].keep_alive);
    }
    world.engine.drain();
    world.settle();
    // The engine tells clients that send a request to close the connection, and new clients too.
    let mut new = world.client();
    for (client, answers) in [(&mut asks, 2), (&mut new, 1)] {
        world.ask(client, get(0).as_bytes(), answers);
        assert!(!client.answers[answers - 1].keep_alive);
        assert_eq!(world.end(client), End::Closed);
    }
    // Idle clients stay connected as long as ever.
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
fn stop_first_accepts_connections_from_the_backlog() {
    let mut world = World::unix(Config::default(), vec![Plan::sized(&[5])]);
    world.settle();
    // More than one poll accepts otherwise.
    let mut clients: Vec<Client> = (0..100).map(|_| world.client()).collect();
    for client in &mut clients[1..] {
        client.send(get(0));
        client.pump();
    }
    stop(&mut world, Some(seconds(30)));
    world.poll();
    assert_eq!(world.statistics().accepted, 100);
    world.settle();
    for client in &mut clients[1..] {
        client.pump();
        assert_eq!(client.answers.len(), 1);
    }
    // The first has sent nothing yet, and has its grace to do so.
    assert_eq!(clients[0].end, None);
    world.ask(&mut clients[0], get(0).as_bytes(), 1);
    assert!(!clients[0].answers[0].keep_alive);
    drop(clients);
    world.until("it has stopped", &mut [], |world, _| world.engine.is_stopped());
}

#[test]
fn requests_in_progress_are_completed_during_a_stop() {
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
    // Longer than the grace of an idle connection.
    for _ in 0..3 {
        world.advance(seconds(1));
        world.settle();
        assert_eq!(world.statistics().connections, 2);
    }
    world.ask(&mut uploads, b"half", 1);
    assert_eq!(uploads.answers[0].body, b"halfhalf");
    // Its answer began after the stop, and says `close`.
    assert!(!uploads.answers[0].keep_alive);
    answered.reads = true;
    world.until("the large answer is here", &mut [&mut answered], |_, clients| clients[0].answers.len() == 1);
    assert!(answered.answers[0].body == pattern(0, 0, 1_000_000));
    world.end(&mut uploads);
    drop(uploads);
    // A connection whose answer promised to keep it alive is closed like an idle one.
    let passed = world.sleep_until(STOP_GRACE + GRAIN, |world| world.engine.is_stopped());
    assert!(passed >= STOP_GRACE.saturating_sub(GRAIN), "after {passed:?}");
    assert_eq!(world.end(&mut answered), End::Closed);
    assert_eq!((world.statistics().cut, world.app.alive()), (0, 0));
}

#[test]
fn deadline_of_a_stop_cuts_remaining_connections() {
    let plans = vec![Plan::sized(&[50_000; 20]), Plan::of(vec![Op::Echo])];
    let (listener, address) = listen(Some(16 << 10));
    let mut world = World::on(vec![listener], vec![address], timeless(), plans);
    let mut answered = world.client();
    answered.reads = false;
    answered.send(get(0));
    let mut uploads = world.client();
    uploads.send("PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    world.until("both have begun", &mut [&mut answered, &mut uploads], |world, _| world.app.alive() == 2);
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
fn second_stop_can_only_shorten_the_time_limit() {
    let mut world = World::unix(timeless(), vec![Plan::of(vec![Op::Echo])]);
    let mut client = world.client();
    client.send("PUT /0 HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    client.pump();
    world.settle();
    stop(&mut world, None);
    world.settle();
    // No deadline will ever be due, so no poll is requested.
    assert_eq!(world.timeout(), None);
    let again = |world: &mut World, timeout| {
        let now = world.now();
        world.engine.stop(now, timeout, STOP_GRACE);
        world.poll();
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
fn stop_without_time_cuts_at_once() {
    let mut world = World::unix(timeless(), vec![Plan::sized(&[50_000; 20])]);
    let mut client = world.client();
    client.reads = false;
    client.send(get(0));
    client.pump();
    world.settle();
    assert_eq!(world.app.alive(), 1);
    stop(&mut world, Some(ms(0)));
    world.poll();
    assert!(world.engine.is_stopped());
    assert_eq!((world.app.abandoned(0), world.app.alive()), (1, 0));
}

/// This includes a call that runs already, if its response has not begun.
#[test]
fn stop_closes_connections_after_answers_that_have_not_begun() {
    let mut world = World::unix(timeless(), vec![Plan::of(vec![Op::Yield, Op::Write(5)])]);
    let mut client = world.client();
    client.send(get(0));
    client.pump();
    world.poll();
    assert_eq!((world.app.called(), world.app.resumed(0)), (vec![0], 0));
    stop(&mut world, None);
    world.until("it is answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert!(!client.answers[0].keep_alive);
    assert_eq!(world.end(&mut client), End::Closed);
}

/// The server lingers for peers that still send. This does not extend a stop beyond its time limit.
#[test]
fn lingering_connection_does_not_delay_a_stop() {
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
