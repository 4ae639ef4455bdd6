//! The random choices for a world with threads. The file is one sequence of choices: later ones depend on earlier ones.

use super::{
    Act, ExchangePlan, Garbage, Host, Op, Pace, PeerPlan, Plan, RequestPlan, ResetTrigger, Script, Stop, Trigger, pick,
    upload,
};
use crate::clock::{MILLI, Micros, SECOND};
use crate::net::{Conditions, Medium};
use crate::response::pattern;
use engine::{BodyMemory, Config, STOP_GRACE};
use fastrand::Rng;
use std::time::Duration;

/// The kinds of trouble in a world.
#[derive(Clone, Copy, Debug)]
struct Swarm {
    multiplexed: bool,
    http2: bool,
    resetting: bool,
    vanishing: bool,
    leaving: bool,
    half_closing: bool,
    stalling: bool,
    garbage: bool,
    hanging: bool,
    raising: bool,
    slow_sending: bool,
    slow_reading: bool,
    large: bool,
    long_calls: bool,
    timeless: bool,
    unbuffered: bool,
    pipelining: bool,
}

impl Swarm {
    fn draw(rng: &mut Rng) -> Self {
        let timeless = rng.u8(0..8) == 0;
        let mut one_in = |count: u8| rng.u8(0..count) == 0;
        Self {
            multiplexed: one_in(3),
            http2: false,
            resetting: one_in(2),
            // If no time limit ends a connection, each peer has to leave by itself.
            vanishing: !timeless && one_in(3),
            leaving: one_in(2),
            half_closing: one_in(3),
            stalling: !timeless && one_in(3),
            garbage: one_in(3),
            hanging: one_in(6),
            raising: one_in(2),
            slow_sending: one_in(3),
            slow_reading: one_in(3),
            large: one_in(2),
            long_calls: one_in(2),
            timeless,
            unbuffered: one_in(2),
            pipelining: one_in(2),
        }
    }
}

/// Draws the plan of a world with threads.
pub(super) fn draw(is_http2: bool, rng: &mut Rng) -> Plan {
    let most_calls = pick(&[1, 1, 2, 3, 5, 16], rng);
    let swarm = Swarm::draw(rng);
    // If the only thread hangs, no other thread can poll.
    let hanging = swarm.hanging && most_calls > 1;
    let swarm = Swarm { hanging, multiplexed: swarm.multiplexed || is_http2, http2: is_http2, ..swarm };
    let config = config(&swarm, rng);
    let mut requests = Vec::new();
    // A single thread would otherwise delay all clients for longer than the time limits.
    let busy = match (swarm.long_calls, most_calls) {
        (true, 1) => 10 * SECOND,
        (true, _) => 3 * SECOND,
        (false, _) => 300 * MILLI,
    };
    let most_peers = if is_http2 { 8 } else { 24 };
    let connections: Vec<_> =
        (0..rng.usize(1..=most_peers)).map(|_| peer(&swarm, busy, &config, &mut requests, rng)).collect();
    let most = config.connections;
    let descriptors = if rng.u8(0..5) == 0 { rng.usize(4..30) } else { 1000 };
    let odds = |one_in: u8, from: u32, rng: &mut Rng| if rng.u8(0..one_in) == 0 { rng.u32(from..80) } else { 0 };
    let drain = (rng.u8(0..4) == 0).then(|| rng.u64(0..8 * SECOND));
    let mut stops = Vec::new();
    if rng.u8(0..3) == 0 {
        let limit = (rng.u8(0..4) > 0 || swarm.hanging).then(|| Duration::from_micros(rng.u64(0..20 * SECOND)));
        stops.push(Stop { at: rng.u64(0..8 * SECOND), limit, grace: grace(rng) });
        if rng.u8(0..4) == 0 {
            let at = stops[0].at + rng.u64(0..5 * SECOND);
            stops.push(Stop { at, limit: Some(Duration::from_micros(rng.u64(0..3 * SECOND))), grace: grace(rng) });
        }
    }
    let mut plan = Plan {
        host: Host::Threads,
        is_multiplexed: swarm.multiplexed,
        is_http2,
        is_encrypted: false,
        config: Config { connections: most, ..config },
        medium: Medium::Simulated,
        conditions: Conditions {
            descriptors,
            reserve: rng.usize(1..descriptors.min(4)),
            failing_accepts: odds(6, 2, rng),
            failing_watches: odds(8, 10, rng),
            short_sends: odds(3, 2, rng),
            cuts_at_once: rng.u8(0..4) > 0,
            // A single thread that polls rarely would learn of events much too late.
            events: if rng.bool() || most_calls == 1 { 256 } else { rng.usize(1..5) },
        },
        listeners: rng.usize(1..=2),
        most_calls,
        grain: pick(&[1, MILLI, 4 * MILLI], rng),
        wake_time: pick(&[1, 50, 2 * MILLI], rng),
        has_files: descriptors < 1000 && rng.bool(),
        connections,
        requests,
        drain,
        stops,
        outside: Vec::new(),
    };
    if rng.u8(0..3) == 0 {
        plan.set_deadlines(rng);
    }
    plan
}

impl Plan {
    /// Gives the engine real sockets, whose system calls fail only because of the clients' actions.
    pub(crate) fn put_on_sockets(&mut self, rng: &mut Rng) {
        let buffer = |rng: &mut Rng| rng.bool().then(|| rng.usize(8 << 10..64 << 10));
        self.medium = if rng.u8(0..3) == 0 {
            Medium::Unix
        } else {
            Medium::Tcp { send_buffer: buffer(rng), receive_buffer: buffer(rng) }
        };
        self.has_files = false;
        self.conditions = Conditions {
            descriptors: 1000,
            reserve: 1,
            failing_accepts: 0,
            failing_watches: 0,
            short_sends: 0,
            cuts_at_once: self.medium != Medium::Unix,
            events: 256,
        };
        // Without resets, the cut of a response that ends with its connection would be invisible.
        for request in self.requests.iter_mut().filter(|_| self.medium == Medium::Unix) {
            if request.is_until_close() {
                request.script.declared = Some(request.script.length() as u64);
            }
        }
    }

    /// Gives some requests a deadline, and makes some of their calls take longer or hang.
    fn set_deadlines(&mut self, rng: &mut Rng) {
        let limit = pick(&[30 * MILLI, 200 * MILLI, SECOND, 3 * SECOND], rng);
        let (has_long, has_stuck) = (rng.u8(0..4) > 0, rng.u8(0..3) == 0);
        for request in &mut self.requests {
            request.deadline = (rng.u8(0..4) > 0).then_some(limit);
            if request.deadline.is_none() || !has_long || rng.u8(0..5) > 0 {
                continue;
            }
            let time = match rng.u8(0..4) {
                0 if has_stuck => 600 * SECOND,
                1 if has_stuck => 60 * SECOND,
                _ => rng.u64(limit / 2..2 * limit + 5 * SECOND),
            };
            let op = if rng.bool() { Op::Work(time) } else { Op::Block(time) };
            let ops = &mut request.script.ops;
            ops.insert(rng.usize(0..=ops.len()), op);
        }
    }
}

fn grace(rng: &mut Rng) -> Duration {
    if rng.bool() { STOP_GRACE } else { Duration::from_micros(rng.u64(0..15 * SECOND)) }
}

fn config(swarm: &Swarm, rng: &mut Rng) -> Config {
    let seconds =
        |most: u64, rng: &mut Rng| (!swarm.timeless).then(|| Duration::from_micros(rng.u64(SECOND / 2..most * SECOND)));
    Config {
        connections: if rng.u8(0..4) == 0 { rng.usize(1..8) } else { 1000 },
        keep_alive: seconds(80, rng),
        header_timeout: seconds(15, rng),
        body_timeout: seconds(30, rng),
        write_timeout: seconds(30, rng),
        min_rate: pick(&[0, 0, 100, 500, 5000], rng),
        body_memory: rng.usize(1..100_000),
        body_memory_total: BodyMemory::new(if rng.bool() { usize::MAX } else { rng.usize(0..150_000) }),
        buffer_bodies: !swarm.unbuffered,
        queue: pick(&[0, 1, 2, 5, 1024], rng),
        // No peer requests this path, but the engine services pending connections only if there is a health path.
        health_path: if rng.bool() { "/healthz".into() } else { String::new() },
        exchanges: pick(&[1, 2, 4, 100], rng),
        queue_timeout: (rng.u8(0..3) > 0).then(|| Duration::from_micros(rng.u64(20 * MILLI..20 * SECOND))),
        ..Config::default()
    }
}

/// Draws a number of bytes: mostly less than 200, sometimes up to 250,000, sometimes 0.
fn size(swarm: &Swarm, rng: &mut Rng) -> usize {
    match rng.u8(0..8) {
        0 => 0,
        1..5 => rng.usize(1..200),
        5..7 => rng.usize(200..10_000),
        _ if swarm.large => rng.usize(10_000..250_000),
        _ => rng.usize(10_000..30_000),
    }
}

fn peer(swarm: &Swarm, busy: Micros, config: &Config, requests: &mut Vec<RequestPlan>, rng: &mut Rng) -> PeerPlan {
    let mut ids = Vec::new();
    let mut length = 0;
    let most_requests = match (swarm.http2, swarm.multiplexed) {
        // Hundreds of streams on few connections, but fewer per connection than the server would refuse or reset
        // without notice.
        (true, _) if rng.u8(0..4) == 0 => 150,
        (_, true) => 12,
        (_, false) => 6,
    };
    for _ in 0..rng.usize(1..=most_requests) {
        let id = requests.len();
        let request = request(id, swarm, busy, config, rng);
        let is_last = request.exchange.is_none() && (request.asks_to_close || request.garbage.is_some());
        length += request.bytes.len() + request.exchange.map_or(0, |_| request.body);
        requests.push(request);
        ids.push(id);
        if is_last {
            break;
        }
    }
    let slow = |length: usize, rng: &mut Rng| {
        // One byte per second for a short transfer, and more for a long one, so that it ends in finite time.
        let burst = if length < 300 { 1 } else { rng.usize(1..=1 + length / 100) };
        Pace { burst, pause: pick(&[SECOND, SECOND, 300 * MILLI, 7 * SECOND], rng) }
    };
    let fast = |rng: &mut Rng| match rng.u8(0..3) {
        0 => Pace { burst: rng.usize(50..5000), pause: rng.u64(1..20 * MILLI) },
        _ => Pace { burst: usize::MAX, pause: 0 },
    };
    let sends = if swarm.slow_sending && rng.u8(0..4) == 0 { slow(length, rng) } else { fast(rng) };
    let reads = if swarm.slow_reading && rng.u8(0..3) == 0 { slow(20_000, rng) } else { fast(rng) };
    let mut acts = Vec::new();
    if swarm.vanishing {
        acts.push(Act::Vanish);
    }
    if swarm.leaving {
        acts.extend([Act::Reset, Act::Close]);
    }
    if swarm.half_closing {
        acts.extend([Act::HalfClose, Act::HalfClose]);
    }
    if swarm.stalling {
        acts.extend([Act::StallSending, Act::StallReading]);
    }
    let act = rng.choice(&acts).copied().filter(|_| rng.u8(0..3) == 0);
    let acts = act.map(|act| {
        let trigger = match rng.u8(0..6) {
            0 => Trigger::After(rng.u64(0..5 * SECOND)),
            1 => Trigger::Sent(length),
            2 => Trigger::Sent(rng.usize(0..=length)),
            3 => Trigger::Got(rng.usize(0..40_000)),
            4 => Trigger::Got(rng.usize(0..1000)),
            _ => Trigger::Waited(rng.u64(0..300 * MILLI)),
        };
        (trigger, act)
    });
    let latest = if rng.bool() { 50 * MILLI } else { 5 * SECOND };
    PeerPlan {
        connects_at: rng.u64(0..latest),
        listener: rng.usize(0..2),
        latency: pick(&[1, 100, 5 * MILLI, 120 * MILLI], rng),
        packet: if rng.u8(0..3) == 0 { rng.usize(1..30) * 40 } else { usize::MAX },
        capacity: pick(&[1000, 8_000, 70_000, 200_000], rng),
        requests: ids,
        depth: match swarm.pipelining && rng.bool() {
            _ if swarm.http2 && rng.bool() => rng.usize(1..=120),
            _ if swarm.multiplexed => rng.usize(1..=8),
            true => rng.usize(2..=6),
            false => 1,
        },
        sends,
        reads,
        thinks: if rng.bool() { 0 } else { rng.u64(0..2 * SECOND) },
        stays: !swarm.timeless && rng.u8(0..4) == 0,
        acts,
        ops: Vec::new(),
        is_eager: false,
    }
}

fn request(id: usize, swarm: &Swarm, busy: Micros, config: &Config, rng: &mut Rng) -> RequestPlan {
    if swarm.multiplexed {
        return framed_request(id, swarm, busy, config, rng);
    }
    let garbage = (swarm.garbage && rng.u8(0..10) == 0)
        .then(|| pick(&[Garbage::Head(505), Garbage::Head(400), Garbage::Chunk], rng));
    let is_chunk = garbage == Some(Garbage::Chunk);
    let is_head = garbage.is_none() && rng.u8(0..10) == 0;
    let is_old = garbage.is_none() && rng.u8(0..6) == 0;
    let asks_to_close = rng.u8(0..8) == 0;
    let has_body = is_chunk || (garbage.is_none() && !is_head && rng.bool());
    let body = if has_body { 1 + size(swarm, rng) } else { 0 };
    let is_chunked = is_chunk || (has_body && !is_old && rng.bool());
    let waits = has_body && !is_old && rng.u8(0..5) == 0;
    let mut request = RequestPlan {
        is_head,
        is_old,
        asks_to_close,
        waits_for_continue: (waits && rng.u8(0..4) > 0)
            .then(|| if rng.u8(0..3) == 0 { Micros::MAX } else { rng.u64(0..4 * SECOND) }),
        garbage,
        body,
        is_chunked,
        panics: swarm.raising && garbage.is_none() && rng.u8(0..30) == 0,
        script: script(body, is_head, swarm, busy, config, rng),
        ..RequestPlan::default()
    };
    write(&mut request, id, waits, rng);
    request
}

/// Draws a request of a multiplexed connection.
fn framed_request(id: usize, swarm: &Swarm, busy: Micros, config: &Config, rng: &mut Rng) -> RequestPlan {
    let garbage = (swarm.garbage && rng.u8(0..15) == 0).then_some(Garbage::Head(400));
    let is_head = garbage.is_none() && rng.u8(0..10) == 0;
    let mut body = if garbage.is_none() && !is_head && rng.bool() { 1 + size(swarm, rng) } else { 0 };
    // More than the windows that HTTP/2 begins with, of a stream (256 KiB) and of a connection (1 MiB).
    if body > 0 && swarm.http2 && swarm.large && rng.u8(0..6) == 0 {
        body = rng.usize(200_000..900_000);
    }
    let resets = (swarm.resetting && rng.u8(0..4) == 0).then(|| match rng.u8(0..4) {
        0 => ResetTrigger::After(rng.u64(0..3 * SECOND)),
        1 => ResetTrigger::After(rng.u64(0..20 * MILLI)),
        2 if body > 0 => ResetTrigger::Sent(rng.usize(0..=body)),
        _ => ResetTrigger::Got(rng.usize(0..40_000)),
    });
    let is_slow = swarm.slow_reading && rng.u8(0..3) == 0;
    let grants = match rng.u8(0..4) {
        0 if swarm.stalling && is_slow => Pace { burst: 0, pause: 0 },
        // An HTTP/2 client that grants less at a time would send more frames than the server accepts.
        _ if is_slow => Pace {
            burst: rng.usize(if swarm.http2 { 4000 } else { 300 }..9000),
            pause: pick(&[20 * MILLI, 300 * MILLI, SECOND], rng),
        },
        0 => Pace { burst: rng.usize(1000..40_000), pause: rng.u64(0..5 * MILLI) },
        _ => Pace { burst: usize::MAX, pause: 0 },
    };
    // An HTTP/2 client that sends more than a window allows breaks the whole connection.
    let overruns = body > 40_000 && swarm.garbage && rng.u8(0..6) == 0 && !swarm.http2;
    let exchange = ExchangePlan {
        resets,
        extra: if is_slow || rng.bool() { 0 } else { rng.u32(0..400_000) },
        grants,
        part: pick(&[100, 3000, 30_000], rng).min(1 + body),
        stalls_at: (swarm.stalling && body > 0 && rng.u8(0..10) == 0).then(|| rng.usize(0..body)),
        overruns,
    };
    let mut script = script(body, is_head, swarm, busy, config, rng);
    script.closes = false;
    for op in &mut script.ops {
        // Each part that is read causes a credit for the client.
        if let Op::Read(_, most) = op {
            *most = (*most).max(500);
        }
    }
    let mut request = RequestPlan {
        is_head,
        garbage,
        body,
        exchange: Some(exchange),
        panics: swarm.raising && garbage.is_none() && rng.u8(0..30) == 0,
        script,
        ..RequestPlan::default()
    };
    let method = if is_head { "HEAD" } else { "POST" };
    let wrong = if garbage.is_some() { "\x01: \r\n" } else { "" };
    let noise =
        if rng.u8(0..3) == 0 { format!("X-Noise: {}\r\n", "n".repeat(rng.usize(0..3000))) } else { String::new() };
    request.bytes = format!("{method} /{id} HTTP/1.1\r\nHost: a.example\r\n{noise}{wrong}\r\n").into_bytes();
    request.head = request.bytes.len();
    request
}

/// Writes the bytes of a request.
fn write(request: &mut RequestPlan, id: usize, waits: bool, rng: &mut Rng) {
    let bytes = &mut request.bytes;
    match request.garbage {
        Some(Garbage::Head(505)) => bytes.extend(format!("GET /{id} HTTP/9.1\r\nHost: a.example\r\n\r\n").bytes()),
        Some(Garbage::Head(_)) => {
            bytes.extend(format!("GET /{id} HTTP/1.1\r\nHost: a.example\r\n\x01: \r\n\r\n").bytes());
        }
        _ => {
            if rng.u8(0..10) == 0 {
                bytes.extend(b"\r\n");
            }
            let method = if request.is_head { "HEAD" } else { "POST" };
            let minor = u8::from(!request.is_old);
            bytes.extend(format!("{method} /{id} HTTP/1.{minor}\r\nHost: a.example\r\n").bytes());
            match (request.is_old, request.asks_to_close) {
                (true, false) => bytes.extend(b"Connection: keep-alive\r\n"),
                (false, true) => bytes.extend(b"Connection: close\r\n"),
                _ => {}
            }
            if waits {
                bytes.extend(b"Expect: 100-continue\r\n");
            }
            if rng.u8(0..3) == 0 {
                bytes.extend(format!("X-Noise: {}\r\n", "n".repeat(rng.usize(0..3000))).bytes());
            }
            if request.is_chunked {
                bytes.extend(b"Transfer-Encoding: chunked\r\n");
            } else {
                bytes.extend(format!("Content-Length: {}\r\n", request.body).bytes());
            }
            bytes.extend(b"\r\n");
        }
    }
    request.head = bytes.len();
    let body = pattern(upload(id), 0, request.body);
    if !request.is_chunked {
        return bytes.extend(body);
    }
    let most = if rng.bool() { body.len() } else { body.len().min(1 + body.len() / 50) };
    let breaks_at = if request.garbage.is_some() { rng.usize(0..=body.len()) } else { usize::MAX };
    let mut at = 0;
    while at < body.len() && at < breaks_at {
        let count = rng.usize(1..=most).min(body.len() - at).min(breaks_at - at);
        bytes.extend(format!("{count:x}\r\n").bytes());
        bytes.extend(&body[at..at + count]);
        bytes.extend(b"\r\n");
        at += count;
    }
    if request.garbage.is_some() {
        request.body = at;
        bytes.extend(b"nonsense\r\n\r\n");
    } else {
        bytes.extend(b"0\r\n\r\n");
    }
}

fn script(body: usize, is_head: bool, swarm: &Swarm, busy: Micros, config: &Config, rng: &mut Rng) -> Script {
    let time = |rng: &mut Rng| match rng.u8(0..4) {
        0 => rng.u64(0..100),
        1 => rng.u64(0..MILLI),
        2 => rng.u64(0..20 * MILLI),
        _ => rng.u64(0..busy),
    };
    let mut ops = Vec::new();
    let mut length = 0;
    if rng.u8(0..3) == 0 {
        ops.push(if rng.bool() { Op::Work(time(rng)) } else { Op::Block(time(rng)) });
    }
    // A script that reads nothing, or only a part, is also valid.
    if !config.buffer_bodies && body > 0 && rng.u8(0..6) > 0 {
        let count = if rng.u8(0..5) == 0 { rng.usize(1..=body) } else { usize::MAX };
        ops.push(Op::Read(count, 1 + size(swarm, rng)));
    }
    if rng.u8(0..3) == 0 {
        ops.push(Op::Look);
    }
    if rng.bool() {
        ops.push(Op::Begin);
    }
    for _ in 0..rng.usize(0..8) {
        let op = match rng.u8(0..16) {
            0 => Op::Flush,
            1 => Op::SendSoon,
            2 => Op::Yield,
            3 => Op::File { length: size(swarm, rng), missing: 0 },
            4 => Op::Block(time(rng)),
            5 => Op::Work(time(rng)),
            6 => Op::Look,
            _ => Op::Write(size(swarm, rng)),
        };
        let added = match op {
            Op::Write(length) | Op::File { length, .. } => length,
            _ => 0,
        };
        if length + added <= 300_000 {
            length += added;
            ops.push(op);
        }
    }
    // More output than the engine keeps in memory for one response.
    let is_flood = swarm.large && !is_head && rng.u8(0..40) == 0;
    for _ in 0..if is_flood { rng.usize(20..50) } else { 0 } {
        let part = rng.usize(20_000..90_000);
        ops.push(Op::Write(part));
        length += part;
    }
    let mut script = Script {
        status: 200,
        declared: rng.bool().then_some(length as u64),
        closes: rng.u8(0..15) == 0,
        writes: is_flood || rng.u8(0..4) == 0,
        ignores_room: !is_flood && rng.u8(0..8) == 0,
        relieves: rng.bool(),
        patience: (rng.u8(0..4) == 0).then(|| rng.u64(0..5 * SECOND)),
        ops,
    };
    give_trouble(&mut script, length, is_head, swarm, rng);
    script
}

/// Makes a few scripts fail, hang, or write a response that differs from the declared one.
fn give_trouble(script: &mut Script, length: usize, is_head: bool, swarm: &Swarm, rng: &mut Rng) {
    let place = |ops: &[Op], rng: &mut Rng| rng.usize(0..=ops.len());
    match rng.u8(0..30) {
        0 | 1 if swarm.raising => {
            let at = place(&script.ops, rng);
            script.ops.insert(at, Op::Raise(pick(&[500, 503], rng)));
            script.declared = script.declared.map(|length| length + 1);
        }
        2 if swarm.hanging => {
            let at = place(&script.ops, rng);
            script.ops.insert(at, Op::Hang);
        }
        3 if swarm.raising => {
            let missing = rng.usize(1..5000);
            script.ops.push(Op::File { length: 5000, missing });
            script.declared = script.declared.map(|length| length + 5000);
        }
        4 if length > 0 && !is_head => script.declared = Some(rng.u64(0..length as u64)),
        5 if !is_head => script.declared = Some(length as u64 + 1),
        6 => {
            script.status = pick(&[204, 304], rng);
            script.declared = None;
        }
        7 => script.status = 404,
        8 if swarm.raising => script.ops = vec![Op::Done],
        _ => {}
    }
}
