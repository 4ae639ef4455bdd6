//! The rules' instructions to a thread, and the statistics of the threads.

use crate::predictor::Prediction;
use crate::tick::Pace;
use std::time::Duration;

/// The next action of a thread.
#[derive(Debug)]
pub enum Action<W> {
    /// Exit: the work source has ended. [`exit`](crate::Rules::exit) notifies the other threads.
    Exit,
    /// Release, without holding the lock, what the last work has left behind.
    CleanUp,
    /// Call [`follow`](crate::Rules::follow) and sleep until [notified](crate::Rules::is_notified). If there is a
    /// number, start the thread with that number first.
    Follow(Option<usize>),
    /// Run this work between [`begin`](crate::Rules::begin) and [`end`](crate::Rules::end).
    Run(W),
    /// Become the leader by the methods [`before_lead`](crate::Rules::before_lead), [`lead`](crate::Rules::lead) and
    /// [`return_poller`](crate::Rules::return_poller).
    Lead,
}

/// A call that has begun.
#[derive(Debug)]
#[must_use]
pub struct StartedCall {
    pub(crate) worker: usize,
    pub(crate) prediction: Prediction,
    /// The number of a thread that the caller has to start; `None` for none.
    pub start: Option<usize>,
    /// The pace of ticks that is needed from now on; `None` if no ticks are needed.
    pub ticks: Option<Pace>,
}

impl StartedCall {
    /// Returns true if the caller has to measure how long the call blocks, for [`Rules::end`](crate::Rules::end).
    pub fn is_measured(&self) -> bool {
        self.prediction.is_measured
    }
}

/// The next action of a thread that waits within a call. After each action except `Done` the thread asks again.
#[derive(Debug)]
pub enum WaitStep<W> {
    /// Continue the call.
    Done,
    /// Start this thread.
    Start(usize),
    /// Sleep until [woken](crate::Rules::is_woken).
    Sleep,
    /// Wait for the poller, at most this long (`None`: without limit), and [return it](crate::Rules::return_poller):
    /// no other thread can lead.
    Poll(W, Option<Duration>),
}

/// The numbers of an engine's threads by their activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStatistics {
    /// The threads that have not exited.
    pub threads: usize,
    /// Followers, and the leader while it waits for the poller.
    pub idle: usize,
    /// Threads in calls.
    pub running: usize,
    /// The maximum of `running`.
    pub max_calls: usize,
    /// The number of times since the start that a follower was notified to become the leader.
    pub handovers: u64,
}
