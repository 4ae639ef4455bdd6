//! HTTP/1.1 as RFC 9112 and RFC 9110 write it, with no option to be lenient.
//!
//! # One message, top down
//!
//! ```text
//!            Receiver::head            Receiver::body
//!  bytes ──▶ request line, fields ──▶ length or chunks, trailers ──▶ next message
//!               │                          │
//!               ▼ Head                     ▼ BodyStep::Data / End
//!            the application ──▶ Draft (status, fields, checked) ──▶ Sender (framing) ──▶ bytes
//! ```
//!
//! * [`Receiver`] is the server's reading half. It is asked for a head, then for body steps until
//!   [`BodyStep::End`], then for the next head. It keeps no input: what it could not use yet stays with the caller,
//!   who offers it again with more behind it. Work is linear in the bytes received however they are cut.
//! * [`Draft`](crate::message::Draft) collects what the application wants to say, refusing what could become a second
//!   response;
//!   [`Sender`] decides the framing once and then holds the application to it.
//! * [`client`] is the other role, for the pair tests and the load generator.
//!
//! # The head that repeats
//!
//! A browser or a proxy sends nearly the same field lines with every request of a connection. The receiver keeps a
//! block (the bytes behind the request line up to and with the blank line) and what it learned from it. Of the next
//! request's block it reads only the lines that differ, and
//! [`RequestHead::changed`](crate::message::RequestHead::changed) lets the application reuse what it built from the
//! others.
//!
//! # Errors
//!
//! Three families, so that each mistake is attributed to the side that made it: a [`Fault`](crate::message::Fault) is
//! the peer's and carries the status that it is answered with; a [`Misuse`](crate::message::Misuse) is the
//! application's and becomes an exception in it; a panic is ours.

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
