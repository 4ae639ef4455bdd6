//! When a connection is driven: whether the poller reports it, and in which queue it is.

/// What the poller reports of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// Nothing: a short-lived connection never needs it.
    No,
    /// Input.
    Input,
    /// Input, and that the transport takes output again.
    InputAndOutput,
    /// Nothing, for good: the application has hijacked the connection.
    NoMore,
}

/// When the connection is driven next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// When the poller reports it.
    OnEvent,
    /// When its turn in a queue of the round has come.
    Queued,
    /// When the queue of requests has room for its request: until then it is not even read.
    AwaitsRoom,
}
