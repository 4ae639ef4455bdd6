//! Exchanges that become WebSockets: what an interface asks of them, and the end of their calls.
//!
//! The state is the engine's. An exchange holds its name, from when it was accepted until its call is over.

use super::exchange::{Acceptance, Exchange, MessageSent};
use super::job::InFlight;
use super::state::EngineState;
use super::suspended::is_cancellation;
use super::threads::Host;
use crate::clock;
use crate::gil::WithGil;
use crate::interface::{Handles as _, Interface, Message};
use engine::{Incoming, Progress, Room, WebSocketEnd, WebSocketId};
use pyo3::prelude::*;
use wire::websocket::{CloseCode, Outgoing, SendError};

impl<I: Interface> EngineState<I> {
    /// See [`ExchangeHost::accept`](super::exchange::ExchangeHost::accept).
    pub(super) fn accept(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        subprotocol: Option<&str>,
        fields: &[(Vec<u8>, Vec<u8>)],
    ) -> Acceptance {
        // It is put back before the engine is unlocked.
        let Some(ticket) = exchange.with(py, |exchange| exchange.ticket.take()) else { return Acceptance::Gone };
        let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
        let app = WithGil::new(&mut self.app, py);
        let accepted = self.engine.accept_websocket(&ticket, subprotocol, fields, clock::now(), app);
        exchange.with(py, |exchange| {
            exchange.ticket = Some(ticket);
            match accepted {
                Ok(Some(id)) => {
                    exchange.websocket = Some(id);
                    exchange.begun = true;
                    exchange.draft.start_upgrade();
                    Acceptance::Accepted
                }
                Ok(None) => Acceptance::Gone,
                Err(misuse) => Acceptance::Misused(misuse),
            }
        })
    }

    fn websocket(py: Python<'_>, exchange: &Exchange) -> Option<WebSocketId> {
        exchange.with(py, |exchange| exchange.websocket)
    }

    /// See [`ExchangeHost::take_message`](super::exchange::ExchangeHost::take_message).
    pub(super) fn take_message(&mut self, py: Python<'_>, exchange: &Exchange) -> Incoming<Message> {
        match Self::websocket(py, exchange) {
            Some(id) => self.engine.receive_message(id, clock::now(), WithGil::new(&mut self.app, py)),
            None => Incoming::End(WebSocketEnd::abnormal()),
        }
    }

    /// See [`ExchangeHost::send_message`](super::exchange::ExchangeHost::send_message).
    pub(super) fn send_message(&mut self, py: Python<'_>, exchange: &Exchange, message: Outgoing<'_>) -> MessageSent {
        let Some(id) = Self::websocket(py, exchange) else { return MessageSent::Closed };
        match self.engine.send_message(id, message, clock::now(), WithGil::new(&mut self.app, py)) {
            Ok(Room::Left) => MessageSent::Done,
            Ok(Room::Full) => MessageSent::Full,
            Err(SendError::QueueFull) => MessageSent::Refused,
            Err(SendError::Closed | SendError::MessageOpen | SendError::KindChanged) => MessageSent::Closed,
        }
    }

    /// See [`ExchangeHost::close_websocket`](super::exchange::ExchangeHost::close_websocket).
    pub(super) fn close_websocket(&mut self, py: Python<'_>, exchange: &Exchange, code: CloseCode, reason: &str) {
        if let Some(id) = Self::websocket(py, exchange) {
            self.engine.close_websocket(id, code, reason, clock::now(), WithGil::new(&mut self.app, py));
        }
    }

    /// Why no message follows; `None` while it is open. Also how many bytes of messages have been sent.
    pub(super) fn websocket_state(&mut self, py: Python<'_>, exchange: &Exchange) -> (Option<WebSocketEnd>, u64) {
        match Self::websocket(py, exchange) {
            Some(id) => self.engine.websocket_state(id),
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }
}

impl<I: Interface> EngineState<I> {
    /// The close code of a WebSocket whose call is over, which closes it with 1000 if nothing else has; `None` of any other
    /// exchange.
    pub(super) fn close_code(&mut self, py: Python<'_>, exchange: &Exchange) -> Option<u16> {
        let id = Self::websocket(py, exchange)?;
        let end = self.engine.websocket_state(id).0;
        Some(end.map_or(CloseCode::NORMAL.number(), |end| end.code))
    }
}

impl<I: Interface> Host<I> {
    /// The call of a WebSocket has come to its end: so does the WebSocket, with 1000, or with 1011 if the application has
    /// failed.
    pub(super) fn conclude_websocket(&self, py: Python<'_>, call: InFlight<I>, result: PyResult<()>) {
        let exchange = call.handles.exchange();
        let end = self.with(py, |state| state.websocket_state(py, exchange).0).ok().flatten();
        match (result, end) {
            (Ok(()), _) => {}
            (Err(error), Some(end)) if !end.is_own => self.log_left(py, &call, &error),
            // It closes, and is cancelled while it cleans up at the server's end.
            (Err(error), Some(_)) if is_cancellation(py, &error) => {}
            (Err(error), _) => {
                self.report_raised(py, &call, "on", error);
                let failed = |state: &mut EngineState<I>| {
                    state.close_websocket(py, exchange, CloseCode::INTERNAL_ERROR, "");
                };
                let closed = self.with(py, failed);
                debug_assert!(closed.is_ok(), "a call does not end while the engine is locked");
            }
        }
        self.end(py, call, Progress::Done);
    }
}
