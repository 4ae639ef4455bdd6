//! The threads of a world: their states are here, their actions in `driver`, and the calls that they run in `script`.

pub(crate) mod driver;
mod script;

use crate::app::Job;
use crate::clock::Micros;
use scheduler::{Pace, StartedCall};

/// The state of a thread.
#[derive(Debug)]
pub(crate) enum State {
    /// The thread has not been started, or is being processed at this moment.
    Absent,
    /// The thread was started and has not arrived.
    Starting,
    Following,
    /// The thread was notified and has not arrived.
    Notified,
    /// The thread waits for the poller. `at_once`: it was notified and leads without having taken the GIL.
    Polling {
        at_once: bool,
    },
    /// The thread has waited without the GIL, and now waits for the GIL.
    TakingGil,
    /// The thread runs a call.
    InCall(Job, Activity),
    /// The thread has completed its call, but has not yet reported this to the scheduler's rules.
    Completing,
    /// The thread has exited.
    Exited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// An operation that takes time.
    Busy,
    WaitsForInput,
    WaitsForOutput,
    /// The call never returns.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) state: State,
    /// The number of the thread's next event. Events with another number are void.
    pub(crate) round: u64,
    /// The call that the thread runs.
    pub(crate) started_call: Option<StartedCall>,
    /// The time for which the thread has been blocked in this call.
    pub(crate) blocked: Micros,
    /// The time since which the thread waits within a call, and the time at which the wait ends if no event ends it
    /// before.
    pub(crate) waits_since: Micros,
    pub(crate) wait_ends_at: Option<Micros>,
    pub(crate) has_timed_out: bool,
    /// True if the thread waits for the poller within a call, because no other thread can.
    pub(crate) is_alone: bool,
}

#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) workers: Vec<Worker>,
    /// The thread that waits for the poller.
    pub(crate) polling_thread: Option<usize>,
    /// True if the event that ends the wait for the poller has been scheduled.
    pub(crate) is_wake_scheduled: bool,
    /// The pace of the ticker thread, and the number of its next event.
    pub(crate) pace: Pace,
    pub(crate) tick_round: u64,
    pub(crate) calls: u64,
}

impl Threads {
    pub(crate) fn new(size: usize) -> Self {
        let worker = || Worker {
            state: State::Absent,
            round: 0,
            started_call: None,
            blocked: 0,
            waits_since: 0,
            wait_ends_at: None,
            has_timed_out: false,
            is_alone: false,
        };
        Self {
            workers: (0..size).map(|_| worker()).collect(),
            polling_thread: None,
            is_wake_scheduled: false,
            pace: Pace::Asleep,
            tick_round: 0,
            calls: 0,
        }
    }

    /// Returns the requests whose calls never return, and the other requests whose calls are running.
    pub(crate) fn unfinished(&self) -> (Vec<usize>, Vec<usize>) {
        let works = self.workers.iter().filter_map(|worker| match &worker.state {
            State::InCall(job, activity) => Some((job.id, *activity == Activity::Hangs)),
            _ => None,
        });
        let (hanging, others): (Vec<_>, Vec<_>) = works.partition(|(_, hangs)| *hangs);
        (hanging.into_iter().map(|(id, _)| id).collect(), others.into_iter().map(|(id, _)| id).collect())
    }
}

/// The result of one operation of a call.
pub(crate) enum Step {
    /// Continue with the next operation.
    Next(Job),
    /// The call blocks its thread until an event.
    Blocks(Job, Activity),
    /// The call has been completed.
    Returned,
}
