//! The run queue: requests that wait for a thread, and work that is ready.

use crate::app::{App, CallId, Work};
use std::collections::VecDeque;

/// Requests that wait for a thread that can call the application, and work that the next poll returns.
///
/// An entry may be stale: its connection or exchange has ended, or no longer waits. Therefore the exchange records
/// whether its request waits, and the connection whether it waits for room.
pub(super) struct RunQueue<A: App> {
    /// Work that became ready while the engine did other work. It is returned before all other work.
    ready: VecDeque<Work<A>>,
    waiting: Turns,
    /// Requests that would be next, but whose connection has reached its limit of concurrent calls.
    held: VecDeque<CallId>,
    /// Connections that the engine does not read, because the queue is full.
    awaiting_room: VecDeque<usize>,
}

impl<A: App> RunQueue<A> {
    pub(super) fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: Turns::default(),
            held: VecDeque::new(),
            awaiting_room: VecDeque::new(),
        }
    }

    pub(super) fn push_ready(&mut self, work: Work<A>) {
        self.ready.push_back(work);
    }

    pub(super) fn pop_ready(&mut self) -> Option<Work<A>> {
        self.ready.pop_front()
    }

    /// Returns the number of entries of ready work.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds a request of a connection that already has `before` waiting requests.
    pub(super) fn push(&mut self, call: CallId, before: usize) {
        self.waiting.push(call, before);
    }

    pub(super) fn pop(&mut self) -> Option<CallId> {
        self.waiting.pop()
    }

    /// Keeps a request until a call of its connection has ended.
    pub(super) fn hold(&mut self, call: CallId) {
        self.held.push_back(call);
    }

    /// Makes the oldest request that is held for the connection in `slot` the next one.
    #[inline]
    pub(super) fn release_held(&mut self, slot: usize) {
        if !self.held.is_empty()
            && let Some(place) = self.held.iter().position(|call| call.slot == slot)
            && let Some(call) = self.held.remove(place)
        {
            self.waiting.push_first(call);
        }
    }

    /// Returns true if no request waits in the queue.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes the stale entries, if there are any. `queued` is the number of requests that wait. Call this before a
    /// slot or an index of an exchange is reused, because a stale entry would then name the new user.
    pub(super) fn tidy(&mut self, queued: usize, mut is_queued: impl FnMut(&CallId) -> bool) {
        if self.waiting.len() + self.held.len() > queued {
            self.held.retain(&mut is_queued);
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

/// Waiting requests, in turns.
///
/// A turn has at most one request of each connection. So an HTTP/2 connection that sends a hundred requests at once
/// delays a request of another connection by one call, not by a hundred. Connections with one request at a time are
/// served in the order of their requests. No request waits forever: no request is added to the turn that is being
/// served.
#[derive(Debug, Default)]
struct Turns {
    /// The turn that is being served, oldest request first.
    current: VecDeque<CallId>,
    /// The turns after it. The last one is not empty.
    later: VecDeque<VecDeque<CallId>>,
}

impl Turns {
    fn push(&mut self, call: CallId, before: usize) {
        while self.later.len() <= before {
            self.later.push_back(VecDeque::new());
        }
        self.later[before].push_back(call);
    }

    fn push_first(&mut self, call: CallId) {
        self.current.push_front(call);
    }

    fn pop(&mut self) -> Option<CallId> {
        while self.current.is_empty() {
            if let [only] = self.later.make_contiguous() {
                // Reuses the memory of `only`.
                std::mem::swap(&mut self.current, only);
                if self.current.is_empty() {
                    return None;
                }
            } else {
                self.current = self.later.pop_front()?;
            }
        }
        self.current.pop_front()
    }

    fn len(&self) -> usize {
        self.current.len() + self.later.iter().map(VecDeque::len).sum::<usize>()
    }

    fn is_empty(&self) -> bool {
        self.current.is_empty() && self.later.iter().all(VecDeque::is_empty)
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&CallId) -> bool) {
        for turn in std::iter::once(&mut self.current).chain(&mut self.later) {
            turn.retain(&mut is_kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(slot: usize, exchange: u32) -> CallId {
        CallId { slot, exchange }
    }

    fn slots(turns: &mut Turns) -> Vec<usize> {
        std::iter::from_fn(|| turns.pop()).map(|call| call.slot).collect()
    }

    #[test]
    fn connections_with_one_request_are_served_in_order() {
        let mut turns = Turns::default();
        (0..3).for_each(|slot| turns.push(call(slot, 0), 0));
        assert_eq!(turns.pop(), Some(call(0, 0)));
        (3..5).for_each(|slot| turns.push(call(slot, 0), 0));
        assert_eq!(turns.len(), 4);
        assert_eq!(slots(&mut turns), [1, 2, 3, 4]);
        assert!(turns.is_empty());
    }

    #[test]
    fn many_requests_of_one_connection_delay_another_by_one() {
        let mut turns = Turns::default();
        (0..100).for_each(|number| turns.push(call(7, number), number as usize));
        assert_eq!(turns.pop(), Some(call(7, 0)));
        turns.push(call(1, 0), 0);
        turns.push(call(2, 0), 0);
        assert_eq!(turns.pop(), Some(call(7, 1)));
        assert_eq!([turns.pop(), turns.pop()], [Some(call(1, 0)), Some(call(2, 0))]);
        // New requests do not delay the other requests of this connection forever.
        turns.push(call(3, 0), 0);
        assert_eq!([turns.pop(), turns.pop()], [Some(call(7, 2)), Some(call(3, 0))]);
        turns.retain(|call| call.exchange % 2 == 0);
        assert_eq!(slots(&mut turns).len(), 48);
    }
}
