//! Health checks: answered by the engine however busy it is, and by the ticker while no thread polls.

use crate::common::{Client, End, Event, Plan, World, listen, ms, pattern, seconds, timeless};
use engine::Config;
use std::time::Duration;

pub(crate) const CHECK: &str = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
/// The interval at which pending connections are serviced.
pub(crate) const SERVICE_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

pub(crate) fn config() -> Config {
    Config { health_path: "/healthz".into(), ..timeless() }
}

/// Returns status and state of the only answer, and checks its other parts.
pub(crate) fn answer(client: &Client) -> (u16, String) {
    assert_eq!(client.answers.len(), 1, "{}", client.text());
    let answer = &client.answers[0];
    assert!(!answer.keep_alive);
    assert!(answer.head.contains("Content-Type: application/json\r\n"), "{}", answer.head);
    assert!(answer.head.contains("Cache-Control: no-store\r\n"), "{}", answer.head);
    assert_eq!(answer.head.contains("Retry-After: "), answer.status == 503, "{}", answer.head);
    let json = String::from_utf8(answer.body.clone()).unwrap();
    (answer.status, json.split('"').nth(3).unwrap_or_default().to_owned())
}

/// Makes a check, and returns its answer, while the engine is polled.
pub(crate) fn check(world: &mut World) -> (u16, String) {
    let mut client = world.client();
    world.ask(&mut client, CHECK.as_bytes(), 1);
    assert_eq!(world.end(&mut client), End::Closed);
    answer(&client)
}

/// Returns a client whose sent bytes are unread in the kernel.
pub(crate) fn sent(world: &World, bytes: impl AsRef<[u8]>) -> Client {
    let mut client = world.client();
    client.send(bytes);
    client.pump();
    assert_eq!(client.unsent(), 0);
    client
}

/// Services pending connections until new ones are accepted.
pub(crate) fn service_pending(world: &mut World) {
    for _ in 0..3 {
        world.service_pending(SERVICE_INTERVAL);
    }
}

/// Returns a world whose only call, of plan 0, is running. Plans 1 to `plans` are for further requests.
pub(crate) fn stuck(config: Config, plans: usize) -> (World, Client) {
    let mut world = World::unix(config, (0..plans).map(|id| Plan::sized(&[5 + id])).collect());
    world.keeps = true;
    world.callers = 1;
    let busy = sent(&world, get(0));
    world.settle();
    assert_eq!(world.ids_out(), [0]);
    // The ticker notices what has been done so far.
    world.service_pending(SERVICE_INTERVAL);
    (world, busy)
}

/// The scripted application panics at any path but numbers.
pub(crate) fn quiet() {
    crate::common::quiet(|text| text == "planned" || text.starts_with("the path names a plan"));
}

pub(crate) fn begun(world: &World) -> usize {
    world.app.count(|event| matches!(event, Event::Begin { .. } | Event::Connect { .. }))
}

// -------------------------------------------------------------------------------------- while the engine is polled

#[test]
fn check_is_answered_without_the_application() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    let mut client = world.client();
    world.ask(&mut client, CHECK.as_bytes(), 1);
    assert_eq!(
        client.text(),
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nContent-Length: 58\r\n\
         Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: kirsch\r\nConnection: close\r\n\r\n\
         {\"status\":\"alive\",\"running\":0,\"queued\":0,\"connections\":1}\n"
    );
    assert_eq!(world.end(&mut client), End::Closed);
    drop(client);
    world.until_empty(&mut []);
    assert_eq!(world.app.log, [Event::Connect { listener: 0, has_address: false }]);
    let statistics = world.statistics();
    assert_eq!((statistics.health_checks, statistics.requests, statistics.refused), (1, 0, 0));
    assert_eq!((statistics.statuses, statistics.accepted), ([0; 5], 1));
}

#[test]
fn only_get_and_head_of_this_path_are_checks() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    for target in ["/healthz?", "/healthz?verbose=1", "http://a/healthz"] {
        let mut client = world.client();
        world.ask(&mut client, format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 1);
        assert_eq!(answer(&client), (200, "alive".into()));
    }
    let mut client = world.client();
    client.expect_head_at(0);
    world.ask(&mut client, b"HEAD /healthz HTTP/1.0\r\n\r\n", 1);
    assert_eq!((client.answers[0].status, client.answers[0].body.len()), (200, 0));
    assert!(client.answers[0].head.contains("Content-Length: 58\r\n"));
    assert_eq!(world.statistics().health_checks, 4);
    quiet();
    for (method, target) in [("POST", "/healthz"), ("GET", "/healthz/"), ("GET", "/health"), ("GET", "/")] {
        let mut client = world.client();
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        world.end(&mut client);
        assert!(client.received.is_empty());
    }
    assert_eq!((world.statistics().health_checks, world.statistics().panics), (4, 4));
}

#[test]
fn check_after_requests_is_answered_in_order() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    let mut client = world.client();
    world.ask(&mut client, (get(0) + &get(0) + CHECK + &get(0)).as_bytes(), 3);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers.len(), client.answers[1].body.clone()), (3, pattern(0, 0, 5)));
    assert!(client.answers[2].body.starts_with(b"{\"status\":\"alive\""));
    // An unread body does not make the engine reset the connection.
    let mut client = world.client();
    client.send("GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(answer(&client), (200, "alive".into()));
}

#[test]
fn draining_engine_reports_that_it_drains() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    let mut waits = world.client();
    world.settle();
    world.engine.drain();
    assert_eq!(check(&mut world), (503, "draining".into()));
    let now = world.now();
    world.engine.stop(now, None, seconds(10));
    // A connection accepted before can still make a check.
    world.ask(&mut waits, CHECK.as_bytes(), 1);
    assert_eq!(answer(&waits), (503, "draining".into()));
}

#[test]
fn engine_with_all_calls_taken_is_alive_while_no_request_waits() {
    let (mut world, mut busy) = stuck(Config { stalled_after: Some(ms(1)), ..config() }, 2);
    assert_eq!(check(&mut world), (200, "alive".into()), "no request waits");
    let mut queued = sent(&world, get(1));
    world.settle();
    for _ in 0..3 {
        world.advance(seconds(100));
        assert_eq!(check(&mut world), (200, "saturated".into()));
    }
    world.go_on_with(0);
    world.settle();
    world.go_on_with(1);
    world.settle();
    for client in [&mut busy, &mut queued] {
        client.pump();
        assert_eq!(client.answers.len(), 1);
    }
    assert_eq!(check(&mut world), (200, "alive".into()));
}

#[test]
fn check_is_answered_when_the_queue_is_full() {
    for queue in [0, 1] {
        let (mut world, busy) = stuck(Config { queue, ..config() }, 4);
        let mut clients: Vec<_> = std::iter::once(busy).chain((1..4).map(|id| sent(&world, get(id)))).collect();
        world.settle();
        assert_eq!((world.statistics().queued, begun(&world)), (queue as u64, 4 + 1 + queue));
        for round in 1..=3 {
            assert_eq!(check(&mut world), (200, "saturated".into()));
            assert_eq!(world.statistics().health_checks, round);
        }
        // One that arrives slowly is answered, too.
        let mut slow = world.client();
        for byte in CHECK.bytes() {
            slow.send([byte]);
            slow.pump();
            world.settle();
        }
        world.until("it is answered", &mut [&mut slow], |_, clients| clients[0].answers.len() == 1);
        assert_eq!(answer(&slow), (200, "saturated".into()));
        // The other requests are served in order, once each.
        for (id, client) in clients.iter_mut().enumerate() {
            assert_eq!(world.ids_out(), [id]);
            world.go_on_with(id);
            world.settle();
            client.pump();
            assert_eq!(client.answers.len(), 1);
            assert_eq!(client.answers[0].body, pattern(id, 0, 5 + id));
        }
    }
}

#[test]
fn little_is_read_from_paused_connections() {
    let (mut world, _busy) = stuck(Config { queue: 0, ..config() }, 2);
    let before = world.statistics().bytes_in;
    let head = "PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n";
    let mut client = world.client();
    client.send(head);
    client.send(vec![b'x'; 300_000]);
    for _ in 0..10 {
        client.pump();
        world.settle();
    }
    assert!(world.statistics().bytes_in - before <= 1024, "{}", world.statistics().bytes_in - before);
    world.go_on_with(0);
    world.until("it is called", &mut [&mut client], |world, _| world.is_out(1));
    assert_eq!(world.app.body(1).unwrap().bytes(), vec![b'x'; 300_000]);
}

/// A connection whose first bytes could be those of a check has as much time as any other head.
#[test]
fn half_sent_check_has_the_time_of_a_head() {
    let (mut world, _busy) = stuck(Config { queue: 0, header_timeout: Some(seconds(5)), ..config() }, 2);
    let mut half = sent(&world, "GET /heal");
    let mut other = sent(&world, "GET /health HTTP/1.1\r\n");
    world.settle();
    world.sleep_until(seconds(5) + crate::common::GRAIN, |world| world.statistics().timeouts == 1);
    assert_eq!(world.end(&mut half), End::Closed);
    assert_eq!((half.answers[0].status, other.pump(), other.answers.len()), (408, false, 0));
}

#[test]
fn pending_connections_are_not_serviced_without_a_health_path() {
    let (mut world, mut busy) = stuck(timeless(), 2);
    let mut client = sent(&world, CHECK);
    for _ in 0..20 {
        world.service_pending(SERVICE_INTERVAL);
    }
    assert_eq!((world.statistics().connections, client.pump()), (1, false));
    quiet();
    world.go_on_with(0);
    world.settle();
    busy.pump();
    world.end(&mut client);
    assert_eq!((busy.answers.len(), client.received.len()), (1, 0));
}

// -------------------------------------------------------------------------------------------- while no thread polls

#[test]
fn check_is_answered_while_no_thread_polls() {
    let (mut world, mut busy) = stuck(config(), 1);
    for round in 1..=3 {
        let mut client = sent(&world, CHECK);
        service_pending(&mut world);
        client.pump();
        assert_eq!(answer(&client), (200, "saturated".into()));
        assert!(client.answers[0].body.ends_with(b"\"running\":1,\"queued\":0,\"connections\":2}\n"));
        client.end_sending();
        client.pump();
        world.service_pending(SERVICE_INTERVAL);
        client.pump();
        assert_eq!(client.end, Some(End::Closed));
        let statistics = world.statistics();
        assert_eq!((statistics.health_checks, statistics.connections, statistics.accepted), (round, 1, 1 + round));
    }
    // The application was called for none of them.
    assert_eq!(begun(&world), 2);
    world.go_on_with(0);
    world.settle();
    busy.pump();
    assert_eq!((busy.answers.len(), begun(&world), world.statistics().connections), (1, 2, 1));
}

#[test]
fn check_with_connection_close_is_closed_at_once() {
    let (mut world, _busy) = stuck(config(), 1);
    let mut client = sent(&world, "HEAD /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.expect_head_at(0);
    service_pending(&mut world);
    client.pump();
    assert_eq!((client.answers[0].status, client.end), (200, Some(End::Closed)));
    assert_eq!(world.statistics().connections, 1);
}

/// The last poll has accepted the connections, whose clients had not sent anything yet.
#[test]
fn check_on_an_idle_accepted_connection_is_answered() {
    let mut world = World::unix(config(), (0..3).map(|id| Plan::sized(&[5 + id])).collect());
    world.keeps = true;
    world.callers = 1;
    let mut old = world.client();
    old.send(get(0));
    world.until("it is out", &mut [&mut old], |world, _| world.ids_out() == [0]);
    world.go_on_with(0);
    world.until("it is answered", &mut [&mut old], |_, clients| clients[0].answers.len() == 1);
    let mut mute = world.client();
    let mut early = world.client();
    let mut half = sent(&world, "GET /heal");
    let mut closing = world.client();
    let leaving = world.client();
    let mut other = world.client();
    let busy = sent(&world, get(1));
    world.settle();
    assert_eq!((world.ids_out(), world.statistics().connections), (vec![1], 8));
    world.service_pending(SERVICE_INTERVAL);
    for (client, said) in [
        (&mut early, CHECK),
        (&mut half, &CHECK[9..]),
        (&mut closing, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        (&mut other, &get(2)),
        (&mut old, CHECK),
    ] {
        client.send(said);
        client.pump();
    }
    drop(leaving);
    // The leader has taken the events of these connections, and waits for others now.
    let look = |world: &mut World| {
        world.service_pending(SERVICE_INTERVAL);
        let now = world.now();
        world.engine.service_pending(now, true);
    };
    for client in [&mut early, &mut half, &mut closing] {
        assert!(!client.pump(), "no reply before the check is made");
    }
    for _ in 0..3 {
        look(&mut world);
    }
    for client in [&mut early, &mut half, &mut closing] {
        client.pump();
        assert_eq!(answer(client), (200, "saturated".into()));
        client.end_sending();
        client.pump();
    }
    look(&mut world);
    for client in [&mut early, &mut half, &mut closing] {
        client.pump();
        assert_eq!(client.end, Some(End::Closed));
    }
    // The application is notified of their close.
    assert_eq!((world.statistics().connections, world.statistics().health_checks), (8, 3));
    assert!(!mute.pump() && !old.pump() && !other.pump());
    world.callers = 3;
    world.keeps = false;
    world.go_on_with(1);
    world.settle();
    assert_eq!(world.statistics().connections, 4);
    for (client, id) in [(&mut other, 2), (&mut mute, 0)] {
        if id == 0 {
            client.send(get(0));
        }
        world.until("it is answered", &mut [client], |_, clients| clients[0].answers.len() == 1);
        assert_eq!(client.answers[0].body, pattern(id, 0, 5 + id));
    }
    assert_eq!(world.end(&mut old), End::Closed);
    assert_eq!((old.answers.len(), busy.unsent(), world.statistics().panics), (2, 0, 0));
}

/// Other engines may accept from the same listener, and get a chance first.
#[test]
fn new_connection_is_left_to_other_engines_first() {
    let (mut world, _busy) = stuck(config(), 1);
    let client = sent(&world, CHECK);
    for _ in 0..2 {
        world.service_pending(SERVICE_INTERVAL);
    }
    assert_eq!(world.statistics().accepted, 1);
    world.service_pending(SERVICE_INTERVAL);
    assert_eq!(world.statistics().accepted, 2);
    drop(client);
    world.service_pending(SERVICE_INTERVAL);
    // A later connection has to wait as long, though no thread has polled since.
    let mut client = sent(&world, CHECK);
    for accepted in [2, 2, 3] {
        world.service_pending(SERVICE_INTERVAL);
        assert_eq!(world.statistics().accepted, accepted);
    }
    client.pump();
    assert_eq!(client.answers.len(), 1);
}

#[test]
fn pending_connections_are_not_serviced_while_the_engine_is_polled() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    world.settle();
    for _ in 0..10 {
        let client = sent(&world, get(0));
        world.service_pending(SERVICE_INTERVAL);
        assert!(!world.engine.is_stalled());
        world.poll();
        world.service_pending(ms(0));
        drop(client);
    }
    assert_eq!((world.statistics().accepted, world.app.called().len()), (10, 10));
    assert_eq!(world.app.count(|event| matches!(event, Event::Connect { .. })), 10);
    // The same holds while no call runs.
    world.until_empty(&mut []);
    while let Some(wait) = world.timeout() {
        world.advance(wait);
    }
    for _ in 0..100 {
        world.service_pending(seconds(1));
    }
    assert!(!world.engine.is_stalled());
}

#[test]
fn requests_on_pending_connections_are_served_once_in_order_by_the_next_poll() {
    let (mut world, mut busy) = stuck(config(), 6);
    let mut clients = Vec::new();
    let mut checks = Vec::new();
    for id in 1..6 {
        clients.push(sent(&world, get(id)));
        checks.push(sent(&world, CHECK));
    }
    service_pending(&mut world);
    for check in &mut checks {
        check.pump();
        assert_eq!(answer(check), (200, "saturated".into()));
    }
    drop(checks);
    service_pending(&mut world);
    assert_eq!((world.statistics().connections, world.statistics().accepted, begun(&world)), (6, 11, 2));
    assert_eq!(world.timeout(), Some(ms(0)), "work is due");
    // While the engine is busy, they send more; none of it is read.
    let before = world.statistics().bytes_in;
    for (id, client) in (1..).zip(&mut clients) {
        client.send(get(id));
        client.pump();
    }
    world.service_pending(SERVICE_INTERVAL);
    assert_eq!(world.statistics().bytes_in, before);
    world.go_on_with(0);
    world.settle();
    busy.pump();
    assert_eq!(busy.answers.len(), 1);
    for round in 1..=2 {
        for (id, client) in (1..).zip(&mut clients) {
            assert_eq!(world.ids_out(), [id]);
            world.go_on_with(id);
            world.settle();
            client.pump();
            assert_eq!((client.answers.len(), client.answers[round - 1].body.clone()), (round, pattern(id, 0, 5 + id)));
        }
    }
    assert_eq!(world.app.called(), [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
    assert_eq!(world.app.count(|event| matches!(event, Event::Connect { .. })), 6);
}

#[test]
fn silent_and_half_sent_connections_continue_with_the_next_poll() {
    let (mut world, mut busy) = stuck(config(), 3);
    let mut mute = world.client();
    let mut half = sent(&world, "GE");
    let mut half_check = sent(&world, "GET /healthz HTTP/1.1\r\nHo");
    let mut garbage = sent(&world, "\u{2}");
    let mut bad_check = sent(&world, "GET /healthz HTTP/1.1\r\nno host\r\n\r\n");
    let mut ended = sent(&world, "GET /healthz");
    ended.end_sending();
    ended.pump();
    service_pending(&mut world);
    assert_eq!((world.statistics().connections, begun(&world)), (7, 2));
    // One of them sends the rest.
    half_check.send("st: a\r\n\r\n");
    half_check.pump();
    world.service_pending(SERVICE_INTERVAL);
    half_check.pump();
    assert_eq!(answer(&half_check), (200, "saturated".into()));
    world.callers = 3;
    world.keeps = false;
    world.go_on_with(0);
    world.settle();
    world.ask(&mut mute, get(1).as_bytes(), 1);
    world.ask(&mut half, &get(2).as_bytes()[2..], 1);
    for client in [&mut garbage, &mut bad_check, &mut ended] {
        assert_eq!(world.end(client), End::Closed);
        assert_eq!(client.answers[0].status, 400);
    }
    busy.pump();
    assert_eq!((busy.answers.len(), world.statistics().refused, world.statistics().health_checks), (1, 3, 1));
    assert_eq!(world.app.count(|event| matches!(event, Event::Refused { .. })), 3);
}

#[test]
fn pending_connection_that_closes_is_dropped() {
    let (mut world, _busy) = stuck(config(), 2);
    let mute = world.client();
    let asks = sent(&world, get(1));
    let checks = sent(&world, CHECK);
    let half = sent(&world, "GET /heal");
    service_pending(&mut world);
    assert_eq!(world.statistics().connections, 5);
    drop((mute, checks));
    world.service_pending(SERVICE_INTERVAL);
    assert_eq!(world.statistics().connections, 3);
    drop((half, asks));
    world.service_pending(SERVICE_INTERVAL);
    assert_eq!(world.statistics().connections, 3, "their bytes are left to the next poll");
    world.go_on_with(0);
    world.settle();
    // One had to wait, and its peer has closed; of the other only half a head was sent.
    assert_eq!((world.app.called(), world.statistics().left, world.statistics().refused), (vec![0], 1, 2));
    assert_eq!(world.statistics().connections, 1);
}

#[test]
fn peer_that_never_stops_sending_is_cut() {
    let (listener, address) = listen(None);
    let mut world = World::on(vec![listener], vec![address], config(), vec![Plan::sized(&[5])]);
    world.settle();
    world.service_pending(SERVICE_INTERVAL);
    let mut client = sent(&world, CHECK);
    let mut rounds = 0;
    while world.statistics().health_checks == 0 || world.statistics().connections > 0 {
        client.send(vec![b'x'; 20_000]);
        client.pump();
        world.service_pending(SERVICE_INTERVAL);
        rounds += 1;
        assert!(rounds < 10_000, "the peer is cut after a while");
    }
    assert!(world.statistics().bytes_in < 5 << 20);
}

#[test]
fn pending_connections_are_accepted_up_to_the_limit() {
    let (mut world, _busy) = stuck(Config { connections: 4, ..config() }, 1);
    let mut clients: Vec<_> = (0..6).map(|_| sent(&world, get(0))).collect();
    service_pending(&mut world);
    service_pending(&mut world);
    assert_eq!((world.statistics().connections, world.statistics().accept_pauses), (4, 0));
    world.keeps = false;
    world.go_on_with(0);
    world.settle();
    drop(clients.drain(..3));
    world.until("all are answered", &mut clients.iter_mut().collect::<Vec<_>>(), |_, clients| {
        clients.iter().all(|client| client.answers.len() == 1)
    });
}

#[test]
fn many_pending_connections_are_accepted_in_several_rounds() {
    let (mut world, _busy) = stuck(config(), 1);
    let clients: Vec<_> = (0..300).map(|_| world.client()).collect();
    let mut check = sent(&world, CHECK);
    service_pending(&mut world);
    let first = world.statistics().connections;
    assert!(first > 50 && first < 200, "{first}");
    service_pending(&mut world);
    check.pump();
    assert_eq!(answer(&check), (200, "saturated".into()));
    world.go_on_with(0);
    world.settle();
    assert_eq!(world.statistics().connections, 302);
    drop((clients, check));
    world.until("they are gone", &mut [], |world, _| world.statistics().connections == 1);
}

#[test]
fn engine_is_stalled_when_requests_wait_and_no_thread_polls_for_long() {
    let (mut world, mut busy) = stuck(Config { stalled_after: Some(seconds(30)), ..config() }, 1);
    // No request waits: however long the call takes, it delays none.
    world.service_pending(seconds(100));
    assert!(!world.engine.is_stalled());
    let ask = |world: &mut World| {
        let mut client = sent(world, CHECK);
        service_pending(world);
        client.pump();
        answer(&client)
    };
    assert_eq!(ask(&mut world), (200, "saturated".into()));
    world.service_pending(seconds(15));
    assert_eq!(ask(&mut world), (200, "saturated".into()));
    world.service_pending(seconds(16));
    assert!(world.engine.is_stalled());
    assert_eq!(ask(&mut world), (503, "stalled".into()));
    // The next poll ends the stall.
    world.go_on_with(0);
    world.settle();
    assert!(!world.engine.is_stalled());
    busy.pump();
    assert_eq!((busy.answers.len(), check(&mut world)), (1, (200, "alive".into())));
    world.service_pending(seconds(100));
    assert!(!world.engine.is_stalled());
}
