//! The plan of a measurement, as JSON.
//!
//! All times are seconds, as numbers with fractions. A key that is listed here without a default must be given; a key
//! that is not listed here is refused.
//!
//! ```text
//! {
//!   "target": {"host": "localhost:8000",              the value of Host, unless a request's fields have one
//!              "addresses": ["127.0.0.1:8000"],       used in turn, or else
//!              "unix": "/run/app.sock"},              ("@name": an abstract one)
//!
//!   "model": {"closed": {"connections": 10,           each sends, waits for the answer, thinks, and sends again
//!                        "pipeline": 1,               unanswered requests on a connection
//!                        "think": 0,                  between an answer and the next request
//!                        "thinking": "constant"}}     or "exponential", with `think` as its mean
//!         or {"open":   {"rate": 100,                 requests per second, whatever the server does
//!                        "stages": [{"seconds": 30, "rate": 200}],
//!                                                     after the start the rate changes evenly to `rate` within so many
//!                                                     seconds (0: at once), then to that of the next stage; the last
//!                                                     one stays; default: none
//!                        "arrivals": "constant",      at equal intervals as far as the rate is constant, or "poisson"
//!                        "phase": 0,                  of constant arrivals: the part of an interval, from 0 to below 1,
//!                                                     by which they are late, so that several processes interleave
//!                        "schedule": null,            [[1.5, 0], ...]: when each request is due, in order, and its
//!                                                     index, in place of a rate; give their number as `count`
//!                        "connections": 0,            opened at the start; further ones when they are needed
//!                        "max_connections": 1000,
//!                        "pipeline": 1,               unanswered requests on a connection before another is opened
//!                        "max_waiting": 100000,       requests that may wait for a connection; more are dropped
//!                        "max_wait": null}},          for how long each may (null: as long as `timeout`)
//!
//!   "duration": 10, or "count": 10000,                how long, or how many requests, after the warm-up
//!   "warmup": {"seconds": 0} or {"requests": 0},      these are sent and checked, and not measured
//!
//!   "tls": {"name": "localhost",                      of the server's certificate; default: no TLS
//!           "roots": "-----BEGIN ..."},               certificates of authorities in PEM; null: any certificate will do
//!   "version": "1.1",                                 or "1.0", or "2": by ALPN with TLS, by prior knowledge without;
//!                                                     `pipeline` is then the number of streams of a connection
//!   "keep_alive": true,                               or false, or N: requests on one connection
//!   "timeout": 30,                                    of a request, from when it is put on a connection
//!   "patience": 5,                                    ends the run if no connection could be opened for so long; null:
//! never
//!   "seed": 0,                                        of all random choices
//!   "order": "turn",                                  or "random": each drawn by its weight
//!   "requests": [{"method": "GET", "path": "/",
//!                 "fields": [["User-Agent", "kirsch"]],   sent in this order, after Host unless it is among them
//!                 "body": null,                       base64; null: none; "": an empty one
//!                 "chunked": false,                   the body goes out in chunks of 16 KiB
//!                 "weight": 1,
//!                 "checks": null}],                   in place of those below
//!   "checks": {"status": [[200, 399]],                numbers, and ranges with both ends
//!              "length": null,                        of the decoded body, in bytes; "first": as the first response
//!              "sha256": null},                       of the decoded body, in hex; "first": as the first response
//!
//!   "start_at": null,                                 seconds since 1970, so that several processes begin together
//!   "interval": 1,                                    of the time series
//!   "progress": 0.25                                  between reports while it runs
//! }
//! ```
//!
//! # Which latency
//!
//! Latency is counted from the time at which a request is *due*. In the open model that is its place in the schedule,
//! whether or not a connection was free, and whether or not the generator was in time. So a server that stalls delays
//! all requests that are due meanwhile, not only those that it has received ("coordinated omission"). In the closed
//! model it is the end of the think time, before a connection is opened. Service time is counted from when the request
//! is put on an open connection.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A run of one generator.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// The rule by which requests are sent.
    pub model: Model,
    /// The duration of the measurement, in seconds; this or `count`.
    #[serde(default)]
    pub duration: Option<f64>,
    /// The number of requests to measure.
    #[serde(default)]
    pub count: Option<u64>,
    /// The requests that are sent before the measurement.
    #[serde(default)]
    pub warmup: Warmup,
    /// The encryption of connections; `None`: none.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// The version of HTTP.
    #[serde(default)]
    pub version: Version,
    /// The number of requests for which a connection is used.
    #[serde(default)]
    pub keep_alive: KeepAlive,
    /// Seconds for a request, from when it is put on a connection.
    #[serde(default = "thirty")]
    pub timeout: f64,
    /// Seconds for which opening connections may fail while nothing else happens; then the run ends.
    #[serde(default = "five")]
    pub patience: Option<f64>,
    /// Seed of the order, the arrivals and the think times.
    #[serde(default)]
    pub seed: u64,
    /// The rule that chooses the next request.
    #[serde(default)]
    pub order: Order,
    /// The requests.
    pub requests: Vec<Request>,
    /// The checks of every response, unless a request has its own.
    #[serde(default)]
    pub checks: Checks,
    /// When to begin, in seconds since 1970; used by the driver of the generator.
    #[serde(default)]
    pub start_at: Option<f64>,
    /// Length of an interval of the time series, in seconds.
    #[serde(default = "one")]
    pub interval: f64,
    /// Seconds between reports of progress; used by the driver of the generator.
    #[serde(default = "quarter")]
    pub progress: f64,
}

/// The address of the server: TCP addresses, used in turn, or a Unix socket.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// `uri-host [":" port]` (RFC 9110 section 7.2).
    pub host: String,
    /// TCP addresses.
    #[serde(default)]
    pub addresses: Vec<SocketAddr>,
    /// A path, or `@` and a name in Linux's abstract namespace.
    #[serde(default)]
    pub unix: Option<String>,
}

/// The rule by which requests are sent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Model {
    /// The server's answer to the request before: a number of users, each with a connection.
    Closed(Closed),
    /// A schedule.
    Open(Open),
}

/// The closed model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// Number of users, each with a connection.
    pub connections: usize,
    /// Maximum number of unanswered requests on a connection.
    #[serde(default = "one_request")]
    pub pipeline: usize,
    /// Seconds between an answer and the next request.
    #[serde(default)]
    pub think: f64,
    /// The distribution of think times.
    #[serde(default)]
    pub thinking: Thinking,
}

/// Distributions of think times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// All think times are equal.
    #[default]
    Constant,
    /// Exponential.
    Exponential,
}

/// The open model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Requests per second at the start.
    #[serde(default)]
    pub rate: f64,
    /// The changes of the rate, one after the other.
    #[serde(default)]
    pub stages: Vec<RateStage>,
    /// Their distribution.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// The part of an interval by which constant arrivals are late.
    #[serde(default)]
    pub phase: f64,
    /// When each request is due, in seconds, and its index; in place of a rate.
    #[serde(default)]
    pub schedule: Option<Vec<(f64, usize)>>,
    /// Number of connections opened at the start.
    #[serde(default)]
    pub connections: usize,
    /// Maximum number of open connections.
    #[serde(default = "thousand")]
    pub max_connections: usize,
    /// Unanswered requests on a connection. A request that is due goes to the open connection with the fewest, if that
    /// has fewer than this; otherwise a new one is opened.
    #[serde(default = "one_request")]
    pub pipeline: usize,
    /// Maximum number of requests that wait for a connection.
    #[serde(default = "hundred_thousand")]
    pub max_waiting: usize,
    /// Seconds for which a request may wait for a connection; default: the timeout.
    #[serde(default)]
    pub max_wait: Option<f64>,
}

/// An even change of the rate of the open model.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RateStage {
    /// Duration of the change in seconds; 0: it happens at once.
    pub seconds: f64,
    /// Requests per second at its end.
    pub rate: f64,
}

/// Distributions of the arrivals of the open model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Constant,
    /// Independent of each other, like those of many users.
    Poisson,
}

/// The requests that are sent before the measurement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Warmup {
    /// Everything that is sent within this many seconds.
    Seconds(f64),
    /// The first requests, this many.
    Requests(u64),
}

impl Default for Warmup {
    fn default() -> Self {
        Self::Requests(0)
    }
}

/// The encryption of connections.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The name or address that the server's certificate must have.
    pub name: String,
    /// The certificates of the authorities that are trusted, in PEM; `None`: any certificate will do.
    #[serde(default)]
    pub roots: Option<String>,
}

/// HTTP's version, of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Version {
    /// HTTP/1.0, as `ab` uses.
    #[serde(rename = "1.0")]
    Http10,
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "1.1")]
    Http11,
    /// HTTP/2.
    #[serde(rename = "2")]
    Http2,
}

/// The number of requests for which a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum KeepAlive {
    /// As long as the server allows, or for one request.
    Switch(bool),
    /// For this many requests.
    Requests(u64),
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self::Switch(true)
    }
}

impl KeepAlive {
    /// Returns the number of requests on one connection.
    #[must_use]
    pub fn requests(self) -> u64 {
        match self {
            Self::Switch(true) => u64::MAX,
            Self::Switch(false) => 1,
            Self::Requests(count) => count,
        }
    }
}

/// The rule that chooses the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// In order, again and again.
    #[default]
    Turn,
    /// At random, by weight.
    Random,
}

/// One request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The method, a token.
    #[serde(default = "get")]
    pub method: String,
    /// The target: usually a path with its query.
    pub path: String,
    /// The fields, in the order in which they are sent.
    #[serde(default)]
    pub fields: Vec<(String, String)>,
    /// The body in base64.
    #[serde(default)]
    pub body: Option<String>,
    /// True to send the body in chunks, without its length.
    #[serde(default)]
    pub chunked: bool,
    /// The frequency with which the request is drawn, relative to others.
    #[serde(default = "one_weight")]
    pub weight: u32,
    /// Checks in place of the plan's.
    #[serde(default)]
    pub checks: Option<Checks>,
}

/// The checks of a response.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Checks {
    /// Any of these; empty: any status.
    #[serde(default = "no_errors")]
    pub status: Vec<StatusRange>,
    /// Length of the decoded body in bytes.
    #[serde(default)]
    pub length: Option<Expected<u64>>,
    /// SHA-256 of the decoded body, in hex.
    #[serde(default)]
    pub sha256: Option<Expected<String>>,
}

impl Default for Checks {
    fn default() -> Self {
        Self { status: no_errors(), length: None, sha256: None }
    }
}

/// Status codes.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum StatusRange {
    /// One code.
    One(u16),
    /// A range, both ends included.
    Range(u16, u16),
}

impl StatusRange {
    /// Returns true if `status` is one of these codes.
    #[must_use]
    pub fn contains(self, status: u16) -> bool {
        match self {
            Self::One(only) => status == only,
            Self::Range(first, last) => (first..=last).contains(&status),
        }
    }
}

/// A given value, or one taken from the first response to the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Expected<T> {
    /// `"first"`.
    First(First),
    /// A given value.
    Given(T),
}

/// The word `"first"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum First {
    /// As in the first response to the same request.
    #[serde(rename = "first")]
    First,
}

fn thirty() -> f64 {
    30.0
}

fn one() -> f64 {
    1.0
}

fn quarter() -> f64 {
    0.25
}

#[allow(clippy::unnecessary_wraps, reason = "it is the default of an option")]
fn five() -> Option<f64> {
    Some(5.0)
}

fn one_request() -> usize {
    1
}

fn one_weight() -> u32 {
    1
}

fn thousand() -> usize {
    1000
}

fn hundred_thousand() -> usize {
    100_000
}

fn get() -> String {
    "GET".to_owned()
}

fn no_errors() -> Vec<StatusRange> {
    vec![StatusRange::Range(200, 399)]
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The place in the plan; empty if it is not even JSON.
    pub place: String,
    /// The reason why the plan is invalid at that place.
    pub problem: String,
}

impl PlanError {
    pub(crate) fn at(place: String, problem: String) -> Self {
        Self { place, problem }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            out.write_str(&self.problem)
        } else {
            write!(out, "{}: {}", self.place, self.problem)
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Limit of connections, of requests on one, and of waiting requests, which bounds their memory.
    const MOST: usize = 1_000_000;
    /// Limit of intervals of a time series.
    const MOST_INTERVALS: f64 = 1e6;
    /// Limit of times: a year, in seconds.
    const LONGEST: f64 = 31_536_000.0;

    /// Reads a plan.
    ///
    /// # Errors
    /// If the plan is invalid: the place and the problem.
    pub fn read(json: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_str(json).map_err(|error| PlanError::at(String::new(), error.to_string()))?;
        plan.check()?;
        Ok(plan)
    }

    /// Checks its numbers. The requests are checked when they are written.
    ///
    /// # Errors
    /// If the plan is invalid: the place and the problem.
    pub fn check(&self) -> Result<(), PlanError> {
        let wrong = |place: &str, problem: &str| Err(PlanError::at(place.to_owned(), problem.to_owned()));
        // NaN is in no range.
        let time = |place: &str, value: f64, least: f64| {
            if (least..=Self::LONGEST).contains(&value) {
                return Ok(());
            }
            Err(PlanError::at(place.to_owned(), format!("{value} is not from {least} to {} seconds", Self::LONGEST)))
        };
        if self.target.addresses.is_empty() == self.target.unix.is_none() {
            return wrong("target", "give addresses or a Unix socket");
        }
        match (self.duration, self.count) {
            (Some(duration), None) => time("duration", duration, 1e-3)?,
            (None, Some(1..)) => {}
            (None, Some(0)) => return wrong("count", "at least 1"),
            _ => return wrong("duration", "give this or count"),
        }
        if let Warmup::Seconds(seconds) = self.warmup {
            time("warmup", seconds, 0.0)?;
        }
        time("timeout", self.timeout, 1e-3)?;
        time("interval", self.interval, 1e-3)?;
        time("progress", self.progress, 1e-2)?;
        if let Some(patience) = self.patience {
            time("patience", patience, 0.0)?;
        }
        if self.duration.is_some_and(|duration| duration / self.interval > Self::MOST_INTERVALS) {
            return wrong("interval", "there would be more than a million");
        }
        if self.keep_alive == KeepAlive::Requests(0) {
            return wrong("keep_alive", "true, false, or a number of requests from 1");
        }
        if self.requests.is_empty() {
            return wrong("requests", "at least one");
        }
        match &self.model {
            Model::Closed(closed) => {
                time("model.closed.think", closed.think, 0.0)?;
                for (place, value) in [("connections", closed.connections), ("pipeline", closed.pipeline)] {
                    if !(1..=Self::MOST).contains(&value) {
                        return wrong(&format!("model.closed.{place}"), "from 1 to a million");
                    }
                }
            }
            Model::Open(open) => {
                self.check_arrivals(open)?;
                if let Some(wait) = open.max_wait {
                    time("model.open.max_wait", wait, 0.0)?;
                }
                for (place, value) in [("max_connections", open.max_connections), ("pipeline", open.pipeline)] {
                    if !(1..=Self::MOST).contains(&value) {
                        return wrong(&format!("model.open.{place}"), "from 1 to a million");
                    }
                }
                if open.connections > open.max_connections {
                    return wrong("model.open.connections", "more than max_connections");
                }
                if open.max_waiting > 100 * Self::MOST {
                    return wrong("model.open.max_waiting", "up to a hundred million");
                }
            }
        }
        Ok(())
    }

    /// Checks when the requests of the open model are due.
    fn check_arrivals(&self, open: &Open) -> Result<(), PlanError> {
        let wrong = |place: &str, problem: &str| Err(PlanError::at(format!("model.open.{place}"), problem.to_owned()));
        if let Some(schedule) = &open.schedule {
            if self.count != u64::try_from(schedule.len()).ok() || open.rate != 0.0 || !open.stages.is_empty() {
                return wrong("schedule", "give the number of its requests as count, and neither rate nor stages");
            }
            if !schedule
                .iter()
                .all(|&(at, request)| (0.0..=Self::LONGEST).contains(&at) && request < self.requests.len())
                || !schedule.is_sorted_by(|(before, _), (after, _)| before <= after)
            {
                return wrong("schedule", "times in order, from 0 to a year, each with the index of a request");
            }
            return Ok(());
        }
        let least = if open.stages.is_empty() { 1e-6 } else { 0.0 };
        if !(least..=1e7).contains(&open.rate) {
            return wrong("rate", "from a millionth to ten million requests a second");
        }
        for stage in &open.stages {
            if !(0.0..=1e7).contains(&stage.rate) || !(0.0..=Self::LONGEST).contains(&stage.seconds) {
                return wrong("stages", "up to ten million requests a second, each up to a year");
            }
        }
        if !(0.0..1.0).contains(&open.phase) {
            return wrong("phase", "from 0 to below 1");
        }
        Ok(())
    }
}

/// Converts seconds to nanoseconds.
#[must_use]
pub(crate) fn nanos(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX).as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds as seconds.
#[must_use]
pub(crate) fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
