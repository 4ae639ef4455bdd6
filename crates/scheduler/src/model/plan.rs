//! The plan of a model: its calls, and the events that the poller reports.

use crate::predictor::MIN_BLOCK;
use std::time::Duration;

/// The behaviour of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// The call returns.
    Return,
    /// The call blocks until this fact, without telling the scheduler.
    RunUntil(Fact),
    /// The call waits within the server for its peer's answer.
    Wait,
    /// The call is suspended until its peer answers, and resumes in the same thread.
    Suspend,
}

/// A fact for which a call may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// This call has returned.
    Returned(usize),
    /// A polling thread has taken the answer to this call.
    Answered(usize),
}

/// An event that the poller reports.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Request(usize),
    Answer(usize),
}

/// A call of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) act: Act,
    /// The event that the poller reports after the call has begun.
    pub(super) at_begin: Option<Event>,
    /// The event that the poller reports after the call has returned.
    pub(super) at_end: Option<Event>,
}

pub(super) const fn job(act: Act) -> Job {
    Job { act, at_begin: None, at_end: None }
}

impl Job {
    pub(super) const fn begins_with(self, event: Event) -> Self {
        Self { at_begin: Some(event), ..self }
    }

    pub(super) const fn ends_with(self, event: Event) -> Self {
        Self { at_end: Some(event), ..self }
    }
}

/// The predictor's initial belief about all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belief {
    Fast,
    /// Many calls block, so followers are notified beforehand.
    Blocking,
    /// Nearly all calls block, so a notified follower leads at once.
    AllBlocking,
    /// Nearly all calls block, and every client waits for a call. No follower is notified before a tick, because a call
    /// is expected to return soon.
    AllRunning,
}

impl Belief {
    /// Returns the time for which the predictor believes that a call blocks.
    pub(super) fn blocks_for(self) -> Duration {
        match self {
            Belief::Fast => Duration::ZERO,
            Belief::Blocking | Belief::AllBlocking | Belief::AllRunning => MIN_BLOCK * 10,
        }
    }
}

/// The plan of a model.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) most: usize,
    pub(super) jobs: Vec<Job>,
    /// The events that the poller reports from the start.
    pub(super) first: Vec<Event>,
    /// The events that another thread makes the poller report at any time.
    pub(super) later: Vec<Event>,
    pub(super) belief: Belief,
    /// True if the threads share a GIL.
    pub(super) has_gil: bool,
    /// The call that a thread outside the pool wakes, like a deadline.
    pub(super) interrupted: Option<usize>,
    /// True if a ticker runs.
    pub(super) ticks: bool,
    /// The events that only [`WorkSource::service_pending`] takes, not the poller.
    pub(super) serviced_at: Vec<Event>,
    /// The number of threads that can be started, without the first.
    pub(super) startable: usize,
}

impl Plan {
    pub(super) fn new(most: usize, jobs: &[Job]) -> Self {
        Self {
            most,
            jobs: jobs.to_vec(),
            first: (0..jobs.len()).map(Event::Request).collect(),
            later: Vec::new(),
            interrupted: None,
            belief: Belief::Fast,
            has_gil: true,
            ticks: false,
            serviced_at: Vec::new(),
            startable: most,
        }
    }

    pub(super) fn belief(self, belief: Belief) -> Self {
        Self { belief, ..self }
    }

    pub(super) fn ticking(self) -> Self {
        Self { ticks: true, ..self }
    }

    /// Makes the ticker take this request, instead of the poller.
    pub(super) fn serviced(self, number: usize) -> Self {
        let is_other = |event: &Event| !matches!(event, Event::Request(other) if *other == number);
        let first = self.first.iter().copied().filter(is_other).collect();
        Self { first, serviced_at: vec![Event::Request(number)], ..self }
    }

    pub(super) fn interrupting(self, number: usize) -> Self {
        Self { interrupted: Some(number), ..self }
    }

    pub(super) fn startable(self, startable: usize) -> Self {
        Self { startable, ..self }
    }

    pub(super) fn free_threaded(self) -> Self {
        Self { has_gil: false, ..self }
    }

    /// Makes another thread report these events at any time. The poller reports all others from the start.
    pub(super) fn later(self, later: &[Event]) -> Self {
        let is_first = |event: &Event| {
            !later.iter().any(|other| matches!((event, other), (Event::Request(a), Event::Request(b)) if a == b))
        };
        Self { first: self.first.iter().copied().filter(is_first).collect(), later: later.to_vec(), ..self }
    }
}
