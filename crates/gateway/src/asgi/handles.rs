//! The `receive` and `send` of a call. They are C-level types with vectorcall, because the application calls them in
//! every request. They and the call object are reused for another request if nothing else refers to them; so an object
//! that the application has kept still belongs to its old response.

use super::call::HttpCall;
use super::concurrency::{Awaitable as _, EventLoop};
use super::operation::MessageOperation;
use super::shared::{Loop, Shared};
use crate::callable::{CallableHead, answer, callable_type, caught, free, only_argument};
use crate::compat;
use crate::guarded::Guarded;
use crate::interface::{self, Exchange, ExchangeHost};
use crate::object::Object;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Arc, Weak};

type MessageAwaitable = <Loop as EventLoop>::Awaitable<MessageOperation>;

/// The structure of a `Receive` and of a `Send`.
#[repr(C)]
struct Channel {
    callable: CallableHead,
    call: Py<HttpCall>,
    /// The type of the awaitable that a call returns.
    awaitable: MessageAwaitable,
}

/// Makes handles, and keeps some returned ones for reuse.
pub(super) struct AsgiHandleTypes {
    receive: Object,
    send: Object,
    receiving: MessageAwaitable,
    sending: MessageAwaitable,
    spare: Guarded<Vec<AsgiHandles>>,
}

/// The objects of one call.
pub(crate) struct AsgiHandles {
    call: Py<HttpCall>,
    receive: Object,
    send: Object,
}

/// The maximum number of spare handles. More are returned only after many calls were in progress at once.
const SPARE: usize = 64;

impl AsgiHandleTypes {
    pub(super) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            receive: channel_type(py, c"kirsch._native.Receive")?,
            send: channel_type(py, c"kirsch._native.Send")?,
            receiving: MessageAwaitable::new(py, c"kirsch._native.Receiving")?,
            sending: MessageAwaitable::new(py, c"kirsch._native.Sending")?,
            spare: Guarded::new(Vec::new()),
        })
    }

    /// Returns handles for a new call of `host`. All handles of one server belong to the same host.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(super) fn take(
        &self,
        py: Python<'_>,
        host: &Weak<dyn ExchangeHost>,
        shared: &Arc<Shared>,
    ) -> PyResult<AsgiHandles> {
        match self.spare.with(py, Vec::pop) {
            Some(handles) => Ok(handles),
            None => self.make(py, host, shared),
        }
    }

    /// Keeps the handles of an ended call for reuse, if nothing else refers to them.
    pub(super) fn keep(&self, py: Python<'_>, handles: AsgiHandles) {
        if interface::Handles::is_shared(&handles) {
            return;
        }
        handles.call.get().reset(py);
        let surplus = self.spare.with(py, |spare| {
            if spare.len() < SPARE {
                spare.push(handles);
                return None;
            }
            Some(handles)
        });
        drop(surplus);
    }

    fn make(&self, py: Python<'_>, host: &Weak<dyn ExchangeHost>, shared: &Arc<Shared>) -> PyResult<AsgiHandles> {
        let call = Py::new(py, HttpCall::new(Exchange::new(Weak::clone(host)), Arc::clone(shared)))?;
        let channel = |kind: &Object, vectorcall: ffi::vectorcallfunc, awaitable: &MessageAwaitable| {
            // SAFETY: the types were made from the structure that is initialized here; all its fields are initialized
            // before anything else refers to the object or drops it; the thread is attached.
            unsafe {
                let it = ffi::PyObject_New::<Channel>(kind.as_ptr().cast());
                let object = Object::from_new_or_error(py, it.cast())?;
                (&raw mut (*it).callable.vectorcall).write(Some(vectorcall));
                (&raw mut (*it).call).write(call.clone_ref(py));
                (&raw mut (*it).awaitable).write(awaitable.clone_ref(py));
                PyResult::Ok(object)
            }
        };
        let receive = channel(&self.receive, call_receive, &self.receiving)?;
        let send = channel(&self.send, call_send, &self.sending)?;
        Ok(AsgiHandles { call, receive, send })
    }
}

impl AsgiHandles {
    pub(super) fn call(&self) -> &Py<HttpCall> {
        &self.call
    }

    pub(super) fn receive(&self) -> &Object {
        &self.receive
    }

    pub(super) fn send(&self) -> &Object {
        &self.send
    }
}

impl interface::Handles for AsgiHandles {
    fn exchange(&self) -> &Exchange {
        self.call.get().exchange()
    }

    /// Returns true on builds without a GIL: a reference count there is the sum of two, and another thread may move a
    /// reference between them meanwhile. So handles are not reused there.
    fn is_shared(&self) -> bool {
        // SAFETY: all objects are live, and a count is read atomically. With a GIL the count is exact, because a thread
        // that returns handles is attached. `receive`, `send` and each of their awaitables hold a reference to the
        // call.
        !compat::COUNTS_REFERENCES
            || unsafe {
                ffi::Py_REFCNT(self.call.as_ptr()) != 3
                    || ffi::Py_REFCNT(self.receive.as_ptr()) != 1
                    || ffi::Py_REFCNT(self.send.as_ptr()) != 1
            }
    }

    fn may_block(&self) -> bool {
        false
    }
}

/// Creates the type of `receive` or `send`. It is marked as a coroutine function (`inspect.markcoroutinefunction`), as
/// it is one in other servers: asgiref's `async_to_sync`, with which Channels runs synchronous consumers, warns about
/// other callables.
fn channel_type(py: Python<'_>, name: &'static CStr) -> PyResult<Object> {
    const fn mark(name: &'static CStr, get: ffi::getter) -> ffi::PyGetSetDef {
        ffi::PyGetSetDef { name: name.as_ptr(), get: Some(get), set: None, doc: ptr::null(), closure: ptr::null_mut() }
    }
    // The interpreter keeps this address as long as the type lives.
    static mut MARKS: [ffi::PyGetSetDef; 3] = [
        mark(c"_is_coroutine_marker", inspect_mark),
        mark(c"_is_coroutine", asyncio_mark),
        ffi::PyGetSetDef { name: ptr::null(), get: None, set: None, doc: ptr::null(), closure: ptr::null_mut() },
    ];
    let marks = ffi::PyType_Slot { slot: ffi::Py_tp_getset, pfunc: (&raw mut MARKS).cast() };
    callable_type::<Channel>(py, name, drop_channel, Some(marks))
}

/// Returns the mark of CPython 3.12 and later.
unsafe extern "C" fn inspect_mark(_: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached.
    let py = unsafe { Python::assume_attached() };
    answer(py, caught(|| Ok(py.import("inspect")?.getattr("_is_coroutine_mark")?.unbind().into())))
}

/// Returns the mark of CPython before 3.12.
unsafe extern "C" fn asyncio_mark(_: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached.
    let py = unsafe { Python::assume_attached() };
    answer(py, caught(|| Ok(py.import("asyncio.coroutines")?.getattr("_is_coroutine")?.unbind().into())))
}

unsafe extern "C" fn drop_channel(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `AsgiHandleTypes::make` to which nothing refers.
    unsafe {
        let it = object.cast::<Channel>();
        ptr::drop_in_place(&raw mut (*it).call);
        ptr::drop_in_place(&raw mut (*it).awaitable);
        free(object);
    }
}

/// Implements `receive()`.
unsafe extern "C" fn call_receive(
    callable: *mut ffi::PyObject,
    _arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `AsgiHandleTypes::make`.
    let (py, it) = unsafe { (Python::assume_attached(), &*callable.cast::<Channel>()) };
    // SAFETY: the names of keyword arguments are a tuple.
    let is_given = unsafe { ffi::PyVectorcall_NARGS(count) != 0 || !keywords.is_null() && ffi::Py_SIZE(keywords) != 0 };
    answer(
        py,
        caught(|| {
            if is_given {
                return Err(PyTypeError::new_err("receive takes no arguments"));
            }
            it.awaitable.make(py, MessageOperation::new(it.call.clone_ref(py), None))
        }),
    )
}

/// Implements `send(message)`.
unsafe extern "C" fn call_send(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `AsgiHandleTypes::make` and arguments that live as
    // long as the call.
    let (py, it, message) = unsafe {
        let message = only_argument(arguments, count, keywords, b"message");
        let message = message.map(|message| Object::from_borrowed(message));
        (Python::assume_attached(), &*callable.cast::<Channel>(), message)
    };
    answer(
        py,
        caught(|| match message {
            Some(message) => it.awaitable.make(py, MessageOperation::new(it.call.clone_ref(py), Some(message))),
            None => Err(PyTypeError::new_err("send takes one argument, the message")),
        }),
    )
}
