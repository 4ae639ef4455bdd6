//! The ways in which a connection ends, and what happens to its requests.

use super::demand::Demand;
use super::{Generator, shown};
use crate::connection::Stage;
use crate::failure::{Class, Failure};
use crate::net::{Moved, Nanos, Net};
use crate::plan::seconds;
use rustix::io::Errno;

/// The time in which the server may close a connection first.
const LINGER: Nanos = 1_000_000_000;

impl<N: Net> Generator<N> {
    /// Handles the server's close of its sending side.
    pub(super) fn input_ended(&mut self, now: Nanos, slot: usize) {
        let connection = &mut self.connections[slot];
        let rest = std::mem::take(&mut connection.rest);
        if connection.jobs.is_empty() {
            // RFC 9112 section 9.3: a server may close an idle connection at any time.
            self.tally.connections.closed_idle += 1;
            self.remove(now, slot);
            return;
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

    /// Closes the connection, and fails its requests: the first with `failure`, the others as unanswered.
    pub(super) fn lose(&mut self, now: Nanos, slot: usize, failure: Failure, text: &str) {
        let connection = &mut self.connections[slot];
        let (user, jobs) = (connection.user, std::mem::take(&mut connection.jobs));
        let answered = connection.answered;
        if jobs.is_empty() {
            // A reset of an idle connection is an end like any other.
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

    /// Ends a connection in an orderly way: its unanswered requests go to another connection.
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
        let jobs = std::mem::take(&mut connection.jobs);
        if jobs.is_empty() {
            return;
        }
        self.tally.resent += jobs.iter().filter(|job| job.is_measured).count() as u64;
        match (&mut self.demand, connection.user) {
            (Demand::Closed(users), Some(user)) => users.each[user].resend.extend(jobs),
            (Demand::Open(pool), _) => jobs.into_iter().rev().for_each(|job| pool.waiting.push_front(job)),
            _ => {}
        }
    }

    /// Reads and discards the input of a connection that is over.
    pub(super) fn discard(&mut self, now: Nanos, slot: usize) {
        let Some(connection) = self.connections.get(slot) else { return };
        let Some(socket) = &connection.socket else { return };
        match self.net.receive(socket, &mut self.buffer) {
            Ok(Moved::WouldBlock) => {}
            Ok(Moved::Bytes(1..)) => self.look_again(slot, false),
            _ => self.remove(now, slot),
        }
    }

    /// Removes the connection from its user or from the pool.
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
                user.slot = None;
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
