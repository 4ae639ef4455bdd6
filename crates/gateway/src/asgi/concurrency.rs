//! The traits between ASGI and the library whose event loop runs the calls. The files of this folder know messages and
//! scopes; a subfolder, such as [`asyncio`](super::asyncio), knows tasks, futures and the loop.
//!
//! ```text
//!   messages ──▶ Operation ──▶ Awaitable: Operation::step ──▶ Step: done, or wait for a TaskWaiter
//!   engine ──▶ HttpCall ──▶ EventLoop::wake, TaskWaiter::wake_soon ──▶ the task steps its coroutine again
//! ```
//!
//! The types are resolved at compile time, so a call through these traits costs no more than a direct call.

use crate::object::Object;
use pyo3::prelude::*;
use std::ffi::CStr;

/// An event loop that hosts the engine.
pub(crate) trait EventLoop: Sized + Send + Sync {
    /// The wait of one task.
    type Waiter: TaskWaiter;
    /// The type of the awaitable objects for an operation.
    type Awaitable<O: Operation<Waiter = Self::Waiter>>: Awaitable<O>;
    /// A snapshot of the loop's timers in one iteration.
    type Timers;

    /// Takes the parts of the loop from the attributes of an object that its driver has made. The loop runs in this
    /// thread.
    ///
    /// # Errors
    /// `AttributeError` for a missing attribute.
    fn new(lent: &Bound<'_, PyAny>) -> PyResult<Self>;

    /// Returns true if this thread is that of the loop.
    fn is_here(&self) -> bool;

    /// Begins a request: runs the first step of `coroutine` in a new task. `will_wait` is true if the request will
    /// certainly have to wait.
    ///
    /// # Errors
    /// An exception that must end the program; `MemoryError`.
    fn begin(&self, py: Python<'_>, coroutine: &Object, will_wait: bool) -> PyResult<FirstStep>;

    /// Makes the loop call `conclusion` with the task when the task has ended.
    ///
    /// # Errors
    /// `MemoryError`.
    fn call_at_end(&self, task: &Bound<'_, PyAny>, conclusion: Bound<'_, PyAny>) -> PyResult<()>;

    /// Returns the result of an ended task.
    ///
    /// # Errors
    /// The exception that ended the task.
    fn result_of(task: &Bound<'_, PyAny>) -> PyResult<()>;

    /// Creates a waiter for the current task, of this loop or of another one that runs in this thread.
    ///
    /// # Errors
    /// `RuntimeError` if no loop is running in this thread; `MemoryError`.
    fn waiter(&self, py: Python<'_>) -> PyResult<Self::Waiter>;

    /// Wakes a task while the loop waits for the engine. A task of this loop runs a step at once.
    ///
    /// # Errors
    /// An exception that the task does not catch and that must end the program.
    fn wake(&self, py: Python<'_>, waiter: &Self::Waiter) -> PyResult<()>;

    /// Returns a snapshot of the loop's timers. The loop does not replace the list of timers before its next iteration.
    fn timers(&self, py: Python<'_>) -> Self::Timers;

    /// Returns true if the loop has a callback to run, or must wait for a shorter time than at the time of
    /// [`timers`](Self::timers), or if neither can be determined.
    fn has_work(&self, py: Python<'_>, before: &Self::Timers) -> bool;

    /// Releases the tasks that are kept for further requests, because there will be none.
    fn end(&self, py: Python<'_>);
}

/// The wait of one task. It ends when the task is woken or cancelled.
pub(crate) trait TaskWaiter: Sized + Send {
    fn clone_ref(&self, py: Python<'_>) -> Self;

    /// Returns true if both objects represent the same wait.
    fn is(&self, other: &Self) -> bool;

    /// Returns true if the wait has ended.
    fn is_done(&self, py: Python<'_>) -> bool;

    /// Wakes the task in the next iteration of its loop. May be called in any thread.
    ///
    /// # Errors
    /// `MemoryError`.
    fn wake_soon(&self, py: Python<'_>) -> PyResult<()>;
}

/// The outcome of the first step of a request.
pub(crate) enum FirstStep {
    /// The task has ended.
    Over(PyResult<()>),
    /// The task waits.
    Waiting(Py<PyAny>),
}

/// The work of an awaitable object.
pub(crate) trait Operation: Sized + Send + 'static {
    type Waiter: TaskWaiter;

    /// Runs the next step of the operation.
    ///
    /// # Errors
    /// `RuntimeError` if the operation had ended before; any exception of the step, which ends the operation.
    fn step(&self, py: Python<'_>) -> PyResult<Step<Self::Waiter>>;

    /// Ends the operation with an exception. Returns this exception, or `RuntimeError` if the operation had ended
    /// before.
    fn throw(&self, py: Python<'_>, error: PyErr) -> PyErr;

    /// Ends the operation. A later step raises `RuntimeError`.
    fn close(&self, py: Python<'_>);

    /// Returns the warning for an operation that was never awaited; `None` if it was awaited.
    fn warning(&self, py: Python<'_>) -> Option<&'static CStr>;
}

/// The result of a step of an operation.
pub(crate) enum Step<W> {
    /// Let other tasks run before the next step.
    Pause,
    /// Run the next step when this waiter is done.
    Wait(W),
    /// The operation has ended with this value, or with none.
    Done(Option<Object>),
}

/// A type of awaitable objects.
pub(crate) trait Awaitable<O: Operation>: Sized {
    /// Creates the type, with a name such as `kirsch._native.Receiving`.
    ///
    /// # Errors
    /// `MemoryError`.
    fn new(py: Python<'_>, name: &'static CStr) -> PyResult<Self>;

    fn clone_ref(&self, py: Python<'_>) -> Self;

    /// Creates an object of the type.
    ///
    /// # Errors
    /// `MemoryError`.
    fn make(&self, py: Python<'_>, operation: O) -> PyResult<Object>;
}
