//! The plan of a measurement, read from JSON.
//!
//! All times are numbers of seconds and may have fractions. A key without a default below is required; an unknown key
//! is an error.
//!
//! ```text
//! {
//!   "target": {"host": "localhost:8000",              the value of Host, unless a request's fields set it
//!              "addresses": ["127.0.0.1:8000"],       used in turn, or else
//!              "unix": "/run/app.sock"},              ("@name": an abstract socket)
//!
//!   "model": {"closed": {"connections": 10,           each user sends, waits for the response, thinks, and repeats
//!                        "pipeline": 1,               unanswered requests on a connection
//!                        "think": 0,                  time between a response and the next request
//!                        "thinking": "constant"}}     or "exponential", with `think` as its mean
//!         or {"open":   {"rate": 100,                 requests per second, independent of the server
//!                        "stages": [{"seconds": 30, "rate": 200}],
//!                                                     from the start the rate changes linearly to `rate` within
//!                                                     `seconds` (0: at once), then to the rate of the next stage; the
//!                                                     last rate stays; default: none
//!                        "arrivals": "constant",      at equal intervals while the rate is constant, or "poisson"
//!                        "phase": 0,                  for constant arrivals: the fraction of an interval, 0 to < 1,
//!                                                     by which they are shifted, so that processes interleave
//!                        "schedule": null,            [[1.5, 0], ...]: the due time and the index of each request, in
//!                                                     order, instead of a rate; give their number as `count`
//!                        "connections": 0,            opened at the start; others are opened when needed
//!                        "max_connections": 1000,
//!                        "pipeline": 1,               unanswered requests per connection before another is opened
//!                        "max_waiting": 100000,       requests that may wait for a connection; more are dropped
//!                        "max_wait": null}},          the time that each may wait (null: as long as `timeout`)
//!
//!   "duration": 10, or "count": 10000,                the time, or the number of requests, after the warm-up
//!   "warmup": {"seconds": 0} or {"requests": 0},      requests that are sent and checked, but not measured
//!
//!   "tls": {"name": "localhost",                      the name in the server's certificate; default: no TLS
//!           "roots": "-----BEGIN ..."},               trusted authorities in PEM; null: any certificate is accepted
//!   "version": "1.1",                                 or "1.0", or "2" (with TLS by ALPN, else by prior knowledge);
//!                                                     for "2", `pipeline` is the number of concurrent streams
//!   "keep_alive": true,                               or false, or N: requests on one connection
//!   "timeout": 30,                                    of a request, from its assignment to a connection
//!   "patience": 5,                                    ends the run if no connection opens for so long; null: never
//!   "seed": 0,                                        the seed of all random choices
//!   "order": "turn",                                  or "random", by weight
//!   "requests": [{"method": "GET", "path": "/",
//!                 "fields": [["User-Agent", "kirsch"]],   sent in this order, after Host unless it is among them
//!                 "body": null,                       base64; null: no body; "": an empty body
//!                 "chunked": false,                   true: the body is sent in chunks of 16 KiB
//!                 "weight": 1,
//!                 "checks": null}],                   replaces the checks below
//!   "checks": {"status": [[200, 399]],                numbers, and ranges that include both ends
//!              "length": null,                        of the decoded body, in bytes; "first": like the first response
//!              "sha256": null},                       of the decoded body, in hex; "first": like the first response
//!
//!   "start_at": null,                                 seconds since 1970; for several processes to begin together
//!   "interval": 1,                                    the length of an interval of the time series
//!   "progress": 0.25                                  time between two reports of progress
//! }
//! ```
//!
//! # Which latency
//!
//! Latency is counted from the time at which a request is *due*. In the open model that is its time in the schedule,
//! even if no connection was free or the generator was late. So a server that stalls delays all requests that become
//! due meanwhile, not only those that it has received (otherwise: "coordinated omission"). In the closed model a
//! request is due at the end of the think time, before a connection is opened. Service time is counted from when the
//! request is assigned to an open connection.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The parameters of one run of a load generator process.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The address of the server.
    pub target: Target,
    /// The load model: the rule that determines when requests are sent.
    pub model: Model,
    /// The duration of the measurement, in seconds. Give either this or `count`.
    #[serde(default)]
    pub duration: Option<f64>,
    /// The number of measured requests. Give either this or `duration`.
    #[serde(default)]
    pub count: Option<u64>,
    /// The requests that are sent before the measurement.
    #[serde(default)]
    pub warmup: Warmup,
    /// The TLS settings; `None`: no TLS.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// The version of HTTP in which requests are sent.
    #[serde(default)]
    pub version: Version,
    /// The number of requests that one connection serves.
    #[serde(default)]
    pub keep_alive: KeepAlive,
    /// The time limit of a request in seconds, from its assignment to a connection.
    #[serde(default = "thirty")]
    pub timeout: f64,
    /// The run ends if no connection could be opened for this many seconds; `None`: never.
    #[serde(default = "five")]
    pub patience: Option<f64>,
    /// The seed of all random choices: the order, the arrivals and the think times.
    #[serde(default)]
    pub seed: u64,
    /// The rule by which the next request is chosen.
    #[serde(default)]
    pub order: Order,
    /// The requests to choose from.
    pub requests: Vec<Request>,
    /// The checks of the responses to requests without checks of their own.
    #[serde(default)]
    pub checks: Checks,
    /// The time in seconds since 1970 at which the process that runs the generator starts it; `None`: at once.
    #[serde(default)]
    pub start_at: Option<f64>,
    /// The length of an interval of the time series, in seconds.
    #[serde(default = "one")]
    pub interval: f64,
    /// The number of seconds after which the process that runs the generator reports progress again.
    #[serde(default = "quarter")]
    pub progress: f64,
}

/// The address of the server: one or more TCP addresses, used in turn, or a Unix socket.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The value of the Host field: `uri-host [":" port]` (RFC 9110 section 7.2).
    pub host: String,
    /// The TCP addresses, used in turn; empty for a Unix socket.
    #[serde(default)]
    pub addresses: Vec<SocketAddr>,
    /// A path, or `@` and a name in Linux's abstract namespace.
    #[serde(default)]
    pub unix: Option<String>,
}

/// The load model: the rule that determines when requests are sent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Model {
    /// A number of users, each with a connection, send the next request after the response to the last one.
    Closed(Closed),
    /// Requests are sent on a schedule, independent of the responses.
    Open(Open),
}

/// The parameters of the closed model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Closed {
    /// The number of users, each with a connection.
    pub connections: usize,
    /// The maximum number of unanswered requests on a connection.
    #[serde(default = "one_request")]
    pub pipeline: usize,
    /// The number of seconds between a response and the next request.
    #[serde(default)]
    pub think: f64,
    /// The distribution of think times.
    #[serde(default)]
    pub thinking: Thinking,
}

/// The distribution of think times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// All think times are equal.
    #[default]
    Constant,
    /// Think times are exponentially distributed.
    Exponential,
}

/// The parameters of the open model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// The number of requests per second at the start.
    #[serde(default)]
    pub rate: f64,
    /// The consecutive changes of the rate.
    #[serde(default)]
    pub stages: Vec<RateStage>,
    /// The distribution of arrivals.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// The fraction of an interval by which constant arrivals are shifted, from 0 to below 1.
    #[serde(default)]
    pub phase: f64,
    /// The time at which each request is due, in seconds, and its index. Replaces the rate.
    #[serde(default)]
    pub schedule: Option<Vec<(f64, usize)>>,
    /// The number of connections opened at the start.
    #[serde(default)]
    pub connections: usize,
    /// The maximum number of open connections.
    #[serde(default = "thousand")]
    pub max_connections: usize,
    /// The number of unanswered requests per connection. A due request is sent on the open connection with the fewest,
    /// if that has fewer than this number; otherwise a new connection is opened.
    #[serde(default = "one_request")]
    pub pipeline: usize,
    /// The maximum number of requests that wait for a connection. Further ones are dropped.
    #[serde(default = "hundred_thousand")]
    pub max_waiting: usize,
    /// The number of seconds that a request may wait for a connection; `None`: the timeout.
    #[serde(default)]
    pub max_wait: Option<f64>,
}

/// A linear change of the open model's rate.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RateStage {
    /// The duration of the change in seconds; 0: the rate changes at once.
    pub seconds: f64,
    /// The number of requests per second at the end of the change.
    pub rate: f64,
}

/// The distribution of arrivals in the open model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Arrivals at equal intervals.
    #[default]
    Constant,
    /// Independent arrivals (a Poisson process), like those of many users.
    Poisson,
}

/// The requests that are sent before the measurement, and are not measured.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Warmup {
    /// All requests within this many seconds.
    Seconds(f64),
    /// The first requests, by number.
    Requests(u64),
}

impl Default for Warmup {
    fn default() -> Self {
        Self::Requests(0)
    }
}

/// The TLS settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The name or address that the server's certificate must have.
    pub name: String,
    /// The certificates of the trusted authorities in PEM; `None`: any certificate is accepted.
    #[serde(default)]
    pub roots: Option<String>,
}

/// The version of HTTP in which requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Version {
    /// HTTP/1.0, which `ab` uses.
    #[serde(rename = "1.0")]
    Http10,
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "1.1")]
    Http11,
    /// HTTP/2, negotiated by ALPN with TLS, and by prior knowledge without TLS.
    #[serde(rename = "2")]
    Http2,
}

/// The number of requests that one connection serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum KeepAlive {
    /// True: as many as the server allows. False: one.
    Switch(bool),
    /// At most this many.
    Requests(u64),
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self::Switch(true)
    }
}

impl KeepAlive {
    /// Returns the maximum number of requests on one connection.
    #[must_use]
    pub fn requests(self) -> u64 {
        match self {
            Self::Switch(true) => u64::MAX,
            Self::Switch(false) => 1,
            Self::Requests(count) => count,
        }
    }
}

/// The rule by which the next request is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The requests in their order, repeatedly.
    #[default]
    Turn,
    /// A random request, by weight.
    Random,
}

/// A request of the plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The method, a token.
    #[serde(default = "get")]
    pub method: String,
    /// The request target, usually a path with a query.
    pub path: String,
    /// The header fields, in the order in which they are sent.
    #[serde(default)]
    pub fields: Vec<(String, String)>,
    /// The body in base64; `None`: no body.
    #[serde(default)]
    pub body: Option<String>,
    /// True to send the body with the chunked transfer coding, without a declared length.
    #[serde(default)]
    pub chunked: bool,
    /// The relative frequency with which the request is chosen at random.
    #[serde(default = "one_weight")]
    pub weight: u32,
    /// Checks that replace those of the plan.
    #[serde(default)]
    pub checks: Option<Checks>,
}

/// The checks that a response must pass.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Checks {
    /// The accepted status codes; empty: any.
    #[serde(default = "no_errors")]
    pub status: Vec<StatusRange>,
    /// The length of the decoded body in bytes.
    #[serde(default)]
    pub length: Option<Expected<u64>>,
    /// The SHA-256 hash of the decoded body, in hex.
    #[serde(default)]
    pub sha256: Option<Expected<String>>,
}

impl Default for Checks {
    fn default() -> Self {
        Self { status: no_errors(), length: None, sha256: None }
    }
}

/// One or several accepted status codes.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum StatusRange {
    /// One status code.
    One(u16),
    /// A range of status codes, both ends included.
    Range(u16, u16),
}

impl StatusRange {
    /// Returns true if `status` is in the range.
    #[must_use]
    pub fn contains(self, status: u16) -> bool {
        match self {
            Self::One(only) => status == only,
            Self::Range(first, last) => (first..=last).contains(&status),
        }
    }
}

/// The expected value: a given one, or that of the first response to the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Expected<T> {
    /// The word `"first"`.
    First(First),
    /// A given value.
    Given(T),
}

/// The word `"first"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum First {
    /// The value of the first response to the same request.
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

/// The error for an invalid plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The place of the error in the plan; empty if the text is not valid JSON or does not match the keys.
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
    /// The upper limit for connections, for requests on one, and for waiting requests. It bounds their memory.
    const MOST: usize = 1_000_000;
    /// The upper limit for the number of intervals in a time series.
    const MOST_INTERVALS: f64 = 1e6;
    /// The upper limit for times: a year, in seconds.
    const LONGEST: f64 = 31_536_000.0;

    /// Parses and checks a plan.
    ///
    /// # Errors
    /// The place and the problem, if the plan is invalid.
    pub fn read(json: &str) -> Result<Self, PlanError> {
        let plan: Self = serde_json::from_str(json).map_err(|error| PlanError::at(String::new(), error.to_string()))?;
        plan.check()?;
        Ok(plan)
    }

    /// Checks the numbers of the plan. The requests are checked when they are serialized.
    ///
    /// # Errors
    /// The place and the problem, if the plan is invalid.
    pub fn check(&self) -> Result<(), PlanError> {
        let wrong = |place: &str, problem: &str| Err(PlanError::at(place.to_owned(), problem.to_owned()));
        // `contains` is false for NaN.
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

    /// Checks the schedule or the rates of the open model.
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

/// Converts seconds to nanoseconds; negative values become 0.
#[must_use]
pub(crate) fn nanos(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX).as_nanos()).unwrap_or(u64::MAX)
}

/// Converts nanoseconds to seconds.
#[must_use]
pub(crate) fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
