//! The result of a measurement, as JSON.
//!
//! Times are seconds, and values within histograms nanoseconds. All counts except those of `discarded`, `series` and
//! `connections` are of *measured* requests: the requests that were to be sent (open) or were begun (closed) within the
//! window, which begins after the warm-up.
//!
//! ```text
//! {
//!   "ended": "complete",          or "interrupted" (a signal), "stopped" (by the observer), "unreachable" (patience)
//!   "started": 1700000000.0,      since 1970
//!   "finished": 1700000012.0,
//!   "window": {"from": 2.0, "seconds": 10.0},   from the start; up to its planned end, or the last measured answer
//!   "answered": 100000,           responses that ended within the window, whole and well-formed, whatever their status
//!   "rate": 10000.0,              the same per second
//!   "requests": 100000,           = ok + failed + dropped
//!   "ok": 99990,
//!   "failed": 8,                  by the classes of `errors`
//!   "dropped": 2,                 never sent, for lack of a connection (open)
//!   "unfinished": 0,              unanswered when the run was interrupted; counted nowhere else
//!   "late": 20,                   sent more than 1 ms after they were due (open)
//!   "late_by_generator": 1,       ... because the generator itself was late (open)
//!   "resent": 0,                  put on another connection, because the server closed the first one in order before
//!                                 answering them (pipelined), or refused them (HTTP/2)
//!   "discarded": {"requests": 1000, "failed": 0},    of the warm-up
//!   "connections": {"opened": 64, "failed": 0, "closed_idle": 0},      of the whole run
//!   "errors": [{"class": "malformed", "detail": "StatusLineMalformed", "count": 1, "at": 3.1, "request": 0,
//!               "example": "The status line is malformed: GET /, after 0 answers on the connection; it came
//! b\"...\""}],
//!   "statuses": {"200": 99990, "500": 7},
//!   "bytes": {"received": 1, "sent": 1,           through sockets, within the window
//!             "heads": 1, "bodies": 1},           of measured responses; bodies decoded
//!   "latency": {...}, "service": {...}, "first_byte": {...},     of those that are ok (see below)
//!   "failed_latency": {...},      of those failed and dropped, from when they were due to the failure
//!   "connect": {...},             of connections opened within the window
//!   "lag": {...},                 how late the generator noticed an arrival (open)
//!   "series": [{"at": 0.0, "seconds": 1.0, "warmup": false, "answered": 100, "failed": 0, "dropped": 0, "late": 0,
//!               "received": 1, "p50": 0.001, "p99": 0.002, "max": 0.003, "latency": "HISTF..."}],   null if none was
//! ok
//!   "processor": {"used": 1.2,          seconds of it, of the generator's thread, within the window
//!                 "starved": 0.1,       runnable without a processor; null if the system does not report it
//!                 "idle": 8.7},         for which it waited for sockets or the time
//!   "samples": [{"request": 0, "status": 200, "head": "HTTP/1.1 200 OK\r\n...", "length": 12, "sha256": "..."}]
//! }
//! ```
//!
//! A set of times is `{"count": 1, "min": 0.1, "mean": 0.1, "sd": 0.0, "max": 0.1, "histogram": "HISTF..."}`: the
//! values are exact (`sd` is the standard deviation of the population), and null if there are no times. The histogram
//! is HdrHistogram's V2, compressed, in base64, up to 1 h with 3 digits.
//!
//! `latency` and `failed_latency` together are all requests that were sent or should have been.
//!
//! # Classes of errors
//!
//! | class | detail | |
//! |---|---|---|
//! | `refused` | | the connection was refused |
//! | `connect` | the error's name | opening a connection failed in another way |
//! | `local` | the error's name | this machine had no socket left: descriptors, ports |
//! | `tls` | `certificate`, `alert`, `protocol`, `alpn` | the handshake of TLS failed |
//! | `reset` | | the connection broke |
//! | `stream` | the code's name | the server reset the stream (HTTP/2) |
//! | `goaway` | the code's name | the server ended the connection with an error (HTTP/2) |
//! | `unanswered` | | the server closed the connection before any byte of the answer |
//! | `closed_early` | | the response ended early |
//! | `timeout` | `connect`, `head`, `body` | the part in the detail did not come in time |
//! | `malformed` | the rule's name, as `wire` knows it | the server broke HTTP |
//! | `status` | the status | not one of those expected |
//! | `length` | | not the body's length that was expected |
//! | `hash` | | not the body that was expected |

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Measured {
    /// The reason why the run ended.
    pub ended: Ended,
    /// Seconds since 1970.
    pub started: f64,
    /// Seconds since 1970.
    pub finished: f64,
    /// When the measurement took place.
    pub window: Window,
    /// The number of whole and well-formed responses within the window, with any status.
    pub answered: u64,
    /// `answered` per second.
    pub rate: f64,
    /// Measured requests: `ok`, `failed` and `dropped` together.
    pub requests: u64,
    /// Measured requests that were answered as expected.
    pub ok: u64,
    /// Measured requests that failed.
    pub failed: u64,
    /// Measured requests that were never sent.
    pub dropped: u64,
    /// Requests without an answer when the run was interrupted.
    pub unfinished: u64,
    /// Requests sent late.
    pub late: u64,
    /// Requests sent late because the generator itself was late.
    pub late_by_generator: u64,
    /// Requests moved to another connection.
    pub resent: u64,
    /// Counts of the warm-up.
    pub discarded: Discarded,
    /// Counts of connections, of the whole run.
    pub connections: Connections,
    /// One entry for each class and detail, sorted by these.
    pub errors: Vec<Error>,
    /// Number of whole responses by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Traffic.
    pub bytes: Bytes,
    /// From when a request was due to the last byte of its response.
    pub latency: Times,
    /// From when a request was sent to the last byte of its response.
    pub service: Times,
    /// From when a request was sent to the first byte of its response.
    pub first_byte: Times,
    /// As `latency`, of requests that failed.
    pub failed_latency: Times,
    /// Time to open a connection.
    pub connect: Times,
    /// The delays after which the generator noticed an arrival.
    pub lag: Times,
    /// The time series.
    pub series: Vec<Interval>,
    /// Resources that the generator used.
    pub processor: Processor,
    /// The first response to each request.
    pub samples: Vec<Sample>,
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// The plan was carried out.
    Complete,
    /// A signal interrupted it.
    Interrupted,
    /// The observer of the progress stopped it.
    Stopped,
    /// No connection could be opened within the plan's `patience`.
    Unreachable,
}

/// When the measurement took place.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Window {
    /// Seconds from the start.
    pub from: f64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Counts of the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Discarded {
    /// Requests sent.
    pub requests: u64,
    /// Requests that failed or were dropped.
    pub failed: u64,
}

/// Connections of the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Connections {
    /// Opened connections.
    pub opened: u64,
    /// Connections that could not be opened.
    pub failed: u64,
    /// Connections that the server closed while they were idle, as it may.
    pub closed_idle: u64,
}

/// One kind of failure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Error {
    /// The class; see the table above.
    pub class: String,
    /// The detail; may be empty.
    pub detail: String,
    /// Number of failures of this kind.
    pub count: u64,
    /// When the first one occurred, in seconds from the start.
    pub at: f64,
    /// Index of the request of the first one.
    pub request: usize,
    /// Description of the first one.
    pub example: String,
}

/// Traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Bytes {
    /// Bytes received through sockets within the window.
    pub received: u64,
    /// Bytes sent through sockets within the window.
    pub sent: u64,
    /// Bytes of status lines and fields of measured responses, including interim ones.
    pub heads: u64,
    /// Bytes of decoded bodies of measured responses.
    pub bodies: u64,
}

/// Summary and histogram of a set of times.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Times {
    /// Number of times.
    pub count: u64,
    /// The shortest time.
    pub min: Option<f64>,
    /// The exact mean.
    pub mean: Option<f64>,
    /// The standard deviation.
    pub sd: Option<f64>,
    /// The longest time.
    pub max: Option<f64>,
    /// The histogram in HdrHistogram's V2, compressed, in base64.
    pub histogram: String,
}

/// One interval of the time series; responses count for the interval in which they ended. The first begins with the
/// run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Interval {
    /// Begin, in seconds from the start.
    pub at: f64,
    /// Length in seconds; the last one may be shorter.
    pub seconds: f64,
    /// True if the interval began before the window.
    pub warmup: bool,
    /// Number of whole and well-formed responses.
    pub answered: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of dropped requests.
    pub dropped: u64,
    /// Number of late requests.
    pub late: u64,
    /// Bytes received.
    pub received: u64,
    /// Median of latency.
    pub p50: Option<f64>,
    /// 99th percentile of latency.
    pub p99: Option<f64>,
    /// Maximum of latency.
    pub max: Option<f64>,
    /// Histogram (V2) of the latency of requests that are ok; `None` if there are none.
    pub latency: Option<String>,
}

/// Resources that the generator used within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Processor {
    /// Seconds of processor time of its thread.
    pub used: f64,
    /// Seconds for which it was runnable without a processor.
    pub starved: Option<f64>,
    /// Seconds for which it waited.
    pub idle: f64,
}

/// The first response to a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sample {
    /// Index of the request.
    pub request: usize,
    /// Status of the response.
    pub status: u16,
    /// Status line and fields, as Latin-1.
    pub head: String,
    /// Length of the decoded body in bytes.
    pub length: u64,
    /// SHA-256 of the decoded body.
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
    /// Seconds since the start.
    pub elapsed: f64,
    /// The phase.
    pub phase: Phase,
    /// Answered requests so far, including the warm-up.
    pub answered: u64,
    /// Failed requests so far, including the warm-up.
    pub failed: u64,
    /// Dropped requests so far, including the warm-up.
    pub dropped: u64,
    /// Late requests so far, including the warm-up.
    pub late: u64,
    /// Unanswered requests.
    pub active: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Bytes received so far.
    pub received: u64,
    /// Counts since the last report.
    pub latest: Interval,
}

/// The phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Requests are sent and not measured.
    Warmup,
    /// Requests are sent and measured.
    Measuring,
    /// The last answers are awaited.
    Draining,
}
