//! Opens connections, and handles those that fail to open.

use super::demand::Demand;
use super::{Generator, Timer, note_late};
use crate::connection::{Connection, Stage};
use crate::failure::Failure;
use crate::net::{Nanos, Net};
use crate::result::Ended;
use crate::streams::Streams;
use crate::tally::Job;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::io;

/// The time after which the generator tries again to connect to a full backlog, in nanoseconds.
const KNOCK: Nanos = 1_000_000;
/// The first and the longest pause of a user after a failure to connect, in nanoseconds.
const BACK_OFF: (Nanos, Nanos) = (10_000_000, 1_000_000_000);

impl<N: Net> Generator<N> {
    /// Starts to open a connection for `user` or for the pool, with its first request if there is one.
    pub(super) fn connect(&mut self, now: Nanos, user: Option<usize>, job: Option<Job>) {
        self.unlucky_since = if self.open == 0 { self.unlucky_since.or(Some(now)) } else { None };
        self.next_id += 1;
        let deadline = now.saturating_add(self.timeout);
        let mut connection = Connection::new(self.next_id, user, now, deadline);
        connection.streams = self.is_multiplexed.then(|| Box::new(Streams::new()));
        let slot = self.connections.insert(connection);
        if self.armed.len() <= slot {
            self.armed.resize(slot + 1, Nanos::MAX);
        }
        match &mut self.demand {
            Demand::Closed(users) => {
                if let Some(user) = user {
                    users.each[user].slot = Some(slot);
                }
            }
            Demand::Open(pool) => pool.count += 1,
        }
        if let Some(job) = job {
            self.put(now, slot, job);
        }
        self.arm(slot);
        self.knock(now, slot);
    }

    /// Starts the connection, which calls connect(2).
    pub(super) fn knock(&mut self, now: Nanos, slot: usize) {
        let address = self.next_address;
        self.next_address = (address + 1) % self.addresses;
        let opened = self.net.connect(address, slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        match opened {
            Ok(Some(socket)) => {
                connection.socket = Some(socket);
                connection.stage = Stage::Opening;
                // A connection to a near server is often open at once, and one to a Unix socket always. The elapsed
                // time must still be read from the clock, so it is checked in the next tick.
                self.look_again(slot, false);
            }
            Ok(None) => {
                let id = connection.id;
                self.timers.push(Reverse((now + KNOCK, Timer::Knock { slot, id })));
            }
            Err(error) => self.fail_to_open(now, slot, &error),
        }
    }

    /// Checks whether the connection has opened. Waiting requests are sent, because this is the fastest way to find
    /// out.
    pub(super) fn open(&mut self, now: Nanos, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let Some(socket) = &mut connection.socket else { return };
        let opened = if connection.jobs.is_empty() {
            self.net.is_open(socket).and_then(|is_open| {
                if !is_open {
                    self.net.want_output(socket, slot)?;
                }
                Ok(is_open)
            })
        } else {
            connection.flush(&mut self.net, &self.script, slot).map(|sent| {
                self.tally.sent(now, sent);
                sent > 0
            })
        };
        match opened {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.fail_to_open(now, slot, &error),
        }
        connection.stage = Stage::Open;
        self.open += 1;
        self.unlucky_since = None;
        self.tally.opened(now, now - connection.since);
        for job in &mut connection.jobs {
            job.given = now;
            note_late(&mut self.tally, &self.demand, job);
        }
        if connection.jobs.is_empty() {
            connection.deadline = Nanos::MAX;
        }
        if let (Demand::Closed(users), Some(user)) = (&mut self.demand, connection.user) {
            users.each[user].failures = 0;
            users.runnable.push(user);
        }
        // An HTTP/2 connection sends its preface even without a request.
        self.send(now, slot);
        self.place(slot);
    }

    /// Handles a connection that could not be opened.
    pub(super) fn fail_to_open(&mut self, now: Nanos, slot: usize, error: &io::Error) {
        self.tally.connections.failed += 1;
        let user = self.connections[slot].user;
        if let (Some(users), Some(index)) = (self.users(), user) {
            let user = &mut users.each[index];
            let (first, most) = BACK_OFF;
            let wait = (first << user.failures.min(10)).min(most);
            user.failures += 1;
            user.not_before = now.saturating_add(wait);
            let due = user.not_before;
            self.timers.push(Reverse((due, Timer::Recovered { user: index })));
        }
        let text = format!("no connection could be opened: {error}");
        let failure = Failure::to_connect(error);
        let had_request = !self.connections[slot].jobs.is_empty();
        if had_request {
            self.lose(now, slot, failure, &text);
        } else {
            self.tally.note(now, failure, 0, || text);
            self.remove(now, slot);
        }
    }

    /// Ends the run, because no connection could be opened within `patience`. Requests that still wait for a connection
    /// fail.
    pub(super) fn give_up(&mut self, now: Nanos) {
        let opening: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, it)| matches!(it.stage, Stage::Knocking | Stage::Opening))
            .map(|(slot, _)| slot)
            .collect();
        for slot in opening {
            self.fail_to_open(now, slot, &Errno::TIMEDOUT.into());
        }
        self.end(now, Ended::Unreachable);
    }
}
