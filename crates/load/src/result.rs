//! The result of a measurement, as JSON.
//!
//! Times are in seconds, and values within histograms in nanoseconds. All counts except those of `discarded`, `series`
//! and `connections` are of *measured* requests: those that were due (open model) or begun (closed model) within the
//! window, which begins after the warm-up.
//!
//! ```text
//! {
//!   "ended": "complete",          or "interrupted" (a signal), "stopped" (by the observer), "unreachable" (patience)
//!   "started": 1700000000.0,      seconds since 1970
//!   "finished": 1700000012.0,
//!   "window": {"from": 2.0, "seconds": 10.0},   from the start; to its planned end or the last measured response
//!   "answered": 100000,           whole and well-formed responses that ended within the window, with any status
//!   "rate": 10000.0,              `answered` per second
//!   "requests": 100000,           = ok + failed + dropped
//!   "ok": 99990,
//!   "failed": 8,                  classified in `errors`
//!   "dropped": 2,                 never sent, for lack of a connection (open)
//!   "unfinished": 0,              unanswered when the run was interrupted; in no other count
//!   "late": 20,                   sent more than 1 ms after they were due (open)
//!   "late_by_generator": 1,       ... because the generator itself was late (open)
//!   "resent": 0,                  sent on another connection, because the server properly closed the first one
//!                                 before it answered them (pipelining), or refused them (HTTP/2)
//!   "discarded": {"requests": 1000, "failed": 0},    of the warm-up
//!   "connections": {"opened": 64, "failed": 0, "closed_idle": 0},      of the whole run
//!   "errors": [{"class": "malformed", "detail": "StatusLineMalformed", "count": 1, "at": 3.1, "request": 0,
//!               "example": "The status line is malformed: GET /, after 0 answers..."}],
//!   "statuses": {"200": 99990, "500": 7},
//!   "bytes": {"received": 1, "sent": 1,           on sockets, within the window
//!             "heads": 1, "bodies": 1},           of measured responses; bodies decoded
//!   "latency": {...}, "service": {...}, "first_byte": {...},     of requests that are ok (see below)
//!   "failed_latency": {...},      of failed and dropped requests, from when they were due
//!   "connect": {...},             of connections opened within the window
//!   "lag": {...},                 how late the generator noticed an arrival (open)
//!   "series": [{"at": 0.0, "seconds": 1.0, "warmup": false, "answered": 100, "failed": 0, "dropped": 0, "late": 0,
//!               "received": 1, "p50": 0.001, "p99": 0.002, "max": 0.003, "latency": "HISTF..."}],   null if none is ok
//!   "processor": {"used": 1.2,          processor seconds of the generator's thread, in the window
//!                 "starved": 0.1,       runnable without a processor; null if the system does not report it
//!                 "idle": 8.7},         waiting for sockets or the time
//!   "samples": [{"request": 0, "status": 200, "head": "HTTP/1.1 200 OK\r\n...", "length": 12, "sha256": "..."}]
//! }
//! ```
//!
//! A set of times is `{"count": 1, "min": 0.1, "mean": 0.1, "sd": 0.0, "max": 0.1, "histogram": "HISTF..."}`. The
//! numbers are exact (`sd` is the population standard deviation), and null if there are no times. The histogram has
//! HdrHistogram's format V2, compressed, in base64, up to 1 h with 3 digits.
//!
//! `latency` and `failed_latency` together contain every request that was or should have been sent.
//!
//! # Classes of errors
//!
//! | class | detail | |
//! |---|---|---|
//! | `refused` | | the connection was refused |
//! | `connect` | the error's name | opening a connection failed in another way |
//! | `local` | the error's name | this machine had no descriptors or ports left |
//! | `tls` | `certificate`, `alert`, `protocol`, `alpn` | the TLS handshake failed |
//! | `reset` | | the connection broke |
//! | `stream` | the code's name | the server reset the stream (HTTP/2) |
//! | `goaway` | the code's name | the server ended the connection with an error (HTTP/2) |
//! | `unanswered` | | the server closed the connection before any byte of the answer |
//! | `closed_early` | | the response ended early |
//! | `timeout` | `connect`, `head`, `body` | the part that the detail names was not in time |
//! | `malformed` | the name of the rule in `wire` | the server violated HTTP |
//! | `status` | the status | an unexpected status |
//! | `length` | | an unexpected length of the body |
//! | `hash` | | an unexpected body |

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Measured {
    /// The reason why the run ended.
    pub ended: Ended,
    /// The start of the run, in seconds since 1970.
    pub started: f64,
    /// The end of the run, in seconds since 1970.
    pub finished: f64,
    /// The time span of the measurement.
    pub window: Window,
    /// The number of whole and well-formed responses within the window, with any status.
    pub answered: u64,
    /// The number of `answered` per second.
    pub rate: f64,
    /// The number of measured requests: the sum of `ok`, `failed` and `dropped`.
    pub requests: u64,
    /// The number of measured requests that got the expected response.
    pub ok: u64,
    /// The number of measured requests that failed.
    pub failed: u64,
    /// The number of measured requests that were never sent.
    pub dropped: u64,
    /// The number of requests without a response when the run was interrupted.
    pub unfinished: u64,
    /// The number of requests that were sent late.
    pub late: u64,
    /// The number of requests that were sent late because the generator itself was late.
    pub late_by_generator: u64,
    /// The number of requests that were moved to another connection.
    pub resent: u64,
    /// The counts of the warm-up.
    pub discarded: Discarded,
    /// The counts of connections in the whole run.
    pub connections: Connections,
    /// The failures, one entry for each class and detail, sorted.
    pub errors: Vec<Error>,
    /// The number of whole responses by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// The numbers of bytes transferred.
    pub bytes: Bytes,
    /// The times from when a request was due to the last byte of its response.
    pub latency: Times,
    /// The times from when a request was sent to the last byte of its response.
    pub service: Times,
    /// The times from when a request was sent to the first byte of its response.
    pub first_byte: Times,
    /// The times from when a failed or dropped request was due to its failure.
    pub failed_latency: Times,
    /// The times for opening a connection.
    pub connect: Times,
    /// The times between an arrival and its notice by the generator.
    pub lag: Times,
    /// The intervals of the time series.
    pub series: Vec<Interval>,
    /// The processor time that the generator used.
    pub processor: Processor,
    /// The first response to each request of the plan.
    pub samples: Vec<Sample>,
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// The plan was executed completely.
    Complete,
    /// A signal interrupted the run.
    Interrupted,
    /// The observer of the progress stopped the run.
    Stopped,
    /// No connection could be opened within the plan's `patience`.
    Unreachable,
}

/// The time span of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Window {
    /// The beginning of the measurement, in seconds from the start of the run.
    pub from: f64,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The counts of the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Discarded {
    /// The number of requests sent.
    pub requests: u64,
    /// The number of requests that failed or were dropped.
    pub failed: u64,
}

/// The counts of connections in the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Connections {
    /// The number of opened connections.
    pub opened: u64,
    /// The number of connections that could not be opened.
    pub failed: u64,
    /// The number of connections that the server closed while they were idle, which is allowed.
    pub closed_idle: u64,
}

/// The failures of one class and detail.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Error {
    /// The class; see the table in the module documentation.
    pub class: String,
    /// The detail; empty for classes without details.
    pub detail: String,
    /// The number of these failures.
    pub count: u64,
    /// The time of the first one, in seconds from the start.
    pub at: f64,
    /// The index of the request of the first one.
    pub request: usize,
    /// A description of the first one.
    pub example: String,
}

/// The numbers of bytes transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Bytes {
    /// The number of bytes received from sockets within the window.
    pub received: u64,
    /// The number of bytes sent to sockets within the window.
    pub sent: u64,
    /// The number of bytes of the heads of measured responses, including interim responses.
    pub heads: u64,
    /// The number of bytes of the decoded bodies of measured responses.
    pub bodies: u64,
}

/// A summary and a histogram of a set of times, in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Times {
    /// The number of times.
    pub count: u64,
    /// The exact shortest time.
    pub min: Option<f64>,
    /// The exact mean.
    pub mean: Option<f64>,
    /// The exact population standard deviation.
    pub sd: Option<f64>,
    /// The exact longest time.
    pub max: Option<f64>,
    /// The histogram in HdrHistogram's format V2, compressed, in base64.
    pub histogram: String,
}

/// One interval of the time series. A response is counted in the interval in which it ended. The first interval begins
/// with the run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Interval {
    /// The beginning, in seconds from the start.
    pub at: f64,
    /// The length in seconds. The last interval may be shorter.
    pub seconds: f64,
    /// True if the interval began before the window.
    pub warmup: bool,
    /// The number of whole and well-formed responses.
    pub answered: u64,
    /// The number of failed requests.
    pub failed: u64,
    /// The number of dropped requests.
    pub dropped: u64,
    /// The number of requests that were sent late.
    pub late: u64,
    /// The number of bytes received.
    pub received: u64,
    /// The median latency in seconds.
    pub p50: Option<f64>,
    /// The 99th percentile of the latency in seconds.
    pub p99: Option<f64>,
    /// The maximum latency in seconds.
    pub max: Option<f64>,
    /// The histogram (V2) of the latency of successful requests; `None` if there are none.
    pub latency: Option<String>,
}

/// The processor time of the generator's thread within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Processor {
    /// The number of seconds of processor time used.
    pub used: f64,
    /// The number of seconds for which the thread was runnable but waited for a processor; `None` if unknown.
    pub starved: Option<f64>,
    /// The number of seconds for which the thread waited for sockets or the time.
    pub idle: f64,
}

/// The first response to a request of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sample {
    /// The index of the request.
    pub request: usize,
    /// The status of the response.
    pub status: u16,
    /// The status line and the fields, decoded as Latin-1.
    pub head: String,
    /// The length of the decoded body in bytes.
    pub length: u64,
    /// The SHA-256 hash of the decoded body, in hex.
    pub sha256: String,
}

/// The progress of a run.
///
/// ```text
/// {"elapsed": 1.5, "phase": "warmup", "answered": 15000, "failed": 0, "dropped": 0, "late": 0, "active": 64,
///  "waiting": 0, "received": 1, "latest": {an interval as above, since the last report}}
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Progress {
    /// The number of seconds since the start.
    pub elapsed: f64,
    /// The current phase.
    pub phase: Phase,
    /// The number of answered requests so far, including the warm-up.
    pub answered: u64,
    /// The number of failed requests so far, including the warm-up.
    pub failed: u64,
    /// The number of dropped requests so far, including the warm-up.
    pub dropped: u64,
    /// The number of late requests so far, including the warm-up.
    pub late: u64,
    /// The number of requests without a response.
    pub active: usize,
    /// The number of requests that wait for a connection.
    pub waiting: usize,
    /// The number of bytes received so far.
    pub received: u64,
    /// The counts since the last report.
    pub latest: Interval,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Requests are sent, but not measured.
    Warmup,
    /// Requests are sent and measured.
    Measuring,
    /// No more requests are sent; the last responses are awaited.
    Draining,
}
