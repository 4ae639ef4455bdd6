//! WebSockets whose messages are handled like requests. The application has registered a handler, and its call has
//! returned. The engine holds the call ([`Progress::Listening`]) until a message or the end arrives.
//!
//! ```text
//!   call ─ returns ─▶ open ─▶ given back ── a message ──▶ message ─▶ given back …
//!                                  ├─────── the end ─────▶ close ─▶ over
//!                                  └─ its connection is gone ─▶ close ─▶ over
//! ```
//!
//! Any thread may run the handler, but only one at a time. Each run counts as a separate call, with its own number,
//! deadline and age.

use super::app::WARNING;
use super::exchange::{Incoming, MessageHandler, WebSocketEnd};
use super::job::{InFlight, Listening, MessageRules, Resumable};
use super::shared::Waiter;
use super::threads::Host;
use crate::clock;
use crate::interface::Interface;
use crate::interrupt;
use engine::{Progress, Stage, Ticket};
use pyo3::prelude::*;
use wire::websocket::CloseCode;

impl<I: Interface> Listening<I> {
    /// Opens the WebSocket of a call whose application has registered a handler and returned.
    pub(super) fn begin(
        call: InFlight<I>,
        handler: Box<dyn MessageHandler>,
        rules: MessageRules,
        host: &Host<I>,
        py: Python<'_>,
    ) {
        let key = call.key();
        let worker = host.engine_index.worker();
        let number = host.with(py, |state| {
            let (number, waiter) = (state.calls.number(key), state.calls.waiter(py, key));
            state.calls.handle_message(key, rules.limit, worker, waiter, false, clock::now().monotonic);
            number
        });
        let Ok(number) = number else { unreachable!("a call does not run while the engine is locked") };
        let mut listening =
            Box::new(Self { call, handler, rules, number, is_threaded: worker.is_some(), has_failed: false });
        let opened = host.origin.come_back(py, listening.handler.open(py));
        listening.note_result(host, py, opened);
        listening.go_on(host, py);
    }

    /// Closes a WebSocket with 1013, because no thread is free for a message. The client may connect again later.
    pub(super) fn close_overloaded(&mut self, host: &Host<I>, py: Python<'_>) {
        let exchange = self.call.exchange();
        let closed = host.with_waking(py, |state| {
            state.close_websocket(py, exchange, CloseCode::TRY_AGAIN_LATER, "");
        });
        debug_assert!(closed.is_ok(), "a call does not run while the engine is locked");
        self.has_failed = true;
    }

    /// Handles the message, or the end, for which the engine held the call.
    pub(super) fn handle_message(mut self: Box<Self>, host: &Host<I>, py: Python<'_>, ticket: Ticket) {
        let taken = host.with(py, |state| {
            state.engine.switch_stage(&ticket, Stage::App);
            let exchange = self.call.exchange();
            exchange.with(py, |exchange| exchange.ticket = Some(ticket));
        });
        debug_assert!(taken.is_ok(), "a call does not run while the engine is locked");
        if self.handle_next(host, py) {
            self.go_on(host, py);
        } else {
            self.end_listening(host, py);
        }
    }

    /// Passes the next message or the end to the handler. Returns false if it was the end.
    fn handle_next(&mut self, host: &Host<I>, py: Python<'_>) -> bool {
        let waiter = host.hooks.waiter.as_ref().and_then(|make_waiter| make_waiter.call0(py).ok());
        let incoming = host.with(py, |state| {
            let key = self.call.key();
            let worker = host.engine_index.worker();
            state.calls.handle_message(key, self.rules.limit, worker, waiter, false, clock::now().monotonic);
            self.has_failed |= state.calls.has_expired(key);
            state.take_message(py, self.call.exchange())
        });
        match incoming {
            Ok(Incoming::Message(message)) if !self.has_failed => {
                let handled = host.origin.come_back(py, self.handler.message(py, message));
                self.note_result(host, py, handled);
                true
            }
            Ok(Incoming::End(end)) => {
                self.tell_end(host, py, end);
                false
            }
            Ok(Incoming::Message(_) | Incoming::Pending) => true,
            Err(_) => unreachable!("a call does not run while the engine is locked"),
        }
    }

    /// Continues after a message has been handled. If the WebSocket has ended, handles the remaining messages at once,
    /// because the connection may be gone soon. Otherwise gives the call to the engine until a message arrives.
    fn go_on(mut self: Box<Self>, host: &Host<I>, py: Python<'_>) {
        let has_ended = |listening: &Listening<I>| {
            let exchange = listening.call.exchange();
            host.with(py, |state| state.websocket_state(py, exchange).0.is_some())
        };
        while has_ended(&self).unwrap_or(false) {
            if !self.handle_next(host, py) {
                return self.end_listening(host, py);
            }
        }
        self.listen(host, py);
    }

    /// Ends the call after the handler has received the end.
    fn end_listening(self, host: &Host<I>, py: Python<'_>) {
        let call = self.renumber(host, py);
        call.end(host, py, Progress::Done);
    }

    /// If `result` is an exception that the handler raised, reports it and closes the WebSocket.
    fn note_result(&mut self, host: &Host<I>, py: Python<'_>, result: PyResult<()>) {
        let Err(error) = result else { return };
        let call = &self.call;
        let has_ended = || {
            let exchange = call.exchange();
            host.with(py, |state| state.websocket_state(py, exchange).0.is_some()).unwrap_or(false)
        };
        if I::says_websocket_is_closed(py, &error) && has_ended() {
            // A handler need not catch the exception of a closed WebSocket: its `close` is called next.
            return;
        }
        if host.hooks.is_timeout(py, &error) {
            let message = format!("a message of {} was ended by kirsch.RequestTimeout", call.subject(py));
            host.reports.log(py, WARNING, &message, None);
        } else {
            call.report_raised(host, py, "on", error);
        }
        call.close_failed(host, py);
        self.has_failed = true;
    }

    /// Gives the call to the engine until a message arrives.
    fn listen(self: Box<Self>, host: &Host<I>, py: Python<'_>) {
        let key = self.call.key();
        let listened = host.with(py, |state| {
            let ticket = self.call.exchange().with(py, |exchange| exchange.ticket.take());
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let left = state.calls.listen(key);
            let progress = Progress::Listening(Resumable::Listening(self));
            state.complete(py, ticket, progress, clock::now());
            left
        });
        if let Ok((true, _)) = listened {
            interrupt::take_back(py);
        }
    }

    /// Passes the end of the WebSocket to the handler.
    fn tell_end(&self, host: &Host<I>, py: Python<'_>, end: WebSocketEnd) {
        match host.origin.come_back(py, self.handler.close(py, end)) {
            Err(error) if !I::says_websocket_is_closed(py, &error) => {
                self.call.report_raised(host, py, "while it was told of the end of its WebSocket, on", error);
            }
            _ => {}
        }
    }

    /// Drops the handler. Returns the call, with its original number.
    fn renumber(self, host: &Host<I>, py: Python<'_>) -> InFlight<I> {
        let Listening { call, handler, number, .. } = self;
        drop(handler);
        let renumbered = host.with(py, |state| state.calls.end_websocket(call.key(), number));
        debug_assert!(renumbered.is_ok(), "a call does not run while the engine is locked");
        call
    }

    /// Ends a WebSocket whose connection is gone, after the handler has received the end.
    pub(super) fn abandon(self, host: &Host<I>, py: Python<'_>) {
        let key = self.call.key();
        let has_expired = host.with(py, |state| {
            let worker = host.engine_index.worker();
            state.calls.handle_message(key, self.rules.limit, worker, None, true, clock::now().monotonic);
            state.calls.has_expired(key)
        });
        let end = if matches!(has_expired, Ok(true)) {
            WebSocketEnd { code: CloseCode::INTERNAL_ERROR.number(), ..WebSocketEnd::abnormal() }
        } else {
            WebSocketEnd::abnormal()
        };
        self.tell_end(host, py, end);
        let call = self.renumber(host, py);
        let ended = host.with(py, |state| {
            let exchange = call.exchange();
            let id = exchange.with(py, |exchange| {
                exchange.take_ticket_for_good();
                exchange.websocket()
            });
            if let Some(id) = id {
                state.app.wake_waiter(Waiter::WebSocket(id.serial()));
            }
            state.end_call(py, &call, 0)
        });
        if let Ok(ended) = ended {
            host.interface.return_handles(py, call.release(py, ended));
        }
    }
}
