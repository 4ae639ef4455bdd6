//! Requests in the form of CGI variables (RFC 3875), as web servers forward them: the variables that FastCGI, uwsgi and
//! SCGI have in common, and how their responses begin.
//!
//! ```text
//!   fastcgi::Receiver ─┐
//!   uwsgi frame ───────┼─▶ Variables (NAME=value lines) ─▶ RequestHead ─▶ the application ─▶ Draft ─▶ begin
//!   SCGI frame ────────┘
//! ```
//!
//! * [`fastcgi`](crate::fastcgi) has many requests at a time on a connection.
//! * [`Receiver`] reads the one request of a connection that speaks uwsgi or SCGI.

mod receive;
mod scgi;
mod send;
mod uwsgi;
mod variables;

pub use receive::{Framing, Receiver};
pub use send::{StatusLine, begin};
pub(crate) use variables::{Variables, most_bytes};
