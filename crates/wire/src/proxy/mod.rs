//! The header of the PROXY protocol, versions 1 and 2: a load balancer sends it first on each connection, to say whose
//! connection it passes on.
//!
//! Source: "The PROXY protocol, versions 1 & 2" by Willy Tarreau, which `HAProxy` publishes as `proxy-protocol.txt`.
//!
//! A listener either demands the header or does not accept it. Whether it is there is never guessed, because then a
//! client could send one: a connection that begins with anything else is over.

mod crc32c;
mod v1;
mod v2;

use crate::message::{Client, ConnectionInfo};
use core::net::SocketAddr;
use std::fmt;
use std::sync::Arc;

/// The longest header that is read, in bytes. Version 1 has at most 107; version 2 may say up to 65,551, which no
/// sender comes near.
pub const HEADER_MAX: usize = v2::FIXED + v2::VARIABLE_MAX;

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The length of the header in bytes.
    pub length: usize,
    /// Whose connection it is.
    pub source: Source,
    /// The other facts of the header.
    pub info: ConnectionInfo,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The sender's own, such as a health check (LOCAL), or that of a client whose address has no form in the protocol
    /// (UNKNOWN, UNSPEC, datagrams): the peer of the socket counts.
    Peer,
    /// Of the client at this address.
    Address(SocketAddr),
    /// Of a client that has connected to the proxy by a Unix socket.
    Unix,
}

/// The reason for closing a connection that has to begin with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyFault {
    /// The first bytes are of neither version.
    NoHeader,
    /// The line of version 1 has more than 107 bytes.
    LineTooLong,
    /// The line of version 1 is not `PROXY`, a family, two addresses and two ports with one space between.
    LineInvalid,
    /// Version 2 has a command, an address family or a transport that is not assigned.
    Unassigned,
    /// Version 2 declares more than 4 KiB.
    TooLong,
    /// The lengths of version 2 contradict each other.
    LengthInvalid,
    /// A field of version 2 has a value that it cannot have, or is given twice.
    FieldInvalid,
    /// The checksum of version 2 is not that of the header.
    ChecksumWrong,
    /// The connection has ended before the header has.
    Truncated,
}

impl ProxyFault {
    /// Every variant, so that a test can demand that each is reached.
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

/// Reads the header that `input` begins with; `None` until it is whole.
///
/// It has no state: `input` begins with the first byte of the connection at each call. The result does not depend on
/// how the bytes are cut.
///
/// # Errors
/// The reason why there is no header, as soon as that is certain. The connection is to be closed without an answer.
pub fn read(input: &[u8]) -> Result<Option<Header>, ProxyFault> {
    match input.first() {
        None => Ok(None),
        Some(b'P') => v1::read(input),
        Some(b'\r') => v2::read(input),
        Some(_) => Err(ProxyFault::NoHeader),
    }
}

impl Header {
    /// Returns the client of a connection with this header, whose socket has this peer.
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
