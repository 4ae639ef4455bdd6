//! Requests as CGI variables (RFC 3875), the form in which web servers forward them: the variables that FastCGI, uwsgi
//! and SCGI share, and the heads of their responses.
//!
//! ```text
//!   fastcgi::Receiver ─┐
//!   uwsgi frame ───────┼─▶ Variables (NAME=value lines) ─▶ RequestHead ─▶ the application ─▶ Draft ─▶ begin
//!   SCGI frame ────────┘
//! ```
//!
//! * [`fastcgi`](crate::fastcgi) multiplexes requests on a connection.
//! * [`Receiver`] reads the single request of a uwsgi or SCGI connection.

mod receive;
mod scgi;
mod send;
mod uwsgi;
mod variables;

pub use receive::{Framing, Receiver};
pub use send::{StatusLine, begin};
pub(crate) use variables::{Variables, most_bytes};
