//! The awaitable objects for an [`Operation`]. They have the methods of a coroutine, so `asyncio.create_task` accepts
//! them. If the operation has to wait, they yield a [future](super::future).
//!
//! They are C-level types, because the application awaits several in every request.

use super::future::LoopFuture;
use crate::asgi::concurrency::{Awaitable, Operation, Step};
use crate::callable::{answer, caught, free, make_type};
use crate::object::Object;
use pyo3::exceptions::{PyRuntimeWarning, PyStopIteration, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::ptr;

#[repr(C)]
struct AwaitableObject<O> {
    head: ffi::PyObject,
    operation: O,
}

/// The Python type of the awaitables of one kind of operation.
pub(crate) struct AwaitableType<O> {
    kind: Object,
    operation: PhantomData<fn(O)>,
}

impl<O: Operation<Waiter = LoopFuture>> Awaitable<O> for AwaitableType<O> {
    fn new(py: Python<'_>, name: &'static CStr) -> PyResult<Self> {
        Ok(Self { kind: awaitable_type::<O>(py, name)?, operation: PhantomData })
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { kind: self.kind.clone_ref(py), operation: PhantomData }
    }

    fn make(&self, py: Python<'_>, operation: O) -> PyResult<Object> {
        // SAFETY: the type was made from the structure that is initialized here; all its fields are initialized before
        // anything else refers to the object or drops it; the thread is attached.
        unsafe {
            let it = ffi::PyObject_New::<AwaitableObject<O>>(self.kind.as_ptr().cast());
            let object = Object::from_new_or_error(py, it.cast())?;
            (&raw mut (*it).operation).write(operation);
            Ok(object)
        }
    }
}

fn awaitable_type<O: Operation<Waiter = LoopFuture>>(py: Python<'_>, name: &'static CStr) -> PyResult<Object> {
    // The interpreter keeps the address of the methods as long as the type lives, so they are never freed. A server
    // makes only two such types.
    let methods = Box::leak(Box::new([
        ffi::PyMethodDef {
            ml_name: c"send".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: send::<O> },
            ml_flags: ffi::METH_O,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef {
            ml_name: c"throw".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: throw::<O> },
            ml_flags: ffi::METH_FASTCALL,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef {
            ml_name: c"close".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: close::<O> },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef::zeroed(),
    ]));
    let slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc::<O> as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_am_await, pfunc: itself as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_iter, pfunc: itself as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_iternext, pfunc: next::<O> as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_methods, pfunc: methods.as_mut_ptr().cast() },
        ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    make_type::<AwaitableObject<O>, 6>(py, name, 0, slots)
}

impl<O: Operation<Waiter = LoopFuture>> AwaitableObject<O> {
    /// # Safety
    /// `object` was made by [`AwaitableType::make`] and outlives the result.
    unsafe fn of<'a>(object: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: the caller guarantees it; no field changes except the operation, which guards itself.
        unsafe { &*object.cast::<Self>() }
    }

    /// Runs a step of the operation. Returns the object for which the Task must wait, or the result of the operation.
    fn step(&self, py: Python<'_>) -> PyResult<ControlFlow<Option<Object>, Object>> {
        Ok(match self.operation.step(py)? {
            // A Task that receives None continues in the next iteration of its loop.
            Step::Pause => ControlFlow::Continue(none(py)),
            Step::Wait(future) => ControlFlow::Continue(future.into_object()),
            Step::Done(value) => ControlFlow::Break(value),
        })
    }
}

#[cold]
fn warn(py: Python<'_>, text: &CStr) {
    // An object may be freed while an exception is set, which must be preserved.
    let raised = PyErr::take(py);
    if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), text, 1) {
        error.write_unraisable(py, None);
    }
    if let Some(raised) = raised {
        raised.restore(py);
    }
}

unsafe extern "C" fn dealloc<O: Operation<Waiter = LoopFuture>>(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `AwaitableType::make` to which nothing refers.
    unsafe {
        let (py, it) = (Python::assume_attached(), object.cast::<AwaitableObject<O>>());
        if let Some(text) = (*it).operation.warning(py) {
            warn(py, text);
        }
        ptr::drop_in_place(&raw mut (*it).operation);
        free(object);
    }
}

/// Implements `__await__` and `__iter__`.
unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with a live object.
    unsafe { Object::from_borrowed(object) }.into_ptr()
}

/// `__next__`: null without an exception means the end without a value.
unsafe extern "C" fn next<O: Operation<Waiter = LoopFuture>>(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `AwaitableType::make`.
    let (py, it) = unsafe { (Python::assume_attached(), AwaitableObject::<O>::of(object)) };
    let mut is_done = false;
    let result = answer(
        py,
        caught(|| match it.step(py)? {
            ControlFlow::Continue(awaited) => Ok(awaited),
            ControlFlow::Break(value) => {
                is_done = true;
                Ok(value.unwrap_or_else(|| none(py)))
            }
        }),
    );
    if is_done { end(py, result) } else { result }
}

/// Ends an iterator with `value`, whose reference it takes over.
fn end(_py: Python<'_>, value: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the value is live, its reference is owned here, and the thread is attached. It is a message or None, so
    // neither an exception nor a tuple, which `PyErr_SetObject` would take for an exception's arguments.
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

/// `send(value)`: a Task always sends None; the value is ignored.
unsafe extern "C" fn send<O: Operation<Waiter = LoopFuture>>(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `AwaitableType::make`.
    let (py, it) = unsafe { (Python::assume_attached(), AwaitableObject::<O>::of(object)) };
    answer(
        py,
        caught(|| match it.step(py)? {
            ControlFlow::Continue(awaited) => Ok(awaited),
            ControlFlow::Break(value) => Err(PyStopIteration::new_err(value.map(|value| value.bind(py).unbind()))),
        }),
    )
}

/// Implements `throw(kind, value=None, traceback=None)`.
unsafe extern "C" fn throw<O: Operation<Waiter = LoopFuture>>(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `AwaitableType::make` and `count` live arguments.
    let (py, it, given) = unsafe {
        let argument = |index: isize| (index < count).then(|| Object::from_borrowed(*arguments.offset(index)));
        (Python::assume_attached(), AwaitableObject::<O>::of(object), [argument(0), argument(1)])
    };
    answer(
        py,
        caught(|| match given {
            [Some(kind), value] if count <= 3 => {
                // The argument is ignored: the exception has its own traceback.
                let value = value.filter(|value| !value.bind(py).is_none());
                Err(it.operation.throw(py, PyErr::from_value(value.unwrap_or(kind).bind(py))))
            }
            _ => Err(PyTypeError::new_err("throw takes an exception, or its class, value and traceback")),
        }),
    )
}

/// Implements `close()`.
unsafe extern "C" fn close<O: Operation<Waiter = LoopFuture>>(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `AwaitableType::make`.
    let (py, it) = unsafe { (Python::assume_attached(), AwaitableObject::<O>::of(object)) };
    answer(
        py,
        caught(|| {
            it.operation.close(py);
            Ok(none(py))
        }),
    )
}
