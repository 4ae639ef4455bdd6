//! The state of a response while it is written.

use crate::compose::Mark;
use crate::compression::EncodedBody;
use crate::deadline::Millis;
use crate::statistics::Statistics;

/// A response whose head has been written.
#[derive(Debug)]
pub(crate) struct InFlight<S> {
    pub(crate) sender: S,
    pub(crate) pace: Pace,
    /// The number of parts that were to be sent before the application went on.
    pub(crate) parts: u32,
    /// The time when the last of these parts was ready, with the resolution of the engine's time.
    pub(crate) part_at: Millis,
    /// The number of body bytes produced since other connections were last served.
    pub(crate) produced: u64,
    /// The position of the response in the composed output, if no other output was waiting, and the number of bytes
    /// sent before it.
    pub(crate) start: Option<(Mark, u64)>,
    /// The encoder of the body, if it is encoded.
    pub(crate) encoded: Option<Box<EncodedBody>>,
    /// The status of the response, until it has been counted.
    status: Option<u16>,
}

/// The pace at which the application produces parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The first part has not been sent. It is sent at once, because the client waits for it. If the previous response
    /// was fast throughout, this one is assumed to be fast from its first part on.
    First,
    /// So far each part came within a tick of the one before, so parts are collected.
    Fast,
    /// A part was slow and delayed the ones before it. So each part is sent at once.
    Slow,
}

/// The ending of a response in parts. The next response on the connection is assumed to end alike: the part with the
/// same number waits for the end, to be sent together with it, or for a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// No response in parts has ended yet, or the last one did not end soon after a part.
    #[default]
    Unknown,
    /// The response ended soon after the part with this number.
    BehindPart(u32),
    /// The assumption has failed once: a timer tick had to send the part, because the end did not follow soon.
    Unpredictable,
}

impl<S> InFlight<S> {
    pub(crate) fn new(sender: S, pace: Pace, start: Option<(Mark, u64)>, status: u16) -> Self {
        Self { sender, pace, parts: 0, part_at: 0, produced: 0, start, encoded: None, status: Some(status) }
    }

    /// Counts the status, which can no longer change.
    pub(crate) fn count_status(&mut self, statistics: &mut Statistics) {
        if let Some(status) = self.status.take() {
            statistics.count_status(status);
        }
    }
}
