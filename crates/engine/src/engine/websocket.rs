//! The methods for the application of a WebSocket.
//!
//! The engine dispatches a request for a WebSocket like any other
//! ([`App::begin_websocket`](crate::App::begin_websocket)). Its call denies it with an ordinary response, or accepts
//! it. From then on the application receives and sends messages by the [`WebSocketId`]. The call may continue, and wait
//! ([`Engine::wait_for_any`]) for [`Awaited::INPUT`](crate::Awaited::INPUT): a message or the end; or for
//! [`Awaited::OUTPUT`](crate::Awaited::OUTPUT): room for more output. Or the application returns it as
//! [`Progress::Listening`](crate::Progress::Listening), and the engine resumes it when a message, or the end, has
//! arrived: so an idle WebSocket holds no thread. When the call is done the engine closes the WebSocket, with 1000
//! unless it was closed before.

use super::Engine;
use crate::app::{App, Ticket};
use crate::connection::Sending;
use crate::deadline::Now;
use crate::exchange::Awaited;
use crate::websocket::{Incoming, Room, WebSocketEnd, WebSocketId};
use wire::websocket::{AcceptMisuse, CloseCode, Outgoing, Prepared, SendError};

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
        self.clock.set(now, &mut self.context);
        let call = ticket.call;
        let connection = &mut self.connections[call.slot];
        let accepted = connection.accept_websocket(call.exchange, (subprotocol, fields), &mut self.context, app)?;
        self.drive(call.slot, app);
        Ok(accepted)
    }

    /// Takes the next message, if there is one. That makes room for more input.
    pub fn receive_message(&mut self, id: WebSocketId, now: Now, app: &mut A) -> Incoming<A::Message> {
        let Some(connection) = self.connections.get_mut(id.slot) else {
            return Incoming::End(WebSocketEnd::abnormal());
        };
        let (incoming, must_drive) = connection.receive_message(id, &self.context);
        if must_drive {
            self.clock.set(now, &mut self.context);
            self.drive(id.slot, app);
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
        self.send_any(id, Sending::One(message), now, app)
    }

    /// Sends a binary message, which is not copied if it is large and not compressed.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_binary(&mut self, id: WebSocketId, bytes: A::Chunk, now: Now, app: &mut A) -> Result<Room, SendError> {
        self.send_any(id, Sending::Binary(bytes), now, app)
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
        self.send_any(id, Sending::Prepared(message), now, app)
    }

    fn send_any(
        &mut self,
        id: WebSocketId,
        message: Sending<'_, A::Chunk>,
        now: Now,
        app: &mut A,
    ) -> Result<Room, SendError> {
        let connection = self.connections.get_mut(id.slot).ok_or(SendError::Closed)?;
        self.clock.set(now, &mut self.context);
        connection.send_message(id, message, &mut self.context)?;
        self.drive(id.slot, app);
        Ok(self.connections.get(id.slot).map_or(Room::Left, |connection| connection.room()))
    }

    /// Has `waiter` woken, once, when any condition of `awaited` holds, or holds already, or the WebSocket has gone.
    /// `waiter` replaces the previous waiter. Unlike [`wait_for_any`](Self::wait_for_any) this needs no running call.
    pub fn wait_for_websocket(&mut self, id: WebSocketId, awaited: Awaited, waiter: A::Waiter, now: Now, app: &mut A) {
        let Some(connection) = self.connections.get_mut(id.slot) else { return app.wake(waiter) };
        self.clock.set(now, &mut self.context);
        // The reading of a WebSocket does not depend on which call waits.
        connection.wait_for_websocket(id, awaited, waiter, app);
    }

    /// Closes a WebSocket, if it is open. Its client has some seconds to answer; messages that arrived before can still
    /// be received.
    pub fn close_websocket(&mut self, id: WebSocketId, code: CloseCode, reason: &str, now: Now, app: &mut A) {
        let Some(connection) = self.connections.get_mut(id.slot) else { return };
        self.clock.set(now, &mut self.context);
        connection.close_websocket(id, code, reason, &mut self.context);
        self.drive(id.slot, app);
    }

    /// Returns the reason why no message follows, `None` while the WebSocket is open; and the number of bytes of
    /// messages that have been sent.
    pub fn websocket_state(&mut self, id: WebSocketId) -> (Option<WebSocketEnd>, u64) {
        match self.connections.get_mut(id.slot) {
            Some(connection) => connection.websocket_state(id),
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }
}
