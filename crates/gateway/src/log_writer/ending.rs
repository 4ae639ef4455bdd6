//! The threads of logs that are about to end. The kernel counts such a thread for a moment longer than anyone who waits
//! for it: even a join returns when the thread has left its memory, and the kernel takes it out of the process after
//! that. CPython warns of a fork when the kernel counts more than one thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The kernel's numbers of these threads. The lock is taken last, behind those of the logs.
static ENDING: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

pub(super) fn lock() -> MutexGuard<'static, Vec<libc::pid_t>> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that the calling thread ends, from now on without waiting for anything.
pub(super) fn add_current() {
    let mut ending = lock();
    ending.retain(|thread| kernel::counts(*thread));
    ending.push(kernel::current());
}

/// Waits until the kernel counts none of these threads, no longer than `until`; whether it counts none. No call of the
/// system waits for that, and it takes some microseconds of the thread, which gets the processor meanwhile.
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

    /// Returns true if this process has the thread; signal 0 is none.
    pub(super) fn counts(thread: libc::pid_t) -> bool {
        // SAFETY: neither call takes or fills memory.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) == 0 }
    }
}

/// Other systems do not number threads in this way.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod kernel {
    pub(super) fn current() -> libc::pid_t {
        0
    }

    pub(super) fn counts(_thread: libc::pid_t) -> bool {
        false
    }
}
