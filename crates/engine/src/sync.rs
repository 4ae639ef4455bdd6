//! What threads synchronise with: the standard library's, or loom's where every interleaving is tried.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::thread::{Builder, JoinHandle, Thread, current, park, park_timeout};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::thread::{Builder, JoinHandle, Thread, current, park};

/// The same: time passes when others have had their turn. What is long lasts for ever in a model that says so, and there
/// somebody has to end it.
#[cfg(loom)]
pub(crate) fn park_timeout(timeout: std::time::Duration) {
    if LONG_IS_FOR_EVER.get() && timeout > crate::coalescing::TICK {
        park();
    } else {
        loom::thread::yield_now();
    }
}

#[cfg(loom)]
std::thread_local! {
    /// All of loom's threads run on one of the system's, which runs one test.
    pub(crate) static LONG_IS_FOR_EVER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A number for this thread, never 0.
#[cfg(not(loom))]
pub(crate) fn me() -> usize {
    std::thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// The same: all of loom's threads run on one of the system's. They are numbered when
/// they first ask, so numbers are not given again.
#[cfg(loom)]
pub(crate) fn me() -> usize {
    static LAST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    loom::thread_local!(static NUMBER: usize = LAST.fetch_add(1, Ordering::Relaxed) + 1);
    NUMBER.with(|number| *number)
}
