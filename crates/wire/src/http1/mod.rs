//! HTTP/1.1 by RFC 9112 and RFC 9110. There is no lenient mode.
//!
//! # The way of one message
//!
//! ```text
//!            Receiver::head            Receiver::body
//!  bytes ──▶ request line, fields ──▶ length or chunks, trailers ──▶ next message
//!               │                          │
//!               ▼ Head                     ▼ BodyStep::Data / End
//!            the application ──▶ Draft (status, fields, checked) ──▶ Sender (framing) ──▶ bytes
//! ```
//!
//! * [`Receiver`] is the reading side of the server. The caller asks it for a head, then for body steps until
//!   [`BodyStep::End`], then for the next head. It stores no input: the caller keeps the bytes that were not used yet
//!   and passes them again, followed by new ones. The work is linear in the bytes received, however they are split.
//! * [`Draft`](crate::message::Draft) collects the head of the application's response and rejects anything that could
//!   become a second response. [`Sender`] chooses the framing once and then checks that the body conforms to it.
//! * [`client`] is the client role, for tests and the load generator.
//!
//! # Repeated heads
//!
//! A browser or a proxy sends nearly the same field lines with every request of a connection. The receiver keeps a
//! block (the bytes from the end of the request line to the blank line, inclusive) and the result of reading it. In the
//! block of the next request it reads only the lines that differ.
//! [`RequestHead::changed`](crate::message::RequestHead::changed) lets the application reuse objects that it made from
//! the other lines.
//!
//! # Errors
//!
//! There are three kinds, so that each mistake is attributed to the side that made it. A
//! [`Fault`](crate::message::Fault) is a mistake of the peer and has the status of the error response; a
//! [`Misuse`](crate::message::Misuse) is a mistake of the application and is raised there as an exception; a panic is a
//! bug of this crate.

pub mod client;

mod block;
mod body;
mod fields;
mod limits;
#[cfg(test)]
mod linear;
mod receive;
mod repeat;
mod send;
mod version;

pub use body::BodyStep;
pub(crate) use body::FORBIDDEN_TRAILERS;
pub use receive::{Head, Receiver, glance, partial_request_line};
pub use send::{CONTINUE, Request, Sender, TLS_EXPECTED, check_length, close_after, write_early_hints, write_page};
