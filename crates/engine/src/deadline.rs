//! Coarse time. Deadlines are fields of connections, checked by one sweep over all of them; there are no timers.

use std::time::Duration;

/// The time of a poll, read by the caller of the engine. A clock that advances every few milliseconds is precise
/// enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For deadlines: time since an arbitrary start; never decreases.
    pub monotonic: Duration,
    /// For the Date field: time since 1970.
    pub wall: Duration,
}

/// Milliseconds since the engine was created.
pub(crate) type Millis = u64;

pub(crate) fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// When the next sweep is due: not before the earliest deadline, and at most once per [`Sweep::GRAIN`].
///
/// Invariant: no deadline of a connection is before `due - GRAIN`.
#[derive(Debug)]
pub(crate) struct Sweep {
    due: Millis,
}

impl Sweep {
    /// How late a deadline can be noticed.
    pub(crate) const GRAIN: Millis = 100;

    pub(crate) fn new() -> Self {
        Self { due: Millis::MAX }
    }

    /// Notes that a connection has this deadline.
    pub(crate) fn note(&mut self, deadline: Millis) {
        self.due = self.due.min(deadline.saturating_add(Self::GRAIN));
    }

    /// Whether a sweep is due. If so, the caller checks all connections and calls [`note`](Self::note) for each
    /// remaining deadline.
    pub(crate) fn begin(&mut self, now: Millis) -> bool {
        if !self.is_due(now) {
            return false;
        }
        self.due = Millis::MAX;
        true
    }

    /// When the next sweep is due; `Millis::MAX` for never.
    pub(crate) fn due(&self) -> Millis {
        self.due
    }

    /// Whether a sweep is due at `now`.
    pub(crate) fn is_due(&self, now: Millis) -> bool {
        now >= self.due
    }
}

/// The deadline of a transfer that has to make progress: `timeout` after its last progress at `moved`, and, once the
/// first `timeout` has passed, the time at which its mean rate falls below `rate` bytes per second (0: no such limit).
pub(crate) fn transfer(timeout: Option<Duration>, rate: u64, begun: Millis, moved: Millis, bytes: u64) -> Millis {
    let Some(timeout) = timeout else { return Millis::MAX };
    let stalled = moved.saturating_add(millis(timeout));
    if rate == 0 {
        return stalled;
    }
    let earned = bytes.saturating_mul(1000) / rate;
    stalled.min(begun.saturating_add(millis(timeout)).saturating_add(earned))
}

/// What is waited for; each has its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The beginning of the next request.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of the header of the PROXY protocol.
    ProxyHeader,
    /// More of a body.
    Body,
    /// A thread that calls the application.
    Queue,
    /// The peer, to take more.
    Output,
    /// The application, or nothing that has a limit here.
    App,
    /// The peer, to close.
    Linger,
    /// The peer of a WebSocket: that it lives, or answers a Close frame, or ends its message.
    WebSocket,
    /// The application, to close the socket of a connection that it has hijacked.
    Hijacker,
}

/// What is waited for, since when, and until when.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) wait: Wait,
    /// When it must have come; `Millis::MAX` for never.
    pub(crate) deadline: Millis,
    /// Since when it is waited for.
    pub(crate) since: Millis,
    /// When a transfer that is waited for last got on, and how far that was.
    progressed: Millis,
    transferred: u64,
}

impl Timer {
    pub(crate) fn new(now: Millis) -> Self {
        // `App`, so that the first wait that has a limit is another one, which sets a deadline.
        Self { wait: Wait::App, deadline: Millis::MAX, since: now, progressed: now, transferred: 0 }
    }

    /// Whether the time is up.
    pub(crate) fn is_late(&self, now: Millis) -> bool {
        self.deadline <= now
    }

    /// Waits for `wait` from now on. Returns what was waited for before, and for how long, if that is something else.
    pub(crate) fn turn_to(&mut self, wait: Wait, now: Millis) -> Option<(Wait, Millis)> {
        let before = std::mem::replace(&mut self.wait, wait);
        (before != wait).then(|| (before, now.saturating_sub(std::mem::replace(&mut self.since, now))))
    }

    /// The deadline of a transfer of `bytes` so far, which began at `begun`: `timeout` after it last got on. `is_new`: it
    /// was not waited for before.
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
        // With one byte per 10 s the rate ends the transfer, although it never pauses for 30 s.
        assert_eq!(transfer(timeout, 500, 0, 29_000, 3), 30_006);
        assert_eq!(transfer(timeout, 500, 0, 60_000, 100_000), 90_000);
        assert_eq!(transfer(None, 500, 0, 60_000, 0), Millis::MAX);
    }

    #[test]
    fn sweep_is_due_once_for_many_deadlines() {
        let mut sweep = Sweep::new();
        assert!(!sweep.begin(1_000_000));
        sweep.note(5_000);
        sweep.note(5_050);
        sweep.note(9_000);
        assert_eq!(sweep.due(), 5_100);
        assert!(!sweep.begin(5_099));
        assert!(sweep.begin(5_100));
        assert_eq!(sweep.due(), Millis::MAX);
    }
}
