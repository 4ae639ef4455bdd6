//! The loop that hosts the engine of an ASGI application, and the Python objects that its calls use.

use super::future::LoopFuture;
use super::tasks::Tasks;
use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList};
use std::sync::OnceLock;

/// The data that the calls of a server share.
pub(crate) struct Shared {
    event_loop: OnceLock<EventLoop>,
    /// The calls that may have given their response a head, in a step that the loop has run, since the loop last
    /// waited.
    held_heads: Guarded<Vec<Py<PyAny>>>,
    /// The buffer into which parts of request bodies are read.
    buffer: Guarded<Vec<u8>>,
}

/// The loop that hosts the engine, and the Python objects that calls of the application use.
pub(crate) struct EventLoop {
    /// The thread in which it runs.
    pub(super) thread: libc::pthread_t,
    /// The maker of the Tasks of requests.
    pub(super) tasks: Tasks,
    /// The state that the lifespan has made; `None` if the application has no lifespan.
    pub(super) state: Option<Object>,
    /// `note_step()` has the engine polled before the loop waits. It is set if the loop's own wait does not do that.
    note_step: Option<Py<PyAny>>,
    /// The class of the exception that `send` raises when the client has left.
    pub(super) disconnected: Py<PyAny>,
    /// The queues of CPython's own loop, if they are laid out as expected.
    queues: Option<Queues>,
}

/// The pending work of CPython's own loop: its attributes `_ready`, a deque of handles; `_scheduled`, a list of timers
/// with the one that is due first in front; and `_stopping`.
struct Queues {
    event_loop: Object,
    ready: Object,
    scheduled: Object,
    stopping: Object,
}

/// The timers of a loop in this iteration, and the address of the one that is due first.
pub(crate) struct Timers(Option<(Object, Option<usize>)>);

impl EventLoop {
    /// Takes its parts from an object with attributes of the same names. The loop runs in this thread.
    ///
    /// # Errors
    /// `AttributeError` for a missing attribute.
    pub(crate) fn new(lent: &Bound<'_, PyAny>) -> PyResult<Self> {
        let optional = |name: &str| PyResult::Ok(Some(lent.getattr(name)?).filter(|value| !value.is_none()));
        Ok(Self {
            // SAFETY: the call takes nothing and cannot fail.
            thread: unsafe { libc::pthread_self() },
            tasks: Tasks::new(lent)?,
            state: optional("state")?.map(|state| state.unbind().into()),
            note_step: optional("note_step")?.map(Bound::unbind),
            disconnected: lent.getattr("disconnected")?.unbind(),
            queues: Queues::of(&lent.getattr("event_loop")?),
        })
    }

    /// Returns the loop's timers. The loop does not replace the list before its next iteration.
    pub(crate) fn timers(&self, py: Python<'_>) -> Timers {
        let timers = self.queues.as_ref().and_then(|queues| queues.event_loop.attribute(py, &queues.scheduled).ok());
        Timers(timers.map(|timers| {
            let first = first_of(py, &timers);
            (timers, first)
        }))
    }

    /// Returns true if the loop has to run something, or to wait less long than at the time of
    /// [`timers`](Self::timers), or if that is not known.
    pub(crate) fn has_work(&self, py: Python<'_>, before: &Timers) -> bool {
        let (Some(queues), Some((timers, first))) = (&self.queues, &before.0) else { return true };
        let is_stopping = || queues.event_loop.attribute(py, &queues.stopping)?.bind(py).is_truthy();
        queues.ready.bind(py).len().unwrap_or(1) > 0 || first_of(py, timers) != *first || is_stopping().unwrap_or(true)
    }

    /// Makes a future of the loop that runs in this thread.
    ///
    /// # Errors
    /// `RuntimeError` if no loop runs in this thread.
    pub(super) fn future(&self, py: Python<'_>) -> PyResult<LoopFuture> {
        let futures = &self.tasks.futures;
        if self.is_here() { futures.make(py) } else { futures.make_elsewhere(py) }
    }

    pub(super) fn is_here(&self) -> bool {
        // SAFETY: as above.
        self.thread == unsafe { libc::pthread_self() }
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

/// Returns the address of a list's first item.
fn first_of(py: Python<'_>, list: &Object) -> Option<usize> {
    let list = list.bind(py);
    let list = list.cast::<PyList>().ok()?;
    if list.is_empty() { None } else { list.get_item(0).ok().map(|item| item.as_ptr().addr()) }
}

impl Default for Shared {
    fn default() -> Self {
        Self { event_loop: OnceLock::new(), held_heads: Guarded::new(Vec::new()), buffer: Guarded::new(Vec::new()) }
    }
}

impl Shared {
    /// Sets the loop, once and before the first call.
    ///
    /// # Errors
    /// `RuntimeError` if a loop is set already.
    pub(crate) fn attach(&self, event_loop: EventLoop) -> PyResult<()> {
        self.event_loop.set(event_loop).map_err(|_| PyRuntimeError::new_err("a loop hosts the engine already"))
    }

    pub(super) fn take_buffer(&self, py: Python<'_>) -> Vec<u8> {
        self.buffer.with(py, std::mem::take)
    }

    pub(super) fn return_buffer(&self, py: Python<'_>, buffer: Vec<u8>) {
        self.buffer.with(py, |kept| *kept = buffer);
    }

    /// Has the head of a response sent before the loop waits.
    pub(super) fn hold_head(&self, py: Python<'_>, call: Py<PyAny>) {
        self.held_heads.with(py, |heads| heads.push(call));
    }

    /// Notes that a step of the loop may have changed the next work of the engine.
    pub(super) fn note_step(&self, py: Python<'_>) {
        if let Some(EventLoop { note_step: Some(note_step), .. }) = self.event_loop.get()
            && let Err(error) = note_step.call0(py)
        {
            error.write_unraisable(py, None);
        }
    }

    pub(super) fn take_held_heads(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.held_heads.with(py, std::mem::take)
    }

    pub(crate) fn event_loop(&self) -> PyResult<&EventLoop> {
        self.event_loop.get().ok_or_else(|| PyRuntimeError::new_err("no loop hosts the engine"))
    }
}
