//! Determines when requests begin and on which connection: by users in the closed model, by a schedule in the open one.

use super::demand::{Demand, Users};
use super::{Generator, Timer};
use crate::connection::Stage;
use crate::net::{Nanos, Net};
use crate::tally::{Job, LATE};
use std::cmp::Reverse;

impl<N: Net> Generator<N> {
    pub(super) fn tell_window(&mut self) {
        if let Some(from) = self.window.from() {
            self.tally.set_window(from, self.window.until().unwrap_or(Nanos::MAX));
        }
    }

    /// Begins a request that is due at this time. Returns `None` if no more requests may begin. `request` is its index;
    /// `None`: the script chooses it.
    pub(super) fn begin(&mut self, due: Nanos, noticed_late: bool, request: Option<usize>) -> Option<Job> {
        let knew = self.window.from().is_some();
        let is_measured = self.window.begin(due)?;
        if !knew {
            self.tell_window();
        }
        self.active += 1;
        let request = request.unwrap_or_else(|| self.script.draw());
        Some(Job { due, put: 0, given: 0, first: 0, noticed_late, request, is_measured, is_last: false, refused: 0 })
    }

    /// Creates the requests that are due, and drops those that have waited too long.
    pub(super) fn arrive(&mut self, now: Nanos) {
        while let Some(due) = self.demand.next_arrival().filter(|&due| due <= now) {
            let Demand::Open(pool) = &self.demand else { return };
            let request = pool.arrivals.request();
            let job = self.begin(due, now - due > LATE, request);
            let Demand::Open(pool) = &mut self.demand else { return };
            let Some(job) = job else {
                pool.is_done = true;
                break;
            };
            pool.arrivals.advance();
            if job.is_measured {
                self.tally.lagged(now - due);
            }
            pool.waiting.push_back(job);
            // One request at a time, so that those that find a connection at once do not count as waiting.
            self.pump(now);
            let Demand::Open(pool) = &mut self.demand else { return };
            if pool.waiting.len() > pool.most_waiting
                && let Some(job) = pool.waiting.pop_back()
            {
                self.tally.dropped(now, &job);
                self.active -= 1;
            }
        }
        let Demand::Open(pool) = &mut self.demand else { return };
        while let Some(job) = pool.waiting.front().filter(|job| now >= job.due.saturating_add(pool.longest_wait)) {
            self.tally.dropped(now, job);
            self.active -= 1;
            pool.waiting.pop_front();
        }
    }

    /// Assigns requests to connections as far as possible.
    pub(super) fn pump(&mut self, now: Nanos) {
        match &self.demand {
            Demand::Closed(_) => {
                while let Some(user) = self.users().and_then(|users| users.runnable.pop()) {
                    self.run_user(now, user);
                }
            }
            Demand::Open(_) => while self.serve_waiting(now) {},
        }
    }

    pub(super) fn users(&mut self) -> Option<&mut Users> {
        match &mut self.demand {
            Demand::Closed(users) => Some(users),
            Demand::Open(_) => None,
        }
    }

    /// Begins all requests that a user may send now.
    pub(super) fn run_user(&mut self, now: Nanos, index: usize) {
        let limit = self.script.per_connection;
        let mut used = None;
        loop {
            let Demand::Closed(users) = &mut self.demand else { return };
            let pipeline = users.pipeline;
            let user = &mut users.each[index];
            if user.not_before > now || (user.ready == 0 && user.resend.is_empty()) {
                break;
            }
            let slot = user.slot;
            if let Some(connection) = slot.and_then(|slot| self.connections.get(slot)) {
                // A connection that is still opening gets only one request, so that the others do not fail with it if
                // it never opens.
                let most = if connection.stage == Stage::Open { connection.most(pipeline) } else { 1 };
                if connection.jobs.len() >= most || connection.asked >= limit || connection.output_failed {
                    break;
                }
            }
            let job = if let Some(job) = user.resend.pop_front() {
                job
            } else {
                user.ready -= 1;
                match self.begin(now, false, None) {
                    Some(job) => job,
                    None => break,
                }
            };
            match slot {
                Some(slot) => {
                    self.put(now, slot, job);
                    used = Some(slot);
                }
                None => self.connect(now, Some(index), Some(job)),
            }
        }
        if let Some(slot) = used {
            self.send(now, slot);
        }
    }

    /// Assigns a waiting request to a connection. Returns false if there is no request or no connection.
    pub(super) fn serve_waiting(&mut self, now: Nanos) -> bool {
        let Demand::Open(pool) = &mut self.demand else { return false };
        if pool.waiting.is_empty() {
            return false;
        }
        let free = pool.free.first().copied();
        if free.is_none() && pool.count >= pool.most {
            return false;
        }
        let Some(job) = pool.waiting.pop_front() else { return false };
        match free {
            Some((.., slot)) => {
                self.put(now, slot, job);
                self.send(now, slot);
                self.place(slot);
            }
            None => self.connect(now, None, Some(job)),
        }
        true
    }

    /// Updates the entry of a connection in the open model's set of free connections: removes the old key, and adds a
    /// new one if the connection can take another request.
    pub(super) fn place(&mut self, slot: usize) {
        let Demand::Open(pool) = &mut self.demand else { return };
        let connection = &mut self.connections[slot];
        if let Some((under_way, place)) = connection.place.take() {
            pool.free.remove(&(under_way, place, slot));
        }
        let under_way = connection.jobs.len();
        let is_open = connection.stage == Stage::Open && !connection.is_over && !connection.output_failed;
        if is_open && under_way < connection.most(pool.pipeline) && connection.asked < self.script.per_connection {
            pool.placed += 1;
            connection.place = Some((under_way, pool.placed));
            pool.free.insert((under_way, pool.placed, slot));
        }
    }

    /// Handles the end of a request, successful or not: its user thinks, and may then begin the next one.
    pub(super) fn done(&mut self, now: Nanos, user: Option<usize>) {
        self.active -= 1;
        let (Demand::Closed(users), Some(index)) = (&mut self.demand, user) else { return };
        match users.think.draw() {
            0 => {
                users.each[index].ready += 1;
                users.runnable.push(index);
            }
            think => self.timers.push(Reverse((now.saturating_add(think), Timer::Thought { user: index }))),
        }
    }
}
