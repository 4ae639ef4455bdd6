//! What the watchdog has done while no thread polls the engine, and what the next poll has to do about it.

use crate::app::{App, Refusal};
use crate::deadline::Millis;
use crate::net::Peer;
use std::collections::VecDeque;

/// A request that was refused without the application, which the next poll tells of it.
pub(super) type Orphan<A> = (<A as App>::Request, Refusal);

/// A connection of which it is not known whether it asks for what a responder answers.
pub(super) struct PendingConnection {
    pub(super) slot: usize,
    /// The client of which the application has still to be told: the watchdog has accepted the connection.
    pub(super) unknown: Option<Peer>,
}

/// What the watchdog knows and leaves to the next poll.
pub(super) struct Pending<A: App> {
    /// How many polls there had been when the watchdog looked last.
    polls: u64,
    /// Since when something has waited for a poll, as far as the watchdog knows.
    awaited_since: Option<Millis>,
    /// Connections that the last polls accepted and that have sent nothing are among `connections`.
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

    /// Whether the next poll has something to do about it.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        !self.connections.is_empty() || !self.orphans.is_empty() || self.complaint.is_some()
    }

    /// Whether no poll has been made since the watchdog looked last.
    pub(super) fn is_unpolled(&self, polls: u64) -> bool {
        self.polls == polls
    }

    /// There have been so many polls: what waits from now on waits anew.
    pub(super) fn begin(&mut self, polls: u64) {
        self.polls = polls;
        self.awaited_since = None;
        self.has_newcomers = false;
    }

    /// Something waits for a poll.
    pub(super) fn note_awaited(&mut self, now: Millis) {
        self.awaited_since.get_or_insert(now);
    }

    pub(super) fn awaited_since(&self) -> Option<Millis> {
        self.awaited_since
    }

    /// Whether the connections that the last polls accepted are still to be added; they are now.
    pub(super) fn begin_newcomers(&mut self) -> bool {
        !std::mem::replace(&mut self.has_newcomers, true)
    }
}
