//! The numbers of handshakes.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of handshakes since the process began, by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Handshakes with the certificate of the server.
    pub full: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Connections on which a client spoke HTTP without TLS.
    pub plain: u64,
}

/// The counters of handshakes, shared by the sessions.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) full: AtomicU64,
    pub(crate) resumed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) plain: AtomicU64,
}

impl Counters {
    /// Returns the numbers so far.
    pub(crate) fn counts(&self) -> HandshakeCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Self { full, resumed, failed, plain } = self;
        HandshakeCounts { full: of(full), resumed: of(resumed), failed: of(failed), plain: of(plain) }
    }
}
