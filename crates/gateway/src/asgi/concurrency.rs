//! The trait between ASGI and the library whose event loop awaits its calls. This folder knows messages and scopes; a
//! folder in it, such as [`asyncio`](super::asyncio), knows tasks, futures and the loop.
//!
//! ```text
//!   messages ──▶ Operation ──▶ Awaitable: Operation::step ──▶ Step: done, or wait for a TaskWaiter
//!   engine ──▶ HttpCall ──▶ EventLoop::wake, TaskWaiter::wake_soon ──▶ the task steps its coroutine again
//! ```
//!
//! Everything is resolved when it is compiled: a call through this trait costs what a direct call does.

use crate::object::Object;
use pyo3::prelude::*;
use std::ffi::CStr;

/// An event loop that hosts the engine.
pub(crate) trait EventLoop: Sized + Send + Sync {
    /// A wait of one task.
    type Waiter: TaskWaiter;
    /// The type of the objects that the application awaits for an operation.
    type Awaitable<O: Operation<Waiter = Self::Waiter>>: Awaitable<O>;
    /// The timers of the loop in one of its iterations.
    type Timers;

    /// Takes the parts of the loop, which runs in this thread, from the attributes of an object that its driver has
    /// made.
    ///
    /// # Errors
    /// `AttributeError` for a missing attribute.
    fn new(lent: &Bound<'_, PyAny>) -> PyResult<Self>;

    /// Returns true in the thread of the loop.
    fn is_here(&self) -> bool;

    /// Begins a request: runs the first step of `coroutine` in a task of its own. `will_wait`: the request will
    /// certainly wait for something.
    ///
    /// # Errors
    /// An exception that ends the program; `MemoryError`.
    fn begin(&self, py: Python<'_>, coroutine: &Object, will_wait: bool) -> PyResult<FirstStep>;

    /// Has `conclusion` called with the task when the task has ended.
    ///
    /// # Errors
    /// `MemoryError`.
    fn call_at_end(&self, task: &Bound<'_, PyAny>, conclusion: Bound<'_, PyAny>) -> PyResult<()>;

    /// Returns the result of a task that has ended.
    ///
    /// # Errors
    /// The exception with which the task has ended.
    fn result_of(task: &Bound<'_, PyAny>) -> PyResult<()>;

    /// Makes a waiter for the current task, of this loop or of another one that runs in this thread.
    ///
    /// # Errors
    /// `RuntimeError` if no loop runs in this thread; `MemoryError`.
    fn waiter(&self, py: Python<'_>) -> PyResult<Self::Waiter>;

    /// Wakes a task while the loop waits for the engine: a task of this loop makes its step now.
    ///
    /// # Errors
    /// The exceptions that the task passes on, which end the program.
    fn wake(&self, py: Python<'_>, waiter: &Self::Waiter) -> PyResult<()>;

    /// Returns the timers of the loop. The loop does not replace them before its next iteration.
    fn timers(&self, py: Python<'_>) -> Self::Timers;

    /// Returns true if the loop has to run something, or to wait less long than at the time of
    /// [`timers`](Self::timers), or if that is not known.
    fn has_work(&self, py: Python<'_>, before: &Self::Timers) -> bool;

    /// Releases the tasks that the loop keeps for further requests: there are none.
    fn end(&self, py: Python<'_>);
}

/// A wait of one task, which is over when it is woken or cancelled.
pub(crate) trait TaskWaiter: Sized + Send {
    fn clone_ref(&self, py: Python<'_>) -> Self;

    /// Returns true if both are the same wait.
    fn is(&self, other: &Self) -> bool;

    /// Returns true if there is nothing to wait for any more.
    fn is_done(&self, py: Python<'_>) -> bool;

    /// Wakes the task in the next iteration of its loop. May be called from any thread.
    ///
    /// # Errors
    /// `MemoryError`.
    fn wake_soon(&self, py: Python<'_>) -> PyResult<()>;
}

/// The first step of a request.
pub(crate) enum FirstStep {
    /// The task is done.
    Over(PyResult<()>),
    /// The task waits for something.
    Waiting(Py<PyAny>),
}

/// The work of an object that the application awaits.
pub(crate) trait Operation: Sized + Send + 'static {
    type Waiter: TaskWaiter;

    /// Runs one step.
    ///
    /// # Errors
    /// `RuntimeError` if the operation was over before; any exception that the step raises, after which it is over.
    fn step(&self, py: Python<'_>) -> PyResult<Step<Self::Waiter>>;

    /// Ends the operation with an exception. Returns this exception, or `RuntimeError` if the operation was over
    /// before.
    fn throw(&self, py: Python<'_>, error: PyErr) -> PyErr;

    /// Ends the operation.
    fn close(&self, py: Python<'_>);

    /// Returns the warning for an operation that was never awaited, if it was not.
    fn warning(&self, py: Python<'_>) -> Option<&'static CStr>;
}

/// The result of a step of an operation.
pub(crate) enum Step<W> {
    /// Other tasks run before the next step.
    Pause,
    /// The next step follows when this waiter is done.
    Wait(W),
    /// The operation is over, with this value; `None`: without a value.
    Done(Option<Object>),
}

/// A type of objects that the application awaits.
pub(crate) trait Awaitable<O: Operation>: Sized {
    /// Makes the type, with a name such as `kirsch._native.Receiving`.
    ///
    /// # Errors
    /// `MemoryError`.
    fn new(py: Python<'_>, name: &'static CStr) -> PyResult<Self>;

    fn clone_ref(&self, py: Python<'_>) -> Self;

    /// Makes an object of the type.
    ///
    /// # Errors
    /// `MemoryError`.
    fn make(&self, py: Python<'_>, operation: O) -> PyResult<Object>;
}
