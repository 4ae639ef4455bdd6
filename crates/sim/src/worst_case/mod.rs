//! The search for the client that costs the server most: the worst case of each protocol, measured per byte that the
//! client sends.
//!
//! SECURITY.md publishes the ceilings, and `worst_cases.txt` has the worst plans that were found. The quick test
//! `tests/worst_case.rs` replays these plans and checks the ceilings of memory and delay. `make worst-case SECONDS=60`
//! replays them, searches for worse ones and checks all ceilings; `make test-slow` runs it. A plan that it prints
//! replaces the line in `worst_cases.txt` with the same measure, host and protocol.
//!
//! # The measures to maximise
//!
//! | measure | unit | amount subtracted first, because it is a stated total |
//! |---|---|---|
//! | [`Measure::Work`] | steps per byte: basic blocks that the engine and `wire` execute | [`WORK_PER_CONNECTION`], [`WORK_PER_REQUEST`], [`WORK_PER_ARRIVAL`] or [`WORK_PER_ARRIVAL_OF_STREAMS`] |
//! | [`Measure::Kept`] | bytes of memory per byte, at the peak between two calls of `recv` or `send` | [`KEPT_BY_ENGINE`], [`KEPT_PER_CONNECTION`], the memory that bodies and messages share |
//! | [`Measure::Delay`] | steps from the moment when another client's request is complete to its answer | nothing |
//!
//! No ceiling depends on a clock. A program that is built with the compiler's coverage instrumentation
//! (`fuzz/src/bin/worst_case.rs`) counts the steps. A build without it, such as the quick test, measures no work; it
//! measures a delay by the number of protocol elements (frames, chunks, fields, requests) that the engine has read.
//! `make worst-case` also prints the nanoseconds of processor time that the same plans take on the current machine.
//!
//! # The search
//!
//! A [`Plan`] has the attackers' input: elements of their protocol, the number of connections, and the size of the
//! pieces. A search begins with an honest client and keeps the worst plans ([`Search`]). Each step changes one of them
//! in a few places. All choices come from a seed. The plan runs on a [stage](stage): an engine in memory with attackers
//! that are as fast as the engine allows, one innocent client, and an application that answers at once. One of the
//! [hosts](Host) drives it.

#![allow(clippy::cast_precision_loss, reason = "costs are compared, and far below 2^52")]

mod attack;
mod gauges;
mod names;
mod stage;

pub use attack::Plan;
pub use gauges::Gauges;
pub use names::{Host, Measure, Protocol};

use fastrand::Rng;
use gauges::MemoryWatch;
use stage::Stage;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The steps that a connection (this constant), a request or refusal, and an arrival of bytes may take in addition to
/// the steps per byte.
pub const WORK_PER_CONNECTION: u64 = 4000;
/// See [`WORK_PER_CONNECTION`].
pub const WORK_PER_REQUEST: u64 = 2000;
/// See [`WORK_PER_CONNECTION`]. The attacker pays with a packet: each arrival is received by a separate system call.
pub const WORK_PER_ARRIVAL: u64 = 500;
/// The same for an arrival on an HTTP/2 connection, which may have 100 streams that are all checked.
pub const WORK_PER_ARRIVAL_OF_STREAMS: u64 = 12_000;
/// The bytes that an engine may keep in addition to its connections, such as the state of a decompressor.
pub const KEPT_BY_ENGINE: u64 = 512 << 10;
/// The bytes that an engine may keep for each connection, in addition to those that are counted per byte.
pub const KEPT_PER_CONNECTION: u64 = 4 << 10;
/// The same for HTTP/2, where a connection has up to 100 streams, and a request of a few bytes opens one.
pub const KEPT_FOR_STREAMS: u64 = 100 << 10;
/// The same for WebSocket. One compressed message at a time is inflated before it is known whether there is room for
/// it: to at most 1 MiB plus 100 times its own bytes. While its buffer grows there are two buffers.
pub const KEPT_WHILE_INFLATING: u64 = 4 << 20;

/// The numbers of bytes that attackers send before work is measured, and while it is measured.
const WARM_UP: u64 = 16 << 10;
const MEASURED: u64 = 64 << 10;
/// The number of bytes that attackers may send while the innocent client waits. After that the delay counts as endless.
const ENDLESS: u64 = 16 << 20;
/// The number of plans that a search keeps.
const KEPT_PLANS: usize = 6;

/// The worst plans that were found. Each line has a measure, a host and a plan.
const FOUND: &str = include_str!("../../worst_cases.txt");
/// The page with the table of ceilings.
const SECURITY: &str = include_str!("../../../../SECURITY.md");

/// Returns the plans that were found for a measure, each with the host for which it was found.
///
/// # Panics
/// If a line of `worst_cases.txt` is not a plan.
#[must_use]
pub fn found(measure: Measure) -> Vec<(Host, Plan)> {
    let lines = FOUND.lines().filter(|line| !line.starts_with('#'));
    let plans = lines.map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let parsed = (|| Ok::<_, String>((word().parse::<Measure>()?, word().parse()?, word().parse()?)))();
        parsed.unwrap_or_else(|error| panic!("worst_cases.txt: {line}: {error}"))
    });
    plans.filter(|(of, ..)| *of == measure).map(|(_, host, plan)| (host, plan)).collect()
}

/// Returns the ceiling that SECURITY.md publishes.
///
/// # Panics
/// If SECURITY.md has no such ceiling.
#[must_use]
pub fn ceiling(protocol: Protocol, measure: Measure) -> f64 {
    let row = format!("| {protocol} | {measure} | ");
    let ceiling = SECURITY.lines().find_map(|line| line.strip_prefix(row.as_str()));
    let ceiling = ceiling.and_then(|rest| rest.split(' ').next()?.replace(',', "").parse().ok());
    ceiling.unwrap_or_else(|| panic!("SECURITY.md has no row {row}"))
}

/// The cost of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The cost in the unit of the measure. A delay is in elements if the build does not count steps.
    pub value: f64,
    /// The number of attackers' bytes that were received meanwhile.
    pub received: u64,
    /// True if the innocent client got no answer while attackers continued to send.
    pub is_endless: bool,
}

/// Measures the cost of a plan. The host matters only for a delay.
#[must_use]
pub fn measure(plan: &Plan, measure: Measure, host: Host, gauges: Gauges) -> Cost {
    let script = Rc::new(plan.script());
    if script.length() == Some(0) {
        return Cost::default();
    }
    let steps = gauges.steps.unwrap_or(|| 0);
    let mut stage = Stage::new(plan.protocol(), host, steps);
    match measure {
        Measure::Work => {
            stage.attack(&script, WARM_UP);
            stage.run(|_| false);
            let has_streams = plan.protocol() == Protocol::Http2;
            let per_arrival = if has_streams { WORK_PER_ARRIVAL_OF_STREAMS } else { WORK_PER_ARRIVAL };
            let totals = |stage: &Stage| {
                let sockets = stage.sockets.borrow();
                let stated = sockets.connections * WORK_PER_CONNECTION
                    + stage.app.requests * WORK_PER_REQUEST
                    + sockets.arrivals * per_arrival;
                (sockets.received, stated)
            };
            let (received, stated) = totals(&stage);
            stage.sockets.borrow_mut().budget = MEASURED;
            let before = steps();
            stage.run(|_| false);
            let spent = steps() - before;
            let after = totals(&stage);
            let (received, stated) = (after.0 - received, after.1 - stated);
            // Fewer than a page of bytes say little.
            let value = spent.saturating_sub(stated) as f64 / (received.max(4096)) as f64;
            Cost { value, received, is_endless: false }
        }
        Measure::Kept => {
            let budget = (plan.each * script.connections) as u64;
            let inflating = if plan.protocol() == Protocol::WebSocket { KEPT_WHILE_INFLATING } else { 0 };
            stage.attack(&script, budget);
            let memories = stage.memories.clone();
            let streams = if plan.protocol() == Protocol::Http2 { KEPT_FOR_STREAMS } else { 0 };
            let per_connection = KEPT_PER_CONNECTION + streams;
            let watch = MemoryWatch::new(gauges, memories, KEPT_BY_ENGINE + inflating, per_connection);
            stage.sockets.borrow_mut().memory = Some(watch);
            stage.run(|sockets| {
                sockets.note_memory();
                false
            });
            let sockets = stage.sockets.borrow();
            let received = sockets.received;
            let kept = sockets.memory.as_ref().map_or(0, |memory| memory.most);
            Cost { value: kept as f64 / received.max(4096) as f64, received, is_endless: false }
        }
        Measure::Delay => {
            stage.attack(&script, WARM_UP * script.connections as u64);
            stage.run(|_| false);
            stage.sockets.borrow_mut().budget = ENDLESS;
            stage.sockets.borrow_mut().await_arrivals(plan.moment, steps());
            let mut is_answered = false;
            let mut end = steps();
            stage.run(|sockets| {
                is_answered = sockets.is_answered();
                end = steps();
                is_answered
            });
            let sockets = stage.sockets.borrow();
            let Some((begin, before)) = sockets.asked else { return Cost::default() };
            let received = sockets.received - before;
            let value = if gauges.steps.is_some() { end - begin } else { script.elements(received) };
            Cost { value: value as f64, received, is_endless: sockets.budget == 0 || !is_answered }
        }
    }
}

/// A search for the worst plan of one protocol, measure and host.
pub struct Search {
    random: Rng,
    /// The plans that are kept, the worst one first.
    plans: Vec<(Plan, Cost)>,
    measure: Measure,
    host: Host,
    gauges: Gauges,
    /// The number of plans that were measured.
    pub tried: u64,
}

impl Search {
    /// Begins a search with an honest client and the plans that were found before.
    #[must_use]
    pub fn new(seed: u64, known: Vec<Plan>, (measure, host): (Measure, Host), gauges: Gauges) -> Self {
        let random = Rng::with_seed(seed);
        let mut search = Self { random, plans: Vec::new(), measure, host, gauges, tried: 0 };
        for plan in known {
            search.try_plan(plan);
        }
        search
    }

    fn try_plan(&mut self, plan: Plan) {
        let cost = measure(&plan, self.measure, self.host, self.gauges);
        self.tried += 1;
        if self.plans.iter().any(|(known, same)| *known == plan || same.value.to_bits() == cost.value.to_bits()) {
            return;
        }
        let place = self.plans.partition_point(|(_, known)| known.value >= cost.value);
        self.plans.insert(place, (plan, cost));
        self.plans.truncate(KEPT_PLANS);
    }

    /// Returns the worst plan so far, with its cost.
    #[must_use]
    pub fn worst(&self) -> &(Plan, Cost) {
        &self.plans[0]
    }

    /// Searches for `time`, which is real time.
    pub fn run(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let (one, other) = (self.random.usize(0..self.plans.len()), self.random.usize(0..self.plans.len()));
            let plan = self.plans[one].0.mutated(&self.plans[other].0, &mut self.random);
            self.try_plan(plan);
        }
    }
}
