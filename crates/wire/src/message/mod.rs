//! The parts of requests and responses that all protocols share: heads, fields, limits, and errors with their status.
//!
//! * [`RequestHead`] is passed to the application. It is borrowed from the protocol's reader; the fields are not
//!   copied.
//! * [`Client`] is the sender of a request, if a proxy reports another one than the peer of the socket.
//! * [`Draft`] is the head of a response as the application gives it. Each field is checked.
//! * [`Fault`] is a rule that the peer broke; [`Misuse`] is a rule that the application broke.
//!
//! Framing is not in this module: each protocol has its own.

mod client;
mod coded;
mod connection_info;
mod draft;
mod fault;
mod field;
mod field_lines;
mod keeping;
mod limits;
mod request;
mod target;

pub use client::Client;
pub use coded::COMPRESS_FIELD;
pub use connection_info::{ConnectionInfo, TlsInfo};
pub use draft::{Draft, Misuse, Page, Stamp};
pub use fault::Fault;
pub use field::Field;
pub use field_lines::FieldLines;
pub use limits::Limits;
pub use request::{BodyLength, PartialRequestLine, RequestHead, Version, find};
pub use target::{Form, Target};

pub(crate) use keeping::Keeping;
pub(crate) use target::is_host;
