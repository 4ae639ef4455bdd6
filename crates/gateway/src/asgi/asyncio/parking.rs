//! The coroutine of a parked Task, with which the Task can run more than one request ([`Tasks`](super::tasks::Tasks)).
//!
//! ```text
//!   Task ── steps ──▶ RequestCoroutine ── yields, at its first step ──▶ LoopFuture
//!     ▲                                                                    │
//!     └────────── the wake-up callback that asyncio gives it ◀─────────────┘
//! ```
//!
//! A parked Task waits for the future. The first step of a request runs with this Task as the current one, but not as a
//! step of the Task. If the request has to wait, or if it has ended and the Task cannot be reused, the future's
//! callback is called. Then the Task steps its coroutine, which yields the object for which the request waits, or ends
//! like the request. From then on it is an ordinary Task.

use super::future::{LoopFuture, cancelled_error};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyStopIteration};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The coroutine of a Task that is or was parked.
#[pyclass(frozen, module = "kirsch._native")]
pub(super) struct RequestCoroutine {
    progress: Mutex<Progress>,
}

enum Progress {
    /// The first step will yield this future.
    Created(Py<PyAny>),
    /// The Task waits for the future. During the first step of a request, this contains the request's coroutine.
    Parked(Option<Py<PyAny>>),
    /// The next step ends with the result of the request.
    Ended(PyResult<Py<PyAny>>),
    /// The next step yields the object for which the request waits.
    Yielding {
        coroutine: Py<PyAny>,
        awaited: Py<PyAny>,
    },
    /// Every step is a step of the request's coroutine. `cancelled` is raised in the next step: the Task was cancelled
    /// before its first wait, and the object for which it waits could not be cancelled.
    Running {
        coroutine: Py<PyAny>,
        cancelled: Option<PyErr>,
    },
    Over,
}

impl RequestCoroutine {
    pub(super) fn new(py: Python<'_>, future: &LoopFuture) -> Self {
        Self { progress: Mutex::new(Progress::Created(future.as_object().bind(py).unbind())) }
    }

    /// Notes that the first step of a request begins. Reports and debuggers can see `coroutine`.
    pub(super) fn begin(&self, coroutine: Py<PyAny>) {
        self.set(Progress::Parked(Some(coroutine)));
    }

    /// Notes that the first step has ended, and with it the request.
    pub(super) fn clear(&self) {
        self.set(Progress::Parked(None));
    }

    /// Makes the Task end with the result of the request.
    pub(super) fn end(&self, result: PyResult<Py<PyAny>>) {
        self.set(Progress::Ended(result));
    }

    /// Notes that the request waits for `awaited`, which its coroutine has yielded.
    pub(super) fn wait(&self, coroutine: Py<PyAny>, awaited: Py<PyAny>) {
        self.set(Progress::Yielding { coroutine, awaited });
    }

    /// Locks the progress. No Python code may run while the lock is held.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, next: Progress) {
        // Dropped outside of the lock, because the destructor may run application code.
        let before = std::mem::replace(&mut *self.lock(), next);
        drop(before);
    }

    fn step(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let progress = std::mem::replace(&mut *self.lock(), Progress::Over);
        match progress {
            Progress::Created(future) => {
                self.set(Progress::Parked(None));
                Ok(future)
            }
            Progress::Ended(result) => {
                Err(result.map_or_else(|error| error, |value| PyStopIteration::new_err((value,))))
            }
            Progress::Yielding { coroutine, awaited } => {
                self.set(Progress::Running { coroutine, cancelled: None });
                Ok(awaited)
            }
            Progress::Running { coroutine, cancelled } => {
                let cancelled = cancelled.filter(|_| !is_uncancelled(py));
                self.set(Progress::Running { coroutine: coroutine.clone_ref(py), cancelled: None });
                let result = match cancelled {
                    None => coroutine.call_method1(py, intern!(py, "send"), (py.None(),)),
                    Some(error) => coroutine.call_method1(py, intern!(py, "throw"), (error.into_value(py),)),
                };
                result.inspect_err(|_| self.set(Progress::Over))
            }
            // Only the pool wakes a parked Task, and it sets the next state first.
            Progress::Parked(_) | Progress::Over => {
                Err(PyRuntimeError::new_err("this is a bug in kirsch, please report it: a parked task was stepped"))
            }
        }
    }
}

#[pymethods]
impl RequestCoroutine {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.step(py)
    }

    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        // A Task always sends None.
        let _ = value;
        self.step(py)
    }

    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        // The exception has its own traceback.
        let _ = traceback;
        let error = PyErr::from_value(value.filter(|value| !value.is_none()).unwrap_or(kind).clone());
        let progress = std::mem::replace(&mut *self.lock(), Progress::Over);
        match progress {
            // Cancelled in its only step. As in asyncio, a Task whose coroutine then returns is cancelled, and one
            // whose coroutine raises ends with that exception.
            Progress::Ended(result) => Err(result.map_or_else(|raised| raised, |_| error)),
            // Cancelled in its first step: cancel the object for which the Task is about to wait, or else raise in the
            // Task's next step.
            Progress::Yielding { coroutine, awaited } => {
                let is_taken = cancel(awaited.bind(py), &error)?;
                self.set(Progress::Running { coroutine, cancelled: (!is_taken).then_some(error) });
                Ok(awaited)
            }
            Progress::Running { coroutine, cancelled } => {
                self.set(Progress::Running { coroutine: coroutine.clone_ref(py), cancelled: None });
                // As in asyncio, a pending cancellation replaces any other exception.
                let error = match cancelled {
                    Some(cancelled) if !is_cancellation(py, &error) && !is_uncancelled(py) => cancelled,
                    _ => error,
                };
                let result = coroutine.call_method1(py, intern!(py, "throw"), (error.into_value(py),));
                result.inspect_err(|_| self.set(Progress::Over))
            }
            // Cancelled while parked, as when the loop ends.
            Progress::Created(_) | Progress::Parked(_) | Progress::Over => Err(error),
        }
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let progress = std::mem::replace(&mut *self.lock(), Progress::Over);
        match progress {
            Progress::Yielding { coroutine, .. } | Progress::Running { coroutine, .. } => {
                coroutine.call_method0(py, intern!(py, "close")).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Returns any other attribute of a coroutine, such as `cr_frame` or its name, from the request's coroutine.
    fn __getattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        let coroutine = match &*self.lock() {
            Progress::Parked(Some(coroutine))
            | Progress::Yielding { coroutine, .. }
            | Progress::Running { coroutine, .. } => Some(coroutine.clone_ref(py)),
            _ => None,
        };
        match coroutine {
            Some(coroutine) => coroutine.getattr(py, name),
            None => match name.to_str()? {
                "__name__" | "__qualname__" => Ok(intern!(py, "request").clone().into_any().unbind()),
                "cr_running" | "cr_suspended" => Ok(false.into_pyobject(py)?.to_owned().into_any().unbind()),
                "cr_frame" | "cr_await" | "cr_origin" => Ok(py.None()),
                name => Err(PyAttributeError::new_err(format!("the coroutine of a request has no attribute {name:?}"))),
            },
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // If a step holds the lock, the references are visited in the next collection.
        let Ok(progress) = self.progress.try_lock() else { return Ok(()) };
        match &*progress {
            Progress::Created(future) => visit.call(future),
            Progress::Parked(coroutine) => visit.call(coroutine),
            Progress::Ended(Ok(value)) => visit.call(value),
            Progress::Yielding { coroutine, awaited } => {
                visit.call(coroutine)?;
                visit.call(awaited)
            }
            Progress::Running { coroutine, .. } => visit.call(coroutine),
            Progress::Ended(Err(_)) | Progress::Over => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.set(Progress::Over);
    }
}

/// Cancels the object for which the Task is about to wait, as the Task itself would. Returns true if that will end the
/// wait.
fn cancel(awaited: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<bool> {
    let py = awaited.py();
    // A bare yield cannot be cancelled. A future that was yielded incorrectly is left to the Task, which rejects it.
    let Some(is_blocking) = awaited.getattr_opt(intern!(py, "_asyncio_future_blocking"))? else { return Ok(false) };
    if !is_blocking.is_truthy()? {
        return Ok(false);
    }
    let arguments = PyDict::new(py);
    if let Ok(message) = error.value(py).getattr(intern!(py, "args")).and_then(|args| args.get_item(0)) {
        arguments.set_item(intern!(py, "msg"), message)?;
    }
    awaited.call_method(intern!(py, "cancel"), (), Some(&arguments))?.is_truthy()
}

/// Returns true if all cancellations of the current Task have been revoked by `uncancel`, in which case asyncio drops a
/// pending cancellation (since CPython 3.13).
fn is_uncancelled(py: Python<'_>) -> bool {
    let ask = || {
        let task = py.import("asyncio")?.call_method0("current_task")?;
        task.call_method0("cancelling")?.extract::<usize>()
    };
    py.version_info() >= (3, 13) && ask().is_ok_and(|count| count == 0)
}

fn is_cancellation(py: Python<'_>, error: &PyErr) -> bool {
    cancelled_error(py).is_ok_and(|kind| error.is_instance(py, kind))
}
