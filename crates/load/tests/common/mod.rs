//! A simulated world for a generator: a scripted server, a network and a clock. An hour takes a moment and gives the
//! same result each time.
#![allow(dead_code, reason = "each test file uses a part of it")]

use load::{Generator, Measured, Moved, Nanos, Net, Plan};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::time::Duration;

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// Seconds as time.
pub(crate) fn nanos(seconds: f64) -> Nanos {
    u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap()
}

/// The outcome of an attempt to connect.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Connecting {
    /// The connection is open after this time.
    Opens(Nanos),
    /// The attempt fails after this time.
    Fails(Nanos, Errno),
    /// There is never an answer.
    Hangs,
    /// The queue is full; the generator tries again.
    Full,
}

/// An action of a scripted server.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    Bytes(Vec<u8>),
    End,
    Reset,
}

pub(crate) trait Server {
    fn connect(&mut self, _now: Nanos, _connection: usize) -> Connecting {
        Connecting::Opens(0)
    }

    /// Answers a whole request, the `nth` on its connection, from 0. Returns the parts of the answer, each with its
    /// time.
    fn request(&mut self, now: Nanos, connection: usize, nth: usize, request: &[u8]) -> Vec<(Nanos, Say)>;
}

/// A server that is a function.
pub(crate) struct Answering<F>(pub(crate) F);

impl<F: FnMut(Nanos, usize, usize, &[u8]) -> Vec<(Nanos, Say)>> Server for Answering<F> {
    fn request(&mut self, now: Nanos, connection: usize, nth: usize, request: &[u8]) -> Vec<(Nanos, Say)> {
        self.0(now, connection, nth, request)
    }
}

pub(crate) fn ok(body: &str) -> Say {
    say(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

pub(crate) fn say(text: &str) -> Say {
    Say::Bytes(text.as_bytes().to_vec())
}

struct World<S> {
    now: Nanos,
    server: S,
    /// Ordered by time, then by number, so that parts arrive in the order in which they are sent.
    events: BTreeMap<Reverse<(Nanos, u64)>, (usize, What)>,
    number: u64,
    connections: Vec<Line>,
}

enum What {
    Opened,
    Failed(Errno),
    Said(Say),
    /// Ready without a new event.
    Nudge,
}

#[derive(Default)]
struct Line {
    slot: usize,
    is_open: bool,
    failed: Option<Errno>,
    is_dropped: bool,
    to_client: VecDeque<u8>,
    ended: bool,
    reset: bool,
    to_server: Vec<u8>,
    requests: usize,
}

pub(crate) struct VirtualNet<S> {
    world: Rc<RefCell<World<S>>>,
}

pub(crate) struct VirtualSocket<S> {
    world: Rc<RefCell<World<S>>>,
    index: usize,
}

impl<S> Drop for VirtualSocket<S> {
    fn drop(&mut self) {
        self.world.borrow_mut().connections[self.index].is_dropped = true;
    }
}

impl<S: Server> World<S> {
    fn at(&mut self, time: Nanos, index: usize, what: What) {
        self.number += 1;
        self.events.insert(Reverse((time.max(self.now), self.number)), (index, what));
    }

    /// Processes the next event; returns the slot that it makes ready, and whether it is an end.
    fn happen(&mut self) -> Option<(usize, bool)> {
        let (_, (index, what)) = self.events.pop_last()?;
        let line = &mut self.connections[index];
        match what {
            What::Opened => line.is_open = true,
            What::Failed(error) => line.failed = Some(error),
            What::Said(Say::Bytes(bytes)) => line.to_client.extend(bytes),
            What::Said(Say::End) => line.ended = true,
            What::Said(Say::Reset) => line.reset = true,
            What::Nudge => {}
        }
        let is_end = line.ended || line.reset || line.failed.is_some();
        (!line.is_dropped).then_some((line.slot, is_end))
    }

    fn take_requests(&mut self, index: usize) {
        loop {
            let line = &mut self.connections[index];
            let Some(head) = line.to_server.windows(4).position(|end| end == b"\r\n\r\n") else { return };
            let text = String::from_utf8_lossy(&line.to_server[..head]).to_ascii_lowercase();
            let body = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse::<usize>().unwrap());
            if line.to_server.len() < head + 4 + body {
                return;
            }
            let request: Vec<u8> = line.to_server.drain(..head + 4 + body).collect();
            let nth = line.requests;
            line.requests += 1;
            let now = self.now;
            for (time, said) in self.server.request(now, index, nth, &request) {
                self.at(time, index, What::Said(said));
            }
        }
    }
}

impl<S: Server> Net for VirtualNet<S> {
    type Socket = VirtualSocket<S>;

    fn connect(&mut self, _address: usize, slot: usize) -> io::Result<Option<VirtualSocket<S>>> {
        let mut world = self.world.borrow_mut();
        let (now, index) = (world.now, world.connections.len());
        let connecting = world.server.connect(now, index);
        if let Connecting::Full = connecting {
            return Ok(None);
        }
        world.connections.push(Line { slot, ..Line::default() });
        match connecting {
            Connecting::Opens(0) => world.connections[index].is_open = true,
            Connecting::Opens(after) => world.at(now + after, index, What::Opened),
            Connecting::Fails(0, error) => return Err(error.into()),
            Connecting::Fails(after, error) => world.at(now + after, index, What::Failed(error)),
            Connecting::Hangs | Connecting::Full => {}
        }
        Ok(Some(VirtualSocket { world: self.world.clone(), index }))
    }

    fn is_open(&mut self, socket: &mut VirtualSocket<S>) -> io::Result<bool> {
        let world = self.world.borrow();
        let line = &world.connections[socket.index];
        line.failed.map_or(Ok(line.is_open), |error| Err(error.into()))
    }

    fn send(&mut self, socket: &mut VirtualSocket<S>, slices: &[IoSlice<'_>]) -> io::Result<Moved> {
        let mut world = self.world.borrow_mut();
        let line = &mut world.connections[socket.index];
        if let Some(error) = line.failed {
            return Err(error.into());
        }
        if line.reset {
            return Err(Errno::PIPE.into());
        }
        if !line.is_open {
            return Ok(Moved::WouldBlock);
        }
        let mut count = 0;
        for slice in slices {
            line.to_server.extend_from_slice(slice);
            count += slice.len();
        }
        world.take_requests(socket.index);
        Ok(Moved::Bytes(count))
    }

    fn receive(&mut self, socket: &mut VirtualSocket<S>, buffer: &mut [u8]) -> io::Result<Moved> {
        let mut world = self.world.borrow_mut();
        let line = &mut world.connections[socket.index];
        let count = line.to_client.len().min(buffer.len());
        if count > 0 {
            for (place, byte) in buffer.iter_mut().zip(line.to_client.drain(..count)) {
                *place = byte;
            }
            return Ok(Moved::Bytes(count));
        }
        match line {
            Line { reset: true, .. } => Err(Errno::CONNRESET.into()),
            Line { ended: true, .. } => Ok(Moved::Bytes(0)),
            _ => Ok(Moved::WouldBlock),
        }
    }

    fn want_output(&mut self, socket: &mut VirtualSocket<S>, _slot: usize) -> io::Result<()> {
        let mut world = self.world.borrow_mut();
        let line = &world.connections[socket.index];
        if line.is_open || line.failed.is_some() {
            let now = world.now;
            world.at(now, socket.index, What::Nudge);
        }
        Ok(())
    }
}

/// Returns a plan for a closed model with one connection and one request, with `changes` applied.
pub(crate) fn plan(changes: &Value) -> Plan {
    let mut plan = json!({
        "target": {"host": "example.test", "addresses": ["127.0.0.1:80"]},
        "model": {"closed": {"connections": 1}},
        "requests": [{"path": "/"}],
    });
    for (key, value) in changes.as_object().unwrap() {
        plan[key] = value.clone();
    }
    Plan::read(&plan.to_string()).unwrap_or_else(|error| panic!("{error}"))
}

/// Carries out `plan` against `server`.
pub(crate) fn run(plan: &Plan, server: impl Server) -> Measured {
    run_until(plan, server, Nanos::MAX, 0)
}

/// Does the same, but interrupts the run at `limit`. The generator handles every event `lag` later than it could.
pub(crate) fn run_until(plan: &Plan, server: impl Server, limit: Nanos, lag: Nanos) -> Measured {
    let world = World { now: 0, server, events: BTreeMap::new(), number: 0, connections: Vec::new() };
    let world = Rc::new(RefCell::new(world));
    let mut generator = Generator::new(plan, VirtualNet { world: world.clone() }, 1).unwrap();
    let mut now = 0;
    generator.start();
    let mut rounds = 0_u64;
    while !generator.is_over() {
        rounds += 1;
        assert!(rounds < 50_000_000, "the run does not end: now {now}, due {:?}", generator.due(now));
        let event = world.borrow().events.last_key_value().map(|(&Reverse((time, _)), _)| time);
        let next = [event, generator.due(now)].into_iter().flatten().min();
        let next = next.unwrap_or_else(|| panic!("nothing is left to happen at {now}"));
        now = now.max(next.saturating_add(if next > now { lag } else { 0 })).min(limit);
        world.borrow_mut().now = now;
        if now == limit {
            break;
        }
        while world.borrow().events.last_key_value().is_some_and(|(&Reverse((time, _)), _)| time <= now) {
            let ready = world.borrow_mut().happen();
            if let Some((slot, is_end)) = ready {
                generator.ready(now, slot, is_end);
            }
        }
        generator.tick(now);
    }
    let measured = generator.measured(now, 0.0, 0.0, load::result::Processor::default());
    check(&measured);
    measured
}

/// Checks the properties that every result must have.
pub(crate) fn check(measured: &Measured) {
    assert_eq!(measured.requests, measured.ok + measured.failed + measured.dropped);
    assert_eq!(measured.latency.count, measured.ok);
    assert_eq!(measured.service.count, measured.ok);
    assert_eq!(measured.failed_latency.count, measured.failed + measured.dropped);
    let errors: u64 = measured.errors.iter().map(|error| error.count).sum();
    assert!(errors >= measured.failed, "{errors} errors, {} failed", measured.failed);
    let counted: u64 = measured.series.iter().map(|interval| interval.failed + interval.dropped).sum();
    assert_eq!(counted, measured.failed + measured.dropped + measured.discarded.failed);
    for pair in measured.series.windows(2) {
        assert!((pair[0].at + pair[0].seconds - pair[1].at).abs() < 1e-6);
    }
    let text = serde_json::to_string(measured).unwrap();
    let read: Measured = serde_json::from_str(&text).unwrap();
    assert_eq!(read.requests, measured.requests);
}

/// Returns a quantile of latency, in seconds.
pub(crate) fn quantile(times: &load::result::Times, quantile: f64) -> f64 {
    let histogram = load::Histogram::decode(&times.histogram).unwrap();
    Duration::from_nanos(histogram.quantile(quantile).unwrap()).as_secs_f64()
}

/// Classes of errors and their counts.
pub(crate) fn errors(measured: &Measured) -> Vec<(String, String, u64)> {
    measured.errors.iter().map(|error| (error.class.clone(), error.detail.clone(), error.count)).collect()
}

pub(crate) fn error(class: &str, detail: &str, count: u64) -> (String, String, u64) {
    (class.to_owned(), detail.to_owned(), count)
}
