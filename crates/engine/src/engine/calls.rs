//! The methods for the thread that runs a call, and the handling of calls that are late.

use super::Engine;
use crate::app::{App, CallId, Progress, Report, Ticket};
use crate::connection::Expired;
use crate::deadline::Now;
use crate::exchange::{Awaited, Input};
use crate::observe::{self, Observer};
use crate::reply::Reply;

/// The text that a client sees if its call has not come to its end.
const FAILED: &str = "The server has failed.";

impl<A: App> Engine<A> {
    /// Calls `write` with a [`Reply`], through which the response of a call is written. `write` must not wait.
    pub fn reply<R>(&mut self, ticket: &Ticket, write: impl FnOnce(&mut Reply<'_, A>) -> R) -> R {
        let CallId { slot, exchange } = ticket.call;
        let connection = &mut self.connections[slot];
        let result = connection.reply(exchange, &mut self.context, write);
        if connection.has_output() || connection.awaits_output() || connection.awaits_output_of(exchange) {
            self.stale_deadlines.add(slot, connection);
        }
        if connection.has_output() {
            // Output that the client has not taken is sent as the client takes it, whatever the application does
            // meanwhile. If the connection cannot be watched, the engine finds that out when the call is completed.
            self.watch(slot);
        }
        result
    }

    /// Ends a call, and continues its connection. The next poll returns the work that this leads to.
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

    /// Ends a call that has failed: with status 500, or with close code 1011 if it has become a WebSocket. A response
    /// that has begun is cut.
    pub fn fail(&mut self, ticket: Ticket, now: Now, app: &mut A) {
        let CallId { slot, exchange } = ticket.call;
        let is_closing = self.connections[slot].fail_websocket(exchange, &mut self.context);
        let has_ended = is_closing || self.reply(&ticket, |reply| reply.refuse(500, FAILED));
        self.complete(ticket, if has_ended { Progress::Done } else { Progress::Cut }, now, app);
    }

    /// Answers the client of a call that has missed its deadline, with 504 if nothing of its response has been written.
    /// From now on the engine discards the call's response, whatever the call does, and the connection ends. The ticket
    /// stays valid.
    ///
    /// Any thread may call it, like [`service_pending`](Self::service_pending): it does not get the application, and
    /// drops nothing that the application gave to the engine. A poll has to follow, which drives the connection:
    /// [`due`](Self::due) takes account of that.
    pub fn expire(&mut self, call: CallId, now: Now) -> Expired {
        self.clock.set(now, &mut self.context);
        let connection = &mut self.connections[call.slot];
        let expired = connection.expire_call(call.exchange, &mut self.context);
        connection.come_back(&mut self.round.again);
        expired
    }

    /// Has the engine's stop not wait for a call that has [expired](Self::expire).
    pub fn write_off(&mut self, call: CallId) {
        self.connections[call.slot].write_off(call.exchange);
    }

    /// Reads the part that has arrived of the body of `ticket`'s request, if bodies are not buffered.
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

    /// Has `waiter` woken when [`read`](Self::read) would not return [`Input::Pending`].
    pub fn wait_for_input(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.context);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_input(exchange, waiter, &mut self.context, app);
        self.watch_or_cut(slot, app);
    }

    /// Has `waiter` woken when the client has taken all output ([`Reply::is_full`]), or is gone.
    pub fn wait_for_output(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.context);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_output(exchange, waiter, app);
        self.drive(slot, app);
    }

    /// Has `waiter` woken, once, when any condition of `awaited` holds, or at once if one holds already.
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

    /// Returns true if the client of a call has ended its side of the connection, or is gone.
    #[must_use]
    pub fn has_peer_left(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].has_client_left(ticket.call.exchange)
    }

    /// Returns true if the output of a call is discarded, because its client has been found to be gone, or the call has
    /// expired.
    #[must_use]
    pub fn is_gone(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].is_detached(ticket.call.exchange)
    }

    /// Moves the call of `ticket` to another stage. Returns its previous stage, if times are taken.
    pub fn switch_stage(&mut self, ticket: &Ticket, stage: observe::Stage) -> Option<observe::Stage> {
        self.context.observer.switch(ticket.call, stage)
    }
}
