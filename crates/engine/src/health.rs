//! The server's state, which the health path reports.
//!
//! The engine answers health checks without the application. The polling thread answers them, even while all threads
//! are in calls and the queue is full; the watchdog answers them while no thread polls
//! ([`Engine::service_pending`](crate::Engine::service_pending)).

/// The state of the server in the response to a health check.
///
/// An orchestrator restarts a server whose liveness check fails, so a busy server must not look like a dead one: a
/// restart loses the requests under way and increases the load of the other servers. If all threads are in calls, no
/// matter for how long, the server is `saturated`, with status 200. Status 503 is for states that a restart or a
/// redirection of traffic repairs: a server whose clients have waited so long that it will hardly recover by itself,
/// and a server that is about to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Alive,
    /// The maximum number of calls is running and requests are waiting; or one call keeps all threads from polling, for
    /// less than [`Config::stalled_after`](crate::Config::stalled_after).
    Saturated,
    /// No thread has polled the engine for longer than [`Config::stalled_after`](crate::Config::stalled_after) although
    /// connections wait for it.
    Stalled,
    /// Each response is the last one of its connection, because the server is about to stop.
    Draining,
}

impl Health {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Health::Alive => "alive",
            Health::Saturated => "saturated",
            Health::Stalled => "stalled",
            Health::Draining => "draining",
        }
    }

    pub(crate) fn status(self) -> u16 {
        match self {
            Health::Alive | Health::Saturated => 200,
            Health::Stalled | Health::Draining => 503,
        }
    }
}
