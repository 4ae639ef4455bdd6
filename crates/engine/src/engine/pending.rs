//! The work that the watchdog began while no thread polled the engine, and that the next poll has to finish.

use crate::app::{App, Refusal};
use crate::connection::Connection;
use crate::deadline::Millis;
use crate::net::Peer;
use slab::Slab;
use std::collections::VecDeque;

/// A request that the engine refused without the application, and the refusal. The next poll reports both to the
/// application.
pub(super) type Orphan<A> = (<A as App>::Request, Refusal);

/// A connection that the watchdog services, as long as its request may still be one that the engine answers by itself.
pub(super) struct PendingConnection {
    pub(super) slot: usize,
    /// The peer, if the application does not know the connection yet because the watchdog has accepted it.
    pub(super) unknown: Option<Peer>,
}

/// The state of the watchdog, and the work that it leaves to the next poll.
pub(super) struct Pending<A: App> {
    /// The number of polls when the watchdog last ran.
    polls: u64,
    /// The time since which something has waited for a poll, as far as the watchdog knows.
    awaited_since: Option<Millis>,
    /// True if `connections` includes the connections that the last polls accepted and that have sent nothing.
    has_newcomers: bool,
    pub(super) connections: VecDeque<PendingConnection>,
    pub(super) orphans: Vec<Orphan<A>>,
    /// The message of a panic, if there was one.
    pub(super) complaint: Option<String>,
}

impl<A: App> Pending<A> {
    pub(super) fn new() -> Self {
        Self {
            polls: 0,
            awaited_since: None,
            has_newcomers: false,
            connections: VecDeque::new(),
            orphans: Vec::new(),
            complaint: None,
        }
    }

    /// Returns true if the watchdog has left work to the next poll.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        !self.connections.is_empty() || !self.orphans.is_empty() || self.complaint.is_some()
    }

    /// Returns true if the engine has not been polled since the watchdog last ran.
    pub(super) fn is_unpolled(&self, polls: u64) -> bool {
        self.polls == polls
    }

    /// Records the number of polls, and restarts the time of waiting.
    pub(super) fn begin(&mut self, polls: u64) {
        self.polls = polls;
        self.awaited_since = None;
        self.has_newcomers = false;
    }

    /// Records that something has waited for a poll at least since `now`.
    pub(super) fn note_awaited(&mut self, now: Millis) {
        self.awaited_since.get_or_insert(now);
    }

    pub(super) fn awaited_since(&self) -> Option<Millis> {
        self.awaited_since
    }

    /// Adds the connections that the last polls accepted and that have sent nothing, unless this was done before.
    pub(super) fn add_newcomers(&mut self, connections: &Slab<Connection<A>>) {
        if std::mem::replace(&mut self.has_newcomers, true) {
            return;
        }
        let newcomers = connections.iter().filter(|(_, connection)| connection.is_new());
        self.connections.extend(newcomers.map(|(slot, _)| PendingConnection { slot, unknown: None }));
    }
}
