//! How the server is, for whoever asks at its health path.
//!
//! A health check is answered by the engine, before the application hears of it: by whoever turns the engine, also while
//! all calls are out and the queue is full; and by a thread of its own where nobody turns it
//! ([`Engine::service_pending`](crate::Engine::service_pending)).

/// What it is told.
///
/// An orchestrator restarts a server whose liveness check fails, so being busy must not look like being dead: a restart
/// loses what is under way and leaves the others with even more to do. With all threads in calls, waiting or computing
/// for however long, the server is `saturated`, which is 200. 503 is for what a restart, or traffic going elsewhere,
/// mends: a server that somebody has waited for in vain for so long that it will hardly come back by itself, and one
/// that is about to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Alive,
    /// As many calls run as may, and requests wait; or somebody holds up everything, but not for long yet.
    Saturated,
    /// Nobody has turned the engine for longer than [`Config::stalled_after`](crate::Config::stalled_after) although
    /// somebody waits for it.
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
