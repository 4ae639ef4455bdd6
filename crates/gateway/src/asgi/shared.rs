//! The data that the calls of a server share, including the event loop that hosts the engine.

use super::asyncio::AsyncioLoop;
use super::concurrency::EventLoop;
use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// The event loop that hosts the engine. If [`EventLoop`] gets a second implementation, this becomes an enum of both.
pub(super) type Loop = AsyncioLoop;
/// The wait of a task of this loop.
pub(super) type LoopWaiter = <Loop as EventLoop>::Waiter;

/// The data that the calls of a server share.
pub(crate) struct Shared {
    attached: OnceLock<Attached>,
    /// The calls in which a response head may have been set since the loop last waited.
    held_heads: Guarded<Vec<Py<PyAny>>>,
    /// A reusable buffer for parts of request bodies.
    buffer: Guarded<Vec<u8>>,
}

/// The objects that the loop's driver has lent.
pub(crate) struct Attached {
    event_loop: Loop,
    /// The state that the lifespan has made; `None` if the application does not support lifespan.
    state: Option<Object>,
    /// A function `note_step()` that makes the loop poll the engine before it waits. `None` if the loop does that
    /// itself.
    note_step: Option<Py<PyAny>>,
    /// The class of the exception that `send` raises when the client has left.
    disconnected: Py<PyAny>,
}

impl Attached {
    /// Takes the objects from the attributes of `lent`, which have the same names. The loop runs in this thread.
    ///
    /// # Errors
    /// `AttributeError` for a missing attribute.
    fn new(lent: &Bound<'_, PyAny>) -> PyResult<Self> {
        let optional = |name: &str| PyResult::Ok(Some(lent.getattr(name)?).filter(|value| !value.is_none()));
        Ok(Self {
            event_loop: Loop::new(lent)?,
            state: optional("state")?.map(|state| state.unbind().into()),
            note_step: optional("note_step")?.map(Bound::unbind),
            disconnected: lent.getattr("disconnected")?.unbind(),
        })
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self { attached: OnceLock::new(), held_heads: Guarded::new(Vec::new()), buffer: Guarded::new(Vec::new()) }
    }
}

impl Shared {
    /// Sets the loop; called once, before the first call of the application. `lent` has its parts as attributes.
    ///
    /// # Errors
    /// `RuntimeError` if a loop is set already; `AttributeError` for a missing attribute.
    pub(crate) fn attach(&self, lent: &Bound<'_, PyAny>) -> PyResult<()> {
        self.attached.set(Attached::new(lent)?).map_err(|_| PyRuntimeError::new_err("a loop hosts the engine already"))
    }

    pub(super) fn take_buffer(&self, py: Python<'_>) -> Vec<u8> {
        self.buffer.with(py, std::mem::take)
    }

    pub(super) fn return_buffer(&self, py: Python<'_>, buffer: Vec<u8>) {
        self.buffer.with(py, |kept| *kept = buffer);
    }

    /// Registers a call, so that its response head is sent before the loop waits.
    pub(super) fn hold_head(&self, py: Python<'_>, call: Py<PyAny>) {
        self.held_heads.with(py, |heads| heads.push(call));
    }

    /// Notes that a step of the loop may have created work for the engine.
    pub(super) fn note_step(&self, py: Python<'_>) {
        if let Some(Attached { note_step: Some(note_step), .. }) = self.attached.get()
            && let Err(error) = note_step.call0(py)
        {
            error.write_unraisable(py, None);
        }
    }

    pub(super) fn take_held_heads(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.held_heads.with(py, std::mem::take)
    }

    /// Returns the loop that hosts the engine.
    ///
    /// # Errors
    /// `RuntimeError` if there is none yet.
    pub(crate) fn event_loop(&self) -> PyResult<&Loop> {
        self.attached().map(|attached| &attached.event_loop)
    }

    /// Returns the state that the lifespan has made; `None` if the application does not support lifespan.
    ///
    /// # Errors
    /// As [`event_loop`](Self::event_loop).
    pub(super) fn state(&self) -> PyResult<Option<&Object>> {
        self.attached().map(|attached| attached.state.as_ref())
    }

    /// Creates the exception that `send` raises when the client has left.
    ///
    /// # Errors
    /// As [`event_loop`](Self::event_loop); the exception that its class raises.
    pub(super) fn disconnected<'py>(&self, py: Python<'py>, message: &str) -> PyResult<Bound<'py, PyAny>> {
        self.attached()?.disconnected.bind(py).call1((message,))
    }

    fn attached(&self) -> PyResult<&Attached> {
        self.attached.get().ok_or_else(|| PyRuntimeError::new_err("no loop hosts the engine"))
    }
}
