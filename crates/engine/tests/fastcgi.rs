//! Tests of FastCGI connections of an engine that drains or stops. FastCGI has no record that says that a connection
//! takes no further request, so the way to lose no request depends on the web server (docs/design/gateways.md).

use crate::common::{Client, End, GRAIN, OverSockets, Plan, World, ms, pattern, seconds, timeless};
use engine::{AllProtocols, Config, Expired, ProtocolKind};
use std::cell::RefCell;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const GET_VALUES: u8 = 9;
const GET_VALUES_RESULT: u8 = 10;
const KEEP_CONN: u8 = 1;

type FastCgi = OverSockets<AllProtocols>;

fn world(plans: Vec<Plan>) -> World<FastCgi> {
    World::of_kind(Config { protocols: vec![ProtocolKind::FastCgi], ..timeless() }, plans)
}

fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("one record").to_be_bytes();
    let id = id.to_be_bytes();
    [&[1, kind, id[0], id[1], length[0], length[1], 0, 0], content].concat()
}

/// Returns a request for plan `plan` from the web server `software`, which keeps the connection.
pub(crate) fn ask(id: u16, plan: usize, software: &str) -> Vec<u8> {
    ask_with(KEEP_CONN, id, plan, software)
}

fn ask_with(flags: u8, id: u16, plan: usize, software: &str) -> Vec<u8> {
    let path = format!("/{plan}");
    let pairs = [
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REQUEST_URI", &path),
        ("SCRIPT_NAME", &path),
        ("CONTENT_LENGTH", "0"),
        ("SERVER_SOFTWARE", software),
    ];
    let mut params = Vec::new();
    for (name, value) in pairs {
        let length = |text: &str| u8::try_from(text.len()).expect("a short text");
        params.extend([length(name), length(value)]);
        params.extend_from_slice(name.as_bytes());
        params.extend_from_slice(value.as_bytes());
    }
    let begin = record(BEGIN_REQUEST, id, &[0, 1, flags, 0, 0, 0, 0, 0]);
    [begin, record(PARAMS, id, &params), record(PARAMS, id, b""), record(STDIN, id, b"")].concat()
}

/// Returns the records that a client has received: kind, number of the request, content. The connection may end instead
/// of the last record's padding.
fn records(client: &Client) -> Vec<(u8, u16, Vec<u8>)> {
    let (mut found, mut rest) = (Vec::new(), &client.received[..]);
    while let [1, kind, id1, id0, length1, length0, padding, _, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*length1, *length0]));
        let Some((content, after)) = after.split_at_checked(length) else { break };
        found.push((*kind, u16::from_be_bytes([*id1, *id0]), content.to_vec()));
        rest = after.get(usize::from(*padding)..).unwrap_or_default();
    }
    found
}

/// Returns the number of complete responses to requests of this number.
pub(crate) fn ends(client: &Client, id: u16) -> usize {
    records(client).iter().filter(|(kind, number, _)| (*kind, *number) == (END_REQUEST, id)).count()
}

/// Returns the value of `FCGI_MAX_REQS` that the engine last sent to the client.
fn told_limit(client: &Client) -> Option<Vec<u8>> {
    let (_, _, content) = records(client).into_iter().rev().find(|(kind, ..)| *kind == GET_VALUES_RESULT)?;
    let mut rest = &content[..];
    while let [name, value, after @ ..] = rest {
        let (pair, after) = after.split_at(usize::from(*name) + usize::from(*value));
        if let Some(value) = pair.strip_prefix(b"FCGI_MAX_REQS") {
            return Some(value.to_vec());
        }
        rest = after;
    }
    None
}

fn until_ends(world: &mut World<FastCgi>, client: &mut Client, id: u16, count: usize) {
    world.until("the response is whole", &mut [client], |_, clients| ends(clients[0], id) == count);
}

/// Drains the engine, or stops it with a grace of 30 seconds.
fn drain(world: &mut World<FastCgi>, stops: bool) {
    let now = world.now();
    if stops { world.engine.stop(now, Some(seconds(60)), seconds(30)) } else { world.engine.drain() }
}

const HAPROXY: &str = "HAProxy 2.6.12";

#[test]
fn haproxy_is_told_of_a_drain_and_served_until_it_closes() {
    for stops in [false, true] {
        let mut world = world((0..4).map(|id| Plan::sized(&[5 + id])).collect());
        let mut client = world.client();
        client.send(ask(1, 0, HAPROXY));
        until_ends(&mut world, &mut client, 1, 1);
        assert_eq!(told_limit(&client), None);
        world.settle();
        // The connection is idle.
        drain(&mut world, stops);
        world.until("it is told", &mut [&mut client], |_, clients| told_limit(clients[0]).as_deref() == Some(b"0"));
        // These requests were on their way when the web server read the record.
        client.send([ask(1, 1, HAPROXY), ask(2, 2, HAPROXY)].concat());
        until_ends(&mut world, &mut client, 2, 1);
        client.send(ask(2, 3, HAPROXY));
        until_ends(&mut world, &mut client, 2, 2);
        world.settle();
        client.pump();
        assert_eq!(client.end, None, "stops: {stops}");
        client.hang_up();
        world.until_empty(&mut [&mut client]);
        assert_eq!((world.statistics().requests, world.statistics().cut), (4, 0));
    }
}

#[test]
fn haproxy_whose_first_request_comes_during_a_drain_is_told_behind_its_response() {
    let mut world = world(vec![Plan::sized(&[5]), Plan::sized(&[6])]);
    let mut client = world.client();
    world.settle();
    drain(&mut world, true);
    world.settle();
    client.send([ask(1, 0, HAPROXY), ask(2, 1, HAPROXY)].concat());
    until_ends(&mut world, &mut client, 2, 1);
    world.settle();
    client.pump();
    let told = records(&client).iter().filter(|(kind, ..)| *kind == GET_VALUES_RESULT).count();
    assert_eq!((told, told_limit(&client).as_deref(), client.end), (1, Some(&b"0"[..]), None));
}

#[test]
fn haproxy_that_does_not_close_has_the_grace_of_a_stop() {
    let mut world = world(vec![Plan::sized(&[5])]);
    let mut client = world.client();
    client.send(ask(1, 0, HAPROXY));
    until_ends(&mut world, &mut client, 1, 1);
    drain(&mut world, true);
    let client = RefCell::new(client);
    let passed = world.sleep_until(seconds(31), |_| {
        client.borrow_mut().pump();
        client.borrow().end.is_some()
    });
    assert!(passed >= seconds(30) && passed <= seconds(30) + 2 * GRAIN, "{passed:?}");
    assert_eq!(client.borrow().end, Some(End::Closed));
}

#[test]
fn last_response_and_the_end_of_the_connection_leave_in_one_step() {
    for software in ["Apache/2.4.71", "nginx/1.22.1", ""] {
        let mut world = world(vec![Plan::sized(&[5])]);
        world.keeps = true;
        let mut client = world.client();
        client.send(ask(1, 0, software));
        world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
        drain(&mut world, false);
        world.settle();
        // No poll follows.
        world.go_on_with(0);
        client.pump();
        assert_eq!((ends(&client, 1), client.end), (1, Some(End::Closed)), "{software}");
        let (last, ..) = records(&client).pop().expect("there are some");
        // nginx closes a connection if anything follows the end of a response.
        assert_eq!(last, if software.starts_with("nginx") { GET_VALUES_RESULT } else { END_REQUEST });
        // Apache waits for a byte of padding, and gets the end of the connection: after the padding it would send a
        // further request.
        let padding = client.received[client.received.len() - 10];
        assert_eq!(padding, u8::from(software.starts_with("Apache")), "{software}");
    }
}

/// Apache would wait for the padding until the call returns.
#[test]
fn last_response_is_complete_if_its_call_is_late_and_does_not_come_back() {
    let mut world = world(vec![Plan::sized(&[5])]);
    world.keeps = true;
    let mut client = world.client();
    client.send(ask(1, 0, "Apache/2.4.71"));
    world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
    drain(&mut world, false);
    world.settle();
    let (call, now) = (world.calls[0].ticket.call(), world.now());
    assert!(matches!(world.engine.expire(call, now), Expired::Answered { .. }));
    until_ends(&mut world, &mut client, 1, 1);
    world.settle();
    client.pump();
    assert_eq!(client.received.last(), Some(&0));
    assert_eq!(client.received[client.received.len() - 17..][..8], [1, END_REQUEST, 0, 1, 0, 8, 1, 0]);
    world.go_on_with(0);
    assert_eq!(world.end(&mut client), End::Closed);
}

/// Each request of such a web server has a connection of its own, so work per connection is a cost of each request.
#[test]
fn connection_for_one_request_is_closed_with_its_response() {
    let mut world = world(vec![Plan::sized(&[5])]);
    world.keeps = true;
    let mut client = world.client();
    client.send(ask_with(0, 1, 0, "lighttpd/1.4.69"));
    world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
    world.go_on_with(0);
    // The client has not closed its side, and no poll follows.
    assert_eq!(world.statistics().connections, 0);
    client.pump();
    assert_eq!((ends(&client, 1), client.end), (1, Some(End::Closed)));
}

#[test]
fn idle_connection_whose_front_cannot_be_told_is_served_once_more() {
    let mut world = world(vec![Plan::sized(&[5]), Plan::sized(&[6])]);
    let mut client = world.client();
    client.send(ask(1, 0, "Apache/2.4.71"));
    until_ends(&mut world, &mut client, 1, 1);
    drain(&mut world, true);
    world.settle();
    client.pump();
    assert_eq!(client.end, None, "its web server may be sending a request just now");
    client.send(ask(1, 1, "Apache/2.4.71"));
    assert_eq!(world.end(&mut client), End::Closed);
    assert_eq!(ends(&client, 1), 2);
    client.hang_up();
    world.until_empty(&mut [&mut client]);
}

#[test]
fn request_that_arrives_before_the_last_response_is_sent_is_answered() {
    // The rest of it may come later.
    for (software, split) in
        ["other", "Apache/2.4.71"].into_iter().flat_map(|it| [0, 3, 8, 12, 16, 100].map(|at| (it, at)))
    {
        let mut world = world(vec![Plan::sized(&[5]), Plan::sized(&[6])]);
        world.keeps = true;
        let mut client = world.client();
        client.send(ask(1, 0, software));
        world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
        drain(&mut world, false);
        world.settle();
        let second = ask(2, 1, software);
        let (now, later) = second.split_at(if split == 0 { second.len() } else { split });
        client.send(now);
        client.pump();
        // The poller has not reported it.
        world.go_on_with(0);
        client.pump();
        assert_eq!(client.end, None, "split at {split}");
        client.send(later);
        world.until("the second one is called", &mut [&mut client], |world, _| world.is_out(1));
        world.go_on_with(1);
        assert_eq!(world.end(&mut client), End::Closed);
        let body: Vec<u8> = records(&client)
            .into_iter()
            .filter(|(kind, id, content)| (*kind, *id) == (STDOUT, 2) && !content.starts_with(b"Status"))
            .flat_map(|(.., content)| content)
            .collect();
        assert_eq!((ends(&client, 1), ends(&client, 2)), (1, 1));
        assert!(body.ends_with(&pattern(1, 0, 6)), "split at {split}: {body:?}");
        assert_eq!(world.statistics().cut, 0);
    }
}

#[test]
fn request_that_the_queue_has_no_room_for_gets_503() {
    let config = Config { protocols: vec![ProtocolKind::FastCgi], queue: 1, ..timeless() };
    let mut world = World::<FastCgi>::of_kind(config, (0..4).map(|id| Plan::sized(&[5 + id])).collect());
    (world.keeps, world.callers) = (true, 1);
    let mut client = world.client();
    client.send([ask(1, 0, HAPROXY), ask(2, 1, HAPROXY), ask(3, 2, HAPROXY)].concat());
    until_ends(&mut world, &mut client, 3, 1);
    let page: Vec<u8> =
        records(&client).into_iter().filter(|(_, id, _)| *id == 3).flat_map(|(.., part)| part).collect();
    let page = String::from_utf8_lossy(&page);
    assert!(page.starts_with("Status: 503") && page.contains("Retry-After: "), "{page}");
    // The other requests and the connection continue.
    world.go_on_with(0);
    world.settle();
    world.go_on_with(1);
    until_ends(&mut world, &mut client, 2, 1);
    world.keeps = false;
    client.send(ask(3, 3, HAPROXY));
    until_ends(&mut world, &mut client, 3, 2);
    assert_eq!((world.statistics().refused, world.statistics().requests), (1, 3));
}

/// The watchdog looks for a health check in the bytes of a new connection, and leaves all other records unread.
#[test]
fn records_that_arrived_while_no_thread_polled_are_answered_when_one_polls() {
    let config = Config { protocols: vec![ProtocolKind::FastCgi], health_path: "/healthz".into(), ..timeless() };
    let mut world: World<FastCgi> = World::of_kind(config, vec![Plan::sized(&[5])]);
    (world.keeps, world.callers) = (true, 1);
    let mut busy = world.client();
    busy.send(ask(1, 0, "nginx/1.26"));
    world.until("the only thread is busy", &mut [&mut busy], |world, _| world.ids_out() == [0]);
    world.service_pending(ms(100));
    let mut client = world.client();
    client.send(record(GET_VALUES, 0, b"\x0e\0FCGI_MAX_CONNS"));
    client.pump();
    for _ in 0..3 {
        world.service_pending(ms(100));
    }
    world.keeps = false;
    world.go_on_with(0);
    world.until("it is answered", &mut [&mut client], |_, clients| {
        records(clients[0]).iter().any(|(kind, ..)| *kind == GET_VALUES_RESULT)
    });
}
