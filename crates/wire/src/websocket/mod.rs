//! WebSocket as RFC 6455 writes it, with the compression of RFC 7692, for both roles.
//!
//! ```text
//!  head ──▶ Opening::read ──▶ Opening::accept / Refusal::write ──▶ response head
//!                                  │
//!                                  ▼ Agreement
//!  bytes ──▶ Connection::next ──▶ Event (message, pong, close, fault)
//!  bytes ◀── Connection::send, ping, close, flush ◀── the application
//! ```
//!
//! * [`Opening`] is the opening handshake (RFC 6455 section 4.2). HTTP/2's CONNECT (RFC 8441) is read by the same code,
//!   without a key; [`client`] is the other side.
//! * [`Connection`] is what follows: it answers pings and closes, and it refuses what may not be sent. It is made of a
//!   [`Receiver`] (sections 5 and 8.1, and the inflating of RFC 7692) and a [`Sender`].
//! * [`Compression`] holds the compressors and decompressors that the connections of one thread share. A connection has
//!   a decompressor only while a compressed message arrives.
//! * [`Prepared`] is a message that is framed once and sent to many.
//!
//! Nothing here waits. [`Connection::waits_for`] says which deadline of the caller's applies. Nothing here is random: a
//! client's masking keys follow from a seed ([`Keys`]).
//!
//! # Errors
//!
//! A [`WebSocketRefusal`] is an opening handshake that breaks a rule, with the status that answers it. A
//! [`WebSocketFault`] is a rule that the peer broke later, with the code of the Close frame that answers it. A
//! [`SendError`] is the application's.

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
