//! Protocols as pure state machines: bytes in, events out.
//!
//! Nothing here knows a socket, a clock, a file or an interpreter; the crate's dependencies hold it to that. Whoever
//! owns a socket hands received bytes in and sends the bytes that come out. Only this crate writes protocol bytes,
//! error pages included.
#![forbid(unsafe_code)]

pub mod http1;
