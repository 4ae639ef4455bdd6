//! The engine: sockets, readiness, time limits and files. This crate uses no Python types.
//!
//! # Polled, not running
//!
//! An [`Engine`] does nothing by itself. The polling thread waits for its [`Poller`], passes the events to the engine
//! ([`Engine::notice`]), and calls [`Engine::poll`]. A poll handles the events and returns either [`Work`] for the
//! application or `None`. The poller is a file descriptor that can itself be polled, so any event loop can host the
//! engine. The caller passes the time ([`Now`]): the engine never reads a clock. The operating system is an argument,
//! too ([`Net`]): [`Os`] or a simulation.
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
//! The engine never calls code that may take long. It returns a request with a [`Ticket`]. The thread that runs the
//! call borrows a [`Reply`] from [`Engine::reply`] for each part of the response, and returns the ticket with
//! [`Engine::complete`] and a [`Progress`]: complete, cut, or to be continued when the peer has read enough. Until then
//! the engine keeps the connection's slot, even if the peer disconnects. The crate `scheduler` shows how threads share
//! an engine under these rules.
//!
//! # The watchdog
//!
//! If one call keeps all threads from polling, the server still answers health checks: the watchdog, a thread that
//! never touches the application, calls [`Engine::service_pending`]. This accepts connections, reads their first bytes,
//! and leaves everything except health checks to the next poll.
//!
//! # The engine calls up through one trait
//! The engine calls its application through [`App`], whose methods never block. The application's data for a
//! connection, a request or a response are associated types, so that the engine need not box them.
//!
//! # Bounds
//!
//! Everything that a peer can make grow is bounded. [`wire::message::Limits`] bounds the bytes of a message; [`Config`]
//! bounds connections, waiting requests, the memory of bodies, and time. The engine bounds unsent output by not
//! producing more, and unread input by not reading more.
#![forbid(unsafe_code)]

mod app;
mod coalescing;
mod compose;
mod compression;
mod config;
mod connection;
mod context;
mod deadline;
mod descriptors;
mod engine;
mod exchange;
mod group;
mod handshakes;
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
mod spool;
mod stages;
mod statistics;
mod transport;
mod websocket;

pub use app::{
    AcceptPause, App, CallId, Progress, Refusal, RefusalCause, Rejection, Report, SecurityOf, Ticket, TransportOf, Work,
};
pub use compression::{CompressionConfig, ENCODE_AT_ONCE};
pub use config::{Config, HANDSHAKES, STOP_GRACE, UNUSED_GRACE, WARM, WebSocketConfig};
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
pub use protocol::{
    AllProtocols, AnyMultiplexed, Event, Http1, Http2, Kind, MultiplexedProtocol, Negotiation, OnlyMultiplexed,
    OnlySerial, ProtocolKind, Protocols, Reset, ResponseSender, ResponseTerms, SerialProtocol, StreamEvent, StreamId,
    choose_http,
};
pub use reply::Reply;
pub use responder::{EdgeConfig, EdgeNames, StaticFiles, StaticOptions};
pub use spool::Body;
pub use stages::{StageClock, Times};
pub use statistics::Statistics;
pub use transport::{Cipher, CipherFault, ClearOrEncrypted, Encrypted, Moved, Received, Socket, Tcp, Transport};
pub use websocket::{Incoming, Room, WebSocketEnd, WebSocketId};
