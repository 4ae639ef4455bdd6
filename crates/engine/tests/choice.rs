//! The choice of a connection's protocol by its first bytes, on a listener that allows several.

use crate::common::{Choice, ChosenBy, Client, OverSockets, Plan, World, ms, timeless};
use crate::fastcgi::{ask, ends};
use engine::{Config, Negotiation, ProtocolKind};

/// The version and the type of the record that begins a request (FastCGI, section 5.1).
const BEGIN_REQUEST: [u8; 2] = [1, 1];

/// HTTP/1, or FastCGI for connections that begin with the first bytes of its records.
#[derive(Debug)]
struct FirstBytes;

impl Choice for FirstBytes {
    fn choose(listener: ProtocolKind, _: Negotiation<'_>, first: &[u8]) -> Option<ProtocolKind> {
        match first {
            [] => None,
            [only] if *only == BEGIN_REQUEST[0] => None,
            [a, b, ..] if [*a, *b] == BEGIN_REQUEST => Some(ProtocolKind::FastCgi),
            _ => Some(listener),
        }
    }
}

fn world(config: Config) -> World<OverSockets<ChosenBy<FirstBytes>>> {
    World::of_kind(config, (0..3).map(|_| Plan::sized(&[5])).collect())
}

const GET: &[u8] = b"GET /0 HTTP/1.1\r\nHost: a.example\r\n\r\n";
const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\r\n";

/// Returns a FastCGI request for plan 0, which keeps the connection.
fn fastcgi() -> Vec<u8> {
    ask(1, 0, "")
}

/// Returns true if the FastCGI request is answered.
fn is_ended(client: &Client) -> bool {
    ends(client, 1) == 1
}

#[test]
fn first_bytes_choose_the_protocol_however_they_are_cut() {
    for (stream, is_http) in [(GET.to_vec(), true), (fastcgi(), false)] {
        for (header, cut) in (0..40).flat_map(|cut| [(&b""[..], cut), (HEADER, cut)]) {
            let config = Config { proxy_listeners: vec![!header.is_empty()], ..timeless() };
            let mut world = world(config);
            let mut client = world.client();
            let bytes = [header, &stream].concat();
            let cut = cut.min(bytes.len());
            client.send(&bytes[..cut]);
            client.pump();
            world.settle();
            client.send(&bytes[cut..]);
            world.until("the request is answered", &mut [&mut client], |_, clients| {
                let received = &clients[0].received;
                if is_http {
                    received.windows(15).any(|window| window == b"HTTP/1.1 200 OK")
                } else {
                    is_ended(clients[0])
                }
            });
            assert_eq!(world.statistics().refused, 0, "cut at {cut}");
        }
    }
}

#[test]
fn connection_that_has_not_shown_its_protocol_is_under_the_deadline_of_heads() {
    let config = Config { header_timeout: Some(ms(500)), ..timeless() };
    let mut world = world(config);
    let mut client = world.client();
    client.send(&BEGIN_REQUEST[..1]);
    client.pump();
    world.settle();
    world.advance(ms(700));
    world.end(&mut client);
    assert_eq!(world.statistics().timeouts, 1);
}

#[test]
fn watchdog_leaves_a_connection_of_another_protocol_to_the_thread_that_polls() {
    let mut world = world(timeless());
    let mut client = world.client();
    client.send(fastcgi());
    client.pump();
    for _ in 0..3 {
        world.service_pending(ms(150));
    }
    assert_eq!(client.received, b"");
    world.until("the request is answered", &mut [&mut client], |_, clients| is_ended(clients[0]));
}
