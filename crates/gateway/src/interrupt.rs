//! Exceptions that one thread raises in another, in the middle of a call of the application.

use crate::compat;
use crate::thread_id::{ThreadId, this_thread};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The same as [`raise_in`], in this thread.
pub(crate) fn raise_here(py: Python<'_>, exception: Option<&Py<PyAny>>) {
    raise_in(py, this_thread(), exception);
}

/// Takes back an exception that was to be raised in a call of this thread that has ended: it must not reach the code
/// that runs here next.
pub(crate) fn take_back(py: Python<'_>) {
    raise_here(py, None);
}

/// Threads in whose calls an exception is to be raised, or was and the call has not ended, with the exception.
static INTERRUPTED: Mutex<Vec<Interrupted>> = Mutex::new(Vec::new());

type Interrupted = (ThreadId, Py<PyAny>);

/// Has an exception raised in a thread as soon as Python runs there, or takes back one that was not raised yet. Returns
/// whether there is such a thread.
pub(crate) fn raise_in(py: Python<'_>, thread: ThreadId, exception: Option<&Py<PyAny>>) -> bool {
    {
        let mut interrupted = interrupted();
        interrupted.retain(|(other, _)| *other != thread);
        interrupted.extend(exception.map(|exception| (thread, exception.clone_ref(py))));
    }
    set_exception(py, thread, exception)
}

/// No thread panics while it has this lock, and the data are whole at every moment.
fn interrupted() -> MutexGuard<'static, Vec<Interrupted>> {
    INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_exception(_py: Python<'_>, thread: ThreadId, exception: Option<&Py<PyAny>>) -> bool {
    // The identifier of a thread is the same number in Python and in C, whichever sign it is given.
    let thread = std::ffi::c_long::from_ne_bytes(thread.to_ne_bytes());
    let exception = exception.map_or(std::ptr::null_mut(), Py::as_ptr);
    // SAFETY: this thread is attached; one that is gone is not found, and nothing happens; null takes back.
    unsafe { compat::PyThreadState_SetAsyncExc(thread, exception) == 1 }
}

/// Does something in this thread before an exception that is to be raised in its call. Whether it was raised already
/// cannot be known, so it may be raised in the call once more.
pub(crate) fn uninterrupted<R>(py: Python<'_>, act: impl FnOnce() -> R) -> R {
    let thread = this_thread();
    let interrupted = interrupted();
    let pending = interrupted.iter().find(|(other, _)| *other == thread).map(|(_, exception)| exception.clone_ref(py));
    drop(interrupted);
    if pending.is_some() {
        set_exception(py, thread, None);
    }
    let result = act();
    if pending.is_some() {
        set_exception(py, thread, pending.as_ref());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attach;
    use pyo3::exceptions::PyTimeoutError;
    use pyo3::types::PyDict;

    fn timeout(py: Python<'_>) -> Py<PyAny> {
        py.get_type::<PyTimeoutError>().into_any().unbind()
    }

    /// Python code in which an exception that was raised from outside is seen.
    fn count(py: Python<'_>) -> PyResult<()> {
        py.run(c"for i in range(1000): i + 1", Some(&PyDict::new(py)), None)
    }

    #[test]
    fn test_exception_is_raised_here_and_can_be_taken_back() {
        attach(|py| {
            let exception = timeout(py);
            raise_here(py, Some(&exception));
            assert!(count(py).unwrap_err().is_instance_of::<PyTimeoutError>(py));
            raise_here(py, Some(&exception));
            raise_here(py, None);
            count(py).unwrap();
        });
    }

    #[test]
    fn test_exception_waits_until_uninterrupted_code_is_over() {
        attach(|py| {
            raise_here(py, Some(&timeout(py)));
            uninterrupted(py, || count(py)).unwrap();
            assert!(count(py).unwrap_err().is_instance_of::<PyTimeoutError>(py));
            raise_here(py, None);
        });
    }

    #[test]
    fn test_thread_that_does_not_exist_is_not_found() {
        attach(|py| {
            // The number of a thread that has ended is soon another one's, which tests beside this one start. No thread
            // has the number 1, because it is an address.
            assert!(!raise_in(py, 1, Some(&timeout(py))));
        });
    }
}
