//! The answers of the rules to a thread, and the numbers of threads.

use crate::predictor::Prediction;
use crate::tick::Pace;
use std::time::Duration;

/// The next action of a thread.
#[derive(Debug)]
pub enum Action<W> {
    /// Exit: the work source is over. [`exit`](crate::Rules::exit) notifies the other threads.
    Exit,
    /// Release, without the lock, the remains of the last work.
    CleanUp,
    /// Wait from [`follow`](crate::Rules::follow) on until [notified](crate::Rules::is_notified). A number names a
    /// thread to be started before.
    Follow(Option<usize>),
    /// Run this work between [`begin`](crate::Rules::begin) and [`end`](crate::Rules::end).
    Run(W),
    /// Become the leader: [`before_lead`](crate::Rules::before_lead), [`lead`](crate::Rules::lead),
    /// [`return_poller`](crate::Rules::return_poller).
    Lead,
}

/// Work that has begun.
#[derive(Debug)]
#[must_use]
pub struct StartedCall {
    pub(crate) worker: usize,
    pub(crate) prediction: Prediction,
    /// A thread to be started.
    pub start: Option<usize>,
    /// Ticks that are needed from now on.
    pub ticks: Option<Pace>,
}

impl StartedCall {
    /// Returns true if the caller has to measure how long the call blocks, for [`Rules::end`](crate::Rules::end).
    pub fn is_measured(&self) -> bool {
        self.prediction.is_measured
    }
}

/// The next action of a thread that waits within a call. The thread asks again afterwards, unless the wait is over.
#[derive(Debug)]
pub enum WaitStep<W> {
    /// Continue the call.
    Done,
    /// Start this thread.
    Start(usize),
    /// Sleep until [woken](crate::Rules::is_woken).
    Sleep,
    /// Wait for the poller, at most this long, and [return it](crate::Rules::return_poller): no other thread can lead.
    Poll(W, Option<Duration>),
}

/// The numbers of threads of one engine by their activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Threads that have not exited.
    pub threads: usize,
    /// Followers, and the leader while it waits for the poller.
    pub idle: usize,
    /// Threads in calls.
    pub running: usize,
    /// Upper limit of `running`.
    pub max_calls: usize,
    /// Followers notified to become the leader, since the start.
    pub handovers: u64,
}
