//! Children that the application forks: what they must not keep of the server, and how they end.
//!
//! A child has a copy of the engine that it must not use: its connections are the parent's, and another thread of the
//! parent may have held the lock at the fork. So a host that finds itself in another process than the one that made it
//! refuses everything, and a child that comes back from the application ends ([`leave`]).
//! `packages/kirsch/src/kirsch/process/forks.py` calls this module.

use pyo3::prelude::*;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the first process that had engines and this one, each of a child of the one before.
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The signals that this thread had blocked before it began to fork.
    static BLOCKED: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Self {
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Returns true if it is this process, and not a parent of it.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self == Self::here()
    }

    /// Returns the result that the application has returned. A child that the application has forked ends here, because
    /// it must not serve.
    #[inline]
    pub(crate) fn come_back<T>(self, py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
        if !self.is_here() {
            leave(py, &result);
        }
        result
    }
}

/// See the stub. It is called before a fork, and runs no Python code, so that no exception of another thread's can come
/// between it and [`restore_signals`].
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

/// See the stub. It is called behind a fork, in the parent and in the child.
#[pyfunction]
pub(crate) fn restore_signals() {
    if let Some(before) = BLOCKED.take() {
        // SAFETY: `before` is the mask that the system returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    }
}

/// See the stub.
#[pyfunction]
pub(crate) fn leave_engines() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for descriptor in engine::take_engine_sockets() {
        // SAFETY: the descriptor is that of an engine. This child has it open once, and uses no engine that it has not
        // made itself.
        unsafe { libc::close(descriptor) };
    }
}

/// Ends this child, which has come back from the application with `result`. In a copy of a greenlet that is not the one
/// that has forked, it does not return either.
#[cold]
pub(crate) fn leave<T>(py: Python<'_>, result: &PyResult<T>) {
    let error = result.as_ref().err().map(|error| error.value(py));
    leave_by(py, |forks| forks.call_method1("leave", (error,)));
}

/// Ends this child as [`leave`] does: it awaits in the event loop of its parent.
#[cold]
pub(crate) fn leave_awaiting(py: Python<'_>) {
    leave_by(py, |forks| forks.call_method0("leave_awaiting"));
}

/// Calls `leave` with the module `kirsch.process.forks`. Ends this child if the call fails.
fn leave_by<'py>(py: Python<'py>, leave: impl FnOnce(&Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>>) {
    if py.import("kirsch.process.forks").and_then(|forks| leave(&forks)).is_err() {
        // SAFETY: the call does not return.
        unsafe { libc::_exit(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that this thread blocks, as bits.
    fn blocked() -> Vec<bool> {
        let mut now = MaybeUninit::uninit();
        // SAFETY: the call fills `now` and changes nothing.
        let now = unsafe {
            assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), now.as_mut_ptr()), 0);
            now.assume_init()
        };
        // SAFETY: the set is initialised.
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
