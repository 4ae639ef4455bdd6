//! The source of requests: users in the closed model, a schedule in the open one.

use crate::net::Nanos;
use crate::plan::{Model, Plan, nanos};
use crate::schedule::{Arrivals, Think};
use crate::tally::Job;
use std::collections::{BTreeSet, VecDeque};

#[derive(Debug)]
pub(super) enum Demand {
    Closed(Users),
    Open(Pool),
}

#[derive(Debug)]
pub(super) struct Users {
    pub(super) each: Vec<User>,
    pub(super) pipeline: usize,
    pub(super) think: Think,
    /// The users that may have a request to begin.
    pub(super) runnable: Vec<usize>,
}

/// A user, who sends a request, waits for the response, thinks, and sends the next request.
#[derive(Debug, Default)]
pub(super) struct User {
    pub(super) slot: Option<usize>,
    /// The number of requests that may begin now.
    pub(super) ready: usize,
    /// The requests that the server did not process; they are sent again first.
    pub(super) resend: VecDeque<Job>,
    /// The number of consecutive connections that could not be opened.
    pub(super) failures: u32,
    pub(super) not_before: Nanos,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) arrivals: Arrivals,
    /// True once the window has ended.
    pub(super) is_done: bool,
    /// The maximum number of unanswered requests on a connection.
    pub(super) pipeline: usize,
    /// The open connections that can take another request, as (number of unanswered requests, order among connections
    /// with the same number, slot). The first one is used next.
    pub(super) free: BTreeSet<(usize, u64, usize)>,
    pub(super) placed: u64,
    /// The number of connections that are open or opening.
    pub(super) count: usize,
    pub(super) most: usize,
    pub(super) opened_at_start: usize,
    pub(super) waiting: VecDeque<Job>,
    pub(super) most_waiting: usize,
    pub(super) longest_wait: Nanos,
}

impl Demand {
    pub(super) fn new(plan: &Plan) -> Self {
        match &plan.model {
            Model::Closed(closed) => Self::Closed(Users {
                each: (0..closed.connections).map(|_| User { ready: closed.pipeline, ..User::default() }).collect(),
                pipeline: closed.pipeline,
                think: Think::new(closed.think, closed.thinking, plan.seed),
                runnable: (0..closed.connections).rev().collect(),
            }),
            Model::Open(open) => Self::Open(Pool {
                arrivals: Arrivals::new(open, plan.seed),
                is_done: false,
                pipeline: open.pipeline,
                free: BTreeSet::new(),
                placed: 0,
                count: 0,
                most: open.max_connections,
                opened_at_start: open.connections,
                waiting: VecDeque::new(),
                most_waiting: open.max_waiting,
                longest_wait: nanos(open.max_wait.unwrap_or(plan.timeout)),
            }),
        }
    }

    /// Returns the time at which the schedule's next request is due; `None` if there is none.
    pub(super) fn next_arrival(&self) -> Option<Nanos> {
        match self {
            Self::Open(pool) if !pool.is_done => Some(pool.arrivals.next()),
            _ => None,
        }
    }

    /// Returns the time at which the first waiting request will have waited too long for a connection.
    pub(super) fn next_expiry(&self) -> Option<Nanos> {
        match self {
            Self::Open(pool) => pool.waiting.front().map(|job| job.due.saturating_add(pool.longest_wait)),
            Self::Closed(_) => None,
        }
    }

    /// Returns the number of requests that wait for a connection.
    pub(super) fn waiting(&self) -> usize {
        match self {
            Self::Open(pool) => pool.waiting.len(),
            Self::Closed(users) => users.each.iter().map(|user| user.resend.len()).sum(),
        }
    }
}
