//! The progress of an engine's stop.

use crate::deadline::Millis;

/// The progress of the engine's stop. `cut_at`: the time at which the remaining connections are cut; `Millis::MAX` for
/// never.
///
/// ```text
///   Running ─ stop ─▶ Requested ─ a round reaches the listeners ─▶ Emptying ─ its end ─▶ Finishing ─ cut_at ─▶ Cut
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    /// No stop was requested.
    Running,
    /// A stop was requested. Connections that the kernel has established are still to be accepted.
    Requested { cut_at: Millis },
    /// A round has begun to accept them.
    Emptying { cut_at: Millis },
    /// The listeners are closed; requests under way may finish. `must_hurry`: the deadlines of connections without a
    /// request have still to be shortened.
    Finishing { cut_at: Millis, must_hurry: bool },
    /// The remaining connections have been cut. Only running calls are still waited for.
    Cut,
}

impl Stopping {
    /// Returns true if a stop was requested.
    pub(super) fn is_stopping(self) -> bool {
        self != Self::Running
    }

    pub(super) fn is_cut(self) -> bool {
        self == Self::Cut
    }

    /// Returns true if the listeners are closed.
    pub(super) fn has_stopped_accepting(self) -> bool {
        matches!(self, Self::Finishing { .. } | Self::Cut)
    }

    /// Returns true if the next poll has work for the stop, whatever the time is.
    pub(super) fn needs_poll(self) -> bool {
        matches!(self, Self::Requested { .. } | Self::Emptying { .. } | Self::Finishing { must_hurry: true, .. })
    }

    /// Returns the time at which the remaining connections are cut; `Millis::MAX` for never.
    pub(super) fn cut_at(self) -> Millis {
        match self {
            Self::Requested { cut_at } | Self::Emptying { cut_at } | Self::Finishing { cut_at, .. } => cut_at,
            Self::Running | Self::Cut => Millis::MAX,
        }
    }

    /// Requests a stop, perhaps once more. `is_hastier`: connections without a request have less time than before.
    pub(super) fn request(&mut self, cut_at: Millis, is_hastier: bool) {
        *self = match *self {
            Self::Running => Self::Requested { cut_at },
            Self::Requested { cut_at: earlier } => Self::Requested { cut_at: earlier.min(cut_at) },
            Self::Emptying { cut_at: earlier } => Self::Emptying { cut_at: earlier.min(cut_at) },
            Self::Finishing { cut_at: earlier, must_hurry } => {
                Self::Finishing { cut_at: earlier.min(cut_at), must_hurry: must_hurry || is_hastier }
            }
            Self::Cut => Self::Cut,
        };
    }

    /// Records that a round begins with the first listener.
    pub(super) fn begin_accepting(&mut self) {
        if let Self::Requested { cut_at } = *self {
            *self = Self::Emptying { cut_at };
        }
    }
}
