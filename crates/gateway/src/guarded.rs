//! State that several threads of the application may use at the same time.

use pyo3::prelude::*;

/// A value that only one thread uses at a time. The GIL protects it if there is one; on builds that may run without it
/// (`Py_GIL_DISABLED`) a lock of its own does.
///
/// This is the innermost of all locks: the GIL is taken first, the engine's lock second, and this one last. Closures
/// that use the value ([`with`](Self::with)) must be short.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    #[cfg(Py_GIL_DISABLED)]
    value: std::sync::Mutex<T>,
    #[cfg(not(Py_GIL_DISABLED))]
    value: std::cell::UnsafeCell<T>,
    /// True while a thread is within [`with`](Self::with).
    #[cfg(not(Py_GIL_DISABLED))]
    is_used: std::cell::Cell<bool>,
}

// SAFETY: only attached threads use the value and the flag, and the GIL admits one at a time (PyO3 does not let a
// second interpreter, with a GIL of its own, import the module).
#[cfg(not(Py_GIL_DISABLED))]
unsafe impl<T: Send> Sync for Guarded<T> {}

#[cfg(not(Py_GIL_DISABLED))]
impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: value.into(), is_used: false.into() }
    }

    /// Calls `act` with the value. `act` must not block or detach, and must run no Python code except the release of
    /// `bytes` objects.
    ///
    /// # Panics
    /// Panics if `act` uses the same value again, or lets another thread use it.
    pub(crate) fn with<R>(&self, _py: Python<'_>, act: impl FnOnce(&mut T) -> R) -> R {
        /// Resets the flag, even if `act` panics.
        struct InUse<'a>(&'a std::cell::Cell<bool>);

        impl Drop for InUse<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }

        assert!(!self.is_used.replace(true), "the value is in use: its user has run something that comes back to it");
        let _in_use = InUse(&self.is_used);
        // SAFETY: the flag was not set, so no other reference to the value exists; it stays set as long as this one
        // exists. Only attached threads read and write the flag, as `_py` shows, and the GIL admits one at a time.
        act(unsafe { &mut *self.value.get() })
    }

    /// Calls `act` with the value, unless it is in use. For the garbage collector, which may run at any time.
    pub(crate) fn try_with(&self, py: Python<'_>, act: impl FnOnce(&mut T)) {
        if !self.is_used.get() {
            self.with(py, act);
        }
    }
}

#[cfg(Py_GIL_DISABLED)]
impl<T: Send> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: value.into() }
    }

    /// Calls `act` with the value. `act` must not block, and must run no Python code except the release of `bytes`
    /// objects: code that used the same value would deadlock.
    pub(crate) fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&mut T) -> R) -> R {
        use std::sync::{PoisonError, TryLockError};
        loop {
            match self.value.try_lock() {
                Ok(mut value) => return act(&mut value),
                Err(TryLockError::Poisoned(poisoned)) => return act(&mut poisoned.into_inner()),
                // Detach while waiting. Otherwise this can deadlock: the interpreter may have stopped the thread that
                // uses the value, and waits until all attached threads have stopped.
                Err(TryLockError::WouldBlock) => py.detach(|| {
                    drop(self.value.lock().unwrap_or_else(PoisonError::into_inner));
                }),
            }
        }
    }

    /// Calls `act` with the value, unless it is in use. For the garbage collector, which may run at any time.
    pub(crate) fn try_with(&self, _py: Python<'_>, act: impl FnOnce(&mut T)) {
        if let Ok(mut value) = self.value.try_lock() {
            act(&mut value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attach;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn test_value_is_usable_again_after_a_panic() {
        attach(|py| {
            let guarded = Guarded::new(1);
            let panicked = catch_unwind(AssertUnwindSafe(|| guarded.with(py, |_| panic!("on purpose"))));
            assert!(panicked.is_err());
            assert_eq!(guarded.with(py, |value| std::mem::replace(value, 2)), 1);
            assert_eq!(guarded.with(py, |value| *value), 2);
        });
    }

    /// The check also works in release builds. It exists only with a GIL; with a lock the code would deadlock.
    #[cfg(not(Py_GIL_DISABLED))]
    #[test]
    fn test_use_within_a_use_panics() {
        attach(|py| {
            let guarded = Guarded::new(1);
            let twice = catch_unwind(AssertUnwindSafe(|| guarded.with(py, |_| guarded.with(py, |value| *value))));
            assert!(twice.is_err());
            assert_eq!(guarded.with(py, |value| *value), 1);
        });
    }
}
