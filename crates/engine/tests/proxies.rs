//! Proxies in front of the server: headers of the PROXY protocol, and fields that name the client.

use crate::common::{Client, End, Event, GRAIN, Plan, World, ms, seconds, timeless};
use engine::{Config, Rejection};
use wire::forwarded::{Trust, Trusted};
use wire::proxy::ProxyFault;

const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\r\n";
const GET: &[u8] = b"GET /0 HTTP/1.1\r\nHost: a\r\n\r\n";
const CHECK: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
/// A time that is longer than a connection has to wait until the watchdog accepts it.
const WATCHDOG: std::time::Duration = ms(200);

fn config() -> Config {
    Config { proxy_listeners: vec![true], ..timeless() }
}

fn world(config: Config) -> World {
    World::unix(config, (0..3).map(|_| Plan::sized(&[5])).collect())
}

fn rejections(world: &World) -> Vec<Rejection> {
    let rejection = |event: &Event| if let Event::Rejected(rejection) = event { Some(*rejection) } else { None };
    world.app.log.iter().filter_map(rejection).collect()
}

#[test]
fn request_behind_a_header_is_served_however_it_is_cut() {
    let stream = [HEADER, GET, GET].concat();
    for cut in 0..stream.len() {
        let mut world = world(config());
        let mut client = world.client();
        client.send(&stream[..cut]);
        client.pump();
        world.settle();
        client.send(&stream[cut..]);
        world.until("both are answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 2);
        assert_eq!(rejections(&world), []);
    }
    let mut world = world(config());
    let mut client = world.client();
    for byte in &stream {
        client.send([*byte]);
        client.pump();
        world.settle();
    }
    world.until("both are answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 2);
}

#[test]
fn second_header_is_a_malformed_request() {
    let mut world = world(config());
    let mut client = world.client();
    client.send([HEADER, GET, HEADER].concat());
    world.until("both are answered", &mut [&mut client], |_, clients| clients[0].answers.len() == 2);
    assert_eq!((client.answers[0].status, client.answers[1].status), (200, 400));
}

fn is_closed_without_an_answer(world: &mut World, mut client: Client, expected: &[Rejection]) {
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!((client.received.len(), rejections(world).as_slice()), (0, expected));
    assert!(!world.app.log.iter().any(|event| matches!(event, Event::Begin { .. } | Event::Refused { .. })));
    drop(client);
    world.until_empty(&mut []);
}

#[test]
fn connection_without_a_header_is_closed_without_an_answer() {
    let mut world = world(config());
    let mut client = world.client();
    client.send(GET);
    is_closed_without_an_answer(&mut world, client, &[Rejection::Header(ProxyFault::NoHeader)]);
}

#[test]
fn connection_that_ends_within_its_header_is_closed_without_an_answer() {
    let mut world = world(config());
    let mut client = world.client();
    client.send(&HEADER[..20]);
    client.end_sending();
    is_closed_without_an_answer(&mut world, client, &[Rejection::Header(ProxyFault::Truncated)]);
}

#[test]
fn connection_that_sends_nothing_is_no_mistake() {
    let mut world = world(config());
    let mut client = world.client();
    client.end_sending();
    is_closed_without_an_answer(&mut world, client, &[]);
}

#[test]
fn peer_that_may_send_no_header_is_closed_before_it_sends() {
    let mut world = world(Config { proxy_from: Some(Trusted::read("10.0.0.0/8").unwrap()), ..config() });
    let client = world.client();
    is_closed_without_an_answer(&mut world, client, &[Rejection::NotAllowed]);
}

#[test]
fn peer_that_may_send_a_header_is_served() {
    let mut world = world(Config { proxy_from: Some(Trusted::read("unix").unwrap()), ..config() });
    let mut client = world.client();
    client.send(HEADER);
    world.ask(&mut client, GET, 1);
}

/// The header has three seconds even if a head has less, and the head has its full time after the header.
#[test]
fn header_has_a_deadline_of_its_own() {
    for (header_timeout, limit) in [(seconds(1), 3000), (seconds(8), 8000)] {
        let mut world = world(Config { header_timeout: Some(header_timeout), ..config() });
        let mut late = world.client();
        late.send(&HEADER[..20]);
        late.pump();
        let mut slow = world.client();
        slow.send(&HEADER[..20]);
        slow.pump();
        world.settle();
        world.advance(ms(limit - 200));
        assert_eq!(world.statistics().connections, 2);
        slow.send(&HEADER[20..]);
        slow.send(&GET[..10]);
        slow.pump();
        world.settle();
        world.sleep_until(ms(200) + GRAIN, |world| world.statistics().connections == 1);
        is_closed_late(&mut world, &mut late);
        // The head began with the last byte of the header.
        world.sleep_until(header_timeout + GRAIN, |world| world.statistics().timeouts == 2);
        assert_eq!(world.end(&mut slow), End::Closed);
        assert_eq!(slow.answers[0].status, 408);
    }
}

fn is_closed_late(world: &mut World, client: &mut Client) {
    assert_eq!((world.statistics().timeouts, world.statistics().connections), (1, 1));
    world.end(client);
    assert_eq!(client.received.len(), 0);
}

#[test]
fn health_check_behind_a_header_is_answered_while_no_thread_polls() {
    let mut world = world(Config { health_path: "/healthz".into(), ..config() });
    world.keeps = true;
    world.callers = 1;
    let mut busy = world.client();
    busy.send([HEADER, GET].concat());
    world.until("it is out", &mut [&mut busy], |world, _| world.ids_out() == [0]);
    let mut clients: Vec<Client> = (0..3).map(|_| world.client()).collect();
    clients[0].send([HEADER, CHECK].concat());
    clients[1].send(&HEADER[..9]);
    clients[2].send(GET);
    for client in &mut clients {
        client.pump();
    }
    for _ in 0..4 {
        world.service_pending(WATCHDOG);
    }
    clients[1].send([&HEADER[9..], CHECK].concat());
    clients[1].pump();
    world.service_pending(WATCHDOG);
    for client in &mut clients[..2] {
        client.pump();
        assert_eq!(client.answers[0].status, 200);
    }
    // The connection without a header waits for a thread that can report the fault.
    clients[2].pump();
    assert_eq!((clients[2].received.len(), rejections(&world).len()), (0, 0));
    world.keeps = false;
    world.go_on_with(0);
    world.settle();
    let mut rejected = clients.remove(2);
    assert_eq!(world.end(&mut rejected), End::Closed);
    assert_eq!(rejections(&world), [Rejection::Header(ProxyFault::NoHeader)]);
    assert_eq!(busy.answers.len() + usize::from(busy.pump()), 1);
}

#[test]
fn request_whose_proxy_contradicts_itself_is_refused() {
    let trust = Trust { proxies: Trusted::read("unix").unwrap(), ..Trust::default() };
    let mut world = world(Config { trust: Some(trust), ..timeless() });
    let mut client = world.client();
    client.send(
        b"GET /0 HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Ssl: on\r\nContent-Length: 5\r\n\r\nGET /",
    );
    world.until("it is refused", &mut [&mut client], |_, clients| clients[0].answers.len() == 1);
    assert_eq!(client.answers[0].status, 400);
    let refused = Event::Refused { status: 400, fault: Some("ForwardedContradictory") };
    assert!(world.app.log.contains(&refused));
    assert!(!world.app.log.iter().any(|event| matches!(event, Event::Begin { .. })), "it is not run");
}
