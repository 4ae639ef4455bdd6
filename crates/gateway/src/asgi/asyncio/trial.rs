//! A trial of a parked Task, run in each worker before the first request uses one. Another version of CPython, or a
//! patched build, may implement Tasks differently. Then the trial fails, and each request gets a new Task.
//!
//! The trial runs a step with a parked Task and checks what asyncio reports. It leaves a trace of each kind, which must
//! be detected, and removes it. Finally it ends one Task with a result and another by a cancellation.

use crate::object::Object;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

/// A parked Task under trial.
pub(super) trait Candidate {
    fn task(&self) -> &Object;

    fn name(&self) -> &Object;

    /// Calls `act` as a step of the Task.
    ///
    /// # Errors
    /// The exception that `act` raises; `RuntimeError` if another Task is current.
    fn step(&self, py: Python<'_>, act: impl FnOnce() -> PyResult<bool>) -> PyResult<Stepped>;

    /// Sets whether a cancellation of the Task is only noted instead of waking it.
    fn hold(&self, py: Python<'_>, is_held: bool);

    /// Ends the Task with a result.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn end(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<()>;
}

/// The outcome of a step.
pub(super) struct Stepped {
    /// True if `act` returned true and asyncio's records could be updated.
    pub(super) is_right: bool,
    /// True if no code can distinguish the Task from a new one.
    pub(super) is_untouched: bool,
}

pub(super) struct Trial<'py> {
    event_loop: &'py Object,
    asyncio: Bound<'py, PyModule>,
}

/// A function that leaves a trace of a Task's step. It stores what its removal needs in the dict.
type Leave = for<'py> fn(&Bound<'py, PyAny>, &Bound<'py, PyDict>) -> PyResult<()>;

/// The kinds of traces. For each, a function that leaves it, and one that removes it before the dict is cleared.
const TRACES: [(Leave, Option<Leave>); 6] = [
    // A holder keeps a reference to the Task.
    (|task, kept| kept.set_item("task", task), None),
    // A holder keeps a reference to the Task's context.
    (|task, kept| kept.set_item("context", task.call_method0("get_context")?), None),
    // A holder keeps a weak reference to the Task.
    (|task, kept| kept.set_item("weak", task.py().import("weakref")?.call_method1("ref", (task,))?), None),
    // The Task has an attribute.
    (|task, _| task.setattr("kirsch_trial", 1), Some(|task, _| task.delattr("kirsch_trial"))),
    // The Task has a done callback.
    (
        |task, kept| {
            let callback = PyCFunction::new_closure(task.py(), None, None, |_, _| ())?;
            task.call_method1("add_done_callback", (&callback,))?;
            kept.set_item("callback", callback)
        },
        Some(|task, kept| task.call_method1("remove_done_callback", (kept.as_any().get_item("callback")?,)).map(drop)),
    ),
    // The Task's context has another variable.
    (
        |task, kept| {
            let variable = task.py().import("contextvars")?.call_method1("ContextVar", ("kirsch_trial",))?;
            kept.set_item("token", variable.call_method1("set", (1,))?)?;
            kept.set_item("variable", variable)
        },
        Some(|_, kept| {
            let kept = kept.as_any();
            kept.get_item("variable")?.call_method1("reset", (kept.get_item("token")?,)).map(drop)
        }),
    ),
];

impl<'py> Trial<'py> {
    pub(super) fn new(py: Python<'py>, event_loop: &'py Object) -> PyResult<Self> {
        Ok(Self { event_loop, asyncio: py.import("asyncio")? })
    }

    /// Returns true if parked Tasks work; `None` if the trial cannot run now because another Task is current.
    ///
    /// # Errors
    /// An exception about a missing feature. It means the same as false.
    pub(super) fn run<C: Candidate>(&self, py: Python<'py>, make: impl Fn() -> PyResult<C>) -> PyResult<Option<bool>> {
        if self.current(py)?.is_some() {
            return Ok(None);
        }
        let make = || {
            let candidate = make()?;
            // A failed trial may leave the Task pending, which asyncio must not log.
            candidate.task().bind(py).setattr("_log_destroy_pending", false)?;
            PyResult::Ok(candidate)
        };
        Ok(Some(self.leaves_no_trace(py, &make()?)? && self.can_be_cancelled(py, &make()?)?))
    }

    /// Runs steps with a Task, and ends it with a result. No reference to the Task is kept between steps.
    fn leaves_no_trace(&self, py: Python<'py>, candidate: &impl Candidate) -> PyResult<bool> {
        let mut works = self.is_hidden(py, candidate)?;
        let first = candidate.step(py, || self.is_shown(py, candidate))?;
        works &= first.is_right && first.is_untouched && self.is_hidden(py, candidate)?;
        for (leave, remove) in TRACES {
            let kept = PyDict::new(py);
            let left = candidate.step(py, || leave(&candidate.task().bind(py), &kept).map(|()| true))?;
            let removed = candidate.step(py, || {
                if let Some(remove) = remove {
                    remove(&candidate.task().bind(py), &kept)?;
                }
                kept.clear();
                Ok(true)
            })?;
            works &= left.is_right && !left.is_untouched && removed.is_right && removed.is_untouched;
        }
        let value = PyDict::new(py).into_any();
        candidate.end(py, value.clone().unbind())?;
        Ok(works && self.is_hidden(py, candidate)? && candidate.task().bind(py).call_method0("result")?.is(&value))
    }

    /// Cancels a Task in its step.
    fn can_be_cancelled(&self, py: Python<'py>, candidate: &impl Candidate) -> PyResult<bool> {
        let cancelled = candidate.step(py, || {
            candidate.hold(py, true);
            candidate.task().bind(py).call_method0("cancel")?.is_truthy()
        })?;
        candidate.hold(py, false);
        candidate.end(py, py.None())?;
        let works = cancelled.is_right && !cancelled.is_untouched && self.is_hidden(py, candidate)?;
        Ok(works && candidate.task().bind(py).call_method0("cancelled")?.is_truthy()?)
    }

    /// Returns true if asyncio reports the Task as current, during its step.
    fn is_shown(&self, py: Python<'py>, candidate: &impl Candidate) -> PyResult<bool> {
        let task = candidate.task().bind(py);
        Ok(self.current(py)?.is_some_and(|current| current.is(&task))
            && self.is_known(&task)?
            && task.call_method0("get_name")?.is(candidate.name().bind(py))
            && !task.call_method0("done")?.is_truthy()?)
    }

    /// Returns true if asyncio reports neither this Task nor any current one.
    fn is_hidden(&self, py: Python<'py>, candidate: &impl Candidate) -> PyResult<bool> {
        Ok(self.current(py)?.is_none() && !self.is_known(&candidate.task().bind(py))?)
    }

    fn current(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let current = self.asyncio.call_method1("current_task", (self.event_loop.bind(py),))?;
        Ok((!current.is_none()).then_some(current))
    }

    fn is_known(&self, task: &Bound<'py, PyAny>) -> PyResult<bool> {
        self.asyncio.call_method1("all_tasks", (self.event_loop.bind(task.py()),))?.contains(task)
    }
}
