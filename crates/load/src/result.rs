//! What was measured, as JSON.
//!
//! Times are seconds, and values within histograms nanoseconds. All counts but those of `discarded`, `series` and
//! `connections` are of *measured* requests: those that were to be sent (open) or were begun (closed) within the
//! window, which begins after the warm-up.
//!
//! ```text
//! {
//!   "ended": "complete",          or "interrupted" (a signal), "stopped" (progress said so), "unreachable" (patience)
//!   "started": 1700000000.0,      since 1970
//!   "finished": 1700000012.0,
//!   "window": {"from": 2.0, "seconds": 10.0},   from the start; up to its planned end, or the last measured answer
//!   "answered": 100000,           responses that came within the window, whole and well-formed, whatever they said
//!   "rate": 10000.0,              the same a second
//!   "requests": 100000,           = ok + failed + dropped
//!   "ok": 99990,
//!   "failed": 8,                  by the classes of `errors`
//!   "dropped": 2,                 never sent, for want of a connection (open)
//!   "unfinished": 0,              under way when the run was interrupted; counted nowhere else
//!   "late": 20,                   sent more than 1 ms after they were to be (open)
//!   "late_by_generator": 1,       ... because the generator itself did not come to it (open)
//!   "resent": 0,                  put on another connection, as the server closed the first in an orderly way before
//!                                 it came to them (pipelined)
//!   "discarded": {"requests": 1000, "failed": 0},    of the warm-up
//!   "connections": {"opened": 64, "failed": 0, "closed_idle": 0},      of the whole run
//!   "errors": [{"class": "malformed", "detail": "StatusLineMalformed", "count": 1, "at": 3.1, "request": 0,
//!               "example": "The status line is malformed: GET /, after 0 answers on the connection; it came b\"...\""}],
//!   "statuses": {"200": 99990, "500": 7},
//!   "bytes": {"received": 1, "sent": 1,           through sockets, within the window
//!             "heads": 1, "bodies": 1},           of measured responses; bodies decoded
//!   "latency": {...}, "service": {...}, "first_byte": {...},     of those that are ok (see below)
//!   "failed_latency": {...},      of those failed and dropped, from when they were to be sent to the failure
//!   "connect": {...},             of connections opened within the window
//!   "lag": {...},                 by how much the generator came late to an arrival (open)
//!   "series": [{"at": 0.0, "seconds": 1.0, "warmup": false, "answered": 100, "failed": 0, "dropped": 0, "late": 0,
//!               "received": 1, "p50": 0.001, "p99": 0.002, "max": 0.003, "latency": "HISTF..."}],   null if none was ok
//!   "processor": {"used": 1.2,          seconds of it, of the generator's thread, within the window
//!                 "starved": 0.1,       for which it could have run and others did; null where the system does not say
//!                 "idle": 8.7},         for which it waited for sockets or the time
//!   "samples": [{"request": 0, "status": 200, "head": "HTTP/1.1 200 OK\r\n...", "length": 12, "sha256": "..."}]
//! }
//! ```
//!
//! A set of times is `{"count": 1, "min": 0.1, "mean": 0.1, "sd": 0.0, "max": 0.1, "histogram": "HISTF..."}`: the figures
//! are exact (sd that of the population), and null where there is none; the histogram is HdrHistogram's V2, compressed,
//! in base64, up to 1 h with 3 digits.
//!
//! `latency` and `failed_latency` together are all requests that were sent or should have been.
//!
//! # Classes of errors
//!
//! | class | detail | |
//! |---|---|---|
//! | `refused` | | nobody listens |
//! | `connect` | the error's name | opening a connection failed in another way |
//! | `local` | the error's name | this machine gave no socket: descriptors, ports |
//! | `reset` | | the connection broke |
//! | `unanswered` | | the server closed the connection before any byte of the answer |
//! | `closed_early` | | the response ended early |
//! | `timeout` | `connect`, `head`, `body` | what was waited for |
//! | `malformed` | the rule's name, as `wire` knows it | the server broke HTTP |
//! | `status` | the status | not one of those expected |
//! | `length` | | not the body's length that was expected |
//! | `hash` | | not the body that was expected |

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Measured {
    /// Why it is over.
    pub ended: Ended,
    /// Seconds since 1970.
    pub started: f64,
    /// Seconds since 1970.
    pub finished: f64,
    /// When was measured.
    pub window: Window,
    /// Responses that came within the window.
    pub answered: u64,
    /// The same a second.
    pub rate: f64,
    /// Measured.
    pub requests: u64,
    /// Of these, answered as expected.
    pub ok: u64,
    /// Of these, not.
    pub failed: u64,
    /// Of these, never sent.
    pub dropped: u64,
    /// Under way when the run was interrupted.
    pub unfinished: u64,
    /// Sent late.
    pub late: u64,
    /// Sent late because the generator came late.
    pub late_by_generator: u64,
    /// Put on another connection.
    pub resent: u64,
    /// The warm-up.
    pub discarded: Discarded,
    /// Of the whole run.
    pub connections: Connections,
    /// One entry for each class and detail, in order of these.
    pub errors: Vec<Error>,
    /// Of whole responses, by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Traffic.
    pub bytes: Bytes,
    /// From when a request was to be sent to the last byte of its response.
    pub latency: Times,
    /// From when it was sent to the last byte of its response.
    pub service: Times,
    /// From when it was sent to the first byte of its response.
    pub first_byte: Times,
    /// As latency, of those that failed.
    pub failed_latency: Times,
    /// Opening a connection.
    pub connect: Times,
    /// By how much the generator came late to an arrival.
    pub lag: Times,
    /// The time series.
    pub series: Vec<Interval>,
    /// What the generator took.
    pub processor: Processor,
    /// The first response to each request.
    pub samples: Vec<Sample>,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// As planned.
    Complete,
    /// By a signal.
    Interrupted,
    /// By whoever followed the progress.
    Stopped,
    /// No connection could be opened for as long as patience lasts.
    Unreachable,
}

/// When was measured.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Window {
    /// Seconds from the start.
    pub from: f64,
    /// How long.
    pub seconds: f64,
}

/// What the warm-up sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Discarded {
    /// All of them.
    pub requests: u64,
    /// Failed or dropped.
    pub failed: u64,
}

/// Connections of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Connections {
    /// As said.
    pub opened: u64,
    /// Could not be opened.
    pub failed: u64,
    /// Closed by the server while nothing was under way, which is its right.
    pub closed_idle: u64,
}

/// What went wrong, in one way.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Error {
    /// See the table above.
    pub class: String,
    /// May be empty.
    pub detail: String,
    /// How often.
    pub count: u64,
    /// When it first did, in seconds from the start.
    pub at: f64,
    /// The index of the request to which it first did.
    pub request: usize,
    /// The first, told.
    pub example: String,
}

/// Traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Bytes {
    /// Through sockets, within the window.
    pub received: u64,
    /// Through sockets, within the window.
    pub sent: u64,
    /// Status lines and fields of measured responses, interim ones too.
    pub heads: u64,
    /// Decoded bodies of measured responses.
    pub bodies: u64,
}

/// A set of times.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min: Option<f64>,
    /// Exact.
    pub mean: Option<f64>,
    /// The standard deviation.
    pub sd: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
    /// HdrHistogram V2, compressed, base64.
    pub histogram: String,
}

/// One interval of the time series: by when a response ended. The first begins with the run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Interval {
    /// Seconds from the start.
    pub at: f64,
    /// The last one may be shorter.
    pub seconds: f64,
    /// Whether it began before the window.
    pub warmup: bool,
    /// Whole and well-formed responses.
    pub answered: u64,
    /// Requests.
    pub failed: u64,
    /// Requests.
    pub dropped: u64,
    /// Requests.
    pub late: u64,
    /// Bytes.
    pub received: u64,
    /// Of latency.
    pub p50: Option<f64>,
    /// Of latency.
    pub p99: Option<f64>,
    /// Of latency.
    pub max: Option<f64>,
    /// HdrHistogram V2 of those that are ok; none if there are none.
    pub latency: Option<String>,
}

/// What the generator took, within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Processor {
    /// Seconds of processor time of its thread.
    pub used: f64,
    /// Seconds for which it could have run and others did.
    pub starved: Option<f64>,
    /// Seconds for which it waited.
    pub idle: f64,
}

/// The first response to a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sample {
    /// Its index.
    pub request: usize,
    /// Of the response.
    pub status: u16,
    /// Status line and fields, as Latin-1.
    pub head: String,
    /// Bytes of the decoded body.
    pub length: u64,
    /// Of the decoded body.
    pub sha256: String,
}

/// What is told while it runs.
///
/// ```text
/// {"elapsed": 1.5, "phase": "warmup", "answered": 15000, "failed": 0, "dropped": 0, "late": 0, "active": 64,
///  "waiting": 0, "received": 1, "latest": {an interval as above: what came since the last report}}
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Progress {
    /// Seconds since the start.
    pub elapsed: f64,
    /// What is being done.
    pub phase: Phase,
    /// So far, with the warm-up.
    pub answered: u64,
    /// So far, with the warm-up.
    pub failed: u64,
    /// So far, with the warm-up.
    pub dropped: u64,
    /// So far, with the warm-up.
    pub late: u64,
    /// Requests under way.
    pub active: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Bytes so far.
    pub received: u64,
    /// What came since the last report.
    pub latest: Interval,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Sending what is not measured.
    Warmup,
    /// Sending what is.
    Measuring,
    /// Waiting for the last answers.
    Draining,
}
