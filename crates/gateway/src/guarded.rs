//! State that the application may touch from several threads at a time.

use pyo3::prelude::*;

/// A value that one thread at a time uses: behind the GIL where there is one, and behind a lock of its own where the
/// interpreter may run without (`Py_GIL_DISABLED`).
///
/// It is the innermost of all locks: the GIL comes first, the engine second, and this one last. What is done with the
/// value ([`with`](Self::with)) takes a moment.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    #[cfg(Py_GIL_DISABLED)]
    value: std::sync::Mutex<T>,
    #[cfg(not(Py_GIL_DISABLED))]
    value: std::cell::UnsafeCell<T>,
    /// A thread is within [`with`](Self::with).
    #[cfg(not(Py_GIL_DISABLED))]
    is_used: std::cell::Cell<bool>,
}

// SAFETY: the value and the flag are used only by threads that are attached, which a GIL admits one at a time (PyO3
// does not let a second interpreter, with a GIL of its own, import the module).
#[cfg(not(Py_GIL_DISABLED))]
unsafe impl<T: Send> Sync for Guarded<T> {}

#[cfg(not(Py_GIL_DISABLED))]
impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: value.into(), is_used: false.into() }
    }

    /// Does something with the value. `act` does not wait, does not detach, and runs nothing of Python's but the
    /// release of `bytes` objects.
    ///
    /// # Panics
    /// If `act` uses the same value again, or lets another thread use it.
    pub(crate) fn with<R>(&self, _py: Python<'_>, act: impl FnOnce(&mut T) -> R) -> R {
        /// Frees the value, also when `act` panics.
        struct InUse<'a>(&'a std::cell::Cell<bool>);

        impl Drop for InUse<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }

        assert!(!self.is_used.replace(true), "the value is in use: its user has run something that comes back to it");
        let _in_use = InUse(&self.is_used);
        // SAFETY: the flag was not set, so no other reference to the value exists, and it is set until this one is
        // gone. Only attached threads read and write the flag, as `_py` shows: one at a time, because of the GIL.
        act(unsafe { &mut *self.value.get() })
    }

    /// Does something with the value, unless it is in use. For the garbage collector, which may come at any time.
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

    /// Does something with the value. `act` does not wait, and runs nothing of Python's but the release of `bytes`
    /// objects: what uses the same value again would wait for itself.
    pub(crate) fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&mut T) -> R) -> R {
        use std::sync::{PoisonError, TryLockError};
        loop {
            match self.value.try_lock() {
                Ok(mut value) => return act(&mut value),
                Err(TryLockError::Poisoned(poisoned)) => return act(&mut poisoned.into_inner()),
                // The thread that uses the value may be stopped by the interpreter, which waits for all attached
                // threads to stop: a thread that waits here while it is attached would keep both waiting for ever.
                Err(TryLockError::WouldBlock) => py.detach(|| {
                    drop(self.value.lock().unwrap_or_else(PoisonError::into_inner));
                }),
            }
        }
    }

    /// Does something with the value, unless it is in use. For the garbage collector, which may come at any time.
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

    /// In release builds too. Where there is a lock instead, it would wait for itself.
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
