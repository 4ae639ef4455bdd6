//! The loop's body: one turn of an engine.

mod accept;
mod watchdog;

use crate::app::{App, CallId, Progress, Report, Ticket, Work};
use crate::config::{Config, READ_BUFFER};
use crate::connection::{Connection, Expired, NextAction, panic_message};
use crate::context::EngineContext;
use crate::deadline::{Millis, Now, millis};
use crate::exchange::Input;
use crate::group::Membership;
use crate::net::{Local, Net, Readiness};
use crate::observe::{self, Observer};
use crate::protocol::Protocol;
use crate::reply::Reply;
use crate::stages::{StageClock, Stages, Times};
use crate::statistics::Statistics;
use accept::Listener;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use watchdog::{Orphan, PendingConnection};
use wire::message::Stamp;

/// Sockets, connections and time limits of one application. See the crate's documentation for how it is turned.
pub struct Engine<A: App> {
    net: A::Net,
    listeners: Vec<Listener<A::Net>>,
    locals: Vec<Local>,
    connections: Slab<Connection<A>>,
    context: EngineContext<A>,
    buffer: Box<[u8]>,
    /// What the poller has told, looked at up to `looked`.
    ready: Vec<Readiness>,
    looked: usize,
    /// The poller has been asked since the last turn; and when it had been at the last turn that came behind it. What
    /// a peer did before that has been dealt with when a round comes to the clock, so it is this moment that deadlines
    /// are compared with: while a call held up whoever turns the engine, peers were not late.
    was_noticed: bool,
    noticed_at: Millis,
    /// Connections whose call has left output waiting, at a time that was not told.
    unsettled: Vec<usize>,
    stage: Stage,
    /// The last turn found nothing more to do.
    was_idle: bool,
    /// Slots to be driven in the next round without readiness, and in this one.
    again: VecDeque<usize>,
    again_now: VecDeque<usize>,
    /// Connections that receive bodies and have more to read: as many are driven in a round as the meter allows.
    bulk: VecDeque<usize>,
    /// Connections whose requests wait for somebody to call the application, oldest first; some may no longer.
    queue: VecDeque<CallId>,
    /// Connections that are not even read, because the queue is full.
    awaits_room: VecDeque<usize>,
    /// Work that came up outside of a turn.
    handed: VecDeque<Work<A>>,
    began: Duration,
    /// The time that was told last. Clocks move on in steps, so that it is often the same again.
    told: Duration,
    /// The second that the stamp shows.
    stamped: u64,
    /// Accepting pauses until then; 0 if it does not.
    paused_until: Millis,
    /// The pause has been reported and nothing was accepted since.
    pause_reported: bool,
    /// When what is left is cut, once the engine is stopping.
    stop_at: Option<Millis>,
    /// Since then all listeners have been emptied once more.
    emptied: bool,
    /// The bound on connections, or what the limit on descriptors leaves to them.
    most_connections: usize,
    has_stopped_accepting: bool,
    /// Where other engines accept from the same listeners.
    membership: Option<Membership>,
    /// When to see what became of a connection that was left to another engine.
    look_again_at: Option<Duration>,
    /// Since they were told so, idle connections have less time.
    is_to_hurry: bool,
    /// What was left when the time for it was up has been cut.
    has_cut: bool,
    /// Counts the turns, and how many there had been when somebody looked after the engine last.
    polls: u64,
    turns_attended: u64,
    /// Since when somebody waits for a turn, as far as those know who look after the engine.
    awaited_since: Option<Millis>,
    /// Those of whom it is not known yet whether they ask for the server's health, while nobody turns.
    pending: VecDeque<PendingConnection>,
    /// Those that were accepted by the last turns and have asked for nothing are among them.
    has_met_newcomers: bool,
    /// Requests that were refused while nobody turned.
    orphans: Vec<Orphan<A>>,
    /// What went wrong with one of them.
    complaint: Option<String>,
    /// The next turn has to look at the three above.
    was_attended: bool,
}

/// Where a round through all that is ready stands. A turn that hands out work ends in the middle of a round, and the
/// next one, by whomever, goes on there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ready,
    Again,
    /// So many of those who receive bodies have their turn still.
    Bulk {
        left: usize,
    },
    Accept {
        index: usize,
        attempt: usize,
    },
    Clock,
    Over,
}

impl<A: App> Engine<A> {
    /// An engine that accepts from `listeners`, which are listening stream sockets.
    ///
    /// # Errors
    /// If one of them is no listening socket, or cannot be watched.
    pub fn new(
        mut net: A::Net,
        listeners: Vec<<A::Net as Net>::Listener>,
        config: Config,
        now: Now,
    ) -> io::Result<Self> {
        let locals =
            listeners.iter().enumerate().map(|(index, socket)| net.listen(socket, index)).collect::<io::Result<_>>()?;
        let most_connections = config.connections.min(net.room() / config.engines.max(1));
        let stamp = Stamp::new(&config.server, 0)
            .map_err(|misuse| io::Error::new(io::ErrorKind::InvalidInput, format!("Server: {misuse}")))?;
        let mut engine = Self {
            net,
            listeners: listeners.into_iter().map(Listener::new).collect(),
            locals,
            connections: Slab::new(),
            context: EngineContext::new(config, stamp),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            ready: Vec::new(),
            looked: 0,
            was_noticed: false,
            noticed_at: 0,
            unsettled: Vec::new(),
            stage: Stage::Over,
            was_idle: true,
            again: VecDeque::new(),
            again_now: VecDeque::new(),
            bulk: VecDeque::new(),
            queue: VecDeque::new(),
            awaits_room: VecDeque::new(),
            handed: VecDeque::new(),
            began: now.monotonic,
            told: Duration::MAX,
            stamped: u64::MAX,
            paused_until: 0,
            pause_reported: false,
            stop_at: None,
            emptied: false,
            most_connections,
            has_stopped_accepting: false,
            membership: None,
            look_again_at: None,
            is_to_hurry: false,
            has_cut: false,
            polls: 0,
            turns_attended: 0,
            awaited_since: None,
            pending: VecDeque::new(),
            has_met_newcomers: false,
            orphans: Vec::new(),
            complaint: None,
            was_attended: false,
        };
        engine.set_time(now);
        Ok(engine)
    }

    /// Where the listeners listen, in their order.
    #[must_use]
    pub fn locals(&self) -> &[Local] {
        &self.locals
    }

    /// Takes note of what became ready and empties `ready`. The next turns do what there is to do. It is to be told
    /// also that nothing did: time is up only for those of whom nothing was heard until then.
    pub fn notice(&mut self, ready: &mut Vec<Readiness>) {
        self.was_noticed = true;
        if self.ready.is_empty() {
            std::mem::swap(&mut self.ready, ready);
        } else {
            self.ready.append(ready);
        }
    }

    /// How long to wait at most before the next turn, if nothing becomes ready.
    #[must_use]
    pub fn timeout(&self, now: Now) -> Option<Duration> {
        self.due().map(|due| due.saturating_sub(now.monotonic))
    }

    /// When the next turn should be at the latest, if nothing becomes ready: a moment of [`Now::monotonic`], or zero
    /// if there is something to do.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let is_accepting = self.paused_until == 0 && self.listeners.iter().any(|listener| listener.ready);
        let has_room = !self.awaits_room.is_empty() && self.context.queued < self.context.config.queue;
        let is_under_way = self.stage != Stage::Over || !self.ready.is_empty() || self.has_handed();
        let is_to_stop = self.stop_at.is_some() && !self.has_stopped_accepting || self.is_to_hurry;
        let has_more =
            !self.again.is_empty() || !self.bulk.is_empty() || !self.unsettled.is_empty() || self.was_attended;
        if is_accepting || has_room || is_under_way || is_to_stop || has_more {
            return Some(Duration::ZERO);
        }
        let pause = (self.paused_until != 0).then_some(self.paused_until);
        let stop_at = self.stop_at.filter(|&at| at != Millis::MAX);
        let due = [self.context.sweep.due(), stop_at, pause].into_iter().flatten().min();
        let due = due.map(|due| self.began + Duration::from_millis(due));
        due.into_iter().chain(self.look_again_at).min()
    }

    /// Does what is ready, and what is due, until there is work for the application, or nothing is left to do: `None`.
    /// Without `may_call` requests that are ready wait in the queue, and only responses under way are handed out.
    pub fn poll(&mut self, now: Now, app: &mut A, may_call: bool) -> Option<Work<A>> {
        let was_noticed = std::mem::take(&mut self.was_noticed);
        self.set_time(now);
        if was_noticed {
            self.noticed_at = self.context.now;
        }
        self.polls += 1;
        self.context.may_call = may_call;
        if std::mem::take(&mut self.was_attended) {
            self.introduce(app);
        }
        self.look_at_listeners_if_due();
        self.show_group();
        for slot in self.unsettled.drain(..) {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.place.needs_deadline = false;
                connection.set_deadlines(&mut self.context);
            }
        }
        // Before somebody goes on who had his turn, others are looked for: by whoever turns, once there is nothing to do.
        if self.stage == Stage::Over && (self.was_idle || self.again.is_empty() && self.bulk.is_empty()) {
            // Whoever asks for it in this round goes on in the next.
            std::mem::swap(&mut self.again, &mut self.again_now);
            self.begin_stage(Stage::Ready);
        }
        loop {
            if let Some(work) = self.take_work(app, may_call) {
                self.context.statistics.requests += u64::from(matches!(work, Work::Call(..)));
                self.context.statistics.running += u64::from(!matches!(work, Work::Abandon(_)));
                if self.is_round_empty() {
                    // Nobody has to come back for the rest of it.
                    self.begin_stage(Stage::Over);
                    self.ready.clear();
                    self.looked = 0;
                }
                self.was_idle = false;
                self.show_group();
                return Some(work);
            }
            if self.stage == Stage::Over {
                self.was_idle = true;
                self.context.round += 1;
                // Connections may have been closed since.
                self.show_group();
                return None;
            }
            self.context.is_full = !may_call && self.context.queued >= self.context.config.queue;
            // Who was held back comes before everybody else.
            if !self.context.is_full
                && let Some(slot) = self.awaits_room.pop_front()
            {
                self.release(slot, app);
            } else {
                self.go_on(app);
            }
        }
    }

    /// Reads from a connection that was held back. If there is a request it is queued even if somebody could call the
    /// application, because its peer may have left meanwhile.
    fn release(&mut self, slot: usize, app: &mut A) {
        let Some(connection) = self.connections.get(slot).filter(|connection| connection.place.awaits_room) else {
            return;
        };
        let deadline = connection.deadline();
        self.drive(slot, app);
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.hold_back(false, &mut self.context);
            if !connection.has_output() {
                // It has waited since then.
                connection.hurry_queued(deadline, &mut self.context);
            }
        }
    }

    /// Whether nothing is left to do in the round that is under way.
    fn is_round_empty(&self) -> bool {
        self.looked == self.ready.len()
            && self.again_now.is_empty()
            && self.bulk.is_empty()
            && self.awaits_room.is_empty()
            && self.listeners.iter().all(|listener| !listener.ready)
            && self.stop_at.is_none()
            && self.context.sweep.due().is_none_or(|due| self.noticed_at < due)
    }

    fn take_work(&mut self, app: &mut A, may_call: bool) -> Option<Work<A>> {
        while let Some(work) = self.handed.pop_front() {
            match work {
                Work::Call(ticket, request) if !may_call => self.enqueue(ticket.call, request, app),
                work => return Some(work),
            }
        }
        if let Some(response) = self.context.abandoned.pop() {
            return Some(Work::Abandon(response));
        }
        if !may_call {
            return None;
        }
        while let Some(call) = self.queue.pop_front() {
            let Some(connection) = self.connections.get_mut(call.slot) else { continue };
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

    /// Whether work is ready to be handed out.
    fn has_handed(&self) -> bool {
        !self.handed.is_empty() || !self.context.abandoned.is_empty()
    }

    fn enqueue(&mut self, call: CallId, mut request: A::Request, app: &mut A) {
        if <A::Protocol as Protocol>::MULTIPLEXED {
            // The exchange may have the place of one that was reset while it was queued.
            self.tidy_queue();
        }
        app.queued(&mut request);
        let connection = &mut self.connections[call.slot];
        connection.enqueue(call.exchange, request, &mut self.context);
        self.queue.push_back(call);
        // The answers before it may be on their way still.
        if connection.has_output() {
            self.watch_or_cut(call.slot, app);
        }
    }

    /// Takes those out of the queue that wait no longer.
    fn tidy_queue(&mut self) {
        if self.queue.len() > self.context.queued {
            let connections = &self.connections;
            self.queue.retain(|call| connections.get(call.slot).is_some_and(|it| it.is_queued(call.exchange)));
        }
    }

    /// One step of a round.
    fn go_on(&mut self, app: &mut A) {
        match self.stage {
            Stage::Ready => {
                if let Some(readiness) = self.ready.get(self.looked).copied() {
                    self.looked += 1;
                    self.look_at(readiness, app);
                } else {
                    self.ready.clear();
                    self.looked = 0;
                    self.begin_stage(Stage::Again);
                }
            }
            Stage::Again => match self.again_now.pop_front() {
                Some(slot) => self.drive_again(slot, app),
                None => self.begin_stage(Stage::Bulk { left: self.bulk.len() }),
            },
            // Each has one turn in a round; one that comes back meanwhile is behind them.
            Stage::Bulk { left: 0 } => self.begin_stage(Stage::Accept { index: 0, attempt: 1 }),
            Stage::Bulk { left } => {
                let left = if self.context.meter.is_stage_over() { 0 } else { left - 1 };
                self.stage = Stage::Bulk { left };
                if let Some(slot) = self.bulk.pop_front() {
                    self.drive_again(slot, app);
                }
            }
            // What is driven is guarded connection by connection; here the application hears of some besides.
            Stage::Accept { index, attempt } => {
                self.stage = Stage::Clock;
                // Whoever is accepted may get the slot of somebody who was queued.
                self.tidy_queue();
                self.emptied |= self.stop_at.is_some() && (index, attempt) == (0, 1);
                self.guarded(app, |engine, app| engine.stage = engine.accept(index, attempt, app));
            }
            Stage::Clock => {
                self.begin_stage(Stage::Over);
                self.guarded(app, |engine, app| {
                    if engine.ready.is_empty() && engine.context.sweep.begin(engine.noticed_at) {
                        engine.sweep(app);
                    }
                    engine.go_on_stopping(app);
                });
            }
            Stage::Over => {}
        }
    }

    fn begin_stage(&mut self, stage: Stage) {
        self.stage = stage;
        self.context.meter.begin_stage();
    }

    /// Drives a connection that was in a queue, if it still is in need of it.
    fn drive_again(&mut self, slot: usize, app: &mut A) {
        if let Some(connection) = self.connections.get_mut(slot)
            && std::mem::take(&mut connection.place.again)
        {
            self.drive(slot, app);
        }
    }

    fn guarded(&mut self, app: &mut A, act: impl FnOnce(&mut Self, &mut A)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(self, app))) {
            self.context.statistics.panics += 1;
            // It may have been the sweep that did not come to its end.
            self.context.sweep.note(self.context.now);
            app.report(Report::Panicked(panic_message(&*panic)));
        }
    }

    fn look_at(&mut self, readiness: Readiness, app: &mut A) {
        match readiness {
            Readiness::Woken => self.net.drain_wakes(),
            Readiness::Listener(index) => {
                if let Some(listener) = self.listeners.get_mut(index) {
                    listener.ready = true;
                }
            }
            Readiness::Connection { slot, readable, read_closed } => {
                if let Some(connection) = self.connections.get_mut(slot) {
                    connection.note_readiness(readable, read_closed);
                    if connection.place.awaits_room || connection.place.again {
                        // It is driven in its turn.
                    } else if connection.is_bulk() || self.context.meter.is_stage_over() {
                        // Those that can be answered soon come first.
                        connection.come_back(&mut self.bulk);
                    } else {
                        self.drive(slot, app);
                    }
                }
            }
        }
    }

    /// Lends what the response of a call is written with. `write` must not wait.
    pub fn reply<R>(&mut self, ticket: &Ticket, write: impl FnOnce(&mut Reply<'_, A>) -> R) -> R {
        let CallId { slot, exchange } = ticket.call;
        let connection = &mut self.connections[slot];
        let result = connection.reply(exchange, &mut self.context, write);
        let needs_deadline =
            connection.has_output() || connection.awaits_output() || connection.awaits_output_of(exchange);
        if connection.has_output() {
            // What the peer did not take leaves as it does, whatever the application does meanwhile. If it cannot be
            // watched, that is found out when the call comes back.
            self.watch(slot);
        }
        if needs_deadline && !std::mem::replace(&mut self.connections[slot].place.needs_deadline, true) {
            self.unsettled.push(slot);
        }
        result
    }

    /// Ends a call, and goes on with its connection. What comes up then is handed out by the next poll.
    #[allow(clippy::needless_pass_by_value, reason = "a ticket goes back once")]
    pub fn complete(&mut self, ticket: Ticket, progress: Progress<A::Response>, now: Now, app: &mut A) {
        self.set_time(now);
        self.context.statistics.running -= 1;
        let CallId { slot, exchange } = ticket.call;
        if matches!(progress, Progress::Done) && self.connections[slot].is_unanswered(exchange) {
            app.report(Report::Panicked("a response was called done and is empty".to_owned()));
            self.reply(&ticket, |reply| reply.refuse(500, "The server has failed."));
        }
        let connection = &mut self.connections[slot];
        connection.release(exchange, app);
        connection.complete(exchange, progress, &mut self.context);
        self.drive(slot, app);
    }

    /// Answers the client of a call that has missed its deadline, with 504 if nothing of its response has been written.
    /// Whatever the call does from now on, its response goes nowhere, and the connection ends. The ticket stays valid.
    ///
    /// Any thread may call it, like [`service_pending`](Self::service_pending): it is not given the application, and drops nothing that the
    /// application gave to the engine. A turn has to follow, which drives the connection: [`due`](Self::due) says so.
    pub fn expire(&mut self, call: CallId, now: Now) -> Expired {
        self.set_time(now);
        let connection = &mut self.connections[call.slot];
        let expired = connection.expire_call(call.exchange, &mut self.context);
        connection.come_back(&mut self.again);
        expired
    }

    /// The server's end does not wait for a call that has [expired](Self::expire).
    pub fn write_off(&mut self, call: CallId) {
        self.connections[call.slot].write_off(call.exchange);
    }

    /// How many turns there have been.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// Reads what has arrived of the body of the request that `ticket` is for, where bodies are not buffered.
    pub fn read(&mut self, ticket: &Ticket, buffer: &mut [u8], now: Now, app: &mut A) -> Input {
        self.set_time(now);
        let CallId { slot, exchange } = ticket.call;
        let input = self.connections[slot].read(exchange, buffer, &mut self.context);
        self.drive(slot, app);
        match input {
            Input::Pending => self.connections[slot].read(exchange, buffer, &mut self.context),
            input => input,
        }
    }

    /// Has `waiter` woken when [`read`](Self::read) would give something.
    pub fn wait_for_input(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.set_time(now);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_input(exchange, waiter, &mut self.context, app);
        self.watch_or_cut(slot, app);
    }

    /// Has `waiter` woken when the peer has taken all that was written ([`Reply::is_full`]), or is gone.
    pub fn wait_for_output(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.set_time(now);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_output(exchange, waiter, app);
        self.drive(slot, app);
    }

    /// Whoever waits for the call's connection does so no longer.
    pub fn stop_waiting(&mut self, ticket: &Ticket) {
        self.connections[ticket.call.slot].stop_waiting(ticket.call.exchange);
    }

    /// Whether the peer of a call has ended its side of the connection, or is gone.
    #[must_use]
    pub fn has_peer_left(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].has_client_left(ticket.call.exchange)
    }

    /// Sends what is held back and was not touched since the last call. To be called every [`TICK`](crate::TICK) while
    /// [`has_deferred_output`](Self::has_deferred_output), by a thread that need not be the application's.
    pub fn tick(&mut self) {
        let EngineContext { deferred, statistics, observer, .. } = &mut self.context;
        let connections = &mut self.connections;
        deferred.tick(|slot, tick| {
            connections.get_mut(slot).is_some_and(|connection| connection.tick(tick, statistics, observer))
        });
    }

    /// Whether output is held back.
    #[must_use]
    pub fn has_deferred_output(&self) -> bool {
        !self.context.deferred.slots.is_empty()
    }

    /// From now on each response is the last one of its connection, so that peers go elsewhere when they ask the next
    /// time. Nothing else changes: peers are accepted and served, and idle connections stay until they ask.
    pub fn drain(&mut self) {
        self.context.draining = true;
    }

    /// Stops: accepts whom the kernel has already let in, then nobody; finishes what is under way; cuts what is left
    /// after `timeout` (`None`: whenever). A connection on which nothing is under way may ask once more for so long as
    /// `grace`, counted from now or from the end of its response; and a request of which only a part of the head is here
    /// has as long for the rest of it. With a grace of zero a connection on which nothing has arrived is closed in the next
    /// turn. Called again both can only become shorter.
    pub fn stop(&mut self, now: Now, timeout: Option<Duration>, grace: Duration) {
        let at = timeout.map_or(Millis::MAX, |timeout| self.millis_at(now).saturating_add(millis(timeout)));
        self.context.draining = true;
        if self.context.grace.is_none_or(|earlier| grace < earlier) {
            self.context.grace = Some(grace);
            self.is_to_hurry = true;
        }
        for listener in &mut self.listeners {
            listener.ready = true;
        }
        self.paused_until = 0;
        self.stop_at = Some(self.stop_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether the engine has stopped and nothing is left, but perhaps calls that have not returned in the time that was
    /// left to them: they may still be put back.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let is_over =
            |connection: &Connection<A>| connection.is_written_off() || self.has_cut && connection.is_left_over();
        self.has_stopped_accepting
            && !self.has_handed()
            && self.connections.iter().all(|(_, connection)| is_over(connection))
    }

    /// Whether what a call writes goes nowhere, because its peer has been found to be gone, or the call has expired.
    #[must_use]
    pub fn is_gone(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].is_detached(ticket.call.exchange)
    }

    /// Connections that are open, or kept for a call whose peer has left.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Whether requests wait for somebody to call the application.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        self.context.queued > 0
    }

    /// What has been counted.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { queued: self.context.queued as u64, ..self.context.statistics }
    }

    /// From now on the times of requests are taken, by `clock`; those of as many that have been answered are kept until
    /// somebody asks for them. It makes each request slower by some readings of that clock.
    pub fn take_times(&mut self, clock: Box<dyn StageClock>, room: usize) {
        self.context.observer = Some(Box::new(Stages::new(clock, room)));
    }

    /// The call that `ticket` is for goes over to another stage. Returns the one that it was in, if times are taken.
    pub fn switch_stage(&mut self, ticket: &Ticket, stage: observe::Stage) -> Option<observe::Stage> {
        self.context.observer.switch(ticket.call, stage)
    }

    /// The times of requests that have been answered since this was asked for last, and how many there was no room for.
    pub fn times(&mut self) -> (Vec<Times>, u64) {
        self.context.observer.as_mut().map_or_else(Default::default, |stages| stages.take())
    }

    /// Whether each response is the last one of its connection, because the engine drains or stops.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.context.draining
    }

    fn millis_at(&self, now: Now) -> Millis {
        millis(now.monotonic.saturating_sub(self.began))
    }

    fn set_time(&mut self, now: Now) {
        if std::mem::take(&mut self.was_noticed) {
            // A call may have taken its time since.
            self.noticed_at = self.context.now;
        }
        if now.monotonic == self.told {
            return;
        }
        self.told = now.monotonic;
        self.context.now = self.millis_at(now).max(self.context.now);
        let second = now.wall.as_secs();
        if second != self.stamped {
            self.stamped = second;
            self.context.stamp.set_time(second);
        }
    }

    /// Drives one connection and does what its fate asks for.
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
                if self.queue.is_empty() && !self.connections[slot].place.awaits_room {
                    self.handed.push_back(Work::Call(Ticket { call }, request));
                } else {
                    self.enqueue(call, request, app);
                }
                self.go_on_beside(slot, app);
            }
            Ok(NextAction::Resume(exchange, response)) => {
                self.handed.push_back(Work::Resume(Ticket { call: CallId { slot, exchange } }, response));
                self.go_on_beside(slot, app);
            }
            Ok(NextAction::AwaitRoom) => {
                self.connections[slot].hold_back(true, &mut self.context);
                self.awaits_room.push_back(slot);
                self.watch_or_cut(slot, app);
            }
            // One that goes on is watched too: what its peer sends meanwhile decides how it is closed.
            Ok(NextAction::Again) => {
                if self.watch_or_cut(slot, app) {
                    let connection = &mut self.connections[slot];
                    let queue = if connection.is_bulk() { &mut self.bulk } else { &mut self.again };
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

    /// Goes on with a connection that has other exchanges beside the one whose call is handed out.
    fn go_on_beside(&mut self, slot: usize, app: &mut A) {
        if <A::Protocol as Protocol>::MULTIPLEXED && self.watch_or_cut(slot, app) {
            self.connections[slot].come_back(&mut self.again);
        }
    }

    /// Makes sure that the poller knows the connection, and tells when it takes output again if it has some. False if
    /// that failed.
    fn watch(&mut self, slot: usize) -> bool {
        let connection = &mut self.connections[slot];
        let wants_writable = connection.has_output() && !connection.place.awaits_writable;
        if connection.place.is_registered && !wants_writable {
            return true;
        }
        let output = connection.place.awaits_writable || wants_writable;
        let is_watched = self.net.watch(connection.transport(), slot, output, connection.place.is_registered).is_ok();
        if is_watched {
            connection.place.is_registered = true;
            connection.place.awaits_writable = output;
        }
        is_watched
    }

    /// The same; if it fails the connection is gone.
    fn watch_or_cut(&mut self, slot: usize, app: &mut A) -> bool {
        if self.watch(slot) {
            return true;
        }
        if let NextAction::Close = self.connections[slot].cut(&mut self.context, app) {
            self.remove(slot);
        }
        false
    }

    fn remove(&mut self, slot: usize) {
        self.context.observer.forget(slot);
        // Dropping the transport takes it out of the poller.
        drop(self.connections.remove(slot));
        self.context.statistics.connections -= 1;
        self.paused_until = 0;
    }

    /// Closes the connection that has waited longest for its client to send; whether there was one. It looks at all
    /// connections, which is cheap only where the bound on them is low.
    fn evict_silent(&mut self, app: &mut A) -> bool {
        let silent = self.connections.iter().filter_map(|(slot, it)| it.silent_since().map(|since| (since, slot)));
        let Some((_, slot)) = silent.min() else { return false };
        match self.connections[slot].cut(&mut self.context, app) {
            NextAction::Close => {
                self.remove(slot);
                true
            }
            _ => false,
        }
    }

    /// Looks at every connection's clock.
    fn sweep(&mut self, app: &mut A) {
        let now = self.noticed_at;
        let mut late = Vec::new();
        for (slot, connection) in &mut self.connections {
            // One that is in a queue may have bytes that nobody has looked at: it is not its client who is late.
            if connection.is_late(now) && !connection.place.again {
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

    /// Closes those of these connections on which nothing has arrived. A sweep would come later.
    fn close_idle(&mut self, slots: Vec<usize>, app: &mut A) {
        for slot in slots {
            self.connections[slot].note_readiness(true, false);
            self.drive(slot, app);
            if let Some(connection) = self.connections.get_mut(slot).filter(|it| it.is_between_requests())
                && let NextAction::Close = connection.cut(&mut self.context, app)
            {
                self.remove(slot);
            }
        }
    }

    fn go_on_stopping(&mut self, app: &mut A) {
        let Some(stop_at) = self.stop_at.filter(|_| self.emptied) else { return };
        if !std::mem::replace(&mut self.has_stopped_accepting, true) {
            for listener in self.listeners.drain(..) {
                self.net.unlisten(&listener.socket);
            }
        }
        if std::mem::take(&mut self.is_to_hurry)
            && let Some(grace) = self.context.grace
        {
            let until = self.context.now.saturating_add(millis(grace));
            let mut idle = Vec::new();
            for (slot, connection) in &mut self.connections {
                if connection.has_no_request() {
                    connection.hurry(until, &mut self.context);
                    idle.push(slot);
                }
            }
            if grace.is_zero() {
                self.close_idle(idle, app);
            }
        }
        if self.context.now >= stop_at {
            self.has_cut = true;
            let slots: Vec<_> = self.connections.iter().map(|(slot, _)| slot).collect();
            for slot in slots {
                if let NextAction::Close = self.connections[slot].cut(&mut self.context, app) {
                    self.remove(slot);
                }
            }
            // What is left now is left to the application: nothing more is due.
            self.stop_at = Some(Millis::MAX);
        }
    }
}
