//! Coarse time. Deadlines are fields of connections, and one sweep checks all of them; there are no timer objects.

use std::time::Duration;

/// The time of a poll, which the caller of the engine reads. A clock that advances every few milliseconds is precise
/// enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time since an arbitrary start, for deadlines; it never decreases.
    pub monotonic: Duration,
    /// The time since 1970. The `Date` field is written from it.
    pub wall: Duration,
}

/// Milliseconds since the engine was created.
pub(crate) type Millis = u64;

pub(crate) fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The least time in milliseconds that a client has after a poll that came too late.
const EXCUSED_LEAST: Millis = 1000;

/// The time of the next sweep, which is after the earliest deadline. There is at most one sweep per [`Sweep::GRAIN`].
///
/// Invariant: no deadline of a connection is before `due - GRAIN`.
#[derive(Debug)]
pub(crate) struct Sweep {
    due: Millis,
}

impl Sweep {
    /// The maximum delay in milliseconds with which a missed deadline is noticed.
    pub(crate) const GRAIN: Millis = 100;

    pub(crate) fn new() -> Self {
        Self { due: Millis::MAX }
    }

    /// Schedules a sweep for this deadline of a connection.
    pub(crate) fn note(&mut self, deadline: Millis) {
        self.due = self.due.min(deadline.saturating_add(Self::GRAIN));
    }

    /// Begins the sweep if one is due, and returns its delay. The caller then has to check all connections and call
    /// [`note`](Self::note) for each remaining deadline.
    pub(crate) fn begin(&mut self, now: Millis) -> Option<Millis> {
        self.is_due(now).then(|| now - std::mem::replace(&mut self.due, Millis::MAX))
    }

    /// Returns the time when the next sweep is due; `Millis::MAX` for never.
    pub(crate) fn due(&self) -> Millis {
        self.due
    }

    /// Returns true if a sweep is due at `now`.
    pub(crate) fn is_due(&self, now: Millis) -> bool {
        now >= self.due
    }
}

/// Returns the deadline of a transfer: the earlier of the time `moved + timeout`, at which it has made no progress for
/// too long, and the time at which its mean rate since `begun` falls below `rate` bytes per second (0: no such limit).
/// The rate counts only after the first `timeout`.
pub(crate) fn transfer(timeout: Option<Duration>, rate: u64, begun: Millis, moved: Millis, bytes: u64) -> Millis {
    let Some(timeout) = timeout else { return Millis::MAX };
    let stalled = moved.saturating_add(millis(timeout));
    if rate == 0 {
        return stalled;
    }
    let earned = bytes.saturating_mul(1000) / rate;
    stalled.min(begun.saturating_add(millis(timeout)).saturating_add(earned))
}

/// The event for which a connection or an exchange waits. Each has its own time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The first byte of the next request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of the header of the PROXY protocol.
    ProxyHeader,
    /// More of a body.
    Body,
    /// A thread that can call the application.
    Queue,
    /// Room for output: the peer has to read.
    Output,
    /// The application, or something else that has no time limit here.
    App,
    /// The peer's close of the connection.
    Linger,
    /// The peer of a WebSocket: a sign of life, its answer to a Close frame, or the end of its message.
    WebSocket,
    /// The application, which has to close the socket of a connection that it has hijacked.
    Hijacker,
}

/// A wait with its start and its deadline.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) wait: Wait,
    /// The time by which the wait must end; `Millis::MAX` for never.
    pub(crate) deadline: Millis,
    /// The time when the wait began.
    pub(crate) since: Millis,
    /// The time when an awaited transfer last made progress, and the number of bytes transferred by then.
    progressed: Millis,
    transferred: u64,
    /// The time since which the transfer has been waiting for other transfers; `Millis::MAX` if it is not waiting for
    /// others.
    held: Millis,
    /// True if the deadline has been moved because the engine was not polled in time, and the wait goes on since.
    is_excused: bool,
}

/// The common progress of all responses of one connection. A response that cannot be sent because of the others is not
/// late as long as this progress is not late.
#[derive(Debug)]
pub(crate) struct SharedTransfer {
    begun: Millis,
    moved: Millis,
    /// The number of transferred bytes at the start, and at the last progress.
    at_begin: u64,
    transferred: u64,
}

impl SharedTransfer {
    pub(crate) fn new(transferred: u64, now: Millis) -> Self {
        Self { begun: now, moved: now, at_begin: transferred, transferred }
    }

    /// Returns the deadline of a response that waits for the others. `transferred` is the number of bytes of all
    /// responses sent so far.
    pub(crate) fn deadline(&mut self, limits: (Option<Duration>, u64), transferred: u64, now: Millis) -> Millis {
        if transferred != self.transferred {
            (self.moved, self.transferred) = (now, transferred);
        }
        transfer(limits.0, limits.1, self.begun, self.moved, transferred - self.at_begin)
    }
}

impl Timer {
    pub(crate) fn new(now: Millis) -> Self {
        // `App` has no limit, so the first wait with a limit differs from it and sets a deadline.
        Self {
            wait: Wait::App,
            deadline: Millis::MAX,
            since: now,
            progressed: now,
            transferred: 0,
            held: Millis::MAX,
            is_excused: false,
        }
    }

    /// Returns true if the deadline has passed.
    pub(crate) fn is_late(&self, now: Millis) -> bool {
        self.deadline <= now
    }

    /// Begins the wait `wait`. If the previous wait was a different one, returns it and its duration.
    pub(crate) fn turn_to(&mut self, wait: Wait, now: Millis) -> Option<(Wait, Millis)> {
        let before = std::mem::replace(&mut self.wait, wait);
        self.is_excused &= before == wait;
        (before != wait).then(|| (before, now.saturating_sub(std::mem::replace(&mut self.since, now))))
    }

    /// Returns true if the deadline has passed and the client is to blame. `delay` is the time for which the engine was
    /// not polled although a deadline had passed, because all threads were busy. Most of what the client sent meanwhile
    /// has been read by now, but not what its own side could not send yet, because the buffer of the server's socket was
    /// full. Therefore a missed deadline of a client moves by the delay, once for each wait and each progress of a
    /// transfer.
    pub(crate) fn is_missed(&mut self, delay: Millis, now: Millis) -> bool {
        if !self.is_late(now) {
            return false;
        }
        let is_of_client = matches!(self.wait, Wait::Head | Wait::ProxyHeader | Wait::Body | Wait::Output);
        if delay < Sweep::GRAIN || !is_of_client || std::mem::replace(&mut self.is_excused, true) {
            return true;
        }
        let moved = now - self.deadline + delay.max(EXCUSED_LEAST);
        self.deadline += moved;
        self.since += moved;
        self.progressed += moved;
        false
    }

    /// Pauses the time of a transfer that waits for others, with `deadline` meanwhile.
    pub(crate) fn hold(&mut self, deadline: Millis, now: Millis) {
        self.deadline = deadline;
        self.held = self.held.min(now);
    }

    /// Resumes the time of a transfer.
    pub(crate) fn release(&mut self, now: Millis) {
        // If `held` was `Millis::MAX`, which is later than `now`, no time has passed.
        let passed = now.saturating_sub(std::mem::replace(&mut self.held, Millis::MAX));
        self.since += passed;
        self.progressed += passed;
    }

    /// Returns the deadline of a transfer that began at `begun` and has moved `bytes` so far. `limits` are the
    /// `timeout` and the `rate` of [`transfer`]. `is_new`: the previous wait was a different one.
    pub(crate) fn transfer(
        &mut self,
        limits: (Option<Duration>, u64),
        begun: Millis,
        bytes: u64,
        is_new: bool,
        now: Millis,
    ) -> Millis {
        if is_new || bytes != self.transferred {
            self.progressed = now;
            self.transferred = bytes;
            self.is_excused = false;
        }
        let (timeout, rate) = limits;
        transfer(timeout, rate, begun, self.progressed, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfer_ends_when_it_pauses_or_falls_below_its_rate() {
        let timeout = Some(Duration::from_secs(30));
        assert_eq!(transfer(timeout, 0, 0, 50_000, 1), 80_000);
        // At one byte per 10 s the minimum rate ends the transfer, although it never pauses for 30 s.
        assert_eq!(transfer(timeout, 500, 0, 29_000, 3), 30_006);
        assert_eq!(transfer(timeout, 500, 0, 60_000, 100_000), 90_000);
        assert_eq!(transfer(None, 500, 0, 60_000, 0), Millis::MAX);
    }

    #[test]
    fn sweep_is_due_once_for_many_deadlines() {
        let mut sweep = Sweep::new();
        assert_eq!(sweep.begin(1_000_000), None);
        sweep.note(5_000);
        sweep.note(5_050);
        sweep.note(9_000);
        assert_eq!(sweep.due(), 5_100);
        assert_eq!(sweep.begin(5_099), None);
        assert_eq!(sweep.begin(5_107), Some(7));
        assert_eq!(sweep.due(), Millis::MAX);
    }
}
