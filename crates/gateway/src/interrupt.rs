//! Exceptions that one thread raises in another that is executing a call of the application.

use crate::compat;
use crate::thread_id::{ThreadId, this_thread};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Does the same as [`raise_in`], for this thread.
pub(crate) fn raise_here(py: Python<'_>, exception: Option<&Py<PyAny>>) {
    raise_in(py, this_thread(), exception);
}

/// Cancels an exception that was to be raised in a call of this thread. The call has ended, and the exception must not
/// be raised in the code that runs next.
pub(crate) fn take_back(py: Python<'_>) {
    raise_here(py, None);
}

/// The exceptions that are to be raised, or were raised, in calls that have not ended, each with its thread.
static INTERRUPTED: Mutex<Vec<Interrupted>> = Mutex::new(Vec::new());

type Interrupted = (ThreadId, Py<PyAny>);

/// Raises an exception in a thread as soon as the thread runs Python code; `None` cancels one that has not been raised.
/// Returns true if there is such a thread.
pub(crate) fn raise_in(py: Python<'_>, thread: ThreadId, exception: Option<&Py<PyAny>>) -> bool {
    {
        let mut interrupted = interrupted();
        interrupted.retain(|(other, _)| *other != thread);
        interrupted.extend(exception.map(|exception| (thread, exception.clone_ref(py))));
    }
    set_exception(py, thread, exception)
}

/// Locks the list, even if the lock is poisoned: no thread panics while it holds the lock, so the data are consistent.
fn interrupted() -> MutexGuard<'static, Vec<Interrupted>> {
    INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_exception(_py: Python<'_>, thread: ThreadId, exception: Option<&Py<PyAny>>) -> bool {
    // Python and C use the same bits for a thread identifier; Python reads them as unsigned, C's parameter is signed.
    let thread = std::ffi::c_long::from_ne_bytes(thread.to_ne_bytes());
    let exception = exception.map_or(std::ptr::null_mut(), Py::as_ptr);
    // SAFETY: this thread is attached. If the other thread has ended, the call finds none and does nothing; null
    // cancels.
    unsafe { compat::PyThreadState_SetAsyncExc(thread, exception) == 1 }
}

/// Runs `act` in this thread before an exception that is pending for its call. The interpreter does not tell whether
/// the exception was raised already, so it may be raised twice in the call.
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

    /// Runs Python code that is long enough for a pending exception to be raised in it.
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
            // The identifier of an ended thread is soon reused, for example by a thread of a concurrent test. An
            // identifier is an address, so no thread has 1.
            assert!(!raise_in(py, 1, Some(&timeout(py))));
        });
    }
}
