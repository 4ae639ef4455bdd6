//! One call of an ASGI application: the progress of its response and of its request body, and the futures on which its
//! tasks wait.

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

/// One call of an ASGI application. The host uses it as the waiter for the call's events.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct HttpCall {
    exchange: Exchange,
    pub(super) shared: Arc<Shared>,
    state: Guarded<HttpCallState>,
}

/// The number of consecutive messages without a wait after which other tasks run. A usual request has three messages,
/// so it completes without a pause.
const MESSAGES_IN_A_ROW: u8 = 16;

struct HttpCallState {
    response: ResponseProgress,
    body: Body,
    /// The `bytes` object of a body that arrived whole.
    whole: Option<Object>,
    /// The trailers that the application has sent so far; `None` if it has not announced trailers.
    trailers: Option<FieldLines>,
    /// The phase of the WebSocket, and true once the application has received `websocket.connect`; `None` for an HTTP
    /// request.
    websocket: Option<(Phase, bool)>,
    /// True until the application awaits something for the first time.
    is_first_step: bool,
    /// The number of consecutive messages for which the application did not have to wait.
    without_wait: u8,
    /// The futures of tasks that wait for a message, and those of tasks that wait until the client reads output.
    receivers: Vec<LoopWaiter>,
    senders: Vec<LoopWaiter>,
}

/// The event on which a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// A message that `receive` can return.
    Message,
    /// The client has read output, so there is room in the output buffer.
    Room,
}

/// The progress of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseProgress {
    /// `http.response.start` is expected.
    Unstarted,
    /// The first `http.response.body` is expected.
    Started,
    /// A part of the body has been sent, and another is expected.
    InBody,
    /// The body is complete, and `http.response.trailers` is expected.
    Trailing,
    /// No more messages are expected.
    Finished,
}

/// The progress of the request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// There is no body, and the application has not yet received the message that says so.
    Empty,
    /// The whole body arrived with the head.
    Whole,
    Arriving,
    /// The application has received the end of the body.
    Ended,
    /// The rest of the body will not arrive, for example because it is malformed.
    Broken,
}

/// The phase of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The application has neither accepted nor rejected the WebSocket.
    Asked,
    Accepted,
    /// The application rejects the WebSocket with its own response, whose head it has sent.
    Denying,
    /// The application has closed or rejected the WebSocket. No more messages are expected.
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

/// The methods of a WebSocket for `kirsch.Group`, besides [`send_to_all`](crate::peers::send_to_all).
#[pymethods]
impl HttpCall {
    /// True if no more messages can be sent.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        if self.is_unanswered(py)? {
            return Ok(false);
        }
        Ok(!self.exchange.is_websocket(py) || self.exchange.websocket_end(py)?.is_some())
    }

    /// Closes the WebSocket with this code and reason, if it is open.
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
        // Dropped outside of the guard, because the destructors may run application code.
        drop(before);
    }

    /// Returns true if the other tasks of the loop must run before the next message. Otherwise an application that
    /// receives or sends in a loop, with an equally fast client, would never let them run.
    pub(super) fn lets_others_run(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            let is_due = state.without_wait >= MESSAGES_IN_A_ROW;
            state.without_wait = if is_due { 0 } else { state.without_wait + 1 };
            is_due
        })
    }

    /// Notes that the application has to wait, so the other tasks run anyway.
    pub(super) fn has_waited(&self, py: Python<'_>) {
        self.state.with(py, |state| state.without_wait = 0);
    }

    /// Returns true if the application has neither accepted nor rejected its WebSocket, and still can.
    pub(crate) fn is_unanswered(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.phase(py) == Some(Phase::Asked) && !self.exchange.is_disconnected(py)?)
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    pub(super) fn expect_websocket(&self, py: Python<'_>) {
        self.state.with(py, |state| state.websocket = Some((Phase::Asked, false)));
    }

    /// Returns the phase of the WebSocket; `None` for an HTTP request.
    pub(super) fn phase(&self, py: Python<'_>) -> Option<Phase> {
        self.state.with(py, |state| state.websocket.map(|(phase, _)| phase))
    }

    pub(super) fn set_phase(&self, py: Python<'_>, phase: Phase) {
        self.state.with(py, |state| state.websocket = Some((phase, state.websocket.is_some_and(|(_, told)| told))));
        self.shared.note_step(py);
    }

    /// Returns true if the application has received `websocket.connect` and has accepted, so messages follow.
    pub(super) fn has_messages(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| matches!(state.websocket, Some((Phase::Accepted, true))))
    }

    /// Returns true if the application must receive `websocket.connect` now. Returns true only once.
    pub(super) fn take_connect(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| match &mut state.websocket {
            Some((_, is_told)) => !std::mem::replace(is_told, true),
            None => false,
        })
    }

    /// Returns true if other tasks wait until the client reads output.
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

    /// Registers the call, so that its response head is sent before the loop waits.
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

    /// Notes that the application announced trailers, which it sends in messages after the body.
    pub(super) fn expect_trailers(&self, py: Python<'_>) {
        self.state.with(py, |state| state.trailers = Some(FieldLines::default()));
    }

    pub(super) fn expects_trailers(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.trailers.is_some())
    }

    /// Calls `add` with the trailers of the response, to append to them. Returns the result of `add`.
    pub(super) fn add_trailers<R>(&self, py: Python<'_>, add: impl FnOnce(&mut FieldLines) -> R) -> R {
        self.state.with(py, |state| add(state.trailers.get_or_insert_default()))
    }

    pub(super) fn body(&self, py: Python<'_>) -> Body {
        self.state.with(py, |state| state.body)
    }

    pub(super) fn set_body(&self, py: Python<'_>, body: Body) {
        self.state.with(py, |state| state.body = body);
    }

    /// Returns the result of a call whose Task has ended with `result`. It is an error if the WebSocket was neither
    /// accepted nor rejected.
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
    /// `RuntimeError` if no event loop is running.
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

    /// Returns the next message of a WebSocket, or, if there is none yet, a future like [`wait_for`](Self::wait_for).
    /// Called in the thread of the hosting loop, so no event can wake the task before this returns.
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

    /// Removes `future`, because its task no longer waits.
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

    /// Wakes all waiting tasks, in the next iteration of their loop. Each checks again whether it can continue.
    pub(super) fn wake_all(call: &Py<Self>, py: Python<'_>) {
        if let Err(error) = call.get().wake_each(py, |future| future.wake_soon(py)) {
            error.write_unraisable(py, None);
        }
    }

    /// Does the same as [`wake_all`](Self::wake_all), called while the hosting loop waits for the engine: the Tasks of
    /// this loop run a step at once.
    ///
    /// # Errors
    /// The exceptions that a Task does not catch: `SystemExit`, `KeyboardInterrupt`.
    pub(super) fn wake_now(&self, py: Python<'_>) -> PyResult<()> {
        let event_loop = self.shared.event_loop()?;
        self.wake_each(py, |waiter| event_loop.wake(py, waiter))
    }

    /// Wakes all waiting tasks by `wake`. Returns the first error.
    fn wake_each(&self, py: Python<'_>, wake: impl Fn(&LoopWaiter) -> PyResult<()>) -> PyResult<()> {
        // All futures are removed first, because a woken task may wait again at once, and because a sending task gives
        // precedence to waiting senders.
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

    /// Registers the call with the host for the events on which its tasks wait now. Returns false if the response has
    /// ended.
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
