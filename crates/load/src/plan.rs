//! What is to be measured, as JSON.
//!
//! All times are seconds, as numbers with fractions. A key that stands here without a default must be given; one that
//! does not stand here is refused.
//!
//! ```text
//! {
//!   "target": {"host": "localhost:8000",              what Host says, where a request's fields do not
//!              "addresses": ["127.0.0.1:8000"],       used in turn, or else
//!              "unix": "/run/app.sock"},              ("@name": an abstract one)
//!
//!   "model": {"closed": {"connections": 10,           each sends, waits for the answer, thinks, and sends again
//!                        "pipeline": 1,               requests under way on a connection
//!                        "think": 0,                  between an answer and the next request
//!                        "thinking": "constant"}}     or "exponential", with `think` as its mean
//!         or {"open":   {"rate": 100,                 requests a second, come what may
//!                        "arrivals": "constant",      or "poisson"
//!                        "offset": 0,                 when the first is due; several processes interleave by it
//!                        "connections": 0,            opened at the start; further ones when they are needed
//!                        "max_connections": 1000,
//!                        "pipeline": 1,               requests under way on a connection before another is opened
//!                        "max_waiting": 100000,       requests that may wait for a connection; more are dropped
//!                        "max_wait": null}},          for how long each may (null: as long as `timeout`)
//!
//!   "duration": 10, or "count": 10000,                how long, or how many requests, after the warm-up
//!   "warmup": {"seconds": 0} or {"requests": 0},      these are sent and checked, and not measured
//!
//!   "version": "1.1",                                 or "1.0"
//!   "keep_alive": true,                               or false, or N: requests on one connection
//!   "timeout": 30,                                    of a request, from when it is put on a connection
//!   "patience": 5,                                    ends the run if for so long no connection could be opened; null: never
//!   "seed": 0,                                        of all that is left to chance
//!   "order": "turn",                                  or "random": each drawn by its weight
//!   "requests": [{"method": "GET", "path": "/",
//!                 "fields": [["User-Agent", "kirsch"]],   sent in this order, after Host where they do not name it
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
//! Latency is counted from when a request *was to be* sent. In the open model that is its place in the schedule, whether
//! or not a connection was free and whether or not the generator came to it in time: a server that stands still makes
//! all wait that would have come meanwhile, not only those that were under way ("coordinated omission"). In the closed
//! model it is when the think time is over, before a connection is opened. Service time is counted from when the request
//! is handed to an open connection.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A run of one generator.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Where to.
    pub target: Target,
    /// Who decides when a request is sent.
    pub model: Model,
    /// How long to measure, in seconds; this or `count`.
    #[serde(default)]
    pub duration: Option<f64>,
    /// How many requests to measure.
    #[serde(default)]
    pub count: Option<u64>,
    /// What comes before that.
    #[serde(default)]
    pub warmup: Warmup,
    /// HTTP's.
    #[serde(default)]
    pub version: Version,
    /// How long a connection is used.
    #[serde(default)]
    pub keep_alive: KeepAlive,
    /// Seconds for a request, from when it is put on a connection.
    #[serde(default = "thirty")]
    pub timeout: f64,
    /// Seconds for which opening connections may fail, and nothing else happen, until the run is ended.
    #[serde(default = "five")]
    pub patience: Option<f64>,
    /// Of the order, the arrivals and the think times.
    #[serde(default)]
    pub seed: u64,
    /// Which request is next.
    #[serde(default)]
    pub order: Order,
    /// What is sent.
    pub requests: Vec<Request>,
    /// What is expected.
    #[serde(default)]
    pub checks: Checks,
    /// When to begin, in seconds since 1970; for whoever drives the generator.
    #[serde(default)]
    pub start_at: Option<f64>,
    /// Seconds of an interval of the time series.
    #[serde(default = "one")]
    pub interval: f64,
    /// Seconds between reports of progress; for whoever drives the generator.
    #[serde(default = "quarter")]
    pub progress: f64,
}

/// Where the server listens: at addresses, used in turn, or at a Unix socket.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// `uri-host [":" port]` (RFC 9110 section 7.2).
    pub host: String,
    /// Of TCP.
    #[serde(default)]
    pub addresses: Vec<SocketAddr>,
    /// A path, or a name in Linux's abstract namespace behind `@`.
    #[serde(default)]
    pub unix: Option<String>,
}

/// Who decides when a request is sent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Model {
    /// The server, by having answered the one before: so many users, each with a connection.
    Closed(Closed),
    /// A schedule.
    Open(Open),
}

/// The closed model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// Users, each with a connection.
    pub connections: usize,
    /// Requests under way on a connection.
    #[serde(default = "one_request")]
    pub pipeline: usize,
    /// Seconds between an answer and the next request.
    #[serde(default)]
    pub think: f64,
    /// How the think time is spread.
    #[serde(default)]
    pub thinking: Thinking,
}

/// How think times are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// All are the same.
    #[default]
    Constant,
    /// Without memory.
    Exponential,
}

/// The open model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Requests a second.
    pub rate: f64,
    /// How they are spread.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Seconds from the start to the first of constant arrivals.
    #[serde(default)]
    pub offset: f64,
    /// Opened at the start.
    #[serde(default)]
    pub connections: usize,
    /// Open at a time.
    #[serde(default = "thousand")]
    pub max_connections: usize,
    /// Requests under way on a connection: one that is due goes to an open connection with fewer, to the one with the
    /// fewest, before a new one is opened for it.
    #[serde(default = "one_request")]
    pub pipeline: usize,
    /// Requests that may wait for a connection.
    #[serde(default = "hundred_thousand")]
    pub max_waiting: usize,
    /// Seconds for which a request may wait for a connection; absent: the timeout.
    #[serde(default)]
    pub max_wait: Option<f64>,
}

/// How the arrivals of the open model are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At equal distances.
    #[default]
    Constant,
    /// Independent of each other, as those of many users are.
    Poisson,
}

/// What is sent before anything is measured.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Warmup {
    /// All that is to be sent within this time.
    Seconds(f64),
    /// The first so many.
    Requests(u64),
}

impl Default for Warmup {
    fn default() -> Self {
        Self::Requests(0)
    }
}

/// HTTP's version, of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Version {
    /// What ab speaks.
    #[serde(rename = "1.0")]
    Http10,
    /// What everybody else does.
    #[default]
    #[serde(rename = "1.1")]
    Http11,
}

/// How long a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum KeepAlive {
    /// As long as the server likes, or for one request.
    Switch(bool),
    /// For so many requests.
    Requests(u64),
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self::Switch(true)
    }
}

impl KeepAlive {
    /// Requests on one connection.
    #[must_use]
    pub fn requests(self) -> u64 {
        match self {
            Self::Switch(true) => u64::MAX,
            Self::Switch(false) => 1,
            Self::Requests(count) => count,
        }
    }
}

/// Which request is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other, and again from the first.
    #[default]
    Turn,
    /// Drawn by weight.
    Random,
}

/// One thing to ask for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// A token.
    #[serde(default = "get")]
    pub method: String,
    /// A target: a path with its query, mostly.
    pub path: String,
    /// In the order in which they are sent.
    #[serde(default)]
    pub fields: Vec<(String, String)>,
    /// Base64.
    #[serde(default)]
    pub body: Option<String>,
    /// Whether the body goes out without saying its length.
    #[serde(default)]
    pub chunked: bool,
    /// How often it is drawn, compared to others.
    #[serde(default = "one_weight")]
    pub weight: u32,
    /// In place of the plan's.
    #[serde(default)]
    pub checks: Option<Checks>,
}

/// What is expected of a response.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Checks {
    /// Any of these; none: any at all.
    #[serde(default = "no_errors")]
    pub status: Vec<StatusRange>,
    /// Bytes of the decoded body.
    #[serde(default)]
    pub length: Option<Expected<u64>>,
    /// Of the decoded body, in hex.
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
    /// This one.
    One(u16),
    /// From the first up to and with the second.
    Range(u16, u16),
}

impl StatusRange {
    /// Whether `status` is one of them.
    #[must_use]
    pub fn contains(self, status: u16) -> bool {
        match self {
            Self::One(only) => status == only,
            Self::Range(first, last) => (first..=last).contains(&status),
        }
    }
}

/// A value that is given, or taken from the first response to the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Expected<T> {
    /// `"first"`.
    First(First),
    /// This.
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
    /// Where in the plan; empty if it is not even JSON.
    pub place: String,
    /// What is wrong there.
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
    /// Connections, requests on one, and requests that wait: what memory they may take is bounded by these.
    const MOST: usize = 1_000_000;
    /// Intervals of a time series.
    const MOST_INTERVALS: f64 = 1e6;
    /// A year, in seconds: what nobody means to wait for.
    const LONGEST: f64 = 31_536_000.0;

    /// Reads a plan.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(json: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_str(json).map_err(|error| PlanError::at(String::new(), error.to_string()))?;
        plan.check()?;
        Ok(plan)
    }

    /// Whether its numbers make sense. What its requests say is checked when they are written.
    ///
    /// # Errors
    /// What is wrong with it, and where.
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
                if !(1e-6..=1e7).contains(&open.rate) {
                    return wrong("model.open.rate", "from a millionth to ten million requests a second");
                }
                time("model.open.offset", open.offset, 0.0)?;
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
}

/// Seconds as nanoseconds.
#[must_use]
pub(crate) fn nanos(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX).as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds as seconds.
#[must_use]
pub(crate) fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
