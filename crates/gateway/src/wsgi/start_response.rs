//! The objects with which an application responds: `start_response`, the `write` that it returns (PEP 3333, "The
//! `start_response()` Callable"), and `kirsch.disconnected`.
//!
//! They are C-level types with vectorcall, because the application calls one of them in every request. All three share
//! one [`Exchange`], which is stored in the `StartResponse`; the other two keep that object alive. They are reused for
//! another response if nothing else refers to them, and so is the `wsgi.errors` for a web server. If an application has
//! kept one of them, the object finds its exchange closed.
//!
//! An application may call them at any time, from any thread that is attached to the interpreter.

use crate::callable::{CallableHead, answer, callable_type, free};
use crate::compat;
use crate::interface::{self, Exchange, ExchangeHost, StartRefusal};
use crate::object::{Chunk, Item, Object, latin1_of};
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use wire::message::{Draft, Misuse};

#[repr(C)]
struct StartResponse {
    callable: CallableHead,
    /// The `Write` that belongs to this object, borrowed. It may be returned only while the response has not ended,
    /// because only then is it certainly alive.
    write: *mut ffi::PyObject,
    exchange: Exchange,
}

/// The structure of a `Write` and of a `Disconnected`.
#[repr(C)]
struct Companion {
    callable: CallableHead,
    start_response: *mut ffi::PyObject,
}

/// Makes handles, and keeps some returned ones for reuse.
pub(crate) struct WsgiHandleTypes {
    start_response: Object,
    write: Object,
    disconnected: Object,
    spare: Mutex<Vec<WsgiHandles>>,
}

/// The three callables of one response, and its `wsgi.errors` if the web server accepts error text.
pub(crate) struct WsgiHandles {
    start_response: Object,
    write: Object,
    disconnected: Object,
    errors: OnceLock<Object>,
}

/// A reference to a `StartResponse`.
pub(crate) struct StartResponseRef(Object);

/// The maximum number of spare handles. More are returned only after many calls were in progress at once.
const SPARE: usize = 16;

impl WsgiHandleTypes {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            start_response: callable_type::<StartResponse>(
                py,
                c"kirsch._native.StartResponse",
                drop_start_response,
                None,
            )?,
            write: callable_type::<Companion>(py, c"kirsch._native.Write", drop_companion, None)?,
            disconnected: callable_type::<Companion>(py, c"kirsch._native.Disconnected", drop_companion, None)?,
            spare: Mutex::default(),
        })
    }

    /// Returns handles for a new response of `host`. All handles of one server belong to the same host.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn take(&self, py: Python<'_>, host: &Weak<dyn ExchangeHost>) -> PyResult<WsgiHandles> {
        let spare = self.spare().pop();
        spare.or_else(|| self.make(py, host)).ok_or_else(|| PyErr::fetch(py))
    }

    /// Keeps closed handles for reuse, if nothing else refers to them.
    pub(crate) fn keep(&self, _py: Python<'_>, handles: WsgiHandles) {
        let is_shared = interface::Handles::is_shared(&handles);
        let mut spare = self.spare();
        if !is_shared && spare.len() < SPARE {
            spare.push(handles);
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<WsgiHandles>> {
        // No thread panics while it holds the lock.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, _py: Python<'_>, host: &Weak<dyn ExchangeHost>) -> Option<WsgiHandles> {
        // SAFETY: the types were made from the structures that are initialized here; all fields are initialized before
        // anything else refers to the objects or drops them; the thread is attached.
        unsafe {
            let start_response = Object::from_new(ffi::PyType_GenericAlloc(self.start_response.as_ptr().cast(), 0))?;
            let it = start_response.as_ptr().cast::<StartResponse>();
            (&raw mut (*it).callable.vectorcall).write(Some(call_start_response));
            (&raw mut (*it).write).write(ptr::null_mut());
            (&raw mut (*it).exchange).write(Exchange::new(Weak::clone(host)));
            let companion = |kind: &Object, vectorcall: ffi::vectorcallfunc| {
                let object = Object::from_new(ffi::PyType_GenericAlloc(kind.as_ptr().cast(), 0))?;
                let it = object.as_ptr().cast::<Companion>();
                (&raw mut (*it).callable.vectorcall).write(Some(vectorcall));
                ffi::Py_INCREF(start_response.as_ptr());
                (&raw mut (*it).start_response).write(start_response.as_ptr());
                Some(object)
            };
            let write = companion(&self.write, call_write)?;
            let disconnected = companion(&self.disconnected, call_disconnected)?;
            (&raw mut (*it).write).write(write.as_ptr());
            Some(WsgiHandles { start_response, write, disconnected, errors: OnceLock::new() })
        }
    }
}

impl WsgiHandles {
    pub(super) fn start_response(&self) -> &Object {
        &self.start_response
    }

    pub(super) fn disconnected(&self) -> &Object {
        &self.disconnected
    }

    /// Returns the `wsgi.errors`, which exists if the web server accepts error text. It is reused with the handles.
    pub(super) fn errors(&self) -> &OnceLock<Object> {
        &self.errors
    }

    /// Returns a reference to the `StartResponse`, for an object that may outlive the handles.
    pub(super) fn keep(&self, py: Python<'_>) -> StartResponseRef {
        StartResponseRef(self.start_response.clone_ref(py))
    }
}

impl interface::Handles for WsgiHandles {
    fn exchange(&self) -> &Exchange {
        // SAFETY: the object was made by `WsgiHandleTypes::make`, and lives as long as the handles.
        &unsafe { StartResponse::of(self.start_response.as_ptr()) }.exchange
    }

    /// Returns true on builds without a GIL: a reference count there is the sum of two, and another thread may move a
    /// reference between them meanwhile. So handles are not reused there.
    fn is_shared(&self) -> bool {
        // SAFETY: all objects are live, and a count is read atomically. With a GIL the count is exact, because a thread
        // that returns or keeps handles is attached. The other objects hold the first.
        !compat::COUNTS_REFERENCES
            || unsafe {
                let errors = self.errors.get();
                ffi::Py_REFCNT(self.start_response.as_ptr()) != 3 + isize::from(errors.is_some())
                    || ffi::Py_REFCNT(self.write.as_ptr()) != 1
                    || ffi::Py_REFCNT(self.disconnected.as_ptr()) != 1
                    || errors.is_some_and(|errors| ffi::Py_REFCNT(errors.as_ptr()) != 1)
            }
    }
}

impl StartResponseRef {
    pub(super) fn exchange(&self) -> &Exchange {
        // SAFETY: the object was made by `WsgiHandleTypes::make`, and lives as long as this reference.
        &unsafe { StartResponse::of(self.0.as_ptr()) }.exchange
    }
}

impl StartResponse {
    /// # Safety
    /// `object` was made by [`WsgiHandleTypes::make`] and outlives the result.
    unsafe fn of<'a>(object: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: the caller guarantees it; no field changes except the exchange, which is guarded.
        unsafe { &*object.cast::<Self>() }
    }

    /// Returns the `StartResponse` of a `Write` or a `Disconnected`.
    ///
    /// # Safety
    /// `companion` was made by [`WsgiHandleTypes::make`] and outlives the result.
    unsafe fn of_companion<'a>(companion: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: the caller guarantees a companion, which keeps its `StartResponse` alive.
        unsafe { Self::of((*companion.cast::<Companion>()).start_response) }
    }
}

unsafe extern "C" fn drop_start_response(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `WsgiHandleTypes::make` to which nothing refers. An
    // instance of a heap type owns a reference to its type, which `free` releases.
    unsafe {
        ptr::drop_in_place(&raw mut (*object.cast::<StartResponse>()).exchange);
        free(object);
    }
}

unsafe extern "C" fn drop_companion(object: *mut ffi::PyObject) {
    // SAFETY: as above; the companion owns the reference, which `WsgiHandleTypes::make` has taken.
    unsafe {
        ffi::Py_XDECREF((*object.cast::<Companion>()).start_response);
        free(object);
    }
}

/// Implements `start_response(status, response_headers, exc_info=None)`.
unsafe extern "C" fn call_start_response(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `WsgiHandleTypes::make` and arguments that live as
    // long as the call.
    unsafe {
        let py = Python::assume_attached();
        answer(py, start_response(py, callable, arguments, count, keywords))
    }
}

/// # Safety
/// As for a vectorcall of a `StartResponse`.
unsafe fn start_response(
    py: Python<'_>,
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> PyResult<Object> {
    // SAFETY: the caller guarantees the arguments of a vectorcall.
    unsafe {
        let it = StartResponse::of(callable);
        let mut given = [ptr::null_mut::<ffi::PyObject>(); 3];
        let positional = ffi::PyVectorcall_NARGS(count).cast_unsigned();
        if positional > given.len() {
            return Err(PyTypeError::new_err(format!(
                "start_response takes 2 or 3 arguments, {positional} were given"
            )));
        }
        for (index, slot) in given.iter_mut().enumerate().take(positional) {
            *slot = *arguments.add(index);
        }
        if !keywords.is_null() {
            for keyword in 0..ffi::Py_SIZE(keywords) {
                let name = latin1_of(compat::PyTuple_GET_ITEM(keywords, keyword)).unwrap_or_default();
                let index = match name {
                    b"status" => 0,
                    b"headers" | b"response_headers" => 1,
                    b"exc_info" => 2,
                    _ => return Err(PyTypeError::new_err("start_response takes status, response_headers, exc_info")),
                };
                given[index] = *arguments.add(positional + keyword.cast_unsigned());
            }
        }
        let [status, headers, exc_info] = given;
        if status.is_null() || headers.is_null() {
            return Err(PyTypeError::new_err("start_response needs a status and a list of headers"));
        }
        let replaces = !exc_info.is_null() && exc_info != ffi::Py_None();
        // Handles are closed before they are dropped, so the `Write` is alive while the response has not ended.
        let give_write = || Object::from_borrowed(it.write);
        if !replaces && let Some(write) = it.exchange.start_known(py, status, headers, give_write) {
            return Ok(write);
        }
        // The draft is filled outside of the exchange's guard, because making an error message runs Python code, which
        // could call start_response again, and because other threads may.
        let taken = it.exchange.take_draft(py, replaces);
        let mut new = taken.map_err(|refusal| start_error(py, refusal, exc_info))?;
        let drafted = draft(py, &mut new, status, headers);
        if drafted.is_err() {
            new.clear();
        }
        let stored = it.exchange.store_draft(py, replaces, new, give_write);
        drafted?;
        let write = stored.map_err(|refusal| start_error(py, refusal, exc_info))?;
        it.exchange.keep_head(py, status, headers);
        Ok(write)
    }
}

/// # Safety
/// The thread is attached; `exc_info` is live if the response has begun.
unsafe fn start_error(py: Python<'_>, refusal: StartRefusal, exc_info: *mut ffi::PyObject) -> PyErr {
    match refusal {
        StartRefusal::Over => PyRuntimeError::new_err("start_response was called after the response had ended"),
        // SAFETY: the caller guarantees a live `exc_info`.
        StartRefusal::Begun => unsafe { error_of(py, exc_info) },
        StartRefusal::Again => PyAssertionError::new_err(
            "start_response was called again without exc_info: a response has one status (PEP 3333)",
        ),
    }
}

/// Checks status and headers, and writes them to the draft.
///
/// # Safety
/// The thread is attached and both are live objects.
unsafe fn draft(
    py: Python<'_>,
    draft: &mut Draft,
    status: *mut ffi::PyObject,
    headers: *mut ffi::PyObject,
) -> PyResult<()> {
    // SAFETY: the caller guarantees live objects. Items borrowed from the list are used only while no Python code runs,
    // which is so until an error is made. A tuple and a str never change.
    unsafe {
        let status_bytes = text(py, status, "the status", "'200 OK'")?;
        draft.start(status_bytes).map_err(|misuse| refused(py, status, misuse))?;
        if ffi::PyList_Check(headers) == 0 {
            return Err(wrong_type(py, headers, "the headers must be a list of (name, value) tuples"));
        }
        for index in 0..ffi::PyList_GET_SIZE(headers) {
            // Another thread may remove items from the list meanwhile.
            let Some(item) = Item::of(headers, index) else { break };
            let header = item.as_ptr();
            if ffi::PyTuple_Check(header) == 0 || ffi::Py_SIZE(header) != 2 {
                return Err(wrong_type(py, header, "each header must be a (name, value) tuple"));
            }
            let (name, value) = (compat::PyTuple_GET_ITEM(header, 0), compat::PyTuple_GET_ITEM(header, 1));
            let name_bytes = text(py, name, "a header name", "'Content-Type'")?;
            let value_bytes = text(py, value, "a header value", "'text/html'")?;
            draft.field(name_bytes, value_bytes).map_err(|misuse| refused(py, header, misuse))?;
        }
        Ok(())
    }
}

/// # Safety
/// The thread is attached, `object` is live, and the result is not used after it is freed.
unsafe fn text<'a>(py: Python<'_>, object: *mut ffi::PyObject, what: &str, example: &str) -> PyResult<&'a [u8]> {
    // SAFETY: the caller guarantees a live object.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 {
            return Err(wrong_type(py, object, &format!("{what} must be a str such as {example}")));
        }
        latin1_of(object).ok_or_else(|| {
            let shown = Object::from_borrowed(object).bind(py).repr().map_or_else(|_| String::new(), |r| r.to_string());
            PyValueError::new_err(format!("{what} must consist of latin-1 characters (PEP 3333), not {shown}"))
        })
    }
}

/// # Safety
/// The thread is attached and `object` is live.
unsafe fn wrong_type(py: Python<'_>, object: *mut ffi::PyObject, rule: &str) -> PyErr {
    // SAFETY: the caller guarantees a live object.
    let object = unsafe { Object::from_borrowed(object) };
    let object = object.bind(py);
    let kind = object.get_type();
    let kind = kind.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    let shown = object.repr().map_or_else(|_| String::new(), |shown| shown.to_string());
    let shown: String = shown.chars().take(80).collect();
    PyTypeError::new_err(format!("{rule} (PEP 3333), not {kind}: {shown}"))
}

/// # Safety
/// The thread is attached and `object` is live.
unsafe fn refused(py: Python<'_>, object: *mut ffi::PyObject, misuse: Misuse) -> PyErr {
    // SAFETY: the caller guarantees a live object.
    let object = unsafe { Object::from_borrowed(object) };
    let shown = object.bind(py).repr().map_or_else(|_| String::new(), |shown| shown.to_string());
    PyValueError::new_err(format!("{shown}: {misuse}"))
}

/// Returns the exception in an `exc_info`, with its traceback.
///
/// # Safety
/// The thread is attached and `exc_info` is live.
unsafe fn error_of(py: Python<'_>, exc_info: *mut ffi::PyObject) -> PyErr {
    // SAFETY: the caller guarantees a live `exc_info`.
    let exc_info = unsafe { Object::from_borrowed(exc_info) };
    match exc_info.bind(py).get_item(1) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// Implements `write(body_data)`.
unsafe extern "C" fn call_write(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `WsgiHandleTypes::make` and arguments that live as
    // long as the call.
    unsafe {
        let py = Python::assume_attached();
        let result = if ffi::PyVectorcall_NARGS(count) == 1 && keywords.is_null() {
            write(py, callable, *arguments)
        } else {
            Err(PyTypeError::new_err("write takes one argument, the bytes to send"))
        };
        answer(py, result.map(|()| Object::from_borrowed(ffi::Py_None())))
    }
}

/// # Safety
/// As for a vectorcall of a `Write` with `data`.
unsafe fn write(py: Python<'_>, callable: *mut ffi::PyObject, data: *mut ffi::PyObject) -> PyResult<()> {
    // SAFETY: the caller guarantees the arguments of a vectorcall.
    let (chunk, it) = unsafe {
        if ffi::PyBytes_Check(data) == 0 {
            return Err(wrong_type(py, data, "write takes bytes"));
        }
        (Chunk::of(py, Object::from_borrowed(data))?, StartResponse::of_companion(callable))
    };
    if chunk.as_ref().is_empty() || it.exchange.write(py, chunk)? {
        Ok(())
    } else {
        Err(PyRuntimeError::new_err("write was called outside of the application's call for its response"))
    }
}

/// Implements `environ['kirsch.disconnected']()`.
unsafe extern "C" fn call_disconnected(
    callable: *mut ffi::PyObject,
    _arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `WsgiHandleTypes::make`.
    unsafe {
        let py = Python::assume_attached();
        let result = if ffi::PyVectorcall_NARGS(count) == 0 && keywords.is_null() {
            StartResponse::of_companion(callable).exchange.is_disconnected(py)
        } else {
            Err(PyTypeError::new_err("kirsch.disconnected takes no arguments"))
        };
        answer(py, result.map(|left| Object::from_borrowed(if left { ffi::Py_True() } else { ffi::Py_False() })))
    }
}
