//! A trial of a parked Task, before the first request of a worker gets one. Another version of CPython, or a build with
//! patches, may keep its Tasks in another way. Then the trial fails, and each request has a Task of its own.
//!
//! The trial takes a step with a parked Task and asks asyncio what it sees; leaves a trace of each kind, which must be
//! seen, and removes it; and ends a Task with a result, and another one by a cancellation.

use crate::object::Object;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

/// A parked Task that is tried out.
pub(super) trait Candidate {
    fn task(&self) -> &Object;

    fn name(&self) -> &Object;

    /// Calls `act` as a step of the Task.
    ///
    /// # Errors
    /// The exception that `act` raises; `RuntimeError` if another Task is current.
    fn step(&self, py: Python<'_>, act: impl FnOnce() -> PyResult<bool>) -> PyResult<Stepped>;

    /// Has the Task note by itself that it was cancelled, or no longer.
    fn hold(&self, py: Python<'_>, is_held: bool);

    /// Ends the Task with a result.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn end(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<()>;
}

/// The outcome of a step.
pub(super) struct Stepped {
    /// True if it returned true, and asyncio's records could be kept.
    pub(super) is_right: bool,
    /// True if no code can tell the Task from a new one.
    pub(super) is_untouched: bool,
}

pub(super) struct Trial<'py> {
    event_loop: &'py Object,
    asyncio: Bound<'py, PyModule>,
}

/// A way to leave something behind in a step of a Task, which the function leaves in a dict for its undoing.
type Leave = for<'py> fn(&Bound<'py, PyAny>, &Bound<'py, PyDict>) -> PyResult<()>;

/// The traces, and what removes each before the dict is cleared.
const TRACES: [(Leave, Option<Leave>); 6] = [
    // A reference to the Task.
    (|task, kept| kept.set_item("task", task), None),
    // A reference to its context.
    (|task, kept| kept.set_item("context", task.call_method0("get_context")?), None),
    // A weak reference.
    (|task, kept| kept.set_item("weak", task.py().import("weakref")?.call_method1("ref", (task,))?), None),
    // An attribute.
    (|task, _| task.setattr("kirsch_trial", 1), Some(|task, _| task.delattr("kirsch_trial"))),
    // A callback.
    (
        |task, kept| {
            let callback = PyCFunction::new_closure(task.py(), None, None, |_, _| ())?;
            task.call_method1("add_done_callback", (&callback,))?;
            kept.set_item("callback", callback)
        },
        Some(|task, kept| task.call_method1("remove_done_callback", (kept.as_any().get_item("callback")?,)).map(drop)),
    ),
    // A variable of the context.
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

    /// Returns true if parked Tasks behave; `None` if that cannot be tried now, because another Task is current.
    ///
    /// # Errors
    /// Exceptions of what is missing, which mean as much as false.
    pub(super) fn run<C: Candidate>(&self, py: Python<'py>, make: impl Fn() -> PyResult<C>) -> PyResult<Option<bool>> {
        if self.current(py)?.is_some() {
            return Ok(None);
        }
        let make = || {
            let candidate = make()?;
            // A trial that fails may leave the Task as it is.
            candidate.task().bind(py).setattr("_log_destroy_pending", false)?;
            PyResult::Ok(candidate)
        };
        Ok(Some(self.leaves_no_trace(py, &make()?)? && self.can_be_cancelled(py, &make()?)?))
    }

    /// Takes steps with a Task, and ends it with a result. No reference to the Task is kept meanwhile.
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

    /// Returns true if asyncio sees the Task in its step.
    fn is_shown(&self, py: Python<'py>, candidate: &impl Candidate) -> PyResult<bool> {
        let task = candidate.task().bind(py);
        Ok(self.current(py)?.is_some_and(|current| current.is(&task))
            && self.is_known(&task)?
            && task.call_method0("get_name")?.is(candidate.name().bind(py))
            && !task.call_method0("done")?.is_truthy()?)
    }

    /// Returns true if asyncio does not see the Task, and no other one is current.
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
