//! One call of an ASGI application: how far its response and its request's body are, and what waits for events of it.

use super::event_loop::Shared;
use super::future::LoopFuture;
use crate::guarded::Guarded;
use crate::interface::{Awaited, Exchange, Incoming, Message};
use crate::object::Object;
use pyo3::prelude::*;
use std::sync::Arc;
use wire::message::FieldLines;

/// See the module. To the host it is what waits for the call's events.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct HttpCall {
    exchange: Exchange,
    pub(super) shared: Arc<Shared>,
    state: Guarded<CallState>,
}

/// A usual request needs three, so that it is done at once.
const MESSAGES_IN_A_ROW: u8 = 16;

struct CallState {
    response: Response,
    body: Body,
    /// The `bytes` object of a body that came as a whole.
    whole: Option<Object>,
    /// Trailers that have been sent so far; `None` if the application has announced none.
    trailers: Option<FieldLines>,
    /// How far it is with a WebSocket, if the request asks for one, and whether it has been told of it.
    websocket: Option<(Phase, bool)>,
    /// The application has not given up its thread for the first time.
    is_first_step: bool,
    /// How many messages in a row were there, or had room, when the application asked.
    without_wait: u8,
    /// Futures of those that wait for a message, and of those that wait until the client has taken output.
    receivers: Vec<LoopFuture>,
    senders: Vec<LoopFuture>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// A message.
    Message,
    /// The client, to take output.
    Room,
}

/// How far the response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
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

/// How far the request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// There is none, and the application has not been told so.
    Empty,
    /// It came with the head, as a whole.
    Whole,
    Arriving,
    /// The application has had its end.
    Ended,
    /// The rest of it will not come.
    Broken,
}

/// How far the application is with a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has not answered.
    Asked,
    Accepted,
    /// It denies with a response of its own, whose head it has sent.
    Denying,
    /// It has closed, or denied. Nothing more is expected.
    Closed,
}

impl CallState {
    fn new() -> Self {
        Self {
            response: Response::Unstarted,
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

impl HttpCall {
    pub(super) fn new(exchange: Exchange, shared: Arc<Shared>) -> Self {
        Self { exchange, shared, state: Guarded::new(CallState::new()) }
    }

    /// It is a new call, whose response is not over.
    pub(super) fn reset(&self, py: Python<'_>) {
        let before = self.state.with(py, |state| std::mem::replace(state, CallState::new()));
        // Not within: what is dropped may be the application's.
        drop(before);
    }

    /// Whether the other tasks of the loop are to run before the next message: an application that receives or sends in a
    /// loop, and whose client is as fast, would never let them.
    pub(super) fn lets_others_run(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            let is_due = state.without_wait >= MESSAGES_IN_A_ROW;
            state.without_wait = if is_due { 0 } else { state.without_wait + 1 };
            is_due
        })
    }

    /// The other tasks have run, because there was something to wait for.
    pub(super) fn has_waited(&self, py: Python<'_>) {
        self.state.with(py, |state| state.without_wait = 0);
    }

    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    pub(super) fn expect_websocket(&self, py: Python<'_>) {
        self.state.with(py, |state| state.websocket = Some((Phase::Asked, false)));
    }

    /// How far the application is with a WebSocket; `None`: the request does not ask for one.
    pub(super) fn phase(&self, py: Python<'_>) -> Option<Phase> {
        self.state.with(py, |state| state.websocket.map(|(phase, _)| phase))
    }

    pub(super) fn set_phase(&self, py: Python<'_>, phase: Phase) {
        self.state.with(py, |state| state.websocket = Some((phase, state.websocket.is_some_and(|(_, told)| told))));
        self.shared.note_step(py);
    }

    /// Whether the application has accepted a WebSocket, having been told that it is asked for: messages follow.
    pub(super) fn has_messages(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| matches!(state.websocket, Some((Phase::Accepted, true))))
    }

    /// Whether the application is to be told that a WebSocket is asked for: once.
    pub(super) fn take_connect(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| match &mut state.websocket {
            Some((_, is_told)) => !std::mem::replace(is_told, true),
            None => false,
        })
    }

    /// Whether others wait until the client has taken output.
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
        self.response(py) == Response::Finished
    }

    pub(super) fn response(&self, py: Python<'_>) -> Response {
        self.state.with(py, |state| state.response)
    }

    pub(super) fn set_response(&self, py: Python<'_>, response: Response) {
        let is_first_step = self.state.with(py, |state| {
            state.response = response;
            state.is_first_step
        });
        if !is_first_step {
            self.shared.note_step(py);
        }
    }

    /// The body and the trailers of the response have a message each.
    pub(super) fn expect_trailers(&self, py: Python<'_>) {
        self.state.with(py, |state| state.trailers = Some(FieldLines::default()));
    }

    pub(super) fn expects_trailers(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.trailers.is_some())
    }

    /// Adds to the trailers of the response: `add` says what, and whether it is right.
    pub(super) fn add_trailers<R>(&self, py: Python<'_>, add: impl FnOnce(&mut FieldLines) -> R) -> R {
        self.state.with(py, |state| add(state.trailers.get_or_insert_default()))
    }

    pub(super) fn body(&self, py: Python<'_>) -> Body {
        self.state.with(py, |state| state.body)
    }

    pub(super) fn set_body(&self, py: Python<'_>, body: Body) {
        self.state.with(py, |state| state.body = body);
    }

    /// A future that is done when what is waited for may be the case.
    ///
    /// # Errors
    /// `RuntimeError` where no loop runs.
    pub(super) fn wait_for(call: &Py<Self>, py: Python<'_>, what: WaitFor) -> PyResult<LoopFuture> {
        let this = call.get();
        let future = this.shared.event_loop()?.future(py)?;
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

    /// The next message of a WebSocket; if there is none yet, a future as of [`wait_for`](Self::wait_for). In the thread of
    /// the loop that hosts the engine: there nothing is woken before this returns.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(super) fn take_or_wait(call: &Py<Self>, py: Python<'_>) -> PyResult<Result<Incoming<Message>, LoopFuture>> {
        let this = call.get();
        let is_sending = this.state.with(py, |state| !state.senders.is_empty());
        let awaited = Awaited::INPUT.or(Awaited::DEPARTURE);
        let awaited = if is_sending { awaited.or(Awaited::OUTPUT) } else { awaited };
        match this.exchange.take_message_or_wait(py, awaited, call.as_any())? {
            Incoming::Pending => {
                let future = this.shared.event_loop()?.future(py)?;
                let kept = future.clone_ref(py);
                this.state.with(py, |state| state.receivers.push(kept));
                this.shared.note_step(py);
                Ok(Err(future))
            }
            incoming => Ok(Ok(incoming)),
        }
    }

    /// `future` is waited for no longer.
    pub(super) fn forget(&self, py: Python<'_>, future: &LoopFuture) {
        let forgotten = self.state.with(py, |state| {
            let CallState { receivers, senders, .. } = state;
            [receivers, senders].into_iter().find_map(|futures| {
                let at = futures.iter().position(|other| other.is(future))?;
                Some(futures.remove(at))
            })
        });
        drop(forgotten);
    }

    /// Wakes all that waits, in the next iterations of their loops: each looks again whether it goes on.
    pub(super) fn wake_all(call: &Py<Self>, py: Python<'_>) {
        if let Err(error) = call.get().wake_each(py, |future| future.wake_soon(py)) {
            error.write_unraisable(py, None);
        }
    }

    /// The same where the loop that hosts the engine waits for it: its Tasks make their steps now.
    ///
    /// # Errors
    /// What a Task passes on: `SystemExit`, `KeyboardInterrupt`.
    pub(super) fn wake_now(&self, py: Python<'_>) -> PyResult<()> {
        let futures = &self.shared.event_loop()?.tasks.futures;
        self.wake_each(py, |future| futures.wake(py, future))
    }

    /// Wakes all that waits. Returns the first error.
    fn wake_each(&self, py: Python<'_>, wake: impl Fn(&LoopFuture) -> PyResult<()>) -> PyResult<()> {
        // All are taken first: one that is woken may wait again at once, and one that sends gives way to those that wait.
        let (first, others) = self.state.with(py, |state| {
            let CallState { receivers, senders, .. } = state;
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

    /// Has the call woken for what is waited for now. False if there is nothing more to wait for.
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
