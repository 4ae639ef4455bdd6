//! Those who wait while nobody turns the engine: who is accepted then, and who is told how the server is.

use super::Engine;
use crate::app::{App, Refusal, Report};
use crate::config::{WATCHDOG_ACCEPTS, WATCHDOG_AFTER};
use crate::connection::{Serviced, panic_message};
use crate::deadline::{Millis, Now, millis};
use crate::health::Health;
use crate::net::{Accepted, Net, Peer};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A request that was refused without the application: it is told of at the next turn.
pub(super) type Orphan<A> = (<A as App>::Request, Refusal);

/// See [`Engine::pending`].
pub(super) struct PendingConnection {
    slot: usize,
    /// Whom the application has still to be told of: it was accepted without a turn.
    unknown: Option<Peer>,
}

impl<A: App> Engine<A> {
    /// Looks after peers while nobody turns the engine, although somebody waits for it: answers those that ask for the
    /// server's health. To be called every now and then by a thread that need not be the application's: it is not given
    /// any, so that nothing can be asked of it, and it drops nothing that the application gave to the engine. Deadlines
    /// are left to the next turn, like all else that peers say.
    ///
    /// `is_awaited`: somebody else is known to wait for a turn. Returns whether there is something for the next turn that
    /// whoever waits for the poller does not know of.
    pub fn service_pending(&mut self, now: Now, is_awaited: bool) -> bool {
        self.set_time(now);
        if self.polls != self.turns_attended {
            self.turns_attended = self.polls;
            self.awaited_since = None;
            self.has_met_newcomers = false;
            for listener in &mut self.listeners {
                listener.awaited_since = None;
            }
            return false;
        }
        let time = self.context.now;
        for listener in &mut self.listeners {
            let is_awaited = self.net.is_awaited(&listener.socket);
            listener.awaited_since = listener.awaited_since.or(Some(time)).filter(|_| is_awaited);
        }
        let is_at_listener = self.listeners.iter().any(|listener| listener.awaited_since.is_some());
        if is_awaited || is_at_listener || self.due().is_some_and(|due| due <= now.monotonic) {
            self.awaited_since.get_or_insert(time);
        }
        if self.context.config.health_path.is_empty() {
            return false;
        }
        // Whoever is accepted may get the slot of somebody who was queued.
        self.tidy_queue();
        self.accept_new();
        self.accept_pending();
        self.service_pending_connections();
        let has_more = !self.pending.is_empty() || self.complaint.is_some() || !self.orphans.is_empty();
        let had = std::mem::replace(&mut self.was_attended, has_more);
        has_more && !had
    }

    /// Answers 503 to each request that waits for a turn or is being received. To be called, like
    /// [`service_pending`](Self::service_pending), by a thread that need not be the application's, when a call that has
    /// [expired](Self::expire) keeps every thread from turning the engine: nothing else would answer these requests before
    /// the process ends, and none of them has been run.
    pub fn refuse_waiting(&mut self, now: Now) {
        self.set_time(now);
        let Self { connections, context, buffer, again, orphans, complaint, .. } = self;
        for (_, connection) in &mut *connections {
            let refused = catch_unwind(AssertUnwindSafe(|| connection.refuse_waiting(context, buffer, orphans)));
            let is_to_be_driven = refused.unwrap_or_else(|panic| {
                context.statistics.panics += 1;
                complaint.get_or_insert_with(|| panic_message(&*panic));
                false
            });
            if is_to_be_driven {
                connection.come_back(again);
            }
        }
        self.was_attended |= !self.orphans.is_empty() || self.complaint.is_some();
    }

    /// Whether somebody has waited for a turn for so long that the engine is taken to be stuck.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let Some(limit) = self.context.config.stalled_after else { return false };
        let is_long = |since: Millis| self.context.now >= since.saturating_add(millis(limit));
        self.polls == self.turns_attended && self.awaited_since.is_some_and(is_long)
    }

    /// Whether it has been waited since then for longer than others need who may come.
    fn is_in_vain(&self, since: Option<Millis>) -> bool {
        since.is_some_and(|since| self.context.now >= since + millis(WATCHDOG_AFTER))
    }

    /// Somebody whom the last turn has accepted may ask for the server's health too: it could not read everything.
    fn accept_new(&mut self) {
        if self.is_in_vain(self.awaited_since) && !std::mem::replace(&mut self.has_met_newcomers, true) {
            let newcomers = self.connections.iter().filter(|(_, connection)| connection.is_new());
            self.pending.extend(newcomers.map(|(slot, _)| PendingConnection { slot, unknown: None }));
        }
    }

    /// Accepts those who have waited in vain. They may have come to ask for the server's health and nothing else, and
    /// only what they say tells. If they want something else they wait here instead of there.
    fn accept_pending(&mut self) {
        for index in 0..self.listeners.len() {
            if !self.is_in_vain(self.listeners[index].awaited_since) {
                continue;
            }
            for _ in 0..WATCHDOG_ACCEPTS {
                if self.connections.len() >= self.most_connections || self.context.now < self.paused_until {
                    return;
                }
                match self.net.accept(&self.listeners[index].socket) {
                    Ok(Accepted::Connection(transport, address)) => {
                        let slot = self.admit(transport, None);
                        let unknown = Some(Peer { address, listener: index });
                        self.pending.push_back(PendingConnection { slot, unknown });
                    }
                    Ok(Accepted::Failed(_)) => {}
                    // Whoever turns the engine next finds out what is wrong, and says so.
                    Ok(Accepted::None | Accepted::Exhausted(_)) | Err(_) => break,
                }
            }
        }
    }

    fn service_pending_connections(&mut self) {
        let health = if self.context.draining {
            Health::Draining
        } else if self.is_stalled() {
            Health::Stalled
        } else {
            Health::Saturated
        };
        let Self { pending, connections, context, buffer, awaits_room, again, complaint, .. } = self;
        pending.retain(|&PendingConnection { slot, ref unknown }| {
            let connection = &mut connections[slot];
            if connection.place.awaits_room {
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
                    connection.hold_back(true, context);
                    awaits_room.push_back(slot);
                }
                Serviced::Over if unknown.is_some() => {
                    connections.remove(slot);
                    context.statistics.connections -= 1;
                    return false;
                }
                // What the application keeps of it is dropped by whoever turns.
                Serviced::Over => {
                    connection.come_back(again);
                    return false;
                }
            }
            true
        });
    }

    /// Tells the application of those who were accepted meanwhile. They go on in this turn.
    pub(super) fn introduce(&mut self, app: &mut A) {
        if let Some(message) = self.complaint.take() {
            app.report(Report::Panicked(message));
        }
        for (request, refusal) in std::mem::take(&mut self.orphans) {
            app.abandon_request(request, Some(refusal));
        }
        while let Some(PendingConnection { slot, unknown }) = self.pending.pop_front() {
            if let Some(peer) = unknown {
                self.guarded(app, |engine, app| engine.connections[slot].app = Some(app.connect(&peer)));
            }
            let connection = &mut self.connections[slot];
            if connection.app.is_none() {
                self.remove(slot);
            } else if connection.place.awaits_room {
                self.watch_or_cut(slot, app);
            } else {
                connection.come_back(&mut self.again);
            }
        }
    }
}
