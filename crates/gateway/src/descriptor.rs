//! A descriptor of our own for a file of the application's.

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

/// A duplicate of the descriptor behind `object`: of a file with `fileno`, or of a descriptor as an `int`.
///
/// # Errors
/// The exception of `fileno`; `TypeError` if it returns no `int`; `OSError` if the descriptor is not open.
pub(crate) fn duplicate(object: &Bound<'_, PyAny>) -> PyResult<File> {
    let fileno = || -> PyResult<i32> {
        match object.extract() {
            Ok(descriptor) => Ok(descriptor),
            Err(_) => object.call_method0(intern!(object.py(), "fileno"))?.extract(),
        }
    };
    let closed = || PyOSError::new_err((libc::EBADF, io::Error::from_raw_os_error(libc::EBADF).to_string()));
    let descriptor = fileno()?;
    if descriptor < 0 {
        return Err(closed());
    }
    // SAFETY: the object has just said that this is its descriptor, and it is alive and not closed while we hold the
    // interpreter; the borrow ends before anything of Python runs again. Where another thread may close it at any time,
    // the descriptor may be closed by now, and then duplicating it fails, or be another file's.
    let file = File::from(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?);
    // A plain file forgets its descriptor before it closes it, and never gets another: if it still has it, the
    // duplicate is of this file.
    if cfg!(Py_GIL_DISABLED) && fileno()? != descriptor {
        return Err(closed());
    }
    Ok(file)
}
