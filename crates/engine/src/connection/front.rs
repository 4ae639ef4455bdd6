//! The intermediaries between the client and the server on a connection: trusted proxies, and a load balancer that
//! first sends a header of the PROXY protocol.
//!
//! That header is between transport and protocol: it arrives once, before the first byte of the connection's protocol,
//! and no protocol sees it. A connection without such intermediaries has no [`Front`] and no cost.

use crate::app::Rejection;
use crate::config::Config;
use crate::net::Peer;
use core::net::SocketAddr;
use std::time::Duration;
use wire::forwarded::Forwarding;
use wire::message::Client;
use wire::proxy;

/// The minimum time that a header of the PROXY protocol may take: one lost and retransmitted packet must still be in
/// time ("at least 3 seconds", the PROXY protocol, section 2).
pub(super) const HEADER_TIMEOUT_LEAST: Duration = Duration::from_secs(3);

/// The intermediaries in front of the server on one connection.
pub(super) struct Front {
    /// The state that determines the client of each request.
    pub(super) forwarding: Forwarding,
    header: Header,
    /// True if the listener is for web servers: FastCGI, uwsgi or SCGI.
    is_for_web_servers: bool,
    /// True if the connection is encrypted. Its requests then have the scheme https, unless a proxy says otherwise.
    is_encrypted: bool,
}

/// The state of the header of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    /// The header has been read, or the listener does not require one.
    Over,
    /// The header has to arrive first. Holds the address of the socket's peer.
    Awaited(Option<SocketAddr>),
    /// The peer may not connect here. Holds the reason.
    Forbidden(Rejection),
}

impl Front {
    /// Returns the intermediaries of a connection with this peer; `None` if there are none.
    pub(super) fn of(peer: &Peer, is_encrypted: bool, config: &Config) -> Option<Box<Self>> {
        let demands_header = config.proxy_listeners.get(peer.listener).copied().unwrap_or(false);
        if !demands_header && config.trust.is_none() {
            return None;
        }
        let client = Client { is_https: is_encrypted.then_some(true), ..Client::at(peer.address) };
        let may_send = config.proxy_from.as_ref().is_none_or(|from| from.contains(client.address));
        let is_for_web_servers = config.protocols.get(peer.listener).is_some_and(|kind| kind.is_for_web_servers());
        let header = match demands_header {
            true if may_send => Header::Awaited(peer.address),
            true => Header::Forbidden(Rejection::NotAllowed),
            false if is_for_web_servers && !is_believed(&client, config) => Header::Forbidden(Rejection::NotTrusted),
            false => Header::Over,
        };
        let forwarding = Forwarding::new(client, config.trust.as_ref());
        Some(Box::new(Self { forwarding, header, is_for_web_servers, is_encrypted }))
    }

    /// Returns true if the header of the PROXY protocol has to arrive before anything else.
    #[inline]
    pub(super) fn awaits_header(&self) -> bool {
        self.header != Header::Over
    }

    /// Returns the reason why the peer may not connect here; `None` if it may.
    pub(super) fn forbidden(&self) -> Option<Rejection> {
        if let Header::Forbidden(rejection) = self.header { Some(rejection) } else { None }
    }

    /// Reads the header at the beginning of `input`. Returns the number of bytes used; 0 if the header is incomplete.
    pub(super) fn take_header(&mut self, input: &[u8], config: &Config) -> Result<usize, Rejection> {
        let peer = match self.header {
            Header::Over => return Ok(0),
            Header::Forbidden(rejection) => return Err(rejection),
            Header::Awaited(peer) => peer,
        };
        let Some(header) = proxy::read(input).map_err(Rejection::Header)? else { return Ok(0) };
        let length = header.length;
        let mut client = header.client(peer);
        client.is_https = client.is_https.or(self.is_encrypted.then_some(true));
        if self.is_for_web_servers && !is_believed(&client, config) {
            self.header = Header::Forbidden(Rejection::NotTrusted);
            return Err(Rejection::NotTrusted);
        }
        self.header = Header::Over;
        self.forwarding = Forwarding::new(client, config.trust.as_ref());
        Ok(length)
    }
}

/// Returns true if `peer` is trusted as a web server, which names the client of each request. If there are trusted
/// proxies, the peer must be one of them or on this machine: a local web server forwards the data of trusted proxies in
/// front of it.
fn is_believed(peer: &Client, config: &Config) -> bool {
    let is_here = peer.address.is_none_or(|address| address.to_canonical().is_loopback());
    is_here || config.trust.as_ref().is_none_or(|trust| trust.proxies.contains(peer.address))
}
