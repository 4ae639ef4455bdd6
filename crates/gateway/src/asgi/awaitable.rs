//! How far an awaitable of `receive` or `send` is, and its methods of a coroutine.

use crate::guarded::Guarded;
use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

enum Progress {
    Created,
    /// It goes on with this coroutine.
    Waiting(Py<PyAny>),
    Over,
}

pub(super) struct Awaitable {
    progress: Guarded<Progress>,
}

impl Awaitable {
    pub(super) fn new() -> Self {
        Self { progress: Guarded::new(Progress::Created) }
    }

    /// Goes on, or begins: `begin` returns the coroutine to wait with. `None`: it is over, as `begin` says.
    ///
    /// # Errors
    /// `RuntimeError` if it was over before; what `begin` and the coroutine raise, after which it is over.
    pub(super) fn step(
        &self,
        py: Python<'_>,
        value: Option<&Bound<'_, PyAny>>,
        begin: impl FnOnce() -> PyResult<Option<Py<PyAny>>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let coroutine = if let Some(coroutine) = self.resumed(py)? {
            coroutine
        } else {
            // Over unless there is something to wait for: an exception is raised once.
            self.set(py, Progress::Over);
            let Some(coroutine) = begin()? else { return Ok(None) };
            self.set(py, Progress::Waiting(coroutine.clone_ref(py)));
            coroutine
        };
        self.go_on(py, &coroutine, intern!(py, "send"), (value,)).map(Some)
    }

    /// Raises in the coroutine what `throw` was called with: an instance, or a class with arguments.
    pub(super) fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let error = PyErr::from_value(value.filter(|value| !value.is_none()).unwrap_or(kind).clone());
        let Some(coroutine) = self.resumed(py)? else {
            self.set(py, Progress::Over);
            return Err(error);
        };
        self.go_on(py, &coroutine, intern!(py, "throw"), (error.into_value(py),))
    }

    pub(super) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let coroutine = self.resumed(py).ok().flatten();
        self.set(py, Progress::Over);
        coroutine.map_or(Ok(()), |coroutine| coroutine.call_method0(py, intern!(py, "close")).map(drop))
    }

    /// The coroutine that it goes on with; `None` if it was not awaited yet.
    ///
    /// # Errors
    /// `RuntimeError` if it is over.
    fn resumed(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // Cloning a reference runs nothing of Python's.
        let (coroutine, is_over) = self.progress.with(py, |progress| match progress {
            Progress::Created => (None, false),
            Progress::Waiting(coroutine) => (Some(coroutine.clone_ref(py)), false),
            Progress::Over => (None, true),
        });
        if is_over {
            return Err(PyRuntimeError::new_err("cannot reuse already awaited coroutine"));
        }
        Ok(coroutine)
    }

    fn set(&self, py: Python<'_>, next: Progress) {
        // Dropped outside, because that may run code of the application's.
        let before = self.progress.with(py, |progress| std::mem::replace(progress, next));
        drop(before);
    }

    /// Has the coroutine go on by `method(arguments)`, and notes its end.
    fn go_on<'py>(
        &self,
        py: Python<'py>,
        coroutine: &Py<PyAny>,
        method: &Bound<'py, PyString>,
        arguments: impl PyCallArgs<'py>,
    ) -> PyResult<Py<PyAny>> {
        let result = coroutine.bind(py).call_method1(method, arguments).map(Bound::unbind);
        if result.is_err() {
            self.set(py, Progress::Over);
        }
        result
    }
}
