//! HTTP/2 (RFC 9113), the server's side and the client's, with its header compression (RFC 7541).
//!
//! ```text
//!  bytes ──▶ ServerConnection::next: frames ──▶ header blocks ──▶ Decoder ──▶ HeadScratch ──▶ RequestHead
//!                     │                 ╰─────▶ DATA ──▶ parts of a body
//!                     ╰─▶ control: SETTINGS, PING, `WINDOW_UPDATE`, `RST_STREAM`, GOAWAY ──▶ bytes
//!  Draft ──▶ begin: Encoder ──▶ HEADERS ──▶ frame: DATA ──▶ end_response: `END_STREAM`, or trailers ──▶ bytes
//! ```
//!
//! * [`ServerConnection`] takes bytes and gives [`Http2Event`]s, keeps the streams, and writes responses.
//! * [`ClientConnection`] is the other side, for the load generator and simulated clients.
//! * A rule that the peer breaks is a [`Violation`], with the [`ErrorCode`] that answers it. One of a stream resets the
//!   stream; one of the connection is answered with GOAWAY, and streams under way may still be answered. A request that
//!   breaks a rule with a status of its own is answered with it, as in HTTP/1.
//! * `limits` has every bound, with its reason.
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
