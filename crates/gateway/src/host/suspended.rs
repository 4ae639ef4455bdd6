//! Suspended calls. If an event loop hosts the engine, a call runs beside others, writes its response part by part
//! through its exchange, and never blocks. It may go on after its response is complete.
//!
//! ```text
//!   call ── Suspended ──▶ kept here ── conclude ──▶ over
//!     send … send(last)   the exchange is completed, the connection goes on
//!     conclude            the call is over: what it held is released
//! ```

use super::app::WARNING;
use super::call::{has_class, release_call};
use super::exchange::{End, Exchange, Part, Received, Sent};
use super::job::{Failure, InFlight, Mismatch};
use super::shared::Waiter;
use super::state::EngineState;
use super::threads::Host;
use super::waiting::broken_body;
use crate::access_log::Response;
use crate::clock;
use crate::gil::WithGil;
use crate::interface::{Handles as _, Interface};
use engine::{Awaited, Input, Progress, Stage};
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use wire::message::{FieldLines, Misuse};

impl<I: Interface> Host<I> {
    /// Keeps a call that has been suspended, and sends the response head if the call has given one.
    pub(super) fn suspend_call(&self, py: Python<'_>, call: InFlight<I>, waiter: Py<PyAny>) {
        let key = call.key;
        let suspended = self.with(py, |state| {
            state.calls.set_waiter(key, waiter);
            state.send_head(py, call.handles.exchange());
        });
        debug_assert!(suspended.is_ok(), "a call does not run while the engine is locked");
        // From here on the time counts as the application's: its waits, and its work after them.
        self.switch_call(py, &call, Stage::App);
        self.suspended.with(py, |calls| {
            if calls.len() <= key {
                calls.resize_with(key + 1, || None);
            }
            calls[key] = Some(call);
        });
    }

    /// Concludes a suspended call, which has ended with `result`.
    pub(super) fn conclude_suspended(&self, py: Python<'_>, exchange: &Exchange, result: PyResult<()>) {
        let key = exchange.with(py, |state| state.key);
        let call = self.suspended.with(py, |calls| calls.get_mut(key).and_then(Option::take));
        match call {
            Some(call) => self.conclude_call(py, call, result),
            // The server has ended, and with it all calls.
            None => drop(result),
        }
    }

    /// Concludes a call that has returned or raised. Ends its response unless the response is over already.
    pub(super) fn conclude_call(&self, py: Python<'_>, call: InFlight<I>, result: PyResult<()>) {
        if call.handles.exchange().with(py, |exchange| exchange.is_over()) {
            if let Err(error) = result
                && !is_cancellation(py, &error)
            {
                self.report_raised(py, &call, "after its response, on", error);
            }
            return self.release_answered(py, call);
        }
        if call.handles.exchange().with(py, |exchange| exchange.upgraded.is_some()) {
            return self.conclude_websocket(py, call, result);
        }
        let (is_gone, has_left, is_expired) = self
            .with(py, |state| {
                let (is_gone, has_left) = call.handles.exchange().with(py, |exchange| {
                    let Some(ticket) = &exchange.ticket else { return (false, false) };
                    (state.engine.is_gone(ticket), state.engine.has_peer_left(ticket))
                });
                (is_gone, has_left, state.calls.has_expired(call.key))
            })
            .unwrap_or_default();
        match result {
            // This is the cancellation that interrupted the call at its deadline.
            Err(error) if is_expired && is_cancellation(py, &error) => {
                let error = self.timeout_error(py).unwrap_or(error);
                self.fail(py, call, Failure::Raised(error));
            }
            Err(error) if is_gone && !is_expired => {
                self.report_left(py, &call, "after its client had left, on", error);
                self.end(py, call, Progress::Cut);
            }
            Ok(()) if is_gone => self.end(py, call, Progress::Cut),
            result => {
                let error = match self.broken_body(py, &call) {
                    // A client that has shut down its sending side has nearly always left, and the server has reported
                    // that to the application.
                    None if has_left && !is_expired && says_no_more(py, &result) => {
                        return self.end(py, call, Progress::Cut);
                    }
                    None => result.err().unwrap_or_else(I::incomplete),
                    // The client is at fault, whether or not the application raised an exception.
                    Some(refusal) => {
                        if let Err(error) = result {
                            self.report_left(py, &call, "after the body of its request had broken off, on", error);
                        }
                        broken_body(refusal)
                    }
                };
                self.fail(py, call, Failure::Raised(error));
            }
        }
    }

    /// Reports an exception that the application raised after its client had left, unless the exception says no more
    /// than that.
    pub(super) fn report_left(&self, py: Python<'_>, call: &InFlight<I>, when: &str, error: PyErr) {
        if !I::says_websocket_is_closed(py, &error) && !says_client_left(error.value(py)) {
            self.report_raised(py, call, when, error);
        }
    }

    fn timeout_error(&self, py: Python<'_>) -> Option<PyErr> {
        let exception = self.hooks.timeout_exception.as_ref()?;
        exception.bind(py).call0().ok().map(PyErr::from_value)
    }

    /// Releases a call whose response was complete before the call ended.
    fn release_answered(&self, py: Python<'_>, call: InFlight<I>) {
        let ended = self.with(py, |state| state.calls.end(call.key));
        if let Ok(ended) = ended {
            self.interface.return_handles(py, release_call(py, call, ended));
        }
    }

    /// Ends all suspended calls after the loop that hosted the engine has ended: none of them can finish any more.
    pub(super) fn abandon_suspended(&self, py: Python<'_>) {
        let calls = self.suspended.with(py, std::mem::take);
        let count = calls.iter().flatten().count();
        if count > 0 {
            let message = format!("{count} calls of the application had not ended when the server did");
            self.log(py, WARNING, &message, None);
        }
        for call in calls.into_iter().flatten() {
            if call.handles.exchange().with(py, |exchange| exchange.is_over()) {
                self.release_answered(py, call);
            } else {
                self.end(py, call, Progress::Cut);
            }
        }
    }
}

/// Returns the length of a part in bytes. Shortens a file that is the whole body to the declared length.
fn length_of(part: &mut Option<Part>, declared: Option<u64>) -> u64 {
    match part {
        None => 0,
        Some(Part::Chunk(chunk)) => chunk.as_ref().len() as u64,
        Some(Part::File { length, is_whole, .. }) => {
            if *is_whole {
                *length = declared.map_or(*length, |declared| declared.min(*length));
            }
            *length
        }
    }
}

/// Returns true if a call has ended the way calls end when their client has left: without an exception, or with one
/// that says so.
fn says_no_more(py: Python<'_>, result: &PyResult<()>) -> bool {
    result.as_ref().err().is_none_or(|error| says_client_left(error.value(py)))
}

/// Returns true if an exception says only that the client has left. Such exceptions are `kirsch.ClientDisconnected`,
/// those that frameworks raise in its place (`ClientDisconnect` and `WebSocketDisconnect` of Starlette,
/// `WebSocketDisconnected` of Falcon, and others of such names), a cancellation, and a group of these. They have no
/// base class in common.
fn says_client_left(error: &Bound<'_, PyBaseException>) -> bool {
    if has_class(error, |name| name == "BaseExceptionGroup")
        && let Ok(parts) =
            error.getattr("exceptions").and_then(|parts| parts.extract::<Vec<Bound<'_, PyBaseException>>>())
    {
        return parts.iter().all(says_client_left);
    }
    has_class(error, |name| name.contains("Disconnect") || name == "CancelledError")
}

/// Returns true if `error` is `asyncio.CancelledError`, with which a cancelled Task ends.
pub(super) fn is_cancellation(py: Python<'_>, error: &PyErr) -> bool {
    py.import("asyncio")
        .and_then(|asyncio| asyncio.getattr("CancelledError"))
        .is_ok_and(|cancelled| error.is_instance(py, &cancelled))
}

impl<I: Interface> EngineState<I> {
    /// See [`ExchangeHost::send`](super::exchange::ExchangeHost::send).
    pub(super) fn send(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        mut part: Option<Part>,
        end: End<'_>,
    ) -> Result<Sent, Mismatch> {
        let is_last = !matches!(end, End::NotYet);
        let (sent, body_bytes) = exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return Ok((Sent::Over, 0)) };
            if self.engine.is_gone(ticket) {
                return Ok((Sent::Gone, 0));
            }
            let draft = &exchange.draft;
            let length = length_of(&mut part, draft.content_length());
            let (sent, is_begun) = self.engine.reply(ticket, |reply| {
                let mut write = || {
                    if !reply.is_begun() {
                        if is_last {
                            reply.check_length(draft, length).map_err(|misuse| Mismatch::of(misuse, draft, length))?;
                        }
                        reply.begin(draft, is_last.then_some(length));
                    }
                    let mismatch = |misuse: Misuse, offered: u64| Mismatch::of(misuse, draft, offered);
                    let written = match part.take() {
                        None => Ok(()),
                        Some(Part::Chunk(chunk)) => reply.write(chunk),
                        Some(Part::File { file, offset, length, .. }) => reply.write_file(file, offset, length),
                    };
                    written.map_err(|misuse| mismatch(misuse, reply.offered_bytes()))?;
                    let ended = match end {
                        End::NotYet => {
                            reply.send_soon();
                            Ok(())
                        }
                        End::Here => reply.finish(),
                        End::Trailers(trailers) => reply.finish_with(trailers),
                    };
                    ended.map_err(|misuse| mismatch(misuse, reply.offered_bytes()))?;
                    let sent = match () {
                        () if reply.is_gone() => Sent::Gone,
                        () if reply.is_full() => Sent::Full,
                        () => Sent::Done,
                    };
                    Ok((sent, reply.body_bytes()))
                };
                let sent = write();
                (sent, reply.is_begun())
            });
            exchange.begun |= is_begun;
            exchange.finished |= is_last && sent.is_ok();
            sent
        })?;
        if is_last && matches!(sent, Sent::Done | Sent::Full) {
            self.complete_answered(py, exchange, body_bytes);
        }
        Ok(sent)
    }

    /// See [`ExchangeHost::send_early_hints`](super::exchange::ExchangeHost::send_early_hints).
    pub(super) fn send_early_hints(&mut self, py: Python<'_>, exchange: &Exchange, fields: &FieldLines) -> Sent {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return Sent::Over };
            if self.engine.is_gone(ticket) {
                return Sent::Gone;
            }
            self.engine.reply(ticket, |reply| {
                reply.send_early_hints(fields);
                if reply.is_gone() { Sent::Gone } else { Sent::Done }
            })
        })
    }

    /// See [`ExchangeHost::write_errors`](super::exchange::ExchangeHost::write_errors).
    pub(super) fn write_errors(&mut self, py: Python<'_>, exchange: &Exchange, text: &[u8]) {
        exchange.with(py, |exchange| {
            if let Some(ticket) = &exchange.ticket {
                self.engine.reply(ticket, |reply| reply.write_errors(text));
            }
        });
    }

    /// Completes the response of a call that has written all of it and still runs.
    fn complete_answered(&mut self, py: Python<'_>, exchange: &Exchange, body_bytes: u64) {
        let (ticket, key) = exchange.with(py, |state| (state.take_ticket_for_good(), state.key));
        let Some(ticket) = ticket else { unreachable!("it was there") };
        if let Some(stopwatch) = &mut self.app.stopwatch {
            stopwatch.end(key);
        }
        let (number, entry, request) = self.calls.answer(py, key);
        if let (Some(log), Some(entry)) = (&mut self.app.access_log, entry) {
            // Writing a line calls Python, and the exchange must not be in use then. So the draft is taken out
            // meanwhile.
            let draft = exchange.with(py, |state| std::mem::take(&mut state.draft));
            let response = Response { status: draft.status(), body_bytes, draft: Some(&draft), close_code: None };
            log.write(py, &entry, response, Some(&request), Some(number));
        }
        request.release(py);
        self.complete(py, ticket, Progress::Done, clock::now());
    }

    /// See [`ExchangeHost::send_head`](super::exchange::ExchangeHost::send_head).
    pub(super) fn send_head(&mut self, py: Python<'_>, exchange: &Exchange) {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return };
            if exchange.begun || exchange.draft.is_empty() || self.engine.is_gone(ticket) {
                return;
            }
            let draft = &exchange.draft;
            self.engine.reply(ticket, |reply| {
                if !reply.is_begun() {
                    reply.begin(draft, None);
                    reply.flush();
                }
            });
            exchange.begun = true;
        });
    }

    /// See [`ExchangeHost::receive`](super::exchange::ExchangeHost::receive).
    pub(super) fn receive(&mut self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> Received {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return Received::Left };
            match self.engine.read(ticket, buffer, clock::now(), WithGil::new(&mut self.app, py)) {
                Input::Bytes(count) => Received::Bytes(count),
                Input::Pending => Received::Pending,
                Input::Broken(_) if self.engine.is_gone(ticket) => Received::Left,
                Input::Broken(_) => Received::Broken,
                Input::End => Received::End,
            }
        })
    }

    /// See [`ExchangeHost::wake_when`](super::exchange::ExchangeHost::wake_when).
    pub(super) fn wake_when(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        awaited: Awaited,
        waiter: Py<PyAny>,
    ) -> bool {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return false };
            let (now, app) = (self.clock.now(), WithGil::new(&mut self.app, py));
            self.engine.wait_for_any(ticket, awaited, Waiter::Hosted(waiter), now, app);
            // The time in which a slow client delays the response does not count towards the call's deadline.
            let waits_for_client = awaited.has(Awaited::OUTPUT);
            self.calls.set_waiting(exchange.key, waits_for_client, false, now.monotonic);
            true
        })
    }
}
