//! Exchanges that become WebSockets: the operations that an interface requests, and the end of their calls.
//!
//! The engine owns the state. An exchange holds the id of its WebSocket from the handshake until its call is over.

use super::exchange::{Acceptance, Exchange, MessageSent, Upgraded};
use super::job::InFlight;
use super::shared::{Bell, Reentered, Waiter};
use super::sleepers::SleeperKey;
use super::state::EngineState;
use super::suspended::is_cancellation;
use super::threads::{AttachedThread, Host};
use super::waiting::take_back_interrupt;
use crate::clock;
use crate::gil::WithGil;
use crate::interface::{Handles as _, Interface, Message, OutgoingMessage};
use engine::{Awaited, Incoming, Progress, Room, WebSocketEnd, WebSocketId};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use wire::websocket::{CloseCode, Outgoing, Prepared, SendError};

/// A thread or a greenlet that waits for an event of a WebSocket.
struct Sleep {
    key: SleeperKey,
    /// The key of the call that waits, if it is the WebSocket's own.
    call: Option<usize>,
    /// True if the time counts towards the call's deadline.
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
        // The ticket is put back before the engine is unlocked.
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

    /// Has `waiter` woken when any of `awaited` happens on a WebSocket, when the WebSocket has ended, or at the time
    /// `until`. `is_own` returns true if the call with a key is the one that waits. Returns `None`, and has `waiter`
    /// woken, if there is no WebSocket.
    fn begin_sleep(
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
            self.blocked += u64::from(!counts);
            self.calls.set_waiting(call, true, counts, now.monotonic);
        }
        let (key, all) = self.app.sleepers.add(id.serial(), awaited, until, waiter);
        let app = WithGil::new(&mut self.app, py);
        self.engine.wait_for_websocket(id, all, Waiter::WebSocket(id.serial()), now, app);
        Some(Sleep { key, call, counts })
    }

    /// Ends a wait. Returns whether the call was interrupted meanwhile, and the waiter, which is to be dropped when the
    /// engine is unlocked.
    fn end_sleep(&mut self, Sleep { key, call, counts }: Sleep) -> (bool, Option<Waiter>) {
        let waiter = self.app.sleepers.remove(key);
        let is_interrupted = call.is_some_and(|call| {
            self.blocked -= u64::from(!counts);
            self.calls.set_waiting(call, false, counts, clock::now().monotonic);
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

    /// Returns how the WebSocket ended (`None` while it is open), and the number of bytes of messages that have been
    /// sent.
    pub(super) fn websocket_state(&mut self, py: Python<'_>, exchange: &Exchange) -> (Option<WebSocketEnd>, u64) {
        match Self::websocket(py, exchange) {
            Some(id) => self.engine.websocket_state(id),
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }
}

impl<I: Interface> EngineState<I> {
    /// Returns the close code of a WebSocket whose call is over: 1000 if nothing else has closed it. Returns `None` for
    /// any other exchange.
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

/// Returns the time at which `timeout` ends.
fn until(timeout: Option<Duration>) -> Option<Duration> {
    timeout.map(|timeout| clock::now().monotonic.saturating_add(timeout))
}

fn is_over(until: Option<Duration>) -> bool {
    until.is_some_and(|until| clock::now().monotonic >= until)
}

impl<I: Interface> Host<I> {
    /// Does the same as [`with`](Self::with), for an `act` that may let other calls go on. In any thread but that of
    /// the hosting loop, the scheduler wakes the poller. In the loop's own thread the scheduler does not, and gevent's
    /// hub does not ask before each of its waits when it has to poll. So the poller is woken here.
    pub(super) fn with_waking<R>(&self, py: Python<'_>, act: impl FnOnce(&mut EngineState<I>) -> R) -> PyResult<R> {
        let is_hosting = self.is_hosting();
        let (result, must_wake) = self.with(py, |state| {
            let result = act(state);
            let has_wakes = !state.app.hosted_wakes.is_empty();
            (result, is_hosting && (has_wakes || state.engine.must_poll()))
        })?;
        if must_wake {
            self.waker.wake();
        }
        Ok(result)
    }

    /// See [`ExchangeHost::receive_message`](super::exchange::ExchangeHost::receive_message).
    pub(super) fn wait_for_message(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        timeout: Option<Duration>,
    ) -> PyResult<Incoming<Message>> {
        let until = until(timeout);
        loop {
            match self.with(py, |state| state.take_message(py, exchange))? {
                Incoming::Pending if !is_over(until) => self.sleep(py, exchange, (Awaited::INPUT, until))?,
                incoming => return Ok(incoming),
            }
        }
    }

    /// See [`ExchangeHost::send_message_in`](super::exchange::ExchangeHost::send_message_in).
    pub(super) fn wait_and_send(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        message: &OutgoingMessage<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<MessageSent> {
        let until = until(timeout);
        loop {
            match self.with_waking(py, |state| state.send_message(py, exchange, message))? {
                MessageSent::Refused if !is_over(until) => self.sleep(py, exchange, (Awaited::OUTPUT, until))?,
                sent => return Ok(sent),
            }
        }
    }

    /// Waits for an event of a WebSocket, in a thread of the engine, in a greenlet of the loop that hosts the engine,
    /// or in any other thread. The wait may end early.
    fn sleep(&self, py: Python<'_>, exchange: &Exchange, what: (Awaited, Option<Duration>)) -> PyResult<()> {
        if let (Some(wait), Some(make_waiter)) = (&self.hooks.wait, &self.hooks.waiter)
            && self.is_hosting()
        {
            let greenlet = make_waiter.call0(py)?;
            let waiter = Waiter::Hosted(greenlet.clone_ref(py));
            let is_own = |state: &EngineState<I>, key| {
                state.calls.waiter(py, key).is_some_and(|waiter| waiter.as_ptr() == greenlet.as_ptr())
            };
            let begun = self.with_waking(py, |state| state.begin_sleep(py, exchange, what, waiter, is_own))?;
            let waited = wait.call1(py, (greenlet.clone_ref(py),));
            if let Some(begun) = begun {
                self.with(py, |state| state.end_sleep(begun))?;
            }
            return waited.map(drop);
        }
        let worker = self.engine_index.worker().filter(|_| self.hooks.wait.is_none());
        if let Some(worker) = worker {
            let mut begun = None;
            self.scheduler
                .wait(&AttachedThread::new(self, py), worker, |state| {
                    let is_own = |state: &EngineState<I>, key| state.calls.is_of(key, worker);
                    begun = state.begin_sleep(py, exchange, what, Waiter::Worker(worker), is_own);
                })
                .map_err(|scheduler::Reentered| Reentered)?;
            if let Some(begun) = begun
                && self.with(py, |state| state.end_sleep(begun))?.0
                && let Some(exception) = &self.hooks.timeout_exception
            {
                // The exception is raised here, and must not be raised again.
                take_back_interrupt(py);
                return Err(PyErr::from_value(exception.bind(py).call0()?));
            }
            // If an exception has ended the server, it ends the call too.
            return self.shared.failure(py).map_or(Ok(()), Err);
        }
        let bell = Arc::new(Bell::default());
        let waiter = Waiter::Thread(Arc::clone(&bell));
        let begun = self.with_waking(py, |state| state.begin_sleep(py, exchange, what, waiter, |_, _| false))?;
        if let Some(begun) = begun {
            let timeout = what.1.map(|until| until.saturating_sub(clock::now().monotonic));
            py.detach(|| bell.wait(timeout));
            self.with(py, |state| state.end_sleep(begun))?;
        }
        py.check_signals()
    }

    /// Ends a WebSocket whose call has ended: with 1000, or with 1011 if the application has failed.
    pub(super) fn conclude_websocket(&self, py: Python<'_>, call: InFlight<I>, result: PyResult<()>) {
        let exchange = call.handles.exchange();
        if !exchange.is_websocket(py) {
            return self.conclude_hijacked(py, call, result, false);
        }
        let end = self.with(py, |state| state.websocket_state(py, exchange).0).ok().flatten();
        match (result, end) {
            (Ok(()), _) => {}
            (Err(error), Some(end)) if !end.is_own => {
                self.report_left(py, &call, "after its client had closed the WebSocket, on", error);
            }
            (Err(error), Some(_)) if I::says_websocket_is_closed(py, &error) => {}
            // The application closes the WebSocket, and is cancelled while it cleans up at the end of the server.
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
