//! The counters of a run.

use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::net::Nanos;
use crate::plan::seconds;
use crate::result::{Bytes, Connections, Discarded, Error, Interval, Times};
use std::collections::BTreeMap;

/// The number of nanoseconds by which a request must be late to be counted as late.
pub(crate) const LATE: Nanos = 1_000_000;
/// The maximum number of distinct failures. Further ones are counted by class only.
const KINDS: usize = 1000;

/// A request that has begun, with its times in nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// The time at which the request was due.
    pub(crate) due: Nanos,
    /// The time at which the request was assigned to a connection, which may still be opening.
    pub(crate) put: Nanos,
    /// The time at which the request could be sent, because the connection was open.
    pub(crate) given: Nanos,
    /// The time at which the response began; 0 if it has not.
    pub(crate) first: Nanos,
    /// True if the generator itself noticed the arrival late.
    pub(crate) noticed_late: bool,
    /// The index of the request in the script.
    pub(crate) request: usize,
    pub(crate) is_measured: bool,
    /// True if the request asks the server to close the connection.
    pub(crate) is_last: bool,
    /// The number of times that an HTTP/2 server has refused the request.
    pub(crate) refused: u8,
}

/// A histogram with the exact minimum, mean and maximum.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    histogram: Histogram,
    sum: u128,
    squares: u128,
    min: Nanos,
    max: Nanos,
}

/// The counters of a run: requests, responses by status, failures, bytes and times.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The beginning and the end of the window; `MAX` while unknown.
    from: Nanos,
    until: Nanos,
    pub(crate) answered_within: u64,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) dropped: u64,
    pub(crate) late: u64,
    pub(crate) late_by_generator: u64,
    pub(crate) resent: u64,
    pub(crate) discarded: Discarded,
    pub(crate) connections: Connections,
    pub(crate) bytes: Bytes,
    pub(crate) latency: Spread,
    pub(crate) service: Spread,
    pub(crate) first_byte: Spread,
    pub(crate) failed_latency: Spread,
    pub(crate) connect: Spread,
    pub(crate) lag: Spread,
    statuses: Vec<u64>,
    errors: BTreeMap<Failure, Error>,
    /// The counts of the whole run, including the warm-up.
    pub(crate) total: Part,
    /// The time at which the last measured request ended.
    pub(crate) last_end: Nanos,
    interval: Nanos,
    current: Stretch,
    latest: Stretch,
    pub(crate) series: Vec<Interval>,
}

/// The counts of one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) dropped: u64,
    pub(crate) late: u64,
    pub(crate) received: u64,
}

#[derive(Debug)]
struct Stretch {
    begin: Nanos,
    part: Part,
    latency: Histogram,
    max: Nanos,
}

impl Spread {
    #[inline]
    pub(crate) fn record(&mut self, value: Nanos) {
        self.min = if self.histogram.is_empty() { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.histogram.record(value);
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
    }

    pub(crate) fn times(&self) -> Times {
        let count = self.histogram.len();
        let some = |value: f64| (count > 0).then_some(value);
        #[allow(clippy::cast_precision_loss, reason = "figures of 15 digits will do")]
        let (count_, sum, squares) = (count.max(1) as f64, self.sum as f64, self.squares as f64);
        let mean = sum / count_;
        let variance = (squares / count_ - mean * mean).max(0.0);
        Times {
            count,
            min: some(seconds(self.min)),
            mean: some(mean / 1e9),
            sd: some(variance.sqrt() / 1e9),
            max: some(seconds(self.max)),
            histogram: self.histogram.encode(),
        }
    }
}

impl Stretch {
    fn new() -> Self {
        Self { begin: 0, part: Part::default(), latency: Histogram::new(), max: 0 }
    }

    fn is_empty(&self) -> bool {
        self.part == Part::default() && self.latency.is_empty()
    }

    /// Returns the counts of the period, and begins the next one.
    fn take(&mut self, end: Nanos, window_from: Nanos) -> Interval {
        let quantile = |quantile| self.latency.quantile(quantile).map(seconds);
        let interval = Interval {
            at: seconds(self.begin),
            seconds: seconds(end.saturating_sub(self.begin)),
            warmup: self.begin < window_from,
            answered: self.part.answered,
            failed: self.part.failed,
            dropped: self.part.dropped,
            late: self.part.late,
            received: self.part.received,
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: (!self.latency.is_empty()).then(|| seconds(self.max)),
            latency: (!self.latency.is_empty()).then(|| self.latency.encode()),
        };
        if !self.latency.is_empty() {
            self.latency.clear();
        }
        (self.begin, self.part, self.max) = (end, Part::default(), 0);
        interval
    }
}

impl Tally {
    pub(crate) fn new(interval: Nanos) -> Self {
        Self {
            from: Nanos::MAX,
            until: Nanos::MAX,
            answered_within: 0,
            ok: 0,
            failed: 0,
            dropped: 0,
            late: 0,
            late_by_generator: 0,
            resent: 0,
            discarded: Discarded::default(),
            connections: Connections::default(),
            bytes: Bytes::default(),
            latency: Spread::default(),
            service: Spread::default(),
            first_byte: Spread::default(),
            failed_latency: Spread::default(),
            connect: Spread::default(),
            lag: Spread::default(),
            statuses: vec![0; 1000],
            errors: BTreeMap::new(),
            total: Part::default(),
            last_end: 0,
            interval,
            current: Stretch::new(),
            latest: Stretch::new(),
            series: Vec::new(),
        }
    }

    pub(crate) fn set_window(&mut self, from: Nanos, until: Nanos) {
        (self.from, self.until) = (from, until);
    }

    fn is_within(&self, now: Nanos) -> bool {
        (self.from..=self.until).contains(&now)
    }

    /// Advances the time, and completes the intervals that have ended.
    #[inline]
    pub(crate) fn roll(&mut self, now: Nanos) {
        while now - self.current.begin >= self.interval {
            let interval = self.current.take(self.current.begin + self.interval, self.from);
            self.series.push(interval);
        }
    }

    /// Completes the last interval.
    pub(crate) fn close(&mut self, now: Nanos) {
        self.roll(now);
        if now > self.current.begin || !self.current.is_empty() || self.series.is_empty() {
            let interval = self.current.take(now, self.from);
            self.series.push(interval);
        }
    }

    /// Returns the counts since the last call.
    pub(crate) fn latest(&mut self, now: Nanos) -> Interval {
        self.latest.take(now, self.from)
    }

    /// Applies the same change to the counts of all current periods.
    fn parts(&mut self, change: impl Fn(&mut Part)) {
        change(&mut self.total);
        change(&mut self.current.part);
        change(&mut self.latest.part);
    }

    pub(crate) fn received(&mut self, now: Nanos, bytes: usize) {
        self.parts(|part| part.received += bytes as u64);
        if self.is_within(now) {
            self.bytes.received += bytes as u64;
        }
    }

    pub(crate) fn sent(&mut self, now: Nanos, bytes: usize) {
        if self.is_within(now) {
            self.bytes.sent += bytes as u64;
        }
    }

    pub(crate) fn opened(&mut self, now: Nanos, took: Nanos) {
        self.connections.opened += 1;
        if self.is_within(now) {
            self.connect.record(took);
        }
    }

    /// Records how late the generator noticed an arrival.
    pub(crate) fn lagged(&mut self, lag: Nanos) {
        self.lag.record(lag);
    }

    /// Counts a request that is sent late.
    pub(crate) fn was_late(&mut self, job: &Job) {
        self.parts(|part| part.late += 1);
        if job.is_measured {
            self.late += 1;
            self.late_by_generator += u64::from(job.noticed_late);
        }
    }

    /// Counts a whole response with any status.
    pub(crate) fn answered(&mut self, now: Nanos, job: &Job, status: u16, heads: u64, body: u64) {
        self.parts(|part| part.answered += 1);
        if self.is_within(now) {
            self.answered_within += 1;
        }
        if job.is_measured {
            self.statuses[usize::from(status)] += 1;
            self.bytes.heads += heads;
            self.bytes.bodies += body;
        }
    }

    /// Counts a request that got the expected response.
    pub(crate) fn ok(&mut self, now: Nanos, job: &Job) {
        let latency = now.saturating_sub(job.due);
        for stretch in [&mut self.current, &mut self.latest] {
            stretch.latency.record(latency);
            stretch.max = stretch.max.max(latency);
        }
        if job.is_measured {
            self.ok += 1;
            self.last_end = now;
            self.latency.record(latency);
            self.service.record(now - job.given);
            self.first_byte.record(job.first - job.given);
        } else {
            self.discarded.requests += 1;
        }
    }

    /// Counts a failed request. Calls `example` for a description if the failure is the first of its kind.
    pub(crate) fn failed(&mut self, now: Nanos, job: &Job, failure: Failure, example: impl FnOnce() -> String) {
        self.parts(|part| part.failed += 1);
        if job.is_measured {
            self.failed += 1;
            self.last_end = now;
            self.failed_latency.record(now.saturating_sub(job.due));
            self.note(now, failure, job.request, example);
        } else {
            self.discarded.requests += 1;
            self.discarded.failed += 1;
        }
    }

    /// Adds a failure to the list of errors.
    pub(crate) fn note(&mut self, now: Nanos, failure: Failure, request: usize, example: impl FnOnce() -> String) {
        let failure = if self.errors.len() < KINDS || self.errors.contains_key(&failure) {
            failure
        } else {
            Failure::of(failure.class)
        };
        let error = self.errors.entry(failure).or_insert_with(|| Error {
            class: failure.class.name().to_owned(),
            detail: failure.detail(),
            count: 0,
            at: seconds(now),
            request,
            example: example(),
        });
        error.count += 1;
    }

    /// Counts a request that will never be sent.
    pub(crate) fn dropped(&mut self, now: Nanos, job: &Job) {
        self.parts(|part| part.dropped += 1);
        if job.is_measured {
            self.dropped += 1;
            self.last_end = now;
            self.failed_latency.record(now.saturating_sub(job.due));
        } else {
            self.discarded.requests += 1;
            self.discarded.failed += 1;
        }
    }

    pub(crate) fn statuses(&self) -> BTreeMap<u16, u64> {
        (0..).zip(&self.statuses).filter(|&(_, &count)| count > 0).map(|(status, &count)| (status, count)).collect()
    }

    pub(crate) fn errors(&self) -> Vec<Error> {
        self.errors.values().cloned().collect()
    }
}
