//! Health checks: answered by the engine, whoever is busy, and by somebody else while nobody turns it.

mod common;

use common::{Address, Client, End, Event, Plan, World, ms, pattern, seconds, tcp_listener, timeless};
use engine::Config;
use std::time::Duration;

const CHECK: &str = "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
/// Somebody looks so often.
const LOOK: Duration = Duration::from_millis(100);

fn get(id: usize) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

fn config() -> Config {
    Config { health_path: "/healthz".into(), ..timeless() }
}

/// What the only answer is that there is, but for the numbers.
fn answer(client: &Client) -> (u16, String) {
    assert_eq!(client.answers.len(), 1, "{}", client.text());
    let answer = &client.answers[0];
    assert!(!answer.keep_alive);
    assert!(answer.head.contains("Content-Type: application/json\r\n"), "{}", answer.head);
    assert!(answer.head.contains("Cache-Control: no-store\r\n"), "{}", answer.head);
    assert_eq!(answer.head.contains("Retry-After: "), answer.status == 503, "{}", answer.head);
    let json = String::from_utf8(answer.body.clone()).unwrap();
    (answer.status, json.split('"').nth(3).unwrap_or_default().to_owned())
}

/// A check, and its answer while the engine is turned.
fn check(world: &mut World) -> (u16, String) {
    let mut client = world.client();
    world.ask(&mut client, CHECK.as_bytes(), 1);
    assert_eq!(world.end(&mut client), End::Closed);
    answer(&client)
}

/// A client that has sent this, which lies in the kernel.
fn sent(world: &World, bytes: impl AsRef<[u8]>) -> Client {
    let mut client = world.client();
    client.send(bytes);
    client.pump();
    assert_eq!(client.unsent(), 0);
    client
}

/// Somebody looks as often as it takes until those who wait in vain are accepted.
fn service_pending(world: &mut World) {
    for _ in 0..3 {
        world.service_pending(LOOK);
    }
}

/// A world of which the only caller is out, with the request of plan 0, and whose further requests are `ids`.
fn stuck(config: Config, plans: usize) -> (World, Client) {
    let mut world = World::unix(config, (0..plans).map(|id| Plan::sized(&[5 + id])).collect());
    world.keeps = true;
    world.callers = 1;
    let busy = sent(&world, get(0));
    world.settle();
    assert_eq!(world.ids_out(), [0]);
    // What has been done so far is seen.
    world.service_pending(LOOK);
    (world, busy)
}

/// The plans' application knows numbers only, and panics at any other path.
fn quiet() {
    common::quiet(|text| text == "planned" || text.starts_with("the path names a plan"));
}

fn begun(world: &World) -> usize {
    world.app.count(|event| matches!(event, Event::Begin { .. } | Event::Connect { .. }))
}

// ----------------------------------------------------------------------------------------------- while it is turned

#[test]
fn a_check_is_answered_and_the_application_not_asked() {
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
fn a_check_behind_requests_is_answered_in_its_turn() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    let mut client = world.client();
    world.ask(&mut client, (get(0) + &get(0) + CHECK + &get(0)).as_bytes(), 3);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.answers.len(), client.answers[1].body.clone()), (3, pattern(0, 0, 5)));
    assert!(client.answers[2].body.starts_with(b"{\"status\":\"alive\""));
    // A body that nobody wants is no reason to be reset.
    let mut client = world.client();
    client.send("GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(answer(&client), (200, "alive".into()));
}

#[test]
fn who_drains_says_so() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    let mut waits = world.client();
    world.settle();
    world.engine.drain();
    assert_eq!(check(&mut world), (503, "draining".into()));
    let now = world.now();
    world.engine.stop(now, None, seconds(10));
    // Who was let in before can ask still.
    world.ask(&mut waits, CHECK.as_bytes(), 1);
    assert_eq!(answer(&waits), (503, "draining".into()));
}

#[test]
fn all_callers_out_are_no_reason_to_be_restarted() {
    let (mut world, mut busy) = stuck(Config { stalled_after: Some(ms(1)), ..config() }, 2);
    assert_eq!(check(&mut world), (200, "alive".into()), "nobody waits");
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
fn a_check_is_answered_although_the_queue_is_full() {
    for queue in [0, 1] {
        let (mut world, busy) = stuck(Config { queue, ..config() }, 4);
        let mut clients: Vec<_> = std::iter::once(busy).chain((1..4).map(|id| sent(&world, get(id)))).collect();
        world.settle();
        assert_eq!((world.statistics().queued, begun(&world)), (queue as u64, 4 + 1 + queue));
        for round in 1..=3 {
            assert_eq!(check(&mut world), (200, "saturated".into()));
            assert_eq!(world.statistics().health_checks, round);
        }
        // One that comes slowly, too.
        let mut slow = world.client();
        for byte in CHECK.bytes() {
            slow.send([byte]);
            slow.pump();
            world.settle();
        }
        world.until("it is answered", &mut [&mut slow], |_, clients| clients[0].answers.len() == 1);
        assert_eq!(answer(&slow), (200, "saturated".into()));
        // The others are served in their order, each once.
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
fn little_is_read_of_those_who_are_held_back() {
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

/// One that begins like a check and has not shown whether it is one has as much time as any other head.
#[test]
fn half_a_check_waits_for_its_end() {
    let (mut world, _busy) = stuck(Config { queue: 0, header_timeout: Some(seconds(5)), ..config() }, 2);
    let mut half = sent(&world, "GET /heal");
    let mut other = sent(&world, "GET /health HTTP/1.1\r\n");
    world.settle();
    world.sleep_until(seconds(5) + common::GRAIN, |world| world.statistics().timeouts == 1);
    assert_eq!(world.end(&mut half), End::Closed);
    assert_eq!((half.answers[0].status, other.pump(), other.answers.len()), (408, false, 0));
}

#[test]
fn without_a_path_nobody_is_looked_at() {
    let (mut world, mut busy) = stuck(timeless(), 2);
    let mut client = sent(&world, CHECK);
    for _ in 0..20 {
        world.service_pending(LOOK);
    }
    assert_eq!((world.statistics().connections, client.pump()), (1, false));
    quiet();
    world.go_on_with(0);
    world.settle();
    busy.pump();
    world.end(&mut client);
    assert_eq!((busy.answers.len(), client.received.len()), (1, 0));
}

// ---------------------------------------------------------------------------------------- while nobody turns it

#[test]
fn a_check_is_answered_while_nobody_turns() {
    let (mut world, mut busy) = stuck(config(), 1);
    for round in 1..=3 {
        let mut client = sent(&world, CHECK);
        service_pending(&mut world);
        client.pump();
        assert_eq!(answer(&client), (200, "saturated".into()));
        assert!(client.answers[0].body.ends_with(b"\"running\":1,\"queued\":0,\"connections\":2}\n"));
        client.end_sending();
        client.pump();
        world.service_pending(LOOK);
        client.pump();
        assert_eq!(client.end, Some(End::Closed));
        let statistics = world.statistics();
        assert_eq!((statistics.health_checks, statistics.connections, statistics.accepted), (round, 1, 1 + round));
    }
    // The application has heard of none of them.
    assert_eq!(begun(&world), 2);
    world.go_on_with(0);
    world.settle();
    busy.pump();
    assert_eq!((busy.answers.len(), begun(&world), world.statistics().connections), (1, 2, 1));
}

#[test]
fn one_that_asks_to_close_is_closed_at_once() {
    let (mut world, _busy) = stuck(config(), 1);
    let mut client = sent(&world, "HEAD /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.expect_head_at(0);
    service_pending(&mut world);
    client.pump();
    assert_eq!((client.answers[0].status, client.end), (200, Some(End::Closed)));
    assert_eq!(world.statistics().connections, 1);
}

/// The last turn has accepted them, and could not read what they had not sent yet.
#[test]
fn who_was_accepted_and_has_asked_for_nothing_is_looked_after() {
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
    world.service_pending(LOOK);
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
    // Whoever waits for the poller has found them, and waits for something else now.
    let look = |world: &mut World| {
        world.service_pending(LOOK);
        let now = world.now();
        world.engine.service_pending(now, true);
    };
    for client in [&mut early, &mut half, &mut closing] {
        assert!(!client.pump(), "nobody is stuck yet");
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
    // They are the application's to forget.
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

/// Others may accept from the same listener: they have their chance first.
#[test]
fn who_has_just_come_is_left_to_others() {
    let (mut world, _busy) = stuck(config(), 1);
    let client = sent(&world, CHECK);
    for _ in 0..2 {
        world.service_pending(LOOK);
    }
    assert_eq!(world.statistics().accepted, 1);
    world.service_pending(LOOK);
    assert_eq!(world.statistics().accepted, 2);
    drop(client);
    world.service_pending(LOOK);
    // One who comes later has to wait as long, though nobody has turned since.
    let mut client = sent(&world, CHECK);
    for accepted in [2, 2, 3] {
        world.service_pending(LOOK);
        assert_eq!(world.statistics().accepted, accepted);
    }
    client.pump();
    assert_eq!(client.answers.len(), 1);
}

#[test]
fn while_somebody_turns_nobody_is_attended() {
    let mut world = World::unix(config(), vec![Plan::sized(&[5])]);
    world.settle();
    for _ in 0..10 {
        let client = sent(&world, get(0));
        world.service_pending(LOOK);
        assert!(!world.engine.is_stalled());
        world.turn();
        world.service_pending(ms(0));
        drop(client);
    }
    assert_eq!((world.statistics().accepted, world.app.called().len()), (10, 10));
    assert_eq!(world.app.count(|event| matches!(event, Event::Connect { .. })), 10);
    // Nor while there is nothing to do.
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
fn what_is_for_others_waits_for_them_and_is_served_once_in_order() {
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
    assert_eq!(world.timeout(), Some(ms(0)), "whoever comes has something to do");
    // While it is stuck they say more; none of it is read.
    let before = world.statistics().bytes_in;
    for (id, client) in (1..).zip(&mut clients) {
        client.send(get(id));
        client.pump();
    }
    world.service_pending(LOOK);
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
fn who_has_said_nothing_or_half_goes_on_with_whoever_turns() {
    let (mut world, mut busy) = stuck(config(), 3);
    let mut mute = world.client();
    let mut half = sent(&world, "GE");
    let mut half_check = sent(&world, "GET /healthz HTTP/1.1\r\nHo");
    let mut garbage = sent(&world, "\u{1}");
    let mut bad_check = sent(&world, "GET /healthz HTTP/1.1\r\nno host\r\n\r\n");
    let mut ended = sent(&world, "GET /healthz");
    ended.end_sending();
    ended.pump();
    service_pending(&mut world);
    assert_eq!((world.statistics().connections, begun(&world)), (7, 2));
    // One of them gets on.
    half_check.send("st: a\r\n\r\n");
    half_check.pump();
    world.service_pending(LOOK);
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
fn who_leaves_meanwhile_is_forgotten() {
    let (mut world, _busy) = stuck(config(), 2);
    let mute = world.client();
    let asks = sent(&world, get(1));
    let checks = sent(&world, CHECK);
    let half = sent(&world, "GET /heal");
    service_pending(&mut world);
    assert_eq!(world.statistics().connections, 5);
    drop((mute, checks));
    world.service_pending(LOOK);
    assert_eq!(world.statistics().connections, 3);
    drop((half, asks));
    world.service_pending(LOOK);
    assert_eq!(world.statistics().connections, 3, "what they have said is left to whoever turns");
    world.go_on_with(0);
    world.settle();
    // One had to wait, and its peer has left; of the other there is only half.
    assert_eq!((world.app.called(), world.statistics().left, world.statistics().refused), (vec![0], 1, 2));
    assert_eq!(world.statistics().connections, 1);
}

#[test]
fn a_peer_that_never_stops_sending_is_cut() {
    let (listener, address) = tcp_listener(None);
    let mut world = World::on(vec![listener], vec![address], config(), vec![Plan::sized(&[5])]);
    world.settle();
    world.service_pending(LOOK);
    let mut client = sent(&world, CHECK);
    let mut rounds = 0;
    while world.statistics().health_checks == 0 || world.statistics().connections > 0 {
        client.send(vec![b'x'; 20_000]);
        client.pump();
        world.service_pending(LOOK);
        rounds += 1;
        assert!(rounds < 10_000, "it goes on for ever");
    }
    assert!(world.statistics().bytes_in < 5 << 20);
}

#[test]
fn as_many_are_accepted_as_there_may_be() {
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
fn many_are_accepted_little_by_little() {
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
fn one_who_holds_up_everything_for_long_is_stalled() {
    let (mut world, mut busy) = stuck(Config { stalled_after: Some(seconds(30)), ..config() }, 1);
    // Nobody waits: however long it takes, nobody is held up.
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
    // Whoever comes back makes good for it.
    world.go_on_with(0);
    world.settle();
    assert!(!world.engine.is_stalled());
    busy.pump();
    assert_eq!((busy.answers.len(), check(&mut world)), (1, (200, "alive".into())));
    world.service_pending(seconds(100));
    assert!(!world.engine.is_stalled());
}

#[test]
fn others_may_know_that_somebody_waits() {
    for stalled_after in [Some(seconds(5)), None] {
        // Without a health path too.
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
fn a_drained_or_stopping_engine_says_so_to_whoever_is_there() {
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
    world.service_pending(LOOK);
    mute.pump();
    assert_eq!(answer(&mute), (503, "draining".into()));
    world.go_on_with(0);
    world.settle();
    drop((mute, client, busy));
    world.until("it has stopped", &mut [], |world, _| world.engine.is_stopped());
}

#[test]
fn who_is_cut_at_the_end_was_introduced() {
    let (mut world, busy) = stuck(config(), 2);
    let mut clients = [sent(&world, get(1)), world.client(), sent(&world, "GET /heal")];
    service_pending(&mut world);
    assert_eq!(world.statistics().connections, 4);
    let now = world.now();
    world.engine.stop(now, Some(ms(0)), ms(0));
    world.turn();
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
fn a_panic_at_an_introduction_costs_one_connection() {
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
fn a_place_in_the_queue_is_not_inherited_by_a_stranger() {
    let (mut world, _busy) = stuck(Config { queue_timeout: Some(seconds(10)), ..config() }, 4);
    let first = sent(&world, get(1));
    world.settle();
    assert_eq!(world.statistics().queued, 1);
    world.sleep_until(seconds(10) + common::GRAIN, |world| world.statistics().queue_timeouts == 1);
    drop(first);
    world.until("it is gone", &mut [], |world, _| world.statistics().connections == 1);
    let mut queued = sent(&world, get(2));
    // This one gets another slot, and the next the first one's.
    world.settle();
    world.service_pending(LOOK);
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
fn all_listeners_are_looked_after() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("engine.sock");
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let (tcp, address) = tcp_listener(None);
    let mut world = World::on(vec![tcp, unix.into()], vec![address, Address::Unix(path)], config(), vec![]);
    world.settle();
    world.service_pending(LOOK);
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
