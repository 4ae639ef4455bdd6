//! Synchronization primitives of the standard library, or of loom, which tries every interleaving.

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

/// Yields instead of waiting: the timeout elapses when all other threads have run. With [`LONG_PAUSES_ARE_ENDLESS`] a
/// timeout above [`TICK`](crate::tick::TICK) never elapses.
#[cfg(loom)]
pub(crate) fn park_timeout(timeout: std::time::Duration) {
    if LONG_PAUSES_ARE_ENDLESS.get() && timeout > crate::tick::TICK {
        park();
    } else {
        loom::thread::yield_now();
    }
}

#[cfg(loom)]
std::thread_local! {
    /// True if long pauses never end. A model sets it. Loom runs all threads of a model on one system thread, so the
    /// models do not share it.
    pub(crate) static LONG_PAUSES_ARE_ENDLESS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Returns a number that identifies the calling thread, never 0.
#[cfg(not(loom))]
pub(crate) fn me() -> usize {
    std::thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// Returns a number that identifies the calling thread, never 0. Loom runs all threads of a model on one system thread.
/// A thread gets its number at its first call, and no other thread gets the same one.
#[cfg(loom)]
pub(crate) fn me() -> usize {
    static LAST: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    loom::thread_local!(static NUMBER: usize = LAST.fetch_add(1, Ordering::Relaxed) + 1);
    NUMBER.with(|number| *number)
}
