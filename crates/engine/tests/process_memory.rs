//! The memory that idle WebSockets need, measured as that of the whole process.

use crate::common::{Op, Plan, World, timeless};
use engine::{Config, Incoming, WebSocketConfig, WebSocketId};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use wire::websocket::{Compression, Connection, Keys, Outgoing, Role, WebSocketLimits};

const COUNT: usize = 10_000;
const WARM_UP: usize = 500;
/// The maximum number of bytes that each WebSocket may take, the test's own call and its identifiers included.
const MOST: usize = 2048;
/// The number of connections that begin before the engine is polled: fewer than its listener holds.
const AT_ONCE: usize = 50;

const HANDSHAKE: &str = "GET /0 HTTP/1.1\r\nHost: www.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\
                         User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)\r\n\
                         Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=1\r\n\r\n";

pub(crate) fn ten_thousand_idle_websockets_take_two_kibibytes_each() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Each WebSocket has two descriptors in this process.
    let count =
        maximum.map_or(COUNT, |most| COUNT.min(usize::try_from(most).unwrap_or(COUNT).saturating_sub(1500) / 2));
    assert!(count >= 1000, "the hard limit on open files is {maximum:?}");
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("as high as it may be");
    let websocket = WebSocketConfig { ping_interval: None, ..WebSocketConfig::default() };
    let config = Config { websocket: Some(websocket), ..timeless() };
    let mut world = World::unix(config, vec![Plan::of(vec![Op::Await(usize::MAX)])]);
    world.keeps = true;

    let mut held = vec![opened(&mut world, WARM_UP)];
    let before = resident_bytes();
    held.push(opened(&mut world, count));
    let each = (resident_bytes() - before) / count;

    println!("{each} bytes each, of {count}");
    assert!(each <= MOST, "{each} bytes each");
    assert_eq!(world.statistics().websockets, (count + WARM_UP) as u64);
    // They are idle, and not dead.
    let (peer, id) = &held[1][count / 2];
    echo(&mut world, peer, *id);
}

/// Returns `count` open WebSockets, each of which has echoed a message.
fn opened(world: &mut World, count: usize) -> Vec<(OwnedFd, WebSocketId)> {
    let mut opened = Vec::with_capacity(count);
    while opened.len() < count {
        let first = world.calls.len();
        let peers: Vec<_> = (0..AT_ONCE.min(count - opened.len()))
            .map(|_| sim::sockets::connect(&world.addresses[0], None).expect("the engine listens"))
            .collect();
        for peer in &peers {
            // One at a time, so that the calls are in the order of the clients.
            send(peer, HANDSHAKE.as_bytes());
            world.settle();
        }
        assert_eq!(world.calls.len(), first + peers.len());
        for (index, peer) in peers.into_iter().enumerate() {
            let now = world.now();
            let World { engine, calls, app, .. } = &mut *world;
            let accepted = engine.accept_websocket(&calls[first + index].ticket, None, [], now, app);
            let id = accepted.expect("nothing is wrong with it").expect("the client is there");
            assert!(receive(&peer).starts_with(b"HTTP/1.1 101 "));
            echo(world, &peer, id);
            opened.push((peer, id));
        }
        // The test's own record.
        world.app.log.clear();
    }
    opened
}

fn echo(world: &mut World, peer: &OwnedFd, id: WebSocketId) {
    const TEXT: &str = "are you still there?";
    let mut end = Connection::new(Role::Client(Keys::new(7)), None, WebSocketLimits::default());
    let mut frame = Vec::new();
    end.send(Outgoing::Text(TEXT), &mut Compression::new(6), 0, &mut frame).expect("it is open");
    send(peer, &frame);
    world.settle();
    let now = world.now();
    let Incoming::Message((_, message)) = world.engine.receive_message(id, now, &mut world.app) else {
        panic!("the message has not come");
    };
    assert_eq!(message, TEXT.as_bytes());
    world.engine.send_message(id, Outgoing::Text(TEXT), now, &mut world.app).expect("it is open");
    world.settle();
    assert!(receive(peer).ends_with(TEXT.as_bytes()));
}

fn send(peer: &OwnedFd, bytes: &[u8]) {
    assert_eq!(rustix::net::send(peer, bytes, SendFlags::NOSIGNAL), Ok(bytes.len()));
}

fn receive(peer: &OwnedFd) -> Vec<u8> {
    let mut buffer = [0; 1024];
    let (count, _) =
        rustix::net::recv(peer, &mut buffer[..], RecvFlags::DONTWAIT).expect("a Unix socket has it at once");
    buffer[..count].to_vec()
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux has this line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number of KiB") << 10
}
