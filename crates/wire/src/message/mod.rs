//! The parts of requests and responses that all protocols share: heads, fields, limits, and errors with their status.
//!
//! * [`RequestHead`] is what an application is called with. A protocol's reader lends it, with the fields where they
//!   lie.
//! * [`Client`] is who has sent it, where that is not the peer of the socket.
//! * [`Draft`] is the head of a response as the application gives it, checked field by field.
//! * [`Fault`] is a rule that the peer broke; [`Misuse`] is one that the application broke.
//!
//! Nothing here knows how a message is framed: each protocol does that.

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
