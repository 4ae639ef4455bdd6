//! ASGI 3, as an [`Interface`] (the scopes HTTP and WebSocket, specification version 2.5).
//!
//! ```text
//!   Scopes::begin    request head ──▶ scope
//!   Asgi::call       application(scope, receive, send) ──▶ coroutine ──▶ Task, which begins at once
//!                    the Task is done ──▶ Returned; it waits for something ──▶ Suspended
//!   Conclusion       the Task is done later
//!   receive, send    awaitables, over one Exchange
//! ```
//!
//! The hosting loop calls the application in its own thread, while it waits for events, so no other Task is current
//! then. Every request has its own Task ([`asyncio`]), in a copy of the context in which the application's lifespan
//! began.

mod asyncio;
mod call;
mod complaint;
pub(crate) mod concurrency;
mod entries;
mod file;
mod handles;
mod operation;
mod receive;
mod scope;
mod send;
mod sending;
mod shared;
mod template;
mod websocket;

use crate::interface::{
    Answer, ExchangeHost, Input, Interface, ListenerInfo, RequestBody, ResponseBody, Route, Summary,
};
use crate::object::{Chunk, Object};
pub(crate) use call::HttpCall;
use concurrency::{EventLoop, FirstStep};
use handles::{AsgiHandleTypes, AsgiHandles};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use scope::Scopes;
use shared::Loop;
pub(crate) use shared::Shared;
use std::fs::File;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Weak};

/// Calls an ASGI application.
pub(crate) struct Asgi {
    application: Object,
    shared: Arc<Shared>,
    handles: AsgiHandleTypes,
}

impl Asgi {
    pub(crate) fn new(py: Python<'_>, application: Object, shared: Arc<Shared>) -> PyResult<Self> {
        Ok(Self { application, shared, handles: AsgiHandleTypes::new(py)? })
    }

    /// Creates the factory of scopes for these listeners; `paths` are the paths of Unix sockets.
    pub(crate) fn requests(py: Python<'_>, listening: &[ListenerInfo], paths: &[Option<PathBuf>]) -> PyResult<Scopes> {
        Scopes::new(py, listening, paths)
    }

    /// Begins a call in a new Task.
    fn start(
        &self,
        py: Python<'_>,
        event_loop: &impl EventLoop,
        scope: &Object,
        handles: &AsgiHandles,
    ) -> PyResult<FirstStep> {
        let arguments = [ptr::null_mut(), scope.as_ptr(), handles.receive().as_ptr(), handles.send().as_ptr()];
        // The application is a coroutine function, so this call does not run its body.
        // SAFETY: all objects are live; the callee may use the slot before the arguments
        // (PY_VECTORCALL_ARGUMENTS_OFFSET).
        let coroutine = unsafe {
            let count = 3 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            let application = self.application.as_ptr();
            let result = ffi::PyObject_Vectorcall(application, arguments.as_ptr().add(1), count, ptr::null_mut());
            Object::from_new_or_error(py, result)
        }?;
        // A WebSocket will wait for messages of its client.
        event_loop.begin(py, &coroutine, handles.call().get().phase(py).is_some())
    }
}

impl Interface for Asgi {
    type Requests = Scopes;
    type Handles = AsgiHandles;
    type Body = NoBody;

    fn take_handles(&self, py: Python<'_>, _: Route, host: &Weak<dyn ExchangeHost>) -> PyResult<AsgiHandles> {
        self.handles.take(py, host, &self.shared)
    }

    fn return_handles(&self, py: Python<'_>, handles: AsgiHandles) {
        // Wake all tasks that wait in this call, because its response has ended.
        HttpCall::wake_all(handles.call(), py);
        self.handles.keep(py, handles);
    }

    fn prepare(
        &self,
        py: Python<'_>,
        scope: &Object,
        handles: &AsgiHandles,
        Input { body, .. }: Input,
    ) -> PyResult<Option<Object>> {
        if let Some(state) = self.shared.state()? {
            let state = state.copy_dict(py).ok_or_else(|| PyErr::fetch(py))?;
            scope.bind(py).set_item(intern!(py, "state"), state.bind(py))?;
        }
        match body {
            RequestBody::Empty => {}
            RequestBody::Arriving => handles.call().get().expect_body(py),
            RequestBody::WebSocket => {
                handles.call().get().expect_websocket(py);
                // `kirsch.Group` sends through this object, because frameworks wrap `send`.
                let extensions = scope.bind(py).get_item(intern!(py, "extensions"))?;
                extensions.set_item(intern!(py, "kirsch.websocket"), handles.call())?;
            }
            // The body arrived with the head.
            RequestBody::Bytes(bytes) => handles.call().get().set_whole_body(py, bytes),
            // The engine never buffers bodies in files for this interface.
            RequestBody::File(_) => {
                return Err(PyRuntimeError::new_err("a request body was collected for an ASGI application"));
            }
        }
        Ok(None)
    }

    fn call(&self, py: Python<'_>, scope: &Object, handles: &AsgiHandles) -> PyResult<Answer<NoBody>> {
        let event_loop = self.shared.event_loop()?;
        let call = handles.call();
        let begun = self.start(py, event_loop, scope, handles);
        call.get().end_first_step(py);
        let task = match begun {
            Ok(FirstStep::Waiting(task)) => task.into_bound(py),
            Ok(FirstStep::Over(result)) => return Ok(Answer::Returned(call.get().checked(py, result))),
            // An exception that a Task does not catch must end the program.
            Err(error) => return Ok(Answer::Returned(Err(error))),
        };
        let conclusion = Py::new(py, Conclusion { call: call.clone_ref(py) })?;
        event_loop.call_at_end(&task, conclusion.into_bound(py).into_any())?;
        Ok(Answer::Suspended(task.unbind()))
    }

    fn wake(&self, py: Python<'_>, waiter: &Py<PyAny>, is_waiting: bool) -> PyResult<()> {
        wake(py, waiter, is_waiting).unwrap_or(Ok(()))
    }

    fn before_wait(&self, py: Python<'_>) {
        for call in self.shared.take_held_heads(py) {
            if let Ok(call) = call.bind(py).cast::<HttpCall>() {
                call.get().exchange().send_head(py);
            }
        }
    }

    fn end(&self, py: Python<'_>) {
        if let Ok(event_loop) = self.shared.event_loop() {
            event_loop.end(py);
        }
    }

    fn unstarted() -> PyErr {
        PyRuntimeError::new_err(
            "the application returned without completing its response: send http.response.start, and http.response.body \
             with more_body false or left out",
        )
    }

    fn summary(py: Python<'_>, scope: &Object) -> Summary {
        let scope = scope.bind(py);
        let Ok(scope) = scope.cast::<PyDict>() else { return Summary::default() };
        let item = |name: &str| scope.get_item(name).ok().flatten();
        let bytes = |name: &str| {
            let value = item(name)?;
            let value = value.cast::<PyBytes>().ok()?;
            Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let client = item("client").and_then(|client| client.extract::<(String, u16)>().ok());
        let query = bytes("query_string").filter(|query| !query.is_empty());
        Summary {
            // The scope of a WebSocket has no method.
            method: item("method").map_or(Some("GET".to_owned()), |method| method.extract::<String>().ok()),
            target: bytes("raw_path").map(|path| query.map_or(path.clone(), |query| format!("{path}?{query}"))),
            client: match client {
                Some((address, port)) => (Some(address), Some(port.to_string())),
                None => (None, None),
            },
        }
    }
}

/// Wakes the tasks that wait for an event of a call; see [`Interface::wake`]. Returns `None` if `waiter` is not an ASGI
/// call.
pub(crate) fn wake(py: Python<'_>, waiter: &Py<PyAny>, is_waiting: bool) -> Option<PyResult<()>> {
    let call = waiter.bind(py).cast::<HttpCall>().ok()?;
    if is_waiting {
        return Some(call.get().wake_now(py));
    }
    HttpCall::wake_all(call.as_unbound(), py);
    Some(Ok(()))
}

/// The callback for the end of a suspended call's Task.
#[pyclass(frozen, module = "kirsch._native")]
struct Conclusion {
    call: Py<HttpCall>,
}

#[pymethods]
impl Conclusion {
    fn __call__(&self, task: &Bound<'_, PyAny>) {
        let call = self.call.get();
        call.exchange().conclude(task.py(), call.checked(task.py(), Loop::result_of(task)));
        call.shared.note_step(task.py());
    }
}

/// A response body type without values, because an ASGI application writes its response through the exchange.
pub(crate) enum NoBody {}

impl ResponseBody for NoBody {
    fn start(&mut self, _: Python<'_>) -> PyResult<()> {
        match *self {}
    }

    fn next(&mut self, _: Python<'_>) -> PyResult<Option<Chunk>> {
        match *self {}
    }

    fn ends_at_length(&self) -> bool {
        match *self {}
    }

    fn regular_file(&self, _: Python<'_>) -> Option<(File, u64, u64)> {
        match *self {}
    }

    fn close(self, _: Python<'_>) -> PyResult<()> {
        match self {}
    }
}
