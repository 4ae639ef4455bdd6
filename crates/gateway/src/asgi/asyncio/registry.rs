//! asyncio's records of Tasks: the current Task of each loop, and those that `asyncio.all_tasks` returns.
//!
//! CPython 3.12 and 3.13 keep them in a dict and a set. The server changes these directly, because that is faster than
//! a function call. Since 3.14 they are fields of the thread and a list linked through the Tasks. The server changes
//! these through asyncio's functions for implementers of Tasks ("Extending", in the documentation of asyncio).

use crate::object::Object;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};
use std::ptr;

pub(super) struct Registry {
    steps: Steps,
    register: Object,
    unregister: Object,
}

/// The records that change when a step begins and ends.
enum Steps {
    /// The collections that asyncio's functions change. `current`, a dict, has the running Task of each loop
    /// (`_enter_task`, `_leave_task`). `eager`, a set, has the Tasks in their first step (`_register_eager_task`,
    /// `_unregister_eager_task`).
    Collections { current: Object, eager: Object },
    /// The functions `_enter_task` and `_leave_task`. A Task in its first step is registered like any other.
    Functions { enter: Object, leave: Object },
}

impl Registry {
    /// Takes the records from the module `_asyncio`.
    ///
    /// # Errors
    /// `AttributeError` or `TypeError` if one is missing or has another type.
    pub(super) fn new(asyncio: &Bound<'_, PyModule>) -> PyResult<Self> {
        let get = |name: &str| asyncio.getattr(name).map(|function| Object::from(function.unbind()));
        let steps = if let Ok(current) = asyncio.getattr("_current_tasks") {
            let eager = asyncio.getattr("_eager_tasks")?.cast_into_exact::<PySet>()?;
            Steps::Collections {
                current: current.cast_into_exact::<PyDict>()?.into_any().unbind().into(),
                eager: eager.into_any().unbind().into(),
            }
        } else {
            Steps::Functions { enter: get("_enter_task")?, leave: get("_leave_task")? }
        };
        Ok(Self { steps, register: get("_register_task")?, unregister: get("_unregister_task")? })
    }

    /// Makes the Task the current one of the loop, which runs in this thread. Returns false if another Task is current,
    /// or if an allocation fails.
    pub(super) fn enter(&self, py: Python<'_>, event_loop: &Object, task: &Object) -> bool {
        match &self.steps {
            // SAFETY: all objects are live and the thread is attached. The result is borrowed, and only compared.
            Steps::Collections { current, .. } => unsafe {
                let current = ffi::PyDict_SetDefault(current.as_ptr(), event_loop.as_ptr(), task.as_ptr());
                done(!current.is_null()) && current == task.as_ptr()
            },
            Steps::Functions { enter, .. } => call(py, enter, [event_loop, task]).is_ok(),
        }
    }

    /// Undoes [`enter`](Self::enter). Returns false if the Task was not the current one.
    pub(super) fn leave(&self, py: Python<'_>, event_loop: &Object, task: &Object) -> bool {
        match &self.steps {
            // SAFETY: as above.
            Steps::Collections { current, .. } => unsafe {
                let found = ffi::PyDict_GetItemWithError(current.as_ptr(), event_loop.as_ptr());
                done(found == task.as_ptr()) && done(ffi::PyDict_DelItem(current.as_ptr(), event_loop.as_ptr()) == 0)
            },
            Steps::Functions { leave, .. } => call(py, leave, [event_loop, task]).is_ok(),
        }
    }

    /// Makes `asyncio.all_tasks` include the Task during its first step. Returns false if an allocation fails.
    pub(super) fn show(&self, py: Python<'_>, task: &Object) -> bool {
        match &self.steps {
            // SAFETY: both objects are live and the thread is attached.
            Steps::Collections { eager, .. } => done(unsafe { ffi::PySet_Add(eager.as_ptr(), task.as_ptr()) } == 0),
            Steps::Functions { .. } => self.register(py, task).is_ok(),
        }
    }

    /// Undoes [`show`](Self::show).
    pub(super) fn hide(&self, py: Python<'_>, task: &Object) -> bool {
        match &self.steps {
            // SAFETY: as above.
            Steps::Collections { eager, .. } => done(unsafe { ffi::PySet_Discard(eager.as_ptr(), task.as_ptr()) } >= 0),
            Steps::Functions { .. } => self.unregister(py, task).is_ok(),
        }
    }

    /// Makes `asyncio.all_tasks` include the Task until it is done.
    pub(super) fn register(&self, py: Python<'_>, task: &Object) -> PyResult<()> {
        call(py, &self.register, [task]).map(drop)
    }

    /// Undoes [`register`](Self::register).
    pub(super) fn unregister(&self, py: Python<'_>, task: &Object) -> PyResult<()> {
        call(py, &self.unregister, [task]).map(drop)
    }
}

/// Calls `function(*arguments)`.
pub(super) fn call<const N: usize>(py: Python<'_>, function: &Object, arguments: [&Object; N]) -> PyResult<Object> {
    let arguments = arguments.map(Object::as_ptr);
    // SAFETY: all objects are live, and the thread is attached.
    unsafe {
        let result = ffi::PyObject_Vectorcall(function.as_ptr(), arguments.as_ptr(), N, ptr::null_mut());
        Object::from_new_or_error(py, result)
    }
}

/// Returns the argument. If it is false, clears the Python exception, if one is set.
fn done(is_done: bool) -> bool {
    if !is_done {
        // SAFETY: the callers are attached to the interpreter.
        unsafe { ffi::PyErr_Clear() };
    }
    is_done
}
