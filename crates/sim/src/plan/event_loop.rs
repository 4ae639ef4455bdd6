//! The random choices for a world with an event loop.

use super::tasks::{Cancelled, ClientOp, Handling, LABEL, Outside, TaskOp};
use super::{Act, Host, Pace, PeerPlan, Plan, RequestPlan, Stop, Trigger, pick, upload};
use crate::clock::{MILLI, SECOND};
use crate::net::{Conditions, Medium};
use crate::response::pattern;
use engine::{Config, WebSocketConfig};
use fastrand::Rng;
use std::fmt::Write;
use std::time::Duration;
use wire::websocket::Kind;

/// The key of every handshake (RFC 6455 section 1.3).
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The kinds of trouble in a world.
#[derive(Clone, Copy, Debug)]
struct LoopSwarm {
    websockets: u8,
    handlers: bool,
    vanishing: bool,
    leaving: bool,
    stalling: bool,
    breaking: bool,
    cancelling: bool,
    raising: bool,
    slow: bool,
    large: bool,
    outside: bool,
    stopping: bool,
    draining: bool,
    pipelining: bool,
}

impl LoopSwarm {
    fn draw(rng: &mut Rng) -> Self {
        let websockets = rng.u8(0..=4);
        let mut one_in = |count: u8| rng.u8(0..count) == 0;
        Self {
            websockets,
            handlers: one_in(2),
            vanishing: one_in(4),
            leaving: one_in(2),
            stalling: one_in(4),
            breaking: one_in(3),
            cancelling: one_in(3),
            raising: one_in(3),
            slow: one_in(3),
            large: one_in(2),
            outside: one_in(2),
            stopping: one_in(3),
            draining: one_in(4),
            pipelining: one_in(2),
        }
    }
}

fn length(swarm: LoopSwarm, rng: &mut Rng) -> usize {
    match rng.u8(0..8) {
        0 | 1 => 0,
        7 if swarm.large => rng.usize(0..200_000),
        5.. => rng.usize(0..20_000),
        _ => rng.usize(0..300),
    }
}

/// Draws the plan of a world with an event loop.
pub(super) fn draw(rng: &mut Rng) -> Plan {
    let swarm = LoopSwarm::draw(rng);
    let mut calls = Vec::new();
    let clients: Vec<_> = (0..rng.usize(1..=16)).map(|_| client(swarm, &mut calls, rng)).collect();
    let seconds = |from: u64, rng: &mut Rng| Some(Duration::from_micros(rng.u64(from * SECOND..30 * SECOND)));
    let has_pings = rng.u8(0..4) > 0;
    let config = Config {
        connections: 1000,
        keep_alive: seconds(5, rng),
        header_timeout: seconds(5, rng),
        body_timeout: seconds(5, rng),
        write_timeout: seconds(5, rng),
        min_rate: if rng.bool() { 500 } else { 0 },
        buffer_bodies: false,
        queue: 1024,
        websocket: Some(WebSocketConfig {
            message: 1 << 20,
            queue: pick(&[1, 2, 8, 32], rng),
            deflate: None,
            ping_interval: seconds(1, rng).filter(|_| has_pings),
            ping_timeout: seconds(3, rng).filter(|_| has_pings),
            ..WebSocketConfig::default()
        }),
        ..Config::default()
    };
    let mut outside = Vec::new();
    if swarm.outside {
        for (id, call) in calls.iter().enumerate().filter(|(_, call): &(usize, &RequestPlan)| call.is_websocket) {
            for _ in 0..rng.usize(0..4) {
                let act = if rng.u8(0..4) == 0 { Outside::Close(4000) } else { Outside::Send(size(swarm, rng)) };
                let begun =
                    clients.iter().find(|client| client.requests.contains(&id)).map(|client| client.connects_at);
                outside.push((begun.unwrap_or_default() + rng.u64(0..3 * SECOND), id, act));
                let _ = call;
            }
        }
    }
    let at = if swarm.stopping { rng.u64(0..8 * SECOND) } else { 90 * SECOND };
    Plan {
        host: Host::EventLoop,
        is_multiplexed: false,
        is_http2: false,
        is_encrypted: false,
        config,
        medium: Medium::Simulated,
        listeners: 1,
        most_calls: 1,
        has_files: false,
        conditions: Conditions {
            descriptors: 1000,
            reserve: 1,
            failing_accepts: 0,
            failing_watches: 0,
            short_sends: if rng.bool() { rng.u32(2..50) } else { 0 },
            cuts_at_once: true,
            events: if rng.bool() { 256 } else { rng.usize(1..5) },
        },
        grain: pick(&[1, MILLI, 4 * MILLI], rng),
        wake_time: pick(&[1, 50, 2 * MILLI], rng),
        connections: clients,
        requests: calls,
        outside,
        drain: swarm.draining.then(|| rng.u64(0..8 * SECOND)),
        // Every world ends with a stop.
        stops: vec![Stop {
            at,
            limit: Some(Duration::from_micros(rng.u64(SECOND..20 * SECOND))),
            grace: Duration::ZERO,
        }],
    }
}

fn size(swarm: LoopSwarm, rng: &mut Rng) -> usize {
    LABEL + length(swarm, rng)
}

fn client(swarm: LoopSwarm, calls: &mut Vec<RequestPlan>, rng: &mut Rng) -> PeerPlan {
    let is_websocket = rng.u8(0..4) < swarm.websockets;
    let first = calls.len();
    let mut ops = Vec::new();
    if is_websocket {
        ops = client_ops(swarm, rng);
        calls.push(websocket_call(first, swarm, rng));
    } else {
        for _ in 0..rng.usize(1..=4) {
            calls.push(http_call(calls.len(), swarm, rng));
        }
    }
    let pace = |rng: &mut Rng| {
        if swarm.slow && rng.u8(0..3) == 0 {
            Pace { burst: rng.usize(1..3000), pause: rng.u64(0..50 * MILLI) }
        } else {
            Pace { burst: rng.usize(1000..200_000), pause: if rng.bool() { 0 } else { rng.u64(0..3 * MILLI) } }
        }
    };
    let trigger = match rng.u8(0..3) {
        0 => Trigger::After(rng.u64(0..4 * SECOND)),
        1 => Trigger::Sent(rng.usize(1..3000)),
        _ => Trigger::Got(rng.usize(1..30_000)),
    };
    let act = match rng.u8(0..6) {
        0 if swarm.vanishing => Some(Act::Vanish),
        1 if swarm.leaving => Some(Act::Reset),
        2 if swarm.leaving => Some(Act::Close),
        3 if swarm.leaving => Some(Act::HalfClose),
        4 if swarm.stalling => Some(Act::StallReading),
        5 if swarm.stalling => Some(Act::StallSending),
        _ => None,
    };
    PeerPlan {
        connects_at: rng.u64(0..3 * SECOND),
        latency: pick(&[1, 50, MILLI, 30 * MILLI], rng),
        packet: if rng.bool() { usize::MAX } else { rng.usize(1..3000) },
        capacity: pick(&[2000, 64 << 10, 1 << 20], rng),
        sends: pace(rng),
        reads: pace(rng),
        acts: act.map(|act| (trigger, act)),
        listener: 0,
        thinks: 0,
        stays: false,
        requests: (first..calls.len()).collect(),
        depth: if swarm.pipelining { 3 } else { 1 },
        ops,
        is_eager: rng.u8(0..4) == 0,
    }
}

fn client_ops(swarm: LoopSwarm, rng: &mut Rng) -> Vec<ClientOp> {
    let mut ops = Vec::new();
    for _ in 0..rng.usize(0..12) {
        ops.push(match rng.u8(0..8) {
            0 => ClientOp::Ping,
            1 | 2 => ClientOp::Pause(rng.u64(0..2 * SECOND)),
            _ => {
                let kind = if rng.bool() { Kind::Text } else { Kind::Binary };
                ClientOp::Message(kind, size(swarm, rng), if rng.u8(0..4) == 0 { rng.usize(2..5) } else { 1 })
            }
        });
    }
    // So many messages at once fill the queue.
    if rng.u8(0..4) == 0 {
        ops.extend((0..rng.usize(10..80)).map(|_| ClientOp::Message(Kind::Text, LABEL + rng.usize(0..50), 1)));
    }
    match rng.u8(0..8) {
        0 | 1 if swarm.breaking => ops.push(ClientOp::Break),
        // The client stays until the server closes.
        2 | 3 => {}
        _ => ops.push(ClientOp::Close(pick(&[1000, 1001, 4321], rng))),
    }
    ops
}

fn cancelled(swarm: LoopSwarm, rng: &mut Rng) -> Option<Cancelled> {
    let is_drawn = swarm.cancelling && rng.u8(0..3) == 0;
    is_drawn.then(|| Cancelled { after: rng.u64(0..3 * SECOND), task: rng.usize(0..2), is_swallowed: rng.bool() })
}

fn websocket_call(id: usize, swarm: LoopSwarm, rng: &mut Rng) -> RequestPlan {
    let bytes = format!(
        "GET /{id} HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n\
         Sec-WebSocket-Version: 13\r\n\r\n"
    )
    .into_bytes();
    let handling = if swarm.handlers && rng.bool() {
        Handling::Handler { answers: rng.bool(), closes_after: rng.bool().then(|| rng.usize(0..8)) }
    } else {
        websocket_script(swarm, rng)
    };
    let head = bytes.len();
    RequestPlan {
        is_websocket: true,
        bytes,
        head,
        handling,
        cancelled: cancelled(swarm, rng),
        ..RequestPlan::default()
    }
}

fn websocket_script(swarm: LoopSwarm, rng: &mut Rng) -> Handling {
    let sleep = |rng: &mut Rng| TaskOp::Sleep(rng.u64(0..SECOND));
    let mut main = Vec::new();
    if rng.bool() {
        main.push(sleep(rng));
    }
    match rng.u8(0..10) {
        0 => {
            main.push(TaskOp::Deny(pick(&[403, 404], rng)));
            return Handling::Tasks(vec![main]);
        }
        1 if swarm.raising => {
            main.push(TaskOp::Raise);
            return Handling::Tasks(vec![main]);
        }
        _ => main.push(TaskOp::Accept),
    }
    for _ in 0..rng.usize(0..5) {
        main.push(match rng.u8(0..5) {
            0 => sleep(rng),
            1 | 2 => TaskOp::Send(size(swarm, rng)),
            3 => TaskOp::Receive,
            _ => TaskOp::Echo(rng.usize(1..5)),
        });
    }
    match rng.u8(0..6) {
        0 if swarm.raising => main.push(TaskOp::Raise),
        0 | 1 => main.push(TaskOp::Close(pick(&[1000, 4001], rng))),
        2 => {}
        3 => main.push(TaskOp::ReceiveAll),
        _ => main.push(TaskOp::Echo(usize::MAX)),
    }
    let mut tasks = vec![main];
    if rng.bool() {
        let mut writer = Vec::new();
        for _ in 0..rng.usize(1..8) {
            writer.push(if rng.bool() { sleep(rng) } else { TaskOp::Send(size(swarm, rng)) });
        }
        tasks.push(writer);
    }
    Handling::Tasks(tasks)
}

fn http_call(id: usize, swarm: LoopSwarm, rng: &mut Rng) -> RequestPlan {
    let body = if rng.bool() { 0 } else { length(swarm, rng) };
    let is_chunked = body > 0 && rng.u8(0..3) == 0;
    let method = if body > 0 { "POST" } else { "GET" };
    let mut text = format!("{method} /{id} HTTP/1.1\r\nHost: a.example\r\n");
    if is_chunked {
        text.push_str("Transfer-Encoding: chunked\r\n");
    } else if body > 0 {
        write!(text, "Content-Length: {body}\r\n").ok();
    }
    text.push_str("\r\n");
    let head = text.len();
    let mut bytes = text.into_bytes();
    let mut at = 0;
    while at < body {
        let count = if is_chunked { rng.usize(1..=(body - at).min(9000)) } else { body };
        if is_chunked {
            bytes.extend(format!("{count:x}\r\n").bytes());
        }
        bytes.extend(pattern(upload(id), at, count));
        if is_chunked {
            bytes.extend(b"\r\n");
        }
        at += count;
    }
    if is_chunked {
        bytes.extend(b"0\r\n\r\n");
    }
    let mut main = Vec::new();
    let sleep = |main: &mut Vec<TaskOp>, rng: &mut Rng| {
        if rng.u8(0..3) == 0 {
            main.push(TaskOp::Sleep(rng.u64(0..SECOND)));
        }
    };
    sleep(&mut main, rng);
    let is_read_early = rng.bool();
    if body > 0 && is_read_early {
        main.push(if rng.u8(0..4) == 0 { TaskOp::Receive } else { TaskOp::ReceiveAll });
    }
    if swarm.raising && rng.u8(0..6) == 0 {
        main.push(TaskOp::Raise);
    }
    main.push(TaskOp::Head(rng.bool()));
    for _ in 0..rng.usize(0..6) {
        sleep(&mut main, rng);
        main.push(TaskOp::Part(length(swarm, rng)));
    }
    if body > 0 && !is_read_early && rng.u8(0..4) > 0 {
        main.push(TaskOp::ReceiveAll);
    }
    if swarm.raising && rng.u8(0..6) == 0 {
        main.push(TaskOp::Raise);
    }
    main.push(TaskOp::End);
    // The operations that continue in the background after the response.
    sleep(&mut main, rng);
    let mut tasks = vec![main];
    if rng.u8(0..3) == 0 {
        tasks.push(vec![TaskOp::AwaitDeparture]);
    }
    RequestPlan {
        bytes,
        head,
        body,
        is_chunked,
        handling: Handling::Tasks(tasks),
        cancelled: cancelled(swarm, rng),
        ..RequestPlan::default()
    }
}
