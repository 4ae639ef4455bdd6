//! Duplicates the descriptor of a file that the application owns.

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

/// Duplicates the descriptor of `object`: a file with `fileno`, or a descriptor as an `int`.
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
    // SAFETY: the object has just returned this descriptor. With a GIL no Python code runs between that and the end of
    // the borrow, so the object is live and not closed. Without a GIL another thread may close the descriptor at any
    // time; then the duplication fails, or duplicates another file.
    let file = File::from(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?);
    // A plain file clears its descriptor before it closes it, and never gets another. So if the file still has the same
    // descriptor, the duplicate belongs to this file.
    if cfg!(Py_GIL_DISABLED) && fileno()? != descriptor {
        return Err(closed());
    }
    Ok(file)
}
