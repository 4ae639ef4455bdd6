//! One connection: what has been asked on it and not answered, and what of that has been sent.

use crate::answers::Answers;
use crate::net::{Moved, Nanos, Net};
use crate::script::Script;
use crate::tally::Job;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Requests sent in one call.
const GATHER: usize = 32;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The server's queue was full; there is no socket yet.
    Knocking,
    Opening,
    Open,
    /// Nothing more is asked. Whoever closes a TCP connection first keeps its port busy for a minute, so the server is
    /// given a moment to be the first.
    Lingering,
}

#[derive(Debug)]
pub(crate) struct Connection<S> {
    /// Unlike its slot, never used again.
    pub(crate) id: u64,
    pub(crate) socket: Option<S>,
    pub(crate) stage: Stage,
    /// Whose it is, in the closed model.
    pub(crate) user: Option<usize>,
    /// Among the free ones of the open model: how many requests were under way, and which of those with as many it is.
    pub(crate) place: Option<(usize, u64)>,
    /// What has been answered was the last.
    pub(crate) is_over: bool,
    /// When opening it began.
    pub(crate) since: Nanos,
    /// When it is given up; MAX: never.
    pub(crate) deadline: Nanos,
    /// In the order of their answers.
    pub(crate) jobs: VecDeque<Job>,
    /// Jobs that have been sent as a whole.
    sent: usize,
    /// Bytes sent of the one behind those.
    part: usize,
    /// Requests put on it.
    pub(crate) asked: u64,
    /// Of these, answered.
    pub(crate) answered: u64,
    pub(crate) answers: Answers,
    /// Input that is not used yet.
    pub(crate) rest: Vec<u8>,
    wants_output: bool,
    /// The system takes no more, because the server is gone or reads no more. What it has said may still be there.
    pub(crate) output_failed: bool,
    /// It is to be looked at again at once; and whether its end is known to be there.
    pub(crate) again: Option<bool>,
}

impl<S> Connection<S> {
    pub(crate) fn new(id: u64, user: Option<usize>, since: Nanos, deadline: Nanos) -> Self {
        Self {
            id,
            socket: None,
            stage: Stage::Knocking,
            user,
            place: None,
            is_over: false,
            since,
            deadline,
            jobs: VecDeque::new(),
            sent: 0,
            part: 0,
            asked: 0,
            answered: 0,
            answers: Answers::default(),
            rest: Vec::new(),
            wants_output: false,
            output_failed: false,
            again: None,
        }
    }

    pub(crate) fn put(&mut self, job: Job) {
        self.asked += 1;
        self.jobs.push_back(job);
    }

    /// Whether something of the first job has been sent, so that it may be answered.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.sent > 0 || self.part > 0
    }

    /// Takes the job that has been answered. Whether all of it had been sent: otherwise the rest of it is in the way.
    pub(crate) fn pop(&mut self) -> Option<(Job, bool)> {
        let job = self.jobs.pop_front()?;
        self.answered += 1;
        if self.sent > 0 {
            self.sent -= 1;
            return Some((job, true));
        }
        Some((job, false))
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.sent < self.jobs.len() && !self.output_failed
    }

    /// Sends what the system takes: how many bytes.
    pub(crate) fn flush<N: Net<Socket = S>>(&mut self, net: &mut N, script: &Script, slot: usize) -> io::Result<usize> {
        let Some(socket) = &self.socket else { return Ok(0) };
        let mut total = 0;
        while self.sent < self.jobs.len() {
            let unsent = self.jobs.range(self.sent..).map(|job| script.form(job.request).bytes(job.is_last));
            let mut slices = [IoSlice::new(&[]); GATHER];
            let mut used = 0;
            for (slice, bytes) in slices.iter_mut().zip(unsent) {
                *slice = IoSlice::new(if used == 0 { &bytes[self.part..] } else { bytes });
                used += 1;
            }
            let Moved::Bytes(mut count) = net.send(socket, &slices[..used])? else {
                if !self.wants_output {
                    self.wants_output = true;
                    net.want_output(socket, slot)?;
                }
                break;
            };
            total += count;
            count += self.part;
            while let Some(job) = self.jobs.get(self.sent) {
                let length = script.form(job.request).bytes(job.is_last).len();
                if count < length {
                    break;
                }
                count -= length;
                self.sent += 1;
            }
            self.part = count;
        }
        Ok(total)
    }
}
