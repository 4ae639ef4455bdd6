//! The ways in which a connection ends, and their effects on its requests.

use super::demand::Demand;
use super::{Generator, shown};
use crate::connection::Stage;
use crate::failure::{Class, Failure};
use crate::net::{Moved, Nanos, Net};
use crate::plan::seconds;
use crate::tally::Job;
use rustix::io::Errno;
use wire::http2::ErrorCode;

/// The time in nanoseconds in which the server may close a connection first.
const LINGER: Nanos = 1_000_000_000;

/// The maximum number of times that a refused request is sent again.
const REFUSALS: u8 = 3;

impl<N: Net> Generator<N> {
    /// Handles the end of the server's output.
    pub(super) fn input_ended(&mut self, now: Nanos, slot: usize) {
        let connection = &mut self.connections[slot];
        let rest = std::mem::take(&mut connection.rest);
        if connection.jobs.is_empty() {
            // RFC 9112 section 9.3: a server may close an idle connection at any time.
            self.tally.connections.closed_idle += 1;
            self.remove(now, slot);
            return;
        }
        if connection.streams.is_some() {
            return self.lose_streams(now, slot);
        }
        let under_way = connection.answers.under_way();
        let was_fresh = connection.answers.is_fresh() && rest.is_empty();
        match connection.answers.end(&rest) {
            Ok(Some(answer)) => {
                self.answered(now, slot, answer, &[]);
                self.take_back(slot);
                self.remove(now, slot);
            }
            Ok(None) if was_fresh => {
                let text = "the server closed the connection without an answer";
                self.lose(now, slot, Failure::of(Class::Unanswered), text);
            }
            _ => {
                let text = match under_way {
                    Some((came, Some(expected))) => {
                        format!("the response ended early, after {came} of {expected} bytes of its body")
                    }
                    Some((came, None)) => format!("the response ended early, after {came} bytes of its body"),
                    None => format!("the response ended early, in its head: {}", shown(&rest)),
                };
                self.lose(now, slot, Failure::of(Class::ClosedEarly), &text);
            }
        }
    }

    /// Closes the connection, and counts its requests as failed: the first with `failure`, the others as unanswered.
    pub(super) fn lose(&mut self, now: Nanos, slot: usize, failure: Failure, text: &str) {
        let connection = &mut self.connections[slot];
        let (user, jobs) = (connection.user, std::mem::take(&mut connection.jobs));
        let answered = connection.answered;
        if jobs.is_empty() {
            // A reset of an idle connection is a normal end.
            self.tally.connections.closed_idle += 1;
        }
        self.remove(now, slot);
        let mut failure = failure;
        for (index, job) in jobs.iter().enumerate() {
            let form = self.script.form(job.request);
            self.tally.failed(now, job, failure, || match index {
                0 => format!("{text}: {}, after {answered} answers on the connection", form.label()),
                _ => format!("the connection ended with the request before: {}", form.label()),
            });
            if failure.class != Class::Reset {
                failure = Failure::of(Class::Unanswered);
            }
        }
        for _ in &jobs {
            self.done(now, user);
        }
    }

    pub(super) fn time_out(&mut self, now: Nanos, slot: usize) {
        let connection = &self.connections[slot];
        let waited = seconds(self.timeout);
        match connection.stage {
            Stage::Open if connection.streams.is_some() => self.time_out_streams(now, slot),
            Stage::Lingering => self.remove(now, slot),
            Stage::Knocking | Stage::Opening => {
                self.fail_to_open(now, slot, &Errno::TIMEDOUT.into());
            }
            Stage::Open => {
                let (detail, text) = match connection.answers.under_way() {
                    Some((came, _)) => (
                        "body",
                        format!("the response was not whole within {waited} s: {came} bytes of its body had come"),
                    ),
                    None => ("head", format!("no answer within {waited} s")),
                };
                self.lose(now, slot, Failure::named(Class::Timeout, detail), &text);
            }
        }
    }

    /// Counts the requests of an HTTP/2 connection that the server has closed as failed.
    fn lose_streams(&mut self, now: Nanos, slot: usize) {
        let connection = &mut self.connections[slot];
        let (user, jobs) = (connection.user, std::mem::take(&mut connection.jobs));
        let streams = connection.streams.take();
        for (index, job) in jobs.iter().enumerate() {
            let (failure, text) = match streams.as_ref().and_then(|streams| streams.received(index)) {
                None => (Class::Unanswered, "the server closed the connection without an answer".to_owned()),
                Some(came) => (Class::ClosedEarly, format!("the response ended early, after {came} bytes of its body")),
            };
            let form = self.script.form(job.request);
            self.tally.failed(now, job, Failure::of(failure), || format!("{text}: {}", form.label()));
        }
        self.remove(now, slot);
        for _ in &jobs {
            self.done(now, user);
        }
    }

    /// Cancels the requests of an HTTP/2 connection that have exceeded the time limit. The others continue.
    fn time_out_streams(&mut self, now: Nanos, slot: usize) {
        let waited = seconds(self.timeout);
        loop {
            let connection = &mut self.connections[slot];
            let Some(job) = connection.jobs.front().filter(|job| now >= job.put.saturating_add(self.timeout)) else {
                break;
            };
            let (job, user) = (*job, connection.user);
            connection.jobs.pop_front();
            let came = connection.streams.as_ref().and_then(|streams| streams.received(0));
            if let Some(streams) = &mut connection.streams {
                streams.cancel(0);
            }
            let detail = if came.is_some() { "body" } else { "head" };
            let form = self.script.form(job.request);
            self.tally.failed(now, &job, Failure::named(Class::Timeout, detail), || {
                format!("no whole response within {waited} s: {}", form.label())
            });
            self.done(now, user);
        }
        if self.stream_ended(slot) {
            return self.part(now, slot);
        }
        self.arm(slot);
        self.send(now, slot);
    }

    /// Handles a stream that the server has reset. A refused request was not processed, so it is sent again.
    pub(super) fn stream_reset(&mut self, now: Nanos, slot: usize, index: usize, code: u32) {
        let connection = &mut self.connections[slot];
        let user = connection.user;
        let Some(mut job) = connection.jobs.remove(index) else { return };
        if code == ErrorCode::RefusedStream as u32 && job.refused < REFUSALS {
            job.refused += 1;
            return self.resend(user, [job]);
        }
        let form = self.script.form(job.request);
        let failure = Failure::code(Class::Stream, code);
        self.tally.failed(now, &job, failure, || format!("the server reset the stream: {}", form.label()));
        self.done(now, user);
    }

    /// Handles a GOAWAY of an HTTP/2 server, which does not process the requests from `first` on. They are sent on
    /// another connection, unless the code says that there was an error. The others may still be answered.
    pub(super) fn go_away(&mut self, now: Nanos, slot: usize, first: usize, code: u32) {
        let connection = &mut self.connections[slot];
        connection.is_over = true;
        let user = connection.user;
        let unprocessed = connection.jobs.split_off(first);
        if let Some(streams) = &mut connection.streams {
            streams.truncate(first);
        }
        if code == ErrorCode::NoError as u32 {
            self.resend(user, unprocessed);
        } else {
            let failure = Failure::code(Class::GoAway, code);
            let text = || format!("the server ended the connection: {}", ErrorCode::name_of(code));
            if unprocessed.is_empty() {
                self.tally.note(now, failure, 0, text);
            }
            for job in unprocessed {
                self.tally.failed(now, &job, failure, text);
                self.done(now, user);
            }
        }
        if let (Demand::Closed(users), Some(index)) = (&mut self.demand, user) {
            // The user's next requests need not wait for the last responses on this connection.
            users.each[index].slot = users.each[index].slot.filter(|&other| other != slot);
            users.runnable.push(index);
        }
    }

    /// Ends a connection properly: its unanswered requests are sent on another connection.
    pub(super) fn part(&mut self, now: Nanos, slot: usize) {
        self.take_back(slot);
        self.release(now, slot);
        let connection = &mut self.connections[slot];
        connection.stage = Stage::Lingering;
        connection.rest = Vec::new();
        connection.deadline = now + LINGER;
        self.arm(slot);
        self.discard(now, slot);
    }

    pub(super) fn take_back(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        let (user, jobs) = (connection.user, std::mem::take(&mut connection.jobs));
        self.resend(user, jobs);
    }

    /// Queues requests that the server did not process, to be sent on another connection.
    fn resend(&mut self, user: Option<usize>, jobs: impl IntoIterator<Item = Job, IntoIter: DoubleEndedIterator>) {
        let tally = &mut self.tally;
        let jobs = jobs.into_iter().inspect(|job| tally.resent += u64::from(job.is_measured));
        match (&mut self.demand, user) {
            (Demand::Closed(users), Some(user)) => {
                users.each[user].resend.extend(jobs);
                users.runnable.push(user);
            }
            (Demand::Open(pool), _) => jobs.rev().for_each(|job| pool.waiting.push_front(job)),
            _ => {}
        }
    }

    /// Reads and discards the input of a connection that has ended.
    pub(super) fn discard(&mut self, now: Nanos, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(socket) = &mut connection.socket else { return };
        match self.net.receive(socket, &mut self.buffer) {
            Ok(Moved::WouldBlock) => {}
            Ok(Moved::Bytes(1..)) => self.look_again(slot, false),
            _ => self.remove(now, slot),
        }
    }

    /// Detaches the connection from its user or from the pool.
    pub(super) fn release(&mut self, now: Nanos, slot: usize) {
        let connection = &mut self.connections[slot];
        match connection.stage {
            Stage::Lingering => return,
            Stage::Open => self.open -= 1,
            Stage::Knocking | Stage::Opening => {}
        }
        connection.is_over = true;
        let user = connection.user.take();
        self.place(slot);
        match (&mut self.demand, user) {
            (Demand::Closed(users), Some(index)) => {
                let user = &mut users.each[index];
                // The user already has another connection if the server has announced the end of this one.
                user.slot = user.slot.filter(|&other| other != slot);
                if user.not_before <= now {
                    users.runnable.push(index);
                }
            }
            (Demand::Open(pool), _) => pool.count -= 1,
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, now: Nanos, slot: usize) {
        self.release(now, slot);
        self.connections.remove(slot);
    }
}
