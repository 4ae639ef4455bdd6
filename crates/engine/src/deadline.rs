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
        if now < self.due {
            return false;
        }
        self.due = Millis::MAX;
        true
    }

    pub(crate) fn due(&self) -> Option<Millis> {
        (self.due != Millis::MAX).then_some(self.due)
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
        assert_eq!(sweep.due(), Some(5_100));
        assert!(!sweep.begin(5_099));
        assert!(sweep.begin(5_100));
        assert_eq!(sweep.due(), None);
    }
}
