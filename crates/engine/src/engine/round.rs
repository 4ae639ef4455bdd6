//! A round: it drives each connection that has something to do once.
//!
//! A poll ends as soon as there is work for the application, usually in the middle of a round. The next poll continues
//! there, in whichever thread it runs. A round has these stages, in this order: connections that the poller reported,
//! connections that have more to do, connections that receive bodies, listeners, deadlines.

use crate::meter::Meter;
use crate::net::Readiness;
use std::collections::VecDeque;

/// The stage of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundStage {
    /// Events of the poller.
    Events,
    /// Connections that can continue after others have been driven.
    Again,
    /// Connections that receive bodies. `left` is the number that this round still has to drive.
    Bulk {
        left: usize,
    },
    /// Listeners. The engine accepts connection number `attempt` of this round from the listener at `index`.
    Accept {
        index: usize,
        attempt: usize,
    },
    /// Deadlines, and the engine's stop.
    Deadlines,
    Over,
}

/// The stage of the round, and the connections that it drives.
///
/// A slot in one of the queues may be stale: its connection has ended, or has been driven meanwhile. Therefore the
/// connection records whether it is queued (`Schedule::take_turn`).
pub(super) struct Round {
    stage: RoundStage,
    /// The events that the poller reported; the first `seen` of them have been handled.
    events: Vec<Readiness>,
    seen: usize,
    /// Connections that the next round drives without an event.
    pub(super) again: VecDeque<usize>,
    /// Connections that this round drives without an event.
    again_now: VecDeque<usize>,
    /// Connections that receive bodies and have more to read. A round drives as many of them as the meter allows.
    pub(super) bulk: VecDeque<usize>,
    /// True if the last poll found nothing more to do.
    was_idle: bool,
    /// True if the poller's events have been taken since the last round began.
    was_asked: bool,
}

impl Round {
    pub(super) fn new() -> Self {
        Self {
            stage: RoundStage::Over,
            events: Vec::new(),
            seen: 0,
            again: VecDeque::new(),
            again_now: VecDeque::new(),
            bulk: VecDeque::new(),
            was_idle: true,
            was_asked: false,
        }
    }

    /// Takes the events that the poller reported, and empties `events`.
    pub(super) fn add_events(&mut self, events: &mut Vec<Readiness>) {
        self.was_asked = true;
        if self.events.is_empty() {
            std::mem::swap(&mut self.events, events);
        } else {
            self.events.append(events);
        }
    }

    pub(super) fn stage(&self) -> RoundStage {
        self.stage
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == RoundStage::Over
    }

    /// Returns true if the next poll has work even if the poller reports no event.
    pub(super) fn has_more(&self) -> bool {
        !self.is_over() || !self.events.is_empty() || !self.again.is_empty() || !self.bulk.is_empty()
    }

    /// Returns true if all events have been handled and no connection is left to be driven.
    pub(super) fn is_empty(&self) -> bool {
        self.seen == self.events.len() && self.again_now.is_empty() && self.bulk.is_empty()
    }

    /// Returns true if no event is left.
    pub(super) fn has_no_events(&self) -> bool {
        self.events.is_empty()
    }

    /// Begins the next round if the last one has ended. While connections have more to do, or more connections wait to
    /// be accepted, the poller's events have to be taken between two rounds. Otherwise clients that keep connecting
    /// would keep the server from serving others.
    pub(super) fn begin_if_over(&mut self, accepts_more: bool, meter: &mut Meter) {
        let has_more = accepts_more || !self.again.is_empty() || !self.bulk.is_empty();
        if self.is_over() && (self.was_idle || self.was_asked || !has_more) {
            self.was_asked = false;
            // A connection that asks during this round to be driven again is driven in the next one.
            std::mem::swap(&mut self.again, &mut self.again_now);
            self.begin(RoundStage::Events, meter);
        }
    }

    /// Begins a stage with a new budget of work.
    pub(super) fn begin(&mut self, stage: RoundStage, meter: &mut Meter) {
        self.stage = stage;
        meter.begin_stage();
    }

    /// Continues with another stage within the same budget of work.
    pub(super) fn set_stage(&mut self, stage: RoundStage) {
        self.stage = stage;
    }

    /// Ends the round early, because nothing is left to do in it.
    pub(super) fn end(&mut self, meter: &mut Meter) {
        self.begin(RoundStage::Over, meter);
        self.clear_events();
    }

    /// Returns the next event of the poller.
    pub(super) fn next_event(&mut self) -> Option<Readiness> {
        let event = self.events.get(self.seen).copied();
        if event.is_some() {
            self.seen += 1;
        } else {
            self.clear_events();
        }
        event
    }

    fn clear_events(&mut self) {
        self.events.clear();
        self.seen = 0;
    }

    /// Returns the next connection that has more to do.
    pub(super) fn next_again(&mut self) -> Option<usize> {
        self.again_now.pop_front()
    }

    /// Records whether the last poll found nothing more to do.
    pub(super) fn set_idle(&mut self, is_idle: bool) {
        self.was_idle = is_idle;
    }
}
