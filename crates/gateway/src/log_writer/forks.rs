//! Makes logs usable after a fork. The locks of all logs are held during the fork, so the child finds consistent data.
//! The child has no writer threads, and begins with empty queues.

use super::ending;
use super::log::{ALL, DROPPED, Log, LogState};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Once, PoisonError, Weak};

type DeferredOutput = (MutexGuard<'static, LogState>, Arc<Log>);
type HeldLists = (MutexGuard<'static, Vec<Weak<Log>>>, MutexGuard<'static, Vec<libc::pid_t>>);

thread_local! {
    static HELD: RefCell<Vec<DeferredOutput>> = const { RefCell::new(Vec::new()) };
    static HELD_LISTS: RefCell<Option<HeldLists>> = const { RefCell::new(None) };
}

/// Registers handlers that keep the logs usable in all children forked from now on.
pub(super) fn handle() {
    static ONCE: Once = Once::new();
    // SAFETY: the functions live as long as the process, because the module is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child));
    });
}

extern "C" fn before_fork() {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let deferred = all.iter().filter_map(Weak::upgrade).map(|log| {
        // SAFETY: the guard is dropped before the `Arc` that keeps its mutex at the same address, because the fields of
        // a tuple are dropped in order.
        let guard =
            unsafe { std::mem::transmute::<MutexGuard<'_, LogState>, MutexGuard<'static, LogState>>(log.lock()) };
        (guard, log)
    });
    HELD.with_borrow_mut(|place| place.extend(deferred));
    HELD_LISTS.set(Some((all, ending::lock())));
}

extern "C" fn after_fork_in_parent() {
    HELD_LISTS.take();
    drop(HELD.take());
}

extern "C" fn after_fork_in_child() {
    DROPPED.store(0, Ordering::Relaxed);
    if let Some((_all, mut ending)) = HELD_LISTS.take() {
        ending.clear();
    }
    for (mut state, _log) in HELD.take() {
        state.begin_in_child();
    }
}
