//! What the thread that runs a call asks of the engine, and what becomes of calls that are late.

use super::Engine;
use crate::app::{App, CallId, Progress, Report, Ticket};
use crate::connection::Expired;
use crate::deadline::Now;
use crate::exchange::{Awaited, Input};
use crate::observe::{self, Observer};
use crate::reply::Reply;

/// What the client of a call sees that has not come to its end.
const FAILED: &str = "The server has failed.";

impl<A: App> Engine<A> {
    /// Lends what the response of a call is written with. `write` must not wait.
    pub fn reply<R>(&mut self, ticket: &Ticket, write: impl FnOnce(&mut Reply<'_, A>) -> R) -> R {
        let CallId { slot, exchange } = ticket.call;
        let connection = &mut self.connections[slot];
        let result = connection.reply(exchange, &mut self.context, write);
        if connection.has_output() || connection.awaits_output() || connection.awaits_output_of(exchange) {
            self.stale_deadlines.add(slot, connection);
        }
        if connection.has_output() {
            // What the client did not take leaves as it does, whatever the application does meanwhile. If the connection
            // cannot be watched, that is found out when the call is completed.
            self.watch(slot);
        }
        result
    }

    /// Ends a call, and goes on with its connection. What comes up then is returned by the next poll.
    #[allow(clippy::needless_pass_by_value, reason = "a ticket is returned once")]
    pub fn complete(&mut self, ticket: Ticket, progress: Progress<A::Response>, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.context);
        self.context.statistics.running -= 1;
        let CallId { slot, exchange } = ticket.call;
        if matches!(progress, Progress::Done) && self.connections[slot].is_unanswered(exchange) {
            app.report(Report::Panicked("a response was called done and is empty".to_owned()));
            self.reply(&ticket, |reply| reply.refuse(500, FAILED));
        }
        let connection = &mut self.connections[slot];
        connection.release(exchange, app);
        connection.complete(exchange, progress, &mut self.context);
        self.drive(slot, app);
    }

    /// Ends a call that does not come to its end: with status 500, or with close code 1011 if it has become a WebSocket. A
    /// response that has begun is cut.
    pub fn fail(&mut self, ticket: Ticket, now: Now, app: &mut A) {
        let CallId { slot, exchange } = ticket.call;
        let is_closing = self.connections[slot].fail_websocket(exchange, &mut self.context);
        let has_ended = is_closing || self.reply(&ticket, |reply| reply.refuse(500, FAILED));
        self.complete(ticket, if has_ended { Progress::Done } else { Progress::Cut }, now, app);
    }

    /// Answers the client of a call that has missed its deadline, with 504 if nothing of its response has been written.
    /// Whatever the call does from now on, its response goes nowhere, and the connection ends. The ticket stays valid.
    ///
    /// Any thread may call it, like [`service_pending`](Self::service_pending): it is not given the application, and
    /// drops nothing that the application gave to the engine. A poll has to follow, which drives the connection:
    /// [`due`](Self::due) says so.
    pub fn expire(&mut self, call: CallId, now: Now) -> Expired {
        self.clock.set(now, &mut self.context);
        let connection = &mut self.connections[call.slot];
        let expired = connection.expire_call(call.exchange, &mut self.context);
        connection.come_back(&mut self.round.again);
        expired
    }

    /// The engine's stop does not wait for a call that has [expired](Self::expire).
    pub fn write_off(&mut self, call: CallId) {
        self.connections[call.slot].write_off(call.exchange);
    }

    /// Reads what has arrived of the body of the request that `ticket` is for, where bodies are not buffered.
    pub fn read(&mut self, ticket: &Ticket, buffer: &mut [u8], now: Now, app: &mut A) -> Input {
        self.clock.set(now, &mut self.context);
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
        self.clock.set(now, &mut self.context);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_input(exchange, waiter, &mut self.context, app);
        self.watch_or_cut(slot, app);
    }

    /// Has `waiter` woken when the client has taken all that was written ([`Reply::is_full`]), or is gone.
    pub fn wait_for_output(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.context);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_output(exchange, waiter, app);
        self.drive(slot, app);
    }

    /// Has `waiter` woken, once, when any of `awaited` is the case, or is already.
    pub fn wait_for_any(&mut self, ticket: &Ticket, awaited: Awaited, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.context);
        let CallId { slot, exchange } = ticket.call;
        if self.connections[slot].wait_for_any(exchange, awaited, waiter, &mut self.context, app) {
            self.drive(slot, app);
        }
    }

    /// Forgets the waiter of a call.
    pub fn stop_waiting(&mut self, ticket: &Ticket) {
        self.connections[ticket.call.slot].stop_waiting(ticket.call.exchange);
    }

    /// Whether the client of a call has ended its side of the connection, or is gone.
    #[must_use]
    pub fn has_peer_left(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].has_client_left(ticket.call.exchange)
    }

    /// Whether what a call writes goes nowhere, because its client has been found to be gone, or the call has expired.
    #[must_use]
    pub fn is_gone(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].is_detached(ticket.call.exchange)
    }

    /// Has the call that `ticket` is for go over to another stage. Returns the one that it was in, if times are taken.
    pub fn switch_stage(&mut self, ticket: &Ticket, stage: observe::Stage) -> Option<observe::Stage> {
        self.context.observer.switch(ticket.call, stage)
    }
}
