//! The object behind `environ["werkzeug.socket"]`. It hands the connection of a WebSocket request over to the
//! application, which then communicates with the client itself. The socket object is made in Python
//! (`kirsch.net.client_socket`), so that it cooperates with libraries that patch Python's sockets.

use super::start_response::StartResponseRef;
use crate::interface::{HijackId, HijackRefusal, Hijacked};
use pyo3::exceptions::{PyConnectionResetError, PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::OnceLock;

/// Hands the connection of a request over to the application.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct Hijack {
    /// The owner of the exchange.
    start_response: StartResponseRef,
    /// The id of the hijack, set once the application has the connection.
    id: OnceLock<HijackId>,
}

impl Hijack {
    pub(super) fn new(start_response: StartResponseRef) -> Self {
        Self { start_response, id: OnceLock::new() }
    }
}

#[pymethods]
impl Hijack {
    fn take(&self, py: Python<'_>) -> PyResult<RawFd> {
        let exchange = self.start_response.exchange();
        match exchange.hijack(py)? {
            Ok(Hijacked { socket, id }) => {
                // Setting cannot fail, because an exchange is hijacked only once.
                self.id.set(id).ok();
                Ok(socket.into_raw_fd())
            }
            Err(HijackRefusal::Over) if !exchange.is_over(py) && exchange.is_disconnected(py)? => {
                Err(PyConnectionResetError::new_err("the client has left"))
            }
            Err(HijackRefusal::Over) => Err(PyRuntimeError::new_err(
                "the connection cannot be taken over: the request has been answered, or its WebSocket accepted by \
                 wsgi.websocket, or its call is over",
            )),
            Err(HijackRefusal::Pipelined) => Err(PyRuntimeError::new_err(
                "the connection cannot be taken over: the client has sent more before its handshake was answered, or \
                 has not read earlier responses (RFC 6455 section 4.1 forbids the first)",
            )),
            Err(HijackRefusal::Failed(error)) if error.kind() == io::ErrorKind::Unsupported => {
                Err(PyOSError::new_err((
                    libc::EOPNOTSUPP,
                    "the connection is encrypted, so its socket cannot be used by the application; environ has \
                     wsgi.websocket for WebSockets over TLS",
                )))
            }
            Err(HijackRefusal::Failed(error)) => Err(error.into()),
        }
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.id.get().map_or(Ok(()), |&id| self.start_response.exchange().end_hijack(py, id))
    }
}
