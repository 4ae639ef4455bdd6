//! What the operating system gives: sockets, readiness, time limits, files. No Python type appears here.
//!
//! # Turned, not running
//!
//! An [`Engine`] does nothing by itself. Whoever holds it asks [`Engine::poll`] whether something is ready and then
//! calls [`Engine::turn`], which does what is ready and comes back. The poller is a file descriptor
//! (`Engine::as_raw_fd`), itself pollable, so any loop can host the engine. Time is an argument ([`Now`]) and is never
//! read inside.
//!
//! ```text
//!   poll ─▶ turn ─┬─ listener ready ──▶ accept ──┐
//!                 ├─ connection ready ───────────┼─▶ Connection::drive: flush, resume, receive, serve
//!                 ├─ asked to go on (`again`) ───┘              │              │
//!                 └─ time is up ──▶ sweep                       ▼              ▼
//!                                                        App::resume   App::begin, App::call ──▶ Reply
//! ```
//!
//! # Upwards through one trait
//!
//! The engine knows its application as an [`App`] and hands each response's way out as a [`Reply`]. What the
//! application keeps for a connection or for a response under way is an associated type, so that nothing is boxed on
//! its way through here.
//!
//! # Bounds
//!
//! Everything that a peer can make grow is bounded: bytes of a message by [`wire::http1::Limits`], connections and
//! time by [`Config`], unsent output by stopping to produce it, unread input by stopping to read.
#![forbid(unsafe_code)]

mod app;
pub mod baton;
mod compose;
mod config;
mod connection;
mod deadline;
mod engine;
mod hold;
mod net;
mod os;
mod output;
mod reply;
mod spool;
mod statistics;
mod sync;
mod ticker;

pub use app::{AcceptPause, App, Local, Peer, Progress, Refusal, Report, Ticket, Work};
pub use config::Config;
pub use connection::Input;
pub use deadline::Now;
pub use engine::Engine;
pub use hold::TICK;
pub use net::{Accepted, Moved, Net, Readiness, Socket};
pub use os::{Os, Poller, Waker};
pub use reply::Reply;
pub use spool::Body;
pub use statistics::Statistics;
pub use ticker::Ticker;
