//! The meter of work, which keeps one busy connection from delaying all others.
//!
//! Time would be the best measure, but reading a clock for each step costs too much. The meter counts work units
//! instead: each kind of work is charged roughly its cost. The unit is one byte received and copied; 1 MiB takes a
//! modern processor half a millisecond. Bytes alone would be a bad measure: a body in one-byte chunks costs 20 times as
//! much per byte on the wire as a body in one piece.
//!
//! There are two limits:
//!
//! * a *turn*: the work of one connection before the next one is served ([`TURN`]);
//! * a *stage*: the work of all connections before the engine polls for new events ([`STAGE`]). The remaining work is
//!   done in the next round, in the same order.

/// The maximum work of one connection before the next one is served, in units.
const TURN: u64 = 1 << 20;
/// The work in one turn above which a connection is driven after the connections that need little, in units.
const BULK: u64 = TURN / 16;
/// The maximum work of all connections in one stage of a round before the engine polls, in units.
const STAGE: u64 = 4 << 20;

/// The cost of a step of any kind. A `recv` that returns few bytes costs about as much.
pub(crate) const STEP: u64 = 4 << 10;
/// The cost of parsing a request head and starting the application's call.
pub(crate) const HEAD: u64 = 4 << 10;
/// The cost of decoding a chunk or a trailer field of a body, or a record of FastCGI.
pub(crate) const CHUNK: u64 = 64;
/// The cost of reading or answering a WebSocket frame (a ping, a fragment, a message), without its bytes.
pub(crate) const FRAME: u64 = 256;
/// The cost of accepting a connection.
pub(crate) const ACCEPT: u64 = 16 << 10;
/// The cost of finding and opening a static file.
pub(crate) const FILE: u64 = 8 << 10;
/// The cost of a `write` to a file, without its bytes.
pub(crate) const WRITE: u64 = 4 << 10;

/// A counter of the work of the current connection and of the current stage.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    poll: u64,
    stage: u64,
}

impl Meter {
    /// Begins the turn of another connection.
    pub(crate) fn begin_turn(&mut self) {
        self.poll = 0;
    }

    /// Begins another stage of a round.
    pub(crate) fn begin_stage(&mut self) {
        self.stage = 0;
    }

    pub(crate) fn charge(&mut self, work: u64) {
        self.poll = self.poll.saturating_add(work);
        self.stage = self.stage.saturating_add(work);
    }

    /// Returns true if the connection has used up its turn, so that the next one has to be served.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.poll >= TURN
    }

    /// Returns true if the connection has done so much work that the engine serves connections that need little first.
    pub(crate) fn is_bulk(&self) -> bool {
        self.poll >= BULK
    }

    /// Returns true if the engine has to poll before it continues.
    pub(crate) fn is_stage_over(&self) -> bool {
        self.stage >= STAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_ends_before_stage_and_both_end() {
        let mut meter = Meter::default();
        let mut turns = 0;
        while !meter.is_stage_over() {
            meter.begin_turn();
            let mut steps = 0;
            while !meter.is_turn_over() {
                meter.charge(STEP);
                steps += 1;
            }
            assert_eq!(steps, TURN / STEP);
            turns += 1;
        }
        assert_eq!(turns, STAGE / TURN);
        meter.begin_stage();
        assert!(!meter.is_stage_over());
    }

    #[test]
    fn work_that_overflows_the_counter_ends_turn_and_stage() {
        let mut meter = Meter::default();
        meter.charge(u64::MAX);
        meter.charge(1);
        assert!(meter.is_turn_over() && meter.is_stage_over());
    }
}
