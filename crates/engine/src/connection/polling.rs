//! How the engine knows of a connection: whether the poller reports it, and when it is driven without an event.

use super::Connection;
use super::schedule::{Schedule, Watched};
use crate::app::App;
use crate::context::EngineContext;
use crate::net::Net;
use std::collections::VecDeque;

impl<A: App> Connection<A> {
    /// Has it driven later, without an event: when its turn in `queue` has come.
    pub(crate) fn come_back(&mut self, queue: &mut VecDeque<usize>) {
        if std::mem::replace(&mut self.schedule, Schedule::Queued) != Schedule::Queued {
            queue.push_back(self.slot);
        }
    }

    /// Its turn in a queue has come. Returns whether it is to be driven: it may have been meanwhile.
    pub(crate) fn take_turn(&mut self) -> bool {
        let is_queued = self.is_in_queue();
        if is_queued {
            self.schedule = Schedule::OnEvent;
        }
        is_queued
    }

    /// Whether it is driven when its turn in a queue of the round has come.
    pub(crate) fn is_in_queue(&self) -> bool {
        self.schedule == Schedule::Queued
    }

    /// Whether it is driven when the queue of requests has room.
    pub(crate) fn awaits_room(&self) -> bool {
        self.schedule == Schedule::AwaitsRoom
    }

    /// Whether it is driven without an event.
    pub(crate) fn has_turn_later(&self) -> bool {
        self.schedule != Schedule::OnEvent
    }

    /// A request may have arrived that cannot even wait now.
    pub(crate) fn await_room(&mut self, context: &mut EngineContext<A>) {
        self.schedule = Schedule::AwaitsRoom;
        self.set_deadlines(context);
    }

    /// It has been read after all.
    pub(crate) fn stop_awaiting_room(&mut self, context: &mut EngineContext<A>) {
        if self.awaits_room() {
            self.schedule = Schedule::OnEvent;
        }
        self.set_deadlines(context);
    }

    /// Has the poller report its transport, and when that takes output again if there is some. False if that failed.
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

    /// Has the poller report the transport no more, although it stays open.
    pub(crate) fn unwatch(&mut self, net: &mut A::Net) {
        if self.watched != Watched::No {
            net.unwatch(&self.transport);
        }
        self.watched = Watched::NoMore;
    }

    /// A call has left output waiting, at a time that is not known. Returns whether that is new.
    pub(crate) fn note_stale_deadline(&mut self) -> bool {
        !std::mem::replace(&mut self.has_stale_deadline, true)
    }

    /// Sets the deadlines that a call has left to be set.
    pub(crate) fn set_stale_deadlines(&mut self, context: &mut EngineContext<A>) {
        self.has_stale_deadline = false;
        self.set_deadlines(context);
    }
}
