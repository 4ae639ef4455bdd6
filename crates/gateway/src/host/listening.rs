//! WebSockets whose messages are handled like requests. The application has given a handler, and its call has returned.
//! The engine holds the call ([`Progress::Listening`]) until a message, or the end, arrives.
//!
//! ```text
//!   call ─ returns ─▶ open ─▶ given back ── a message ──▶ message ─▶ given back …
//!                                  ├─────── the end ─────▶ close ─▶ over
//!                                  └─ its connection is gone ─▶ close ─▶ over
//! ```
//!
//! Any thread may run the handler, one at a time. Each run counts as a call of its own, with a number, a deadline and
//! an age.

use super::app::{INFO, WARNING};
use super::call::{release_call, subject};
use super::exchange::{Incoming, MessageHandler, WebSocketEnd};
use super::job::{Ending, Failure, InFlight, Listening, MessageRules, Rest, Resumable, Stream};
use super::shared::Waiter;
use super::threads::Host;
use super::waiting::take_back_interrupt;
use crate::clock;
use crate::interface::{Answer, Handles as _, Interface, ResponseBody};
use crate::object::Chunk;
use engine::{Progress, Stage, Ticket};
use pyo3::prelude::*;
use wire::websocket::CloseCode;

impl<I: Interface> Host<I> {
    fn is_upgraded(py: Python<'_>, call: &InFlight<I>) -> bool {
        call.handles.exchange().is_upgraded(py)
    }

    /// Handles the application's answer to a request for a WebSocket. If the application has accepted, its answer is
    /// ignored.
    pub(super) fn answer_upgrade(
        &self,
        py: Python<'_>,
        call: InFlight<I>,
        answer: PyResult<Answer<I::Body>>,
        rules: MessageRules,
        worker: Option<usize>,
    ) -> Option<Ending<I>> {
        match answer {
            Ok(Answer::Whole(chunk)) if !Self::is_upgraded(py, &call) => {
                return Some(Ending { call, rest: Rest::Write(chunk) });
            }
            Ok(Answer::Whole(chunk)) => self.conclude_upgrade(py, call, !chunk.as_ref().is_empty(), rules),
            Ok(Answer::Body(body)) => self.respond_or_ignore(py, call, body, rules, worker),
            Ok(Answer::Suspended(waiter)) => self.suspend_call(py, call, waiter),
            Ok(Answer::Returned(result)) => self.conclude_call(py, call, result),
            Err(error) if Self::is_upgraded(py, &call) => self.conclude_websocket(py, call, Err(error)),
            Err(error) => self.fail(py, call, Failure::Raised(error)),
        }
        None
    }

    /// Sends a response. If the application accepts while its response is iterated over, the parts that it yields are
    /// ignored.
    fn respond_or_ignore(
        &self,
        py: Python<'_>,
        call: InFlight<I>,
        mut body: I::Body,
        rules: MessageRules,
        worker: Option<usize>,
    ) {
        if !Self::is_upgraded(py, &call) && body.regular_file(py).is_some() {
            return self.respond(py, call, body, worker);
        }
        let mut ignores = false;
        let pulled = self.come_back(py, body.start(py)).and_then(|()| {
            loop {
                match self.come_back(py, body.next(py))? {
                    None => return Ok(None),
                    Some(chunk) if Self::is_upgraded(py, &call) => ignores |= !chunk.as_ref().is_empty(),
                    Some(chunk) if chunk.as_ref().is_empty() => {}
                    Some(chunk) => return PyResult::<Option<Chunk>>::Ok(Some(chunk)),
                }
            }
        });
        let is_upgraded = Self::is_upgraded(py, &call);
        let stream = Stream { call, body, body_bytes: 0, first: None, worker };
        match pulled {
            Ok(first) if !is_upgraded => self.pump(py, Box::new(Stream { first, ..stream })),
            Ok(_) => {
                let call = self.close(py, stream);
                self.conclude_upgrade(py, call, ignores, rules);
            }
            Err(error) => {
                let call = self.close(py, stream);
                if is_upgraded {
                    self.conclude_websocket(py, call, Err(error));
                } else {
                    self.fail(py, call, Failure::Raised(error));
                }
            }
        }
    }

    /// Goes on after the application has accepted and returned. `ignores`: the body that it returned is not empty.
    fn conclude_upgrade(&self, py: Python<'_>, call: InFlight<I>, ignores: bool, rules: MessageRules) {
        let exchange = call.handles.exchange();
        if !exchange.is_websocket(py) {
            return self.conclude_hijacked(py, call, Ok(()), ignores);
        }
        let (handler, status) = exchange.with(py, |state| (state.handler.take(), state.ignored_status));
        if status >= 400 {
            let subject = subject::<I>(py, &call.request);
            let message = format!(
                "the application answered {status} on {subject} after it had accepted the WebSocket, which is closed \
                 with 1011"
            );
            self.log(py, WARNING, &message, None);
            self.close_failed(py, &call);
            drop(handler);
            return self.end(py, call, Progress::Done);
        }
        if ignores {
            let subject = subject::<I>(py, &call.request);
            let message = format!(
                "the response of the application on {subject} is ignored, because the request has become a WebSocket: \
                 return an empty body"
            );
            self.log(py, INFO, &message, None);
        }
        match handler {
            None => self.conclude_websocket(py, call, Ok(())),
            Some(handler) => self.begin_listening(py, call, handler, rules),
        }
    }

    /// Closes the WebSocket of a call with 1011, if it is open.
    pub(super) fn close_failed(&self, py: Python<'_>, call: &InFlight<I>) {
        let exchange = call.handles.exchange();
        let closed = self.with_waking(py, |state| {
            state.close_websocket(py, exchange, CloseCode::INTERNAL_ERROR, "");
        });
        debug_assert!(closed.is_ok(), "a call does not run while the engine is locked");
    }

    /// Closes a WebSocket with 1013, because there is no thread for a message: the client should connect again later.
    pub(super) fn close_overloaded(&self, py: Python<'_>, listening: &mut Listening<I>) {
        let exchange = listening.call.handles.exchange();
        let closed = self.with_waking(py, |state| {
            state.close_websocket(py, exchange, CloseCode::TRY_AGAIN_LATER, "");
        });
        debug_assert!(closed.is_ok(), "a call does not run while the engine is locked");
        listening.has_failed = true;
    }

    fn begin_listening(
        &self,
        py: Python<'_>,
        call: InFlight<I>,
        handler: Box<dyn MessageHandler>,
        rules: MessageRules,
    ) {
        let key = call.key;
        let worker = self.engine_index.worker();
        let number = self.with(py, |state| {
            let (number, waiter) = (state.calls.number(key), state.calls.waiter(py, key));
            state.calls.handle_message(key, rules.limit, worker, waiter, false, clock::now().monotonic);
            number
        });
        let Ok(number) = number else { unreachable!("a call does not run while the engine is locked") };
        let mut listening =
            Box::new(Listening { call, handler, rules, number, is_threaded: worker.is_some(), has_failed: false });
        let opened = self.come_back(py, listening.handler.open(py));
        self.note_result(py, &mut listening, opened);
        self.go_on(py, listening);
    }

    /// Handles a message, or the end, that has arrived.
    pub(super) fn handle_message(&self, py: Python<'_>, mut listening: Box<Listening<I>>, ticket: Ticket) {
        let taken = self.with(py, |state| {
            state.engine.switch_stage(&ticket, Stage::App);
            let exchange = listening.call.handles.exchange();
            exchange.with(py, |exchange| exchange.ticket = Some(ticket));
        });
        debug_assert!(taken.is_ok(), "a call does not run while the engine is locked");
        if self.handle_next(py, &mut listening) {
            self.go_on(py, listening);
        } else {
            self.end_listening(py, *listening);
        }
    }

    /// Has the handler take the next message. Returns false if the WebSocket has ended, after the handler got the end.
    fn handle_next(&self, py: Python<'_>, listening: &mut Listening<I>) -> bool {
        let waiter = self.hooks.waiter.as_ref().and_then(|make_waiter| make_waiter.call0(py).ok());
        let incoming = self.with(py, |state| {
            let key = listening.call.key;
            let worker = self.engine_index.worker();
            state.calls.handle_message(key, listening.rules.limit, worker, waiter, false, clock::now().monotonic);
            listening.has_failed |= state.calls.has_expired(key);
            state.take_message(py, listening.call.handles.exchange())
        });
        match incoming {
            Ok(Incoming::Message(message)) if !listening.has_failed => {
                let handled = self.come_back(py, listening.handler.message(py, message));
                self.note_result(py, listening, handled);
                true
            }
            Ok(Incoming::End(end)) => {
                self.tell_end(py, listening, end);
                false
            }
            Ok(Incoming::Message(_) | Incoming::Pending) => true,
            Err(_) => unreachable!("a call does not run while the engine is locked"),
        }
    }

    /// Goes on after a message has been handled. If no other can arrive, handles the remaining messages at once,
    /// because the connection may be gone soon. Otherwise gives the WebSocket to the engine until there is a message.
    fn go_on(&self, py: Python<'_>, mut listening: Box<Listening<I>>) {
        let has_ended = |listening: &Listening<I>| {
            let exchange = listening.call.handles.exchange();
            self.with(py, |state| state.websocket_state(py, exchange).0.is_some())
        };
        while has_ended(&listening).unwrap_or(false) {
            if !self.handle_next(py, &mut listening) {
                return self.end_listening(py, *listening);
            }
        }
        self.listen(py, listening);
    }

    /// Ends the call after the handler got the end.
    fn end_listening(&self, py: Python<'_>, listening: Listening<I>) {
        let call = self.renumber(py, listening);
        self.end(py, call, Progress::Done);
    }

    /// Reports an exception that the handler raised, and closes the WebSocket then.
    fn note_result(&self, py: Python<'_>, listening: &mut Listening<I>, result: PyResult<()>) {
        let Err(error) = result else { return };
        let call = &listening.call;
        let has_ended = || {
            let exchange = call.handles.exchange();
            self.with(py, |state| state.websocket_state(py, exchange).0.is_some()).unwrap_or(false)
        };
        if I::says_websocket_is_closed(py, &error) && has_ended() {
            // The handler need not catch this exception: the end follows.
            return;
        }
        if self.is_timeout(py, &error) {
            let message =
                format!("a message of {} was ended by kirsch.RequestTimeout", subject::<I>(py, &call.request));
            self.log(py, WARNING, &message, None);
        } else {
            self.report_raised(py, call, "on", error);
        }
        self.close_failed(py, call);
        listening.has_failed = true;
    }

    /// Gives the WebSocket back to the engine until there is a message.
    fn listen(&self, py: Python<'_>, listening: Box<Listening<I>>) {
        let key = listening.call.key;
        let listened = self.with(py, |state| {
            let ticket = listening.call.handles.exchange().with(py, |exchange| exchange.ticket.take());
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let left = state.calls.listen(key);
            let progress = Progress::Listening(Resumable::Listening(listening));
            state.complete(py, ticket, progress, clock::now());
            left
        });
        if let Ok((true, _)) = listened {
            take_back_interrupt(py);
        }
    }

    /// Tells the handler of the end.
    fn tell_end(&self, py: Python<'_>, listening: &Listening<I>, end: WebSocketEnd) {
        match self.come_back(py, listening.handler.close(py, end)) {
            Err(error) if !I::says_websocket_is_closed(py, &error) => {
                self.report_raised(py, &listening.call, "while it was told of the end of its WebSocket, on", error);
            }
            _ => {}
        }
    }

    /// Drops the handler. Returns the call, with the number with which it began.
    fn renumber(&self, py: Python<'_>, listening: Listening<I>) -> InFlight<I> {
        let Listening { call, handler, number, .. } = listening;
        drop(handler);
        let renumbered = self.with(py, |state| state.calls.end_websocket(call.key, number));
        debug_assert!(renumbered.is_ok(), "a call does not run while the engine is locked");
        call
    }

    /// Ends a WebSocket whose connection is gone: the handler gets the end.
    pub(super) fn abandon_listening(&self, py: Python<'_>, listening: Box<Listening<I>>) {
        let key = listening.call.key;
        let has_expired = self.with(py, |state| {
            let worker = self.engine_index.worker();
            state.calls.handle_message(key, listening.rules.limit, worker, None, true, clock::now().monotonic);
            state.calls.has_expired(key)
        });
        let end = if matches!(has_expired, Ok(true)) {
            WebSocketEnd { code: CloseCode::INTERNAL_ERROR.number(), ..WebSocketEnd::abnormal() }
        } else {
            WebSocketEnd::abnormal()
        };
        self.tell_end(py, &listening, end);
        let call = self.renumber(py, *listening);
        let ended = self.with(py, |state| {
            let exchange = call.handles.exchange();
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
            self.interface.return_handles(py, release_call(py, call, ended));
        }
    }
}
