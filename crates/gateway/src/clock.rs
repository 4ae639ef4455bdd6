//! The clocks: coarse ones for the engine, which gets the time as an argument, and fine ones to measure how long calls
//! wait. Uses no Python.

use engine::{Now, StageClock};
use std::time::Duration;

/// Returns the time for the engine. These clocks advance in steps of a few milliseconds, which is fine enough there; a
/// precise reading costs several times as much.
pub(crate) fn now() -> Now {
    Now { monotonic: read(MONOTONIC), wall: read(WALL) }
}

#[cfg(target_os = "linux")]
const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
#[cfg(target_os = "linux")]
const WALL: libc::clockid_t = libc::CLOCK_REALTIME_COARSE;
#[cfg(not(target_os = "linux"))]
const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;
#[cfg(not(target_os = "linux"))]
const WALL: libc::clockid_t = libc::CLOCK_REALTIME;

/// Returns the same times as [`now`] for a caller that asks often. Both clocks advance together, so the wall clock is
/// read only when the monotonic one has changed.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    last: Option<Now>,
}

impl Clock {
    pub(crate) fn now(&mut self) -> Now {
        let monotonic = read(MONOTONIC);
        match self.last {
            Some(last) if last.monotonic == monotonic => last,
            _ => *self.last.insert(Now { monotonic, wall: read(WALL) }),
        }
    }
}

/// Returns the monotonic part of [`now`].
pub(crate) fn coarse() -> Duration {
    read(MONOTONIC)
}

/// Returns the monotonic time in nanoseconds, at the full precision of the system.
pub(crate) fn fine() -> u64 {
    nanos(read_raw(libc::CLOCK_MONOTONIC))
}

#[allow(clippy::cast_sign_loss, reason = "see there")]
fn nanos(time: libc::timespec) -> u64 {
    // Neither number is negative, and the sum does not overflow for centuries.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The clock that measures the stages of a request.
pub(crate) struct Fine;

impl StageClock for Fine {
    fn time(&mut self) -> u64 {
        fine()
    }

    fn worked(&mut self) -> u64 {
        nanos(read_raw(libc::CLOCK_THREAD_CPUTIME_ID))
    }
}

/// The resources that a thread has used so far.
pub(crate) struct Usage {
    time: Duration,
    worked: Duration,
    /// The number of voluntary context switches: the thread had to wait. Preemption by other threads does not count.
    #[cfg(target_os = "linux")]
    waits: libc::c_long,
}

impl Usage {
    /// Reads the usage of this thread, with a single system call if the system has one.
    #[cfg(target_os = "linux")]
    pub(crate) fn read() -> Self {
        // SAFETY: all zeros is a valid value of this structure of numbers, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
            usage
        };
        let duration = |time: libc::timeval| {
            let micros = u32::try_from(time.tv_usec).unwrap_or(0);
            Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), micros * 1000)
        };
        Self {
            time: read(libc::CLOCK_MONOTONIC),
            worked: duration(usage.ru_utime) + duration(usage.ru_stime),
            waits: usage.ru_nvcsw,
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read() -> Self {
        Self { time: read(libc::CLOCK_MONOTONIC), worked: read(libc::CLOCK_THREAD_CPUTIME_ID) }
    }

    /// Returns for how long the thread has waited since `self` was read.
    pub(crate) fn waited(self) -> Duration {
        let now = Self::read();
        #[cfg(target_os = "linux")]
        if now.waits == self.waits {
            return Duration::ZERO;
        }
        now.time.saturating_sub(self.time).saturating_sub(now.worked.saturating_sub(self.worked))
    }
}

fn read_raw(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure; for a clock that does not exist the structure stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}

fn read(clock: libc::clockid_t) -> Duration {
    let time = read_raw(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
