//! `start_response` and the `write` that it returns (PEP 3333, "The `start_response()` Callable").
//!
//! Both are C-level types with vectorcall, because the application calls one of them in every request. A pair of them
//! shares one [`Exchange`]: it lives in the `StartResponse`, and the `Write` holds that one alive. The gateway keeps
//! the pair for the next request if nobody else holds on to it; whoever does finds it closed.

use crate::object::{Object, bytes_of, latin1_of};
use crate::wsgi::{Chunk, Wsgi};
use engine::Reply;
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use wire::http1::{Draft, Misuse};

/// What the application has said of one response, and where `write` goes.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) draft: Draft,
    /// Where the response is written while the application runs; null at any other time. It stands for a
    /// `&mut Reply<'_, Wsgi>`, whose lifetimes a Python object cannot carry.
    reply: *mut c_void,
    /// The `Write` of the pair, borrowed; null once the response is over.
    write: *mut ffi::PyObject,
    /// What `write` was not allowed to send, kept for the report: exceptions raised in it can be swallowed.
    pub(crate) misuse: Option<Misuse>,
}

#[repr(C)]
struct StartResponse {
    head: ffi::PyObject,
    vectorcall: Option<ffi::vectorcallfunc>,
    exchange: Exchange,
}

#[repr(C)]
struct Write {
    head: ffi::PyObject,
    vectorcall: Option<ffi::vectorcallfunc>,
    start_response: *mut ffi::PyObject,
}

/// Makes pairs and keeps one that has come back.
pub(crate) struct Pairs {
    start_response: Object,
    write: Object,
    spare: Option<Pair>,
}

/// A `StartResponse` and its `Write`.
#[derive(Debug)]
pub(crate) struct Pair {
    start_response: Object,
    write: Object,
}

impl Pairs {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            start_response: make_type(
                py,
                c"kirsch._native.StartResponse",
                size_of::<StartResponse>(),
                offset_of!(StartResponse, vectorcall),
                drop_start_response as *mut c_void,
            )?,
            write: make_type(
                py,
                c"kirsch._native.Write",
                size_of::<Write>(),
                offset_of!(Write, vectorcall),
                drop_write as *mut c_void,
            )?,
            spare: None,
        })
    }

    /// A pair for a new response; `None` with an exception set if memory is short.
    pub(crate) fn take(&mut self) -> Option<Pair> {
        let pair = match self.spare.take() {
            Some(pair) => pair,
            None => self.make()?,
        };
        let write = pair.write.as_ptr();
        pair.exchange().write = write;
        Some(pair)
    }

    /// The response is over: the pair is closed, and kept if nobody else holds it.
    pub(crate) fn give_back(&mut self, pair: Pair) {
        let exchange = pair.exchange();
        exchange.draft.clear();
        exchange.write = ptr::null_mut();
        exchange.reply = ptr::null_mut();
        exchange.misuse = None;
        // SAFETY: both are live, and the thread is attached.
        let unshared =
            unsafe { ffi::Py_REFCNT(pair.start_response.as_ptr()) == 2 && ffi::Py_REFCNT(pair.write.as_ptr()) == 1 };
        if unshared {
            self.spare = Some(pair);
        }
    }

    fn make(&self) -> Option<Pair> {
        // SAFETY: the types were made from the structures that are initialised here, all fields of them before
        // anybody else sees the objects; the thread is attached.
        unsafe {
            let start_response = Object::from_new(ffi::PyType_GenericAlloc(self.start_response.as_ptr().cast(), 0))?;
            let it = start_response.as_ptr().cast::<StartResponse>();
            (&raw mut (*it).vectorcall).write(Some(call_start_response));
            (&raw mut (*it).exchange).write(Exchange {
                draft: Draft::default(),
                reply: ptr::null_mut(),
                write: ptr::null_mut(),
                misuse: None,
            });
            let write = Object::from_new(ffi::PyType_GenericAlloc(self.write.as_ptr().cast(), 0))?;
            let it = write.as_ptr().cast::<Write>();
            (&raw mut (*it).vectorcall).write(Some(call_write));
            ffi::Py_INCREF(start_response.as_ptr());
            (&raw mut (*it).start_response).write(start_response.as_ptr());
            Some(Pair { start_response, write })
        }
    }
}

impl Pair {
    pub(crate) fn start_response(&self) -> *mut ffi::PyObject {
        self.start_response.as_ptr()
    }

    /// What the application has said so far.
    #[allow(clippy::mut_from_ref, reason = "the pair is a handle; the exchange lives in the Python object")]
    pub(crate) fn exchange(&self) -> &mut Exchange {
        // SAFETY: the object was made by `Pairs::make`. The reference is used between two calls into Python, never
        // across one, and the interpreter lock keeps other threads out of the callables meanwhile.
        unsafe { &mut (*self.start_response.as_ptr().cast::<StartResponse>()).exchange }
    }

    /// Lets `write` reach the peer while `run` runs.
    pub(crate) fn with_reply<R>(&self, reply: &mut Reply<'_, Wsgi>, run: impl FnOnce() -> R) -> R {
        self.exchange().reply = ptr::from_mut(reply).cast();
        let result = run();
        self.exchange().reply = ptr::null_mut();
        result
    }
}

fn make_type(
    py: Python<'_>,
    name: &'static std::ffi::CStr,
    size: usize,
    vectorcall_offset: usize,
    dealloc: *mut c_void,
) -> PyResult<Object> {
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: vectorcall_offset.cast_signed(),
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc },
        ffi::PyType_Slot { slot: ffi::Py_tp_call, pfunc: ffi::PyVectorcall_Call as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_members, pfunc: members.as_mut_ptr().cast() },
        ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT
        | ffi::Py_TPFLAGS_HAVE_VECTORCALL
        | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION
        | ffi::Py_TPFLAGS_IMMUTABLETYPE;
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: c_int::try_from(size).expect("a few words"),
        itemsize: 0,
        flags: u32::try_from(flags).expect("type flags have 32 bits"),
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete and the interpreter copies what it keeps; the thread is attached.
    unsafe { Object::from_new_or_error(py, ffi::PyType_FromSpec(&raw mut spec)) }
}

unsafe extern "C" fn drop_start_response(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `Pairs::make` that nobody can reach any more. An
    // instance of a heap type holds a reference to it.
    unsafe {
        ptr::drop_in_place(&raw mut (*object.cast::<StartResponse>()).exchange);
        free(object);
    }
}

unsafe extern "C" fn drop_write(object: *mut ffi::PyObject) {
    // SAFETY: as above; the reference was taken by `Pairs::make`.
    unsafe {
        ffi::Py_XDECREF((*object.cast::<Write>()).start_response);
        free(object);
    }
}

/// # Safety
/// `object` is an instance of a heap type of ours whose fields are gone.
unsafe fn free(object: *mut ffi::PyObject) {
    // SAFETY: as the caller promises; the types are not tracked by the garbage collector.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

/// `start_response(status, response_headers, exc_info=None)`
unsafe extern "C" fn call_start_response(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `Pairs::make` and arguments that live as long as
    // the call.
    unsafe {
        let py = Python::assume_attached();
        answer(py, start_response(py, callable, arguments, count, keywords))
    }
}

/// A result as the C API has it: a new reference, or null with the exception set.
fn answer(py: Python<'_>, result: PyResult<Object>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
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
    // SAFETY: as the caller promises.
    unsafe {
        let exchange = &mut (*callable.cast::<StartResponse>()).exchange;
        let mut given = [ptr::null_mut::<ffi::PyObject>(); 3];
        let positional = ffi::PyVectorcall_NARGS(count).cast_unsigned();
        if positional > given.len() {
            return Err(PyTypeError::new_err(format!(
                "start_response takes 2 or 3 arguments, {positional} were given"
            )));
        }
        for (place, slot) in given.iter_mut().enumerate().take(positional) {
            *slot = *arguments.add(place);
        }
        if !keywords.is_null() {
            for place in 0..ffi::Py_SIZE(keywords) {
                let name = latin1_of(ffi::PyTuple_GET_ITEM(keywords, place)).unwrap_or_default();
                let index = match name {
                    b"status" => 0,
                    b"headers" | b"response_headers" => 1,
                    b"exc_info" => 2,
                    _ => return Err(PyTypeError::new_err("start_response takes status, response_headers, exc_info")),
                };
                given[index] = *arguments.add(positional + place.cast_unsigned());
            }
        }
        let [status, headers, exc_info] = given;
        if status.is_null() || headers.is_null() {
            return Err(PyTypeError::new_err("start_response needs a status and a list of headers"));
        }
        if exchange.write.is_null() {
            return Err(PyRuntimeError::new_err("start_response was called after the response had ended"));
        }
        let replaces = !exc_info.is_null() && exc_info != ffi::Py_None();
        if replaces {
            if exchange.reply().is_some_and(Reply::is_begun) {
                return Err(error_of(py, exc_info));
            }
        } else if !exchange.draft.is_empty() {
            return Err(PyAssertionError::new_err(
                "start_response was called again without exc_info: a response has one status (PEP 3333)",
            ));
        }
        // Worked on outside of the exchange: making an error message runs Python code, which could call us again.
        let write = exchange.write;
        let mut new = std::mem::take(&mut exchange.draft);
        let drafted = draft(py, &mut new, status, headers);
        if drafted.is_err() {
            new.clear();
        }
        (*callable.cast::<StartResponse>()).exchange.draft = new;
        drafted?;
        Ok(Object::from_borrowed(write))
    }
}

/// Takes status and headers over, checked.
///
/// # Safety
/// The thread is attached and both are live objects.
unsafe fn draft(
    py: Python<'_>,
    draft: &mut Draft,
    status: *mut ffi::PyObject,
    headers: *mut ffi::PyObject,
) -> PyResult<()> {
    // SAFETY: as the caller promises; items of a list are live while nothing of Python runs, and nothing does here
    // until an error is made.
    unsafe {
        let status_bytes = text(py, status, "the status", "'200 OK'")?;
        draft.start(status_bytes).map_err(|misuse| refused(py, status, misuse))?;
        if ffi::PyList_Check(headers) == 0 {
            return Err(wrong_type(py, headers, "the headers must be a list of (name, value) tuples"));
        }
        for index in 0..ffi::PyList_GET_SIZE(headers) {
            let header = ffi::PyList_GET_ITEM(headers, index);
            if ffi::PyTuple_Check(header) == 0 || ffi::Py_SIZE(header) != 2 {
                return Err(wrong_type(py, header, "each header must be a (name, value) tuple"));
            }
            let (name, value) = (ffi::PyTuple_GET_ITEM(header, 0), ffi::PyTuple_GET_ITEM(header, 1));
            let name_bytes = text(py, name, "a header name", "'Content-Type'")?;
            let value_bytes = text(py, value, "a header value", "'text/html'")?;
            draft.field(name_bytes, value_bytes).map_err(|misuse| refused(py, header, misuse))?;
        }
        Ok(())
    }
}

/// # Safety
/// The thread is attached, `object` is live, and the result is not used beyond its life.
unsafe fn text<'a>(py: Python<'_>, object: *mut ffi::PyObject, what: &str, example: &str) -> PyResult<&'a [u8]> {
    // SAFETY: as the caller promises.
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
    // SAFETY: as the caller promises.
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
    // SAFETY: as the caller promises.
    let object = unsafe { Object::from_borrowed(object) };
    let shown = object.bind(py).repr().map_or_else(|_| String::new(), |shown| shown.to_string());
    PyValueError::new_err(format!("{shown}: {misuse}"))
}

/// The exception of an `exc_info`, with its traceback.
///
/// # Safety
/// The thread is attached and `exc_info` is live.
unsafe fn error_of(py: Python<'_>, exc_info: *mut ffi::PyObject) -> PyErr {
    // SAFETY: as the caller promises.
    let exc_info = unsafe { Object::from_borrowed(exc_info) };
    match exc_info.bind(py).get_item(1) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// `write(body_data)`
unsafe extern "C" fn call_write(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `Pairs::make` and arguments that live as long as
    // the call; the pair's other half lives as long as this one.
    unsafe {
        let py = Python::assume_attached();
        let exchange = &mut (*(*callable.cast::<Write>()).start_response.cast::<StartResponse>()).exchange;
        let result = if ffi::PyVectorcall_NARGS(count) == 1 && keywords.is_null() {
            write(py, exchange, *arguments)
        } else {
            Err(PyTypeError::new_err("write takes one argument, the bytes to send"))
        };
        answer(py, result.map(|()| Object::from_borrowed(ffi::Py_None())))
    }
}

/// # Safety
/// The thread is attached and `data` is live.
unsafe fn write(py: Python<'_>, exchange: &mut Exchange, data: *mut ffi::PyObject) -> PyResult<()> {
    // SAFETY: as the caller promises.
    let (chunk, length) = unsafe {
        if ffi::PyBytes_Check(data) == 0 {
            return Err(wrong_type(py, data, "write takes bytes"));
        }
        (Chunk(Object::from_borrowed(data)), bytes_of(data).len())
    };
    if length == 0 {
        return Ok(());
    }
    let Some(mut reply) = exchange.reply_pointer() else {
        return Err(PyRuntimeError::new_err("write was called outside of the application's call for its response"));
    };
    // SAFETY: the pointer is set only while the reply is lent to the application's call, which this is a part of.
    let reply = unsafe { reply.as_mut() };
    if !reply.is_begun() {
        reply.begin(&exchange.draft, None);
    }
    let written = reply.write(chunk);
    reply.flush();
    if let Err(misuse) = written {
        exchange.misuse = Some(misuse);
        return Err(PyValueError::new_err(misuse.to_string()));
    }
    // The caller cannot be suspended as an iterable can, so what a slow peer does not take is kept elsewhere.
    reply.relieve().map_err(PyErr::from)
}

impl Exchange {
    fn reply_pointer(&self) -> Option<NonNull<Reply<'static, Wsgi>>> {
        NonNull::new(self.reply.cast())
    }

    fn reply(&self) -> Option<&Reply<'_, Wsgi>> {
        // SAFETY: the pointer is set only while the reply is lent to the application's call, which whoever asks is a
        // part of.
        self.reply_pointer().map(|reply| unsafe { reply.as_ref() })
    }
}
