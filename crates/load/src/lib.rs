//! A load generator: a [`Plan`](plan::Plan) goes in, a [`Measured`](result::Measured) comes out.
//!
//! ```text
//!   plan ──▶ script (requests as bytes) ──┐
//!        └─▶ schedule (when, and which count) ──▶ generator ──▶ connection ──▶ sockets ──▶ the server
//!                                                     ▲                                        │
//!                  result ◀── tally ◀── checks ◀──────┴──────── answers (wire's client role) ◀─┘
//! ```
//!
//! One generator is one thread and one poller, and says how much of its processor it took; several processes share a
//! load by a part of the plan each, and their histograms are merged. Every response is read by [`wire`]'s rules, which
//! have no lenient mode, and a request that was not answered as expected is counted by what went wrong.
//!
//! # Time and sockets are arguments
//!
//! [`Generator`] is told the time and asks a [`Net`] for sockets, as the engine does. [`run`] drives one with the
//! operating system's; tests drive one with a scripted server and a clock that jumps, so that what is measured there can
//! be compared with what must come out.
#![forbid(unsafe_code)]

pub mod answers;
mod connection;
mod failure;
mod generator;
pub mod histogram;
mod net;
mod null;
pub mod plan;
pub mod result;
mod run;
mod schedule;
mod script;
mod sockets;
mod tally;

pub use answers::{Answer, Answers, Content, Wanted};
pub use generator::Generator;
pub use histogram::Histogram;
pub use net::{Moved, Nanos, Net};
pub use null::serve as serve_null;
pub use plan::{Plan, PlanError};
pub use result::{Measured, Progress};
pub use run::{Answer as Control, RunError, run};
