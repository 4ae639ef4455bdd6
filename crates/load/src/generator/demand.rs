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
    /// Users that may have a request to begin.
    pub(super) runnable: Vec<usize>,
}

/// A user: sends, waits for the answer, thinks, and sends again.
#[derive(Debug, Default)]
pub(super) struct User {
    pub(super) slot: Option<usize>,
    /// Number of requests that may begin now.
    pub(super) ready: usize,
    /// Requests that the server did not process; they go first.
    pub(super) resend: VecDeque<Job>,
    /// Number of consecutive failed connections.
    pub(super) failures: u32,
    pub(super) not_before: Nanos,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) arrivals: Arrivals,
    /// True once the window is over.
    pub(super) is_done: bool,
    /// Maximum number of unanswered requests on a connection.
    pub(super) pipeline: usize,
    /// Open connections that can take one more request, as (number of unanswered requests, order among connections with
    /// as many, slot). The first one is taken.
    pub(super) free: BTreeSet<(usize, u64, usize)>,
    pub(super) placed: u64,
    /// Number of connections that are open or opening.
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

    /// Returns when the next request is due by the schedule.
    pub(super) fn next_arrival(&self) -> Option<Nanos> {
        match self {
            Self::Open(pool) if !pool.is_done => Some(pool.arrivals.next()),
            _ => None,
        }
    }

    /// Returns when the first request that waits for a connection will have waited too long.
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
