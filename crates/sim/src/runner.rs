//! The runner: draws a world, processes its events, and has it checked.

use crate::check::Checker;
use crate::clock::{Event, MILLI, Micros, SECOND, Shared, micros};
use crate::exchanges::{End, Exchange};
use crate::frames::Simulated;
use crate::plan::{Plan, Stop, Trigger};
use crate::threads::driver::ThreadDriver;
use crate::world::World;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any wait or slow operation of a peer.
const QUIET: Micros = 24 * 3600 * SECOND;
/// The time for which the world waits for calls that hang.
const PATIENCE: Micros = 1200 * SECOND;

/// The counters of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections accepted.
    pub connections: u64,
    /// Requests that the application was called for.
    pub called: u64,
    /// Whole answers that peers received.
    pub answers: u64,
    /// Requests that the engine answered itself.
    pub refused: u64,
    /// Suspended responses that were resumed.
    pub resumed: u64,
    /// Connections cut at a deadline.
    pub timeouts: u64,
    /// Calls that missed their deadlines.
    pub late: u64,
    /// Requests that were refused while a late call blocked all threads.
    pub refused_waiting: u64,
    /// Worlds whose connections have many exchanges at a time, the exchanges begun in them, and those among them that
    /// their clients reset.
    pub multiplexed: u64,
    /// See [`multiplexed`](Self::multiplexed).
    pub exchanges: u64,
    /// See [`multiplexed`](Self::multiplexed).
    pub resets: u64,
    /// Elapsed virtual time.
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
        self.time += other.time;
    }
}

/// Draws the plan of a world, whose engine has real sockets if `on_sockets` says so.
pub(crate) fn draw(seed: u64, on_sockets: bool, traces: bool) -> (Rc<Shared>, Rc<Plan>) {
    let shared = Shared::new(seed, traces);
    let mut plan = Plan::draw(&mut shared.fork());
    if on_sockets {
        plan.put_on_sockets(&mut shared.fork());
    }
    (shared, Rc::new(plan))
}

impl<P: Simulated> World<P> {
    /// Processes all events.
    pub(crate) fn run(mut self) -> Result<Summary, String> {
        self.threads_mut().begin_work();
        self.threads_mut().wake_polling_thread();
        while !self.shared.has_failed()
            && let Some(event) = self.shared.advance()
        {
            self.process(event);
            // A tick's output is carried at once, and a call of an hour has millions of ticks.
            if !matches!(event, Event::Tick(_)) {
                self.network.borrow_mut().carry();
            }
            self.threads_mut().wake_polling_thread();
            // Ticks go on forever for a queued request whose thread hangs.
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
            Checker { world: &self }.check_end();
            self.check_times();
        }
        let statistics = self.engine().statistics();
        let exchanges: Vec<_> =
            self.connections.iter().filter_map(|peer| peer.exchanges.as_ref()).flat_map(|of| &of.all).collect();
        let count = |of: &dyn Fn(&Exchange) -> bool| exchanges.iter().filter(|exchange| of(exchange)).count() as u64;
        let summary = Summary {
            connections: statistics.accepted,
            called: statistics.requests,
            answers: self.connections.iter().map(|peer| peer.answers.len() as u64).sum::<u64>()
                + count(&|exchange| matches!(exchange.end, Some((_, End::Whole)))),
            refused: statistics.refused,
            resumed: self.threads.calls - statistics.requests,
            timeouts: statistics.timeouts,
            late: self.records().requests.iter().filter(|record| record.late.is_some()).count() as u64,
            refused_waiting: self.deadlines().refused_waiting,
            multiplexed: u64::from(P::MULTIPLEXED),
            exchanges: count(&|exchange| exchange.begun.is_some()),
            resets: count(&|exchange| exchange.reset.is_some()),
            time: Duration::from_micros(self.shared.now()),
        };
        let ledger = Arc::clone(&self.records().ledger);
        let Self { shared, network, rules, threads, .. } = self;
        // A call that hangs keeps its objects.
        drop((rules, threads));
        if !shared.has_failed() {
            let (alive, open) = (ledger.alive.load(std::sync::atomic::Ordering::Relaxed), network.borrow().open());
            if alive != 0 || open != 0 {
                shared.fail(|| format!("{alive} objects and {open} sockets outlive the engine"));
            }
        }
        match shared.failure() {
            None => Ok(summary),
            Some(failure) => Err(failure),
        }
    }

    /// Checks that each request was timed at most once, and not for longer than the world lasted.
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
            Event::Loop(_) | Event::Outside(_) => unreachable!("this world has threads"),
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
        self.threads_mut().after_step();
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
        self.threads_mut().after_step();
    }

    /// Opens files for the rest of the process, or closes them, for some seconds.
    fn open_files(&mut self) {
        let free = self.plan.conditions.descriptors;
        let count = if self.shared.one_in(2) { 0 } else { self.shared.index(free + 1) };
        // At the end there is room for all connections.
        let count = if self.shared.now() > 20 * SECOND { 0 } else { count };
        self.shared.trace(|| format!("{count} files are open elsewhere in the process"));
        self.network.borrow_mut().other_files = count;
        if self.shared.now() <= 20 * SECOND {
            self.shared.schedule(self.shared.now() + self.shared.below(2 * SECOND) + MILLI, Event::Files);
        }
    }

    /// Ends the patience of a peer whose request was ready. The peer leaves if the request still waits.
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

    fn threads_mut(&mut self) -> ThreadDriver<'_, P> {
        ThreadDriver { world: self }
    }
}
