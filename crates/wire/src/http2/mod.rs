//! HTTP/2 (RFC 9113) for servers and clients, with its header compression (RFC 7541).
//!
//! ```text
//!  bytes ──▶ ServerConnection::next: frames ──▶ header blocks ──▶ Decoder ──▶ HeadScratch ──▶ RequestHead
//!                     │                 ╰─────▶ DATA ──▶ parts of a body
//!                     ╰─▶ control: SETTINGS, PING, `WINDOW_UPDATE`, `RST_STREAM`, GOAWAY ──▶ bytes
//!  Draft ──▶ begin: Encoder ──▶ HEADERS ──▶ frame: DATA ──▶ end_response: `END_STREAM`, or trailers ──▶ bytes
//! ```
//!
//! * [`ServerConnection`] turns received bytes into [`Http2Event`]s, stores the state of the streams, and writes
//!   responses.
//! * [`ClientConnection`] is the client role, for the load generator and simulated clients.
//! * [`Violation`] is a rule that the peer broke, with its [`ErrorCode`]. Some violations reset only their stream;
//!   others end the connection with GOAWAY, after which open streams may still be answered. A request that breaks a
//!   rule with an HTTP status of its own gets that status, as in HTTP/1.
//! * `limits` has all limits, with reasons.
//! * [`hpack`] compresses field lines.

mod answering;
mod client;
mod connection;
mod error;
mod frame;
pub mod hpack;
mod limits;
mod priority;
mod request;
mod settings;
mod stream;
mod streams;

pub use client::{ClientConnection, ClientEvent, is_connection_specific};
pub use connection::{Http2Event, ServerConnection};
pub use error::{ErrorCode, Violation};
pub use frame::PREFACE;
pub use priority::Priority;
pub use request::HeadScratch;
