//! The schedule of a connection: the events that the poller reports, and driving the connection without an event.

use crate::net::Net;
use std::collections::VecDeque;

/// The readiness of a connection that the poller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// Nothing: a short-lived connection never needs a report.
    No,
    /// Input.
    Input,
    /// Input, and that the transport takes output again.
    InputAndOutput,
    /// Nothing, for good: the application has hijacked the connection.
    NoMore,
}

/// The occasion at which the connection is driven next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// When the poller reports it.
    Event,
    /// When it is the next in a queue of the round.
    Turn,
    /// When the queue of requests has room for its request: until then the connection is not even read.
    Room,
}

/// The occasion at which a connection is driven next, and what the poller reports of it.
#[derive(Debug)]
pub(crate) struct Schedule {
    occasion: Occasion,
    watched: Watched,
    /// True if a call has left output waiting. The next poll sets the deadline.
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

    /// Takes the connection from a queue. Returns true if it is to be driven: it may have been driven meanwhile.
    pub(crate) fn take_turn(&mut self) -> bool {
        let is_queued = self.is_in_queue();
        if is_queued {
            self.occasion = Occasion::Event;
        }
        is_queued
    }

    /// Returns true if the connection is driven when it is the next in a queue of the round.
    pub(crate) fn is_in_queue(&self) -> bool {
        self.occasion == Occasion::Turn
    }

    /// Returns true if the connection is driven when the queue of requests has room.
    #[inline]
    pub(crate) fn awaits_room(&self) -> bool {
        self.occasion == Occasion::Room
    }

    /// Returns true if the connection is driven without an event.
    pub(crate) fn has_turn_later(&self) -> bool {
        self.occasion != Occasion::Event
    }

    /// Has the connection wait for room in the queue of requests: a request may have arrived that cannot be queued now.
    pub(super) fn await_room(&mut self) {
        self.occasion = Occasion::Room;
    }

    /// Records that the connection no longer waits for room.
    pub(super) fn stop_awaiting_room(&mut self) {
        if self.awaits_room() {
            self.occasion = Occasion::Event;
        }
    }

    /// Has the connection driven only when the poller reports it.
    pub(super) fn await_event(&mut self) {
        self.occasion = Occasion::Event;
    }

    /// Has the poller report input of `transport`, and, with `has_output`, when it takes output again. Returns false if
    /// that failed.
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

    /// Has the poller stop reporting the transport, although it stays open.
    pub(super) fn unwatch<N: Net>(&mut self, net: &mut N, transport: &N::Transport) {
        if self.watched != Watched::No {
            net.unwatch(transport);
        }
        self.watched = Watched::NoMore;
    }

    /// Records that a call has left output waiting, at a time that is not known. Returns true if that was not recorded
    /// yet.
    pub(crate) fn note_stale_deadline(&mut self) -> bool {
        !std::mem::replace(&mut self.has_stale_deadline, true)
    }

    /// Records that the next poll has set the deadlines.
    pub(crate) fn clear_stale_deadline(&mut self) {
        self.has_stale_deadline = false;
    }
}
