//! FastCGI 1.0 as a web server and an application speak it: the application's side, in the role of a responder.
//!
//! <https://fastcgi-archives.github.io/FastCGI_Specification.html>. A connection carries records, each of which belongs
//! to a request by its number, so that many requests can be under way on one connection. A request is `BEGIN_REQUEST`,
//! a stream of PARAMS, and a stream of STDIN; its answer a stream of STDOUT and `END_REQUEST`. A stream ends with a
//! record without content. What the application reports of a request goes into STDERR (docs/design/gateways.md).
//!
//! * [`Receiver`] makes [`Event`]s of received bytes. It takes all that it is offered; what of a record has come is
//!   kept.
//! * [`begin`], [`stdout`], [`stderr`] and [`end_request`] write what is sent.
//!
//! FastCGI has no flow control: a peer that is not read holds up all requests of its connection.

mod receive;
mod record;
mod repeat;
mod send;

pub use receive::{Event, Receiver};
pub use record::{ProtocolStatus, RequestId};
pub use send::{begin, end_request, end_request_and_connection, end_stdout, excess, stderr, stdout, take_no_more};
