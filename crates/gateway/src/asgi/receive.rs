//! The messages that `receive` returns for an HTTP request.

use super::call::{Body, HttpCall, WaitFor};
use super::concurrency::EventLoop as _;
use super::shared::LoopWaiter;
use super::websocket::{incoming_event, take_event};
use crate::interface::Received;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The maximum number of body bytes in one message.
const PART: usize = 64 << 10;

impl HttpCall {
    /// Returns the next message, or, if there is none yet, a future that is done when there may be one.
    ///
    /// # Errors
    /// `RuntimeError` if no event loop is running; `MemoryError`.
    pub(super) fn receive(call: &Py<Self>, py: Python<'_>) -> PyResult<Result<Py<PyAny>, LoopWaiter>> {
        let this = call.get();
        if this.has_messages(py) && this.shared.event_loop()?.is_here() {
            return match Self::take_or_wait(call, py)? {
                Ok(incoming) => incoming_event(py, incoming).map(Ok),
                Err(future) => Ok(Err(future)),
            };
        }
        match this.take_message(py)? {
            Some(message) => Ok(Ok(message)),
            None => Self::wait_for(call, py, WaitFor::Message).map(Err),
        }
    }

    /// Returns the next message; `None` if there is none yet.
    fn take_message(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if let Some(phase) = self.phase(py) {
            return take_event(py, self, phase);
        }
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
        // The buffer is kept between parts, because a new one must be zeroed. If another thread is using it, a new one
        // is made.
        let mut buffer = self.shared.take_buffer(py);
        buffer.resize(PART, 0);
        let received = self.exchange().receive(py, &mut buffer);
        let bytes = match &received {
            Ok(Received::Bytes(count)) => PyBytes::new(py, &buffer[..*count]),
            _ => PyBytes::new(py, b""),
        };
        self.shared.return_buffer(py, buffer);
        match received? {
            Received::Bytes(_) => {
                // If the rest of the body will not arrive, the next message says so.
                let is_last = matches!(self.exchange().receive(py, &mut [])?, Received::End);
                if is_last {
                    self.set_body(py, Body::Ended);
                }
                part(&bytes, !is_last).map(Some)
            }
            Received::Pending => Ok(None),
            Received::End => {
                self.set_body(py, Body::Ended);
                part(&bytes, false).map(Some)
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

/// Creates the message that says that the client has left or that the response has ended.
fn disconnect(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let message = PyDict::new(py);
    message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
    Ok(message.into_any().unbind())
}
