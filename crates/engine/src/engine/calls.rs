//! The methods for the thread that runs a call: its response, its body, its waits, and what its connection becomes.

use super::Engine;
use super::connections::Connections;
use crate::app::{App, CallId, Progress, Report, Ticket};
use crate::connection::{Expired, HijackId, HijackRefusal, Hijacked, MessageOut, end_hijack};
use crate::deadline::Now;
use crate::exchange::{Awaited, Exchange, Input};
use crate::observe::{self, Observer};
use crate::reply::Reply;
use crate::websocket::{Incoming, Room, WebSocketEnd, WebSocketId};
use wire::websocket::{AcceptMisuse, CloseCode, Outgoing, Prepared, SendError};

/// The text of the page with status 500, which a client gets if the call of its request has failed.
const FAILED: &str = "The server has failed.";

impl<A: App> Engine<A> {
    /// Calls `write` with a [`Reply`], through which the response of a call is written. `write` must not wait.
    pub fn reply<R>(&mut self, ticket: &Ticket, write: impl FnOnce(&mut Reply<'_, A>) -> R) -> R {
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        let result = connection.reply(exchange, context, write);
        if connection.link().has_output() || connection.awaits_output(exchange) {
            self.stale_deadlines.add(slot, connection);
        }
        if connection.link().has_output() {
            // Output that the client has not taken is sent as the client takes it, whatever the application does
            // meanwhile. If the connection cannot be watched, the engine finds that out when the call is completed.
            self.connections.watch(slot);
        }
        result
    }

    /// Ends a call, and continues its connection. The next poll returns the work that this leads to.
    #[allow(clippy::needless_pass_by_value, reason = "a ticket is returned once")]
    pub fn complete(&mut self, ticket: Ticket, progress: Progress<A::Response>, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        self.connections.context.statistics.running -= 1;
        let CallId { slot, exchange } = ticket.call;
        if matches!(progress, Progress::Done)
            && self.connections[slot].exchange(exchange).is_some_and(Exchange::is_unanswered)
        {
            app.report(Report::Panicked("a response was called done and is empty".to_owned()));
            self.reply(&ticket, |reply| reply.refuse(500, FAILED));
        }
        let (connection, context) = self.connections.at(slot);
        connection.exchange_mut(exchange).release(app);
        connection.complete(exchange, progress, context);
        self.connections.queue.release_held(slot);
        self.connections.drive(slot, app);
    }

    /// Ends a call that has failed: with status 500, or with close code 1011 if it has become a WebSocket. A response
    /// that has begun is cut.
    pub fn fail(&mut self, ticket: Ticket, now: Now, app: &mut A) {
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        let is_closing = connection.websocket(exchange).fail(context);
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
        self.clock.set(now, &mut self.connections.context);
        let (connection, context) = self.connections.at(call.slot);
        let expired = connection.expire_call(call.exchange, context);
        self.connections.come_back(call.slot);
        expired
    }

    /// Excludes a call that has [expired](Self::expire) from the calls that the engine's stop waits for.
    pub fn write_off(&mut self, call: CallId) {
        // The exchange of a response that is to be abandoned is over already.
        if let Some((connection, _)) = self.connections.find(call.slot)
            && connection.exchange(call.exchange).is_some_and(Exchange::is_expired)
        {
            connection.exchange_mut(call.exchange).write_off();
        }
    }

    /// Reads the part that has arrived of the body of `ticket`'s request, if bodies are not buffered.
    pub fn read(&mut self, ticket: &Ticket, buffer: &mut [u8], now: Now, app: &mut A) -> Input {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        let input = connection.read(exchange, buffer, context);
        self.connections.drive(slot, app);
        match input {
            Input::Pending => {
                let (connection, context) = self.connections.at(slot);
                connection.read(exchange, buffer, context)
            }
            input => input,
        }
    }

    /// Has `waiter` woken when [`read`](Self::read) would not return [`Input::Pending`].
    pub fn wait_for_input(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        connection.wait_for_input(exchange, waiter, context, app);
        self.connections.watch_or_cut(slot, app);
    }

    /// Has `waiter` woken when the client has taken all output ([`Reply::is_full`]), or is gone.
    pub fn wait_for_output(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_output(exchange, waiter, app);
        self.connections.drive(slot, app);
    }

    /// Has `waiter` woken, once, when any condition of `awaited` holds, or at once if one holds already.
    pub fn wait_for_any(&mut self, ticket: &Ticket, awaited: Awaited, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        if connection.wait_for_any(exchange, awaited, waiter, context, app) {
            self.connections.drive(slot, app);
        }
    }

    /// Forgets the waiter of a call.
    pub fn stop_waiting(&mut self, ticket: &Ticket) {
        self.connections[ticket.call.slot].exchange_mut(ticket.call.exchange).stop_waiting();
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
        self.connections[ticket.call.slot].exchange(ticket.call.exchange).is_none_or(Exchange::is_detached)
    }

    /// Moves the call of `ticket` to another stage. Returns its previous stage, if times are taken.
    pub fn switch_stage(&mut self, ticket: &Ticket, stage: observe::Stage) -> Option<observe::Stage> {
        self.connections.context.observer.switch(ticket.call, stage)
    }
}

/// The methods for an application that takes a connection over ([`connection/hijack.rs`](crate::connection)).
///
/// The call continues, counts, and is completed as any other: with [`Progress::Done`] the application has some seconds
/// left to close its socket, with [`Progress::Cut`] the connection ends at once.
impl<A: App> Engine<A> {
    /// Gives the application the connection of a call whose request asks for a WebSocket. From now on the engine
    /// discards the response that the call writes.
    ///
    /// # Errors
    /// [`HijackRefusal`]. The request can still be answered then, if its client is there.
    pub fn hijack(&mut self, ticket: &Ticket, now: Now, app: &mut A) -> Result<Hijacked, HijackRefusal> {
        self.clock.set(now, &mut self.connections.context);
        let call = ticket.call;
        let Connections { slab, net, context, .. } = &mut self.connections;
        let hijacked = slab[call.slot].hijack(call.exchange, net, context, app);
        self.connections.drive(call.slot, app);
        hijacked
    }

    /// Records that the application has closed its socket: the connection is over when the call is.
    pub fn end_hijack(&mut self, id: HijackId, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let Some((connection, _)) = self.connections.find(id.slot) else { return };
        end_hijack(connection.link_mut(), id);
        self.connections.drive(id.slot, app);
    }
}

/// The methods for the application of a WebSocket.
///
/// The engine dispatches a request for a WebSocket like any other
/// ([`App::begin_websocket`](crate::App::begin_websocket)). Its call denies it with an ordinary response, or accepts
/// it. From then on the application receives and sends messages by the [`WebSocketId`]. The call may continue, and wait
/// ([`Engine::wait_for_any`]) for [`Awaited::INPUT`](crate::Awaited::INPUT): a message or the end; or for
/// [`Awaited::OUTPUT`](crate::Awaited::OUTPUT): room for more output. Or the application returns it as
/// [`Progress::Listening`](crate::Progress::Listening), and the engine resumes it when a message, or the end, has
/// arrived: so an idle WebSocket holds no thread. When the call is done the engine closes the WebSocket, with 1000
/// unless it was closed before.
impl<A: App> Engine<A> {
    /// Accepts the WebSocket that a call's request asks for, with the application's choice of a subprotocol and its own
    /// fields. `None` if the client is gone, or the call has answered already.
    ///
    /// # Errors
    /// The part of the application's answer that is not allowed. The request can still be answered then.
    pub fn accept_websocket<'f>(
        &mut self,
        ticket: &Ticket,
        subprotocol: Option<&str>,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        now: Now,
        app: &mut A,
    ) -> Result<Option<WebSocketId>, AcceptMisuse> {
        self.clock.set(now, &mut self.connections.context);
        let call = ticket.call;
        let (connection, context) = self.connections.at(call.slot);
        let accepted = connection.accept_websocket(call.exchange, (subprotocol, fields), context, app)?;
        self.connections.drive(call.slot, app);
        Ok(accepted)
    }

    /// Takes the next message, if there is one. That makes room for more input.
    pub fn receive_message(&mut self, id: WebSocketId, now: Now, app: &mut A) -> Incoming<A::Message> {
        let Some((connection, context)) = self.connections.find(id.slot) else {
            return Incoming::End(WebSocketEnd::abnormal());
        };
        let (incoming, must_drive) = connection.websocket(id.exchange).receive(id, context);
        if must_drive {
            self.clock.set(now, &mut self.connections.context);
            self.connections.drive(id.slot, app);
        }
        incoming
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`SendError::Closed`]; [`SendError::QueueFull`]: so much output waits for the client that the message was not
    /// added. It may be sent again when there is room.
    pub fn send_message(
        &mut self,
        id: WebSocketId,
        message: Outgoing<'_>,
        now: Now,
        app: &mut A,
    ) -> Result<Room, SendError> {
        self.send_any(id, MessageOut::One(message), now, app)
    }

    /// Sends a binary message, which is not copied if it is large and not compressed.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_binary(&mut self, id: WebSocketId, bytes: A::Chunk, now: Now, app: &mut A) -> Result<Room, SendError> {
        self.send_any(id, MessageOut::Binary(bytes), now, app)
    }

    /// Sends a message that was framed, and compressed, once for many WebSockets.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_prepared(
        &mut self,
        id: WebSocketId,
        message: &Prepared,
        now: Now,
        app: &mut A,
    ) -> Result<Room, SendError> {
        self.send_any(id, MessageOut::Prepared(message), now, app)
    }

    fn send_any(
        &mut self,
        id: WebSocketId,
        message: MessageOut<'_, A::Chunk>,
        now: Now,
        app: &mut A,
    ) -> Result<Room, SendError> {
        self.clock.set(now, &mut self.connections.context);
        let (connection, context) = self.connections.find(id.slot).ok_or(SendError::Closed)?;
        connection.websocket(id.exchange).send(id, message, context)?;
        self.connections.drive(id.slot, app);
        let connection = self.connections.find(id.slot);
        Ok(connection.map_or(Room::Left, |(connection, _)| connection.websocket(id.exchange).room()))
    }

    /// Has `waiter` woken, once, when any condition of `awaited` holds, or holds already, or the WebSocket has gone.
    /// `waiter` replaces the previous waiter. Unlike [`wait_for_any`](Self::wait_for_any) this needs no running call.
    pub fn wait_for_websocket(&mut self, id: WebSocketId, awaited: Awaited, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let Some((connection, _)) = self.connections.find(id.slot) else { return app.wake(waiter) };
        // The reading of a WebSocket does not depend on which call waits.
        connection.websocket(id.exchange).wait(id, awaited, waiter, app);
    }

    /// Closes a WebSocket, if it is open. Its client has some seconds to answer; messages that arrived before can still
    /// be received.
    pub fn close_websocket(&mut self, id: WebSocketId, code: CloseCode, reason: &str, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let Some((connection, context)) = self.connections.find(id.slot) else { return };
        connection.websocket(id.exchange).close(id, code, reason, context);
        self.connections.drive(id.slot, app);
    }

    /// Returns the reason why no message follows, `None` while the WebSocket is open; and the number of bytes of
    /// messages that have been sent.
    pub fn websocket_state(&mut self, id: WebSocketId) -> (Option<WebSocketEnd>, u64) {
        match self.connections.find(id.slot) {
            Some((connection, _)) => connection.websocket(id.exchange).state(id),
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }
}
