//! A response while it is written.

use crate::compose::Mark;
use crate::deadline::Millis;
use crate::statistics::Statistics;

/// A response whose head has been written.
#[derive(Debug)]
pub(crate) struct InFlight<S> {
    pub(crate) sender: S,
    pub(crate) pace: Pace,
    /// Parts that were to be sent before the application goes on.
    pub(crate) parts: u32,
    /// When the last of them was there, as coarsely as the engine's time is.
    pub(crate) part_at: Millis,
    /// Body bytes since the others had their turn.
    pub(crate) produced: u64,
    /// Where the response begins in what is composed, if nothing else waited to be sent; and what had been sent before.
    pub(crate) start: Option<(Mark, u64)>,
    /// Its status, until that is counted.
    status: Option<u16>,
}

/// How soon after each other an application's parts come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The first part has not left: it leaves at once, for the client that waits for it. Where the response before
    /// was fast throughout, this one is taken to be fast from its first part on.
    First,
    /// So far each came within a tick of the one before, so they are collected.
    Fast,
    /// One has kept others waiting: each leaves at once.
    Slow,
}

/// How a response in parts ended. The next one on the connection is taken to be alike: the part that was the last one
/// waits for the end, which then leaves with it, or for a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// None has ended yet, or not soon after a part.
    #[default]
    Unknown,
    /// Soon after the part with this number.
    BehindPart(u32),
    /// That was wrong once: a tick has sent the part.
    Unpredictable,
}

impl<S> InFlight<S> {
    pub(crate) fn new(sender: S, pace: Pace, start: Option<(Mark, u64)>, status: u16) -> Self {
        Self { sender, pace, parts: 0, part_at: 0, produced: 0, start, status: Some(status) }
    }

    /// Counts the status: it can no longer change.
    pub(crate) fn count_status(&mut self, statistics: &mut Statistics) {
        if let Some(status) = self.status.take() {
            statistics.count_status(status);
        }
    }
}
