//! What the application of a WebSocket asks of the engine.
//!
//! A request that asks for one is dispatched like any other ([`App::begin_websocket`](crate::App::begin_websocket)). Its
//! call answers it with an ordinary response, which denies it, or accepts it. From then on messages come and go by the
//! [`WebSocketId`]. The call may go on, and wait ([`Engine::wait_for_any`]) for [`Awaited::INPUT`](crate::Awaited::INPUT): a
//! message or the end; or [`Awaited::OUTPUT`](crate::Awaited::OUTPUT): room for what is sent. Or it is given back as
//! [`Progress::Listening`](crate::Progress::Listening), and resumed when a message, or the end, is there: so a WebSocket
//! that is idle holds no thread. When the call is done the WebSocket is closed, with 1000 unless it was closed before.

use super::Engine;
use crate::app::{App, Ticket};
use crate::connection::Sending;
use crate::deadline::Now;
use crate::exchange::Awaited;
use crate::websocket::{Incoming, Room, WebSocketEnd, WebSocketId};
use wire::websocket::{AcceptMisuse, CloseCode, Outgoing, Prepared, SendError};

impl<A: App> Engine<A> {
    /// Accepts the WebSocket that a call's request asks for, with the application's choice of a subprotocol and fields of
    /// its own. `None` if its client is gone, or the call has answered already.
    ///
    /// # Errors
    /// What the application may not answer with. The request can still be answered then.
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

    /// Takes the next message, if there is one. What is taken makes room for more to be read.
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
    /// [`SendError::Closed`]; [`SendError::QueueFull`]: the client has so much to take that nothing is added. It may be
    /// sent again when there is room.
    pub fn send_message(
        &mut self,
        id: WebSocketId,
        message: Outgoing<'_>,
        now: Now,
        app: &mut A,
    ) -> Result<Room, SendError> {
        self.send_any(id, Sending::One(message), now, app)
    }

    /// Sends a binary message, which is not copied if it is large and stays as it is.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_binary(&mut self, id: WebSocketId, bytes: A::Chunk, now: Now, app: &mut A) -> Result<Room, SendError> {
        self.send_any(id, Sending::Binary(bytes), now, app)
    }

    /// Sends a message that is framed, and compressed, once for many.
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

    /// Has `waiter` woken, once, when any of `awaited` is the case, or is already, or the WebSocket has gone. It takes the
    /// place of the waiter that was there. Unlike [`wait_for_any`](Self::wait_for_any) this needs no call that is out.
    pub fn wait_for_websocket(&mut self, id: WebSocketId, awaited: Awaited, waiter: A::Waiter, now: Now, app: &mut A) {
        let Some(connection) = self.connections.get_mut(id.slot) else { return app.wake(waiter) };
        self.clock.set(now, &mut self.context);
        // Whether it is read does not depend on who waits.
        connection.wait_for_websocket(id, awaited, waiter, app);
    }

    /// Closes a WebSocket, if it is open. Its client has some seconds to answer; messages that came before can still be
    /// received.
    pub fn close_websocket(&mut self, id: WebSocketId, code: CloseCode, reason: &str, now: Now, app: &mut A) {
        let Some(connection) = self.connections.get_mut(id.slot) else { return };
        self.clock.set(now, &mut self.context);
        connection.close_websocket(id, code, reason, &mut self.context);
        self.drive(id.slot, app);
    }

    /// Why no message follows; `None` while the WebSocket is open. Also how many bytes of messages have been sent.
    pub fn websocket_state(&mut self, id: WebSocketId) -> (Option<WebSocketEnd>, u64) {
        match self.connections.get_mut(id.slot) {
            Some(connection) => connection.websocket_state(id),
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }
}
