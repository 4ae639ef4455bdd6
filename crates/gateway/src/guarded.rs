//! State that the application may touch from several threads at a time.

use pyo3::prelude::*;

/// A value that one thread at a time uses: behind the interpreter's lock where there is one, which costs nothing, and
/// behind one of its own where the interpreter may run without (`Py_GIL_DISABLED`).
///
/// It is the innermost of all locks: the interpreter comes first, the engine second, and this one last. What is done
/// with the value ([`with`](Self::with)) takes a moment.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    #[cfg(Py_GIL_DISABLED)]
    value: std::sync::Mutex<T>,
    #[cfg(not(Py_GIL_DISABLED))]
    value: std::cell::UnsafeCell<T>,
    #[cfg(all(debug_assertions, not(Py_GIL_DISABLED)))]
    is_used: std::cell::Cell<bool>,
}

#[cfg(not(Py_GIL_DISABLED))]
impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: value.into(),
            #[cfg(debug_assertions)]
            is_used: false.into(),
        }
    }

    /// Does something with the value. `act` does not wait, does not let go of the interpreter, and runs nothing of
    /// Python's but the release of `bytes` objects: whatever does could come back here.
    pub(crate) fn with<R>(&self, _py: Python<'_>, act: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(debug_assertions)]
        assert!(!self.is_used.replace(true), "whoever uses the value runs nothing that comes back to it");
        // SAFETY: the thread holds the interpreter's lock, as `_py` shows, and keeps it while `act` runs, which comes
        // back here neither, as it has to promise.
        let result = act(unsafe { &mut *self.value.get() });
        #[cfg(debug_assertions)]
        self.is_used.set(false);
        result
    }
}

#[cfg(Py_GIL_DISABLED)]
impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: value.into() }
    }

    /// Does something with the value. `act` does not wait, and runs nothing of Python's but the release of `bytes`
    /// objects: whatever does could come back here.
    pub(crate) fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&mut T) -> R) -> R {
        use std::sync::{PoisonError, TryLockError};
        loop {
            match self.value.try_lock() {
                Ok(mut value) => return act(&mut value),
                Err(TryLockError::Poisoned(poisoned)) => return act(&mut poisoned.into_inner()),
                // Whoever has it may be held up where the interpreter stops all threads that are attached, and would be
                // for ever if one of them waited for it.
                Err(TryLockError::WouldBlock) => crate::host::detached(py, || {
                    drop(self.value.lock().unwrap_or_else(PoisonError::into_inner));
                }),
            }
        }
    }
}
