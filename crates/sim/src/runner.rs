//! The runner, which draws a world, processes its events, and checks its invariants.

use crate::check::Checker;
use crate::check::event_loop::LoopChecker;
use crate::clock::{Event, MILLI, Micros, SECOND, Shared, micros};
use crate::event_loop::driver::LoopDriver;
use crate::exchanges::{End, Exchange};
use crate::frames::{Frames, Simulated};
use crate::plan::{Host, Plan, Stop, Trigger, Worlds};
use crate::threads::driver::ThreadDriver;
use crate::world::World;
use engine::{Http1, Http2, OnlyMultiplexed, OnlySerial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A time longer than any wait or slow operation of a peer.
const QUIET: Micros = 24 * 3600 * SECOND;
/// The time for which the world waits for calls that hang.
const PATIENCE: Micros = 1200 * SECOND;

/// The number of threads that run worlds with real sockets. There are several because such worlds wait for the kernel's
/// timers.
const THREADS: u64 = 8;

/// The counters of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Accepted connections.
    pub connections: u64,
    /// Requests for which the application was called.
    pub called: u64,
    /// Complete answers that peers received.
    pub answers: u64,
    /// Requests that the engine answered by itself.
    pub refused: u64,
    /// Suspended responses that were resumed.
    pub resumed: u64,
    /// Connections cut at a deadline.
    pub timeouts: u64,
    /// Calls that missed their deadlines.
    pub late: u64,
    /// Requests that were refused while a late call blocked all threads.
    pub refused_waiting: u64,
    /// Worlds with many exchanges at a time on a connection; the next fields are the exchanges begun in them, and the
    /// exchanges that their clients reset.
    pub multiplexed: u64,
    /// See [`multiplexed`](Self::multiplexed).
    pub exchanges: u64,
    /// See [`multiplexed`](Self::multiplexed).
    pub resets: u64,
    /// WebSockets that the application has accepted.
    pub websockets: u64,
    /// Messages that the application has taken, and messages that clients have received.
    pub messages: (u64, u64),
    /// Waits of tasks; the next field has the tasks that were cancelled.
    pub waits: u64,
    /// See [`waits`](Self::waits).
    pub cancelled: u64,
    /// Actions of threads other than the loop's.
    pub outside: u64,
    /// The elapsed virtual time.
    pub time: Duration,
}

impl Summary {
    pub(crate) fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.called += other.called;
        self.answers += other.answers;
        self.refused += other.refused;
        self.resumed += other.resumed;
        self.timeouts += other.timeouts;
        self.late += other.late;
        self.refused_waiting += other.refused_waiting;
        self.multiplexed += other.multiplexed;
        self.exchanges += other.exchanges;
        self.resets += other.resets;
        self.websockets += other.websockets;
        self.messages.0 += other.messages.0;
        self.messages.1 += other.messages.1;
        self.waits += other.waits;
        self.cancelled += other.cancelled;
        self.outside += other.outside;
        self.time += other.time;
    }
}

/// Draws the plan of a world of this kind.
fn draw(seed: u64, worlds: Worlds, traces: bool) -> (Rc<Shared>, Rc<Plan>) {
    let shared = Shared::new(seed, traces);
    let mut plan = Plan::draw(worlds, &mut shared.fork());
    if worlds.on_sockets {
        plan.put_on_sockets(&mut shared.fork());
    }
    (shared, Rc::new(plan))
}

/// Runs the world of `seed` among `worlds`. `traces`: each event is printed with its virtual time.
///
/// # Errors
/// Which condition did not hold, and when. A panic is one, such as that of an illegal move.
pub fn run(seed: u64, worlds: Worlds, traces: bool) -> Result<Summary, String> {
    contain(|| {
        let (shared, plan) = draw(seed, worlds, traces);
        if plan.is_http2 {
            World::<OnlyMultiplexed<Http2>>::new(shared, plan, seed).run()
        } else if plan.is_multiplexed {
            World::<OnlyMultiplexed<Frames>>::new(shared, plan, seed).run()
        } else {
            World::<OnlySerial<Http1>>::new(shared, plan, seed).run()
        }
    })
}

/// Runs a world, and turns a panic into an error.
fn contain(run: impl FnOnce() -> Result<Summary, String>) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("by a panic: {}", text.unwrap_or_default()))
    })
}

/// Runs the worlds from seed `first` to seed `last`. Prints those that failed, with the command that replays each.
/// Returns the number of failures, and the summed counters of the other worlds.
///
/// # Panics
/// If the operating system cannot create a thread.
#[must_use]
pub fn run_all(first: u64, last: u64, worlds: Worlds) -> (u64, Summary) {
    let Worlds { host, on_sockets, is_http2 } = worlds;
    let mut variables = String::new();
    variables.push_str(if on_sockets { " SOCKETS=1" } else { "" });
    variables.push_str(if host == Host::EventLoop { " LOOP=1" } else { "" });
    variables.push_str(if is_http2 { " HTTP2=1" } else { "" });
    let threads = if on_sockets { THREADS } else { 1 };
    let run_some = |thread: u64| {
        let (mut failed, mut total) = (0, Summary::default());
        for seed in (first..=last).filter(|seed| seed % threads == thread) {
            match run(seed, worlds, false) {
                Ok(summary) => total.add(summary),
                Err(failure) => {
                    println!("seed {seed} failed {failure}\n  replay it: make sim SEED={seed}{variables}");
                    failed += 1;
                }
            }
        }
        (failed, total)
    };
    let (mut failed, mut total) = (0, Summary::default());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run_some(thread))).collect();
        for thread in running {
            let (more, sum) = thread.join().expect("a world contains its panics");
            failed += more;
            total.add(sum);
        }
    });
    println!("{} worlds ({host:?}{variables}), {failed} failed; {total:?}", last + 1 - first);
    (failed, total)
}

impl<P: Simulated> World<P> {
    /// Processes all events of the world.
    pub(crate) fn run(mut self) -> Result<Summary, String> {
        match self.plan.host {
            Host::Threads => self.threads_mut().begin_work(),
            Host::EventLoop => self.shared.schedule(0, Event::Loop(0)),
        }
        self.wake_host();
        while !self.shared.has_failed()
            && let Some(event) = self.shared.advance()
        {
            self.process(event);
            // The output of a tick is carried immediately, and a call of an hour has millions of ticks.
            if !matches!(event, Event::Tick(_)) {
                self.network.borrow_mut().carry();
            }
            self.wake_host();
            // Ticks continue forever for a queued request whose thread hangs.
            let is_hanging = || !self.threads.unfinished().0.is_empty();
            if self.shared.now() > PATIENCE && is_hanging() {
                self.is_unfinished = true;
                break;
            }
            if self.shared.now() > self.shared.moved_at() + QUIET {
                self.shared.fail(|| format!("the world does not end; {}", self.describe()));
            }
        }
        if !self.shared.has_failed() {
            match self.plan.host {
                Host::Threads => Checker { world: &self }.check_end(),
                Host::EventLoop => LoopChecker { world: &self }.check_end(),
            }
            self.check_times();
        }
        let summary = self.summary();
        let ledger = Arc::clone(&self.records().ledger);
        // The work that is bound to a thread whose call hangs is dropped with the engine.
        let hangs = !self.threads.unfinished().0.is_empty();
        let Self { shared, network, rules, threads, event_loop, .. } = self;
        // A call that hangs keeps its objects.
        drop((rules, threads, event_loop));
        if !shared.has_failed() {
            let (alive, lost) = (ledger.alive.load(Ordering::Relaxed), ledger.lost.load(Ordering::Relaxed));
            let open = network.borrow().open();
            if (alive, open) != (0, 0) || lost != 0 && !hangs {
                shared.fail(|| format!("{alive} objects and {open} sockets outlive the engine, {lost} were lost"));
            }
        }
        match shared.failure() {
            None => Ok(summary),
            Some(failure) => Err(failure),
        }
    }

    fn summary(&self) -> Summary {
        let statistics = self.engine().statistics();
        let exchanges: Vec<_> =
            self.connections.iter().filter_map(|peer| peer.exchanges.as_ref()).flat_map(|of| &of.all).collect();
        let count = |of: &dyn Fn(&Exchange) -> bool| exchanges.iter().filter(|exchange| of(exchange)).count() as u64;
        Summary {
            connections: statistics.accepted,
            called: statistics.requests,
            answers: self.connections.iter().map(|peer| peer.answers.len() as u64).sum::<u64>()
                + count(&|exchange| matches!(exchange.end, Some((_, End::Whole)))),
            refused: statistics.refused,
            resumed: match self.plan.host {
                Host::Threads => self.threads.calls - statistics.requests,
                Host::EventLoop => self.event_loop.resumed,
            },
            timeouts: statistics.timeouts,
            late: self.records().requests.iter().filter(|record| record.late.is_some()).count() as u64,
            refused_waiting: self.deadlines().refused_waiting,
            multiplexed: u64::from(P::MULTIPLEXED),
            exchanges: count(&|exchange| exchange.begun.is_some()),
            resets: count(&|exchange| exchange.reset.is_some()),
            websockets: self.event_loop.websockets,
            messages: (
                self.records().requests.iter().map(|record| record.taken as u64).sum(),
                self.connections.iter().filter_map(|peer| peer.websocket.as_ref()).map(|own| own.received as u64).sum(),
            ),
            waits: self.event_loop.waits,
            cancelled: self.event_loop.cancelled,
            outside: self.event_loop.outside,
            time: Duration::from_micros(self.shared.now()),
        }
    }

    /// Checks that each request was measured at most once, and for no longer than the world lasted.
    fn check_times(&mut self) {
        let (times, _) = self.engine_mut().times();
        let called = self.engine().statistics().requests;
        if times.len() as u64 > called {
            self.shared.fail(|| format!("{} requests were timed, and {called} were called", times.len()));
        }
        // Two readings of the clock for a request are at least one reading apart.
        if let Some(short) = times.iter().find(|times| times.total() + 1 < times.stamps) {
            self.shared.fail(|| format!("a request took less time than its stages: {short:?}"));
        }
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::ArriveAtServer(number) => self.network.borrow_mut().arrive_at_server(number),
            Event::ArriveAtPeer(number) => {
                let peer = self.network.borrow_mut().arrive_at_peer(number);
                if let Some(peer) = peer {
                    self.act(peer);
                }
            }
            Event::RoomAtServer(number) => self.network.borrow_mut().room_at_server(number),
            Event::RoomAtPeer(number) => {
                let peer = self.network.borrow().room_at_peer(number);
                self.act(peer);
            }
            Event::Peer(peer, round) if self.connections[peer].round == round => self.act(peer),
            Event::Peer(..) => {}
            Event::Worker(worker, round) => self.threads_mut().resume_worker(worker, round),
            Event::Tick(round) => self.threads_mut().tick(round),
            Event::Drain => self.drain(),
            Event::Stop(number) => self.stop(number),
            Event::Files => self.open_files(),
            Event::PatienceEnds(id) => self.end_patience(id),
            Event::Loop(round) => self.loop_mut().resume(round),
            Event::Outside(entry) => self.loop_mut().act_outside(entry),
        }
    }

    fn act(&mut self, peer: usize) {
        let peer = &mut self.connections[peer];
        let next = peer.act(&mut self.network.borrow_mut());
        peer.round += 1;
        if let Some(at) = next {
            self.shared.schedule(at, Event::Peer(peer.index, peer.round));
        }
    }

    fn drain(&mut self) {
        self.shared.trace(|| "drain".to_owned());
        self.draining_since.get_or_insert(self.shared.now());
        self.engine_mut().drain();
        self.after_step();
    }

    fn stop(&mut self, number: usize) {
        let now = self.shared.now();
        let Stop { limit, grace, .. } = self.plan.stops[number];
        self.shared.trace(|| format!("stop within {limit:?}, with {grace:?} for idle connections"));
        self.draining_since.get_or_insert(now);
        let until = limit.map_or(Micros::MAX, |limit| now + micros(limit));
        self.stopped = Some(match self.stopped {
            None => (now, until),
            Some((first, earlier)) => (first, earlier.min(until)),
        });
        let at = self.now();
        self.engine_mut().stop(at, limit, grace);
        self.network.borrow_mut().wake();
        self.after_step();
    }

    /// Makes the rest of the process open or close files for some seconds.
    fn open_files(&mut self) {
        let free = self.plan.conditions.descriptors;
        let count = if self.shared.one_in(2) { 0 } else { self.shared.index(free + 1) };
        // Near the end there is room for all connections.
        let count = if self.shared.now() > 20 * SECOND { 0 } else { count };
        self.shared.trace(|| format!("{count} files are open elsewhere in the process"));
        self.network.borrow_mut().other_files = count;
        if self.shared.now() <= 20 * SECOND {
            self.shared.schedule(self.shared.now() + self.shared.below(2 * SECOND) + MILLI, Event::Files);
        }
    }

    /// Makes the peer of a ready request lose its patience: the peer leaves if the request still waits.
    fn end_patience(&mut self, id: usize) {
        let peer = &mut self.connections[self.owners[id]];
        let Some((Trigger::Waited(patience), _)) = peer.plan.acts else { return };
        let record = &self.rules.source().records.requests[id];
        let (Some(ready), None, None) = (record.ready, record.called, record.dismissed) else { return };
        if self.shared.now() < ready + patience {
            self.shared.schedule(ready + patience, Event::PatienceEnds(id));
        } else {
            peer.lose_patience(&mut self.network.borrow_mut());
            let index = peer.index;
            self.act(index);
        }
    }

    /// Tells the driver that the engine has changed.
    fn after_step(&mut self) {
        match self.plan.host {
            Host::Threads => self.threads_mut().after_step(),
            Host::EventLoop => self.rules.step(),
        }
    }

    /// Ends the driver's wait for events if an event is ready.
    fn wake_host(&mut self) {
        match self.plan.host {
            Host::Threads => self.threads_mut().wake_polling_thread(),
            Host::EventLoop => self.loop_mut().wake(),
        }
    }

    fn loop_mut(&mut self) -> LoopDriver<'_, P> {
        LoopDriver { world: self }
    }

    fn threads_mut(&mut self) -> ThreadDriver<'_, P> {
        ThreadDriver { world: self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_move_of_a_thread_is_found() {
        let failure = contain(|| {
            let (shared, plan) = draw(1, Worlds::of(Host::Threads), false);
            let mut world = World::<OnlySerial<Http1>>::new(shared, plan, 1);
            // The first thread has already arrived.
            world.rules.arrive(0);
            world.run()
        });
        assert!(failure.unwrap_err().contains("illegal move of a thread: Active, Arrive, Active"));
    }
}
