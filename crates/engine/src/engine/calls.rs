//! The methods for the thread that runs a call: they write its response, read its body, wait, and hand over its
//! connection.

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

/// The body of the page with status 500, which a client receives if the call of its request has failed.
const FAILED: &str = "The server has failed.";

impl<A: App> Engine<A> {
    /// Calls `write` with a [`Reply`], through which it writes the response of a call. `write` must not block.
    pub fn reply<R>(&mut self, ticket: &Ticket, write: impl FnOnce(&mut Reply<'_, A>) -> R) -> R {
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        let result = connection.reply(exchange, context, write);
        if connection.link().has_output() || connection.awaits_output(exchange) {
            self.stale_deadlines.add(slot, connection);
        }
        if connection.link().has_output() {
            // The engine sends waiting output as the client reads, whatever the application does meanwhile. If the
            // poller cannot watch the connection, the engine finds that out when the call is completed.
            self.connections.watch(slot);
        }
        result
    }

    /// Ends a call, and continues its connection. If that makes more work ready, the next poll returns it.
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

    /// Ends a call that has failed: sends status 500, or close code 1011 if the exchange has become a WebSocket. A
    /// response whose head has been sent is cut.
    pub fn fail(&mut self, ticket: Ticket, now: Now, app: &mut A) {
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        let is_closing = connection.websocket(exchange).fail(context);
        let has_ended = is_closing || self.reply(&ticket, |reply| reply.refuse(500, FAILED));
        self.complete(ticket, if has_ended { Progress::Done } else { Progress::Cut }, now, app);
    }

    /// Answers the client of a call that has missed its deadline, with 504 if nothing of its response has been written.
    /// From now on the engine discards everything that the call writes, and closes the connection. The ticket stays
    /// valid.
    ///
    /// Any thread may call this, like [`service_pending`](Self::service_pending): the method neither calls the
    /// application nor drops its objects. A poll has to follow, which drives the connection; [`due`](Self::due)
    /// accounts for that.
    pub fn expire(&mut self, call: CallId, now: Now) -> Expired {
        self.clock.set(now, &mut self.connections.context);
        let (connection, context) = self.connections.at(call.slot);
        let expired = connection.expire_call(call.exchange, context);
        self.connections.come_back(call.slot);
        expired
    }

    /// Excludes a call that has [expired](Self::expire) from the calls that a stop of the engine waits for.
    pub fn write_off(&mut self, call: CallId) {
        // The exchange of a response that is to be abandoned has already ended.
        if let Some((connection, _)) = self.connections.find(call.slot)
            && connection.exchange(call.exchange).is_some_and(Exchange::is_expired)
        {
            connection.exchange_mut(call.exchange).write_off();
        }
    }

    /// Reads into `buffer` from the part of the request body that has arrived, if bodies are not buffered.
    pub fn read(&mut self, ticket: &Ticket, buffer: &mut [u8], now: Now, app: &mut A) -> Input {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        let input = connection.read(exchange, buffer, context);
        self.connections.drive_beside_call(slot, app);
        match input {
            Input::Pending => {
                let (connection, context) = self.connections.at(slot);
                connection.read(exchange, buffer, context)
            }
            input => input,
        }
    }

    /// Wakes `waiter` as soon as [`read`](Self::read) would no longer return [`Input::Pending`].
    pub fn wait_for_input(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        connection.wait_for_input(exchange, waiter, context, app);
        self.connections.watch_or_cut(slot, app);
    }

    /// Wakes `waiter` when the client has read all output ([`Reply::is_full`]), or has left.
    pub fn wait_for_output(&mut self, ticket: &Ticket, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        self.connections[slot].wait_for_output(exchange, waiter, app);
        self.connections.drive_beside_call(slot, app);
    }

    /// Wakes `waiter` once, when any condition of `awaited` holds; at once if one holds already.
    pub fn wait_for_any(&mut self, ticket: &Ticket, awaited: Awaited, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let CallId { slot, exchange } = ticket.call;
        let (connection, context) = self.connections.at(slot);
        if connection.wait_for_any(exchange, awaited, waiter, context, app) {
            self.connections.drive_beside_call(slot, app);
        }
    }

    /// Removes the waiter of a call, which is then not woken.
    pub fn stop_waiting(&mut self, ticket: &Ticket) {
        self.connections[ticket.call.slot].exchange_mut(ticket.call.exchange).stop_waiting();
    }

    /// Returns true if the client of a call has closed its side of the connection, or is gone.
    #[must_use]
    pub fn has_peer_left(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].has_client_left(ticket.call.exchange)
    }

    /// Returns true if the engine discards the output of a call, because its client is gone or the call has expired.
    #[must_use]
    pub fn is_gone(&self, ticket: &Ticket) -> bool {
        self.connections[ticket.call.slot].exchange(ticket.call.exchange).is_none_or(Exchange::is_detached)
    }

    /// Moves the call of `ticket` to another stage. Returns its previous stage; `None` if times are not measured.
    pub fn switch_stage(&mut self, ticket: &Ticket, stage: observe::Stage) -> Option<observe::Stage> {
        self.connections.context.observer.switch(ticket.call, stage)
    }
}

/// Methods for an application that takes over a connection ([`connection/hijack.rs`](crate::connection)).
///
/// The call continues, is counted, and is completed like any other. With [`Progress::Done`] the application has some
/// seconds left to close its socket; with [`Progress::Cut`] the connection ends at once.
impl<A: App> Engine<A> {
    /// Gives the application the connection of a call whose request asks for a WebSocket. From now on the engine
    /// discards the response that the call writes.
    ///
    /// # Errors
    /// [`HijackRefusal`]. The call can then still answer the request, if the client has not left.
    pub fn hijack(&mut self, ticket: &Ticket, now: Now, app: &mut A) -> Result<Hijacked, HijackRefusal> {
        self.clock.set(now, &mut self.connections.context);
        let call = ticket.call;
        let Connections { slab, net, context, .. } = &mut self.connections;
        let hijacked = slab[call.slot].hijack(call.exchange, net, context, app);
        self.connections.drive_beside_call(call.slot, app);
        hijacked
    }

    /// Records that the application has closed its socket. The engine then closes the connection when the call is
    /// completed.
    pub fn end_hijack(&mut self, id: HijackId, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let Some((connection, _)) = self.connections.find(id.slot) else { return };
        end_hijack(connection.link_mut(), id);
        self.connections.drive_beside_call(id.slot, app);
    }
}

/// Methods by which an application uses a WebSocket.
///
/// The engine dispatches a WebSocket request like any other ([`App::begin_websocket`](crate::App::begin_websocket)).
/// The call either denies the request with an ordinary response, or accepts it; after that the application receives and
/// sends messages by the [`WebSocketId`]. To wait, it has two ways. It can keep the call running and block in
/// [`Engine::wait_for_any`], for [`Awaited::INPUT`](crate::Awaited::INPUT) (a message or the end) or
/// [`Awaited::OUTPUT`](crate::Awaited::OUTPUT) (room for more output). Or it returns
/// [`Progress::Listening`](crate::Progress::Listening), and the engine resumes the response when a message or the end
/// arrives, so that an idle WebSocket occupies no thread. When the call is done, the engine closes the WebSocket with
/// code 1000 if it is still open.
impl<A: App> Engine<A> {
    /// Accepts the WebSocket that a call's request asks for, with the given subprotocol and response fields. Returns
    /// `None` if the client is gone, or the call has already answered.
    ///
    /// # Errors
    /// The part of the answer that is not allowed. The call can then still answer the request.
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
        self.connections.drive_beside_call(call.slot, app);
        Ok(accepted)
    }

    /// Removes and returns the next message, if there is one. This makes room for more input.
    pub fn receive_message(&mut self, id: WebSocketId, now: Now, app: &mut A) -> Incoming<A::Message> {
        let Some((connection, context)) = self.connections.find(id.slot) else {
            return Incoming::End(WebSocketEnd::abnormal());
        };
        let (incoming, must_drive) = connection.websocket(id.exchange).receive(id, context);
        if must_drive {
            self.clock.set(now, &mut self.connections.context);
            self.connections.drive_beside_call(id.slot, app);
        }
        incoming
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`SendError::Closed`] if the WebSocket is closed; [`SendError::QueueFull`] if too much output waits for the
    /// client. The message was not added then, and may be sent again when there is room.
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
    /// As for [`send_message`](Self::send_message).
    pub fn send_binary(&mut self, id: WebSocketId, bytes: A::Chunk, now: Now, app: &mut A) -> Result<Room, SendError> {
        self.send_any(id, MessageOut::Binary(bytes), now, app)
    }

    /// Sends a message that was framed, and compressed, once for many WebSockets.
    ///
    /// # Errors
    /// As for [`send_message`](Self::send_message).
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
        self.connections.drive_beside_call(id.slot, app);
        let connection = self.connections.find(id.slot);
        Ok(connection.map_or(Room::Left, |(connection, _)| connection.websocket(id.exchange).room()))
    }

    /// Wakes `waiter` once, when any condition of `awaited` holds or the WebSocket has ended; at once if that is so
    /// already. `waiter` replaces the previous waiter. Unlike [`wait_for_any`](Self::wait_for_any) this needs no
    /// running call.
    pub fn wait_for_websocket(&mut self, id: WebSocketId, awaited: Awaited, waiter: A::Waiter, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let Some((connection, _)) = self.connections.find(id.slot) else { return app.wake(waiter) };
        // The engine reads from a WebSocket in any case, so a new waiter does not require that the connection is
        // driven.
        connection.websocket(id.exchange).wait(id, awaited, waiter, app);
    }

    /// Begins the closing handshake of a WebSocket, if it is open. Its client has some seconds to answer. Messages that
    /// arrived before can still be received.
    pub fn close_websocket(&mut self, id: WebSocketId, code: CloseCode, reason: &str, now: Now, app: &mut A) {
        self.clock.set(now, &mut self.connections.context);
        let Some((connection, context)) = self.connections.find(id.slot) else { return };
        connection.websocket(id.exchange).close(id, code, reason, context);
        self.connections.drive_beside_call(id.slot, app);
    }

    /// Returns why no further message can arrive, `None` while the WebSocket is open; and how many bytes of messages
    /// have been sent.
    pub fn websocket_state(&mut self, id: WebSocketId) -> (Option<WebSocketEnd>, u64) {
        match self.connections.find(id.slot) {
            Some((connection, _)) => connection.websocket(id.exchange).state(id),
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }
}
