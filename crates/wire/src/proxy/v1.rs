//! Version 1: one line of text.

use super::{Header, ProxyFault, Source};
use crate::message::ConnectionInfo;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum length of the line with its CRLF, which is needed for two IPv6 addresses.
const LINE_MAX: usize = 107;
const START: &[u8] = b"PROXY ";

pub(super) fn read(input: &[u8]) -> Result<Option<Header>, ProxyFault> {
    let known = input.len().min(START.len());
    if input[..known] != START[..known] {
        return Err(ProxyFault::NoHeader);
    }
    let bounded = &input[..input.len().min(LINE_MAX)];
    let Some(feed) = memchr::memchr(b'\n', bounded) else {
        return if input.len() < LINE_MAX { Ok(None) } else { Err(ProxyFault::LineTooLong) };
    };
    // `bounded` begins with START, which contains no line feed.
    let Some(line) = bounded[START.len()..feed].strip_suffix(b"\r") else { return Err(ProxyFault::LineInvalid) };
    let (source, destination) = addresses(line).ok_or(ProxyFault::LineInvalid)?;
    Ok(Some(Header { length: feed + 1, source, info: ConnectionInfo { destination, ..ConnectionInfo::default() } }))
}

/// Reads family, source address, destination address, source port and destination port, separated by single spaces.
fn addresses(line: &[u8]) -> Option<(Source, Option<SocketAddr>)> {
    // Text after UNKNOWN must be ignored.
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return (!line.contains(&b'\r')).then_some((Source::Peer, None));
    }
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let family = words.next()?;
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let (source, destination) = (address(words.next()?)?, address(words.next()?)?);
    let (source_port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    if words.next().is_some() {
        return None;
    }
    let source = SocketAddr::new(source, source_port);
    Some((Source::Address(source), Some(SocketAddr::new(destination, destination_port))))
}

/// Reads a decimal number from 0 to 65535 without leading zeros.
fn port(text: &str) -> Option<u16> {
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    (!has_leading_zero && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}
