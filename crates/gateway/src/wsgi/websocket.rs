//! `environ["wsgi.websocket"]`: the WebSocket of a request. In Python it is `kirsch.websocket.WebSocket`, which is
//! documented in `_native.pyi`.
//!
//! ```text
//!   Asked ─ accept, or the first use ─▶ open ─┬─ receive, iteration: the call has the messages, and holds its thread
//!     └─ any other response                   └─ handle: a handler has them, when the call has returned
//! ```

use super::start_response::StartResponseRef;
use crate::interface::{
    Acceptance, Exchange, Incoming, Message, MessageHandler, MessageSent, OutgoingMessage, WebSocketEnd,
};
use crate::object::{Chunk, Object};
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTimeoutError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyInt, PyList, PyMemoryView, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::websocket::{AcceptMisuse, CloseCode, Outgoing};

pyo3::import_exception!(kirsch.websocket, Closed);
pyo3::import_exception!(kirsch.websocket, QueueFull);

/// The maximum number of bytes of a Close frame's reason (RFC 6455 section 5.5: 125, less two for the code).
const REASON_MAX: usize = 123;

/// The WebSocket of a request, as the application uses it.
#[pyclass(frozen, weakref, module = "kirsch._native")]
pub(crate) struct WebSocket {
    /// The owner of the exchange.
    start_response: StartResponseRef,
    /// The subprotocols that the client offered.
    subprotocols: Box<[String]>,
    state: Mutex<SocketState>,
}

#[derive(Default)]
struct SocketState {
    /// The subprotocol that the application chose.
    subprotocol: Option<String>,
    /// True if a handler receives the messages.
    is_handled: bool,
    end: Option<WebSocketEnd>,
    /// An object that the application attached.
    data: Option<Py<PyAny>>,
}

impl WebSocket {
    pub(super) fn new(py: Python<'_>, start_response: StartResponseRef, environ: &Object) -> Self {
        // The field is valid, because the handshake was checked: tokens separated by commas.
        let offered = environ.item_text(py, "HTTP_SEC_WEBSOCKET_PROTOCOL").unwrap_or_default();
        let names = offered.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
        Self { start_response, subprotocols: names.collect(), state: Mutex::default() }
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        self.start_response.exchange()
    }

    /// Locks the state. While the lock is held, no Python code may run and nothing may panic.
    fn state(&self) -> MutexGuard<'_, SocketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_upgraded(&self, py: Python<'_>) -> bool {
        self.start_response.exchange().is_websocket(py)
    }

    /// Accepts the WebSocket, if that has not been done.
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        let is_over = self.state().end.is_some();
        if is_over || self.is_upgraded(py) { Ok(()) } else { self.accept_as(py, None, &[]) }
    }

    fn accept_as(&self, py: Python<'_>, subprotocol: Option<&str>, fields: &[(Vec<u8>, Vec<u8>)]) -> PyResult<()> {
        match self.start_response.exchange().accept(py, subprotocol, fields)? {
            Acceptance::Accepted => {
                self.state().subprotocol = subprotocol.map(str::to_owned);
                Ok(())
            }
            // Another thread has accepted it first.
            Acceptance::Gone if self.is_upgraded(py) => Ok(()),
            Acceptance::Gone if self.start_response.exchange().is_disconnected(py)? => {
                Err(closed(&self.note_end(WebSocketEnd::abnormal())))
            }
            Acceptance::Gone => Err(PyRuntimeError::new_err(
                "the request is answered already: a WebSocket is accepted before any response begins",
            )),
            Acceptance::Misused(AcceptMisuse::SubprotocolNotOffered) => Err(PyValueError::new_err(format!(
                "{}: {:?}; the client offers {:?}",
                AcceptMisuse::SubprotocolNotOffered,
                subprotocol.unwrap_or_default(),
                self.subprotocols,
            ))),
            Acceptance::Misused(misuse) => Err(PyValueError::new_err(misuse.to_string())),
        }
    }

    /// Stores the end if none is stored yet. Returns the stored end, which is the first.
    fn note_end(&self, end: WebSocketEnd) -> WebSocketEnd {
        self.state().end.get_or_insert(end).clone()
    }

    /// Returns the close code and reason; `None` if the WebSocket is open or has not been accepted.
    fn end(&self, py: Python<'_>) -> PyResult<Option<WebSocketEnd>> {
        let known = self.state().end.clone();
        if known.is_some() {
            return Ok(known);
        }
        let exchange = self.start_response.exchange();
        let end = if self.is_upgraded(py) {
            exchange.websocket_end(py)?
        } else {
            // The call has ended, and so has its WebSocket.
            exchange.is_over(py).then(WebSocketEnd::abnormal)
        };
        Ok(end.map(|end| self.note_end(end)))
    }

    /// Returns the next message. Waits up to `timeout` for it (`None`: without limit). Returns `Err(Some(end))` if the
    /// WebSocket has ended, and `Err(None)` if the timeout has passed.
    fn take(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Result<Py<PyAny>, Option<WebSocketEnd>>> {
        if self.state().is_handled {
            return Err(PyRuntimeError::new_err(
                "the messages of this WebSocket go to its handler: use what message() is given",
            ));
        }
        self.open(py)?;
        Ok(match self.start_response.exchange().receive_message(py, timeout)? {
            Incoming::Message(Message::Text(object) | Message::Binary(object)) => Ok(object.bind(py).clone().unbind()),
            Incoming::Pending => Err(None),
            Incoming::End(end) => Err(Some(self.note_end(end))),
        })
    }
}

#[pymethods]
impl WebSocket {
    #[pyo3(signature = (subprotocol = None, headers = None))]
    fn accept(
        &self,
        py: Python<'_>,
        subprotocol: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let name = match subprotocol {
            None => None,
            Some(name) => match name.cast::<PyString>() {
                Ok(name) => Some(name.to_str()?.to_owned()),
                Err(_) => return Err(wrong_type(name, "the subprotocol must be a str such as 'graphql-ws', or None")),
            },
        };
        let fields = headers.map_or_else(|| Ok(Vec::new()), fields)?;
        if self.is_upgraded(py) || self.state().end.is_some() {
            return Err(PyRuntimeError::new_err(
                "the WebSocket has been accepted already: accept comes before send, receive and handle",
            ));
        }
        self.accept_as(py, name.as_deref(), &fields)
    }

    #[pyo3(signature = (timeout = None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        match self.take(py, duration(timeout)?)? {
            Ok(message) => Ok(message),
            Err(Some(end)) => Err(closed(&end)),
            Err(None) => {
                Err(PyTimeoutError::new_err(format!("no message has come in {} s", timeout.unwrap_or_default())))
            }
        }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.take(py, None)? {
            Ok(message) => Ok(message),
            Err(_) => Err(PyStopIteration::new_err(())),
        }
    }

    #[pyo3(signature = (data, timeout = None))]
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = duration(timeout)?;
        let message = Data::of(data)?;
        self.open(py)?;
        match self.start_response.exchange().send_message_in(py, &message.message()?, timeout)? {
            MessageSent::Done | MessageSent::Full => Ok(()),
            MessageSent::Refused => Err(QueueFull::new_err(())),
            MessageSent::Closed => {
                let end = self.end(py)?.unwrap_or_else(WebSocketEnd::abnormal);
                Err(closed(&end))
            }
        }
    }

    #[pyo3(signature = (code = None, reason = None))]
    fn close(
        &self,
        py: Python<'_>,
        code: Option<&Bound<'_, PyAny>>,
        reason: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let code = code.map_or(Ok(CloseCode::NORMAL), close_code)?;
        let reason = match reason {
            None => String::new(),
            Some(reason) => match reason.cast::<PyString>() {
                Ok(text) if text.to_str()?.len() <= REASON_MAX => text.to_str()?.to_owned(),
                Ok(text) => {
                    return Err(PyValueError::new_err(format!(
                        "the reason has {} bytes in UTF-8: a Close frame has room for {REASON_MAX}",
                        text.to_str()?.len()
                    )));
                }
                Err(_) => return Err(wrong_type(reason, "the reason must be a str")),
            },
        };
        self.open(py)?;
        self.start_response.exchange().close_websocket(py, code, &reason)?;
        self.end(py).map(drop)
    }

    /// Registers `handler`, which receives the messages when the application's call has returned.
    fn handle(slf: &Bound<'_, Self>, handler: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        if this.state().is_handled {
            return Err(PyRuntimeError::new_err("the WebSocket has a handler already"));
        }
        let handler = PythonHandler::new(slf, handler)?;
        this.open(py)?;
        if !this.start_response.exchange().set_handler(py, Box::new(handler)) {
            return match this.end(py)? {
                Some(end) => Err(closed(&end)),
                None => Err(PyRuntimeError::new_err(
                    "a handler is given while the application answers the request: before its call returns",
                )),
            };
        }
        this.state().is_handled = true;
        Ok(())
    }

    #[getter]
    fn subprotocols(&self) -> Vec<String> {
        self.subprotocols.to_vec()
    }

    #[getter]
    fn subprotocol(&self) -> Option<String> {
        self.state().subprotocol.clone()
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.end(py)?.is_some())
    }

    #[getter]
    fn close_code(&self, py: Python<'_>) -> PyResult<Option<u16>> {
        Ok(self.end(py)?.map(|end| end.code))
    }

    #[getter]
    fn close_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.end(py)?.map(|end| end.reason.into()))
    }

    #[getter]
    fn data(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state().data.as_ref().map(|data| data.clone_ref(py))
    }

    #[setter]
    fn set_data(&self, data: Option<Py<PyAny>>) {
        let before = std::mem::replace(&mut self.state().data, data);
        // The destructor may run application code, so the old object is dropped after the lock is released.
        drop(before);
    }

    #[allow(clippy::needless_pass_by_value, reason = "PyO3 wants it so")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // If another thread holds the lock, the references are visited in the next collection.
        match self.state.try_lock() {
            Ok(state) => visit.call(&state.data),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.set_data(None);
    }
}

/// A message that Python code sends.
pub(crate) enum Data<'py> {
    Text(Bound<'py, PyString>),
    Binary(Bound<'py, PyBytes>),
}

impl<'py> Data<'py> {
    pub(crate) fn of(data: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = data.cast::<PyString>() {
            return Ok(Self::Text(text.clone()));
        }
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Self::Binary(bytes.clone()));
        }
        if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
            let copy = data.py().get_type::<PyBytes>().call1((data,))?;
            return Ok(Self::Binary(copy.cast_into::<PyBytes>()?));
        }
        Err(wrong_type(data, "a message must be str (text) or bytes (binary)"))
    }

    pub(crate) fn outgoing(&self) -> PyResult<Outgoing<'_>> {
        match self {
            Data::Text(text) => characters(text).map(Outgoing::Text),
            Data::Binary(bytes) => Ok(Outgoing::Binary(bytes.as_bytes())),
        }
    }

    fn message(&self) -> PyResult<OutgoingMessage<'_>> {
        match self {
            Data::Text(text) => characters(text).map(OutgoingMessage::Text),
            Data::Binary(bytes) => {
                Ok(OutgoingMessage::Binary(Chunk::of(bytes.py(), bytes.clone().into_any().unbind().into())?))
            }
        }
    }
}

fn characters<'a>(text: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    text.to_str().map_err(|_| {
        PyValueError::new_err(format!("a text message must be Unicode without surrogates: {}", shown(text)))
    })
}

/// A handler object of the application.
struct PythonHandler {
    websocket: Py<WebSocket>,
    kind: HandlerKind,
}

enum HandlerKind {
    /// An object with methods.
    Object(Py<PyAny>),
    /// A generator. The values that it yields are sent, and its `yield` expressions return messages.
    Generator(Py<PyAny>),
}

impl PythonHandler {
    fn new(websocket: &Bound<'_, WebSocket>, handler: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = handler.py();
        let inspect = py.import(intern!(py, "inspect"))?;
        let is = |question: &str| inspect.call_method1(question, (handler,))?.is_truthy();
        let kind = if is("isgeneratorfunction")? {
            HandlerKind::Generator(handler.call1((websocket,))?.unbind())
        } else if is("isgenerator")? {
            HandlerKind::Generator(handler.clone().unbind())
        } else {
            let has = |name| Ok::<_, PyErr>(handler.getattr_opt(name)?.is_some_and(|method| method.is_callable()));
            let is_class = handler.is_instance_of::<PyType>();
            if is_class || !(has("open")? || has("message")? || has("close")?) {
                return Err(wrong_type(
                    handler,
                    "a handler must be an object with any of the methods open(ws), message(ws, data), close(ws, code), \
                     or a generator function that is called with ws",
                ));
            }
            HandlerKind::Object(handler.clone().unbind())
        };
        Ok(Self { websocket: websocket.clone().unbind(), kind })
    }

    /// Calls a method of the handler, if it has the method.
    fn call<'py>(
        &self,
        py: Python<'py>,
        handler: &Py<PyAny>,
        name: &Bound<'py, PyString>,
        more: Option<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let Some(method) = handler.bind(py).getattr_opt(name)? else { return Ok(()) };
        let websocket = self.websocket.bind(py);
        match more {
            None => method.call1((websocket,)).map(drop),
            Some(more) => method.call1((websocket, more)).map(drop),
        }
    }

    /// Sends the value that a generator yielded. Closes the WebSocket if the generator has ended.
    fn follow(&self, py: Python<'_>, yielded: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
        let websocket = self.websocket.get();
        match yielded {
            Ok(reply) if reply.is_none() => Ok(()),
            Ok(reply) => websocket.send(py, &reply, None),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => websocket.close(py, None, None),
            Err(error) => Err(error),
        }
    }
}

impl MessageHandler for PythonHandler {
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        match &self.kind {
            HandlerKind::Object(handler) => self.call(py, handler, intern!(py, "open"), None),
            HandlerKind::Generator(generator) => {
                self.follow(py, generator.bind(py).call_method1(intern!(py, "send"), (py.None(),)))
            }
        }
    }

    fn message(&self, py: Python<'_>, message: Message) -> PyResult<()> {
        let (Message::Text(data) | Message::Binary(data)) = message;
        let data = data.bind(py);
        match &self.kind {
            HandlerKind::Object(handler) => self.call(py, handler, intern!(py, "message"), Some(data)),
            HandlerKind::Generator(generator) => {
                self.follow(py, generator.bind(py).call_method1(intern!(py, "send"), (data,)))
            }
        }
    }

    fn close(&self, py: Python<'_>, end: WebSocketEnd) -> PyResult<()> {
        let end = self.websocket.get().note_end(end);
        match &self.kind {
            HandlerKind::Object(handler) => {
                let code = end.code.into_pyobject(py)?.into_any();
                self.call(py, handler, intern!(py, "close"), Some(code))
            }
            HandlerKind::Generator(generator) => {
                let generator = generator.bind(py);
                let thrown = generator.call_method1(intern!(py, "throw"), (closed(&end).into_value(py),));
                let closed = generator.call_method0(intern!(py, "close")).map(drop);
                match thrown {
                    Err(error) if error.is_instance_of::<PyStopIteration>(py) => closed,
                    // A generator that has failed or ended re-raises the exception that was thrown into it.
                    Err(error) if error.is_instance_of::<Closed>(py) => closed,
                    Err(error) => Err(error),
                    Ok(_) => closed,
                }
            }
        }
    }
}

fn closed(end: &WebSocketEnd) -> PyErr {
    Closed::new_err((end.code, end.reason.to_string(), end.is_own))
}

/// Returns true if `error` says that a WebSocket is closed.
pub(super) fn says_closed(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<Closed>(py)
}

/// Converts the application's header fields, which are pairs of `str`.
fn fields(headers: &Bound<'_, PyAny>) -> PyResult<Vec<(Vec<u8>, Vec<u8>)>> {
    if !headers.is_instance_of::<PyList>() && !headers.is_instance_of::<PyTuple>() {
        return Err(wrong_type(headers, "the headers must be a list of (name, value) tuples"));
    }
    let mut fields = Vec::new();
    for header in headers.try_iter()? {
        let header = header?;
        let pair = header.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
        let Some(pair) = pair else { return Err(wrong_type(&header, "each header must be a (name, value) tuple")) };
        fields.push((text(&pair.get_item(0)?, "a header name")?, text(&pair.get_item(1)?, "a header value")?));
    }
    Ok(fields)
}

fn text(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u8>> {
    let Ok(string) = object.cast::<PyString>() else {
        return Err(wrong_type(object, &format!("{what} must be a str")));
    };
    let latin1 = string.call_method1(intern!(object.py(), "encode"), ("latin-1",)).map_err(|_| {
        PyValueError::new_err(format!("{what} must consist of latin-1 characters (PEP 3333), not {}", shown(object)))
    })?;
    Ok(latin1.cast::<PyBytes>()?.as_bytes().to_vec())
}

fn close_code(code: &Bound<'_, PyAny>) -> PyResult<CloseCode> {
    if !code.is_instance_of::<PyInt>() || code.is_instance_of::<PyBool>() {
        return Err(wrong_type(code, "the close code must be an int such as 1000"));
    }
    code.extract::<u16>().ok().and_then(CloseCode::new).ok_or_else(|| {
        PyValueError::new_err(format!(
            "the close code is {}: it must be one of 1000 to 1003, 1007 to 1014, and 3000 to 4999",
            shown(code)
        ))
    })
}

/// Converts a timeout in seconds; `None`: without limit.
fn duration(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    match timeout {
        None => Ok(None),
        Some(seconds) if seconds.is_nan() => Err(PyValueError::new_err("the timeout is not a number of seconds")),
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds.max(0.0)).ok()),
    }
}

fn shown(object: &Bound<'_, PyAny>) -> String {
    let shown = object.repr().map_or_else(|_| String::new(), |shown| shown.to_string_lossy().into_owned());
    shown.chars().take(80).collect()
}

fn wrong_type(object: &Bound<'_, PyAny>, rule: &str) -> PyErr {
    let kind = object.get_type();
    let kind = kind.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{rule}, not {kind}: {}", shown(object)))
}
