//! The operations on exchanges that become WebSockets or hijacked connections. They run with the engine locked.
//!
//! The engine owns the state of a WebSocket. The exchange holds its id from the handshake to the end of the call.

use super::exchange::{Acceptance, Exchange, MessageSent, Upgraded};
use super::shared::Waiter;
use super::sleepers::SleeperKey;
use super::state::EngineState;
use crate::clock;
use crate::gil::WithGil;
use crate::interface::{HijackId, HijackRefusal, Hijacked, Interface, Message, OutgoingMessage};
use engine::{Awaited, Incoming, Room, WebSocketEnd, WebSocketId};
use pyo3::prelude::*;
use std::time::Duration;
use wire::websocket::{CloseCode, Outgoing, Prepared, SendError};

/// The registration of a thread or greenlet that waits for an event of a WebSocket.
pub(super) struct Sleep {
    key: SleeperKey,
    /// The key of the WebSocket's own call, if that is what waits.
    call: Option<usize>,
    /// True if the waiting time counts towards the call's deadline.
    counts: bool,
}

impl<I: Interface> EngineState<I> {
    /// See [`ExchangeHost::accept`](super::exchange::ExchangeHost::accept).
    pub(super) fn accept(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        subprotocol: Option<&str>,
        fields: &[(Vec<u8>, Vec<u8>)],
    ) -> Acceptance {
        // The ticket is put back below, before the engine is unlocked.
        let Some(ticket) = exchange.with(py, |exchange| exchange.ticket.take()) else { return Acceptance::Gone };
        let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
        let app = WithGil::new(&mut self.app, py);
        let accepted = self.engine.accept_websocket(&ticket, subprotocol, fields, clock::now(), app);
        exchange.with(py, |exchange| {
            exchange.ticket = Some(ticket);
            match accepted {
                Ok(Some(id)) => {
                    exchange.upgraded = Some(Upgraded::WebSocket(id));
                    exchange.begun = true;
                    exchange.draft.start_upgrade();
                    self.calls.upgrade(exchange.key);
                    if let Some(stopwatch) = &mut self.app.stopwatch {
                        stopwatch.end(exchange.key);
                    }
                    Acceptance::Accepted
                }
                Ok(None) => Acceptance::Gone,
                Err(misuse) => Acceptance::Misused(misuse),
            }
        })
    }

    fn websocket(py: Python<'_>, exchange: &Exchange) -> Option<WebSocketId> {
        exchange.with(py, |exchange| exchange.websocket())
    }

    /// See [`ExchangeHost::take_message`](super::exchange::ExchangeHost::take_message).
    pub(super) fn take_message(&mut self, py: Python<'_>, exchange: &Exchange) -> Incoming<Message> {
        match Self::websocket(py, exchange) {
            Some(id) => self.engine.receive_message(id, self.clock.now(), WithGil::new(&mut self.app, py)),
            None => Incoming::End(WebSocketEnd::abnormal()),
        }
    }

    /// See [`ExchangeHost::send_message`](super::exchange::ExchangeHost::send_message).
    pub(super) fn send_message(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        message: &OutgoingMessage<'_>,
    ) -> MessageSent {
        let Some(id) = Self::websocket(py, exchange) else { return MessageSent::Closed };
        let (now, app) = (self.clock.now(), WithGil::new(&mut self.app, py));
        outcome(match message {
            OutgoingMessage::Text(text) => self.engine.send_message(id, Outgoing::Text(text), now, app),
            OutgoingMessage::Binary(bytes) => self.engine.send_binary(id, bytes.clone_ref(py), now, app),
        })
    }

    /// See [`ExchangeHost::send_prepared`](super::exchange::ExchangeHost::send_prepared).
    pub(super) fn send_prepared(&mut self, py: Python<'_>, exchange: &Exchange, message: &Prepared) -> MessageSent {
        let Some(id) = Self::websocket(py, exchange) else { return MessageSent::Closed };
        outcome(self.engine.send_prepared(id, message, clock::now(), WithGil::new(&mut self.app, py)))
    }

    /// Registers `waiter` to be woken when any of `awaited` happens on a WebSocket, when the WebSocket ends, or at the
    /// time `until`. `is_own(state, key)` returns true if the waiting code belongs to the call with this key. If there
    /// is no WebSocket, wakes `waiter` at once and returns `None`.
    pub(super) fn begin_sleep(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        (awaited, until): (Awaited, Option<Duration>),
        waiter: Waiter,
        is_own: impl FnOnce(&Self, usize) -> bool,
    ) -> Option<Sleep> {
        let Some(id) = Self::websocket(py, exchange) else {
            self.app.wake_waiter(waiter);
            return None;
        };
        let call = exchange.with(py, |exchange| exchange.ticket.as_ref().map(|_| exchange.key));
        let call = call.filter(|&key| !self.calls.is_waiting(key) && is_own(self, key));
        let now = clock::now();
        let counts = !awaited.has(Awaited::OUTPUT);
        if let Some(call) = call {
            self.note_wait(true, counts);
            self.calls.begin_wait(call, counts, now.monotonic);
        }
        let (key, all) = self.app.sleepers.add(id.serial(), awaited, until, waiter);
        let app = WithGil::new(&mut self.app, py);
        self.engine.wait_for_websocket(id, all, Waiter::WebSocket(id.serial()), now, app);
        Some(Sleep { key, call, counts })
    }

    /// Ends a wait. Returns true if the call was interrupted meanwhile, and the waiter, which the caller must drop
    /// while the engine is unlocked.
    pub(super) fn end_sleep(&mut self, Sleep { key, call, counts }: Sleep) -> (bool, Option<Waiter>) {
        let waiter = self.app.sleepers.remove(key);
        let is_interrupted = call.is_some_and(|call| {
            self.note_wait(false, counts);
            self.calls.end_wait(call, clock::now().monotonic);
            self.calls.is_interrupted(call)
        });
        (is_interrupted, waiter)
    }

    /// See [`ExchangeHost::close_websocket`](super::exchange::ExchangeHost::close_websocket).
    pub(super) fn close_websocket(&mut self, py: Python<'_>, exchange: &Exchange, code: CloseCode, reason: &str) {
        if let Some(id) = Self::websocket(py, exchange) {
            self.engine.close_websocket(id, code, reason, clock::now(), WithGil::new(&mut self.app, py));
        }
    }

    /// Returns the close code and reason (`None` while the WebSocket is open), and the number of message bytes that
    /// have been sent.
    pub(super) fn websocket_state(&mut self, py: Python<'_>, exchange: &Exchange) -> (Option<WebSocketEnd>, u64) {
        match Self::websocket(py, exchange) {
            Some(id) => self.engine.websocket_state(id),
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }

    /// See [`ExchangeHost::hijack`](super::exchange::ExchangeHost::hijack).
    pub(super) fn hijack(&mut self, py: Python<'_>, exchange: &Exchange) -> Result<Hijacked, HijackRefusal> {
        // The ticket is put back below, before the engine is unlocked.
        let ticket = exchange.with(py, |exchange| exchange.ticket.take()).ok_or(HijackRefusal::Over)?;
        let hijacked = self.engine.hijack(&ticket, clock::now(), WithGil::new(&mut self.app, py));
        exchange.with(py, |exchange| {
            exchange.ticket = Some(ticket);
            if hijacked.is_ok() {
                exchange.upgraded = Some(Upgraded::Hijacked);
                exchange.begun = true;
                exchange.draft.start_upgrade();
                // The call now has no deadline: the connection lasts as long as client and application want.
                self.calls.upgrade(exchange.key);
            }
        });
        hijacked
    }

    /// See [`ExchangeHost::end_hijack`](super::exchange::ExchangeHost::end_hijack).
    pub(super) fn end_hijack(&mut self, py: Python<'_>, id: HijackId) {
        self.engine.end_hijack(id, clock::now(), WithGil::new(&mut self.app, py));
    }

    /// Returns the close code of a WebSocket whose call has ended: 1000 if neither side has closed it. Returns `None`
    /// for any other exchange.
    pub(super) fn close_code(&mut self, py: Python<'_>, exchange: &Exchange) -> Option<u16> {
        let id = Self::websocket(py, exchange)?;
        let end = self.engine.websocket_state(id).0;
        Some(end.map_or(CloseCode::NORMAL.number(), |end| end.code))
    }
}

fn outcome(sent: Result<Room, SendError>) -> MessageSent {
    match sent {
        Ok(Room::Left) => MessageSent::Done,
        Ok(Room::Full) => MessageSent::Full,
        Err(SendError::QueueFull) => MessageSent::Refused,
        Err(SendError::Closed | SendError::MessageOpen | SendError::KindChanged) => MessageSent::Closed,
    }
}
