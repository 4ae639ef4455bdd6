//! The client of a request, if it is not the peer of the socket.

use super::connection_info::ConnectionInfo;
use core::net::IpAddr;
use std::sync::Arc;

/// The client of a request as a trusted proxy or a PROXY protocol header names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The IP address. An IPv4 address is never in IPv6 form. `None` if the client connected through a Unix socket.
    pub address: Option<IpAddr>,
    /// The port of `address`, if it is known.
    pub port: Option<u16>,
    /// True if the client used https. `None` if the proxy does not report it; then the scheme of this connection is
    /// used.
    pub is_https: Option<bool>,
    /// The host that the client asked for, which replaces the field Host. It is checked like Host.
    pub host: Option<Box<[u8]>>,
    /// The path below which the proxy serves the application. It begins with a slash, does not end with one, and may
    /// have percent escapes.
    pub prefix: Option<Box<[u8]>>,
    /// The other data of the connection's PROXY protocol header.
    pub connection: Option<Arc<ConnectionInfo>>,
}

impl Client {
    /// Returns the client whose connection comes from `address`; `None` for a Unix socket.
    #[must_use]
    pub fn at(address: Option<core::net::SocketAddr>) -> Self {
        Self {
            address: address.map(|address| address.ip().to_canonical()),
            port: address.map(|address| address.port()),
            ..Self::default()
        }
    }
}
