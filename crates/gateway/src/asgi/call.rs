//! One call of an ASGI application: the progress of its response and of its request's body, and the futures that wait
//! for its events.

use super::concurrency::{EventLoop as _, TaskWaiter as _};
use super::shared::{LoopWaiter, Shared};
use crate::guarded::Guarded;
use crate::interface::{Awaited, Exchange, Incoming, Message};
use crate::object::Object;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;
use wire::message::FieldLines;
use wire::websocket::CloseCode;

/// See the module. The host uses it as the waiter for the call's events.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct HttpCall {
    exchange: Exchange,
    pub(super) shared: Arc<Shared>,
    state: Guarded<HttpCallState>,
}

/// The number of messages without a wait after which other tasks run. A usual request needs three, so it is done at
/// once.
const MESSAGES_IN_A_ROW: u8 = 16;

struct HttpCallState {
    response: ResponseProgress,
    body: Body,
    /// The `bytes` object of a body that came as a whole.
    whole: Option<Object>,
    /// The trailers that the application has sent so far; `None` if it has announced none.
    trailers: Option<FieldLines>,
    /// The phase of the WebSocket, if the request asks for one, and whether the application has received
    /// `websocket.connect`.
    websocket: Option<(Phase, bool)>,
    /// True until the application gives up its thread for the first time.
    is_first_step: bool,
    /// The number of messages in a row for which the application did not have to wait.
    without_wait: u8,
    /// The futures of tasks that wait for a message, and of tasks that wait until the client has read output.
    receivers: Vec<LoopWaiter>,
    senders: Vec<LoopWaiter>,
}

/// The event for which a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// A message.
    Message,
    /// The client has read output.
    Room,
}

/// The progress of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseProgress {
    /// `http.response.start` is expected.
    Unstarted,
    /// The body is expected.
    Started,
    /// A part of the body has been sent, and another one is expected.
    InBody,
    /// The body is over, and `http.response.trailers` is expected.
    Trailing,
    /// Nothing more is expected.
    Finished,
}

/// The progress of the request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// There is no body, and the application has not received the message that says so.
    Empty,
    /// The whole body came with the head.
    Whole,
    Arriving,
    /// The application has received the end of the body.
    Ended,
    /// The rest of the body will not arrive.
    Broken,
}

/// The phase of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The application has not answered.
    Asked,
    Accepted,
    /// The application denies the WebSocket with a response of its own, whose head it has sent.
    Denying,
    /// The application has closed or denied the WebSocket. Nothing more is expected.
    Closed,
}

impl HttpCallState {
    fn new() -> Self {
        Self {
            response: ResponseProgress::Unstarted,
            body: Body::Empty,
            whole: None,
            trailers: None,
            websocket: None,
            is_first_step: true,
            without_wait: 0,
            receivers: Vec::new(),
            senders: Vec::new(),
        }
    }
}

/// The face of a WebSocket for `kirsch.Group`, beside [`send_to_all`](crate::peers::send_to_all).
#[pymethods]
impl HttpCall {
    /// Whether no message can be sent any more.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_unanswered(py)? {
            return Ok(false);
        }
        Ok(!self.exchange.is_websocket(py) || self.exchange.websocket_end(py)?.is_some())
    }

    /// Closes the WebSocket, if it is open.
    fn close(&self, py: Python<'_>, code: u16, reason: &str) -> PyResult<()> {
        match CloseCode::new(code) {
            Some(code) => self.exchange.close_websocket(py, code, reason),
            None => Err(PyValueError::new_err(format!("{code} is no code with which a WebSocket may be closed"))),
        }
    }
}

impl HttpCall {
    pub(super) fn new(exchange: Exchange, shared: Arc<Shared>) -> Self {
        Self { exchange, shared, state: Guarded::new(HttpCallState::new()) }
    }

    /// Resets the state for a new call.
    pub(super) fn reset(&self, py: Python<'_>) {
        let before = self.state.with(py, |state| std::mem::replace(state, HttpCallState::new()));
        // Dropped outside of the guard, because the objects may be the application's.
        drop(before);
    }

    /// Returns true if the other tasks of the loop are to run before the next message. An application that receives or
    /// sends in a loop, with a client that is as fast, would never let them run.
    pub(super) fn lets_others_run(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            let is_due = state.without_wait >= MESSAGES_IN_A_ROW;
            state.without_wait = if is_due { 0 } else { state.without_wait + 1 };
            is_due
        })
    }

    /// Notes that the application has to wait, so that the other tasks run.
    pub(super) fn has_waited(&self, py: Python<'_>) {
        self.state.with(py, |state| state.without_wait = 0);
    }

    /// Returns true if the application has not answered the handshake of its WebSocket, and still can.
    pub(crate) fn is_unanswered(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.phase(py) == Some(Phase::Asked) && !self.exchange.is_disconnected(py)?)
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    pub(super) fn expect_websocket(&self, py: Python<'_>) {
        self.state.with(py, |state| state.websocket = Some((Phase::Asked, false)));
    }

    /// Returns the phase of the WebSocket; `None` if the request does not ask for one.
    pub(super) fn phase(&self, py: Python<'_>) -> Option<Phase> {
        self.state.with(py, |state| state.websocket.map(|(phase, _)| phase))
    }

    pub(super) fn set_phase(&self, py: Python<'_>, phase: Phase) {
        self.state.with(py, |state| state.websocket = Some((phase, state.websocket.is_some_and(|(_, told)| told))));
        self.shared.note_step(py);
    }

    /// Returns true if the application has received `websocket.connect` and has accepted: messages follow.
    pub(super) fn has_messages(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| matches!(state.websocket, Some((Phase::Accepted, true))))
    }

    /// Returns true, once, if the application is to receive `websocket.connect`.
    pub(super) fn take_connect(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| match &mut state.websocket {
            Some((_, is_told)) => !std::mem::replace(is_told, true),
            None => false,
        })
    }

    /// Returns true if other senders wait until the client has read output.
    pub(super) fn has_waiting_senders(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| !state.senders.is_empty())
    }

    pub(super) fn expect_body(&self, py: Python<'_>) {
        self.state.with(py, |state| state.body = Body::Arriving);
    }

    pub(super) fn set_whole_body(&self, py: Python<'_>, bytes: Object) {
        self.state.with(py, |state| {
            state.body = Body::Whole;
            state.whole = Some(bytes);
        });
    }

    pub(super) fn take_whole_body(&self, py: Python<'_>) -> Option<Object> {
        self.state.with(py, |state| {
            state.body = Body::Ended;
            state.whole.take()
        })
    }

    pub(super) fn end_first_step(&self, py: Python<'_>) {
        self.state.with(py, |state| state.is_first_step = false);
    }

    pub(super) fn is_first_step(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.is_first_step)
    }

    /// Has the head sent before the loop waits.
    pub(super) fn hold_head(slf: &Py<Self>, py: Python<'_>) {
        slf.get().shared.hold_head(py, slf.clone_ref(py).into_any());
    }

    pub(super) fn is_finished(&self, py: Python<'_>) -> bool {
        self.response(py) == ResponseProgress::Finished
    }

    pub(super) fn response(&self, py: Python<'_>) -> ResponseProgress {
        self.state.with(py, |state| state.response)
    }

    pub(super) fn set_response(&self, py: Python<'_>, response: ResponseProgress) {
        let is_first_step = self.state.with(py, |state| {
            state.response = response;
            state.is_first_step
        });
        if !is_first_step {
            self.shared.note_step(py);
        }
    }

    /// Notes that trailers are announced: they have messages of their own after those of the body.
    pub(super) fn expect_trailers(&self, py: Python<'_>) {
        self.state.with(py, |state| state.trailers = Some(FieldLines::default()));
    }

    pub(super) fn expects_trailers(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.trailers.is_some())
    }

    /// Calls `add` with the trailers of the response, to add to them, and returns its result.
    pub(super) fn add_trailers<R>(&self, py: Python<'_>, add: impl FnOnce(&mut FieldLines) -> R) -> R {
        self.state.with(py, |state| add(state.trailers.get_or_insert_default()))
    }

    pub(super) fn body(&self, py: Python<'_>) -> Body {
        self.state.with(py, |state| state.body)
    }

    pub(super) fn set_body(&self, py: Python<'_>, body: Body) {
        self.state.with(py, |state| state.body = body);
    }

    /// Returns the result of a call whose Task has ended with `result`. A WebSocket that was not answered is an error.
    pub(super) fn checked(&self, py: Python<'_>, result: PyResult<()>) -> PyResult<()> {
        result?;
        if self.phase(py) == Some(Phase::Asked) && !self.exchange().is_disconnected(py)? {
            return Err(PyRuntimeError::new_err(
                "the application returned without answering the WebSocket: send websocket.accept, or websocket.close",
            ));
        }
        Ok(())
    }

    /// Returns a future that is done when `what` may have happened.
    ///
    /// # Errors
    /// `RuntimeError` if no loop runs.
    pub(super) fn wait_for(call: &Py<Self>, py: Python<'_>, what: WaitFor) -> PyResult<LoopWaiter> {
        let this = call.get();
        let future = this.shared.event_loop()?.waiter(py)?;
        let kept = future.clone_ref(py);
        this.state.with(py, |state| match what {
            WaitFor::Message => state.receivers.push(kept),
            WaitFor::Room => state.senders.push(kept),
        });
        let is_waiting = Self::arm(call, py)?;
        this.shared.note_step(py);
        if !is_waiting {
            Self::wake_all(call, py);
        }
        Ok(future)
    }

    /// Returns the next message of a WebSocket, or, if there is none yet, a future as of [`wait_for`](Self::wait_for).
    /// Called in the thread of the loop that hosts the engine, where nothing is woken before this returns.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(super) fn take_or_wait(call: &Py<Self>, py: Python<'_>) -> PyResult<Result<Incoming<Message>, LoopWaiter>> {
        let this = call.get();
        let is_sending = this.state.with(py, |state| !state.senders.is_empty());
        let awaited = Awaited::INPUT.or(Awaited::DEPARTURE);
        let awaited = if is_sending { awaited.or(Awaited::OUTPUT) } else { awaited };
        match this.exchange.take_message_or_wait(py, awaited, call.as_any())? {
            Incoming::Pending => {
                let future = this.shared.event_loop()?.waiter(py)?;
                let kept = future.clone_ref(py);
                this.state.with(py, |state| state.receivers.push(kept));
                this.shared.note_step(py);
                Ok(Err(future))
            }
            incoming => Ok(Ok(incoming)),
        }
    }

    /// Removes `future`, for which no one waits any longer.
    pub(super) fn forget(&self, py: Python<'_>, future: &LoopWaiter) {
        let forgotten = self.state.with(py, |state| {
            let HttpCallState { receivers, senders, .. } = state;
            [receivers, senders].into_iter().find_map(|futures| {
                let at = futures.iter().position(|other| other.is(future))?;
                Some(futures.remove(at))
            })
        });
        drop(forgotten);
    }

    /// Wakes all waiting tasks, in the next iterations of their loops. Each checks again whether it can go on.
    pub(super) fn wake_all(call: &Py<Self>, py: Python<'_>) {
        if let Err(error) = call.get().wake_each(py, |future| future.wake_soon(py)) {
            error.write_unraisable(py, None);
        }
    }

    /// Does the same as [`wake_all`](Self::wake_all) while the loop that hosts the engine waits for the engine: the
    /// Tasks of this loop make their steps now.
    ///
    /// # Errors
    /// The exceptions that a Task passes on: `SystemExit`, `KeyboardInterrupt`.
    pub(super) fn wake_now(&self, py: Python<'_>) -> PyResult<()> {
        let event_loop = self.shared.event_loop()?;
        self.wake_each(py, |waiter| event_loop.wake(py, waiter))
    }

    /// Wakes all waiting tasks. Returns the first error.
    fn wake_each(&self, py: Python<'_>, wake: impl Fn(&LoopWaiter) -> PyResult<()>) -> PyResult<()> {
        // All futures are taken first: a task that is woken may wait again at once, and a task that sends gives way to
        // those that wait.
        let (first, others) = self.state.with(py, |state| {
            let HttpCallState { receivers, senders, .. } = state;
            if receivers.is_empty() && senders.is_empty() {
                return (None, Vec::new());
            }
            let mut all = receivers.drain(..).chain(senders.drain(..));
            (all.next(), all.collect::<Vec<_>>())
        });
        if first.is_none() {
            return Ok(());
        }
        let mut result = Ok(());
        for future in first.into_iter().chain(others) {
            result = result.and(wake(&future));
        }
        result
    }

    /// Has the host wake the call for the events that are awaited now. Returns false if there is nothing more to wait
    /// for.
    fn arm(call: &Py<Self>, py: Python<'_>) -> PyResult<bool> {
        let this = call.get();
        let awaited = this.state.with(py, |state| {
            let input = match state.body {
                Body::Arriving => Awaited::INPUT.or(Awaited::DEPARTURE),
                _ => Awaited::DEPARTURE,
            };
            match (state.receivers.is_empty(), state.senders.is_empty()) {
                (true, true) => None,
                (false, true) => Some(input),
                (true, false) => Some(Awaited::OUTPUT),
                (false, false) => Some(input.or(Awaited::OUTPUT)),
            }
        });
        let Some(awaited) = awaited else { return Ok(true) };
        this.exchange.wake_when(py, awaited, call.clone_ref(py).into_any())
    }
}
