//! `send` and the awaitables that it returns.

use super::awaitable::Awaitable;
use super::call::HttpCall;
use super::complaint::wrong_type;
use super::send;
use super::websocket::{self, Outcome};
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// `send`
#[pyclass(frozen, module = "kirsch._native")]
pub(super) struct Send {
    call: Py<HttpCall>,
}

impl Send {
    pub(super) fn new(call: Py<HttpCall>) -> Self {
        Self { call }
    }
}

#[pymethods]
impl Send {
    fn __call__(&self, py: Python<'_>, message: Py<PyAny>) -> Sending {
        Sending { call: self.call.clone_ref(py), message, awaitable: Awaitable::new() }
    }
}

/// What `send(message)` returns: an awaitable with the methods of a coroutine, so that `asyncio.create_task` takes it. It
/// sends the message when it is first awaited, and then waits if the client reads slowly.
#[pyclass(frozen, module = "kirsch._native")]
pub(super) struct Sending {
    call: Py<HttpCall>,
    message: Py<PyAny>,
    awaitable: Awaitable,
}

impl Sending {
    /// Goes on. `None`: it is over.
    fn step(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<PyAny>>> {
        self.awaitable.step(py, value, || {
            let outcome = send_any(py, &self.call, self.message.bind(py))?;
            let event_loop = self.call.get().shared.event_loop()?;
            let call = self.call.clone_ref(py);
            match outcome {
                Outcome::Done => Ok(None),
                Outcome::Wait => event_loop.wait_to_send.call1(py, (call,)).map(Some),
                Outcome::Again => {
                    let again = SendAgain { call: call.clone_ref(py), message: self.message.clone_ref(py) };
                    event_loop.send_later.call1(py, (call, again)).map(Some)
                }
            }
        })
    }
}

#[pymethods]
impl Sending {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.step(py, None)
    }

    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        self.step(py, Some(value))?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value = None, traceback = None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        // It is the exception's own.
        let _ = traceback;
        self.awaitable.throw(py, kind, value)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.awaitable.close(py)
    }
}

/// Sends a message for which there was no room before. It returns None if there is none still; otherwise whether the client
/// has still to take some of what was written.
#[pyclass(frozen, module = "kirsch._native")]
struct SendAgain {
    call: Py<HttpCall>,
    message: Py<PyAny>,
}

#[pymethods]
impl SendAgain {
    fn __call__(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        Ok(match send_any(py, &self.call, self.message.bind(py))? {
            Outcome::Done => Some(false),
            Outcome::Wait => Some(true),
            Outcome::Again => None,
        })
    }
}

/// Sends a message.
fn send_any(py: Python<'_>, call: &Py<HttpCall>, message: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let Ok(message) = message.cast::<PyDict>() else {
        return Err(wrong_type(
            message,
            "a message must be a dict such as {'type': 'http.response.start', 'status': 200}",
        ));
    };
    let Some(kind) = message.get_item(intern!(py, "type"))? else {
        return Err(PyValueError::new_err("the message has no 'type', such as 'http.response.start'"));
    };
    let Ok(kind) = kind.cast::<PyString>() else {
        return Err(wrong_type(&kind, "the type of a message must be a str such as 'http.response.start'"));
    };
    let kind = kind.to_string_lossy();
    if let Some(phase) = call.get().phase(py) {
        return websocket::send(py, call, phase, &kind, message);
    }
    let must_wait = send::send(py, call, &kind, message)?;
    Ok(if must_wait { Outcome::Wait } else { Outcome::Done })
}
