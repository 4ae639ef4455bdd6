//! The schedule of a connection: the events that the poller reports, and the queue that the connection is in.

/// The readiness of a connection that the poller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// Nothing: a short-lived connection never needs a report.
    No,
    /// Input.
    Input,
    /// Input, and that the transport takes output again.
    InputAndOutput,
    /// Nothing, for good: the application has hijacked the connection.
    NoMore,
}

/// The occasion at which the connection is driven next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// When the poller reports it.
    OnEvent,
    /// When it is the next in a queue of the round.
    Queued,
    /// When the queue of requests has room for its request: until then the connection is not even read.
    AwaitsRoom,
}
