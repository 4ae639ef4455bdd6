//! When requests are sent, and which of them are measured.

use crate::net::Nanos;
use crate::plan::{Arrivals as Spread, Open, Plan, Thinking, Warmup, nanos};

/// The warm-up and the window: decides whether a request may begin, and whether it is measured.
#[derive(Debug)]
pub(crate) struct Window {
    warmup: u64,
    length: Length,
    /// Start of the window. `None` until a warm-up that is a number of requests has sent them all.
    from: Option<Nanos>,
    begun: u64,
    measured: u64,
}

#[derive(Clone, Copy, Debug)]
enum Length {
    Time(Nanos),
    Requests(u64),
}

impl Window {
    pub(crate) fn new(plan: &Plan) -> Self {
        let (warmup, from) = match plan.warmup {
            Warmup::Seconds(seconds) => (0, Some(nanos(seconds))),
            Warmup::Requests(0) => (0, Some(0)),
            Warmup::Requests(count) => (count, None),
        };
        let length = match (plan.count, plan.duration) {
            (Some(count), _) => Length::Requests(count),
            (None, duration) => Length::Time(nanos(duration.unwrap_or(0.0))),
        };
        Self { warmup, length, from, begun: 0, measured: 0 }
    }

    /// Counts a request that is due at this time, and returns true if it is measured. `None`: the window is over, and
    /// the request may not begin.
    pub(crate) fn begin(&mut self, due: Nanos) -> Option<bool> {
        let from = match self.from {
            None if self.begun == self.warmup => *self.from.insert(due),
            None => Nanos::MAX,
            Some(from) => from,
        };
        let is_measured = due >= from;
        if is_measured {
            match self.length {
                Length::Time(length) if due - from >= length => return None,
                Length::Requests(count) if self.measured == count => return None,
                _ => {}
            }
            self.measured += 1;
        }
        self.begun += 1;
        Some(is_measured)
    }

    pub(crate) fn from(&self) -> Option<Nanos> {
        self.from
    }

    /// Returns the end of the window, if it is a time and known.
    pub(crate) fn until(&self) -> Option<Nanos> {
        match self.length {
            Length::Time(length) => Some(self.from?.saturating_add(length)),
            Length::Requests(_) => None,
        }
    }

    /// Returns true once no more requests may begin.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        match self.length {
            Length::Time(_) => self.until().is_some_and(|until| now >= until),
            Length::Requests(count) => self.measured == count,
        }
    }
}

/// The schedule of the open model.
#[derive(Debug)]
pub(crate) struct Arrivals {
    rate: f64,
    spread: Spread,
    offset: f64,
    count: u64,
    /// Sum of the intervals so far, in seconds.
    sum: f64,
    next: Nanos,
    random: fastrand::Rng,
}

impl Arrivals {
    pub(crate) fn new(open: &Open, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed ^ 0x0a22_17a1);
        let mut arrivals =
            Self { rate: open.rate, spread: open.arrivals, offset: open.offset, count: 0, sum: 0.0, next: 0, random };
        arrivals.next = match open.arrivals {
            Spread::Constant => nanos(open.offset),
            Spread::Poisson => arrivals.gap(),
        };
        arrivals
    }

    /// Returns when the next request is due.
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Advances to the request after the one that was due.
    pub(crate) fn advance(&mut self) {
        self.count += 1;
        self.next = match self.spread {
            // Computed from the start each time, so that rounding errors do not add up.
            #[allow(clippy::cast_precision_loss, reason = "there are never that many")]
            Spread::Constant => nanos(self.offset + self.count as f64 / self.rate),
            Spread::Poisson => self.gap(),
        };
    }

    fn gap(&mut self) -> Nanos {
        self.sum += exponential(&mut self.random) / self.rate;
        nanos(self.sum)
    }
}

/// Think times of the closed model.
#[derive(Debug)]
pub(crate) struct Think {
    mean: f64,
    thinking: Thinking,
    random: fastrand::Rng,
}

impl Think {
    pub(crate) fn new(mean: f64, thinking: Thinking, seed: u64) -> Self {
        Self { mean, thinking, random: fastrand::Rng::with_seed(seed ^ 0x7417_1c00) }
    }

    pub(crate) fn draw(&mut self) -> Nanos {
        if self.mean <= 0.0 {
            return 0;
        }
        nanos(match self.thinking {
            Thinking::Constant => self.mean,
            Thinking::Exponential => self.mean * exponential(&mut self.random),
        })
    }
}

/// Draws an exponentially distributed number with mean 1, by inversion.
fn exponential(random: &mut fastrand::Rng) -> f64 {
    // f64() is below 1, so the logarithm is finite.
    -(1.0 - random.f64()).ln()
}
