//! FastCGI 1.0 between a web server and an application: the application's side, in the role of a responder.
//!
//! <https://fastcgi-archives.github.io/FastCGI_Specification.html>. A connection carries records. Each has the number
//! of its request, so that many requests can be in progress on one connection. A request consists of `BEGIN_REQUEST`,
//! the stream PARAMS and the stream STDIN; its response of the stream STDOUT and `END_REQUEST`. A record without
//! content ends a stream. The application's error output for a request goes to STDERR (docs/design/gateways.md).
//!
//! * [`Receiver`] converts received bytes to [`Event`]s. It uses its whole input and stores the received part of a
//!   record.
//! * [`begin`], [`stdout`], [`stderr`] and [`end_request`] write the response.
//!
//! FastCGI has no flow control: if the peer's bytes are not read, all requests of the connection wait.

mod receive;
mod record;
mod repeat;
mod send;

pub use receive::{Event, Receiver};
pub use record::{ProtocolStatus, RequestId};
pub use send::{begin, end_request, end_request_and_connection, end_stdout, excess, stderr, stdout, take_no_more};
