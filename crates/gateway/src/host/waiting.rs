//! The operations that an exchange requests from its host while the call is running: writing, reading, and waiting for
//! the client. Also the interruption of a call that has missed its deadline.

use super::calls::Call;
use super::exceptions::broken_body;
use super::exchange::{Acceptance, End, Exchange, ExchangeHost, MessageSent, Part, Received, Sent};
use super::exchange::{HijackId, HijackRefusal, Hijacked};
use super::responses::Blocking;
use super::shared::{Bell, Reentered, Waiter};
use super::slices::{encode_most, encode_slices};
use super::state::EngineState;
use super::threads::{AttachedThread, Host};
use crate::clock;
use crate::compat::check_signals;
use crate::gil::WithGil;
use crate::interface::{Interface, Message};
use crate::interrupt::{self, raise_here, raise_in};
use crate::object::{Chunk, OutgoingMessage};
use engine::{Awaited, Incoming, Input, Ticket, WebSocketEnd};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use wire::message::FieldLines;
use wire::websocket::{CloseCode, Prepared};

impl<I: Interface> ExchangeHost for Host<I> {
    fn write(&self, py: Python<'_>, exchange: &Exchange, chunk: Chunk) -> PyResult<bool> {
        let chunk = match encode_most(self, py, exchange, chunk, false)? {
            Ok(chunk) => chunk,
            Err(mismatch) => return Err(PyValueError::new_err(mismatch.to_string())),
        };
        let written = self.with(py, |state| {
            exchange.with(py, |exchange| {
                let is_writable = !exchange.finished && exchange.upgraded.is_none();
                let ticket = exchange.ticket.as_ref().filter(|_| is_writable)?;
                let draft = &exchange.draft;
                let (written, is_full) = state.engine.reply(ticket, |reply| {
                    if !reply.is_begun() {
                        if draft.is_empty() {
                            // Another thread is replacing the response head, or its attempt has failed.
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
        // This call cannot be suspended like a response body that is iterated over. So this thread blocks until the
        // client has read, if other calls can run meanwhile.
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

    /// For a suspended response, returns true only once it has ended: the engine watches its client, and ends the
    /// response when the client leaves.
    fn is_disconnected(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<bool> {
        Ok(self.with(py, |state| {
            exchange.with(py, |exchange| match &exchange.ticket {
                Some(ticket) => state.engine.has_peer_left(ticket),
                None => exchange.is_over(),
            })
        })?)
    }

    fn send(&self, py: Python<'_>, exchange: &Exchange, mut part: Option<Part>, end: End<'_>) -> PyResult<Sent> {
        if self.compresses
            && let Some(given) = part.take()
        {
            let rest = encode_slices(self, py, exchange, given, !matches!(end, End::NotYet))?;
            part = Some(rest.map_err(|mismatch| PyValueError::new_err(mismatch.to_string()))?);
        }
        let sent = self.with(py, |state| state.send(py, exchange, part, end))?;
        sent.map_err(|mismatch| PyValueError::new_err(mismatch.to_string()))
    }

    fn send_early_hints(&self, py: Python<'_>, exchange: &Exchange, fields: &FieldLines) -> PyResult<Sent> {
        Ok(self.with(py, |state| state.send_early_hints(py, exchange, fields))?)
    }

    fn write_errors(&self, py: Python<'_>, exchange: &Exchange, text: &[u8]) {
        // This fails if the thread already holds the lock. The text is in the error log in any case.
        self.with(py, |state| state.write_errors(py, exchange, text)).ok();
    }

    fn send_head(&self, py: Python<'_>, exchange: &Exchange) {
        // This fails if the thread already holds the lock. The head is then sent with the first part of the body.
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
        let until = until(timeout);
        loop {
            match self.with(py, |state| state.take_message(py, exchange))? {
                Incoming::Pending if !is_over(until) => self.sleep(py, exchange, (Awaited::INPUT, until))?,
                incoming => return Ok(incoming),
            }
        }
    }

    fn send_message_in(
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
        let key = exchange.with(py, |state| state.key);
        match self.suspended.take(py, key) {
            Some(call) => call.conclude(self, py, result),
            // The server has ended, and so have all its calls.
            None => drop(result),
        }
    }

    fn cut_off(&self, py: Python<'_>, ticket: Ticket, key: usize) {
        Self::cut_off(self, py, ticket, Some(key));
    }
}

impl<I: Interface> Host<I> {
    /// Cuts off a call that cannot end by itself. `key` is the key of the call, if it has begun.
    pub(super) fn cut_off(&self, py: Python<'_>, ticket: Ticket, key: Option<usize>) {
        drop(self.with(py, |state| state.cut_off(py, ticket, key)));
    }

    /// Blocks the call until its client has read the output. If no other call could run meanwhile, stores the output in
    /// a file instead.
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
            // The wait may return before the client has read, so the loop checks again.
            self.wait(py, exchange, Blocking::Output)?;
        }
    }

    /// Blocks the call until `what` happens, or earlier.
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
                    // The response has ended, so the thread is woken at once.
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
            // This thread raises the exception itself, so the pending asynchronous one is cancelled.
            interrupt::take_back(py);
            return Err(PyErr::from_value(exception.bind(py).call0()?));
        }
        // An exception that has ended the server ends this call too.
        self.shared.failure(py).map_or(Ok(()), Err)
    }

    /// Blocks until an event of a WebSocket happens, or earlier. Works in a thread of the engine, in a greenlet of the
    /// hosting loop, and in any other thread.
    fn sleep(&self, py: Python<'_>, exchange: &Exchange, what: (Awaited, Option<Duration>)) -> PyResult<()> {
        if let (Some(wait), Some(make_waiter)) = (&self.hooks.wait, &self.hooks.waiter)
            && self.hosting.is_here()
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
                // This thread raises the exception itself, so the pending asynchronous one is cancelled.
                interrupt::take_back(py);
                return Err(PyErr::from_value(exception.bind(py).call0()?));
            }
            // An exception that has ended the server ends this call too.
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
        check_signals(py)
    }

    /// Returns the calls that have missed their deadlines, each only once, and the time until the next check is due.
    pub(crate) fn overdue(&self, py: Python<'_>) -> Result<(Vec<Call>, Option<Duration>), Reentered> {
        let (overdue, wait) = self.with(py, |state| {
            let now = clock::now().monotonic;
            state.expire();
            let overdue = state.calls.overdue(py, self.hosting.first_step(), now);
            for (_, late) in &overdue {
                if let Some(late) = late {
                    state.log_late(py, late);
                }
            }
            let due = state.calls.next_due().map(|due| due.saturating_sub(now));
            // A call that begins after this check has its deadline after the shortest limit. The clock advances in
            // steps, so 5 ms are added to wake up after the deadline and not just before.
            let wait = due.into_iter().chain(state.shortest_limit()).min();
            (overdue, wait.map(|wait| wait + Duration::from_millis(5)))
        })?;
        if !overdue.is_empty() {
            self.tidy(py, true);
        }
        Ok((overdue.into_iter().map(|(call, _)| call).collect(), wait))
    }

    /// Raises the timeout exception in the thread of the call with this number. Returns false if the call does not run.
    pub(crate) fn interrupt(&self, py: Python<'_>, number: u64) -> Result<bool, Reentered> {
        let Some(exception) = &self.hooks.timeout_exception else { return Ok(false) };
        self.with(py, |state| {
            let Some((key, thread)) = state.calls.running(number) else { return false };
            let (waiting, is_exposed) = state.calls.interrupt(key);
            state.app.worker_wakes.extend(waiting);
            !is_exposed || raise_in(py, thread, Some(exception))
        })
    }

    /// Runs Python code of the server in a thread that may be inside a call. An exception that is to be raised in this
    /// call is raised after `act`.
    pub(super) fn sheltered<R>(&self, py: Python<'_>, act: impl FnOnce() -> R) -> R {
        let (Some(worker), Some(exception)) = (self.engine_index.worker(), &self.hooks.timeout_exception) else {
            return act();
        };
        if self.with(py, |state| state.calls.shelter(worker)).unwrap_or(false) {
            interrupt::take_back(py);
        }
        let result = act();
        if self.with(py, |state| state.calls.expose(worker)).unwrap_or(false) {
            raise_here(py, Some(exception));
        }
        result
    }

    /// Reports a message about a call that has not ended. The timeout exception is not raised during the report.
    pub(super) fn log_call(&self, py: Python<'_>, level: u8, message: &str, error: Option<PyErr>) {
        self.sheltered(py, || self.reports.log(py, level, message, error));
    }
}

/// Returns the time at which `timeout` ends; `None` without a timeout.
fn until(timeout: Option<Duration>) -> Option<Duration> {
    timeout.map(|timeout| clock::now().monotonic.saturating_add(timeout))
}

fn is_over(until: Option<Duration>) -> bool {
    until.is_some_and(|until| clock::now().monotonic >= until)
}
