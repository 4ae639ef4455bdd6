//! The server's own future, for which a Task waits. asyncio's Task accepts it like an `asyncio.Future`.
//!
//! ```text
//!   Task ── steps ──▶ coroutine ── yields ──▶ LoopFuture
//!     ▲                                          │
//!     └────── the Task's wake-up callback ◀──────┘  wake: now, or in the loop's next iteration
//! ```
//!
//! asyncio accepts every object with these methods as a future. This one has one callback, the Task's. No Task is
//! current while the loop waits for the engine, so the callback can be called immediately. With an `asyncio.Future` the
//! loop would create a handle and run it in its next iteration, which takes longer than all other work for a short
//! message.
//!
//! It is a C-level type, because an application that waits for each message creates one for each.

use crate::asgi::concurrency::TaskWaiter;
use crate::callable::{answer, caught, free_tracked, make_type};
use crate::compat;
use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

/// Creates the futures of one event loop.
pub(super) struct Futures {
    kind: Object,
    /// The event loop that hosts the engine.
    event_loop: Object,
    /// A completed `asyncio.Future` of the loop. A Task asks the future that wakes it for its result; for an
    /// `asyncio.Future` it does so without looking up the method by name.
    done: Object,
    /// True if the loop must run the callbacks: in asyncio's debug mode, which measures them, and on an interpreter
    /// where C code cannot enter a context.
    is_run_by_loop: bool,
}

/// A reference to a future.
pub(crate) struct LoopFuture(Object);

#[repr(C)]
struct FutureObject {
    head: ffi::PyObject,
    /// `_asyncio_future_blocking`: a Task requires that this flag is set on an object that was awaited correctly, and
    /// clears it.
    is_blocking: UnsafeCell<c_char>,
    event_loop: Object,
    state: Guarded<FutureState>,
}

#[derive(Default)]
struct FutureState {
    callback: Option<Callback>,
    /// True once the callback has been called or is about to be.
    is_done: bool,
    /// True while a request's first step runs with the parked Task. A cancellation is only noted then.
    is_held: bool,
    is_cancelled: bool,
    /// The message of the cancellation.
    message: Option<Object>,
}

struct Callback {
    function: Object,
    context: Object,
}

impl Futures {
    /// Creates futures for Tasks of `event_loop`, which hosts the engine.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(super) fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        let is_run_by_loop = !compat::ENTERS_CONTEXTS || event_loop.call_method0("get_debug")?.is_truthy()?;
        let done = event_loop.call_method0("create_future")?;
        done.call_method1("set_result", (py.None(),))?;
        let event_loop = event_loop.clone().unbind().into();
        Ok(Self { kind: future_type(py)?, event_loop, done: done.unbind().into(), is_run_by_loop })
    }

    /// Creates a future of the hosting loop.
    pub(super) fn make(&self, py: Python<'_>) -> PyResult<LoopFuture> {
        self.make_for(py, self.event_loop.clone_ref(py))
    }

    /// Creates a future of another loop, which runs in this thread.
    pub(super) fn make_elsewhere(&self, py: Python<'_>) -> PyResult<LoopFuture> {
        let event_loop = py.import(intern!(py, "asyncio"))?.call_method0(intern!(py, "get_running_loop"))?;
        self.make_for(py, event_loop.unbind().into())
    }

    fn make_for(&self, py: Python<'_>, event_loop: Object) -> PyResult<LoopFuture> {
        // SAFETY: the type was made from the structure that is initialized here; all its fields are initialized before
        // anything else refers to the object, visits it or drops it; the thread is attached.
        unsafe {
            let it = ffi::PyObject_GC_New::<FutureObject>(self.kind.as_ptr().cast());
            let object = Object::from_new_or_error(py, it.cast())?;
            (&raw mut (*it).is_blocking).write(UnsafeCell::new(1));
            (&raw mut (*it).event_loop).write(event_loop);
            (&raw mut (*it).state).write(Guarded::new(FutureState::default()));
            ffi::PyObject_GC_Track(it.cast());
            Ok(LoopFuture(object))
        }
    }

    /// Wakes the waiting Task, called while the hosting loop waits for the engine. A Task of that loop runs a step at
    /// once.
    ///
    /// # Errors
    /// The exceptions that the Task does not catch: `SystemExit`, `KeyboardInterrupt`.
    pub(super) fn wake(&self, py: Python<'_>, future: &LoopFuture) -> PyResult<()> {
        if self.is_run_by_loop || future.of().event_loop.as_ptr() != self.event_loop.as_ptr() {
            return future.wake_soon(py);
        }
        let Some(callback) = future.finish(py) else { return Ok(()) };
        // SAFETY: the object is a context, or the call fails; the thread is attached.
        if unsafe { compat::PyContext_Enter(callback.context.as_ptr()) } != 0 {
            // The context is already entered, by another Task that runs this loop within its own step.
            PyErr::fetch(py);
            return future.of().call_soon(py, &callback, &future.0);
        }
        let result = callback.call(py, &self.done);
        // SAFETY: as above; this thread has entered the context.
        unsafe {
            if compat::PyContext_Exit(callback.context.as_ptr()) != 0 {
                PyErr::fetch(py).write_unraisable(py, None);
            }
        }
        result
    }
}

impl LoopFuture {
    pub(super) fn as_object(&self) -> &Object {
        &self.0
    }

    pub(super) fn into_object(self) -> Object {
        self.0
    }

    /// Returns true if a Task waits for the future.
    pub(super) fn is_awaited(&self, py: Python<'_>) -> bool {
        self.of().state.with(py, |state| state.callback.is_some())
    }

    pub(super) fn is_cancelled(&self, py: Python<'_>) -> bool {
        self.of().state.with(py, |state| state.is_cancelled)
    }

    /// Sets or clears `is_held`. While the future is held, its Task executes a request, and a cancellation of the
    /// future does not wake the Task.
    pub(super) fn hold(&self, py: Python<'_>, is_held: bool) {
        self.of().state.with(py, |state| state.is_held = is_held);
    }

    /// Makes the waiting Task run a step now. Its context must be entered, and no other Task may be current.
    ///
    /// # Errors
    /// As [`Futures::wake`].
    pub(super) fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.of().state.with(py, |state| state.is_cancelled = false);
        self.finish(py).map_or(Ok(()), |callback| callback.call(py, &self.0))
    }

    /// Marks the future as done. Returns the callback, which the caller must call.
    fn finish(&self, py: Python<'_>) -> Option<Callback> {
        self.of().state.with(py, |state| {
            state.is_done = true;
            state.callback.take()
        })
    }

    fn of(&self) -> &FutureObject {
        // SAFETY: the object was made by `Futures`, and this reference keeps it alive.
        unsafe { FutureObject::of(self.0.as_ptr()) }
    }
}

impl TaskWaiter for LoopFuture {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    fn is(&self, other: &Self) -> bool {
        self.0.as_ptr() == other.0.as_ptr()
    }

    fn is_done(&self, py: Python<'_>) -> bool {
        self.of().state.with(py, |state| state.is_done)
    }

    fn wake_soon(&self, py: Python<'_>) -> PyResult<()> {
        let Some(callback) = self.finish(py) else { return Ok(()) };
        let this = self.of();
        let running = py.import(intern!(py, "asyncio"))?.call_method0(intern!(py, "_get_running_loop"))?;
        let event_loop = this.event_loop.bind(py);
        if running.is(&event_loop) {
            return this.call_soon(py, &callback, &self.0);
        }
        match this.schedule(py, intern!(py, "call_soon_threadsafe"), &callback, &self.0) {
            // The loop has been closed, so nothing waits in it.
            Err(error) if error.is_instance_of::<PyRuntimeError>(py) => Ok(()),
            scheduled => scheduled,
        }
    }
}

impl Callback {
    fn call(&self, py: Python<'_>, future: &Object) -> PyResult<()> {
        let arguments = [ptr::null_mut(), future.as_ptr()];
        // SAFETY: both objects are live, and the thread is attached; the callee may use the slot before the argument
        // (PY_VECTORCALL_ARGUMENTS_OFFSET).
        unsafe {
            let count = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            let function = self.function.as_ptr();
            let result = ffi::PyObject_Vectorcall(function, arguments.as_ptr().add(1), count, ptr::null_mut());
            Object::from_new_or_error(py, result).map(|result| result.release(py))
        }
    }
}

impl FutureObject {
    /// # Safety
    /// `object` was made by [`Futures`] and outlives the result.
    unsafe fn of<'a>(object: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: the caller guarantees it; no field changes except the state, which is guarded, and the cell.
        unsafe { &*object.cast::<Self>() }
    }

    fn call_soon(&self, py: Python<'_>, callback: &Callback, myself: &Object) -> PyResult<()> {
        self.schedule(py, intern!(py, "call_soon"), callback, myself)
    }

    fn schedule(
        &self,
        py: Python<'_>,
        how: &Bound<'_, pyo3::types::PyString>,
        Callback { function, context }: &Callback,
        myself: &Object,
    ) -> PyResult<()> {
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "context"), context.bind(py))?;
        self.event_loop.bind(py).call_method(how, (function.bind(py), myself.bind(py)), Some(&keywords)).map(drop)
    }

    /// Implements `add_done_callback(callback, *, context=None)`.
    fn add_callback(&self, py: Python<'_>, myself: &Object, function: Object, context: Object) -> PyResult<()> {
        let callback = Callback { function, context };
        // A replaced callback is dropped outside of the guard.
        let (is_done, callback) = self.state.with(py, |state| {
            if state.is_done { (true, Some(callback)) } else { (false, state.callback.replace(callback)) }
        });
        match callback {
            Some(callback) if is_done => self.call_soon(py, &callback, myself),
            _ => Ok(()),
        }
    }

    /// `cancel(msg=None)`. Returns true if this call has cancelled the future; then its Task, if any, is woken.
    fn cancel(&self, py: Python<'_>, myself: &Object, message: Option<Object>) -> PyResult<bool> {
        let mut message = message;
        let cancelled = self.state.with(py, |state| {
            if state.is_held {
                state.is_cancelled = true;
                return None;
            }
            if state.is_done {
                return None;
            }
            state.is_done = true;
            state.is_cancelled = true;
            std::mem::swap(&mut state.message, &mut message);
            Some(state.callback.take())
        });
        match cancelled {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(callback)) => self.call_soon(py, &callback, myself).map(|()| true),
        }
    }

    /// Implements `result()`.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        let (is_cancelled, message) = self.state.with(py, |state| (state.is_cancelled, state.message.take()));
        if !is_cancelled {
            return Ok(());
        }
        let kind = cancelled_error(py)?;
        let error = message.map_or_else(|| kind.call0(), |message| kind.call1((message.bind(py),)))?;
        Err(PyErr::from_value(error))
    }
}

pub(super) fn cancelled_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    KIND.import(py, "asyncio", "CancelledError")
}

fn future_type(py: Python<'_>) -> PyResult<Object> {
    // The interpreter keeps this address as long as the type lives.
    static mut METHODS: [ffi::PyMethodDef; 5] = [
        ffi::PyMethodDef {
            ml_name: c"get_loop".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: get_loop },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef {
            ml_name: c"add_done_callback".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: add_done_callback },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef {
            ml_name: c"cancel".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: cancel },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef {
            ml_name: c"result".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: result },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef::zeroed(),
    ];
    let mut members = [
        ffi::PyMemberDef {
            name: c"_asyncio_future_blocking".as_ptr(),
            type_code: ffi::Py_T_BOOL,
            offset: offset_of!(FutureObject, is_blocking).cast_signed(),
            flags: 0,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_traverse, pfunc: traverse as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_clear, pfunc: clear as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_members, pfunc: members.as_mut_ptr().cast() },
        ffi::PyType_Slot { slot: ffi::Py_tp_methods, pfunc: (&raw mut METHODS).cast() },
        ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    make_type::<FutureObject, 6>(py, c"kirsch._native.LoopFuture", ffi::Py_TPFLAGS_HAVE_GC, slots)
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `Futures` to which nothing refers.
    unsafe {
        compat::PyObject_GC_UnTrack(object.cast());
        let it = object.cast::<FutureObject>();
        ptr::drop_in_place(&raw mut (*it).state);
        ptr::drop_in_place(&raw mut (*it).event_loop);
        free_tracked(object);
    }
}

unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
    // SAFETY: the garbage collector calls this with an object of `Futures`, and lends `visit` and its argument.
    unsafe {
        let it = FutureObject::of(object);
        let mut references = [ffi::Py_TYPE(object).cast(), it.event_loop.as_ptr(), ptr::null_mut(), ptr::null_mut()];
        // If the state is in use, the references are visited in the next collection.
        it.state.try_with(Python::assume_attached(), |state| {
            if let Some(Callback { function, context }) = &state.callback {
                references[2..].copy_from_slice(&[function.as_ptr(), context.as_ptr()]);
            }
        });
        for reference in references {
            if !reference.is_null() {
                let stop = visit(reference, argument);
                if stop != 0 {
                    return stop;
                }
            }
        }
        0
    }
}

unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: the garbage collector calls this attached, with an object of `Futures`.
    let (py, it) = unsafe { (Python::assume_attached(), FutureObject::of(object)) };
    let callback = it.state.with(py, |state| state.callback.take());
    drop(callback);
    0
}

/// Implements `get_loop()`.
unsafe extern "C" fn get_loop(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `Futures`.
    unsafe { FutureObject::of(object).event_loop.clone_ref(Python::assume_attached()).into_ptr() }
}

/// Implements `add_done_callback(callback, *, context=None)`.
unsafe extern "C" fn add_done_callback(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `Futures`, `count` live arguments, and a tuple
    // with the names of the arguments that follow, or null.
    let (py, it, myself, function, context) = unsafe {
        let named = if keywords.is_null() { 0 } else { ffi::Py_SIZE(keywords) };
        let function = (count == 1 && named <= 1).then(|| Object::from_borrowed(*arguments));
        let context = (count == 1 && named == 1).then(|| Object::from_borrowed(*arguments.add(1)));
        (Python::assume_attached(), FutureObject::of(object), Object::from_borrowed(object), function, context)
    };
    answer(
        py,
        caught(|| {
            let Some(function) = function else {
                return Err(PyTypeError::new_err("add_done_callback takes a callback, and its context"));
            };
            let context = match context.filter(|context| !context.bind(py).is_none()) {
                Some(context) => context,
                // SAFETY: the thread is attached.
                None => unsafe { Object::from_new_or_error(py, compat::PyContext_CopyCurrent())? },
            };
            it.add_callback(py, &myself, function, context).map(|()| py.None().into())
        }),
    )
}

/// Implements `cancel(msg=None)`.
unsafe extern "C" fn cancel(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let (py, it, myself, message) = unsafe {
        let named = if keywords.is_null() { 0 } else { ffi::Py_SIZE(keywords) };
        let message = (count + named > 0).then(|| Object::from_borrowed(*arguments));
        (Python::assume_attached(), FutureObject::of(object), Object::from_borrowed(object), message)
    };
    let message = message.filter(|message| !message.bind(py).is_none());
    answer(
        py,
        caught(|| {
            let is_woken = it.cancel(py, &myself, message)?;
            Ok(is_woken.into_pyobject(py)?.to_owned().into_any().unbind().into())
        }),
    )
}

/// Implements `result()`.
unsafe extern "C" fn result(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `Futures`.
    let (py, it) = unsafe { (Python::assume_attached(), FutureObject::of(object)) };
    answer(py, caught(|| it.result(py).map(|()| py.None().into())))
}
