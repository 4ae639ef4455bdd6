//! The header of the PROXY protocol, versions 1 and 2. A load balancer sends it first on each connection, to report the
//! client whose connection it forwards.
//!
//! Source: "The PROXY protocol, versions 1 & 2" by Willy Tarreau, which `HAProxy` publishes as `proxy-protocol.txt`.
//!
//! A listener either requires the header or does not accept it. Its presence is never guessed, because then a client
//! could send one. If a required header is missing, the connection is closed.

mod crc32c;
mod v1;
mod v2;

use crate::message::{Client, ConnectionInfo};
use core::net::SocketAddr;
use std::fmt;
use std::sync::Arc;

/// The maximum length of a header in bytes. Version 1 has at most 107; version 2 could have up to 65,551, but no sender
/// comes near that.
pub const HEADER_MAX: usize = v2::FIXED + v2::VARIABLE_MAX;

/// A PROXY protocol header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The length of the header in bytes.
    pub length: usize,
    /// The origin of the connection.
    pub source: Source,
    /// The other data in the header.
    pub info: ConnectionInfo,
}

/// The origin of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The peer of the socket. The proxy opened the connection itself, for example as a health check (LOCAL), or the
    /// protocol cannot express the client's address (UNKNOWN, UNSPEC, datagrams).
    Peer,
    /// The client at this address.
    Address(SocketAddr),
    /// A client that connected to the proxy through a Unix socket.
    Unix,
}

/// The reason for closing a connection that requires a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyFault {
    /// The first bytes belong to neither version.
    NoHeader,
    /// The line of version 1 is longer than 107 bytes.
    LineTooLong,
    /// The line of version 1 is not `PROXY`, a family, two addresses and two ports, separated by single spaces.
    LineInvalid,
    /// A command, an address family or a transport of version 2 is not assigned.
    Unassigned,
    /// The declared length of version 2 exceeds 4 KiB.
    TooLong,
    /// The lengths of version 2 contradict each other.
    LengthInvalid,
    /// A field of version 2 is invalid or repeated.
    FieldInvalid,
    /// The checksum of version 2 is wrong.
    ChecksumWrong,
    /// The connection ended within the header.
    Truncated,
}

impl ProxyFault {
    /// All variants, so that a test can demand that each of them occurs.
    pub const ALL: &[ProxyFault] = &[
        ProxyFault::NoHeader,
        ProxyFault::LineTooLong,
        ProxyFault::LineInvalid,
        ProxyFault::Unassigned,
        ProxyFault::TooLong,
        ProxyFault::LengthInvalid,
        ProxyFault::FieldInvalid,
        ProxyFault::ChecksumWrong,
        ProxyFault::Truncated,
    ];
}

impl fmt::Display for ProxyFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ProxyFault::NoHeader => {
                "the connection does not begin with a PROXY protocol header, which this address demands: turn it on in \
                 the proxy, or leave ?proxy out"
            }
            ProxyFault::LineTooLong => "the PROXY protocol line is longer than 107 bytes",
            ProxyFault::LineInvalid => "the PROXY protocol line is malformed",
            ProxyFault::Unassigned => {
                "the PROXY protocol header has a command, an address family or a transport that is not assigned"
            }
            ProxyFault::TooLong => "the PROXY protocol header is longer than 4 KiB",
            ProxyFault::LengthInvalid => "the lengths in the PROXY protocol header contradict each other",
            ProxyFault::FieldInvalid => "the PROXY protocol header has an invalid or repeated field",
            ProxyFault::ChecksumWrong => "the checksum of the PROXY protocol header is wrong",
            ProxyFault::Truncated => "the connection ended within its PROXY protocol header",
        })
    }
}

/// Reads the header at the start of `input`. Returns `None` if it is incomplete.
///
/// The function has no state: `input` must begin with the first byte of the connection at each call. The result does
/// not depend on how the bytes are split.
///
/// # Errors
/// The reason why there is no valid header, as soon as it is known. The caller must close the connection without a
/// response.
pub fn read(input: &[u8]) -> Result<Option<Header>, ProxyFault> {
    match input.first() {
        None => Ok(None),
        Some(b'P') => v1::read(input),
        Some(b'\r') => v2::read(input),
        Some(_) => Err(ProxyFault::NoHeader),
    }
}

impl Header {
    /// Returns the client of a connection with this header. `peer` is the peer of its socket.
    #[must_use]
    pub fn client(self, peer: Option<SocketAddr>) -> Client {
        let address = match self.source {
            Source::Peer => peer,
            Source::Address(address) => Some(address),
            Source::Unix => None,
        };
        let is_https = self.info.tls.is_some().then_some(true);
        Client { is_https, connection: Some(Arc::new(self.info)), ..Client::at(address) }
    }
}
