//! One address in a list of proxies. `core::net` has types for addresses, but no sockets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The origin of a request, as one proxy reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// An IP address, and the port if the proxy reported it. An IPv4 address is never in IPv6 form.
    Address(IpAddr, Option<u16>),
    /// A Unix socket; nginx writes `unix:`.
    Unix,
    /// No address: `unknown`, an obfuscated identifier such as `_hidden` (RFC 7239 section 6.3), or any other text.
    Hidden,
}

impl Node {
    /// Reads a node of RFC 7239 section 6. Unlike in `X-Forwarded-For`, an IPv6 address must be in brackets: otherwise
    /// its last part could be a port.
    #[must_use]
    pub fn read_rfc7239(text: &[u8]) -> Self {
        let has_brackets = text.first() == Some(&b'[');
        match Self::read(text) {
            Node::Address(..) if !has_brackets && memchr::memchr_iter(b':', text).nth(1).is_some() => Node::Hidden,
            node => node,
        }
    }

    /// Reads `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80` (RFC 7239 section 6, and
    /// the usual content of `X-Forwarded-For`). A link-local address may have a zone (`fe80::1%eth0`), as written by
    /// proxies in Go. It names an interface of the proxy, and is ignored.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        if text.len() >= 5 && text[..5].eq_ignore_ascii_case(b"unix:") {
            return Node::Unix;
        }
        // The longest form is an IPv4 address in IPv6 form, in brackets, with a zone and a port.
        if text.len() > 53 + ZONE_MAX {
            return Node::Hidden;
        }
        let Ok(text) = std::str::from_utf8(text) else { return Node::Hidden };
        let found = if let Some(rest) = text.strip_prefix('[') {
            rest.split_once(']').and_then(|(address, after)| {
                let address = IpAddr::V6(ipv6(address)?);
                Some((address, if after.is_empty() { None } else { port(after.strip_prefix(':')?)? }))
            })
        } else if let Ok(address) = text.parse::<IpAddr>() {
            Some((address, None))
        } else if text.contains('%') {
            ipv6(text).map(|address| (IpAddr::V6(address), None))
        } else {
            text.split_once(':')
                .and_then(|(address, after)| Some((IpAddr::V4(address.parse::<Ipv4Addr>().ok()?), port(after)?)))
        };
        found.map_or(Node::Hidden, |(address, port)| Node::Address(address.to_canonical(), port))
    }
}

/// The maximum length of a zone with its percent sign: interface names have at most 15 bytes in Linux, and an escaped
/// percent sign takes two more.
const ZONE_MAX: usize = 18;

/// Reads an IPv6 address. Only a link-local address may have a zone (RFC 4007 section 11).
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let Some((address, zone)) = text.split_once('%') else { return text.parse().ok() };
    let is_zone = !zone.is_empty() && zone.len() < ZONE_MAX && zone.bytes().all(|byte| byte.is_ascii_graphic());
    address.parse().ok().filter(|address: &Ipv6Addr| is_zone && address.is_unicast_link_local())
}

/// Reads a port. Returns `Some(None)` for an obfuscated one (RFC 7239 section 6.3), and `None` for invalid text.
#[allow(clippy::option_option, reason = "the two kinds of nothing differ")]
fn port(text: &str) -> Option<Option<u16>> {
    if let Some(name) = text.strip_prefix('_') {
        let is_obfuscated = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        return (!name.is_empty() && name.bytes().all(is_obfuscated)).then_some(None);
    }
    let is_number = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten().map(Some)
}
