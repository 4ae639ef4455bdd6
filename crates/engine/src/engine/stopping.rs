//! The stop of an engine: its stages, and all transitions between them.
//!
//! Only the methods of [`Stopping`] change the stage. [`StopStage::TABLE`] has all transitions, docs/design/engine.md
//! the diagram that is generated from it.

use crate::deadline::Millis;
use transitions::{Machine, State, Table};

/// The progress of the engine's stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    stage: State<StopStage>,
    /// The time at which the remaining connections are cut; `Millis::MAX` for never.
    cut_at: Millis,
    /// True if the deadlines of connections without a request still have to be shortened.
    must_hurry: bool,
}

/// The stage of the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopStage {
    /// No stop was requested.
    Running,
    /// A stop was requested. The engine has yet to accept the connections that the kernel has established.
    Requested,
    /// A round has begun to accept these connections.
    Emptying,
    /// The listeners are closed; requests under way may finish.
    Finishing,
    /// The engine has cut the remaining connections, and waits only for running calls.
    Cut,
}

/// An event that changes the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopEvent {
    /// The first or a repeated request to stop.
    Request,
    /// A round begins to accept from the first listener.
    Round,
    /// That round has ended.
    RoundOver,
    /// The time limit for requests under way has passed.
    TimeUp,
}

impl Machine for StopStage {
    type Event = StopEvent;
    const TABLE: Table<Self, StopEvent> = Table {
        name: "stop",
        initial: Self::Running,
        rows: &[
            (Self::Running, StopEvent::Request, Self::Requested),
            (Self::Requested, StopEvent::Request, Self::Requested),
            (Self::Requested, StopEvent::Round, Self::Emptying),
            (Self::Emptying, StopEvent::Request, Self::Emptying),
            (Self::Emptying, StopEvent::RoundOver, Self::Finishing),
            (Self::Finishing, StopEvent::Request, Self::Finishing),
            (Self::Finishing, StopEvent::TimeUp, Self::Cut),
            (Self::Cut, StopEvent::Request, Self::Cut),
        ],
    };
}

impl Stopping {
    pub(super) fn new() -> Self {
        Self { stage: State::new(), cut_at: Millis::MAX, must_hurry: false }
    }

    /// Returns true if a stop was requested.
    pub(super) fn is_stopping(self) -> bool {
        self.stage.get() != StopStage::Running
    }

    pub(super) fn is_cut(self) -> bool {
        self.stage.get() == StopStage::Cut
    }

    /// Returns true if the listeners are closed.
    pub(super) fn has_stopped_accepting(self) -> bool {
        matches!(self.stage.get(), StopStage::Finishing | StopStage::Cut)
    }

    /// Returns true if the next poll has work for the stop, independent of the time.
    pub(super) fn needs_poll(self) -> bool {
        matches!(self.stage.get(), StopStage::Requested | StopStage::Emptying) || self.must_hurry
    }

    /// Returns the time at which the remaining connections are cut; `Millis::MAX` for never, or if they have been cut.
    pub(super) fn cut_at(self) -> Millis {
        if self.is_cut() { Millis::MAX } else { self.cut_at }
    }

    /// Records a request to stop, perhaps a repeated one. `is_hastier`: connections without a request have less time
    /// than before.
    pub(super) fn request(&mut self, cut_at: Millis, is_hastier: bool) {
        let to = if self.stage.get() == StopStage::Running { StopStage::Requested } else { self.stage.get() };
        self.stage.apply(StopEvent::Request, to);
        self.cut_at = self.cut_at.min(cut_at);
        self.must_hurry |= is_hastier && self.stage.get() == StopStage::Finishing;
    }

    /// Records that a round begins with the first listener.
    pub(super) fn begin_accepting(&mut self) {
        if self.stage.get() == StopStage::Requested {
            self.stage.apply(StopEvent::Round, StopStage::Emptying);
        }
    }

    /// Records that a round has ended. Returns true if the caller must close the listeners now.
    pub(super) fn close(&mut self) -> bool {
        let is_empty = self.stage.get() == StopStage::Emptying;
        if is_empty {
            self.stage.apply(StopEvent::RoundOver, StopStage::Finishing);
            self.must_hurry = true;
        }
        is_empty
    }

    /// Returns true, once, if the caller must shorten the deadlines of connections without a request now.
    pub(super) fn hurry(&mut self) -> bool {
        std::mem::take(&mut self.must_hurry)
    }

    /// Returns true, once, if the caller must cut the remaining connections at `now`.
    pub(super) fn cut(&mut self, now: Millis) -> bool {
        let is_late = self.stage.get() == StopStage::Finishing && now >= self.cut_at;
        if is_late {
            self.stage.apply(StopEvent::TimeUp, StopStage::Cut);
        }
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sound_and_drawn_in_the_docs() {
        assert_eq!(StopStage::TABLE.validate(), Ok(()));
        StopStage::TABLE.assert_page(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/engine.md"));
    }

    #[test]
    fn second_request_can_only_shorten_the_time() {
        let mut stopping = Stopping::new();
        stopping.request(5_000, true);
        stopping.request(Millis::MAX, false);
        assert!(stopping.needs_poll());
        stopping.begin_accepting();
        assert!(stopping.close() && !stopping.close());
        assert!(stopping.hurry() && !stopping.hurry());
        assert!(!stopping.cut(4_999) && stopping.cut(5_000) && !stopping.cut(5_000));
        assert!(stopping.is_cut() && stopping.has_stopped_accepting());
    }
}
