//! The engine: its polls, and the actions that follow from driving a connection.
//!
//! The parts of the engine are in separate files: the [connections](connections), the [round](round) in which they are
//! driven, the [run queue](work) of their requests, the [acceptor](acceptor), the [clock](clock), the
//! [deadlines](deadlines) that the next poll sets, the progress of a [stop](stopping), and the work that the watchdog
//! leaves to the next poll ([`pending`]). `calls` has the methods of [`Engine`] for the thread that runs a call,
//! `watchdog` those for the watchdog.

mod accept;
mod acceptor;
mod calls;
mod clock;
mod connections;
mod deadlines;
mod pending;
mod round;
mod stopping;
mod watchdog;
mod work;

use crate::app::{App, Report, Work};
use crate::config::Config;
use crate::connection::{Connection, panic_message};
use crate::context::{EngineContext, Phase};
use crate::deadline::{Millis, Now, millis};
use crate::group::Membership;
use crate::net::{Local, Net, Readiness};
use crate::stages::{StageClock, Stages, Times};
use crate::statistics::Statistics;
use acceptor::Acceptor;
use clock::Clock;
use connections::Connections;
use deadlines::StaleDeadlines;
use pending::Pending;
use round::RoundStage;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use stopping::Stopping;
use wire::message::Stamp;
use wire::websocket::CloseCode;

/// The sockets, connections and time limits of one application. The crate's documentation explains how to poll an
/// engine.
pub struct Engine<A: App> {
    connections: Connections<A>,
    clock: Clock,
    stale_deadlines: StaleDeadlines,
    stopping: Stopping,
    pending: Pending<A>,
    /// The number of polls so far.
    polls: u64,
}

impl<A: App> Engine<A> {
    /// Creates an engine that accepts from `listeners`, which are listening stream sockets.
    ///
    /// # Errors
    /// If one of the listeners is not a listening socket or cannot be watched, or if the configured Server field is
    /// invalid.
    pub fn new(
        mut net: A::Net,
        listeners: Vec<<A::Net as Net>::Listener>,
        config: Config,
        now: Now,
    ) -> io::Result<Self> {
        let acceptor = Acceptor::new(&mut net, listeners, &config)?;
        let stamp = || {
            Stamp::new(&config.server, 0)
                .map_err(|misuse| io::Error::new(io::ErrorKind::InvalidInput, format!("Server: {misuse}")))
        };
        let (plain, mut encrypted) = (stamp()?, None);
        if let Some((time, with_subdomains)) = config.transport_security {
            encrypted.insert(stamp()?).demand_transport_security(time.as_secs(), with_subdomains);
        }
        let mut context = EngineContext::new(config, plain);
        context.time.encrypted_stamp = encrypted;
        let clock = Clock::new(now, &mut context);
        Ok(Self {
            connections: Connections::new(net, acceptor, context),
            clock,
            stale_deadlines: StaleDeadlines::new(),
            stopping: Stopping::new(),
            pending: Pending::new(),
            polls: 0,
        })
    }

    /// Returns the addresses of the listeners, in their order.
    #[must_use]
    pub fn locals(&self) -> &[Local] {
        self.connections.acceptor.locals()
    }

    /// Takes the poller's events and empties `ready`. The next polls handle them. Call this also without events: the
    /// engine counts a client as late only if nothing from it had arrived by then.
    pub fn notice(&mut self, ready: &mut Vec<Readiness>) {
        self.clock.note_events();
        self.connections.round.add_events(ready);
    }

    /// Returns the maximum time to wait for events before the next poll; `None` for no limit.
    #[must_use]
    pub fn timeout(&self, now: Now) -> Option<Duration> {
        self.due().map(|due| due.saturating_sub(now.monotonic))
    }

    /// Returns the time by which the next poll is due if no event arrives, on the clock of [`Now::monotonic`]; zero if
    /// there is something to do now, `None` for no limit.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        if self.must_poll() {
            return Some(Duration::ZERO);
        }
        let due = self
            .connections
            .context
            .time
            .sweep
            .due()
            .min(self.stopping.cut_at())
            .min(self.connections.acceptor.resumes_at());
        let due = (due != Millis::MAX).then(|| self.clock.monotonic(due));
        match self.connections.acceptor.looks_again_at() {
            Some(look) => Some(due.map_or(look, |due| due.min(look))),
            None => due,
        }
    }

    /// Returns true if there is something to do, so that the caller should poll at once. This is cheaper than
    /// [`due`](Self::due).
    #[must_use]
    pub fn must_poll(&self) -> bool {
        let has_room = self.connections.queue.has_awaiting_room()
            && self.connections.context.load.queued < self.connections.context.config.queue;
        self.must_go_on()
            || self.connections.acceptor.is_due()
            || has_room
            || self.stopping.needs_poll()
            || !self.stale_deadlines.is_empty()
            || self.pending.is_any()
    }

    /// Returns true if connections or calls have something to do.
    fn must_go_on(&self) -> bool {
        self.connections.round.has_more() || self.connections.has_ready()
    }

    /// Returns true if a round would find nothing to do: no event has arrived and no deadline has passed.
    fn is_idle(&self) -> bool {
        !self.must_go_on()
            && self.connections.queue.is_empty()
            && !self.connections.queue.has_awaiting_room()
            && self.connections.acceptor.is_idle()
            && !self.stopping.is_stopping()
            && !self.connections.context.time.sweep.is_due(self.clock.events_at())
    }

    /// Handles events and deadlines until there is work for the application, and returns it; `None` if nothing is left
    /// to do. If `may_call` is false, ready requests wait in the queue, and only responses under way are returned.
    pub fn poll(&mut self, now: Now, app: &mut A, may_call: bool) -> Option<Work<A>> {
        self.clock.begin_poll(now, &mut self.connections.context);
        self.polls += 1;
        self.connections.context.load.may_call = may_call;
        if self.pending.is_any() {
            self.introduce(app);
        }
        self.connections.acceptor.look_if_due(self.clock.latest());
        self.connections.publish(self.clock.latest());
        if !self.stale_deadlines.is_empty() {
            self.stale_deadlines.set(&mut self.connections.slab, &mut self.connections.context, app);
        }
        if may_call && let Some(work) = self.connections.queue.pop_ready() {
            // Usual case for a pipelined request: the completion of the previous call has made it ready.
            return Some(self.begin_work(work));
        }
        if self.is_idle() {
            // Usual case at the end of a request: its thread checks if it can wait for the poller.
            self.connections.acceptor.note_round(self.clock.latest());
            self.end_poll();
            return None;
        }
        self.connections.round.begin_if_over(self.connections.acceptor.is_due(), &mut self.connections.context.meter);
        loop {
            if let Some(work) = self.connections.take_work(app, may_call) {
                return Some(self.begin_work(work));
            }
            if self.connections.round.is_over() {
                self.end_poll();
                return None;
            }
            self.connections.set_full();
            // Connections that waited for room in the queue are served before all others.
            if !self.connections.context.load.is_full
                && let Some(slot) = self.connections.queue.pop_awaiting_room()
            {
                self.connections.release(slot, app);
            } else {
                self.go_on(app);
            }
        }
    }

    /// Counts the work that the poll returns, and publishes the engine's state.
    #[inline]
    fn begin_work(&mut self, work: Work<A>) -> Work<A> {
        if let Work::Call(ticket, _) = &work {
            let has_streams = self.connections[ticket.call.slot].streams().is_some();
            self.connections.context.statistics.requests += 1;
            self.connections.context.statistics.http2_requests += u64::from(has_streams);
        }
        self.connections.context.statistics.running += u64::from(!matches!(work, Work::Abandon(_)));
        if self.connections.is_round_empty()
            && !self.stopping.is_stopping()
            && !self.connections.context.time.sweep.is_due(self.clock.events_at())
        {
            // The rest of the round needs no poll.
            self.connections.round.end(&mut self.connections.context.meter);
        }
        self.connections.round.set_idle(false);
        self.connections.publish(self.clock.latest());
        work
    }

    /// Ends a poll that has nothing left to do.
    fn end_poll(&mut self) {
        self.connections.set_full();
        self.connections.round.set_idle(true);
        self.connections.context.time.round += 1;
        // Connections may have been closed since the poll began.
        self.connections.publish(self.clock.latest());
    }

    /// Runs one step of a round.
    fn go_on(&mut self, app: &mut A) {
        match self.connections.round.stage() {
            RoundStage::Events => match self.connections.round.next_event() {
                Some(readiness) => self.connections.look_at(readiness, app),
                None => self.connections.round.begin(RoundStage::Again, &mut self.connections.context.meter),
            },
            RoundStage::Again => match self.connections.round.next_again() {
                Some(slot) => self.connections.drive_again(slot, app),
                None => self.connections.round.begin(
                    RoundStage::Bulk { left: self.connections.round.bulk.len() },
                    &mut self.connections.context.meter,
                ),
            },
            // Each bulk connection is driven at most once in a round. If it becomes ready again meanwhile, it waits for
            // the next round.
            RoundStage::Bulk { left: 0 } => {
                self.connections
                    .round
                    .begin(RoundStage::Accept { index: 0, attempt: 1 }, &mut self.connections.context.meter);
            }
            RoundStage::Bulk { left } => {
                let left = if self.connections.context.meter.is_stage_over() { 0 } else { left - 1 };
                self.connections.round.set_stage(RoundStage::Bulk { left });
                if let Some(slot) = self.connections.round.bulk.pop_front() {
                    self.connections.drive_again(slot, app);
                }
            }
            // Driving a connection catches its own panics, but this stage also calls the application for other
            // connections.
            RoundStage::Accept { index, attempt } => {
                self.connections.round.set_stage(RoundStage::Deadlines);
                // The engine may give an accepted connection the slot of a connection that had a queued request.
                self.connections.tidy_queue();
                if (index, attempt) == (0, 1) {
                    self.stopping.begin_accepting();
                }
                self.guarded(app, |engine, app| {
                    let (told, is_stopping) = (engine.clock.latest(), engine.stopping.is_stopping());
                    let next = engine.connections.accept((index, attempt), is_stopping, told, app);
                    engine.connections.round.set_stage(next);
                });
            }
            RoundStage::Deadlines => {
                self.connections.round.begin(RoundStage::Over, &mut self.connections.context.meter);
                self.guarded(app, |engine, app| {
                    if engine.connections.round.has_no_events()
                        && let Some(delay) = engine.connections.context.time.sweep.begin(engine.clock.events_at())
                    {
                        engine.connections.sweep(delay, engine.clock.events_at(), app);
                    }
                    engine.go_on_stopping(app);
                });
            }
            RoundStage::Over => {}
        }
    }

    fn guarded(&mut self, app: &mut A, act: impl FnOnce(&mut Self, &mut A)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(self, app))) {
            self.connections.context.statistics.panics += 1;
            // The panic may have ended the sweep early, so the next sweep is due now.
            self.connections.context.time.sweep.note(self.connections.context.time.now);
            app.report(Report::Panicked(panic_message(&*panic)));
        }
    }

    /// Returns the number of polls so far.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// Sends deferred output that has not changed since the last call of this method. Call this every millisecond while
    /// [`has_deferred_output`](Self::has_deferred_output) is true, from any thread.
    pub fn tick(&mut self) {
        let Connections { slab, context, .. } = &mut self.connections;
        let EngineContext { coalescing, statistics, observer, .. } = context;
        coalescing.deferred.tick(|slot, tick| {
            slab.get_mut(slot).is_some_and(|connection| connection.link_mut().tick(tick, statistics, observer))
        });
    }

    /// Returns true if any connection has deferred output.
    #[must_use]
    pub fn has_deferred_output(&self) -> bool {
        !self.connections.context.coalescing.deferred.slots.is_empty()
    }

    /// Returns the number of connections that are open, or whose slot is kept for a running call after the client has
    /// left.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.slab.len()
    }

    /// Returns true if requests wait for a thread that can call the application.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        !self.connections.queue.is_empty()
    }

    /// Returns the engine's counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { queued: self.connections.context.load.queued as u64, ..self.connections.context.statistics }
    }

    /// Starts to measure the times of requests with `clock`. The engine keeps the times of up to `room` answered
    /// requests until [`times`](Self::times) takes them. Each request then costs several more readings of the clock.
    pub fn take_times(&mut self, clock: Box<dyn StageClock>, room: usize) {
        self.connections.context.observer = Some(Box::new(Stages::new(clock, room)));
    }

    /// Returns the times of the requests answered since the last call, and the number of requests whose times were
    /// dropped for lack of room.
    pub fn times(&mut self) -> (Vec<Times>, u64) {
        self.connections.context.observer.as_mut().map_or_else(Default::default, |stages| stages.take())
    }

    // ---------------------------------------------------------------------------------------------------- engine group

    /// Shares new connections with the other engines that accept from the same listeners (see [`crate::EngineGroup`]).
    /// Call this just before the first poll of the engine.
    pub fn join_group(&mut self, membership: Membership) {
        self.connections.acceptor.join_group(membership);
        self.connections.publish(self.clock.latest());
        self.connections.acceptor.wake_others();
    }

    /// Chooses which processes a new connection wakes. A thread calls this before it waits for the poller, while no
    /// other thread waits. `is_free`: the thread that waits can poll the engine at once when it is woken.
    ///
    /// The kernel can wake one of the processes that listen and are free, in turns. It then wakes no other, so the
    /// woken process has to accept the connection, or tell another process to. This process takes turns only if that is
    /// certain. Otherwise (a call may hold the GIL, there is no room, or the engine stops soon) the kernel wakes it
    /// together with others. Taking turns also avoids most of the cases in which a process leaves a connection to
    /// another one, because the process with the fewest connections stays first in the order. A process without others
    /// is woken in any case and need not change how it watches its listeners.
    pub fn before_wait(&mut self, is_free: bool) {
        let Connections { acceptor, net, context, slab, .. } = &mut self.connections;
        acceptor.before_wait(net, context, slab.len(), is_free);
    }

    // ------------------------------------------------------------------------------------------------------------ stop

    /// Makes each further response the last one of its connection, so that clients send their next request elsewhere.
    /// Nothing else changes: the engine accepts and serves clients, and idle connections stay open until their clients
    /// send a request. If the protocol can announce the end of a connection, the engine does so now, and closes idle
    /// connections. It closes WebSockets with code 1012 (service restart).
    pub fn drain(&mut self) {
        self.connections.context.load.phase.drain();
        self.connections.context.websockets.end.get_or_insert(CloseCode::SERVICE_RESTART);
        self.connections.drive_told();
    }

    /// Stops the engine. It accepts the connections that the kernel has already established, then no more; it finishes
    /// the requests under way, and cuts the remaining connections after `timeout` (`None`: never). On a connection
    /// without a request under way the client may send one more request within `grace`, counted from now or from the
    /// end of its last response. If a part of a request head has arrived, the rest has to arrive within the same time.
    /// A connection on which nothing has ever arrived is closed after the lesser of `grace` and
    /// [`UNUSED_GRACE`](crate::UNUSED_GRACE); with a grace of zero, in the next poll. A further call can only shorten
    /// both times. WebSockets are closed with code 1001 (going away), unless the engine drains.
    pub fn stop(&mut self, now: Now, timeout: Option<Duration>, grace: Duration) {
        let now = self.clock.millis(now.monotonic);
        let cut_at = timeout.map_or(Millis::MAX, |timeout| now.saturating_add(millis(timeout)));
        let is_hastier = self.connections.context.load.phase.stop(grace);
        self.stopping.request(cut_at, is_hastier);
        self.connections.acceptor.look_at_all();
        self.connections.context.websockets.end.get_or_insert(CloseCode::GOING_AWAY);
        self.connections.drive_told();
    }

    /// Returns true if each response is the last one of its connection, because the engine drains or stops.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.connections.context.is_draining()
    }

    /// Returns true if the engine has stopped and nothing is left, except perhaps calls that have not returned in time.
    /// Such calls may still be completed.
    #[must_use]
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopping.has_stopped_accepting() && self.has_nothing_left()
    }

    #[cold]
    fn has_nothing_left(&self) -> bool {
        let is_cut = self.stopping.is_cut();
        let is_over = |connection: &Connection<A>| connection.is_written_off() || is_cut && connection.is_left_over();
        !self.connections.has_ready() && self.connections.slab.iter().all(|(_, connection)| is_over(connection))
    }

    /// Runs the part of a stop that belongs to the end of a round.
    fn go_on_stopping(&mut self, app: &mut A) {
        if self.stopping.close() {
            self.connections.acceptor.close(&mut self.connections.net);
        }
        if self.stopping.hurry()
            && let Phase::Stopping { grace } = self.connections.context.load.phase
        {
            self.connections.hurry_idle(grace, app);
        }
        if self.stopping.cut(self.connections.context.time.now) {
            // Cut the remaining connections. The application still has to complete their calls.
            let slots: Vec<_> = self.connections.slab.iter().map(|(slot, _)| slot).collect();
            for slot in slots {
                self.connections.cut(slot, app);
            }
        }
    }
}
