//! WSGI (PEP 3333), as an [`Interface`].
//!
//! ```text
//!   Environs::begin         request head ──▶ environ
//!   Wsgi::call              application(environ, start_response) ──▶ iterable
//!                           iterable ──▶ one list item: a whole answer
//!                                    ──▶ anything else: Iterable
//!   start_response, write, kirsch.disconnected, wsgi.input,    what the application is given, over one Exchange
//!   wsgi.websocket, werkzeug.socket
//! ```

mod body;
mod cgi;
mod cgi_template;
mod client;
mod encryption;
mod environ;
mod errors;
mod input;
mod path;
mod start_response;

pub(crate) mod file_wrapper;
pub(crate) mod hijack;
pub(crate) mod websocket;

use crate::compat;
use crate::interface::{
    Answer, ExchangeHost, Handles as _, Input, Interface, ListenerInfo, RequestBody, Route, Summary,
};
use crate::object::{Chunk, Item, Object};
use body::Iterable;
use environ::{Constants, Environs};
use file_wrapper::FileWrapper;
use input::Inputs;
pub(crate) use path::ScriptName;
use pyo3::exceptions::PyAssertionError;
use pyo3::ffi;
use pyo3::prelude::*;
use start_response::{WsgiHandleTypes, WsgiHandles};
use std::ptr;
use std::sync::Weak;

/// Calls a WSGI application.
pub(crate) struct Wsgi {
    application: Object,
    inputs: Inputs,
    handles: WsgiHandleTypes,
    /// The log behind `wsgi.errors`, if the web server gets a copy of the text; otherwise `None`.
    shared_errors: Option<Object>,
}

/// The properties of the server that an application can see.
#[derive(Clone)]
pub(crate) struct ServerFacts<'py> {
    pub(crate) multithread: bool,
    pub(crate) multiprocess: bool,
    /// The object that is `wsgi.errors`.
    pub(crate) errors: Bound<'py, PyAny>,
    /// True if the text for `wsgi.errors` is also sent to web servers that accept it.
    pub(crate) passes_errors_on: bool,
    /// The application's mount path for requests with CGI variables.
    pub(crate) script_name: ScriptName,
}

impl Wsgi {
    pub(crate) fn new(py: Python<'_>, application: Object, facts: &ServerFacts<'_>) -> PyResult<Self> {
        let shared_errors = facts.passes_errors_on.then(|| facts.errors.clone().unbind().into());
        Ok(Self { application, inputs: Inputs::new(py)?, handles: WsgiHandleTypes::new(py)?, shared_errors })
    }

    /// Creates the factory of environs for these listeners.
    pub(crate) fn requests<'py>(
        py: Python<'py>,
        listening: &[ListenerInfo],
        facts: ServerFacts<'py>,
    ) -> PyResult<Environs> {
        let constants = Constants {
            errors: facts.errors,
            file_wrapper: py.get_type::<FileWrapper>().into_any(),
            multithread: facts.multithread,
            multiprocess: facts.multiprocess,
            script_name: facts.script_name,
            software: format!("kirsch/{}", env!("CARGO_PKG_VERSION")),
        };
        Environs::new(py, listening, &constants)
    }
}

impl Interface for Wsgi {
    type Requests = Environs;
    type Handles = WsgiHandles;
    type Body = Iterable;

    fn take_handles(&self, py: Python<'_>, _: Route, host: &Weak<dyn ExchangeHost>) -> PyResult<WsgiHandles> {
        self.handles.take(py, host)
    }

    fn return_handles(&self, py: Python<'_>, handles: WsgiHandles) {
        self.handles.keep(py, handles);
    }

    fn prepare(
        &self,
        py: Python<'_>,
        environ: &Object,
        handles: &WsgiHandles,
        Input { body, is_chunked, takes_errors }: Input,
    ) -> PyResult<Option<Object>> {
        self.inputs.set_disconnected(py, environ, handles)?;
        if takes_errors && let Some(log) = &self.shared_errors {
            self.inputs.set_errors(py, environ, handles, log)?;
        }
        let mut file_input = None;
        let length = match body {
            RequestBody::Empty => 0,
            RequestBody::WebSocket => {
                self.inputs.set_websocket(py, environ, handles)?;
                0
            }
            RequestBody::Bytes(bytes) => self.inputs.set_bytes(py, environ, &bytes)?,
            RequestBody::File(spooled) => {
                let (file, length) = *spooled;
                file_input = Some(self.inputs.set_file(py, environ, file)?);
                length
            }
            RequestBody::Arriving => {
                self.inputs.set_arriving(py, environ, handles)?;
                return Ok(None);
            }
        };
        if is_chunked {
            self.inputs.set_length(py, environ, length)?;
        }
        Ok(file_input)
    }

    fn call(&self, py: Python<'_>, environ: &Object, handles: &WsgiHandles) -> PyResult<Answer<Iterable>> {
        let arguments = [ptr::null_mut(), environ.as_ptr(), handles.start_response().as_ptr()];
        // SAFETY: all objects are live; the callee may use the slot before the arguments
        // (PY_VECTORCALL_ARGUMENTS_OFFSET).
        let returned = unsafe {
            let count = 2 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            let application = self.application.as_ptr();
            let result = ffi::PyObject_Vectorcall(application, arguments.as_ptr().add(1), count, ptr::null_mut());
            Object::from_new_or_error(py, result)
        }?;
        match only_item(py, &returned) {
            // The usual response: the whole body is here, so its length is known, and head and body are sent together.
            Some(item) if handles.exchange().is_started(py) => {
                returned.release(py);
                Chunk::of(py, item).map(Answer::Whole)
            }
            _ => Ok(Answer::Body(Iterable::new(py, returned))),
        }
    }

    fn says_websocket_is_closed(py: Python<'_>, error: &PyErr) -> bool {
        websocket::says_closed(py, error)
    }

    fn unstarted() -> PyErr {
        PyAssertionError::new_err("start_response was not called before the first block of the response (PEP 3333)")
    }

    fn summary(py: Python<'_>, environ: &Object) -> Summary {
        let variable = |name| environ.item_text(py, name);
        Summary {
            method: variable("REQUEST_METHOD"),
            target: variable("RAW_URI"),
            client: (variable("REMOTE_ADDR"), variable("REMOTE_PORT")),
        }
    }
}

/// Returns the only item of a list or tuple; `None` for other objects or lengths.
fn only_item(_py: Python<'_>, returned: &Object) -> Option<Object> {
    // SAFETY: `returned` is live; an exact tuple has `Py_SIZE` items and never changes; no Python code runs between
    // reading the item of a list and taking a reference to it.
    unsafe {
        let object = returned.as_ptr();
        if ffi::PyList_CheckExact(object) != 0 && ffi::PyList_GET_SIZE(object) == 1 {
            Item::of(object, 0).map(Item::keep)
        } else if ffi::PyTuple_CheckExact(object) != 0 && ffi::Py_SIZE(object) == 1 {
            Some(Object::from_borrowed(compat::PyTuple_GET_ITEM(object, 0)))
        } else {
            None
        }
    }
}
