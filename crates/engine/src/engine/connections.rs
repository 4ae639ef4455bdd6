//! The connections of an engine: accepting, driving and closing them, and the work that they have for the application.

use super::acceptor::Acceptor;
use super::round::Round;
use super::work::RunQueue;
use crate::app::{App, CallId, Progress, Report, Ticket, TransportOf, Work};
use crate::config::READ_BUFFER;
use crate::connection::{BesideCall, Connection, NextAction, Share, panic_message};
use crate::context::EngineContext;
use crate::deadline::{Millis, millis};
use crate::exchange::Exchange;
use crate::net::{Net, Peer, Readiness};
use crate::observe::Observer;
use slab::Slab;
use std::ops::{Index, IndexMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The connections of an engine, and everything that driving one of them may change.
pub(super) struct Connections<A: App> {
    pub(super) net: A::Net,
    pub(super) slab: Slab<Connection<A>>,
    pub(super) context: EngineContext<A>,
    /// The shared buffer into which connections receive.
    pub(super) buffer: Box<[u8]>,
    pub(super) acceptor: Acceptor<A::Net>,
    pub(super) round: Round,
    pub(super) queue: RunQueue<A>,
}

impl<A: App> Index<usize> for Connections<A> {
    type Output = Connection<A>;

    #[inline]
    fn index(&self, slot: usize) -> &Connection<A> {
        &self.slab[slot]
    }
}

impl<A: App> IndexMut<usize> for Connections<A> {
    #[inline]
    fn index_mut(&mut self, slot: usize) -> &mut Connection<A> {
        &mut self.slab[slot]
    }
}

impl<A: App> Connections<A> {
    pub(super) fn new(net: A::Net, acceptor: Acceptor<A::Net>, context: EngineContext<A>) -> Self {
        Self {
            net,
            slab: Slab::new(),
            context,
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            acceptor,
            round: Round::new(),
            queue: RunQueue::new(),
        }
    }

    /// Returns the connection in `slot`, with the state that all connections share.
    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> (&mut Connection<A>, &mut EngineContext<A>) {
        (&mut self.slab[slot], &mut self.context)
    }

    /// Returns the connection in `slot` like [`at`](Self::at); `None` if there is none.
    pub(super) fn find(&mut self, slot: usize) -> Option<(&mut Connection<A>, &mut EngineContext<A>)> {
        Some((self.slab.get_mut(slot)?, &mut self.context))
    }

    /// Makes the next poll drive the connection in `slot`.
    pub(super) fn come_back(&mut self, slot: usize) {
        self.slab[slot].link_mut().schedule.come_back(slot, &mut self.round.again);
    }

    /// Adds a connection that has been accepted. Returns its slot.
    pub(super) fn admit(&mut self, transport: TransportOf<A>, peer: &Peer) -> usize {
        let vacancy = self.slab.vacant_entry();
        let slot = vacancy.key();
        let connection = vacancy.insert(Connection::new(transport, slot, peer, &self.context));
        if connection.link().is_shaking_hands() {
            self.context.handshakes.begin(slot);
        }
        self.context.statistics.accepted += 1;
        self.context.statistics.connections += 1;
        slot
    }

    /// Drives one connection and performs the resulting action.
    pub(super) fn drive(&mut self, slot: usize, app: &mut A) {
        let connection = &mut self.slab[slot];
        let (context, buffer) = (&mut self.context, &mut self.buffer);
        let driven = catch_unwind(AssertUnwindSafe(|| connection.drive(context, buffer, app)));
        self.follow(slot, driven, app);
    }

    /// Drives a connection while one of its calls runs, between two polls. Otherwise a call that reads its body in small
    /// parts would begin a request of its connection with each part, however full the queue is.
    ///
    /// The end of a call needs no such check: it adds at most one request, and its thread can take one. So the requests
    /// for which there is no thread do not become more.
    pub(super) fn drive_beside_call(&mut self, slot: usize, app: &mut A) {
        let was_full = self.context.load.is_full;
        self.set_full();
        self.drive(slot, app);
        self.context.load.is_full = was_full;
    }

    fn follow(&mut self, slot: usize, driven: std::thread::Result<NextAction<A>>, app: &mut A) {
        match driven {
            Ok(NextAction::Close) => self.remove(slot),
            // A short-lived connection never needs to be watched, so this arm does not watch.
            Ok(NextAction::Call(exchange, request)) => {
                let call = CallId { slot, exchange };
                let connection = &self.slab[slot];
                // `calls` already includes the exchange of this call.
                let Share { calls, most, .. } = connection.share(&self.context.config);
                let may_begin = !connection.link().schedule.awaits_room() && calls <= most;
                if self.queue.is_empty() && may_begin {
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
                    self.slab[slot].dequeue_message(exchange, &mut self.context)
                } else {
                    None
                };
                match response {
                    Some(response) => self.queue.push_ready(Work::Resume(Ticket { call }, response)),
                    None => self.queue.push(call, 0),
                }
                self.watch_or_cut(slot, app);
            }
            Ok(NextAction::AwaitRoom) => {
                self.slab[slot].await_room(&mut self.context);
                self.queue.push_awaiting_room(slot);
                self.watch_or_cut(slot, app);
            }
            // A connection that continues is watched as well, because the next bytes from its client determine how it
            // is closed.
            Ok(NextAction::Again) => {
                if self.watch_or_cut(slot, app) {
                    let connection = &mut self.slab[slot];
                    let queue = if connection.is_bulk() { &mut self.round.bulk } else { &mut self.round.again };
                    connection.link_mut().schedule.come_back(slot, queue);
                }
            }
            Ok(NextAction::Wait) => {
                self.watch_or_cut(slot, app);
            }
            Err(panic) => {
                self.context.statistics.panics += 1;
                if !self.slab[slot].give_up(&mut self.context, app) {
                    self.remove(slot);
                }
                app.report(Report::Panicked(panic_message(&*panic)));
            }
        }
    }

    /// Continues a connection that may have something to do while the call that it has begun runs.
    fn go_on_beside(&mut self, slot: usize, app: &mut A) {
        let connection = &self.slab[slot];
        let Some(beside) = connection.beside_call() else { return };
        if beside == BesideCall::End && !self.context.is_draining() {
            return;
        }
        if self.watch_or_cut(slot, app) {
            let connection = &mut self.slab[slot];
            if self.context.is_draining() || beside == BesideCall::More {
                connection.link_mut().schedule.come_back(slot, &mut self.round.again);
            }
        }
    }

    /// Returns true if a round has begun and only deadlines and a stop of the engine may be left in it.
    #[inline]
    pub(super) fn is_round_empty(&self) -> bool {
        let is_idle = self.round.is_empty() && !self.queue.has_awaiting_room() && !self.acceptor.is_ready();
        !self.round.is_over() && is_idle
    }

    /// Handles an event of the poller.
    pub(super) fn look_at(&mut self, readiness: Readiness, app: &mut A) {
        match readiness {
            Readiness::Woken => self.net.drain_wakes(),
            Readiness::Listener(index) => self.acceptor.note_event(index),
            Readiness::Connection { slot, readable, read_closed } => {
                let Some(connection) = self.slab.get_mut(slot) else { return };
                connection.link_mut().note_readiness(readable, read_closed);
                if connection.link_mut().schedule.has_turn_later() {
                    return;
                }
                if connection.is_bulk() || self.context.meter.is_stage_over() {
                    // Connections that can be answered soon are served first.
                    connection.link_mut().schedule.come_back(slot, &mut self.round.bulk);
                } else {
                    self.drive(slot, app);
                }
            }
        }
    }

    /// Drives a connection from a queue, unless it has been driven meanwhile.
    pub(super) fn drive_again(&mut self, slot: usize, app: &mut A) {
        if self.slab.get_mut(slot).is_some_and(|connection| connection.link_mut().schedule.take_turn()) {
            self.drive(slot, app);
        }
    }

    /// Makes the next poll drive all connections on which the engine can announce to the client that it drains.
    pub(super) fn drive_told(&mut self) {
        for (slot, connection) in &mut self.slab {
            if connection.is_multiplexed() || connection.link().is_upgraded() {
                connection.link_mut().schedule.come_back(slot, &mut self.round.again);
            }
        }
    }

    /// Makes the poller watch the connection for input and, if it has output, for room for output. Returns false if
    /// that failed.
    #[inline]
    pub(super) fn watch(&mut self, slot: usize) -> bool {
        self.slab[slot].watch(&mut self.net)
    }

    /// Watches the connection like [`watch`](Self::watch), but cuts it if that fails. Returns false then.
    pub(super) fn watch_or_cut(&mut self, slot: usize, app: &mut A) -> bool {
        if self.watch(slot) {
            return true;
        }
        self.cut(slot, app);
        false
    }

    /// Cuts the exchanges of a connection. Returns true if the connection has been removed.
    pub(super) fn cut(&mut self, slot: usize, app: &mut A) -> bool {
        let NextAction::Close = self.slab[slot].cut(&mut self.context, app) else { return false };
        self.remove(slot);
        true
    }

    pub(super) fn remove(&mut self, slot: usize) {
        self.context.observer.forget(slot);
        let mut connection = self.slab.remove(slot);
        connection.link_mut().rest(&mut self.context.load);
        self.context.statistics.count_streams(connection.streams(), None);
        if connection.link().is_shaking_hands() {
            self.context.handshakes.end(slot);
        }
        self.context.statistics.websockets -= u64::from(connection.link().is_upgraded());
        // Dropping the transport removes it from the poller.
        drop(connection);
        self.context.statistics.connections -= 1;
        self.acceptor.resume();
    }

    /// Checks the deadlines of all connections and handles those that have passed. `delay` is the time for which this
    /// check is late.
    pub(super) fn sweep(&mut self, delay: Millis, now: Millis, app: &mut A) {
        let mut late = Vec::new();
        let mut rested = 0;
        for (slot, connection) in &mut self.slab {
            // A connection in a queue may have unread bytes. Then the server is late, not the client.
            if !connection.link_mut().schedule.is_in_queue() && connection.is_late(delay, now) {
                late.push(slot);
            } else {
                rested += usize::from(connection.look_at_idle(&mut self.context, app));
            }
        }
        app.rested(rested);
        for slot in late {
            let connection = &mut self.slab[slot];
            match connection.expire(now, &mut self.context, app) {
                NextAction::Close => self.remove(slot),
                _ => self.drive(slot, app),
            }
        }
    }

    /// Limits the time in which connections without a request may send one to `grace`.
    pub(super) fn hurry_idle(&mut self, grace: Duration, app: &mut A) {
        let until = self.context.time.now.saturating_add(millis(grace));
        let mut idle = Vec::new();
        for (slot, connection) in &mut self.slab {
            if connection.has_no_request() {
                connection.hurry(until, &mut self.context);
                idle.push(slot);
            }
        }
        if !grace.is_zero() {
            return;
        }
        // Connections on which nothing has arrived are closed now, because the next sweep would be too late.
        for slot in idle {
            self.slab[slot].link_mut().note_readiness(true, false);
            self.drive(slot, app);
            if self.slab.get(slot).is_some_and(Connection::is_between_requests) {
                self.cut(slot, app);
            }
        }
    }

    /// Closes the connection that has waited longest for input from its client. Returns true if there was one. It
    /// examines all connections, which is cheap only if their maximum number is low.
    pub(super) fn evict_silent(&mut self, app: &mut A) -> bool {
        let silent = self.slab.iter().filter_map(|(slot, it)| it.silent_since().map(|since| (since, slot)));
        let Some((_, slot)) = silent.min() else { return false };
        self.cut(slot, app)
    }

    /// Closes the connections whose handshakes have taken longest, if there are too many handshakes.
    pub(super) fn close_surplus_handshakes(&mut self, app: &mut A) {
        let most = self.context.config.handshakes;
        while let Some(slot) = self.context.handshakes.take_surplus(most) {
            self.context.report_handshakes(app);
            self.cut(slot, app);
        }
    }

    /// Records whether the engine is full: no thread can call the application, and the queue of requests has no room. The
    /// thread that polls next takes one ready request if it may call; the others will be queued, so they take up room.
    pub(super) fn set_full(&mut self) {
        let (load, ready) = (&mut self.context.load, self.queue.ready());
        load.is_full = (!load.may_call || ready > 0) && load.queued + ready >= self.context.config.queue;
    }

    /// Reads from a connection that waited for room in the queue. Its request is queued even if a thread could call the
    /// application, because its client may have left meanwhile.
    pub(super) fn release(&mut self, slot: usize, app: &mut A) {
        let Some(connection) = self.slab.get(slot).filter(|connection| connection.link().schedule.awaits_room()) else {
            return;
        };
        let deadline = connection.link().deadline();
        self.drive(slot, app);
        if let Some(connection) = self.slab.get_mut(slot) {
            connection.stop_awaiting_room(&mut self.context);
            if !connection.link().has_output() {
                // The request has waited since this deadline was set.
                connection.hurry_queued(deadline, &mut self.context);
            }
        }
    }

    fn enqueue(&mut self, call: CallId, mut request: A::Request, app: &mut A) {
        let connection = &mut self.slab[call.slot];
        if connection.exchange(call.exchange).is_none_or(Exchange::is_detached) {
            // The client has left since the request became ready.
            app.abandon_request(request, None);
            connection.complete(call.exchange, Progress::Done, &mut self.context);
            return self.drive(call.slot, app);
        }
        if connection.is_multiplexed() {
            // This exchange may have the index of an exchange that was reset while its request was queued.
            self.tidy_queue();
        }
        app.queued(&mut request);
        let connection = &mut self.slab[call.slot];
        let before = connection.share(&self.context.config).queued;
        connection.enqueue(call.exchange, request, &mut self.context);
        self.queue.push(call, before);
        // Earlier responses may not have been sent completely.
        if connection.link().has_output() {
            self.watch_or_cut(call.slot, app);
        }
    }

    /// Queues a response that is to continue because a message has arrived, until a thread is free.
    fn enqueue_message(&mut self, call: CallId, response: A::Response, app: &mut A) {
        let connection = &mut self.slab[call.slot];
        if connection.exchange(call.exchange).is_none_or(Exchange::is_detached) {
            // The client has left since the response was resumed.
            connection.exchange_mut(call.exchange).release(app);
            connection.complete(call.exchange, Progress::Listening(response), &mut self.context);
            return self.drive(call.slot, app);
        }
        connection.enqueue_message(call.exchange, response, &mut self.context);
        self.queue.push(call, 0);
    }

    /// Removes the stale entries of the queue: those for requests that no longer wait.
    pub(super) fn tidy_queue(&mut self) {
        let slab = &self.slab;
        self.queue.tidy(self.context.load.queued, |call| {
            slab.get(call.slot)
                .is_some_and(|connection| connection.exchange(call.exchange).is_some_and(Exchange::is_queued))
        });
    }

    /// Returns true if the response belongs to a WebSocket. Handling its message counts as a call, like a request.
    fn is_for_message(&self, ticket: &Ticket) -> bool {
        self.slab[ticket.call.slot].exchange(ticket.call.exchange).is_some_and(Exchange::has_websocket)
    }

    /// Returns true if the next poll has work to return.
    pub(super) fn has_ready(&self) -> bool {
        self.queue.has_ready() || !self.context.abandoned.is_empty()
    }

    pub(super) fn take_work(&mut self, app: &mut A, may_call: bool) -> Option<Work<A>> {
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
            let Some(connection) = self.slab.get_mut(call.slot) else { continue };
            if let Some(response) = connection.dequeue_message(call.exchange, &mut self.context) {
                return Some(Work::Resume(Ticket { call }, response));
            }
            let waited = connection.exchange(call.exchange).is_some_and(Exchange::is_queued);
            let Share { calls, most, .. } = connection.share(&self.context.config);
            if waited && calls >= most {
                self.queue.hold(call);
                continue;
            }
            if let Some(request) = connection.dequeue(call.exchange, &mut self.context, app) {
                return Some(Work::Call(Ticket { call }, request));
            }
            if waited {
                self.drive(call.slot, app);
            }
            self.queue.release_held(call.slot);
        }
        None
    }
}
