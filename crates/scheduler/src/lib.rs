//! Leader/followers: how several threads share one engine without handing requests over.
//!
//! One thread at a time is the *leader*: it waits for the poller, processes the events, and runs the resulting calls
//! itself, so a short call never changes threads. The other threads are *followers* and sleep. While the leader runs
//! application code, the shared state is unlocked and no thread leads. If that call takes long, a follower is notified
//! and becomes the leader. This happens in one of three ways:
//!
//! * The call outlasts a tick. (A separate thread calls [`Scheduler::tick`].)
//! * The call waits within the server, for example for a request body ([`Scheduler::wait`]).
//! * The predictor expects the call to block, because earlier calls with its [`RouteKey`] did. The follower is notified
//!   before the call runs, and immediately waits for the poller.
//!
//! There are two refinements. While calls block that were not predicted to, ticks are more frequent. While every
//! connection waits for a call and one of these calls is expected to return soon, no follower is notified: the thread
//! of that call becomes the leader. This saves waking another thread, and ticks are rare.
//!
//! ```text
//!                 ┌────────────────────────── call returns ◀─────────────────────────┐
//!                 ▼                                                                  │
//!   locked: work for this thread? ──yes──▶ unlocked: run it ─────────────────────────┘
//!                 │ no
//!                 ├─ no thread leads ──▶ unlocked: lead, wait for the poller ──▶ (again)
//!                 └─ a thread leads ───▶ unlocked: follow, wait to be notified ──▶ (again)
//! ```
//!
//! Lock order: the GIL first, the scheduler's lock second. No thread waits for the GIL while it holds this lock. A
//! thread that has to wait for this lock releases the GIL first ([`Threads::detached`]). There is one more thread than
//! calls may run, so that one is always free to lead.
#![forbid(unsafe_code)]

mod actions;
#[cfg(all(test, loom))]
mod hosted_model;
#[cfg(all(test, loom))]
mod model;
mod predictor;
mod route_keys;
mod rules;
mod scheduler;
mod state;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod tick;
mod ticker;
mod traits;
mod worker;

pub use actions::{Action, PoolStatistics, StartedCall, WaitStep};
pub use predictor::RouteKey;
pub use route_keys::{RouteKeys, hash_route};
pub use rules::Rules;
pub use scheduler::{Reentered, Scheduler};
pub use tick::{Pace, SLOW_TICK, STEADY_TICK, TICK, Wanted};
pub use ticker::Ticker;
pub use traits::{Threads, WorkSource};
