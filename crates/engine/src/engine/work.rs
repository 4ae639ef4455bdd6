//! The run queue: requests that wait for a thread, and work that is ready.

use crate::app::{App, CallId, Work};
use std::collections::VecDeque;

/// Requests that wait for a thread that calls the application, and work that the next poll returns.
///
/// An entry may belong to a connection or an exchange that has ended, or that waits no longer: the exchange knows
/// whether its request waits, and the connection knows whether it waits for room.
pub(super) struct RunQueue<A: App> {
    /// Work that became ready while the engine did other work. It is returned before all other work.
    ready: VecDeque<Work<A>>,
    /// Requests that wait, oldest first.
    waiting: VecDeque<CallId>,
    /// Connections that are not read, because the queue is full.
    awaiting_room: VecDeque<usize>,
}

impl<A: App> RunQueue<A> {
    pub(super) fn new() -> Self {
        Self { ready: VecDeque::new(), waiting: VecDeque::new(), awaiting_room: VecDeque::new() }
    }

    pub(super) fn push_ready(&mut self, work: Work<A>) {
        self.ready.push_back(work);
    }

    pub(super) fn pop_ready(&mut self) -> Option<Work<A>> {
        self.ready.pop_front()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn push(&mut self, call: CallId) {
        self.waiting.push_back(call);
    }

    pub(super) fn pop(&mut self) -> Option<CallId> {
        self.waiting.pop_front()
    }

    /// Returns true if no request waits before a new one.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the entries that wait no longer, if there are any; `queued` requests wait. The caller calls it before it
    /// reuses a slot or an exchange's place, because an old entry would then name the new user.
    pub(super) fn tidy(&mut self, queued: usize, is_queued: impl FnMut(&CallId) -> bool) {
        if self.waiting.len() > queued {
            self.waiting.retain(is_queued);
        }
    }

    pub(super) fn push_awaiting_room(&mut self, slot: usize) {
        self.awaiting_room.push_back(slot);
    }

    pub(super) fn pop_awaiting_room(&mut self) -> Option<usize> {
        self.awaiting_room.pop_front()
    }

    pub(super) fn has_awaiting_room(&self) -> bool {
        !self.awaiting_room.is_empty()
    }
}
