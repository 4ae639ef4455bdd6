//! Random conversations: several clients at a time send requests of every kind, read and write at every pace, and leave
//! at any time. Few or many calls may run at a time, and their operations run in any order. In all cases a request gets
//! one whole answer, or its peer sees that it did not. Every request and response that begins ends once, and nothing is
//! left.
//!
//! `KIRSCH_SEED` replays one conversation; a failure names its seed. `KIRSCH_SEEDS` sets the number of conversations.

use crate::common::{
    Client, End, Event, Manner, Op, Plan, ReceivedBody, World, ms, pattern, seconds, tcp_listener, timeless,
};
use engine::{Config, STOP_GRACE};
use fastrand::Rng;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Number of conversations of one run.
const SEEDS: u64 = 400;
/// How much time passes in a conversation: less than the linger timeout.
const TIME: Duration = Duration::from_millis(1800);
/// How long the machine may take for one conversation.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a client has to see.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// A whole answer; whether the connection is kept alive.
    Whole { status: u16, body: Vec<u8>, goes_on: bool },
    /// Less than a whole answer. A reset may destroy earlier bytes on their way.
    Cut { by_reset: bool },
}

#[derive(Clone)]
struct Asked {
    /// Number of the plan; `None` for what no application sees.
    id: Option<usize>,
    is_head: bool,
    body: Vec<u8>,
    bytes: Vec<u8>,
    outcome: Outcome,
    /// The client must not send anything after it.
    is_last: bool,
    /// The client closes its side after it, within the request.
    truncated: bool,
    /// The connection may close after its answer, which may begin before its body has arrived.
    may_end: bool,
}

impl fmt::Debug for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.bytes.split(|&b| b == b'\n').skip_while(|line| *line == b"\r");
        let head: Vec<_> = lines.take_while(|line| *line != b"\r").map(<[u8]>::escape_ascii).collect();
        let outcome = match &self.outcome {
            Outcome::Whole { status, body, goes_on } => {
                format!("{status}, {} bytes, kept alive: {goes_on}", body.len())
            }
            cut @ Outcome::Cut { .. } => format!("{cut:?}"),
        };
        write!(out, "\n  plan {:?}, {} bytes, {outcome}", self.id, self.body.len())?;
        head.iter().try_for_each(|line| write!(out, "\n    {line}"))
    }
}

struct RandomClient {
    client: Option<Client>,
    asked: Vec<Asked>,
    /// Bytes at a time.
    writes: usize,
    reads: usize,
    /// It leaves after it has received this many bytes; whether with a reset.
    leaves: Option<(usize, bool)>,
    /// It closes its side after its last request, which looks as if it left.
    ends: bool,
}

/// Properties of the world.
#[derive(Clone, Copy)]
struct Setting {
    on_tcp: bool,
    /// Bodies are streamed to the application.
    streams: bool,
    /// Requests may have to wait in the queue.
    queues: bool,
    stopped: bool,
}

#[test]
fn random_requests_get_a_whole_answer_or_a_visible_cut() {
    crate::common::quiet(is_planned);
    let seeds = match std::env::var("KIRSCH_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("KIRSCH_SEED is a number");
            seed..=seed
        }
        Err(_) => 1..=std::env::var("KIRSCH_SEEDS").map_or(SEEDS, |count| count.parse().expect("a number")),
    };
    println!("seeds {seeds:?}");
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| converse(seed))) {
            eprintln!("the conversation of KIRSCH_SEED={seed} failed");
            resume_unwind(panic);
        }
    }
}

fn is_planned(message: &str) -> bool {
    message.starts_with("a panic of plan")
        || message == "as planned"
        || message == "a response was called done and is empty"
}

// ------------------------------------------------------------------------------------------------------- requests

/// A number of bytes, small or large with equal probability.
fn size(rng: &mut Rng) -> usize {
    match rng.u8(0..8) {
        0 => 0,
        1..4 => rng.usize(1..100),
        4..6 => rng.usize(3000..20_000),
        _ => rng.usize(20_000..120_000),
    }
}

/// Operations that write, yield, flush and so on, and how many body bytes they write.
fn parts(rng: &mut Rng) -> (Vec<Op>, usize) {
    let mut ops = Vec::new();
    let mut length = 0;
    if rng.bool() {
        ops.push(Op::Begin);
    }
    for _ in 0..rng.usize(0..12) {
        let op = match rng.u8(0..12) {
            0 => Op::Flush,
            1 => Op::SendSoon,
            2 => Op::Yield,
            3 => Op::File { length: size(rng), missing: 0 },
            _ => Op::Write(size(rng)),
        };
        let added = match op {
            Op::Write(length) | Op::File { length, .. } => length,
            _ => 0,
        };
        if length + added > 300_000 {
            break;
        }
        length += added;
        // These operations need a head before them.
        if !matches!(op, Op::Flush | Op::SendSoon) || ops.iter().any(|op| matches!(op, Op::Begin | Op::Write(_))) {
            ops.push(op);
        }
    }
    (ops, length)
}

/// A request for plan `id`, and that plan.
fn ask(id: usize, setting: Setting, rng: &mut Rng) -> (Asked, Plan) {
    let is_head = rng.u8(0..10) == 0;
    let is_old = rng.u8(0..6) == 0;
    let asks_to_close = rng.u8(0..8) == 0;
    let body = if is_head || rng.bool() { Vec::new() } else { pattern(id + 1000, 0, size(rng)) };
    let chunked = !is_old && !body.is_empty() && rng.bool();

    let (ops, length) = parts(rng);
    let manner = match rng.u8(0..8) {
        0 => Manner::Impolite,
        1..3 => Manner::Waits,
        _ => Manner::Stops,
    };
    let mut plan = Plan { manner, ..Plan::of(ops) };
    if rng.bool() {
        plan = plan.declaring(length);
    }
    if rng.u8(0..15) == 0 {
        plan.fields.push(("Connection", "close"));
    }
    let until_close = |plan: &Plan| is_old && plan.declared.is_none();
    let keeps_alive = !asks_to_close && plan.fields.is_empty();
    let whole = |body| Outcome::Whole { status: 200, body, goes_on: keeps_alive };
    let outcome = if is_head {
        Outcome::Whole { status: 200, body: Vec::new(), goes_on: keeps_alive }
    } else {
        match rng.u8(0..24) {
            0 => {
                let ops = match rng.bool() {
                    true if setting.streams => vec![Op::EchoAll(read_size(rng))],
                    false if setting.streams => vec![Op::ReadAll(read_size(rng)), Op::Echo],
                    _ => vec![Op::Echo],
                };
                plan = Plan { ops, declared: Some(body.len() as u64), ..plan };
                whole(body.clone())
            }
            1 => {
                plan.ops.insert(0, Op::Begin);
                plan.ops.push(Op::Cut);
                plan.declared = plan.declared.map(|length| length + 1);
                Outcome::Cut { by_reset: until_close(&plan) }
            }
            2 => {
                // A part of the body is written, because a head alone may still be replaced by an error page.
                plan.ops.splice(0..0, [Op::Begin, Op::Write(7)]);
                plan.ops.push(Op::Panic("as planned"));
                plan.declared = plan.declared.map(|length| length + 8);
                Outcome::Cut { by_reset: until_close(&plan) }
            }
            3 => {
                plan.ops = vec![Op::Yield, Op::Panic("as planned")];
                Outcome::Whole {
                    status: 500,
                    body: b"500 Internal Server Error\nThe server has failed.\n".to_vec(),
                    goes_on: false,
                }
            }
            4 => {
                plan.panics_early = true;
                Outcome::Cut { by_reset: true }
            }
            5 => {
                plan.ops = vec![Op::Done];
                Outcome::Whole {
                    status: 500,
                    body: b"500 Internal Server Error\nThe server has failed.\n".to_vec(),
                    goes_on: false,
                }
            }
            6 => {
                plan.ops = vec![Op::Refuse(503)];
                Outcome::Whole {
                    status: 503,
                    body: b"503 Service Unavailable\nAs the plan says.\n".to_vec(),
                    goes_on: false,
                }
            }
            7 => {
                let cut = rng.usize(1..5000);
                plan.ops.push(Op::File { length: 5000, missing: cut });
                plan.declared = plan.declared.map(|length| length + 5000);
                Outcome::Cut { by_reset: true }
            }
            8 if length > 0 => {
                // Longer than declared: the part that does not fit is not sent, so the body lacks its end. If the part
                // before it ends exactly at the declared length, only a reset makes the error visible.
                let declared = rng.usize(0..length);
                let mut sent = 0;
                for op in &plan.ops {
                    if let Op::Write(part) | Op::File { length: part, .. } = op {
                        if sent + part > declared {
                            break;
                        }
                        sent += part;
                    }
                }
                plan = plan.declaring(declared);
                Outcome::Cut { by_reset: sent == declared }
            }
            9 => {
                plan = plan.declaring(length + 1);
                Outcome::Cut { by_reset: false }
            }
            10 => {
                plan = Plan { status: "204 No Content", declared: None, ..plan };
                Outcome::Whole { status: 204, body: Vec::new(), goes_on: keeps_alive }
            }
            _ if until_close(&plan) => Outcome::Whole { status: 200, body: pattern(id, 0, length), goes_on: false },
            _ => whole(pattern(id, 0, length)),
        }
    };
    // A Unix socket has no reset. There the cut of a body until the close looks like its end.
    if matches!(outcome, Outcome::Cut { .. }) && !setting.on_tcp && until_close(&plan) {
        return ask(id, setting, rng);
    }
    if setting.streams && !matches!(plan.ops.first(), Some(Op::EchoAll(_) | Op::ReadAll(_))) {
        match rng.u8(0..4) {
            0..2 => plan.ops.insert(0, Op::ReadAll(read_size(rng))),
            2 => plan.ops.insert(0, Op::Read(read_size(rng))),
            _ => {}
        }
    }

    let mut bytes = Vec::new();
    if rng.u8(0..10) == 0 {
        bytes.extend(b"\r\n");
    }
    let method = if is_head { "HEAD" } else { "POST" };
    bytes.extend(format!("{method} /{id} HTTP/1.{}\r\nHost: a.example\r\n", u8::from(!is_old)).bytes());
    match (is_old, asks_to_close) {
        (true, false) => bytes.extend(b"Connection: keep-alive\r\n"),
        (false, true) => bytes.extend(b"Connection: close\r\n"),
        _ => {}
    }
    if rng.u8(0..6) == 0 {
        bytes.extend(b"Expect: 100-continue\r\n");
    }
    if chunked {
        bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        let mut rest = &body[..];
        while !rest.is_empty() {
            let length = rng.usize(1..=rest.len());
            bytes.extend(format!("{length:x}\r\n").bytes());
            bytes.extend(&rest[..length]);
            bytes.extend(b"\r\n");
            rest = &rest[length..];
        }
        bytes.extend(b"0\r\n\r\n");
    } else {
        bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        bytes.extend(&body);
    }
    let may_end = setting.streams && !body.is_empty() && !matches!(plan.ops.first(), Some(Op::ReadAll(_)));
    let asked =
        Asked { id: Some(id), is_head, body, bytes, outcome, is_last: asks_to_close, truncated: false, may_end };
    (asked, plan)
}

/// How many bytes of a body are read at a time.
fn read_size(rng: &mut Rng) -> usize {
    if rng.bool() { 1 + rng.usize(0..50) } else { 100_000 }
}

/// A request that the engine answers itself, unless the application reads the malformed body.
fn malformed_request(id: usize, setting: Setting, rng: &mut Rng) -> (Asked, Plan) {
    let (bytes, status, explanation, truncated, id) = match rng.u8(0..4) {
        0 => (
            "GET / HTTP/9.1\r\nHost: a\r\n\r\n".into(),
            505,
            "HTTP Version Not Supported\nThis server speaks HTTP/1.0 and HTTP/1.1.",
            false,
            None,
        ),
        1 => (
            format!("PUT /{id} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nX"),
            400,
            "Bad Request\nA chunk size is not a hexadecimal number.",
            false,
            Some(id),
        ),
        2 => ("GET /x HTTP/1.1\r\nHo".into(), 400, "Bad Request\nThe request ended early.", true, None),
        _ => (
            format!("PUT /{id} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"),
            400,
            "Bad Request\nThe request ended early.",
            true,
            Some(id),
        ),
    };
    let explanation = if setting.streams && id.is_some() { "Bad Request\nAs the body went." } else { explanation };
    let page = format!("{status} {explanation}\n").into_bytes();
    let outcome = Outcome::Whole { status, body: page, goes_on: false };
    let asked = Asked {
        id,
        is_head: false,
        body: Vec::new(),
        bytes: bytes.into_bytes(),
        outcome,
        is_last: false,
        truncated,
        may_end: false,
    };
    (asked, if setting.streams { Plan::of(vec![Op::ReadAll(read_size(rng))]) } else { Plan::sized(&[]) })
}

// --------------------------------------------------------------------------------------------------- conversation

fn converse(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let rng = &mut rng;
    let on_tcp = rng.bool();
    let callers = if rng.bool() { usize::MAX } else { rng.usize(1..=3) };
    // At times no thread polls the engine for a while, and the ticker services pending connections.
    let is_serviced = rng.bool();
    let queues = callers < usize::MAX || is_serviced;
    let mut setting = Setting { on_tcp, streams: rng.u8(0..3) == 0, queues, stopped: false };
    let mut plans = Vec::new();
    let mut scripts = Vec::new();
    for _ in 0..rng.usize(1..=4) {
        let mut asked = Vec::new();
        for _ in 0..rng.usize(1..=6) {
            let (request, plan) = if rng.u8(0..20) == 0 {
                malformed_request(plans.len(), setting, rng)
            } else {
                ask(plans.len(), setting, rng)
            };
            plans.push(plan);
            let ends = request.is_last || request.truncated;
            asked.push(request);
            if ends {
                break;
            }
        }
        scripts.push(asked);
    }

    // Every limit is set, and none is reached in the time that passes.
    let config =
        Config { body_memory: rng.usize(1..50_000), connections: rng.usize(2..6), min_rate: 0, ..Config::default() };
    let config = if rng.bool() { config } else { Config { body_memory: config.body_memory, ..timeless() } };
    let queue = if rng.bool() { rng.usize(0..3) } else { config.queue };
    let health_path = if is_serviced { "/healthz".to_owned() } else { String::new() };
    let config = Config { buffer_bodies: !setting.streams, queue, health_path, ..config };
    let buffer = |rng: &mut Rng| rng.bool().then(|| rng.usize(8 << 10..64 << 10));
    let mut world = if on_tcp {
        let (listener, address) = tcp_listener(buffer(rng));
        World::on(vec![listener], vec![address], config, plans)
    } else {
        World::unix(config, plans)
    };
    world.callers = callers;
    world.keeps = rng.bool();
    let mut clients: Vec<_> = scripts
        .into_iter()
        .map(|asked| {
            let mut client = Client::connect(&world.addresses[0], buffer(rng));
            for (index, request) in asked.iter().enumerate() {
                if request.is_head {
                    client.expect_head_at(index);
                }
                client.send(&request.bytes);
            }
            let ends = rng.bool() || asked.last().is_some_and(|last| last.truncated);
            if ends {
                client.end_sending();
            }
            let read_size = |rng: &mut Rng| if rng.bool() { usize::MAX } else { 1 + rng.usize(0..20_000) };
            RandomClient {
                client: Some(client),
                writes: read_size(rng),
                reads: read_size(rng),
                leaves: (rng.u8(0..5) == 0).then(|| (size(rng), rng.bool())),
                ends,
                asked,
            }
        })
        .collect();

    let mut time = Duration::ZERO;
    let stops_after = (rng.u8(0..6) == 0).then(|| rng.usize(0..30));
    let patience = Instant::now() + PATIENCE;
    for round in 0.. {
        let mut moved = false;
        for client in &mut clients {
            if rng.u8(0..4) > 0 {
                moved |= client.go_on(rng);
            }
        }
        if stops_after == Some(round) {
            setting.stopped = true;
            let now = world.now();
            world.engine.stop(now, Some(seconds(60)), STOP_GRACE);
        }
        if is_serviced && rng.u8(0..10) == 0 && time + ms(400) <= TIME {
            time += ms(400);
            for _ in 0..4 {
                world.service_pending(ms(100));
            }
        }
        if rng.u8(0..4) > 0 || !moved {
            let step = if rng.u8(0..4) == 0 { ms(rng.u64(0..300)) } else { ms(0) };
            if time + step <= TIME {
                time += step;
                world.advance(step);
            } else {
                world.poll();
            }
        }
        moved |= go_on_with_calls(&mut world, rng);
        if rng.bool() {
            world.engine.tick();
        }
        let queued = usize::try_from(world.statistics().queued).unwrap();
        // Requests that become ready while a call completes may exceed the limit.
        assert!(
            queued <= queue.saturating_add(callers),
            "{queued} requests are queued; the limit is {queue} and {callers} calls"
        );
        clients.iter_mut().for_each(RandomClient::close_if_done);
        let mut here: Vec<_> = clients.iter_mut().filter_map(|client| client.client.as_mut()).collect();
        here.retain(|client| client.end.is_none());
        if here.is_empty() {
            break;
        }
        let idles = !moved && world.timeout() != Some(ms(0));
        let stuck = (idles && !world.wait(&here)) || Instant::now() > patience;
        if stuck {
            let states: Vec<_> =
                here.iter().map(|client| (client.received.len(), client.unsent(), client.refused)).collect();
            panic!(
                "stuck in round {round} (on TCP: {on_tcp}): {states:?}\n{:?}\n{:?}\nplans {:?}",
                world.statistics(),
                world.app.log,
                world.app.plans
            );
        }
    }

    for client in &clients {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| client.check(setting))) {
            for id in client.asked.iter().filter_map(|asked| asked.id) {
                eprintln!("plan {id}: {:?}", world.app.plans[id]);
            }
            eprintln!("on TCP: {on_tcp}, stopped: {}, log: {:?}", setting.stopped, world.app.log);
            resume_unwind(panic);
        }
    }
    for asked in clients.iter().flat_map(|client| &client.asked) {
        let Some(id) = asked.id else { continue };
        let came = if setting.streams { world.app.body_read(id) } else { world.app.body(id).map(ReceivedBody::bytes) };
        if let Some(bytes) = came {
            assert!(bytes == asked.body, "the received body is not the one that was sent: {asked:?}");
        }
    }
    drop(clients);
    world.keeps = false;
    world.go_on_with_woken();
    world.until_empty(&mut []);
    check_log(&world, seed);
    if setting.stopped {
        world.settle();
        assert!(world.engine.is_stopped());
    } else {
        // The engine still serves.
        let mut client = world.client();
        world.ask(&mut client, b"GET / HTTP/8.0\r\n\r\n", 1);
    }
}

/// Runs some operations of running calls, in any order; whether there were any.
fn go_on_with_calls(world: &mut World, rng: &mut Rng) -> bool {
    if !world.keeps {
        return false;
    }
    world.note_woken();
    let mut any = false;
    for _ in 0..rng.usize(0..10) {
        let able: Vec<_> = (0..world.calls.len()).filter(|&index| !world.calls[index].waits).collect();
        let Some(&index) = rng.choice(&able) else { break };
        world.step(index);
        world.note_woken();
        any = true;
    }
    any || world.calls.iter().any(|call| !call.waits)
}

impl RandomClient {
    /// Sends and reads a little; whether it could.
    fn go_on(&mut self, rng: &mut Rng) -> bool {
        let Some(client) = &mut self.client else { return false };
        let wrote = client.pump_out(self.writes);
        let read = if rng.u8(0..3) > 0 { client.pump_in(self.reads) } else { 0 };
        if let Some((received, with_reset)) = self.leaves
            && client.received.len() >= received
            && let Some(client) = self.client.take()
        {
            if with_reset {
                client.reset();
            }
            return true;
        }
        wrote + read > 0
    }

    /// Closes its side when it has received everything, or will not receive it.
    fn close_if_done(&mut self) {
        if let Some(client) = &mut self.client {
            if client.end.is_some() {
                client.hang_up();
            } else if client.answers.len() == self.asked.len() {
                client.end_sending();
                client.pump_out(0);
            }
        }
    }

    /// Compares the received answers with the expected ones.
    fn check(&self, setting: Setting) {
        let Some(client) = &self.client else { return };
        let Setting { on_tcp, queues, stopped, .. } = setting;
        let mut expected = 0;
        let mut exactly = !stopped;
        for (index, asked) in self.asked.iter().enumerate() {
            let answer = client.answers.get(index);
            // A client that closes its side while its request is queued counts as gone.
            if let Some(answer) = answer
                && (queues && self.ends && answer.body.ends_with(b"\nThe server has too much to do at the moment.\n"))
            {
                assert!(answer.status == 503 && answer.head.contains("Retry-After: ") && !answer.keep_alive);
                expected += 1;
                break;
            }
            // A refusal of HEAD has no page.
            if asked.is_head && queues && self.ends && answer.is_some_and(|answer| answer.status == 503) {
                expected += 1;
                break;
            }
            match &asked.outcome {
                Outcome::Whole { status, body, goes_on } => {
                    expected += 1;
                    if let Some(answer) = answer {
                        assert_eq!(answer.status, *status, "answer {index}, to {asked:?}");
                        assert!(answer.body == *body, "answer {index} differs, to {asked:?}");
                        let may_end = stopped || !goes_on || asked.may_end;
                        assert!(answer.keep_alive || may_end, "answer {index} closes the connection");
                    }
                    if asked.may_end && client.answers.len() <= index + 1 {
                        // The connection ended after this answer, if it came so far; a later reset may destroy it too.
                        exactly &= answer.is_some();
                        break;
                    }
                    if !goes_on {
                        break;
                    }
                }
                Outcome::Cut { by_reset } => {
                    exactly &= !by_reset;
                    let shows = client.end == Some(End::Reset) || client.fault.is_some() || !client.has_part();
                    assert!(shows || !on_tcp, "the cut of answer {index} is not visible: {asked:?}");
                    break;
                }
            }
        }
        let count = client.answers.len();
        let asked = &self.asked;
        assert!(count <= expected, "{count} answers, not {expected}, to {asked:?}");
        assert!(!exactly || count == expected, "{count} answers, not {expected} ({:?}), to {asked:?}", client.end);
    }
}

/// Checks that every request and every response that began has ended once.
fn check_log(world: &World, seed: u64) {
    let log = &world.app.log;
    let mut calls = 0;
    for (id, plan) in world.app.plans.iter().enumerate() {
        let count = |of: &dyn Fn(&Event) -> bool| log.iter().filter(|event| of(event)).count();
        let begun = count(&|event| matches!(event, Event::Begin { id: of, .. } if *of == id));
        let called = count(&|event| matches!(event, Event::Call { id: of, .. } if *of == id));
        let dismissed = count(&|event| matches!(event, Event::AbandonRequest { id: of, .. } if *of == id));
        let ended = count(&|event| matches!(event, Event::End { id: of, .. } | Event::Abandon { id: of } if *of == id));
        assert!(begun <= 1, "plan {id} of seed {seed}");
        let panicked = usize::from(plan.panics_early && begun == 1);
        assert_eq!(begun, called + dismissed + panicked, "plan {id} of seed {seed}: {log:?}");
        assert_eq!(called, ended, "plan {id} of seed {seed}: {log:?}");
        let last = log.iter().rposition(|event| matches!(event, Event::Resume { id: of } if *of == id));
        let end = log
            .iter()
            .position(|event| matches!(event, Event::End { id: of, .. } | Event::Abandon { id: of } if *of == id));
        assert!(last.is_none() || last < end, "plan {id} of seed {seed} is resumed after its end: {log:?}");
        calls += called as u64;
    }
    for message in world.app.panics() {
        assert!(is_planned(message), "seed {seed}: {message}");
    }
    assert_eq!((world.statistics().requests, world.statistics().running), (calls, 0));
    assert_eq!(world.statistics().queued, 0);
    assert_eq!((world.statistics().connections, world.app.alive()), (0, 0));
}
