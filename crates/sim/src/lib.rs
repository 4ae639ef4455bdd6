//! A simulator that tests the engine in seeded worlds with virtual time. For development only.
//!
//! ```text
//!   seed ──▶ plan ──▶ world: clock, calendar of events
//!                       ├── peers ◀──▶ net ◀──▶ engine ◀──▶ records (engine::App)    engine_core: engine and records
//!                       └── a host: threads that follow the scheduler's rules and run scripts,
//!                                   or an event loop, whose tasks wait for the engine
//!                     check: after every step, and at the end
//! ```
//!
//! Everything that happens is an event in one calendar, and every random choice comes from the seed. So a seed always
//! produces the same run, and its number suffices to replay a failure. Only the calendar advances time: a day of slow
//! peers takes only as long as the processing of its events.
//!
//! The invariants of every world (see `check`):
//!
//! * Every request gets exactly one complete and correct answer, or a visible cut or refusal for which there was a
//!   reason. No request runs twice, and none runs whose peer left while it was queued. Answers arrive in the order of
//!   the requests.
//! * Everything that can grow is bounded.
//! * A time limit takes effect neither early nor late by more than the engine's clock allows. The client of a call that
//!   misses its deadline gets one complete 504 or a visible cut, and no output that the call writes later.
//! * An engine with nothing to do is not polled. When no event is left, nothing is left except calls that never return.
//!   The counters add up, and the engine has returned every object that it was given.
//! * Messages arrive once, complete and in order, in both directions, and no message that was sent before a Close frame
//!   is missing. Nothing follows an end. Cancelled tasks lose no message.
//! * When an event loop waits, no call waits for an event that has already happened: a message, a part of a body, room
//!   for output, the client's departure, the end. So no wake-up is lost. A waiting call is woken once.
//! * Each transition of a state machine is in its table (`transitions`): any other one panics, which fails the world.
//!
//! The same plans also run over real sockets (`on_sockets`): time, clients and application are simulated, and Linux
//! moves the bytes.
//!
//! The engine's own tests direct a scripted application instead of drawing one from a seed. This crate holds the code
//! that both kinds of tests share: the protocol of [`frames`], a [`cipher`] without cryptography, the parts of a
//! [`response`], and real [`sockets`]. The two `App` implementations are separate on purpose: the scripted one records
//! the order in which the engine calls it, and the test compares that order; the one here checks each call against the
//! plan immediately, because there are too many to record. A common type would do one or the other in every method.
//!
//! Not simulated are the scheduler's lock (loom tries every interleaving of it), the operating system, and Python.
#![forbid(unsafe_code)]

mod app;
mod check;
pub mod cipher;
mod clock;
mod deadlines;
mod dialect;
mod engine_core;
mod event_loop;
mod exchanges;
pub mod frames;
mod net;
mod peer;
mod plan;
pub mod response;
mod runner;
pub mod sockets;
mod threads;
mod websocket;
mod world;
pub mod worst_case;

pub use plan::{Host, Worlds};
pub use runner::{Summary, run, run_all};
