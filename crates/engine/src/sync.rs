//! What threads synchronise with: the standard library's, or loom's where every interleaving is tried.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

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
