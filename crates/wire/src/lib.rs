//! Protocols as pure state machines: bytes in, events out.
//!
//! Nothing here knows sockets, clocks, files or Python; the crate's dependencies enforce that. The owner of a socket
//! passes in the received bytes and sends the bytes that are returned. Only this crate writes protocol bytes, error
//! pages included.
#![forbid(unsafe_code)]

pub mod http1;
