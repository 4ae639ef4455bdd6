//! What the operating system gives: sockets, readiness, time limits, files; and threads that share it. No Python type
//! appears here.
//!
//! # Polled, not running
//!
//! An [`Engine`] does nothing by itself. The polling thread waits for its [`Poller`], reports what became ready
//! ([`Engine::notice`]), and calls [`Engine::poll`], which does what is ready and returns: with [`Work`] for the
//! application, or with nothing. The poller is a file descriptor, itself pollable, so any loop can host the engine.
//! Time is an argument ([`Now`]) and never read inside; the operating system is one too ([`Net`]), which is [`Os`] or a
//! simulation.
//!
//! ```text
//!   Poller ─▶ notice ─▶ poll ─┬─ connection ready ──────────┬─▶ Connection::drive: flush, receive, serve
//!                             ├─ asked to go on (`again`) ──┤              │
//!                             ├─ listener ready ──▶ accept ─┘              ▼
//!                             └─ time is up ──▶ sweep               App::begin, receive ──▶ (queue) ──▶ Work
//!
//!   Work::Call(ticket, request) ─▶ run, with the engine free for others ─▶ reply(ticket) … complete(ticket)
//! ```
//!
//! # Work is returned
//!
//! The engine never calls what may take its time. It returns a request with a [`Ticket`]; the thread that runs the call
//! borrows a [`Reply`] from [`Engine::reply`] for each part of the response, and returns the ticket with
//! [`Engine::complete`], as done, as cut, or with a response that goes on when its peer has caught up. Until then the
//! connection's slot is kept, whatever its peer does. How threads share an engine on these terms is [`scheduler`].
//!
//! # The watchdog
//!
//! While one call keeps all threads from polling, health checks are answered all the same: the watchdog, a thread that
//! never touches the application, calls [`Engine::service_pending`]. That accepts connections, reads their first bytes,
//! and leaves what is not a health check to the next poll.
//!
//! # Upwards through one trait
//!
//! The engine knows its application as an [`App`], of which no method waits. What the application keeps for a
//! connection, a request or a response under way is an associated type, so that nothing is boxed on its way through
//! here.
//!
//! # Bounds
//!
//! Everything that a peer can make grow is bounded: bytes of a message by [`wire::message::Limits`], connections, waiting
//! requests, the memory of bodies and time by [`Config`], unsent output by stopping to produce it, unread input by stopping to read.
#![forbid(unsafe_code)]

mod app;
mod coalescing;
mod compose;
mod config;
mod connection;
mod context;
mod deadline;
mod descriptors;
mod engine;
mod exchange;
mod group;
mod health;
mod in_flight;
mod memory;
mod meter;
mod net;
mod observe;
mod os;
mod output;
mod protocol;
mod reply;
mod responder;
pub mod scheduler;
mod spool;
mod stages;
mod statistics;
mod sync;
mod transport;
mod websocket;

pub use app::{AcceptPause, App, CallId, Progress, Refusal, Rejection, Report, Ticket, Work};
pub use coalescing::TICK;
pub use config::{Config, STOP_GRACE, UNUSED_GRACE, WebSocketConfig};
pub use connection::{Expired, HijackId, HijackRefusal, Hijacked};
pub use deadline::Now;
pub use descriptors::{EngineSocket, take_engine_sockets};
pub use engine::Engine;
pub use exchange::{Awaited, Input};
pub use group::{ENGINES_MAX, EngineGroup, Membership, ProcessRecord, SharedRecords};
pub use memory::BodyMemory;
pub use net::{Accepted, Local, Net, Peer, Readiness};
pub use observe::Stage;
pub use os::{Bell, Os, Poller, Waker};
pub use protocol::{AnyProtocol, Event, Http1, Protocol, ProtocolKind, Reset, ResponseSender, StreamId};
pub use reply::Reply;
pub use responder::{StaticFiles, StaticOptions};
pub use scheduler::ticker::{Pace, SLOW_TICK, STEADY_TICK, Ticker, Wanted};
pub use spool::Body;
pub use stages::{StageClock, Times};
pub use statistics::Statistics;
pub use transport::{Moved, Received, Socket, Tcp, Transport};
pub use websocket::{Incoming, Room, WebSocketEnd, WebSocketId};
