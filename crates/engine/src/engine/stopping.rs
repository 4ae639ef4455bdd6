//! How far an engine's stop has come.

use crate::deadline::Millis;

/// How far the engine's stop has come. `cut_at`: when the connections that are left are cut; `Millis::MAX` for never.
///
/// ```text
///   Running ─ stop ─▶ Requested ─ a round reaches the listeners ─▶ Emptying ─ its end ─▶ Finishing ─ cut_at ─▶ Cut
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    /// No stop was requested.
    Running,
    /// It was requested. Connections that the kernel has let in are still to be accepted.
    Requested { cut_at: Millis },
    /// A round has begun to accept them.
    Emptying { cut_at: Millis },
    /// The listeners are closed; what is under way may finish. `must_hurry`: connections without a request have still to
    /// be told that they have less time.
    Finishing { cut_at: Millis, must_hurry: bool },
    /// What was left has been cut. Only calls that are out are still waited for.
    Cut,
}

impl Stopping {
    /// Whether a stop was requested.
    pub(super) fn is_stopping(self) -> bool {
        self != Self::Running
    }

    pub(super) fn is_cut(self) -> bool {
        self == Self::Cut
    }

    /// Whether the listeners are closed.
    pub(super) fn has_stopped_accepting(self) -> bool {
        matches!(self, Self::Finishing { .. } | Self::Cut)
    }

    /// Whether the next poll has something to do for it, whatever the time is.
    pub(super) fn needs_poll(self) -> bool {
        matches!(self, Self::Requested { .. } | Self::Emptying { .. } | Self::Finishing { must_hurry: true, .. })
    }

    /// When the connections that are left are cut; `Millis::MAX` for never.
    pub(super) fn cut_at(self) -> Millis {
        match self {
            Self::Requested { cut_at } | Self::Emptying { cut_at } | Self::Finishing { cut_at, .. } => cut_at,
            Self::Running | Self::Cut => Millis::MAX,
        }
    }

    /// A stop is requested, perhaps once more. `is_hastier`: connections without a request have less time than before.
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

    /// A round begins with the first listener.
    pub(super) fn begin_accepting(&mut self) {
        if let Self::Requested { cut_at } = *self {
            *self = Self::Emptying { cut_at };
        }
    }
}
