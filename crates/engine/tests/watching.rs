//! Tests of how often the engine asks the poller to report a connection. That costs a system call and, in the kernel, a
//! wake-up for each event, so the engine answers a connection that ends with its first request without it.

use crate::common::{Client, Kind, Plan, World, timeless};
use engine::{Accepted, AllProtocols, Awaited, Config, EngineSocket, Local, Net, Os, Poller, ProtocolKind, Tcp, Waker};
use std::cell::Cell;
use std::io;

thread_local! {
    /// The number of times that this test's engine has had a connection watched. Each test has a thread of its own.
    static WATCHES: Cell<usize> = const { Cell::new(0) };
}

/// The operating system's network, which counts the watches.
struct Counting(Os);

impl Net for Counting {
    type Listener = EngineSocket;
    type Transport = Tcp<EngineSocket>;

    fn listen(&mut self, listener: &EngineSocket, index: usize) -> io::Result<Local> {
        self.0.listen(listener, index)
    }

    fn unlisten(&mut self, listener: &EngineSocket) {
        self.0.unlisten(listener);
    }

    fn accept(&mut self, listener: &EngineSocket) -> io::Result<Accepted<Tcp<EngineSocket>>> {
        self.0.accept(listener)
    }

    fn is_awaited(&self, listener: &EngineSocket) -> bool {
        self.0.is_awaited(listener)
    }

    fn watch(&mut self, transport: &Tcp<EngineSocket>, slot: usize, output: bool, again: bool) -> io::Result<()> {
        WATCHES.set(WATCHES.get() + 1);
        self.0.watch(transport, slot, output, again)
    }

    fn room(&self) -> usize {
        self.0.room()
    }

    fn drain_wakes(&mut self) {
        self.0.drain_wakes();
    }
}

struct Counted;

impl Kind for Counted {
    type Net = Counting;
    type Protocols = AllProtocols;

    fn net() -> io::Result<(Counting, Poller, Waker)> {
        Os::new().map(|(net, poller, waker)| (Counting(net), poller, waker))
    }
}

fn world(kind: ProtocolKind) -> World<Counted> {
    World::of_kind(Config { protocols: vec![kind], ..timeless() }, vec![Plan::sized(&[5])])
}

fn variables(body: &[u8]) -> Vec<(&'static str, String)> {
    vec![
        ("CONTENT_LENGTH", body.len().to_string()),
        ("SCGI", "1".to_owned()),
        ("REQUEST_METHOD", if body.is_empty() { "GET" } else { "POST" }.to_owned()),
        ("SERVER_PROTOCOL", "HTTP/1.1".to_owned()),
        ("REQUEST_URI", "/0".to_owned()),
        ("SCRIPT_NAME", "/0".to_owned()),
    ]
}

const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [length1, length0] = u16::try_from(content.len()).expect("one record").to_be_bytes();
    [&[1, kind, 0, 1, length1, length0, 0, 0], content].concat()
}

/// Returns the records of a FastCGI request. `keeps`: with `FCGI_KEEP_CONN`.
fn fastcgi(keeps: bool, body: &[u8]) -> Vec<u8> {
    let mut pairs = Vec::new();
    for (name, value) in variables(body) {
        pairs.extend([u8::try_from(name.len()).unwrap(), u8::try_from(value.len()).unwrap()]);
        pairs.extend([name.as_bytes(), value.as_bytes()].concat());
    }
    let stdin = if body.is_empty() { Vec::new() } else { record(STDIN, body) };
    let begin = record(BEGIN_REQUEST, &[0, 1, u8::from(keeps), 0, 0, 0, 0, 0]);
    [begin, record(PARAMS, &pairs), record(PARAMS, b""), stdin, record(STDIN, b"")].concat()
}

/// Returns a request of a client that leaves closing to the server, or ends the connection itself after the response.
fn last_request(kind: ProtocolKind, body: &[u8]) -> Vec<u8> {
    let variables = variables(body);
    match kind {
        ProtocolKind::Http | ProtocolKind::Http1 => {
            let method = if body.is_empty() { "GET" } else { "POST" };
            let length = body.len();
            let head = format!(
                "{method} /0 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            );
            [head.as_bytes(), body].concat()
        }
        ProtocolKind::FastCgi => fastcgi(false, body),
        ProtocolKind::Http2 => unreachable!("no request of HTTP/2 is its connection's last"),
        ProtocolKind::Scgi => {
            let pair = |(name, value): &(&str, String)| [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
            let head: Vec<u8> = variables.iter().flat_map(pair).collect();
            [format!("{}:", head.len()).as_bytes(), &head, b",", body].concat()
        }
        ProtocolKind::Uwsgi => {
            let text = |text: &str| {
                let length = u16::try_from(text.len()).unwrap().to_le_bytes();
                [&length, text.as_bytes()].concat()
            };
            let vars: Vec<u8> = variables.iter().flat_map(|(name, value)| [text(name), text(value)].concat()).collect();
            let [length0, length1] = u16::try_from(vars.len()).unwrap().to_le_bytes();
            [&[0, length0, length1, 0], &vars[..], body].concat()
        }
    }
}

/// Returns the number of times that the connection was watched until its response had arrived and the server had closed
/// it.
fn watches_until_closed(world: &mut World<Counted>, client: &mut Client, requests: &[&[u8]]) -> usize {
    WATCHES.set(0);
    for (number, part) in requests.iter().enumerate() {
        client.send(part);
        client.pump();
        if number + 1 < requests.len() {
            world.settle();
        }
    }
    world.end(client);
    assert!(client.received.windows(4).any(|part| part == b"\r\n\r\n"), "there is a response");
    WATCHES.get()
}

#[test]
fn connection_for_one_request_is_never_watched() {
    for kind in [ProtocolKind::Http, ProtocolKind::FastCgi, ProtocolKind::Uwsgi, ProtocolKind::Scgi] {
        for body in [&b""[..], b"the body of a request"] {
            let mut world = world(kind);
            let mut client = world.client();
            let count = watches_until_closed(&mut world, &mut client, &[&last_request(kind, body)]);
            assert_eq!(count, 0, "{kind:?}, {} bytes of body", body.len());
        }
    }
}

#[test]
fn fastcgi_request_that_arrives_in_parts_is_watched_for_the_rest() {
    let whole = fastcgi(false, b"the body of a request");
    for at in 1..whole.len() {
        let mut world = world(ProtocolKind::FastCgi);
        let mut client = world.client();
        let (first, second) = whole.split_at(at);
        assert_eq!(watches_until_closed(&mut world, &mut client, &[first, second]), 1, "cut at {at}");
    }
}

#[test]
fn fastcgi_connection_that_is_kept_is_watched_once() {
    let mut world = world(ProtocolKind::FastCgi);
    world.keeps = true;
    WATCHES.set(0);
    let mut client = world.client();
    client.send(fastcgi(true, b""));
    world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
    assert_eq!(WATCHES.get(), 1, "other requests may arrive while the call runs");
    world.go_on_with(0);
    world.settle();
    assert_eq!(WATCHES.get(), 1);
}

#[test]
fn call_that_waits_for_its_client_to_leave_is_woken_on_a_connection_for_one_request() {
    for aborts in [false, true] {
        let mut world = world(ProtocolKind::FastCgi);
        world.keeps = true;
        let mut client = world.client();
        client.send(fastcgi(false, b""));
        world.until("it is called", &mut [&mut client], |world, _| world.is_out(0));
        // The client has left before the call waits, so there is no later event that could be reported.
        if aborts {
            client.send(record(ABORT_REQUEST, b""));
            client.pump();
        } else {
            client.hang_up();
        }
        let now = world.now();
        world.engine.wait_for_any(&world.calls[0].ticket, Awaited::DEPARTURE, 7, now, &mut world.app);
        while world.app.woken.is_empty() {
            assert!(world.wait(&[]), "the poller reports what the client has sent, aborts: {aborts}");
            world.poll();
        }
        assert_eq!(world.app.woken, [7], "aborts: {aborts}");
        world.app.woken.clear();
        world.go_on_with(0);
        world.until_empty(&mut [&mut client]);
    }
}
