//! One connection of the generator: its unanswered requests, and how much of them has been sent.

use crate::answers::Answers;
use crate::net::{Moved, Nanos, Net};
use crate::script::Script;
use crate::streams::Streams;
use crate::tally::Job;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// The maximum number of requests sent in one system call.
const GATHER: usize = 32;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The server's backlog was full; there is no socket yet, and the generator will try again.
    Knocking,
    Opening,
    Open,
    /// No more requests are sent. The side that closes a TCP connection first keeps its port in `TIME_WAIT` for a
    /// minute, so the server gets a moment to close first.
    Lingering,
}

#[derive(Debug)]
pub(crate) struct Connection<S> {
    /// The number of the connection. Unlike its slot, it is never reused.
    pub(crate) id: u64,
    pub(crate) socket: Option<S>,
    pub(crate) stage: Stage,
    /// The index of the connection's user, in the closed model.
    pub(crate) user: Option<usize>,
    /// The key among the free connections of the open model: the number of unanswered requests, and the order among
    /// connections with the same number.
    pub(crate) place: Option<(usize, u64)>,
    /// True if the connection accepts no more requests.
    pub(crate) is_over: bool,
    /// The time at which the opening began.
    pub(crate) since: Nanos,
    /// The time at which the connection is given up; `MAX`: never.
    pub(crate) deadline: Nanos,
    /// The unanswered requests, in order.
    pub(crate) jobs: VecDeque<Job>,
    /// The number of `jobs` that have been sent completely.
    sent: usize,
    /// The number of bytes that have been sent of the next request.
    part: usize,
    /// The number of requests assigned to this connection.
    pub(crate) asked: u64,
    /// The number of requests that were answered on this connection.
    pub(crate) answered: u64,
    pub(crate) answers: Answers,
    /// The requests of an HTTP/2 connection. Replaces `sent`, `part` and `answers`.
    pub(crate) streams: Option<Box<Streams>>,
    /// Received bytes that have not been parsed yet.
    pub(crate) rest: Vec<u8>,
    wants_output: bool,
    /// True if the system accepts no more bytes, because the server has closed the connection or stopped reading. There
    /// may still be unread responses.
    pub(crate) output_failed: bool,
    /// Set if the connection must be read again at once; true if the end of its input is known to have arrived.
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

    /// Returns the maximum number of concurrent requests on this connection; `pipeline` is the plan's limit.
    pub(crate) fn most(&self, pipeline: usize) -> usize {
        self.streams.as_ref().map_or(pipeline, |streams| streams.most().min(pipeline))
    }

    /// Returns true if a part of the first unanswered request has been sent, so the server may answer it.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.sent > 0 || self.part > 0
    }

    /// Removes and returns the first request, which has been answered. The flag is false if the request was not sent
    /// completely; then its rest would corrupt the next one.
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

    /// Sends as much as the system accepts. Returns the number of bytes.
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
