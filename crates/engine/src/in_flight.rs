//! The state of a response while it is written.

use crate::compose::Mark;
use crate::compression::EncodedBody;
use crate::deadline::Millis;
use crate::statistics::Statistics;

/// A response whose head has been written, until it is complete.
#[derive(Debug)]
pub(crate) struct InFlight<S> {
    pub(crate) sender: S,
    pub(crate) pace: Pace,
    /// The number of parts that were to be sent before the application continued.
    pub(crate) parts: u32,
    /// The time when the last of these parts was ready, in the engine's coarse time.
    pub(crate) part_at: Millis,
    /// The number of body bytes produced since other connections were last served.
    pub(crate) produced: u64,
    /// The position of the response in the composed output, and the number of bytes sent before it; `None` if other
    /// output was waiting, so that the head cannot be withdrawn.
    pub(crate) start: Option<(Mark, u64)>,
    /// The encoder of the body; `None` if the body is not encoded.
    pub(crate) encoded: Option<Box<EncodedBody>>,
    /// The status of the response; `None` once it has been counted.
    status: Option<u16>,
}

/// The pace at which the application produces parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The first part has not been sent. It is sent at once, because the client waits for it. If the application
    /// produced the previous response fast throughout, this response starts as `Fast` instead.
    First,
    /// So far each part was ready within a tick after the previous one, so parts are collected.
    Fast,
    /// A part was slow and delayed the parts before it, so each part is sent at once.
    Slow,
}

/// The way in which a streamed response ended. The engine assumes that the next response on the connection ends in the
/// same way: it holds back the part with the same number, to send it together with the end, or at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// No streamed response has ended yet, or the last one did not end soon after a part.
    #[default]
    Unknown,
    /// The response ended soon after the part with this number.
    BehindPart(u32),
    /// The assumption was wrong once: a tick had to send the part, because the end did not follow soon.
    Unpredictable,
}

impl<S> InFlight<S> {
    pub(crate) fn new(sender: S, pace: Pace, start: Option<(Mark, u64)>, status: u16) -> Self {
        Self { sender, pace, parts: 0, part_at: 0, produced: 0, start, encoded: None, status: Some(status) }
    }

    /// Counts the status, which can no longer change, unless it has been counted.
    pub(crate) fn count_status(&mut self, statistics: &mut Statistics) {
        if let Some(status) = self.status.take() {
            statistics.count_status(status);
        }
    }
}
