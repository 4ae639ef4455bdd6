//! The log threads that are ending. The kernel counts such a thread for a moment longer than any waiter sees it: even a
//! join returns when the thread has released its memory, and only after that the kernel removes it from the process.
//! CPython warns about a fork if the kernel counts more than one thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The kernel's ids of these threads. This lock is taken last, after those of the logs.
static ENDING: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

pub(super) fn lock() -> MutexGuard<'static, Vec<libc::pid_t>> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the calling thread, which ends after this call without waiting for anything.
pub(super) fn add_current() {
    let mut ending = lock();
    ending.retain(|thread| kernel::counts(*thread));
    ending.push(kernel::current());
}

/// Waits until the kernel counts none of these threads, at most until `until`. Returns true if it counts none. There is
/// no system call to wait for this. It takes a few microseconds of processor time in the ending thread, so this loop
/// yields.
pub(super) fn wait_until_gone(until: Instant) -> bool {
    loop {
        let mut ending = lock();
        ending.retain(|thread| kernel::counts(*thread));
        if ending.is_empty() || Instant::now() >= until {
            return ending.is_empty();
        }
        drop(ending);
        std::thread::yield_now();
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod kernel {
    pub(super) fn current() -> libc::pid_t {
        // SAFETY: the call takes and fills no memory.
        unsafe { libc::gettid() }
    }

    /// Returns true if this process has the thread. Signal 0 only checks that.
    pub(super) fn counts(thread: libc::pid_t) -> bool {
        // SAFETY: neither call takes or fills memory.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
    }
}

/// Other systems have no such thread ids.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod kernel {
    pub(super) fn current() -> libc::pid_t {
        0
    }

    pub(super) fn counts(_thread: libc::pid_t) -> bool {
        false
    }
}
