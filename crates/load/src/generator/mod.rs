//! The generator: sends requests as its plan specifies, and checks and measures the responses.
//!
//! # Time is an argument
//!
//! Like the engine, the generator does nothing on its own. Its driver waits for sockets, at most until
//! [`Generator::due`], and calls [`Generator::ready`] and [`Generator::tick`] with the time. So a test can simulate ten
//! minutes in a moment, and each response is timed with a separate reading of the clock.
//!
//! ```text
//!   start ─▶ ┌ wait until due() ─▶ ready(now, slot) for each that is ─▶ tick(now) ┐ ─▶ is_over ─▶ measured
//!            └──────────────────────────────◀─────────────────────────────────────┘
//! ```
//!
//! # When requests begin
//!
//! Closed model: each user has a connection, and a number of requests that it may begin now (`ready`). A response
//! increments this number after the think time. Open model: a schedule creates requests. A due request is sent on a
//! free connection, or, if pipelining is allowed, on the one with the fewest unanswered requests, or on a new
//! connection; or it waits in a queue that limits number and time. Requests that cannot wait are dropped and counted.
//! The schedule does not depend on the speed of the server (see `demand.rs` and `beginning.rs`, and for connections
//! `opening.rs` and `ending.rs`).
//!
//! When the window has ended, no more requests begin. The generator waits for unanswered ones, because otherwise the
//! slow ones would be missing from the result.

mod beginning;
mod demand;
mod ending;
mod opening;

use crate::answers::Answer;
use crate::connection::{Connection, Stage};
use crate::failure::{Class, Failure};
use crate::net::{Moved, Nanos, Net};
use crate::plan::{Plan, PlanError, Version, nanos, seconds};
use crate::result::{Ended, Measured, Phase, Processor, Progress, Window as Told};
use crate::schedule::Window;
use crate::script::Script;
use crate::streams::Step;
use crate::tally::{Job, LATE, Tally};
use demand::Demand;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write as _;

/// The size of the receive buffer in bytes.
const BUFFER: usize = 64 * 1024;
/// The number of bytes of a malformed response that an example shows.
const SHOWN: usize = 120;

/// A load generator; see the [module](self).
#[derive(Debug)]
pub struct Generator<N: Net> {
    net: N,
    script: Script,
    window: Window,
    tally: Tally,
    connections: Slab<Connection<N::Socket>>,
    demand: Demand,
    /// True if requests are sent over HTTP/2.
    is_multiplexed: bool,
    addresses: usize,
    next_address: usize,
    next_id: u64,
    timeout: Nanos,
    patience: Nanos,
    /// The time since which the generator has tried to connect without an open connection; `None` while one is open.
    unlucky_since: Option<Nanos>,
    /// The number of open connections, without those that linger.
    open: usize,
    /// The number of requests that have begun and have neither been answered nor failed.
    active: u64,
    timers: BinaryHeap<Reverse<(Nanos, Timer)>>,
    /// For each slot, the time at which its deadline timer fires; `MAX` if there is none.
    armed: Vec<Nanos>,
    /// The slots to handle at once, with a new reading of the clock: there is more to read, or the connection may be
    /// open.
    again: VecDeque<usize>,
    buffer: Vec<u8>,
    ended: Option<(Ended, Nanos)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Check the deadline of the connection in this slot.
    Deadline { slot: usize },
    /// Try to connect again.
    Knock { slot: usize, id: u64 },
    /// The think time of this user has ended.
    Thought { user: usize },
    /// The pause of this user after a failure to connect has ended.
    Recovered { user: usize },
}

/// The next step for a connection after its input was read.
enum Verdict {
    More,
    /// Close: the server has announced it, or was asked for it.
    Close,
    /// The response is malformed.
    Broken(Failure, String),
    /// Bytes have arrived that answer no request.
    Unasked(String),
}

impl<N: Net> Generator<N> {
    /// Creates a generator that has not started. `addresses` is the number of addresses of the target.
    ///
    /// # Errors
    /// The place and the problem, if the plan is invalid.
    pub fn new(plan: &Plan, net: N, addresses: usize) -> Result<Self, PlanError> {
        plan.check()?;
        let mut generator = Self {
            net,
            script: Script::new(plan)?,
            window: Window::new(plan),
            tally: Tally::new(nanos(plan.interval)),
            connections: Slab::new(),
            demand: Demand::new(plan),
            is_multiplexed: plan.version == Version::Http2,
            addresses: addresses.max(1),
            next_address: 0,
            next_id: 0,
            timeout: nanos(plan.timeout),
            patience: plan.patience.map_or(Nanos::MAX, nanos),
            unlucky_since: None,
            open: 0,
            active: 0,
            timers: BinaryHeap::new(),
            armed: Vec::new(),
            again: VecDeque::new(),
            buffer: vec![0; BUFFER],
            ended: None,
        };
        generator.tell_window();
        Ok(generator)
    }

    /// Starts the run, at time 0.
    pub fn start(&mut self) {
        if let Demand::Open(pool) = &self.demand {
            for _ in 0..pool.opened_at_start {
                self.connect(0, None, None);
            }
        }
        self.tick(0);
    }

    /// Handles the readiness of the connection in `slot`. `read_closed`: the end of its input, or an error, has
    /// arrived.
    pub fn ready(&mut self, now: Nanos, slot: usize, read_closed: bool) {
        if self.ended.is_some() {
            return;
        }
        self.tally.roll(now);
        self.drive(now, slot, read_closed);
        self.pump(now);
        // A long batch of responses must not delay arrivals.
        if self.demand.next_arrival().is_some_and(|due| due <= now) {
            self.tick(now);
        } else {
            self.end_if_done(now);
        }
    }

    /// Executes everything that is due at this time.
    pub fn tick(&mut self, now: Nanos) {
        if self.ended.is_some() {
            return;
        }
        self.tally.roll(now);
        if let Some(slot) = self.again.pop_front()
            && let Some(connection) = self.connections.get_mut(slot)
            && let Some(read_closed) = connection.again.take()
        {
            if connection.stage == Stage::Opening {
                self.open(now, slot);
            } else {
                self.drive(now, slot, read_closed);
            }
        }
        while let Some(&Reverse((due, timer))) = self.timers.peek() {
            if due > now {
                break;
            }
            self.timers.pop();
            self.fire(now, due, timer);
        }
        self.arrive(now);
        self.pump(now);
        if self.unlucky_since.is_some_and(|since| now - since >= self.patience) {
            self.give_up(now);
        } else {
            self.end_if_done(now);
        }
    }

    fn end_if_done(&mut self, now: Nanos) {
        if self.active == 0 && self.window.is_over(now) {
            self.end(now, Ended::Complete);
        }
    }

    /// Returns the time at which [`tick`](Self::tick) must be called, even if nothing becomes ready before.
    #[must_use]
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        if !self.again.is_empty() {
            return Some(now);
        }
        let timer = self.timers.peek().map(|&Reverse((due, _))| due);
        let patience = self.unlucky_since.map(|since| since.saturating_add(self.patience));
        // After the window, only responses and time limits end the run.
        let edges = [self.window.from(), self.window.until()].into_iter().flatten().find(|&edge| edge > now);
        [timer, patience, edges, self.demand.next_expiry(), self.demand.next_arrival()].into_iter().flatten().min()
    }

    /// Returns true once the run has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the current phase.
    #[must_use]
    pub fn phase(&self, now: Nanos) -> Phase {
        if self.ended.is_some() || self.window.is_over(now) {
            Phase::Draining
        } else if self.window.from().is_some_and(|from| now >= from) {
            Phase::Measuring
        } else {
            Phase::Warmup
        }
    }

    /// Ends the run without waiting for unanswered requests.
    pub fn end(&mut self, now: Nanos, ended: Ended) {
        if self.ended.is_none() {
            self.tally.close(now);
            self.ended = Some((ended, now));
        }
    }

    /// Returns the current progress. Its `latest` covers the time since the last call.
    pub fn progress(&mut self, now: Nanos) -> Progress {
        let waiting = self.demand.waiting();
        let total = self.tally.total;
        Progress {
            elapsed: seconds(now),
            phase: self.phase(now),
            answered: total.answered,
            failed: total.failed,
            dropped: total.dropped,
            late: total.late,
            active: usize::try_from(self.active).unwrap_or(usize::MAX).saturating_sub(waiting),
            waiting,
            received: total.received,
            latest: self.tally.latest(now),
        }
    }

    /// Returns the result of a run that has [ended](Self::is_over); a run that has not is ended now. `started` and
    /// `finished` are in seconds since 1970.
    pub fn measured(&mut self, now: Nanos, started: f64, finished: f64, processor: Processor) -> Measured {
        self.end(now, Ended::Interrupted);
        let (ended, end) = self.ended.unwrap_or((Ended::Interrupted, now));
        let tally = &self.tally;
        let from = self.window.from().filter(|&from| from <= end);
        let until = match (ended, self.window.until()) {
            (_, Some(until)) => until.min(end),
            (Ended::Complete, None) => tally.last_end,
            (_, None) => end,
        };
        let length = seconds(until.saturating_sub(from.unwrap_or(until)));
        #[allow(clippy::cast_precision_loss, reason = "figures of 15 digits will do")]
        let rate = if length > 0.0 { tally.answered_within as f64 / length } else { 0.0 };
        Measured {
            ended,
            started,
            finished,
            window: Told { from: seconds(from.unwrap_or(end)), seconds: length },
            answered: tally.answered_within,
            rate,
            requests: tally.ok + tally.failed + tally.dropped,
            ok: tally.ok,
            failed: tally.failed,
            dropped: tally.dropped,
            unfinished: self.active,
            late: tally.late,
            late_by_generator: tally.late_by_generator,
            resent: tally.resent,
            discarded: tally.discarded,
            connections: tally.connections,
            errors: tally.errors(),
            statuses: tally.statuses(),
            bytes: tally.bytes,
            latency: tally.latency.times(),
            service: tally.service.times(),
            first_byte: tally.first_byte.times(),
            failed_latency: tally.failed_latency.times(),
            connect: tally.connect.times(),
            lag: tally.lag.times(),
            series: tally.series.clone(),
            processor,
            samples: self.script.forms().iter().filter_map(|form| form.sample.clone()).collect(),
        }
    }

    fn put(&mut self, now: Nanos, slot: usize, mut job: Job) {
        let connection = &mut self.connections[slot];
        job.put = now;
        job.first = 0;
        job.is_last = connection.asked + 1 >= self.script.per_connection;
        if connection.stage == Stage::Open {
            job.given = now;
            note_late(&mut self.tally, &self.demand, &job);
        }
        let is_first = connection.jobs.is_empty();
        connection.put(job, &self.script);
        if is_first {
            connection.deadline = now.saturating_add(self.timeout);
            self.arm(slot);
        }
    }

    fn send(&mut self, now: Nanos, slot: usize) {
        let connection = &mut self.connections[slot];
        if connection.stage != Stage::Open || !connection.is_sending() {
            return;
        }
        if let Ok(sent) = connection.flush(&mut self.net, &self.script, slot) {
            self.tally.sent(now, sent);
        } else {
            // A server that rejects a request may send a response before it closes the connection, so the input is read
            // first.
            connection.output_failed = true;
            self.place(slot);
            self.look_again(slot, true);
        }
    }

    fn look_again(&mut self, slot: usize, read_closed: bool) {
        let connection = &mut self.connections[slot];
        if connection.again.is_none() {
            self.again.push_back(slot);
        }
        connection.again = Some(connection.again.unwrap_or(false) || read_closed);
    }

    /// Schedules the check of the deadline of the connection in `slot`. Each slot has at most one timer, however often
    /// the deadline moves: a timer that fires too early is set again.
    fn arm(&mut self, slot: usize) {
        let deadline = self.connections[slot].deadline;
        if deadline < self.armed[slot] {
            self.armed[slot] = deadline;
            self.timers.push(Reverse((deadline, Timer::Deadline { slot })));
        }
    }

    fn fire(&mut self, now: Nanos, due: Nanos, timer: Timer) {
        match timer {
            Timer::Deadline { slot } => {
                if self.armed[slot] != due {
                    return;
                }
                self.armed[slot] = Nanos::MAX;
                let Some(connection) = self.connections.get(slot) else { return };
                if connection.deadline <= now {
                    self.time_out(now, slot);
                } else {
                    self.arm(slot);
                }
            }
            Timer::Knock { slot, id } => {
                if self.connections.get(slot).is_some_and(|connection| connection.id == id) {
                    self.knock(now, slot);
                }
            }
            Timer::Thought { user } => {
                if let Some(users) = self.users() {
                    users.each[user].ready += 1;
                    users.runnable.push(user);
                }
            }
            Timer::Recovered { user } => {
                if let Some(users) = self.users() {
                    users.runnable.push(user);
                }
            }
        }
    }

    /// Handles a connection that has become ready.
    fn drive(&mut self, now: Nanos, slot: usize, read_closed: bool) {
        let Some(connection) = self.connections.get(slot) else { return };
        match connection.stage {
            Stage::Knocking => return,
            Stage::Opening => {
                self.open(now, slot);
                if self.connections.get(slot).is_none_or(|connection| connection.stage != Stage::Open) {
                    return;
                }
            }
            Stage::Lingering => return self.discard(now, slot),
            Stage::Open => self.send(now, slot),
        }
        // Data and the following end of input may be reported together, and are not reported again.
        while self.receive(now, slot, read_closed) && read_closed {}
    }

    /// Receives once. Returns true if there may be more data, which must be received at once.
    fn receive(&mut self, now: Nanos, slot: usize, read_closed: bool) -> bool {
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        let (Stage::Open, Some(socket)) = (connection.stage, &mut connection.socket) else { return false };
        let count = match self.net.receive(socket, &mut self.buffer) {
            Ok(Moved::Bytes(0)) => {
                self.input_ended(now, slot);
                return false;
            }
            Ok(Moved::Bytes(count)) => count,
            Ok(Moved::WouldBlock) => {
                if connection.output_failed {
                    self.lose(now, slot, Failure::of(Class::Reset), "the connection broke while the request was sent");
                }
                return false;
            }
            Err(error) => {
                let text = format!("the connection broke: {error}");
                self.lose(now, slot, Failure::of(Class::Reset), &text);
                return false;
            }
        };
        self.tally.received(now, count);
        let verdict =
            if self.is_multiplexed { self.read_streams(now, slot, count) } else { self.read(now, slot, count) };
        match verdict {
            Verdict::More => {}
            Verdict::Close => self.part(now, slot),
            Verdict::Broken(failure, text) => self.lose(now, slot, failure, &text),
            Verdict::Unasked(text) => {
                self.tally.note(now, Failure::named(Class::Malformed, "Unasked"), 0, || text);
                self.part(now, slot);
            }
        }
        if count == self.buffer.len() && self.connections.get(slot).is_some_and(|it| it.stage == Stage::Open) {
            // A large response is read in turns with other work, each time with a new reading of the clock.
            self.look_again(slot, read_closed);
            return false;
        }
        true
    }

    /// Parses the responses in the first `count` bytes of the buffer.
    fn read(&mut self, now: Nanos, slot: usize, count: usize) -> Verdict {
        let connection = &mut self.connections[slot];
        let buffer = std::mem::take(&mut self.buffer);
        let mut joined = std::mem::take(&mut connection.rest);
        let input = if joined.is_empty() {
            &buffer[..count]
        } else {
            joined.extend_from_slice(&buffer[..count]);
            &joined
        };
        let mut used = 0;
        let mut verdict = Verdict::More;
        while used < input.len() {
            let connection = &mut self.connections[slot];
            if !connection.may_be_answered() {
                verdict = Verdict::Unasked(format!(
                    "{} unsolicited bytes after {} answers on the connection: {}",
                    input.len() - used,
                    connection.answered,
                    shown(&input[used..])
                ));
                break;
            }
            let job = &mut connection.jobs[0];
            if job.first == 0 {
                job.first = now.max(1);
            }
            let request = job.request;
            let form = self.script.form(request);
            match connection.answers.next(&input[used..], form.wanted()) {
                Ok((taken, answer)) => {
                    used += taken;
                    let Some(answer) = answer else { break };
                    if self.answered(now, slot, answer, &input[used..]) {
                        verdict = Verdict::Close;
                        break;
                    }
                }
                Err(fault) => {
                    let text = format!(
                        "{} {}, after {} answers on the connection; it came {}",
                        fault.explanation(),
                        form.label(),
                        connection.answered,
                        shown(&input[used..])
                    );
                    verdict = Verdict::Broken(Failure::malformed(fault), text);
                    break;
                }
            }
        }
        let rest = match verdict {
            Verdict::More => input.len() - used,
            _ => 0,
        };
        if let Some(connection) = self.connections.get_mut(slot) {
            if joined.is_empty() {
                joined.extend_from_slice(&buffer[count - rest..count]);
            } else {
                joined.drain(..joined.len() - rest);
            }
            connection.rest = joined;
        }
        self.buffer = buffer;
        verdict
    }

    /// Records the response to the first request of the connection; `behind` is the input after it. Returns true if the
    /// connection must be closed.
    fn answered(&mut self, now: Nanos, slot: usize, mut answer: Answer, behind: &[u8]) -> bool {
        let connection = &mut self.connections[slot];
        let Some((job, was_sent)) = connection.pop() else { return true };
        connection.deadline = connection.jobs.front().map_or(Nanos::MAX, |next| next.put.saturating_add(self.timeout));
        let closes = !answer.keep_alive || job.is_last || !was_sent;
        let user = connection.user;
        let is_unasked = !behind.is_empty() && !closes && !connection.may_be_answered();
        connection.is_over = closes || is_unasked;
        self.judge(now, &job, &mut answer, if is_unasked { behind } else { &[] });
        self.done(now, user);
        self.place(slot);
        closes || is_unasked
    }

    /// Counts and checks a response. `unasked` are bytes after it that answer no request.
    fn judge(&mut self, now: Nanos, job: &Job, answer: &mut Answer, unasked: &[u8]) {
        self.tally.answered(now, job, answer.status, answer.heads, answer.length);
        let form = self.script.form_mut(job.request);
        let judged = form.judge(job.request, answer).and_then(|()| {
            if unasked.is_empty() {
                return Ok(());
            }
            // The body is probably longer than its declared length.
            let text = format!("{} bytes came behind the response: {}", unasked.len(), shown(unasked));
            Err((Failure::named(Class::Malformed, "Unasked"), text))
        });
        match judged {
            Ok(()) => self.tally.ok(now, job),
            Err((failure, text)) => self.tally.failed(now, job, failure, || format!("{text}: {}", form.label())),
        }
    }

    /// Parses the frames in the first `count` bytes of the buffer, from an HTTP/2 connection.
    fn read_streams(&mut self, now: Nanos, slot: usize, count: usize) -> Verdict {
        let buffer = std::mem::take(&mut self.buffer);
        let mut joined = std::mem::take(&mut self.connections[slot].rest);
        joined.extend_from_slice(&buffer[..count]);
        self.buffer = buffer;
        let mut used = 0;
        let verdict = loop {
            let connection = &mut self.connections[slot];
            let (Some(streams), jobs, script) = (&mut connection.streams, &connection.jobs, &self.script) else {
                break Verdict::More;
            };
            let before = streams.most();
            let step = streams.next(&joined[used..], |index| script.form(jobs[index].request).wanted());
            let has_grown = streams.most() > before;
            match step {
                Ok((taken, step)) => {
                    used += taken;
                    if matches!(step, Step::More) {
                        break Verdict::More;
                    }
                    if self.take_step(now, slot, step, has_grown) {
                        break Verdict::Close;
                    }
                }
                Err(violation) => {
                    let text = format!("{} It came {}", violation.explanation(), shown(&joined[used..]));
                    break Verdict::Broken(Failure::violation(violation), text);
                }
            }
        };
        joined.drain(..used);
        self.connections[slot].rest = joined;
        if matches!(verdict, Verdict::More) {
            // Sends acknowledgements and window updates, and bodies for which there is a window now.
            self.send(now, slot);
        }
        verdict
    }

    /// Handles an event of an HTTP/2 connection. `has_grown`: the server now accepts more concurrent requests. Returns
    /// true if the connection must be closed.
    fn take_step(&mut self, now: Nanos, slot: usize, step: Step, has_grown: bool) -> bool {
        match step {
            Step::Nothing if has_grown => {
                let user = self.connections[slot].user;
                if let (Some(users), Some(user)) = (self.users(), user) {
                    users.runnable.push(user);
                }
                self.place(slot);
            }
            Step::More | Step::Nothing => {}
            Step::Part(index) => {
                let job = &mut self.connections[slot].jobs[index];
                if job.first == 0 {
                    job.first = now.max(1);
                }
            }
            Step::Whole(index, mut answer) => {
                let connection = &mut self.connections[slot];
                connection.answered += 1;
                let Some(mut job) = connection.jobs.remove(index) else { return true };
                let user = connection.user;
                if job.first == 0 {
                    job.first = now.max(1);
                }
                self.judge(now, &job, &mut answer, &[]);
                self.done(now, user);
                return self.stream_ended(slot);
            }
            Step::Reset(index, code) => {
                self.stream_reset(now, slot, index, code);
                return self.stream_ended(slot);
            }
            Step::GoAway(first, code) => {
                self.go_away(now, slot, first, code);
                return self.stream_ended(slot);
            }
        }
        false
    }

    /// Updates an HTTP/2 connection after one of its streams has ended. Returns true if the connection must be closed.
    fn stream_ended(&mut self, slot: usize) -> bool {
        let connection = &mut self.connections[slot];
        connection.deadline = connection.jobs.front().map_or(Nanos::MAX, |next| next.put.saturating_add(self.timeout));
        connection.is_over |= connection.asked >= self.script.per_connection;
        let closes = connection.is_over && connection.jobs.is_empty();
        self.place(slot);
        closes
    }
}

/// Counts a late request. This exists only in the open model; in the closed model a request is due when it is sent.
fn note_late(tally: &mut Tally, demand: &Demand, job: &Job) {
    if matches!(demand, Demand::Open(_)) && job.given.saturating_sub(job.due) > LATE {
        tally.was_late(job);
    }
}

/// Returns the first bytes as escaped text.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::from("b\"");
    for byte in &bytes[..bytes.len().min(SHOWN)] {
        write!(text, "{}", byte.escape_ascii()).ok();
    }
    text.push('"');
    if bytes.len() > SHOWN {
        write!(text, "... ({} bytes)", bytes.len()).ok();
    }
    text
}
