//! What `receive()` and `send(message)` return: awaitables with the methods of a coroutine, so that `asyncio.create_task`
//! takes them. They do their work when they are first awaited: one that is cancelled before has taken no message, and has sent
//! none. Then they wait, if they have to, with a coroutine that is written in Python.
//!
//! They are C-level types, because the application awaits some in every request.

use super::call::HttpCall;
use super::sending::SendAgain;
use super::sending::send_any;
use super::websocket::Outcome;
use crate::callable::{answer, caught, free, make_type};
use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::ptr;

#[repr(C)]
struct Awaitable {
    head: ffi::PyObject,
    call: Py<HttpCall>,
    progress: Guarded<Progress>,
}

enum Progress {
    /// It was not awaited yet. The message to be sent; `None`: one is to be received.
    Created(Option<Object>),
    /// It goes on with this coroutine.
    Waiting(Object),
    Over,
}

/// What a step has come to.
enum Step {
    /// It waits for this.
    Yielded(Object),
    /// It is over, with this value; `None`: without one.
    Done(Option<Object>),
}

/// The types.
pub(super) struct AwaitableTypes {
    receiving: Object,
    sending: Object,
}

impl AwaitableTypes {
    pub(super) fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            receiving: awaitable_type(py, c"kirsch._native.Receiving")?,
            sending: awaitable_type(py, c"kirsch._native.Sending")?,
        })
    }

    pub(super) fn receiving(&self) -> &Object {
        &self.receiving
    }

    pub(super) fn sending(&self) -> &Object {
        &self.sending
    }
}

fn awaitable_type(py: Python<'_>, name: &'static std::ffi::CStr) -> PyResult<Object> {
    // The interpreter keeps the address of the methods for as long as the type lives.
    static mut METHODS: [ffi::PyMethodDef; 4] = [
        ffi::PyMethodDef {
            ml_name: c"send".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: send },
            ml_flags: ffi::METH_O,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef {
            ml_name: c"throw".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: throw },
            ml_flags: ffi::METH_FASTCALL,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef {
            ml_name: c"close".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: close },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef::zeroed(),
    ];
    let slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_am_await, pfunc: itself as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_iter, pfunc: itself as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_iternext, pfunc: next as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_methods, pfunc: (&raw mut METHODS).cast() },
        ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    make_type::<Awaitable, 6>(py, name, 0, slots)
}

/// An awaitable of one of the [types](AwaitableTypes), which sends `message`, or receives one.
pub(super) fn awaitable(
    py: Python<'_>,
    kind: &Object,
    call: &Py<HttpCall>,
    message: Option<Object>,
) -> PyResult<Object> {
    // SAFETY: the type was made from the structure that is initialised here, all fields of it before anything else refers to
    // the object, or drops it; the thread is attached.
    unsafe {
        let it = ffi::PyObject_New::<Awaitable>(kind.as_ptr().cast());
        let object = Object::from_new_or_error(py, it.cast())?;
        (&raw mut (*it).call).write(call.clone_ref(py));
        (&raw mut (*it).progress).write(Guarded::new(Progress::Created(message)));
        Ok(object)
    }
}

impl Awaitable {
    /// # Safety
    /// `object` was made by [`awaitable`] and outlives the result.
    unsafe fn of<'a>(object: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: as the caller promises; but for the progress, which is guarded, none of it ever changes.
        unsafe { &*object.cast::<Self>() }
    }

    /// Goes on, or begins.
    ///
    /// # Errors
    /// `RuntimeError` if it was over before; what is raised meanwhile, after which it is over.
    fn step(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<Step> {
        // It is over unless there is something to wait for: an exception is raised once.
        let coroutine = match self.take(py) {
            Progress::Waiting(coroutine) => coroutine,
            Progress::Created(None) => match self.call.get().take_message(py)? {
                Some(message) => return Ok(Step::Done(Some(message.into()))),
                None => {
                    self.wait_with(py, |call| call.shared.event_loop().map(|event_loop| &event_loop.wait_to_receive))?
                }
            },
            Progress::Created(Some(message)) => match send_any(py, &self.call, &message.bind(py))? {
                Outcome::Done => {
                    message.release(py);
                    return Ok(Step::Done(None));
                }
                Outcome::Wait => {
                    self.wait_with(py, |call| call.shared.event_loop().map(|event_loop| &event_loop.wait_to_send))?
                }
                Outcome::Again => {
                    let event_loop = self.call.get().shared.event_loop()?;
                    let again = SendAgain::new(self.call.clone_ref(py), message.bind(py).unbind());
                    event_loop.send_later.call1(py, (self.call.clone_ref(py), again))?.into()
                }
            },
            Progress::Over => return Err(PyRuntimeError::new_err(REUSED)),
        };
        // While it goes on it may be asked for what it waits for.
        self.set(py, Progress::Waiting(coroutine.clone_ref(py)));
        let mut result = ptr::null_mut();
        let step = match value.filter(|value| !value.is_none()) {
            None => {
                // SAFETY: both are live and the thread is attached; a result is a new reference, and with PYGEN_ERROR the
                // exception is set.
                let (status, result) = unsafe {
                    let status = ffi::PyIter_Send(coroutine.as_ptr(), ffi::Py_None(), &raw mut result);
                    (status, Object::from_new_or_error(py, result))
                };
                result.map(|result| match status {
                    ffi::PySendResult::PYGEN_NEXT => Step::Yielded(result),
                    _ => Step::Done(Some(result)),
                })
            }
            Some(value) => coroutine
                .bind(py)
                .call_method1(intern!(py, "send"), (value,))
                .map(|yielded| Step::Yielded(yielded.unbind().into())),
        };
        if !matches!(step, Ok(Step::Yielded(_))) {
            self.set(py, Progress::Over);
        }
        step
    }

    /// A coroutine that `wait` of the loop makes.
    fn wait_with<'a>(
        &'a self,
        py: Python<'_>,
        wait: impl FnOnce(&'a HttpCall) -> PyResult<&'a Py<PyAny>>,
    ) -> PyResult<Object> {
        Ok(wait(self.call.get())?.call1(py, (self.call.clone_ref(py),))?.into())
    }

    /// Raises in the coroutine what `throw` was called with: an instance, or a class with arguments.
    fn throw(&self, py: Python<'_>, error: PyErr) -> PyResult<Object> {
        match self.take(py) {
            Progress::Waiting(coroutine) => {
                self.set(py, Progress::Waiting(coroutine.clone_ref(py)));
                let result = coroutine.bind(py).call_method1(intern!(py, "throw"), (error.into_value(py),));
                if result.is_err() {
                    self.set(py, Progress::Over);
                }
                result.map(|yielded| yielded.unbind().into())
            }
            Progress::Created(_) => Err(error),
            Progress::Over => Err(PyRuntimeError::new_err(REUSED)),
        }
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.take(py) {
            Progress::Waiting(coroutine) => coroutine.bind(py).call_method0(intern!(py, "close")).map(drop),
            Progress::Created(_) | Progress::Over => Ok(()),
        }
    }

    fn take(&self, py: Python<'_>) -> Progress {
        self.progress.with(py, |progress| std::mem::replace(progress, Progress::Over))
    }

    fn set(&self, py: Python<'_>, next: Progress) {
        // Dropped outside, because that may run code of the application's.
        let before = self.progress.with(py, |progress| std::mem::replace(progress, next));
        drop(before);
    }
}

const REUSED: &str = "cannot reuse already awaited coroutine";

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `awaitable` to which nothing refers any more.
    unsafe {
        let it = object.cast::<Awaitable>();
        ptr::drop_in_place(&raw mut (*it).progress);
        ptr::drop_in_place(&raw mut (*it).call);
        free(object);
    }
}

/// `__await__`, `__iter__`
unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with a live object.
    unsafe { Object::from_borrowed(object) }.into_ptr()
}

/// `__next__`: null without an exception is the end without a value.
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `awaitable`.
    let (py, it) = unsafe { (Python::assume_attached(), Awaitable::of(object)) };
    let mut is_done = false;
    let result = answer(
        py,
        caught(|| match it.step(py, None)? {
            Step::Yielded(awaited) => Ok(awaited),
            Step::Done(value) => {
                is_done = true;
                Ok(value.unwrap_or_else(|| none(py)))
            }
        }),
    );
    if is_done { end(py, result) } else { result }
}

/// The end of an iterator with `value`, of which it takes the reference.
fn end(_py: Python<'_>, value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the value is live, its reference is given away, and the thread is attached. It is a message or None: no
    // exception, and no tuple, which would be taken for the arguments of one.
    unsafe {
        if value != ffi::Py_None() {
            ffi::PyErr_SetObject(ffi::PyExc_StopIteration, value);
        }
        ffi::Py_DECREF(value);
    }
    ptr::null_mut()
}

fn none(py: Python<'_>) -> Object {
    py.None().into()
}

/// `send(value)`
unsafe extern "C" fn send(object: *mut ffi::PyObject, value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `awaitable` and a live value.
    let (py, it, value) = unsafe { (Python::assume_attached(), Awaitable::of(object), Object::from_borrowed(value)) };
    answer(
        py,
        caught(|| match it.step(py, Some(value.bind(py)).as_ref())? {
            Step::Yielded(awaited) => Ok(awaited),
            Step::Done(value) => Err(PyStopIteration::new_err(value.map(|value| value.bind(py).unbind()))),
        }),
    )
}

/// `throw(kind, value=None, traceback=None)`
unsafe extern "C" fn throw(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `awaitable` and so many live arguments.
    let (py, it, given) = unsafe {
        let argument = |index: isize| (index < count).then(|| Object::from_borrowed(*arguments.offset(index)));
        (Python::assume_attached(), Awaitable::of(object), [argument(0), argument(1)])
    };
    answer(
        py,
        caught(|| match given {
            [Some(kind), value] if count <= 3 => {
                // The traceback is the exception's own.
                let value = value.filter(|value| !value.bind(py).is_none());
                it.throw(py, PyErr::from_value(value.unwrap_or(kind).bind(py)))
            }
            _ => Err(PyTypeError::new_err("throw takes an exception, or its class, value and traceback")),
        }),
    )
}

/// `close()`
unsafe extern "C" fn close(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `awaitable`.
    let (py, it) = unsafe { (Python::assume_attached(), Awaitable::of(object)) };
    answer(py, caught(|| it.close(py).map(|()| none(py))))
}
