//! A load generator: it executes a [`Plan`](plan::Plan) and returns a [`Measured`](result::Measured).
//!
//! ```text
//!   plan ──▶ script (requests as bytes) ──┐
//!        └─▶ schedule (when, and which count) ──▶ generator ──▶ connection ──▶ sockets ──▶ the server
//!                                                     ▲                                        │
//!                  result ◀── tally ◀── checks ◀──────┴──────── answers (wire's client role) ◀─┘
//! ```
//!
//! A generator uses one thread and one poller, and reports how much processor time it used. To share a load, several
//! processes each execute a part of the plan, and their histograms are merged. Every response is parsed strictly, by
//! [`wire`]. A request without the expected response is counted by the kind of failure.
//!
//! # Time and sockets are arguments
//!
//! [`Generator`] gets the time as an argument and its sockets from a [`Net`], like the engine. [`run`] drives a
//! generator with the sockets of the operating system. Tests drive one with a scripted server and a virtual clock, so
//! that they can compare the result with the exact expected values.
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
mod streams;
mod tally;
mod tls_client;

pub use answers::{Answer, Answers, Content, Wanted};
pub use generator::Generator;
pub use histogram::Histogram;
pub use net::{Moved, Nanos, Net};
pub use null::serve as serve_null;
pub use plan::{Plan, PlanError};
pub use result::{Measured, Progress};
pub use run::{Answer as Control, RunError, run};
