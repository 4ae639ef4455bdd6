//! `receive` and the awaitables that it returns.

use super::call::{Body, HttpCall};
use crate::guarded::Guarded;
use crate::interface::Received;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The most bytes of a body in one message.
const PART: usize = 64 << 10;

/// `receive`
#[pyclass(frozen, module = "kirsch._native")]
pub(super) struct Receive {
    call: Py<HttpCall>,
}

impl Receive {
    pub(super) fn new(call: Py<HttpCall>) -> Self {
        Self { call }
    }
}

#[pymethods]
impl Receive {
    fn __call__(&self, py: Python<'_>) -> Receiving {
        Receiving { call: self.call.clone_ref(py), progress: Guarded::new(Progress::Created) }
    }
}

/// How far an awaitable is.
pub(super) enum Progress {
    Created,
    /// It goes on with this coroutine.
    Waiting(Py<PyAny>),
    Over,
}

/// What `receive()` returns: an awaitable with the methods of a coroutine, so that `asyncio.create_task` takes it. It takes
/// its message when it is first awaited. One that is cancelled before has taken none.
#[pyclass(frozen, module = "kirsch._native")]
pub(super) struct Receiving {
    call: Py<HttpCall>,
    progress: Guarded<Progress>,
}

/// The coroutine that an awaitable goes on with; `None` if it was not awaited yet.
///
/// # Errors
/// `RuntimeError` if it is over.
pub(super) fn resumed(py: Python<'_>, progress: &Guarded<Progress>) -> PyResult<Option<Py<PyAny>>> {
    // Cloning a reference runs nothing of Python's.
    let (coroutine, is_over) = progress.with(py, |progress| match progress {
        Progress::Created => (None, false),
        Progress::Waiting(coroutine) => (Some(coroutine.clone_ref(py)), false),
        Progress::Over => (None, true),
    });
    if is_over {
        return Err(PyRuntimeError::new_err("cannot reuse already awaited coroutine"));
    }
    Ok(coroutine)
}

/// Notes that an awaitable is over, or with which coroutine it goes on.
pub(super) fn set_progress(py: Python<'_>, progress: &Guarded<Progress>, next: Progress) {
    // Dropped outside, because that may run code of the application's.
    let before = progress.with(py, |progress| std::mem::replace(progress, next));
    drop(before);
}

/// Has the coroutine of an awaitable go on by `method(arguments)`, and notes its end.
pub(super) fn go_on<'py>(
    py: Python<'py>,
    progress: &Guarded<Progress>,
    coroutine: &Py<PyAny>,
    method: &Bound<'py, pyo3::types::PyString>,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Py<PyAny>> {
    let result = coroutine.bind(py).call_method1(method, arguments).map(Bound::unbind);
    if result.is_err() {
        set_progress(py, progress, Progress::Over);
    }
    result
}

/// Raises what `throw` was called with: an instance, or a class with arguments.
pub(super) fn thrown(kind: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) -> PyErr {
    match value {
        Some(value) if !value.is_none() => PyErr::from_value(value.clone()),
        _ => PyErr::from_value(kind.clone()),
    }
}

impl Receiving {
    fn step(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let coroutine = if let Some(coroutine) = resumed(py, &self.progress)? {
            coroutine
        } else {
            let message = self.call.get().take_message(py).inspect_err(|_| self.end(py))?;
            if let Some(message) = message {
                self.end(py);
                return Err(PyStopIteration::new_err((message,)));
            }
            let event_loop = self.call.get().shared.event_loop()?;
            let coroutine = event_loop.wait_to_receive.call1(py, (self.call.clone_ref(py),))?;
            set_progress(py, &self.progress, Progress::Waiting(coroutine.clone_ref(py)));
            coroutine
        };
        go_on(py, &self.progress, &coroutine, intern!(py, "send"), (value,))
    }

    fn end(&self, py: Python<'_>) {
        set_progress(py, &self.progress, Progress::Over);
    }
}

#[pymethods]
impl Receiving {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.step(py, None)
    }

    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.step(py, Some(value))
    }

    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let _ = traceback;
        let error = thrown(kind, value);
        let Some(coroutine) = resumed(py, &self.progress)? else {
            set_progress(py, &self.progress, Progress::Over);
            return Err(error);
        };
        go_on(py, &self.progress, &coroutine, intern!(py, "throw"), (error.into_value(py),))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let coroutine = resumed(py, &self.progress).ok().flatten();
        self.end(py);
        coroutine.map_or(Ok(()), |coroutine| coroutine.call_method0(py, intern!(py, "close")).map(drop))
    }
}

impl HttpCall {
    /// The next message; `None` if there is none yet.
    pub(super) fn take_message(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.is_finished(py) {
            return disconnect(py).map(Some);
        }
        match self.body(py) {
            Body::Empty => {
                self.set_body(py, Body::Ended);
                part(&PyBytes::new(py, b""), false).map(Some)
            }
            Body::Whole => {
                let bytes = self.take_whole_body(py).map(|bytes| bytes.bind(py));
                let bytes = bytes.unwrap_or_else(|| PyBytes::new(py, b"").into_any());
                part(&bytes, false).map(Some)
            }
            Body::Arriving => self.take_part(py),
            Body::Ended if self.exchange().is_disconnected(py)? => disconnect(py).map(Some),
            Body::Ended => Ok(None),
            Body::Broken => disconnect(py).map(Some),
        }
    }

    fn take_part(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let mut buffer = vec![0; PART];
        match self.exchange().receive(py, &mut buffer)? {
            Received::Bytes(count) => {
                // That the rest will not come is told in the next message.
                let is_last = matches!(self.exchange().receive(py, &mut [])?, Received::End);
                if is_last {
                    self.set_body(py, Body::Ended);
                }
                part(&PyBytes::new(py, &buffer[..count]), !is_last).map(Some)
            }
            Received::Pending => Ok(None),
            Received::End => {
                self.set_body(py, Body::Ended);
                part(&PyBytes::new(py, b""), false).map(Some)
            }
            Received::Left | Received::Broken => {
                self.set_body(py, Body::Broken);
                disconnect(py).map(Some)
            }
        }
    }
}

fn part(bytes: &Bound<'_, PyAny>, has_more: bool) -> PyResult<Py<PyAny>> {
    let py = bytes.py();
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
    message.set_item(intern!(py, "body"), bytes)?;
    message.set_item(intern!(py, "more_body"), has_more)?;
    Ok(message.into_any().unbind())
}

/// The message that says that the client has left, or that the response is over.
fn disconnect(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
    Ok(message.into_any().unbind())
}
