//! One connection: its unanswered requests, and how much of them was sent.

use crate::answers::Answers;
use crate::net::{Moved, Nanos, Net};
use crate::script::Script;
use crate::streams::Streams;
use crate::tally::Job;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// Number of requests sent in one system call.
const GATHER: usize = 32;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The server's queue was full; there is no socket yet.
    Knocking,
    Opening,
    Open,
    /// No more requests are sent. The side that closes a TCP connection first keeps its port busy for a minute, so the
    /// server gets a moment to be the first.
    Lingering,
}

#[derive(Debug)]
pub(crate) struct Connection<S> {
    /// Number of the connection. Unlike its slot, it is never used again.
    pub(crate) id: u64,
    pub(crate) socket: Option<S>,
    pub(crate) stage: Stage,
    /// Index of its user, in the closed model.
    pub(crate) user: Option<usize>,
    /// Its key among the free connections of the open model: number of its unanswered requests, and order among
    /// connections with as many.
    pub(crate) place: Option<(usize, u64)>,
    /// True if the connection gets no answer after its latest one.
    pub(crate) is_over: bool,
    /// When opening it began.
    pub(crate) since: Nanos,
    /// When it is given up; `MAX`: never.
    pub(crate) deadline: Nanos,
    /// Unanswered requests, in order.
    pub(crate) jobs: VecDeque<Job>,
    /// Number of `jobs` that have been sent completely.
    sent: usize,
    /// Bytes sent of the request after those.
    part: usize,
    /// Requests put on this connection.
    pub(crate) asked: u64,
    /// Number of requests on this connection that were answered.
    pub(crate) answered: u64,
    pub(crate) answers: Answers,
    /// The requests of an HTTP/2 connection, in the place of `sent`, `part` and `answers`.
    pub(crate) streams: Option<Box<Streams>>,
    /// Received bytes that were not used yet.
    pub(crate) rest: Vec<u8>,
    wants_output: bool,
    /// The system accepts no more bytes, because the server has closed or reads no more. Unread answers may still be
    /// there.
    pub(crate) output_failed: bool,
    /// Set if the connection is to be read again at once; true if its end is known to have arrived.
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
            streams: None,
            rest: Vec::new(),
            wants_output: false,
            output_failed: false,
            again: None,
        }
    }

    pub(crate) fn put(&mut self, job: Job, script: &Script) {
        self.asked += 1;
        if let Some(streams) = &mut self.streams {
            streams.begin(script.form(job.request));
        }
        self.jobs.push_back(job);
    }

    /// Returns the number of requests that may be under way on an open connection; `pipeline` is the plan's.
    pub(crate) fn most(&self, pipeline: usize) -> usize {
        self.streams.as_ref().map_or(pipeline, |streams| streams.most().min(pipeline))
    }

    /// Returns true if a part of the first unanswered request was sent, so that the server may answer it.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.sent > 0 || self.part > 0
    }

    /// Takes the answered request. Returns whether it had been sent completely; if not, its rest would disturb the next
    /// one.
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
        (self.sent < self.jobs.len() || self.streams.is_some()) && !self.output_failed
    }

    /// Sends as much as the system accepts; returns the number of bytes.
    pub(crate) fn flush<N: Net<Socket = S>>(&mut self, net: &mut N, script: &Script, slot: usize) -> io::Result<usize> {
        let Some(socket) = &mut self.socket else { return Ok(0) };
        let mut total = 0;
        if let Some(streams) = &mut self.streams {
            loop {
                let unsent = streams.unsent(&self.jobs, script);
                if unsent.is_empty() {
                    return Ok(total);
                }
                let Moved::Bytes(count) = net.send(socket, &[IoSlice::new(unsent)])? else { break };
                streams.advance(count);
                total += count;
            }
            if !self.wants_output {
                self.wants_output = true;
                net.want_output(socket, slot)?;
            }
            return Ok(total);
        }
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
