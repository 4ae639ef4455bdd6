//! HTTP/2 (RFC 9113), with its header compression (RFC 7541).
//!
//! * [`hpack`] compresses field lines.

pub mod hpack;
