//! The operations `receive()` and `send(message)`, independent of the event loop. They start when they are first
//! awaited, so an operation that is cancelled before that has neither taken nor sent a message.

use super::call::{HttpCall, WaitFor};
use super::concurrency::{Operation, Step, TaskWaiter as _};
use super::sending::send_any;
use super::shared::LoopWaiter;
use super::websocket::Outcome;
use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::ffi::CStr;

/// One `receive()` or `send(message)` of a call.
pub(super) struct MessageOperation {
    call: Py<HttpCall>,
    state: Guarded<OperationState>,
}

enum OperationState {
    /// The operation has not been awaited yet.
    Created(Next),
    /// The operation has paused once for other tasks.
    Resumed(Next),
    /// The operation waits on this waiter.
    Waiting(LoopWaiter, Next),
    Over,
}

/// The next action of an operation.
enum Next {
    Receive,
    /// Send this message.
    Send(Object),
    /// Return, because the client has read output.
    Return,
}

impl MessageOperation {
    /// Creates an operation that sends `message`, or receives a message if it is `None`.
    pub(super) fn new(call: Py<HttpCall>, message: Option<Object>) -> Self {
        let next = message.map_or(Next::Receive, Next::Send);
        Self { call, state: Guarded::new(OperationState::Created(next)) }
    }

    fn wait_for_room(&self, py: Python<'_>, next: Next) -> PyResult<Step<LoopWaiter>> {
        Ok(self.wait(py, HttpCall::wait_for(&self.call, py, WaitFor::Room)?, next))
    }

    fn wait(&self, py: Python<'_>, waiter: LoopWaiter, next: Next) -> Step<LoopWaiter> {
        let awaited = waiter.clone_ref(py);
        self.call.get().has_waited(py);
        self.set(py, OperationState::Waiting(waiter, next));
        Step::Wait(awaited)
    }

    fn take(&self, py: Python<'_>) -> OperationState {
        self.state.with(py, |state| std::mem::replace(state, OperationState::Over))
    }

    fn set(&self, py: Python<'_>, next: OperationState) {
        // Dropped outside of the guard, because the destructor may run application code.
        let before = self.state.with(py, |state| std::mem::replace(state, next));
        drop(before);
    }
}

impl Operation for MessageOperation {
    type Waiter = LoopWaiter;

    fn step(&self, py: Python<'_>) -> PyResult<Step<LoopWaiter>> {
        // `take` leaves the state `Over` unless a wait is stored below, so an exception is raised only once.
        let next = match self.take(py) {
            OperationState::Created(next) if self.call.get().lets_others_run(py) => {
                self.set(py, OperationState::Resumed(next));
                return Ok(Step::Pause);
            }
            OperationState::Created(next) | OperationState::Resumed(next) => next,
            OperationState::Waiting(waiter, next) if waiter.is_done(py) => next,
            OperationState::Waiting(waiter, _) => {
                self.call.get().forget(py, &waiter);
                return Err(PyRuntimeError::new_err("what receive or send waits for was not waited for"));
            }
            OperationState::Over => return Err(PyRuntimeError::new_err(REUSED)),
        };
        match next {
            Next::Receive => match HttpCall::receive(&self.call, py)? {
                Ok(message) => Ok(Step::Done(Some(message.into()))),
                Err(waiter) => Ok(self.wait(py, waiter, Next::Receive)),
            },
            Next::Send(message) => match send_any(py, &self.call, &message.bind(py))? {
                Outcome::Done => {
                    message.release(py);
                    Ok(Step::Done(None))
                }
                Outcome::Wait => self.wait_for_room(py, Next::Return),
                Outcome::Again => self.wait_for_room(py, Next::Send(message)),
            },
            Next::Return => Ok(Step::Done(None)),
        }
    }

    fn throw(&self, py: Python<'_>, error: PyErr) -> PyErr {
        match self.take(py) {
            OperationState::Waiting(waiter, _) => {
                self.call.get().forget(py, &waiter);
                error
            }
            OperationState::Created(_) | OperationState::Resumed(_) => error,
            OperationState::Over => PyRuntimeError::new_err(REUSED),
        }
    }

    fn close(&self, py: Python<'_>) {
        if let OperationState::Waiting(waiter, _) = self.take(py) {
            self.call.get().forget(py, &waiter);
        }
    }

    /// Warns like the interpreter about a coroutine that was never awaited: without `await`, `send` sends nothing.
    fn warning(&self, py: Python<'_>) -> Option<&'static CStr> {
        self.state.with(py, |state| match state {
            OperationState::Created(Next::Receive) => Some(c"coroutine 'receive' was never awaited"),
            OperationState::Created(_) => Some(c"coroutine 'send' was never awaited"),
            OperationState::Resumed(_) | OperationState::Waiting(..) | OperationState::Over => None,
        })
    }
}

const REUSED: &str = "cannot reuse already awaited coroutine";
