//! The engine's time: the time that its caller passed last.

use crate::app::App;
use crate::context::EngineContext;
use crate::deadline::{Millis, Now, millis};
use std::time::Duration;

/// A converter from the caller's time ([`Now`]) to the engine's: milliseconds since the engine was created.
///
/// Invariant: `EngineContext::now` never decreases, and is `latest` in the engine's time.
pub(super) struct Clock {
    /// The caller's monotonic time when the engine was created.
    began: Duration,
    /// The monotonic time that was passed last. A coarse clock advances in steps, so successive values are often equal.
    latest: Duration,
    /// The second that the Date field shows.
    second: u64,
    /// The time at which the poller's latest events were passed to the engine; `None` between that call and the next
    /// one that passes a time. The engine handles input that a client sent before that time before it checks deadlines,
    /// and compares deadlines with that time. So no client counts as late because a call of the application kept
    /// threads from polling.
    events_at: Option<Millis>,
}

impl Clock {
    pub(super) fn new<A: App>(now: Now, context: &mut EngineContext<A>) -> Self {
        let mut clock = Self { began: now.monotonic, latest: Duration::MAX, second: u64::MAX, events_at: Some(0) };
        clock.advance(now, context);
        clock
    }

    /// Returns the monotonic time that was passed last.
    pub(super) fn latest(&self) -> Duration {
        self.latest
    }

    /// Returns the time to compare with deadlines.
    pub(super) fn events_at(&self) -> Millis {
        self.events_at.unwrap_or(0)
    }

    /// Records that the poller's events, possibly none, are passed to the engine.
    pub(super) fn note_events(&mut self) {
        self.events_at = None;
    }

    /// Begins a poll at `now`. Events that were passed just before the poll count as having happened by `now`.
    #[inline]
    pub(super) fn begin_poll<A: App>(&mut self, now: Now, context: &mut EngineContext<A>) {
        self.advance(now, context);
        self.events_at.get_or_insert(context.time.now);
    }

    /// Sets the time for any other method, which begins at `now`. An application's call may have taken long since the
    /// last events were passed.
    #[inline]
    pub(super) fn set<A: App>(&mut self, now: Now, context: &mut EngineContext<A>) {
        self.events_at.get_or_insert(context.time.now);
        self.advance(now, context);
    }

    #[inline]
    fn advance<A: App>(&mut self, now: Now, context: &mut EngineContext<A>) {
        if now.monotonic != self.latest {
            self.advance_to(now, context);
        }
    }

    fn advance_to<A: App>(&mut self, now: Now, context: &mut EngineContext<A>) {
        self.latest = now.monotonic;
        context.time.now = self.millis(now.monotonic).max(context.time.now);
        let second = now.wall.as_secs();
        if second != self.second {
            self.second = second;
            context.time.set_wall(second);
        }
    }

    /// Converts a monotonic time of the caller to the engine's time.
    pub(super) fn millis(&self, monotonic: Duration) -> Millis {
        millis(monotonic.saturating_sub(self.began))
    }

    /// Converts a time of the engine to the caller's monotonic time.
    pub(super) fn monotonic(&self, at: Millis) -> Duration {
        self.began + Duration::from_millis(at)
    }
}
