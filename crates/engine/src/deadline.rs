//! Coarse time: deadlines are fields, looked at by one sweep, not timers.

use std::time::Duration;

/// The time of a turn, read by whoever turns the engine. A clock that moves on every few milliseconds does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For deadlines: since some moment in the past, never going back.
    pub monotonic: Duration,
    /// For the Date field: since 1970.
    pub wall: Duration,
}

/// Milliseconds since the engine began.
pub(crate) type Millis = u64;

pub(crate) fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// When the next sweep is due: not before the earliest deadline, and not more often than [`Sweep::GRAIN`].
///
/// Invariant: no deadline of a connection is before `due - GRAIN`.
#[derive(Debug)]
pub(crate) struct Sweep {
    due: Millis,
}

impl Sweep {
    /// Deadlines are late by at most this.
    pub(crate) const GRAIN: Millis = 100;

    pub(crate) fn new() -> Self {
        Self { due: Millis::MAX }
    }

    /// Something has to be looked at when `deadline` has passed.
    pub(crate) fn note(&mut self, deadline: Millis) {
        self.due = self.due.min(deadline.saturating_add(Self::GRAIN));
    }

    /// Whether a sweep is due; if so, it starts over and is told the remaining deadlines by [`note`](Self::note).
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

/// The deadline of a transfer that has to move: `timeout` after it last did, at `moved`, and on average at `rate` bytes
/// per second (0: any) once a first `timeout` is over.
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
    fn a_transfer_must_move_and_keep_its_rate() {
        let timeout = Some(Duration::from_secs(30));
        assert_eq!(transfer(timeout, 0, 0, 50_000, 1), 80_000);
        // One byte per 10 s: the average ends it although it never stands still for 30 s.
        assert_eq!(transfer(timeout, 500, 0, 29_000, 3), 30_006);
        assert_eq!(transfer(timeout, 500, 0, 60_000, 100_000), 90_000);
        assert_eq!(transfer(None, 500, 0, 60_000, 0), Millis::MAX);
    }

    #[test]
    fn a_sweep_is_due_once_for_many_deadlines() {
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
