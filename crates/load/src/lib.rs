//! A load generator: a [`Plan`](plan::Plan) goes in, a [`Measured`](result::Measured) comes out.
//!
//! ```text
//!   plan ──▶ script (requests as bytes) ──┐
//!        └─▶ schedule (when, and which count) ──▶ generator ──▶ connection ──▶ sockets ──▶ the server
//!                                                     ▲                                        │
//!                  result ◀── tally ◀── checks ◀──────┴──────── answers (wire's client role) ◀─┘
//! ```
//!
//! One generator is one thread and one poller, and reports how much of its processor it used. Several processes share a
//! load by taking a part of the plan each, and their histograms are merged. Every response is read by [`wire`]'s strict
//! rules. A request that was not answered as expected is counted by what went wrong.
//!
//! # Time and sockets are arguments
//!
//! [`Generator`] gets the time as an argument and its sockets from a [`Net`], as the engine does. [`run`] drives one
//! with the operating system's sockets. Tests drive one with a scripted server and a virtual clock, so that the result
//! can be compared with what must come out.
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
