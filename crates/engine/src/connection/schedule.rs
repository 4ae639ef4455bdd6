//! The schedule of a connection: which events the poller reports for it, and when it is driven without an event.

use crate::net::Net;
use std::collections::VecDeque;

/// The readiness of a connection that the poller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// Nothing: a short-lived connection never needs a report.
    No,
    /// Input only.
    Input,
    /// Input, and when the transport accepts output again.
    InputAndOutput,
    /// Nothing any more: the application has hijacked the connection.
    NoMore,
}

/// The occasion on which the connection is driven next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// The poller reports an event.
    Event,
    /// The connection is the next in a queue of the round.
    Turn,
    /// The queue of requests has room. Until then the engine does not read from the connection.
    Room,
}

/// The occasion on which a connection is driven next, and the events that the poller reports for it.
#[derive(Debug)]
pub(crate) struct Schedule {
    occasion: Occasion,
    watched: Watched,
    /// True if a call has left unsent output, so that the next poll has to set the deadline.
    has_stale_deadline: bool,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self { occasion: Occasion::Event, watched: Watched::No, has_stale_deadline: false }
    }

    /// Appends the connection in `slot` to `queue`, to be driven later without an event.
    pub(crate) fn come_back(&mut self, slot: usize, queue: &mut VecDeque<usize>) {
        if std::mem::replace(&mut self.occasion, Occasion::Turn) != Occasion::Turn {
            queue.push_back(slot);
        }
    }

    /// Removes the connection from a queue. Returns false if it has been driven meanwhile, so that it need not be
    /// driven.
    pub(crate) fn take_turn(&mut self) -> bool {
        let is_queued = self.is_in_queue();
        if is_queued {
            self.occasion = Occasion::Event;
        }
        is_queued
    }

    /// Returns true if the connection waits in a queue of the round.
    pub(crate) fn is_in_queue(&self) -> bool {
        self.occasion == Occasion::Turn
    }

    /// Returns true if the connection waits for room in the queue of requests.
    #[inline]
    pub(crate) fn awaits_room(&self) -> bool {
        self.occasion == Occasion::Room
    }

    /// Returns true if the connection is going to be driven without an event.
    pub(crate) fn has_turn_later(&self) -> bool {
        self.occasion != Occasion::Event
    }

    /// Makes the connection wait for room in the queue of requests: a request may have arrived that cannot be queued
    /// now.
    pub(super) fn await_room(&mut self) {
        self.occasion = Occasion::Room;
    }

    /// Records that the connection no longer waits for room.
    pub(super) fn stop_awaiting_room(&mut self) {
        if self.awaits_room() {
            self.occasion = Occasion::Event;
        }
    }

    /// Makes the connection wait for an event of the poller.
    pub(super) fn await_event(&mut self) {
        self.occasion = Occasion::Event;
    }

    /// Makes the poller report when `transport` has input and, if `has_output`, when it accepts output again. Returns
    /// false if that failed.
    #[inline]
    pub(super) fn watch<N: Net>(
        &mut self,
        net: &mut N,
        transport: &N::Transport,
        slot: usize,
        has_output: bool,
    ) -> bool {
        let wanted = if has_output { Watched::InputAndOutput } else { Watched::Input };
        match self.watched {
            Watched::InputAndOutput | Watched::NoMore => true,
            watched if watched == wanted => true,
            watched => {
                let (reports_output, is_known) = (wanted == Watched::InputAndOutput, watched != Watched::No);
                let is_watched = net.watch(transport, slot, reports_output, is_known).is_ok();
                if is_watched {
                    self.watched = wanted;
                }
                is_watched
            }
        }
    }

    /// Makes the poller stop reporting the transport, which stays open.
    pub(super) fn unwatch<N: Net>(&mut self, net: &mut N, transport: &N::Transport) {
        if self.watched != Watched::No {
            net.unwatch(transport);
        }
        self.watched = Watched::NoMore;
    }

    /// Records that a call has left unsent output, at an unknown time. Returns true if that had not been recorded yet.
    pub(crate) fn note_stale_deadline(&mut self) -> bool {
        !std::mem::replace(&mut self.has_stale_deadline, true)
    }

    /// Records that the next poll has set the deadlines.
    pub(crate) fn clear_stale_deadline(&mut self) {
        self.has_stale_deadline = false;
    }
}
