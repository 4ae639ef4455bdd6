//! The functions that PyPy lacks, that are only macros in its headers, or that PyO3 does not declare for it. They have
//! the names and the results of CPython's.
#![allow(non_snake_case)]

use pyo3::exceptions::PyNotImplementedError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr;

unsafe extern "C" {
    #[link_name = "PyPyIter_Send"]
    pub(crate) fn PyIter_Send(
        iterator: *mut ffi::PyObject,
        value: *mut ffi::PyObject,
        result: *mut *mut ffi::PyObject,
    ) -> ffi::PySendResult;
    #[link_name = "PyPyThreadState_SetAsyncExc"]
    pub(crate) fn PyThreadState_SetAsyncExc(thread: c_long, exception: *mut ffi::PyObject) -> c_int;
    #[link_name = "_PyPyUnicode_Ready"]
    fn unicode_ready(string: *mut ffi::PyObject) -> c_int;
}

/// A `tuple`, as in `tupleobject.h`.
#[repr(C)]
struct Tuple {
    head: ffi::PyVarObject,
    items: [*mut ffi::PyObject; 1],
}

/// Returns a borrowed reference to an item.
///
/// # Safety
/// The thread is attached; `tuple` is a live tuple that has such an item.
pub(crate) unsafe fn PyTuple_GET_ITEM(tuple: *mut ffi::PyObject, index: ffi::Py_ssize_t) -> *mut ffi::PyObject {
    // SAFETY: the caller guarantees a live tuple with this item; the items follow each other.
    unsafe { *(&raw const (*tuple.cast::<Tuple>()).items).cast::<*mut ffi::PyObject>().offset(index) }
}

/// The first fields of each `str`, as in `cpyext_unicodeobject.h`.
#[repr(C)]
struct AsciiObject {
    head: ffi::PyObject,
    length: ffi::Py_ssize_t,
    hash: ffi::Py_hash_t,
    interned: u8,
    kind: u8,
    compact: u8,
    ascii: u8,
    ready: u8,
    wide: *mut c_void,
}

/// A `str` with a non-ASCII character, whose characters follow the structure.
#[repr(C)]
struct CompactObject {
    base: AsciiObject,
    utf8_length: ffi::Py_ssize_t,
    utf8: *mut c_char,
    wide_length: ffi::Py_ssize_t,
}

/// A `str` whose characters are stored elsewhere.
#[repr(C)]
struct UnicodeObject {
    base: CompactObject,
    data: *mut c_void,
}

/// Returns the Latin-1 bytes of a `str`, borrowed from it; `None` if it has a character beyond Latin-1.
///
/// # Safety
/// The thread is attached, `string` is a live `str`, and the result is not used after the `str` is freed.
pub(crate) unsafe fn latin1_of<'a>(string: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: `string` is a live str; a ready one with one byte per character has `length` bytes at the place that
    // `PyUnicode_DATA` of `unicodeobject.h` computes.
    unsafe {
        let ascii = string.cast::<AsciiObject>();
        if (*ascii).ready == 0 && unicode_ready(string) != 0 {
            ffi::PyErr_Clear();
            return None;
        }
        if u32::from((*ascii).kind) != ffi::PyUnicode_1BYTE_KIND {
            return None;
        }
        let data = if (*ascii).compact == 0 {
            (*string.cast::<UnicodeObject>()).data.cast::<u8>()
        } else if (*ascii).ascii != 0 {
            ascii.add(1).cast()
        } else {
            string.cast::<CompactObject>().add(1).cast()
        };
        Some(std::slice::from_raw_parts(data, (*ascii).length.cast_unsigned()))
    }
}

/// Returns 1 if the object supports the buffer protocol, otherwise 0.
///
/// # Safety
/// The thread is attached, and the object live.
pub(crate) unsafe fn PyObject_CheckBuffer(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: the caller guarantees a live object; a view is a new reference, and null comes with an exception.
    unsafe {
        let view = ffi::PyMemoryView_FromObject(object);
        if view.is_null() {
            ffi::PyErr_Clear();
            return 0;
        }
        ffi::Py_DECREF(view);
        1
    }
}

/// Returns a new reference to the code of a frame.
///
/// # Safety
/// The thread is attached, and the frame live.
pub(crate) unsafe fn PyFrame_GetCode(frame: *mut ffi::PyFrameObject) -> *mut ffi::PyObject {
    // SAFETY: the caller guarantees a live frame and an attached thread.
    unsafe { attribute(frame, c"f_code") }
}

/// Returns a new reference to the frame that called this one, or null without an exception.
///
/// # Safety
/// The thread is attached, and the frame live.
pub(crate) unsafe fn PyFrame_GetBack(frame: *mut ffi::PyFrameObject) -> *mut ffi::PyObject {
    // SAFETY: the caller guarantees a live frame and an attached thread.
    unsafe {
        let back = attribute(frame, c"f_back");
        if back.is_null() {
            ffi::PyErr_Clear();
        } else if back == ffi::Py_None() {
            ffi::Py_DECREF(back);
            return ptr::null_mut();
        }
        back
    }
}

/// # Safety
/// The thread is attached, and the frame live.
unsafe fn attribute(frame: *mut ffi::PyFrameObject, name: &CStr) -> *mut ffi::PyObject {
    // SAFETY: the caller guarantees a live frame and an attached thread.
    unsafe { ffi::PyObject_GetAttrString(frame.cast(), name.as_ptr()) }
}

/// Returns null. The result is used only on interpreters without a GIL, and PyPy has one.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn PyInterpreterState_Get() -> *mut ffi::PyInterpreterState {
    ptr::null_mut()
}

/// Does nothing, because PyPy's garbage collector tracks no object of C code.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn PyObject_GC_UnTrack(_object: *mut c_void) {}

/// Returns a new reference to a copy of the current context, or null with an exception.
///
/// # Safety
/// The thread is attached.
pub(crate) unsafe fn PyContext_CopyCurrent() -> *mut ffi::PyObject {
    // SAFETY: the caller guarantees that the thread is attached.
    let py = unsafe { Python::assume_attached() };
    match py.import("contextvars").and_then(|module| module.call_method0("copy_context")) {
        Ok(context) => context.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}

/// Returns a new reference to a copy of a context, or null with an exception.
///
/// # Safety
/// The thread is attached, and the context live.
pub(crate) unsafe fn PyContext_Copy(context: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller guarantees a live context; the null pointer ends the list of arguments.
    unsafe {
        let name = ffi::PyUnicode_InternFromString(c"copy".as_ptr());
        let copy = ffi::PyObject_CallMethodObjArgs(context, name, ptr::null_mut::<ffi::PyObject>());
        ffi::Py_XDECREF(name);
        copy
    }
}

/// Always fails; see [`ENTERS_CONTEXTS`](super::ENTERS_CONTEXTS).
///
/// # Safety
/// The thread is attached.
pub(crate) unsafe fn PyContext_Enter(_context: *mut ffi::PyObject) -> c_int {
    // SAFETY: the caller guarantees that the thread is attached.
    PyNotImplementedError::new_err("PyPy cannot enter a context").restore(unsafe { Python::assume_attached() });
    -1
}

/// Always fails, like [`PyContext_Enter`].
///
/// # Safety
/// The thread is attached.
pub(crate) unsafe fn PyContext_Exit(context: *mut ffi::PyObject) -> c_int {
    // SAFETY: the caller guarantees that the thread is attached.
    unsafe { PyContext_Enter(context) }
}

/// Runs the Python handlers of signals that have arrived, in the main thread. `PyErr_CheckSignals` does nothing on
/// PyPy, which runs handlers only between bytecodes: in code that the JIT has compiled, at the end of a loop's body.
///
/// # Errors
/// The exception that a handler raises.
pub(crate) fn check_signals(py: Python<'_>) -> PyResult<()> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let check = CHECK.get_or_try_init(py, || {
        let code = c"def check_signals():\n    for _ in (None, None):\n        pass\n";
        let module = PyModule::from_code(py, code, c"<kirsch>", c"kirsch_signals")?;
        module.getattr("check_signals").map(Bound::unbind)
    })?;
    check.call0(py).map(drop)
}
