//! Sends messages of HTTP requests and of WebSockets.

use super::call::HttpCall;
use super::complaint::wrong_type;
use super::entries::first_entry;
use super::send;
use super::websocket::{self, Outcome};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Sends a message of either kind.
pub(super) fn send_any(py: Python<'_>, call: &Py<HttpCall>, message: &Bound<'_, PyAny>) -> PyResult<Outcome> {
    let Ok(message) = message.cast::<PyDict>() else {
        return Err(wrong_type(
            message,
            "a message must be a dict such as {'type': 'http.response.start', 'status': 200}",
        ));
    };
    let Some(kind) = first_entry(message, intern!(py, "type"))? else {
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
