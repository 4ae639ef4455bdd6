//! Processes that the application forks: the resources of the server that they must not keep, and how they end.
//!
//! A child has a copy of the engine that it must not use: the connections belong to the parent, and another thread of
//! the parent may have held the lock at the time of the fork. So a host refuses all operations in a process other than
//! the one that created it, and a child in which a call of the application returns is ended ([`leave`]).
//! `packages/kirsch/src/kirsch/process/forks.py` calls this module.

use pyo3::prelude::*;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks, each in a child of the previous one, since the first process that had engines.
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The signal mask of this thread before [`block_signals`].
    static BLOCKED: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// Identifies the process in which an object was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    /// Returns the identity of this process.
    pub(crate) fn here() -> Self {
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Returns true in the process that created the object, and false in its children.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }

    /// Returns `result`, the outcome of application code. If this process is a child that the application has forked,
    /// ends it instead, because it must not serve.
    #[inline]
    pub(crate) fn come_back<T>(self, py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
        if !self.is_here() {
            leave(py, &result);
        }
        result
    }
}

/// Blocks all signals in this thread; called from Python before a fork. It runs no Python code, so no exception of
/// another thread can be raised between it and [`restore_signals`].
#[pyfunction]
pub(crate) fn block_signals() {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: the first call fills `all`, the second one `before`, if it succeeds.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let result = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        (result == 0).then(|| before.assume_init())
    };
    BLOCKED.set(before);
}

/// Restores the signal mask; called from Python after a fork, in the parent and in the child.
#[pyfunction]
pub(crate) fn restore_signals() {
    if let Some(before) = BLOCKED.take() {
        // SAFETY: `before` is the mask that the system returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
}

/// Makes all engines unusable in this process, a forked child, and closes their descriptors.
#[pyfunction]
pub(crate) fn leave_engines() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for descriptor in engine::take_engine_sockets() {
        // SAFETY: each descriptor belongs to an engine of the parent. This child has it open once, and uses no engine
        // that it has not created itself.
        unsafe { libc::close(descriptor) };
    }
}

/// Ends this child, in which a call of the application has returned with `result`. Does not return, not even in a copy
/// of a greenlet other than the one that forked.
#[cold]
pub(crate) fn leave<T>(py: Python<'_>, result: &PyResult<T>) {
    let error = result.as_ref().err().map(|error| error.value(py));
    leave_by(py, |forks| forks.call_method1("leave", (error,)));
}

/// Ends this child like [`leave`]. Its call awaits in a copy of the parent's event loop.
#[cold]
pub(crate) fn leave_awaiting(py: Python<'_>) {
    leave_by(py, |forks| forks.call_method0("leave_awaiting"));
}

/// Calls `leave` with the module `kirsch.process.forks`. Ends this child at once if the call fails.
fn leave_by<'py>(py: Python<'py>, leave: impl FnOnce(&Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>>) {
    if py.import("kirsch.process.forks").and_then(|forks| leave(&forks)).is_err() {
        // SAFETY: the call does not return.
        unsafe { libc::_exit(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns for each signal from 1 to 31 whether this thread blocks it.
    fn blocked() -> Vec<bool> {
        let mut now = MaybeUninit::uninit();
        // SAFETY: the call fills `now` and changes nothing.
        let now = unsafe {
            assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), now.as_mut_ptr()), 0);
            now.assume_init()
        };
        // SAFETY: the set is initialized.
        (1..32).map(|signal| unsafe { libc::sigismember(&raw const now, signal) == 1 }).collect()
    }

    #[test]
    fn test_signals_are_blocked_until_they_are_restored() {
        let before = blocked();
        block_signals();
        assert!(blocked()[libc::SIGTERM as usize - 1]);
        restore_signals();
        assert_eq!(blocked(), before);
        restore_signals();
        assert_eq!(blocked(), before);
    }
}
