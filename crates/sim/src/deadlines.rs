//! The deadlines of calls.
//!
//! [`Deadlines`] counts time like the gateway's `calls.rs`: a call's time pauses while its response is suspended or
//! waits for a slow client to read.

use crate::clock::Micros;
use engine::CallId;
use std::time::Duration;

/// A running call with a deadline.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) id: usize,
    pub(crate) call: CallId,
    pub(crate) limit: Micros,
    /// The time for which the call had run when its time was last paused, and the time since which it has been running
    /// again.
    pub(crate) spent: Micros,
    pub(crate) since: Option<Micros>,
    pub(crate) late_at: Option<Micros>,
    pub(crate) is_written_off: bool,
}

impl RunningCall {
    pub(crate) fn due(&self) -> Option<Micros> {
        let since = self.since.filter(|_| self.late_at.is_none())?;
        Some(since + self.limit.saturating_sub(self.spent))
    }
}

/// The running calls that have a deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    pub(crate) calls: Vec<RunningCall>,
    /// The time when a call last missed its deadline, and the number of polls by then.
    pub(crate) expired_at: Option<(Duration, u64)>,
    /// The calls that have missed their deadlines since this list was last taken.
    pub(crate) fresh: Vec<usize>,
    /// The times at which queued requests were refused, and their total number.
    pub(crate) refused_at: Vec<Micros>,
    pub(crate) refused_waiting: u64,
}

impl Deadlines {
    pub(crate) fn call(&mut self, id: usize) -> Option<&mut RunningCall> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    pub(crate) fn end(&mut self, id: usize) {
        self.calls.retain(|call| call.id != id);
    }

    pub(crate) fn take_fresh(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.fresh)
    }
}
