//! Stacks of other threads.
//!
//! With a GIL, other threads do not run while one thread reads their frames. Without it they continue, and a frame may
//! be freed while another thread follows its links; faulthandler and `sys._current_frames` accept that risk. Here the
//! interpreter stops all threads for the moment, as for its garbage collector. It offers this function only to its own
//! modules, so it is looked up by symbol name; if it is missing, no stack is shown.

use crate::compat;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

/// The code of a frame, its globals, and its current line number.
type FrameLine<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, i32);

/// Returns the code, globals and line of this frame and of its callers, the innermost first.
#[pyfunction]
pub(crate) fn follow_frames<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Vec<FrameLine<'py>>> {
    let py = frame.py();
    // SAFETY: the object is live and the thread attached.
    if unsafe { ffi::PyFrame_Check(frame.as_ptr()) } == 0 {
        return Err(PyTypeError::new_err("follow_frames takes a frame"));
    }
    // No object is dropped before the other threads continue, because a destructor could wait for one of them.
    let mut frames = vec![frame.clone()];
    let mut found = Vec::new();
    let followed = stopped(py, || {
        let mut next = 0;
        while let Some(frame) = frames.get(next) {
            next += 1;
            let frame = frame.as_ptr().cast::<ffi::PyFrameObject>();
            // SAFETY: the frame is live, the thread is attached, and no other changes the frame meanwhile. The calls
            // return new references, the last one null at the outermost frame.
            unsafe {
                let code = Bound::from_owned_ptr(py, compat::PyFrame_GetCode(frame).cast());
                let globals = Bound::from_owned_ptr(py, globals(frame));
                found.push((code, globals, ffi::PyFrame_GetLineNumber(frame)));
                frames.extend(Bound::from_owned_ptr_or_opt(py, compat::PyFrame_GetBack(frame).cast()));
            }
        }
    });
    drop(frames);
    Ok(if followed.is_some() { found } else { Vec::new() })
}

/// Returns a new reference to a frame's globals.
///
/// # Safety
/// The frame is live, and the thread attached.
unsafe fn globals(frame: *mut ffi::PyFrameObject) -> *mut ffi::PyObject {
    #[cfg(Py_3_11)]
    // SAFETY: the caller guarantees a live frame and an attached thread.
    return unsafe { ffi::PyFrame_GetGlobals(frame) };
    #[cfg(not(Py_3_11))]
    // SAFETY: the caller guarantees a live frame and an attached thread; every frame has this attribute.
    return unsafe { ffi::PyObject_GetAttrString(frame.cast(), c"f_globals".as_ptr()) };
}

/// Returns true if stacks of other threads can be read on this interpreter.
pub(crate) fn are_shown() -> bool {
    cfg!(not(Py_GIL_DISABLED)) || control(c"_PyEval_StopTheWorld").is_some()
}

/// A function that stops all other threads of an interpreter, or restarts them.
type Control = unsafe extern "C" fn(*mut ffi::PyInterpreterState);

fn control(name: &CStr) -> Option<Control> {
    // SAFETY: the call takes a C string; a symbol of this name is, in CPython 3.13 and later, a function of this type,
    // and the interpreter is never unloaded. A null pointer is `None`.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<Control>>(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr())) }
}

/// A guard that restarts the other threads when it is dropped.
struct Stopped {
    start: Control,
    interpreter: *mut ffi::PyInterpreterState,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: the thread is attached, and has stopped the others of this interpreter.
        unsafe { (self.start)(self.interpreter) };
    }
}

/// Runs `act` while all other threads of the interpreter are stopped. Returns `None` if they cannot be stopped. `act`
/// must drop no Python object and wait for no thread.
fn stopped<R>(_py: Python<'_>, act: impl FnOnce() -> R) -> Option<R> {
    if cfg!(not(Py_GIL_DISABLED)) {
        return Some(act());
    }
    let (stop, start) = (control(c"_PyEval_StopTheWorld")?, control(c"_PyEval_StartTheWorld")?);
    // SAFETY: the thread is attached, as `_py` shows.
    let _stopped = unsafe {
        let interpreter = compat::PyInterpreterState_Get();
        stop(interpreter);
        Stopped { start, interpreter }
    };
    Some(act())
}
