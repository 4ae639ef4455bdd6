//! What stands in front of the server on a connection: trusted proxies, and a load balancer that sends a header of the
//! PROXY protocol first.
//!
//! The header stands between transport and protocol: it comes once, before the first byte of whatever protocol the
//! connection speaks, and no protocol sees it. A connection that needs neither has no [`Front`] and pays nothing.

use crate::app::Rejection;
use crate::config::Config;
use crate::net::Peer;
use core::net::SocketAddr;
use std::time::Duration;
use wire::forwarded::Forwarding;
use wire::message::Client;
use wire::proxy;

/// The least time that a header may take: one packet that is lost and sent again must be in time ("at least 3 seconds",
/// the PROXY protocol, section 2).
pub(super) const HEADER_TIMEOUT_LEAST: Duration = Duration::from_secs(3);

/// What stands in front of the server on one connection.
pub(super) struct Front {
    /// The client of each request.
    pub(super) forwarding: Forwarding,
    header: Header,
}

/// The header of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    /// It has been read, or the listener has none.
    Over,
    /// It has to come first, on a socket with this peer.
    Awaited(Option<SocketAddr>),
    /// The peer is none that may send one.
    Forbidden,
}

impl Front {
    /// What stands in front of a connection with this peer; `None`: nothing.
    pub(super) fn of(peer: &Peer, config: &Config) -> Option<Box<Self>> {
        let demands_header = config.proxy_listeners.get(peer.listener).copied().unwrap_or(false);
        if !demands_header && config.trust.is_none() {
            return None;
        }
        let client = Client::at(peer.address);
        let may_send = config.proxy_from.as_ref().is_none_or(|from| from.contains(client.address));
        let header = match demands_header {
            false => Header::Over,
            true if may_send => Header::Awaited(peer.address),
            true => Header::Forbidden,
        };
        Some(Box::new(Self { forwarding: Forwarding::new(client, config.trust.as_ref()), header }))
    }

    /// Whether the header of the PROXY protocol has to come before anything else.
    #[inline]
    pub(super) fn awaits_header(&self) -> bool {
        self.header != Header::Over
    }

    /// Whether the peer may not connect here.
    pub(super) fn is_forbidden(&self) -> bool {
        self.header == Header::Forbidden
    }

    /// Reads the header that `input` begins with. Returns the bytes used, none until the header is whole.
    pub(super) fn take_header(&mut self, input: &[u8], config: &Config) -> Result<usize, Rejection> {
        let peer = match self.header {
            Header::Over => return Ok(0),
            Header::Forbidden => return Err(Rejection::NotAllowed),
            Header::Awaited(peer) => peer,
        };
        let Some(header) = proxy::read(input).map_err(Rejection::Header)? else { return Ok(0) };
        let length = header.length;
        self.header = Header::Over;
        self.forwarding = Forwarding::new(header.client(peer), config.trust.as_ref());
        Ok(length)
    }
}

/// The client of a connection as a whole, where that is not the peer of the socket.
pub(super) fn client(front: Option<&Front>) -> Option<&Client> {
    front.map(|front| front.forwarding.peer())
}
