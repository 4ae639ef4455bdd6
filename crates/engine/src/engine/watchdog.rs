//! The engine's work for clients while no thread polls it: it accepts connections and answers health checks.
//!
//! The thread that calls these methods need not hold the GIL. It cannot call [`App`], and drops no object that the
//! application gave to the engine. Reports to the application wait in [`Pending`](super::pending::Pending).

use super::Engine;
use super::acceptor::has_waited_in_vain;
use super::connections::Connections;
use super::pending::PendingConnection;
use crate::app::{App, Report};
use crate::config::WATCHDOG_ACCEPTS;
use crate::connection::{Serviced, panic_message};
use crate::deadline::{Now, millis};
use crate::health::Health;
use crate::net::{Accepted, Net, Peer};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl<A: App> Engine<A> {
    /// Answers health checks while no thread polls the engine, although something waits for a poll. The watchdog thread
    /// calls this at intervals. The next poll handles deadlines and all other requests.
    ///
    /// `is_awaited`: a thread is known to wait for a poll. Returns true if this created work for the next poll of which
    /// the thread that waits for the poller does not know.
    pub fn service_pending(&mut self, now: Now, is_awaited: bool) -> bool {
        self.clock.set(now, &mut self.connections.context);
        if !self.pending.is_unpolled(self.polls) {
            self.pending.begin(self.polls);
            self.connections.acceptor.forget_waiting();
            return false;
        }
        let time = self.connections.context.time.now;
        let is_at_listener = self.connections.acceptor.note_waiting(&self.connections.net, time);
        if is_awaited || is_at_listener || self.due().is_some_and(|due| due <= now.monotonic) {
            self.pending.note_awaited(time);
        }
        if self.connections.context.config.health_path.is_empty() {
            return false;
        }
        let had = self.pending.is_any();
        // An accepted connection may get the slot of a connection that had a queued request.
        self.connections.tidy_queue();
        // Clients whose connections the last polls accepted may send health checks, too.
        if has_waited_in_vain(self.pending.awaited_since(), time) {
            self.pending.add_newcomers(&self.connections.slab);
        }
        self.accept_pending();
        self.service_pending_connections();
        !had && self.pending.is_any()
    }

    /// Answers 503 to each request that waits for a poll or is being received. Any thread may call this, like
    /// [`service_pending`](Self::service_pending). For the case that a call has [expired](Self::expire) and keeps every
    /// thread from polling the engine: these requests would get no other answer before the process ends, and the
    /// application has not been called for any of them.
    pub fn refuse_waiting(&mut self, now: Now) {
        self.clock.set(now, &mut self.connections.context);
        let Self { connections: Connections { slab, context, buffer, round, .. }, pending, .. } = self;
        for (slot, connection) in slab {
            let orphans = &mut pending.orphans;
            let refused = catch_unwind(AssertUnwindSafe(|| connection.refuse_waiting(context, buffer, orphans)));
            let is_to_be_driven = refused.unwrap_or_else(|panic| {
                context.statistics.panics += 1;
                pending.complaint.get_or_insert_with(|| panic_message(&*panic));
                false
            });
            if is_to_be_driven {
                connection.link_mut().schedule.come_back(slot, &mut round.again);
            }
        }
    }

    /// Returns true if something has waited for a poll for so long that the engine counts as stalled.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let Some(limit) = self.connections.context.config.stalled_after else { return false };
        let since = self.pending.awaited_since().filter(|_| self.pending.is_unpolled(self.polls));
        since.is_some_and(|since| self.connections.context.time.now >= since.saturating_add(millis(limit)))
    }

    /// Accepts connections that no process has accepted for a while. They may be health checks, which only their input
    /// shows. Connections with other requests then wait in the engine instead of in the kernel's backlog.
    fn accept_pending(&mut self) {
        for index in self.connections.acceptor.neglected(self.connections.context.time.now) {
            for _ in 0..WATCHDOG_ACCEPTS {
                let has_room = self.connections.acceptor.has_room_beside(self.connections.slab.len());
                if !has_room || self.connections.acceptor.is_paused(self.connections.context.time.now) {
                    return;
                }
                match self.connections.net.accept(self.connections.acceptor.socket(index)) {
                    Ok(Accepted::Connection(transport, address)) => {
                        let peer = Peer { address, listener: index };
                        let slot = self.connections.admit(transport, &peer);
                        let unknown = Some(peer);
                        self.pending.connections.push_back(PendingConnection { slot, unknown });
                    }
                    Ok(Accepted::Failed(_)) => {}
                    // The next poll meets the same error, and reports it.
                    Ok(Accepted::None | Accepted::Exhausted(_)) | Err(_) => break,
                }
            }
        }
    }

    fn service_pending_connections(&mut self) {
        let health = if self.connections.context.is_draining() {
            Health::Draining
        } else if self.is_stalled() {
            Health::Stalled
        } else {
            Health::Saturated
        };
        let Self { connections: Connections { slab, context, buffer, queue, round, .. }, pending, .. } = self;
        let complaint = &mut pending.complaint;
        pending.connections.retain(|&PendingConnection { slot, ref unknown }| {
            let connection = &mut slab[slot];
            if connection.link().schedule.awaits_room() {
                return true;
            }
            let serviced_at = catch_unwind(AssertUnwindSafe(|| connection.service_pending(health, context, buffer)));
            match serviced_at.unwrap_or_else(|panic| {
                context.statistics.panics += 1;
                complaint.get_or_insert_with(|| panic_message(&*panic));
                Serviced::Over
            }) {
                Serviced::Stays => {}
                Serviced::Waits => {
                    connection.await_room(context);
                    queue.push_awaiting_room(slot);
                }
                Serviced::Over if unknown.is_some() => {
                    context.statistics.count_streams(slab.remove(slot).streams(), None);
                    context.statistics.connections -= 1;
                    return false;
                }
                // The application's data of the connection are dropped by the thread that polls next.
                Serviced::Over => {
                    connection.link_mut().schedule.come_back(slot, &mut round.again);
                    return false;
                }
            }
            true
        });
    }

    /// Reports the watchdog's work to the application. Connections that the watchdog accepted continue in this poll.
    #[cold]
    pub(super) fn introduce(&mut self, app: &mut A) {
        if let Some(message) = self.pending.complaint.take() {
            app.report(Report::Panicked(message));
        }
        for (request, refusal) in std::mem::take(&mut self.pending.orphans) {
            app.abandon_request(request, Some(refusal));
        }
        while let Some(PendingConnection { slot, unknown }) = self.pending.connections.pop_front() {
            if let Some(peer) = unknown {
                self.guarded(app, |engine, app| {
                    let data = app.connect(&peer);
                    let (connection, context) = engine.connections.at(slot);
                    connection.introduce(data, context, app);
                });
            }
            let connection = &self.connections[slot];
            if !connection.link().is_introduced() {
                self.connections.remove(slot);
            } else if connection.link().schedule.awaits_room() {
                self.connections.watch_or_cut(slot, app);
            } else {
                self.connections.come_back(slot);
            }
        }
    }
}
