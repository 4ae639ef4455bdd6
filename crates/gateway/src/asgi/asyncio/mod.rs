//! The asyncio implementation: the tasks of requests, the futures for which they wait, and the loop that hosts the
//! engine.

mod awaitable;
mod future;
mod parking;
mod registry;
mod tasks;
mod trial;

use super::concurrency::{EventLoop, FirstStep, Operation};
use crate::object::Object;
use crate::thread_id::{ThreadId, this_thread};
pub(crate) use awaitable::AwaitableType;
pub(crate) use future::LoopFuture;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList};
use tasks::Tasks;

/// The asyncio loop that hosts the engine.
pub(crate) struct AsyncioLoop {
    /// The thread that runs the loop.
    thread: ThreadId,
    /// Creates the Tasks of requests.
    tasks: Tasks,
    /// The queues of CPython's own loop; `None` if the loop has another class or another structure.
    queues: Option<Queues>,
}

/// The pending work in CPython's own loop: its attributes `_ready`, a deque of handles; `_scheduled`, a heap of timers
/// with the earliest first; and `_stopping`.
struct Queues {
    event_loop: Object,
    ready: Object,
    scheduled: Object,
    stopping: Object,
}

/// A loop's list of timers in this iteration, and the address of the earliest timer.
pub(crate) struct Timers(Option<(Object, Option<usize>)>);

impl EventLoop for AsyncioLoop {
    type Waiter = LoopFuture;
    type Awaitable<O: Operation<Waiter = LoopFuture>> = AwaitableType<O>;
    type Timers = Timers;

    fn new(lent: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { thread: this_thread(), tasks: Tasks::new(lent)?, queues: Queues::of(&lent.getattr("event_loop")?) })
    }

    fn is_here(&self) -> bool {
        self.thread == this_thread()
    }

    fn begin(&self, py: Python<'_>, coroutine: &Object, will_wait: bool) -> PyResult<FirstStep> {
        self.tasks.begin(py, coroutine, will_wait)
    }

    fn call_at_end(&self, task: &Bound<'_, PyAny>, conclusion: Bound<'_, PyAny>) -> PyResult<()> {
        task.call_method1(intern!(task.py(), "add_done_callback"), (conclusion,)).map(drop)
    }

    fn result_of(task: &Bound<'_, PyAny>) -> PyResult<()> {
        tasks::result_of(task)
    }

    fn waiter(&self, py: Python<'_>) -> PyResult<LoopFuture> {
        let futures = self.tasks.futures();
        if self.is_here() { futures.make(py) } else { futures.make_elsewhere(py) }
    }

    fn wake(&self, py: Python<'_>, future: &LoopFuture) -> PyResult<()> {
        self.tasks.futures().wake(py, future)
    }

    fn timers(&self, py: Python<'_>) -> Timers {
        let timers = self.queues.as_ref().and_then(|queues| queues.event_loop.attribute(py, &queues.scheduled).ok());
        Timers(timers.map(|timers| {
            let first = first_of(py, &timers);
            (timers, first)
        }))
    }

    fn has_work(&self, py: Python<'_>, before: &Timers) -> bool {
        let (Some(queues), Some((timers, first))) = (&self.queues, &before.0) else { return true };
        let is_stopping = || queues.event_loop.attribute(py, &queues.stopping)?.bind(py).is_truthy();
        queues.ready.bind(py).len().unwrap_or(1) > 0 || first_of(py, timers) != *first || is_stopping().unwrap_or(true)
    }

    fn end(&self, py: Python<'_>) {
        self.tasks.end(py);
    }
}

impl Queues {
    /// Returns the queues of `event_loop`; `None` if it is not CPython's own loop.
    fn of(event_loop: &Bound<'_, PyAny>) -> Option<Self> {
        let py = event_loop.py();
        let class = py.import("asyncio").ok()?.getattr("SelectorEventLoop").ok()?;
        let ready = event_loop.getattr("_ready").ok()?;
        let is_known = event_loop.get_type().is(&class)
            && ready.get_type().name().is_ok_and(|name| name == "deque")
            && event_loop.getattr("_scheduled").is_ok_and(|timers| timers.is_exact_instance_of::<PyList>())
            && event_loop.getattr("_stopping").is_ok_and(|stopping| stopping.is_exact_instance_of::<PyBool>());
        if !is_known {
            return None;
        }
        Some(Self {
            event_loop: event_loop.clone().unbind().into(),
            ready: ready.unbind().into(),
            scheduled: Object::interned(py, c"_scheduled").ok()?,
            stopping: Object::interned(py, c"_stopping").ok()?,
        })
    }
}

/// Returns the address of a list's first item; `None` if the list is empty.
fn first_of(py: Python<'_>, list: &Object) -> Option<usize> {
    let list = list.bind(py);
    let list = list.cast::<PyList>().ok()?;
    if list.is_empty() { None } else { list.get_item(0).ok().map(|item| item.as_ptr().addr()) }
}
