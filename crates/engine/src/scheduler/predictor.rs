//! Which calls will wait, judged by those before.
//!
//! Calls that look alike wait alike, so each [`RouteKey`] of them has a score. A few are measured: the first of each kind,
//! some of those that are foreseen to wait, one in many of the others, and one of a kind of which a tick has found one
//! that took its time. A kind of which nothing is known is judged by all the rest.

use crate::coalescing::TICK;
use std::time::Duration;

/// Calls of which one is measured, whatever is known of them.
const SAMPLE: u64 = 16;
/// The same while none has been found to wait for a long time: measuring takes two system calls.
const RARE_SAMPLE: u64 = 256;
/// After so many measured calls that did not wait, measuring becomes rare.
const CALM: u32 = 64;
/// Foreseen calls of which one is measured.
const PREDICTED_SAMPLE: u64 = 4;
/// Means are taken over about so many measured calls.
const MEMORY: u64 = 32;
/// What calling a thread costs. A call that waits for less does not wait.
pub(super) const WORTH_CALLING: Duration = Duration::from_micros(20);
/// A very long wait says no more than a long one.
const LONG: Duration = Duration::from_millis(100);
/// A share of calls is counted in parts of this.
pub(super) const ALL: u64 = 1 << 16;

/// Scores; kinds may share one. A power of two.
const ROUTE_KEYS: usize = 1024;
/// What a call that waited adds to its kind's score, and one that did not takes away, up to a bound: a kind is foreseen
/// to wait if about one in five does. To call a thread in vain costs little; to leave all others waiting costs more.
const WAITED: i8 = 4;
const DID_NOT: i8 = 1;
const SURE: i8 = 8;

/// What calls that look alike have in common. That others have the same number does little harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteKey(u64);

impl RouteKey {
    /// Of calls with this hash.
    pub const fn of(hash: u64) -> Self {
        Self(hash)
    }

    fn place(self) -> usize {
        // The mask keeps it far within a usize.
        #[allow(clippy::cast_possible_truncation)]
        let place = self.0 as usize & (ROUTE_KEYS - 1);
        place
    }
}

/// What is expected of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    route_key: Option<RouteKey>,
    pub(super) waits: bool,
    pub(super) is_measured: bool,
    /// It stands for others, and is not measured because of its kind.
    is_sample: bool,
}

#[derive(Debug)]
pub(super) struct BlockingPredictor {
    /// Above zero: such calls wait; below: they do not; zero: nothing is known.
    scores: Box<[i8; ROUTE_KEYS]>,
    /// How many of [`ALL`] calls wait.
    pub(super) waiting: u64,
    /// How long a call waits in the mean without that being foreseen.
    unforeseen: Duration,
    looks_often: bool,
    /// How long those wait that do; zero if none has.
    pub(super) wait: Duration,
    /// Measured calls since one has waited, or a tick has found one.
    calm: u32,
    calls: u64,
    foreseen_calls: u64,
    /// A tick has found a call of this kind that took its time.
    suspect: Option<RouteKey>,
}

impl BlockingPredictor {
    pub(super) fn new() -> Self {
        Self {
            scores: Box::new([0; ROUTE_KEYS]),
            waiting: 0,
            unforeseen: Duration::ZERO,
            looks_often: false,
            wait: Duration::ZERO,
            calm: 0,
            calls: 0,
            foreseen_calls: 0,
            suspect: None,
        }
    }

    /// What to expect of the call that begins.
    pub(super) fn predict(&mut self, route_key: Option<RouteKey>) -> Prediction {
        self.calls += 1;
        let score = route_key.map_or(0, |route_key| self.scores[route_key.place()]);
        let waits = if score == 0 { self.waiting >= ALL * 3 / 4 } else { score > 0 };
        let one_in = if self.calm < CALM { SAMPLE } else { RARE_SAMPLE };
        let is_sample = self.calls <= SAMPLE || self.calls.is_multiple_of(one_in);
        let is_wanted = if waits {
            self.foreseen_calls += 1;
            self.foreseen_calls.is_multiple_of(PREDICTED_SAMPLE)
        } else {
            route_key.is_some()
                && (score == 0 || route_key == self.suspect.take_if(|suspect| Some(*suspect) == route_key))
        };
        Prediction { route_key, waits, is_measured: is_sample || is_wanted, is_sample }
    }

    /// A measured call has waited for so long.
    pub(super) fn learn(&mut self, predict: &Prediction, waited: Duration) {
        self.calm = if waited.is_zero() { self.calm.saturating_add(1) } else { 0 };
        let waited = waited.min(LONG);
        let has_waited = waited >= WORTH_CALLING;
        if let Some(route_key) = predict.route_key {
            let score = &mut self.scores[route_key.place()];
            // Zero means that nothing is known, which is over.
            let change = if has_waited { WAITED } else { -DID_NOT };
            *score = (*score + change).clamp(-SURE, SURE);
            if *score == 0 {
                *score = change.signum();
            }
        }
        if has_waited {
            self.wait = if self.wait.is_zero() { waited } else { mean(self.wait, waited) };
        }
        if predict.is_sample {
            // No more than a tick is lost by one that was not foreseen.
            self.unforeseen = mean(self.unforeseen, if predict.waits { Duration::ZERO } else { waited.min(TICK) });
            // In between it stays as it is.
            self.looks_often = self.unforeseen >= if self.looks_often { WORTH_CALLING / 2 } else { WORTH_CALLING };
            let share = if has_waited { ALL } else { 0 };
            self.waiting = self.waiting - self.waiting / MEMORY + share / MEMORY;
        }
    }

    /// A tick has found a call that takes its time, and nobody had foreseen it.
    pub(super) fn suspect(&mut self, route_key: Option<RouteKey>) {
        self.calm = 0;
        self.suspect = route_key;
    }

    /// Whether calls wait that nobody foresees, so that it is worth while to look more often for them.
    pub(super) fn looks_often(&self) -> bool {
        self.looks_often
    }

    #[cfg(all(test, loom))]
    pub(super) fn believe(&mut self, waiting: u64, wait: Duration) {
        (self.waiting, self.unforeseen, self.wait) = (waiting, wait, wait);
        self.looks_often = wait >= WORTH_CALLING;
    }
}

fn mean(before: Duration, new: Duration) -> Duration {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let before = nanos(before);
    Duration::from_nanos(before - before / MEMORY + nanos(new) / MEMORY)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const FAST: Option<RouteKey> = Some(RouteKey(1));
    const SLOW: Option<RouteKey> = Some(RouteKey(2));
    const WAIT: Duration = Duration::from_millis(50);

    /// A call that waits so long; whether that was foreseen, and whether it was measured.
    fn call(predictor: &mut BlockingPredictor, route_key: Option<RouteKey>, waits: Duration) -> (bool, bool) {
        let predict = predictor.predict(route_key);
        if predict.is_measured {
            predictor.learn(&predict, waits);
        }
        (predict.waits, predict.is_measured)
    }

    fn fast(predictor: &mut BlockingPredictor, calls: usize) {
        for _ in 0..calls {
            call(predictor, FAST, Duration::ZERO);
        }
    }

    #[test]
    fn the_second_call_of_a_kind_that_waits_is_foreseen() {
        let mut predictor = BlockingPredictor::new();
        fast(&mut predictor, 1000);
        assert_eq!(call(&mut predictor, SLOW, WAIT), (false, true));
        assert!(call(&mut predictor, SLOW, WAIT).0);
        assert!(!call(&mut predictor, FAST, Duration::ZERO).0);
    }

    #[test]
    fn few_calls_are_measured_where_none_waits() {
        let mut predictor = BlockingPredictor::new();
        fast(&mut predictor, 2000);
        let measured = (0..10_000).filter(|_| call(&mut predictor, FAST, Duration::ZERO).1).count();
        assert_eq!(measured, 10_000 / 256);
    }

    #[test]
    fn a_kind_that_waits_no_longer_is_found_out() {
        let mut predictor = BlockingPredictor::new();
        for _ in 0..100 {
            call(&mut predictor, SLOW, WAIT);
        }
        let predicted = (0..100).take_while(|_| call(&mut predictor, SLOW, Duration::ZERO).0).count();
        assert!((1..60).contains(&predicted), "{predicted}");
    }

    #[test]
    fn a_kind_that_a_tick_has_found_is_measured_next_time() {
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
    fn what_is_not_known_is_judged_by_all_others() {
        let mut predictor = BlockingPredictor::new();
        let mut route_keys = (1000..).map(|hash| Some(RouteKey::of(hash)));
        for route_key in route_keys.by_ref().take(10_000) {
            // Scores are shared by many kinds; nothing is known of calls without one.
            call(&mut predictor, route_key, WAIT);
        }
        assert!(call(&mut predictor, None, WAIT).0);
        for _ in 0..10_000 {
            call(&mut predictor, FAST, Duration::ZERO);
        }
        assert!(!call(&mut predictor, None, WAIT).0);
    }

    #[test]
    fn a_kind_of_which_few_wait_is_not_foreseen_to() {
        let mut predictor = BlockingPredictor::new();
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut predicted, mut looks_often) = (0, 0);
        for _ in 0..10_000 {
            let waits = if rng.u8(0..20) == 0 { WAIT } else { Duration::ZERO };
            predicted += u32::from(call(&mut predictor, SLOW, waits).0);
            looks_often += u32::from(predictor.looks_often());
        }
        assert!(predicted < 1000, "{predicted}");
        // These are what looking often is for.
        assert!(looks_often > 5000, "{looks_often}");
    }
}
