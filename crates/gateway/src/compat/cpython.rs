//! The compatibility functions for CPython.

use pyo3::ffi;
pub(crate) use pyo3::ffi::{
    PyContext_Copy, PyContext_CopyCurrent, PyContext_Enter, PyContext_Exit, PyFrame_GetBack, PyFrame_GetCode,
    PyInterpreterState_Get, PyIter_Send, PyObject_CheckBuffer, PyObject_GC_UnTrack, PyThreadState_SetAsyncExc,
    PyTuple_GET_ITEM,
};
use pyo3::prelude::*;

/// Returns the Latin-1 bytes of a `str`, borrowed from it; `None` if it has a character beyond Latin-1.
///
/// # Safety
/// The thread is attached, `string` is a live `str`, and the result is not used after the `str` is freed.
pub(crate) unsafe fn latin1_of<'a>(string: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: `string` is a live str; a ready one of kind 1 has its length in Latin-1 bytes at DATA.
    unsafe {
        if ffi::PyUnicode_READY(string) != 0 || ffi::PyUnicode_KIND(string) != ffi::PyUnicode_1BYTE_KIND {
            return None;
        }
        let length = ffi::PyUnicode_GET_LENGTH(string).cast_unsigned();
        Some(std::slice::from_raw_parts(ffi::PyUnicode_DATA(string).cast::<u8>(), length))
    }
}

/// Runs the Python handlers of signals that have arrived. Does nothing except in the main thread.
///
/// # Errors
/// The exception that a handler raised.
pub(crate) fn check_signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}
