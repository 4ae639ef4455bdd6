//! The awaitables that `receive()` and `send(message)` return. They have the methods of a coroutine, so that
//! `asyncio.create_task` accepts them. They do their work when they are first awaited: an awaitable that is cancelled
//! before has taken no message, and has sent none. If they have to wait, they yield a [future](super::future).
//!
//! They are C-level types, because the application awaits some in every request.

use super::call::{HttpCall, WaitFor};
use super::future::LoopFuture;
use super::sending::send_any;
use super::websocket::Outcome;
use crate::callable::{answer, caught, free, make_type};
use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::exceptions::{PyRuntimeError, PyRuntimeWarning, PyStopIteration, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::ptr;

#[repr(C)]
struct Awaitable {
    head: ffi::PyObject,
    call: Py<HttpCall>,
    progress: Guarded<Progress>,
}

enum Progress {
    /// The awaitable has not been awaited yet.
    Created(Next),
    /// The awaitable has let other tasks run first.
    Resumed(Next),
    /// The awaitable waits for this future.
    Waiting(LoopFuture, Next),
    Over,
}

/// The next action of an awaitable.
enum Next {
    Receive,
    /// To send this message.
    Send(Object),
    /// To return: the client has read the output.
    Return,
}

/// The result of a step.
enum Step {
    /// The awaitable waits for this object.
    Yielded(Object),
    /// The awaitable is over, with this value; `None`: without a value.
    Done(Option<Object>),
}

/// The types of the awaitables.
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

fn awaitable_type(py: Python<'_>, name: &'static CStr) -> PyResult<Object> {
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

/// Makes an awaitable of one of the [types](AwaitableTypes). It sends `message`, or receives one if that is `None`.
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
        let next = message.map_or(Next::Receive, Next::Send);
        (&raw mut (*it).progress).write(Guarded::new(Progress::Created(next)));
        Ok(object)
    }
}

impl Awaitable {
    /// # Safety
    /// `object` was made by [`awaitable`] and outlives the result.
    unsafe fn of<'a>(object: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: as the caller promises; none of it ever changes except the progress, which is guarded.
        unsafe { &*object.cast::<Self>() }
    }

    /// Runs one step of the awaitable.
    ///
    /// # Errors
    /// `RuntimeError` if the awaitable was over before; any exception that the step raises, after which the awaitable
    /// is over.
    fn step(&self, py: Python<'_>) -> PyResult<Step> {
        // The awaitable is over unless it has to wait, so an exception is raised only once.
        let next = match self.take(py) {
            Progress::Created(next) if self.call.get().lets_others_run(py) => {
                self.set(py, Progress::Resumed(next));
                // A Task that gets None goes on in the next round of its loop.
                return Ok(Step::Yielded(none(py)));
            }
            Progress::Created(next) | Progress::Resumed(next) => next,
            Progress::Waiting(future, next) if future.is_done(py) => next,
            Progress::Waiting(future, _) => {
                self.call.get().forget(py, &future);
                return Err(PyRuntimeError::new_err("what receive or send waits for was not waited for"));
            }
            Progress::Over => return Err(PyRuntimeError::new_err(REUSED)),
        };
        match next {
            Next::Receive => match HttpCall::receive(&self.call, py)? {
                Ok(message) => Ok(Step::Done(Some(message.into()))),
                Err(future) => Ok(self.wait(py, future, Next::Receive)),
            },
            Next::Send(message) => match send_any(py, &self.call, &message.bind(py))? {
                Outcome::Done => {
                    message.release(py);
                    Ok(Step::Done(None))
                }
                Outcome::Wait => self.wait_for_room(py, Next::Return),
                Outcome::Again => self.wait_for_room(py, Next::Send(message)),
            },
            Next::Return => Ok(Step::Done(None)),
        }
    }

    fn wait_for_room(&self, py: Python<'_>, next: Next) -> PyResult<Step> {
        Ok(self.wait(py, HttpCall::wait_for(&self.call, py, WaitFor::Room)?, next))
    }

    fn wait(&self, py: Python<'_>, future: LoopFuture, next: Next) -> Step {
        let awaited = future.as_object().clone_ref(py);
        self.call.get().has_waited(py);
        self.set(py, Progress::Waiting(future, next));
        Step::Yielded(awaited)
    }

    /// Ends the awaitable. Returns the exception with which `throw` was called, or `RuntimeError` if the awaitable was
    /// over before.
    fn throw(&self, py: Python<'_>, error: PyErr) -> PyErr {
        match self.take(py) {
            Progress::Waiting(future, _) => {
                self.call.get().forget(py, &future);
                error
            }
            Progress::Created(_) | Progress::Resumed(_) => error,
            Progress::Over => PyRuntimeError::new_err(REUSED),
        }
    }

    fn close(&self, py: Python<'_>) {
        if let Progress::Waiting(future, _) = self.take(py) {
            self.call.get().forget(py, &future);
        }
    }

    /// Warns of an awaitable that was never awaited, as the interpreter does for a coroutine: `send` without `await`
    /// has not sent its message.
    fn warn_if_unawaited(&self, py: Python<'_>) {
        let text = self.progress.with(py, |progress| match progress {
            Progress::Created(Next::Receive) => Some(c"coroutine 'receive' was never awaited"),
            Progress::Created(_) => Some(c"coroutine 'send' was never awaited"),
            Progress::Resumed(_) | Progress::Waiting(..) | Progress::Over => None,
        });
        if let Some(text) = text {
            warn(py, text);
        }
    }

    fn take(&self, py: Python<'_>) -> Progress {
        self.progress.with(py, |progress| std::mem::replace(progress, Progress::Over))
    }

    fn set(&self, py: Python<'_>, next: Progress) {
        // Dropped outside of the guard, because dropping may run code of the application.
        let before = self.progress.with(py, |progress| std::mem::replace(progress, next));
        drop(before);
    }
}

const REUSED: &str = "cannot reuse already awaited coroutine";

#[cold]
fn warn(py: Python<'_>, text: &CStr) {
    // An object may be freed while an exception is set, which must not be lost.
    let raised = PyErr::take(py);
    if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), text, 1) {
        error.write_unraisable(py, None);
    }
    if let Some(raised) = raised {
        raised.restore(py);
    }
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `awaitable` to which nothing refers any more.
    unsafe {
        let it = object.cast::<Awaitable>();
        (*it).warn_if_unawaited(Python::assume_attached());
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
        caught(|| match it.step(py)? {
            Step::Yielded(awaited) => Ok(awaited),
            Step::Done(value) => {
                is_done = true;
                Ok(value.unwrap_or_else(|| none(py)))
            }
        }),
    );
    if is_done { end(py, result) } else { result }
}

/// Ends an iterator with `value`, and takes the reference to it.
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

/// `send(value)`: a Task sends only None, and another value is ignored.
unsafe extern "C" fn send(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `awaitable`.
    let (py, it) = unsafe { (Python::assume_attached(), Awaitable::of(object)) };
    answer(
        py,
        caught(|| match it.step(py)? {
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
                Err(it.throw(py, PyErr::from_value(value.unwrap_or(kind).bind(py))))
            }
            _ => Err(PyTypeError::new_err("throw takes an exception, or its class, value and traceback")),
        }),
    )
}

/// `close()`
unsafe extern "C" fn close(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `awaitable`.
    let (py, it) = unsafe { (Python::assume_attached(), Awaitable::of(object)) };
    answer(
        py,
        caught(|| {
            it.close(py);
            Ok(none(py))
        }),
    )
}
