//! Sessions: the protocol of a connection and its exchanges.
//!
//! A connection has a session of one of two kinds: a [serial](super::serial) session has one exchange at a time, a
//! [multiplexed](super::multiplexed) session has many. Only [`Session::of_kind`] and [`with_session`] distinguish them.
//! Each kind has its own code for what differs; both have the methods of [`Exchanging`](super::exchanging::Exchanging).

use super::multiplexed::Multiplexed;
use super::serial::Serial;
use crate::app::App;
use crate::config::Config;
use crate::deadline::Millis;
use crate::protocol::{Kind, ProtocolKind, Protocols};

/// The protocol of a connection with the state of its exchanges: serial (HTTP/1, SCGI, uwsgi) or multiplexed (HTTP/2,
/// FastCGI).
#[allow(clippy::large_enum_variant, reason = "the large variant is the one that most connections have")]
pub(super) enum Session<A: App> {
    Serial(Serial<A>),
    Multiplexed(Box<Multiplexed<A>>),
}

/// Evaluates an expression for a session of either kind.
macro_rules! with_session {
    ($either:expr, $session:ident => $call:expr) => {
        match $either {
            $crate::connection::session::Session::Serial($session) => $call,
            $crate::connection::session::Session::Multiplexed($session) => $call,
        }
    };
}
pub(super) use with_session;

impl<A: App> Session<A> {
    /// Creates the session of a new connection, for a listener of this kind.
    pub(super) fn of_kind(kind: ProtocolKind, config: &Config, now: Millis) -> Self {
        match A::Protocols::of_kind(kind) {
            Kind::Serial(protocol) => Self::Serial(Serial::new(protocol, now)),
            Kind::Multiplexed(protocol) => Self::Multiplexed(Box::new(Multiplexed::new(protocol, config, now))),
        }
    }
}
