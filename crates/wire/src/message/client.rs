//! The client of a request, if another source than the socket names it.

use super::connection_info::ConnectionInfo;
use core::net::IpAddr;
use std::sync::Arc;

/// The client of a request as a trusted proxy or a PROXY protocol header names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The IP address, never an IPv4 address in IPv6 form. `None`: the client has connected by a Unix socket.
    pub address: Option<IpAddr>,
    /// The port of that address, if it is known.
    pub port: Option<u16>,
    /// True if the client has used https; `None` if nothing tells: then the scheme of this connection counts.
    pub is_https: Option<bool>,
    /// The host that the client has asked for, in place of the field Host. Checked as that field is.
    pub host: Option<Box<[u8]>>,
    /// The path below which the proxy serves the application: begins with a slash and does not end with one. It may
    /// have percent escapes.
    pub prefix: Option<Box<[u8]>>,
    /// The other facts of the connection's PROXY protocol header.
    pub connection: Option<Arc<ConnectionInfo>>,
}

impl Client {
    /// Returns the client that has connected from this address.
    #[must_use]
    pub fn at(address: Option<core::net::SocketAddr>) -> Self {
        Self {
            address: address.map(|address| address.ip().to_canonical()),
            port: address.map(|address| address.port()),
            ..Self::default()
        }
    }
}
