//! The operations that an exchange requests from its host while its call goes on: to write, to read, and to wait for
//! its client. Also the interruption of a call that has missed its deadline.

use super::calls::Call;
use super::exchange::{Acceptance, End, Exchange, ExchangeHost, MessageSent, Part, Received, Sent};
use super::exchange::{HijackId, HijackRefusal, Hijacked};
use super::shared::{Reentered, Waiter};
use super::state::EngineState;
use super::threads::{AttachedThread, Host};
use crate::clock;
use crate::gil::WithGil;
use crate::interface::{Interface, Message};
use crate::interrupt::{raise_here, raise_in};
use crate::object::{Chunk, OutgoingMessage};

use engine::{Awaited, Incoming, Input, Refusal, Stage, Ticket, WebSocketEnd};
use pyo3::exceptions::{PyConnectionResetError, PyOSError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use std::time::Duration;
use wire::message::{Fault, FieldLines};
use wire::websocket::{CloseCode, Prepared};

/// The event for which a thread or a greenlet waits in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocking {
    /// Bytes of the request's body arrive. The time counts towards the call's deadline.
    Input,
    /// The client reads the output. The time does not count.
    Output,
}

impl<I: Interface> ExchangeHost for Host<I> {
    fn write(&self, py: Python<'_>, exchange: &Exchange, chunk: Chunk) -> PyResult<bool> {
        let written = self.with(py, |state| {
            exchange.with(py, |exchange| {
                let is_writable = !exchange.finished && exchange.upgraded.is_none();
                let ticket = exchange.ticket.as_ref().filter(|_| is_writable)?;
                let draft = &exchange.draft;
                let (written, is_full) = state.engine.reply(ticket, |reply| {
                    if !reply.is_begun() {
                        if draft.is_empty() {
                            // The application is starting the response again, or has failed to do so.
                            return None;
                        }
                        reply.begin(draft, None);
                    }
                    let written = reply.write(chunk);
                    if written.is_ok() {
                        reply.flush();
                    }
                    Some((written, reply.is_full()))
                })?;
                exchange.begun = true;
                exchange.misuse = written.err().or(exchange.misuse.take());
                Some((written, is_full))
            })
        })?;
        let Some((written, is_full)) = written else { return Ok(false) };
        written.map_err(|misuse| PyValueError::new_err(misuse.to_string()))?;
        // The caller cannot be suspended as a response body can: it waits here for its client, if others can go on meanwhile.
        if is_full {
            self.wait_for_output(py, exchange)?;
        }
        Ok(true)
    }

    fn read(&self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> PyResult<Option<usize>> {
        loop {
            let input = self.with(py, |state| {
                exchange.with(py, |exchange| {
                    let ticket = exchange.ticket.as_ref()?;
                    Some(state.engine.read(ticket, buffer, clock::now(), WithGil::new(&mut state.app, py)))
                })
            })?;
            match input {
                None => return Ok(None),
                Some(Input::Bytes(count)) => return Ok(Some(count)),
                Some(Input::End) => return Ok(Some(0)),
                Some(Input::Broken(refusal)) => return Err(broken_body(refusal)),
                Some(Input::Pending) => self.wait(py, exchange, Blocking::Input)?,
            }
        }
    }

    /// While the response is suspended the engine watches its client: the client is still there, or the response is
    /// over soon.
    fn is_disconnected(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<bool> {
        Ok(self.with(py, |state| {
            exchange.with(py, |exchange| match &exchange.ticket {
                Some(ticket) => state.engine.has_peer_left(ticket),
                None => exchange.is_over(),
            })
        })?)
    }

    fn send(&self, py: Python<'_>, exchange: &Exchange, part: Option<Part>, end: End<'_>) -> PyResult<Sent> {
        let sent = self.with(py, |state| state.send(py, exchange, part, end))?;
        sent.map_err(|mismatch| PyValueError::new_err(mismatch.to_string()))
    }

    fn send_early_hints(&self, py: Python<'_>, exchange: &Exchange, fields: &FieldLines) -> PyResult<Sent> {
        Ok(self.with(py, |state| state.send_early_hints(py, exchange, fields))?)
    }

    fn write_errors(&self, py: Python<'_>, exchange: &Exchange, text: &[u8]) {
        // This thread may hold the lock already. The log has the text in any case.
        self.with(py, |state| state.write_errors(py, exchange, text)).ok();
    }

    fn send_head(&self, py: Python<'_>, exchange: &Exchange) {
        // This thread may hold the lock already. The head is then sent with the first part of the body.
        self.with(py, |state| state.send_head(py, exchange)).ok();
    }

    fn receive(&self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> PyResult<Received> {
        Ok(self.with(py, |state| state.receive(py, exchange, buffer))?)
    }

    fn wake_when(&self, py: Python<'_>, exchange: &Exchange, awaited: Awaited, waiter: Py<PyAny>) -> PyResult<bool> {
        Ok(self.with(py, |state| state.wake_when(py, exchange, awaited, waiter))?)
    }

    fn accept(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        subprotocol: Option<&str>,
        fields: &[(Vec<u8>, Vec<u8>)],
    ) -> PyResult<Acceptance> {
        Ok(self.with(py, |state| state.accept(py, exchange, subprotocol, fields))?)
    }

    fn take_message(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Incoming<Message>> {
        Ok(self.with(py, |state| state.take_message(py, exchange))?)
    }

    fn take_message_or_wait(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        awaited: Awaited,
        waiter: &Py<PyAny>,
    ) -> PyResult<Incoming<Message>> {
        Ok(self.with(py, |state| match state.take_message(py, exchange) {
            Incoming::Pending if !state.wake_when(py, exchange, awaited, waiter.clone_ref(py)) => {
                Incoming::End(WebSocketEnd::abnormal())
            }
            incoming => incoming,
        })?)
    }

    fn send_message(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        message: &OutgoingMessage<'_>,
    ) -> PyResult<MessageSent> {
        Ok(self.with(py, |state| state.send_message(py, exchange, message))?)
    }

    fn receive_message(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        timeout: Option<Duration>,
    ) -> PyResult<Incoming<Message>> {
        self.wait_for_message(py, exchange, timeout)
    }

    fn send_message_in(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        message: &OutgoingMessage<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<MessageSent> {
        self.wait_and_send(py, exchange, message, timeout)
    }

    fn send_prepared(&self, py: Python<'_>, exchange: &Exchange, message: &Prepared) -> PyResult<MessageSent> {
        self.with_waking(py, |state| state.send_prepared(py, exchange, message))
    }

    fn close_websocket(&self, py: Python<'_>, exchange: &Exchange, code: CloseCode, reason: &str) -> PyResult<()> {
        self.with_waking(py, |state| state.close_websocket(py, exchange, code, reason))
    }

    fn websocket_end(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Option<WebSocketEnd>> {
        Ok(self.with(py, |state| state.websocket_state(py, exchange).0)?)
    }

    fn hijack(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Result<Hijacked, HijackRefusal>> {
        self.with_waking(py, |state| state.hijack(py, exchange))
    }

    fn end_hijack(&self, py: Python<'_>, id: HijackId) -> PyResult<()> {
        self.with_waking(py, |state| state.end_hijack(py, id))
    }

    fn conclude(&self, py: Python<'_>, exchange: &Exchange, result: PyResult<()>) {
        self.conclude_suspended(py, exchange, result);
    }

    fn cut_off(&self, py: Python<'_>, ticket: Ticket, key: usize) {
        self.cut_off_call(py, ticket, Some(key));
    }
}

/// Returns the exception for a request body that cannot be read to its end.
pub(super) fn broken_body(refusal: Refusal) -> PyErr {
    match refusal.fault {
        None if refusal.status == 504 => PyTimeoutError::new_err("the request has missed its deadline"),
        None => PyTimeoutError::new_err("the request body took too long to arrive"),
        Some(Fault::Truncated) => {
            PyConnectionResetError::new_err("the client left before its request body was complete")
        }
        Some(fault) => PyOSError::new_err(format!("the request body is broken: {}", fault.explanation())),
    }
}

impl<I: Interface> Host<I> {
    /// Cuts off a call that will not end by itself. `key` is the key of the call, if it has begun.
    pub(super) fn cut_off_call(&self, py: Python<'_>, ticket: Ticket, key: Option<usize>) {
        let ended = self.with(py, |state| {
            state.engine.fail(ticket, clock::now(), WithGil::new(&mut state.app, py));
            key.map(|key| state.end(key))
        });
        drop(ended);
    }

    /// Waits in the middle of a call until its client has read the output. If no other call could run meanwhile, keeps
    /// the output in a file instead.
    pub(super) fn wait_for_output(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<()> {
        let cannot_wait = self.hooks.waiter.is_none() && (self.threads == 1 || self.engine_index.worker().is_none());
        loop {
            let is_to_wait = self.with(py, |state| {
                exchange.with(py, |exchange| {
                    let Some(ticket) = &exchange.ticket else { return Ok(false) };
                    state.engine.reply(ticket, |reply| {
                        if cannot_wait {
                            reply.relieve().map(|()| false)
                        } else {
                            Ok(reply.is_full() && !reply.is_gone())
                        }
                    })
                })
            })??;
            if !is_to_wait {
                return Ok(());
            }
            // A wait may end early.
            self.wait(py, exchange, Blocking::Output)?;
        }
    }

    /// Waits in the middle of a call.
    fn wait(&self, py: Python<'_>, exchange: &Exchange, what: Blocking) -> PyResult<()> {
        if let Some(wait) = &self.hooks.wait {
            let mut waiter = None;
            let begun = self.with(py, |state| {
                let key = exchange.with(py, |exchange| exchange.ticket.as_ref().map(|_| exchange.key));
                waiter = key.and_then(|key| state.calls.waiter(py, key));
                let waiter = waiter.as_ref().map(|waiter| Waiter::Hosted(waiter.clone_ref(py)));
                waiter.and_then(|waiter| state.begin_wait(py, exchange, what, waiter))
            })?;
            let waited = wait.call1(py, (waiter,));
            if let Some(begun) = begun {
                self.with(py, |state| state.end_wait(py, exchange, what, begun))?;
            }
            return waited.map(drop);
        }
        let Some(worker) = self.engine_index.worker() else {
            return Err(PyRuntimeError::new_err("only the thread of a request can wait for its client"));
        };
        let mut begun = None;
        let mut is_taken = false;
        self.scheduler
            .wait(&AttachedThread::new(self, py), worker, |state| {
                let key = exchange.with(py, |exchange| exchange.ticket.as_ref().map(|_| exchange.key));
                is_taken = key.is_some_and(|key| state.calls.is_waiting(key));
                if !is_taken {
                    begun = state.begin_wait(py, exchange, what, Waiter::Worker(worker));
                }
                if begun.is_none() {
                    // There is nothing to wait for.
                    state.app.worker_wakes.push(worker);
                }
            })
            .map_err(|scheduler::Reentered| Reentered)?;
        if is_taken {
            return Err(PyRuntimeError::new_err("another thread waits for the same client"));
        }
        if let Some(begun) = begun
            && self.with(py, |state| state.end_wait(py, exchange, what, begun))?
            && let Some(exception) = &self.hooks.timeout_exception
        {
            // The exception is raised here, and must not be raised again.
            take_back_interrupt(py);
            return Err(PyErr::from_value(exception.bind(py).call0()?));
        }
        // If an exception has ended the server, it ends the call too.
        self.shared.failure(py).map_or(Ok(()), Err)
    }

    /// Returns the calls that have missed their deadlines, each once, and the time to wait until there may be more.
    pub(crate) fn overdue(&self, py: Python<'_>) -> Result<(Vec<Call>, Option<Duration>), Reentered> {
        let (overdue, wait) = self.with(py, |state| {
            let now = clock::now().monotonic;
            state.expire();
            let overdue = state.calls.overdue(py, self.first_step(), now);
            for (_, late) in &overdue {
                if let Some(late) = late {
                    state.log_late(py, late);
                }
            }
            let due = state.calls.next_due().map(|due| due.saturating_sub(now));
            // A call that begins meanwhile is not due before the shortest limit has passed. The clock moves on in
            // steps, so a little is added to wake up after the deadline.
            let wait = due.into_iter().chain(state.shortest_limit).min();
            (overdue, wait.map(|wait| wait + Duration::from_millis(5)))
        })?;
        if !overdue.is_empty() {
            self.tidy(py, true);
        }
        Ok((overdue.into_iter().map(|(call, _)| call).collect(), wait))
    }

    /// Writes off the call with this number, which is not expected to return: the server ends without waiting for it.
    pub(crate) fn write_off(&self, py: Python<'_>, number: u64) -> Result<(), Reentered> {
        self.with(py, |state| {
            if let Some(call) = state.calls.expired(number) {
                state.engine.write_off(call);
            }
        })
    }

    /// Returns all calls that are not over, except those of WebSockets that wait for a message without a thread.
    pub(crate) fn calls(&self, py: Python<'_>) -> Result<Vec<Call>, Reentered> {
        self.with(py, |state| state.calls.all(py, self.first_step(), clock::now().monotonic))
    }

    /// Raises `timeout_exception` in the thread in which the call with this number runs.
    pub(crate) fn interrupt(&self, py: Python<'_>, number: u64) -> Result<bool, Reentered> {
        let Some(exception) = &self.hooks.timeout_exception else { return Ok(false) };
        self.with(py, |state| {
            let Some((key, thread)) = state.calls.running(number) else { return false };
            let (waiting, is_exposed) = state.calls.interrupt(key);
            state.app.worker_wakes.extend(waiting);
            !is_exposed || raise_in(py, thread, Some(exception))
        })
    }

    /// Runs Python code of the server in a thread that may have begun a call already. An exception that is to be raised
    /// in that call is raised afterwards.
    pub(super) fn sheltered<R>(&self, py: Python<'_>, act: impl FnOnce() -> R) -> R {
        let (Some(worker), Some(exception)) = (self.engine_index.worker(), &self.hooks.timeout_exception) else {
            return act();
        };
        if self.with(py, |state| state.calls.shelter(worker)).unwrap_or(false) {
            take_back_interrupt(py);
        }
        let result = act();
        if self.with(py, |state| state.calls.expose(worker)).unwrap_or(false) {
            raise_here(py, Some(exception));
        }
        result
    }

    /// Returns true if `error` is the exception that [`interrupt`](Self::interrupt) raises.
    pub(super) fn is_timeout(&self, py: Python<'_>, error: &PyErr) -> bool {
        self.hooks.timeout_exception.as_ref().is_some_and(|exception| error.is_instance(py, exception.bind(py)))
    }
}

/// Takes back an exception that was to be raised in a call that has ended: it must not reach the code that runs here
/// next.
pub(super) fn take_back_interrupt(py: Python<'_>) {
    raise_here(py, None);
}

impl<I: Interface> EngineState<I> {
    /// Has the engine wake `waiter`. Returns the key of the call and the stage that its request was in; `None` if its
    /// response is over or suspended, which a thread other than the application's may find.
    fn begin_wait(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        what: Blocking,
        waiter: Waiter,
    ) -> Option<(usize, Option<Stage>)> {
        let now = clock::now();
        exchange.with(py, |exchange| {
            let ticket = exchange.ticket.as_ref()?;
            let counts = what == Blocking::Input;
            let stage = self.engine.switch_stage(ticket, Stage::Peer);
            self.blocked += u64::from(!counts);
            self.calls.set_waiting(exchange.key, true, counts, now.monotonic);
            let app = WithGil::new(&mut self.app, py);
            match what {
                Blocking::Input => self.engine.wait_for_input(ticket, waiter, now, app),
                Blocking::Output => self.engine.wait_for_output(ticket, waiter, now, app),
            }
            Some((exchange.key, stage))
        })
    }

    /// Ends a wait. Returns true if the call was interrupted meanwhile.
    fn end_wait(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        what: Blocking,
        (key, stage): (usize, Option<Stage>),
    ) -> bool {
        let counts = what == Blocking::Input;
        self.blocked -= u64::from(!counts);
        exchange.with(py, |exchange| {
            if let Some(ticket) = &exchange.ticket {
                self.engine.stop_waiting(ticket);
                if let Some(stage) = stage {
                    self.engine.switch_stage(ticket, stage);
                }
            }
            // If another thread than the call's has waited, the call may have ended meanwhile, and its key may belong
            // to another call.
            if exchange.is_over() {
                return false;
            }
            self.calls.set_waiting(key, false, counts, clock::now().monotonic);
            self.calls.is_interrupted(key)
        })
    }
}
