//! Sessions: a protocol and its exchanges, on the link of a connection.
//!
//! A connection has a session of one of two kinds, and asks which one only in [`Session::of_kind`] and in
//! [`with_session`]: a [serial](super::serial) one has one exchange at a time, a [multiplexed](super::multiplexed) one
//! has many. What one kind does differs from what the other does, so each has its own code for it; both have the
//! methods of [`Exchanging`](super::exchanging::Exchanging).

use super::multiplexed::Multiplexed;
use super::serial::Serial;
use crate::app::App;
use crate::config::Config;
use crate::deadline::Millis;
use crate::protocol::{Kind, ProtocolKind, Protocols};

/// The session of a connection.
#[allow(clippy::large_enum_variant, reason = "the large variant is the one that most connections have")]
pub(super) enum Session<A: App> {
    Serial(Serial<A>),
    Multiplexed(Box<Multiplexed<A>>),
}

/// Evaluates an expression for the session, serial or multiplexed.
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
    /// Returns the session of a new connection of a listener of this kind.
    pub(super) fn of_kind(kind: ProtocolKind, config: &Config, now: Millis) -> Self {
        match A::Protocols::of_kind(kind) {
            Kind::Serial(protocol) => Self::Serial(Serial::new(protocol, now)),
            Kind::Multiplexed(protocol) => Self::Multiplexed(Box::new(Multiplexed::new(protocol, config, now))),
        }
    }
}
