//! How much work was done, so that nobody waits long while somebody else is served.
//!
//! Time would tell it best, but a turn does not read a clock. The meter counts instead, and charges each kind of work
//! about what it costs. The unit is one byte that is received and copied; 1 MiB takes a modern processor half a
//! millisecond. Bytes alone would be a bad measure: a body in one-byte chunks costs 20 times as much for each of its
//! bytes on the wire as a body in one piece.
//!
//! There are two bounds, each for one question:
//!
//! * a *turn*: how long is one connection served before another one is ([`TURN`]);
//! * a *stage*: how long does the engine go on with connections that have much to do before it looks who has come
//!   ([`STAGE`]). What is left then is done in the next round, in the same order.

/// Work that one connection may do before others get their turn.
const TURN: u64 = 1 << 20;
/// Work that all connections together may do in one stage of a round, before the poller is asked again.
const STAGE: u64 = 4 << 20;

/// A step of any kind; a `recv` that finds little costs as much.
pub(crate) const STEP: u64 = 4 << 10;
/// A head that is read, and what the application makes of it.
pub(crate) const HEAD: u64 = 4 << 10;
/// A chunk or a trailer field of a body that is decoded.
pub(crate) const CHUNK: u64 = 64;
/// A `write` to a file, besides its bytes.
pub(crate) const WRITE: u64 = 4 << 10;

/// Counts the work of the connection that is driven, and of the stage that is under way.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    poll: u64,
    stage: u64,
}

impl Meter {
    /// Another connection is driven.
    pub(crate) fn begin_turn(&mut self) {
        self.poll = 0;
    }

    /// Another stage of a round begins.
    pub(crate) fn begin_stage(&mut self) {
        self.stage = 0;
    }

    pub(crate) fn charge(&mut self, work: u64) {
        self.poll = self.poll.saturating_add(work);
        self.stage = self.stage.saturating_add(work);
    }

    /// Whether others should have their turn.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.poll >= TURN
    }

    /// Whether the poller should be asked before more of the same is done.
    pub(crate) fn is_stage_over(&self) -> bool {
        self.stage >= STAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_shorter_than_a_stage_and_both_end() {
        let mut meter = Meter::default();
        let mut polls = 0;
        while !meter.is_stage_over() {
            meter.begin_turn();
            let mut steps = 0;
            while !meter.is_turn_over() {
                meter.charge(STEP);
                steps += 1;
            }
            assert_eq!(steps, TURN / STEP);
            polls += 1;
        }
        assert_eq!(polls, STAGE / TURN);
        meter.begin_stage();
        assert!(!meter.is_stage_over());
    }

    #[test]
    fn work_beyond_counting_is_too_much() {
        let mut meter = Meter::default();
        meter.charge(u64::MAX);
        meter.charge(1);
        assert!(meter.is_turn_over() && meter.is_stage_over());
    }
}
