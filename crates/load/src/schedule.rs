//! Determines when requests are sent, and which of them are measured.

use crate::net::Nanos;
use crate::plan::{Arrivals as Spread, Open, Plan, Thinking, Warmup, nanos};

/// The warm-up and the measurement window. Decides whether a request may begin, and whether it is measured.
#[derive(Debug)]
pub(crate) struct Window {
    warmup: u64,
    length: Length,
    /// The start of the window; `None` until the given number of warm-up requests has begun.
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

    /// Counts a request that is due at this time. Returns true if it is measured; `None` if the window has ended, so
    /// the request must not begin.
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

    /// Returns the end of the window; `None` if it is not limited by time or has not begun.
    pub(crate) fn until(&self) -> Option<Nanos> {
        match self.length {
            Length::Time(length) => Some(self.from?.saturating_add(length)),
            Length::Requests(_) => None,
        }
    }

    /// Returns true if no more requests may begin.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        match self.length {
            Length::Time(_) => self.until().is_some_and(|until| now >= until),
            Length::Requests(count) => self.measured == count,
        }
    }
}

/// The arrivals of the open model.
#[derive(Debug)]
pub(crate) struct Arrivals {
    source: Source,
    next: Nanos,
}

#[derive(Debug)]
enum Source {
    Rate(Curve),
    /// The due time and the index of each request, and the number of those that have been due.
    Recorded(Vec<(f64, usize)>, usize),
}

impl Arrivals {
    pub(crate) fn new(open: &Open, seed: u64) -> Self {
        let source = match &open.schedule {
            Some(schedule) => Source::Recorded(schedule.clone(), 0),
            None => Source::Rate(Curve::new(open, seed)),
        };
        let mut arrivals = Self { source, next: 0 };
        arrivals.find();
        arrivals
    }

    /// Returns the time at which the next request is due; `MAX` if there is none.
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Returns the index of the next request, if the schedule specifies it.
    pub(crate) fn request(&self) -> Option<usize> {
        match &self.source {
            Source::Rate(_) => None,
            Source::Recorded(schedule, done) => schedule.get(*done).map(|&(_, request)| request),
        }
    }

    /// Advances to the next request.
    pub(crate) fn advance(&mut self) {
        match &mut self.source {
            Source::Rate(curve) => curve.advance(),
            Source::Recorded(_, done) => *done += 1,
        }
        self.find();
    }

    fn find(&mut self) {
        self.next = match &mut self.source {
            Source::Rate(curve) => curve.due(),
            Source::Recorded(schedule, done) => schedule.get(*done).map_or(Nanos::MAX, |&(at, _)| nanos(at)),
        };
    }
}

/// Arrivals at a rate that is piecewise linear in time. The number of arrivals up to a time is the area below the curve
/// of the rate, so arrival n is due when the area reaches n. Each time is computed from the area and not from the
/// previous time, so that rounding errors do not add up.
#[derive(Debug)]
struct Curve {
    pieces: Vec<Piece>,
    /// The index of the piece in which the next arrival is due.
    piece: usize,
    spread: Spread,
    /// The number of earlier arrivals, for constant arrivals.
    count: u64,
    /// The area up to the next arrival. With Poisson arrivals it is a sum of exponentially distributed numbers.
    area: f64,
    phase: f64,
    random: fastrand::Rng,
}

/// A piece of the curve in which the rate is linear. The last piece is unlimited.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// The beginning, in seconds.
    from: f64,
    /// The rate at the beginning, in requests per second.
    rate: f64,
    /// The change of the rate, per second.
    slope: f64,
    /// The area before the beginning.
    before: f64,
}

impl Curve {
    fn new(open: &Open, seed: u64) -> Self {
        let mut pieces = Vec::with_capacity(open.stages.len() + 1);
        let (mut from, mut rate, mut before) = (0.0, open.rate, 0.0);
        for stage in &open.stages {
            if stage.seconds > 0.0 {
                pieces.push(Piece { from, rate, slope: (stage.rate - rate) / stage.seconds, before });
            }
            before += f64::midpoint(rate, stage.rate) * stage.seconds;
            (from, rate) = (from + stage.seconds, stage.rate);
        }
        pieces.push(Piece { from, rate, slope: 0.0, before });
        let random = fastrand::Rng::with_seed(seed ^ 0x0a22_17a1);
        let mut curve =
            Self { pieces, piece: 0, spread: open.arrivals, count: 0, area: 0.0, phase: open.phase, random };
        match curve.spread {
            Spread::Constant => curve.area = curve.phase,
            Spread::Poisson => curve.area = exponential(&mut curve.random),
        }
        curve
    }

    fn advance(&mut self) {
        self.count += 1;
        match self.spread {
            #[allow(clippy::cast_precision_loss, reason = "there are never that many")]
            Spread::Constant => self.area = self.count as f64 + self.phase,
            Spread::Poisson => self.area += exponential(&mut self.random),
        }
    }

    /// Returns the time at which the next arrival is due; `MAX` if the rate stays 0.
    fn due(&mut self) -> Nanos {
        while self.pieces.get(self.piece + 1).is_some_and(|next| next.before <= self.area) {
            self.piece += 1;
        }
        let Piece { from, rate, slope, before } = self.pieces[self.piece];
        let area = self.area - before;
        if area <= 0.0 && (rate > 0.0 || slope > 0.0) {
            return nanos(from);
        }
        // Solve `rate * x + slope * x * x / 2 = area` for x, in the form that does not subtract similar numbers.
        let root = (rate * rate + 2.0 * slope * area).max(0.0).sqrt();
        let after = if slope == 0.0 { area / rate } else { 2.0 * area / (rate + root) };
        if after.is_finite() { nanos(from + after) } else { Nanos::MAX }
    }
}

/// Draws the think times of the closed model.
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
    // f64() returns less than 1, so the logarithm is finite.
    -(1.0 - random.f64()).ln()
}
