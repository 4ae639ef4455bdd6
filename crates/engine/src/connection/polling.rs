//! Scheduling a connection: the events that the poller reports, and driving the connection without an event.

use super::Connection;
use super::schedule::{Schedule, Watched};
use crate::app::App;
use crate::context::EngineContext;
use crate::net::Net;
use std::collections::VecDeque;

impl<A: App> Connection<A> {
    /// Appends the connection to `queue`, to be driven later without an event.
    pub(crate) fn come_back(&mut self, queue: &mut VecDeque<usize>) {
        if std::mem::replace(&mut self.schedule, Schedule::Queued) != Schedule::Queued {
            queue.push_back(self.slot);
        }
    }

    /// Takes the connection from a queue. Returns true if it is to be driven: it may have been driven meanwhile.
    pub(crate) fn take_turn(&mut self) -> bool {
        let is_queued = self.is_in_queue();
        if is_queued {
            self.schedule = Schedule::OnEvent;
        }
        is_queued
    }

    /// Returns true if the connection is driven when it is the next in a queue of the round.
    pub(crate) fn is_in_queue(&self) -> bool {
        self.schedule == Schedule::Queued
    }

    /// Returns true if the connection is driven when the queue of requests has room.
    pub(crate) fn awaits_room(&self) -> bool {
        self.schedule == Schedule::AwaitsRoom
    }

    /// Returns true if the connection is driven without an event.
    pub(crate) fn has_turn_later(&self) -> bool {
        self.schedule != Schedule::OnEvent
    }

    /// Has the connection wait for room in the queue of requests: a request may have arrived that cannot be queued now.
    pub(crate) fn await_room(&mut self, context: &mut EngineContext<A>) {
        self.schedule = Schedule::AwaitsRoom;
        self.set_deadlines(context);
    }

    /// Records that the connection has been read after all, and no longer waits for room.
    pub(crate) fn stop_awaiting_room(&mut self, context: &mut EngineContext<A>) {
        if self.awaits_room() {
            self.schedule = Schedule::OnEvent;
        }
        self.set_deadlines(context);
    }

    /// Has the poller report input of the transport, and, if there is output, when the transport takes output again.
    /// Returns false if that failed.
    #[inline]
    pub(crate) fn watch(&mut self, net: &mut A::Net) -> bool {
        let wanted = if self.has_output() { Watched::InputAndOutput } else { Watched::Input };
        match self.watched {
            Watched::InputAndOutput | Watched::NoMore => true,
            watched if watched == wanted => true,
            watched => {
                let (reports_output, is_known) = (wanted == Watched::InputAndOutput, watched != Watched::No);
                let is_watched = net.watch(&self.transport, self.slot, reports_output, is_known).is_ok();
                if is_watched {
                    self.watched = wanted;
                }
                is_watched
            }
        }
    }

    /// Has the poller stop reporting the transport, although it stays open.
    pub(crate) fn unwatch(&mut self, net: &mut A::Net) {
        if self.watched != Watched::No {
            net.unwatch(&self.transport);
        }
        self.watched = Watched::NoMore;
    }

    /// Records that a call has left output waiting, at a time that is not known. Returns true if that was not recorded
    /// yet.
    pub(crate) fn note_stale_deadline(&mut self) -> bool {
        !std::mem::replace(&mut self.has_stale_deadline, true)
    }

    /// Sets the deadlines that a call has left to be set.
    pub(crate) fn set_stale_deadlines(&mut self, context: &mut EngineContext<A>) {
        self.has_stale_deadline = false;
        self.set_deadlines(context);
    }
}
