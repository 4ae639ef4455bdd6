//! The blocking predictor, which predicts from earlier calls whether a call will block.
//!
//! Calls with the same [`RouteKey`] tend to behave alike, so each key has a score. Only some calls are measured: the
//! first of each key, some of those predicted to block, one in many of the others, and the next one of a key for which
//! a tick has found a long call. If a call's key has no score, the share of all calls that block decides.

use crate::tick::TICK;
use std::time::Duration;

/// One in this many calls is measured, regardless of its score.
const SAMPLE: u64 = 16;
/// One in this many calls is measured while no measured call has blocked for a long time. A measurement takes two
/// system calls.
const CALM_SAMPLE: u64 = 256;
/// The number of successive measured calls that did not block after which measuring becomes rare.
const CALM_AFTER: u32 = 64;
/// One in this many calls that were predicted to block is measured.
const PREDICTED_SAMPLE: u64 = 4;
/// The approximate number of measured calls in the exponential means.
const MEAN_OVER: u64 = 32;
/// The cost of notifying a follower. A call that blocks for less time counts as one that does not block.
pub(crate) const MIN_BLOCK: Duration = Duration::from_micros(20);
/// The maximum time that counts: a call that blocks longer counts as blocking this long.
const MAX_BLOCK: Duration = Duration::from_millis(100);
/// The number that represents 100 %; a share of calls is a part of it.
pub(crate) const ALL: u64 = 1 << 16;

/// The number of scores; keys may share one. A power of two.
const ROUTE_KEYS: usize = 1024;
/// The amount by which a call that blocked raises its key's score, within ±[`MAX_SCORE`]; the next constant is the
/// amount by which a call that did not block lowers it. So a key is predicted to block if about one in five of its
/// calls does: notifying a follower unnecessarily costs little, while an unpredicted block delays all other clients.
const BLOCKED_GAIN: i8 = 4;
const RETURNED_LOSS: i8 = 1;
const MAX_SCORE: i8 = 8;

/// The key of calls that are expected to block alike. A collision of two keys does little harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteKey(u64);

impl RouteKey {
    /// Returns the key of calls with this hash.
    pub const fn of(hash: u64) -> Self {
        Self(hash)
    }

    fn index(self) -> usize {
        // The mask makes the number fit a usize.
        #[allow(clippy::cast_possible_truncation)]
        let index = self.0 as usize & (ROUTE_KEYS - 1);
        index
    }
}

/// The expected behaviour of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prediction {
    route_key: Option<RouteKey>,
    pub(crate) blocks: bool,
    pub(crate) is_measured: bool,
    /// True if the call was chosen for measurement at random, so that it represents the calls of all keys.
    is_sample: bool,
}

#[derive(Debug)]
pub(crate) struct BlockingPredictor {
    /// The score of each key. Positive: its calls block. Negative: they do not. Zero: nothing is known.
    scores: Box<[i8; ROUTE_KEYS]>,
    /// The share of calls that block, as a part of [`ALL`].
    blocking_share: u64,
    /// The mean time for which a call blocks without having been predicted to.
    mean_unpredicted_block: Duration,
    ticks_often: bool,
    /// The mean time for which blocking calls block; zero if none has blocked yet.
    pub(crate) mean_block: Duration,
    /// The number of measured calls since the last one that blocked, or since a tick found a long call.
    calls_since_block: u32,
    calls: u64,
    predicted_calls: u64,
    /// The key of a long call that a tick has found.
    suspect: Option<RouteKey>,
}

impl BlockingPredictor {
    pub(crate) fn new() -> Self {
        Self {
            scores: Box::new([0; ROUTE_KEYS]),
            blocking_share: 0,
            mean_unpredicted_block: Duration::ZERO,
            ticks_often: false,
            mean_block: Duration::ZERO,
            calls_since_block: 0,
            calls: 0,
            predicted_calls: 0,
            suspect: None,
        }
    }

    /// Predicts whether a call that is about to begin will block.
    pub(crate) fn predict(&mut self, route_key: Option<RouteKey>) -> Prediction {
        self.calls += 1;
        let score = route_key.map_or(0, |route_key| self.scores[route_key.index()]);
        let blocks = if score == 0 { self.blocking_share >= ALL * 3 / 4 } else { score > 0 };
        let one_in = if self.calls_since_block < CALM_AFTER { SAMPLE } else { CALM_SAMPLE };
        let is_sample = self.calls <= SAMPLE || self.calls.is_multiple_of(one_in);
        let is_wanted = if blocks {
            self.predicted_calls += 1;
            self.predicted_calls.is_multiple_of(PREDICTED_SAMPLE)
        } else {
            route_key.is_some()
                && (score == 0 || route_key == self.suspect.take_if(|suspect| Some(*suspect) == route_key))
        };
        Prediction { route_key, blocks, is_measured: is_sample || is_wanted, is_sample }
    }

    /// Updates the statistics after a measured call that blocked for `waited`.
    pub(crate) fn learn(&mut self, prediction: &Prediction, waited: Duration) {
        self.calls_since_block = if waited.is_zero() { self.calls_since_block.saturating_add(1) } else { 0 };
        let waited = waited.min(MAX_BLOCK);
        let has_blocked = waited >= MIN_BLOCK;
        if let Some(route_key) = prediction.route_key {
            let score = &mut self.scores[route_key.index()];
            // The score must not return to zero, which means that nothing is known.
            let change = if has_blocked { BLOCKED_GAIN } else { -RETURNED_LOSS };
            *score = (*score + change).clamp(-MAX_SCORE, MAX_SCORE);
            if *score == 0 {
                *score = change.signum();
            }
        }
        if has_blocked {
            self.mean_block = if self.mean_block.is_zero() { waited } else { mean(self.mean_block, waited) };
        }
        if prediction.is_sample {
            // An unpredicted block costs at most a tick, because the tick then notifies a follower.
            self.mean_unpredicted_block =
                mean(self.mean_unpredicted_block, if prediction.blocks { Duration::ZERO } else { waited.min(TICK) });
            // Two thresholds (hysteresis) keep the result from changing too often.
            self.ticks_often = self.mean_unpredicted_block >= if self.ticks_often { MIN_BLOCK / 2 } else { MIN_BLOCK };
            let share = if has_blocked { ALL } else { 0 };
            self.blocking_share = self.blocking_share - self.blocking_share / MEAN_OVER + share / MEAN_OVER;
        }
    }

    /// Records that a tick has found a long call of this key that was not predicted to block.
    pub(crate) fn suspect(&mut self, route_key: Option<RouteKey>) {
        self.calls_since_block = 0;
        self.suspect = route_key;
    }

    /// Returns true if unpredicted calls block for so long that more frequent ticks are worth their cost.
    pub(crate) fn ticks_often(&self) -> bool {
        self.ticks_often
    }

    #[cfg(all(test, loom))]
    pub(crate) fn believe(&mut self, waiting: u64, wait: Duration) {
        (self.blocking_share, self.mean_unpredicted_block, self.mean_block) = (waiting, wait, wait);
        self.ticks_often = wait >= MIN_BLOCK;
    }
}

fn mean(before: Duration, new: Duration) -> Duration {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let before = nanos(before);
    Duration::from_nanos(before - before / MEAN_OVER + nanos(new) / MEAN_OVER)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const FAST: Option<RouteKey> = Some(RouteKey(1));
    const SLOW: Option<RouteKey> = Some(RouteKey(2));
    const WAIT: Duration = Duration::from_millis(50);

    /// Simulates a call that blocks for `waits`. Returns true if the block was predicted, and true if the call was
    /// measured.
    fn call(predictor: &mut BlockingPredictor, route_key: Option<RouteKey>, waits: Duration) -> (bool, bool) {
        let prediction = predictor.predict(route_key);
        if prediction.is_measured {
            predictor.learn(&prediction, waits);
        }
        (prediction.blocks, prediction.is_measured)
    }

    fn fast(predictor: &mut BlockingPredictor, calls: usize) {
        for _ in 0..calls {
            call(predictor, FAST, Duration::ZERO);
        }
    }

    #[test]
    fn second_call_of_a_blocking_route_is_predicted() {
        let mut predictor = BlockingPredictor::new();
        fast(&mut predictor, 1000);
        assert_eq!(call(&mut predictor, SLOW, WAIT), (false, true));
        assert!(call(&mut predictor, SLOW, WAIT).0);
        assert!(!call(&mut predictor, FAST, Duration::ZERO).0);
    }

    #[test]
    fn one_in_256_calls_is_measured_when_none_blocks() {
        let mut predictor = BlockingPredictor::new();
        fast(&mut predictor, 2000);
        let measured = (0..10_000).filter(|_| call(&mut predictor, FAST, Duration::ZERO).1).count();
        assert_eq!(measured, 10_000 / 256);
    }

    #[test]
    fn route_that_stops_blocking_loses_its_prediction() {
        let mut predictor = BlockingPredictor::new();
        for _ in 0..100 {
            call(&mut predictor, SLOW, WAIT);
        }
        let predicted = (0..100).take_while(|_| call(&mut predictor, SLOW, Duration::ZERO).0).count();
        assert!((1..60).contains(&predicted), "{predicted}");
    }

    #[test]
    fn next_call_of_a_suspected_route_is_measured() {
        let mut predictor = BlockingPredictor::new();
        fast(&mut predictor, 1000);
        call(&mut predictor, SLOW, Duration::ZERO);
        assert_eq!(call(&mut predictor, SLOW, WAIT), (false, false));
        predictor.suspect(SLOW);
        fast(&mut predictor, 1);
        assert_eq!(call(&mut predictor, SLOW, WAIT), (false, true));
        assert!(call(&mut predictor, SLOW, WAIT).0);
    }

    #[test]
    fn calls_without_a_score_are_predicted_by_all_others() {
        let mut predictor = BlockingPredictor::new();
        let mut route_keys = (1000..).map(|hash| Some(RouteKey::of(hash)));
        for route_key in route_keys.by_ref().take(10_000) {
            // Many keys share a score; a call without a key has none.
            call(&mut predictor, route_key, WAIT);
        }
        assert!(call(&mut predictor, None, WAIT).0);
        for _ in 0..10_000 {
            call(&mut predictor, FAST, Duration::ZERO);
        }
        assert!(!call(&mut predictor, None, WAIT).0);
    }

    #[test]
    fn route_that_blocks_in_one_of_twenty_calls_is_not_predicted_to_block() {
        let mut predictor = BlockingPredictor::new();
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut predicted, mut ticks_often) = (0, 0);
        for _ in 0..10_000 {
            let waits = if rng.u8(0..20) == 0 { WAIT } else { Duration::ZERO };
            predicted += u32::from(call(&mut predictor, SLOW, waits).0);
            ticks_often += u32::from(predictor.ticks_often());
        }
        assert!(predicted < 1000, "{predicted}");
        // More frequent ticks are needed for these calls.
        assert!(ticks_often > 5000, "{ticks_often}");
    }
}
