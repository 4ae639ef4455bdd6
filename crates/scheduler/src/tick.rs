//! The intervals of ticks, and their names.

use std::time::Duration;

/// The interval between two ticks. Deferred output waits for one or two ticks.
pub const TICK: Duration = Duration::from_millis(1);
/// The interval of ticks that are not needed soon.
pub const STEADY_TICK: Duration = Duration::from_millis(10);
/// The interval of ticks that are rarely needed.
pub const SLOW_TICK: Duration = Duration::from_millis(100);

/// The time at which the next tick is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// After this duration, which is at most [`TICK`].
    Soon(Duration),
    /// After [`STEADY_TICK`], unless [`Ticker::want`](crate::Ticker::want) asks for an earlier one.
    Steadily,
    /// After [`SLOW_TICK`], unless [`Ticker::want`](crate::Ticker::want) asks for an earlier one.
    Slowly,
    /// When [`Ticker::want`](crate::Ticker::want) asks for it.
    No,
}

/// The interval of ticks. The quickest one compares as the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Pace {
    /// The interval that the last tick returned.
    Quick,
    /// [`STEADY_TICK`].
    Steady,
    /// [`SLOW_TICK`].
    Slow,
    /// No ticks.
    Asleep,
}
