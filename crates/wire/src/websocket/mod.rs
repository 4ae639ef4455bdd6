//! WebSocket by RFC 6455 with the compression of RFC 7692, for servers and clients.
//!
//! ```text
//!  head ──▶ Opening::read ──▶ Opening::accept / Refusal::write ──▶ response head
//!                                  │
//!                                  ▼ Agreement
//!  bytes ──▶ Connection::next ──▶ Event (message, pong, close, fault)
//!  bytes ◀── Connection::send, ping, close, flush ◀── the application
//! ```
//!
//! * [`Opening`] is the opening handshake (RFC 6455 section 4.2). The same code reads the CONNECT of HTTP/2 (RFC 8441),
//!   which has no key. [`client`] is the client role.
//! * [`Connection`] is the connection after the handshake: it answers pings, closes, and refuses to send what the
//!   protocol forbids. It consists of a [`Receiver`] (sections 5 and 8.1, and the inflating of RFC 7692) and a
//!   [`Sender`].
//! * [`Compression`] holds the compressors and decompressors that the connections of one thread share. A connection
//!   uses a decompressor only while a compressed message arrives.
//! * [`Prepared`] is a message that is framed once and sent to many clients.
//!
//! This module has no timers: [`Connection::waits_for`] tells which of the caller's deadlines applies. It has no random
//! numbers either: a client's masking keys are derived from a seed ([`Keys`]).
//!
//! # Errors
//!
//! A [`WebSocketRefusal`] is an error in the opening handshake, with the status of the error response. A
//! [`WebSocketFault`] is a later error of the peer, with the code of the Close frame that answers it. A [`SendError`]
//! is an error of the application.

pub mod client;

mod close;
mod close_code;
mod closing;
mod connection;
mod deflate;
mod extension;
mod fault;
mod frame;
mod handshake;
mod mask;
mod receive;
mod send;

pub use close::CloseFrame;
pub use close_code::CloseCode;
pub use connection::{Connection, Event, Wait, WebSocketLimits};
pub use deflate::Compression;
pub use extension::{Deflate, DeflateSettings};
pub use fault::{WebSocketFault, WebSocketRefusal};
pub use frame::{ControlPayload, Kind};
pub use handshake::{AcceptMisuse, Agreement, Carrier, Opening, PendingOpening, wants_websocket};
pub use mask::{Keys, Role};
pub use receive::{Received, Receiver};
pub use send::{FrameHead, Outgoing, Prepared, SendError, Sender};
