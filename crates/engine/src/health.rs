//! The server's state, as its health path reports it.
//!
//! A health check is answered by the engine, before the application hears of it: by the polling thread, also
//! while all calls are out and the queue is full; and by the watchdog while no thread polls
//! ([`Engine::service_pending`](crate::Engine::service_pending)).

/// What it is told.
///
/// An orchestrator restarts a server whose liveness check fails, so being busy must not look like being dead: a restart
/// loses what is under way and leaves the others with even more to do. With all threads in calls, waiting or computing
/// for however long, the server is `saturated`, which is 200. 503 is for what a restart, or traffic going elsewhere,
/// mends: a server whose clients have waited in vain for so long that it will hardly recover by itself, and one that is
/// about to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Alive,
    /// As many calls run as may, and requests wait; or one call keeps all threads from polling, but not for long yet.
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
