//! Worlds whose driver is one event loop, as asyncio's: the engine is polled in the loop's selector, and the calls of the
//! application go on beside each other in one thread.
//!
//! ```text
//!   seed ──▶ plan ──▶ world: clock, calendar of events
//!                       ├── clients ◀──▶ net ◀──▶ engine ◀──▶ records (engine::App)          core: engine and records
//!                       ├── the loop: select, ready tasks in random order, timers            tasks wait for the engine
//!                       └── another thread, which sends and closes at any time
//!                     check: whenever the loop is about to wait, and at the end
//! ```
//!
//! A request is a call of tasks that receive, send and sleep; or, with a WebSocket, a handler that is given back until a
//! message is there. The invariants of every world:
//!
//! * No call is lost or run twice. Every client that keeps the rules gets one whole and right answer for each request, or
//!   sees a cut for which there was a reason.
//! * Messages arrive once, whole and in their order, in both directions, and no message that was sent before a Close
//!   frame is missing. Nothing follows an end.
//! * When the loop waits, no call waits for something that is already there: a message, a part of a body, room for
//!   output, the client's departure, the end. So no wake is lost. A call that waits is woken once.
//! * Messages that wait for the application, and output that waits for the client, are bounded.
//! * Cancelled tasks lose no message. Every wait ends, and at the end no connection, call or object is left.

mod app;
mod call;
mod calls;
mod check;
mod client;
mod core;
mod plan;
mod world;

use crate::clock::Shared;
use plan::Plan;
use std::rc::Rc;
use world::World;

pub use world::LoopSummary;

/// Runs the world of `seed`; `traces` prints each event with its virtual time.
///
/// # Errors
/// Which condition did not hold, and when.
pub(crate) fn run(seed: u64, traces: bool) -> Result<LoopSummary, String> {
    let shared = Shared::new(seed, traces);
    let plan = Rc::new(Plan::draw(&mut shared.fork()));
    World::new(shared, plan).run()
}
