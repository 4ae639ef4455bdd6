//! The engine: its polls, and the actions that follow from driving a connection.
//!
//! The engine's parts are in separate files: the [clock](clock), the [round](round) and its queues of connections, the
//! [run queue](work) of requests, the [acceptor](acceptor), [deadlines](deadlines) that the next poll sets, the
//! [stop](stopping), and the work that the [watchdog](pending) leaves to the next poll. `accept`, `calls`, `hijack`,
//! `stop`, `watchdog` and `websocket` implement [`Engine`]'s methods about each.

mod accept;
mod acceptor;
mod calls;
mod clock;
mod deadlines;
mod hijack;
mod pending;
mod round;
mod stop;
mod stopping;
mod watchdog;
mod websocket;
mod work;

use crate::app::{App, CallId, Progress, Report, Ticket, Work};
use crate::config::{Config, READ_BUFFER};
use crate::connection::{Connection, NextAction, panic_message};
use crate::context::EngineContext;
use crate::deadline::{Millis, Now};
use crate::net::{Local, Net, Readiness};
use crate::observe::Observer;
use crate::protocol::Protocol;
use crate::stages::{StageClock, Stages, Times};
use crate::statistics::Statistics;
use acceptor::Acceptor;
use clock::Clock;
use deadlines::StaleDeadlines;
use pending::Pending;
use round::{Round, Stage};
use slab::Slab;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use stopping::Stopping;
use wire::message::Stamp;
use work::RunQueue;

/// The sockets, connections and time limits of one application. The crate's documentation explains how to poll an
/// engine.
pub struct Engine<A: App> {
    net: A::Net,
    connections: Slab<Connection<A>>,
    context: EngineContext<A>,
    /// The shared buffer into which connections receive.
    buffer: Box<[u8]>,
    clock: Clock,
    round: Round,
    queue: RunQueue<A>,
    acceptor: Acceptor<A::Net>,
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
        let stamp = Stamp::new(&config.server, 0)
            .map_err(|misuse| io::Error::new(io::ErrorKind::InvalidInput, format!("Server: {misuse}")))?;
        let mut context = EngineContext::new(config, stamp);
        let clock = Clock::new(now, &mut context);
        Ok(Self {
            net,
            connections: Slab::new(),
            context,
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            clock,
            round: Round::new(),
            queue: RunQueue::new(),
            acceptor,
            stale_deadlines: StaleDeadlines::new(),
            stopping: Stopping::Running,
            pending: Pending::new(),
            polls: 0,
        })
    }

    /// Returns the addresses of the listeners, in their order.
    #[must_use]
    pub fn locals(&self) -> &[Local] {
        self.acceptor.locals()
    }

    /// Takes the poller's events and empties `ready`. The next polls handle them. Call this also if there are no
    /// events, because a client is late only if nothing had arrived from it by then.
    pub fn notice(&mut self, ready: &mut Vec<Readiness>) {
        self.clock.note_events();
        self.round.add_events(ready);
    }

    /// Returns the maximum time to wait before the next poll, if nothing becomes ready; `None` for no limit.
    #[must_use]
    pub fn timeout(&self, now: Now) -> Option<Duration> {
        self.due().map(|due| due.saturating_sub(now.monotonic))
    }

    /// Returns the latest time for the next poll, if nothing becomes ready, on the clock of [`Now::monotonic`]; zero if
    /// there is something to do, `None` for no limit.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        if self.must_poll() {
            return Some(Duration::ZERO);
        }
        let due = self.context.sweep.due().min(self.stopping.cut_at()).min(self.acceptor.resumes_at());
        let due = (due != Millis::MAX).then(|| self.clock.monotonic(due));
        match self.acceptor.looks_again_at() {
            Some(look) => Some(due.map_or(look, |due| due.min(look))),
            None => due,
        }
    }

    /// Returns true if there is something to do, so that the caller should poll at once. This is cheaper than
    /// [`due`](Self::due).
    #[must_use]
    pub fn must_poll(&self) -> bool {
        let has_room = self.queue.has_awaiting_room() && self.context.queued < self.context.config.queue;
        self.must_go_on()
            || self.acceptor.is_due()
            || has_room
            || self.stopping.needs_poll()
            || !self.stale_deadlines.is_empty()
            || self.pending.is_any()
    }

    /// Returns true if connections or calls have something to do.
    fn must_go_on(&self) -> bool {
        self.round.has_more() || self.has_ready()
    }

    /// Returns true if a round would find nothing to do, because no event has arrived and no deadline has passed.
    fn is_idle(&self) -> bool {
        !self.must_go_on()
            && self.queue.is_empty()
            && !self.queue.has_awaiting_room()
            && self.acceptor.is_idle()
            && !self.stopping.is_stopping()
            && !self.context.sweep.is_due(self.clock.events_at())
    }

    /// Handles events and deadlines until there is work for the application, which it returns, or nothing is left to do
    /// (`None`). Without `may_call`, ready requests wait in the queue, and only responses under way are returned.
    pub fn poll(&mut self, now: Now, app: &mut A, may_call: bool) -> Option<Work<A>> {
        self.clock.begin_poll(now, &mut self.context);
        self.polls += 1;
        self.context.may_call = may_call;
        if self.pending.is_any() {
            self.introduce(app);
        }
        self.acceptor.look_if_due(self.clock.latest());
        self.publish_state();
        if !self.stale_deadlines.is_empty() {
            self.stale_deadlines.set(&mut self.connections, &mut self.context);
        }
        if may_call && let Some(work) = self.queue.pop_ready() {
            // This is the usual beginning of a pipelined request: the call before it has made it ready.
            return Some(self.begin_work(work));
        }
        if self.is_idle() {
            // This is the usual end of a request: its thread checks if it can wait.
            self.acceptor.note_round(self.clock.latest());
            self.end_poll();
            return None;
        }
        self.round.begin_if_over(self.acceptor.is_due(), &mut self.context.meter);
        loop {
            if let Some(work) = self.take_work(app, may_call) {
                return Some(self.begin_work(work));
            }
            if self.round.is_over() {
                self.end_poll();
                return None;
            }
            self.set_full();
            // A connection that waited for room is served before all others.
            if !self.context.is_full
                && let Some(slot) = self.queue.pop_awaiting_room()
            {
                self.release(slot, app);
            } else {
                self.go_on(app);
            }
        }
    }

    /// Counts the work that the poll returns, and publishes the engine's state.
    #[inline]
    fn begin_work(&mut self, work: Work<A>) -> Work<A> {
        self.context.statistics.requests += u64::from(matches!(work, Work::Call(..)));
        self.context.statistics.running += u64::from(!matches!(work, Work::Abandon(_)));
        if !self.round.is_over() && self.is_round_empty() {
            // The rest of the round needs no poll.
            self.round.end(&mut self.context.meter);
        }
        self.round.set_idle(false);
        self.publish_state();
        work
    }

    /// Ends a poll that has nothing left to do.
    fn end_poll(&mut self) {
        self.set_full();
        self.round.set_idle(true);
        self.context.round += 1;
        // Connections may have been closed since the poll began.
        self.publish_state();
    }

    /// Notes if the queue has no room for a request that arrives now.
    fn set_full(&mut self) {
        let context = &mut self.context;
        context.is_full = !context.may_call && context.queued >= context.config.queue;
    }

    /// Reads from a connection that waited for room in the queue. A request is queued even if a thread could call the
    /// application, because its client may have left meanwhile.
    fn release(&mut self, slot: usize, app: &mut A) {
        let Some(connection) = self.connections.get(slot).filter(|connection| connection.awaits_room()) else {
            return;
        };
        let deadline = connection.deadline();
        self.drive(slot, app);
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.stop_awaiting_room(&mut self.context);
            if !connection.has_output() {
                // The request has waited since `deadline` was set.
                connection.hurry_queued(deadline, &mut self.context);
            }
        }
    }

    /// Returns true if nothing is left to do in the current round.
    fn is_round_empty(&self) -> bool {
        self.round.is_empty()
            && !self.queue.has_awaiting_room()
            && !self.acceptor.is_ready()
            && !self.stopping.is_stopping()
            && !self.context.sweep.is_due(self.clock.events_at())
    }

    fn take_work(&mut self, app: &mut A, may_call: bool) -> Option<Work<A>> {
        while let Some(work) = self.queue.pop_ready() {
            match work {
                Work::Call(ticket, request) if !may_call => self.enqueue(ticket.call, request, app),
                Work::Resume(ticket, response) if !may_call && self.is_for_message(&ticket) => {
                    self.enqueue_message(ticket.call, response, app);
                }
                work => return Some(work),
            }
        }
        if let Some(response) = self.context.abandoned.pop() {
            return Some(Work::Abandon(response));
        }
        if !may_call {
            return None;
        }
        while let Some(call) = self.queue.pop() {
            let Some(connection) = self.connections.get_mut(call.slot) else { continue };
            if let Some(response) = connection.dequeue_message(call.exchange, &mut self.context) {
                return Some(Work::Resume(Ticket { call }, response));
            }
            let waited = connection.is_queued(call.exchange);
            if let Some(request) = connection.dequeue(call.exchange, &mut self.context, app) {
                return Some(Work::Call(Ticket { call }, request));
            }
            if waited {
                self.drive(call.slot, app);
            }
        }
        None
    }

    /// Returns true if the response continues because a message has arrived for it. That counts as work like a request.
    fn is_for_message(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].has_websocket(ticket.call.exchange)
    }

    /// Returns true if the next poll has work to return.
    fn has_ready(&self) -> bool {
        self.queue.has_ready() || !self.context.abandoned.is_empty()
    }

    fn enqueue(&mut self, call: CallId, mut request: A::Request, app: &mut A) {
        if <A::Protocol as Protocol>::MULTIPLEXED {
            // This exchange may have the index of one that was reset while its request was queued.
            self.tidy_queue();
        }
        app.queued(&mut request);
        let connection = &mut self.connections[call.slot];
        connection.enqueue(call.exchange, request, &mut self.context);
        self.queue.push(call);
        // Earlier responses may wait to be sent.
        if connection.has_output() {
            self.watch_or_cut(call.slot, app);
        }
    }

    /// Queues a response that continues because a message has arrived, but that has to wait for a thread.
    fn enqueue_message(&mut self, call: CallId, response: A::Response, app: &mut A) {
        let connection = &mut self.connections[call.slot];
        if connection.is_detached(call.exchange) {
            // The client has left since the response was resumed.
            connection.release(call.exchange, app);
            connection.complete(call.exchange, Progress::Listening(response), &mut self.context);
            return self.drive(call.slot, app);
        }
        connection.enqueue_message(call.exchange, response, &mut self.context);
        self.queue.push(call);
    }

    /// Removes the queue's entries for requests that no longer wait.
    fn tidy_queue(&mut self) {
        let connections = &self.connections;
        self.queue.tidy(self.context.queued, |call| {
            connections.get(call.slot).is_some_and(|connection| connection.is_queued(call.exchange))
        });
    }

    /// Does one step of a round.
    fn go_on(&mut self, app: &mut A) {
        match self.round.stage() {
            Stage::Events => match self.round.next_event() {
                Some(readiness) => self.look_at(readiness, app),
                None => self.round.begin(Stage::Again, &mut self.context.meter),
            },
            Stage::Again => match self.round.next_again() {
                Some(slot) => self.drive_again(slot, app),
                None => self.round.begin(Stage::Bulk { left: self.round.bulk.len() }, &mut self.context.meter),
            },
            // Each bulk connection has one turn in a round. One that becomes ready again meanwhile waits for the next
            // round.
            Stage::Bulk { left: 0 } => {
                self.round.begin(Stage::Accept { index: 0, attempt: 1 }, &mut self.context.meter);
            }
            Stage::Bulk { left } => {
                let left = if self.context.meter.is_stage_over() { 0 } else { left - 1 };
                self.round.set_stage(Stage::Bulk { left });
                if let Some(slot) = self.round.bulk.pop_front() {
                    self.drive_again(slot, app);
                }
            }
            // Driving a connection catches its own panics. This stage also calls the application for other connections.
            Stage::Accept { index, attempt } => {
                self.round.set_stage(Stage::Deadlines);
                // An accepted connection may get the slot of one that was queued.
                self.tidy_queue();
                if (index, attempt) == (0, 1) {
                    self.stopping.begin_accepting();
                }
                self.guarded(app, |engine, app| {
                    let next = engine.accept(index, attempt, app);
                    engine.round.set_stage(next);
                });
            }
            Stage::Deadlines => {
                self.round.begin(Stage::Over, &mut self.context.meter);
                self.guarded(app, |engine, app| {
                    if engine.round.has_no_events() && engine.context.sweep.begin(engine.clock.events_at()) {
                        engine.sweep(app);
                    }
                    engine.go_on_stopping(app);
                });
            }
            Stage::Over => {}
        }
    }

    /// Drives a connection from a queue, if it still has something to do.
    fn drive_again(&mut self, slot: usize, app: &mut A) {
        if self.connections.get_mut(slot).is_some_and(Connection::take_turn) {
            self.drive(slot, app);
        }
    }

    fn guarded(&mut self, app: &mut A, act: impl FnOnce(&mut Self, &mut A)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(self, app))) {
            self.context.statistics.panics += 1;
            // The panic may have ended the sweep early.
            self.context.sweep.note(self.context.now);
            app.report(Report::Panicked(panic_message(&*panic)));
        }
    }

    fn look_at(&mut self, readiness: Readiness, app: &mut A) {
        match readiness {
            Readiness::Woken => self.net.drain_wakes(),
            Readiness::Listener(index) => self.acceptor.note_event(index),
            Readiness::Connection { slot, readable, read_closed } => {
                let Some(connection) = self.connections.get_mut(slot) else { return };
                connection.note_readiness(readable, read_closed);
                if connection.has_turn_later() {
                    return;
                }
                if connection.is_bulk() || self.context.meter.is_stage_over() {
                    // Connections that can be answered soon are served first.
                    connection.come_back(&mut self.round.bulk);
                } else {
                    self.drive(slot, app);
                }
            }
        }
    }

    /// Returns the number of polls so far.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// Sends deferred output that has not changed since the last call. Call this every millisecond while
    /// [`has_deferred_output`](Self::has_deferred_output) is true, from any thread.
    pub fn tick(&mut self) {
        let EngineContext { deferred, statistics, observer, .. } = &mut self.context;
        let connections = &mut self.connections;
        deferred.tick(|slot, tick| {
            connections.get_mut(slot).is_some_and(|connection| connection.tick(tick, statistics, observer))
        });
    }

    /// Returns true if any connection has deferred output.
    #[must_use]
    pub fn has_deferred_output(&self) -> bool {
        !self.context.deferred.slots.is_empty()
    }

    /// Returns the number of connections that are open, or kept for a call whose client has left.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns true if requests wait for a thread that calls the application.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        self.context.queued > 0
    }

    /// Returns the engine's counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { queued: self.context.queued as u64, ..self.context.statistics }
    }

    /// Measures the times of requests from now on, with `clock`. The times of up to `room` answered requests are kept
    /// until [`times`](Self::times) takes them. Each request then takes longer by several readings of the clock.
    pub fn take_times(&mut self, clock: Box<dyn StageClock>, room: usize) {
        self.context.observer = Some(Box::new(Stages::new(clock, room)));
    }

    /// Returns the times of the requests answered since the last call, and the number of those for which there was no
    /// room.
    pub fn times(&mut self) -> (Vec<Times>, u64) {
        self.context.observer.as_mut().map_or_else(Default::default, |stages| stages.take())
    }

    /// Drives one connection and performs the resulting action.
    fn drive(&mut self, slot: usize, app: &mut A) {
        let connection = &mut self.connections[slot];
        let (context, buffer) = (&mut self.context, &mut self.buffer);
        let driven = catch_unwind(AssertUnwindSafe(|| connection.drive(context, buffer, app)));
        self.follow(slot, driven, app);
    }

    fn follow(&mut self, slot: usize, driven: std::thread::Result<NextAction<A>>, app: &mut A) {
        match driven {
            Ok(NextAction::Close) => self.remove(slot),
            // A short-lived connection never needs to be watched.
            Ok(NextAction::Call(exchange, request)) => {
                let call = CallId { slot, exchange };
                if self.queue.is_empty() && !self.connections[slot].awaits_room() {
                    self.queue.push_ready(Work::Call(Ticket { call }, request));
                } else {
                    self.enqueue(call, request, app);
                }
                self.go_on_beside(slot, app);
            }
            Ok(NextAction::Resume(exchange, response)) => {
                self.queue.push_ready(Work::Resume(Ticket { call: CallId { slot, exchange } }, response));
                self.go_on_beside(slot, app);
            }
            Ok(NextAction::Enqueue(exchange)) => {
                let call = CallId { slot, exchange };
                let response = if self.queue.is_empty() {
                    self.connections[slot].dequeue_message(exchange, &mut self.context)
                } else {
                    None
                };
                match response {
                    Some(response) => self.queue.push_ready(Work::Resume(Ticket { call }, response)),
                    None => self.queue.push(call),
                }
                self.watch_or_cut(slot, app);
            }
            Ok(NextAction::AwaitRoom) => {
                self.connections[slot].await_room(&mut self.context);
                self.queue.push_awaiting_room(slot);
                self.watch_or_cut(slot, app);
            }
            // A connection that goes on is watched, too, because its client's next bytes determine how it is closed.
            Ok(NextAction::Again) => {
                if self.watch_or_cut(slot, app) {
                    let connection = &mut self.connections[slot];
                    let queue = if connection.is_bulk() { &mut self.round.bulk } else { &mut self.round.again };
                    connection.come_back(queue);
                }
            }
            Ok(NextAction::Wait) => {
                self.watch_or_cut(slot, app);
            }
            Err(panic) => {
                self.context.statistics.panics += 1;
                if !self.connections[slot].give_up(&mut self.context, app) {
                    self.remove(slot);
                }
                app.report(Report::Panicked(panic_message(&*panic)));
            }
        }
    }

    /// Continues a connection that may have something to do besides the exchange whose call is returned.
    fn go_on_beside(&mut self, slot: usize, app: &mut A) {
        let connection = &self.connections[slot];
        if !connection.is_multiplexed() || connection.ends_with_call() && !self.context.is_draining() {
            return;
        }
        if self.watch_or_cut(slot, app) {
            let connection = &mut self.connections[slot];
            if self.context.is_draining() || connection.has_more_beside() {
                connection.come_back(&mut self.round.again);
            }
        }
    }

    /// Makes the poller watch the connection for input, and for room for output if it has output. Returns false if that
    /// failed.
    #[inline]
    fn watch(&mut self, slot: usize) -> bool {
        self.connections[slot].watch(&mut self.net)
    }

    /// As [`watch`](Self::watch), but cuts the connection if that fails.
    fn watch_or_cut(&mut self, slot: usize, app: &mut A) -> bool {
        if self.watch(slot) {
            return true;
        }
        self.cut(slot, app);
        false
    }

    /// Cuts the exchanges of a connection. Returns true if the connection has been removed.
    fn cut(&mut self, slot: usize, app: &mut A) -> bool {
        let NextAction::Close = self.connections[slot].cut(&mut self.context, app) else { return false };
        self.remove(slot);
        true
    }

    fn remove(&mut self, slot: usize) {
        self.context.observer.forget(slot);
        let connection = self.connections.remove(slot);
        self.context.statistics.websockets -= u64::from(connection.is_upgraded());
        // Dropping the transport removes it from the poller.
        drop(connection);
        self.context.statistics.connections -= 1;
        self.acceptor.resume();
    }

    /// Checks the deadlines of all connections and handles those that have passed.
    fn sweep(&mut self, app: &mut A) {
        let now = self.clock.events_at();
        let mut late = Vec::new();
        for (slot, connection) in &mut self.connections {
            // A connection in a queue may have unread bytes. Then the server is late, not the client.
            if connection.is_late(now) && !connection.is_in_queue() {
                late.push(slot);
            } else {
                connection.note_deadline(&mut self.context);
                connection.rest(&mut self.context, app);
            }
        }
        for slot in late {
            let connection = &mut self.connections[slot];
            match connection.expire(now, &mut self.context, app) {
                NextAction::Close => self.remove(slot),
                _ => self.drive(slot, app),
            }
        }
    }
}
