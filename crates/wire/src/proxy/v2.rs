//! Version 2: a fixed part of 16 bytes, addresses, and fields (type, length, value).

use super::{Header, ProxyFault, Source, crc32c::crc32c};
use crate::message::{ConnectionInfo, TlsInfo};
use core::net::{IpAddr, SocketAddr};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The length of the fixed part: signature, version and command, family and transport, length.
pub(super) const FIXED: usize = 16;
/// The maximum length of the part after the fixed one, in bytes.
pub(super) const VARIABLE_MAX: usize = 4096;

/// The types of fields.
mod kind {
    pub(super) const ALPN: u8 = 0x01;
    pub(super) const AUTHORITY: u8 = 0x02;
    pub(super) const CRC32C: u8 = 0x03;
    pub(super) const UNIQUE_ID: u8 = 0x05;
    pub(super) const SSL: u8 = 0x20;
    pub(super) const SSL_VERSION: u8 = 0x21;
    pub(super) const SSL_CN: u8 = 0x22;
    pub(super) const SSL_CIPHER: u8 = 0x23;
    pub(super) const NETNS: u8 = 0x30;
    pub(super) const CUSTOM_FIRST: u8 = 0xe0;
    pub(super) const CUSTOM_LAST: u8 = 0xef;
}

const UNIQUE_ID_MAX: usize = 128;

pub(super) fn read(input: &[u8]) -> Result<Option<Header>, ProxyFault> {
    let known = input.len().min(SIGNATURE.len());
    if input[..known] != SIGNATURE[..known] {
        return Err(ProxyFault::NoHeader);
    }
    let Some((&[version_and_command, family, high, low], _)) =
        input.get(SIGNATURE.len()..).and_then(|rest| rest.split_first_chunk())
    else {
        return Ok(None);
    };
    if version_and_command >> 4 != 2 {
        return Err(ProxyFault::NoHeader);
    }
    let is_local = match version_and_command & 0xf {
        0 => true,
        1 => false,
        _ => return Err(ProxyFault::Unassigned),
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > VARIABLE_MAX {
        return Err(ProxyFault::TooLong);
    }
    let Some(header) = input.get(..FIXED + length) else { return Ok(None) };
    let length = header.len();
    if is_local {
        // Everything after the fixed part must be ignored.
        return Ok(Some(Header { length, source: Source::Peer, info: ConnectionInfo::default() }));
    }
    let (source, destination, fields_start) = addresses(family, &header[FIXED..])?;
    let mut info = ConnectionInfo { destination, ..ConnectionInfo::default() };
    read_fields(header, FIXED + fields_start, &mut info)?;
    Ok(Some(Header { length, source, info }))
}

type Addresses = (Source, Option<SocketAddr>, usize);

/// Returns the source and the destination, and the number of bytes of `variable` that they occupy.
fn addresses(family: u8, variable: &[u8]) -> Result<Addresses, ProxyFault> {
    let length = match family >> 4 {
        0 => 0,
        1 => 12,
        2 => 36,
        3 => 216,
        _ => return Err(ProxyFault::Unassigned),
    };
    let is_stream = match family & 0xf {
        0 | 2 => false,
        1 => true,
        _ => return Err(ProxyFault::Unassigned),
    };
    let block = variable.get(..length).ok_or(ProxyFault::LengthInvalid)?;
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    let (source, destination) = match family >> 4 {
        _ if !is_stream => (Source::Peer, None),
        1 => {
            let address = |at: usize| IpAddr::from([block[at], block[at + 1], block[at + 2], block[at + 3]]);
            let source = SocketAddr::new(address(0), port(8));
            (Source::Address(source), Some(SocketAddr::new(address(4), port(10))))
        }
        2 => {
            let address = |at: usize| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&block[at..at + 16]);
                IpAddr::from(bytes)
            };
            let source = SocketAddr::new(address(0), port(32));
            (Source::Address(source), Some(SocketAddr::new(address(16), port(34))))
        }
        3 => (Source::Unix, None),
        _ => (Source::Peer, None),
    };
    Ok((source, destination, length))
}

/// Returns the fields of `bytes`: the type, offset and value of each. Stops after an error.
fn fields(bytes: &[u8], start: usize) -> impl Iterator<Item = Result<(u8, usize, &[u8]), ProxyFault>> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        let value_start = at + 3;
        let field = bytes.get(at..value_start).and_then(|head| {
            let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
            bytes.get(value_start..value_start + length).map(|value| (head[0], value_start, value))
        });
        at = field.map_or(bytes.len(), |(_, start, value)| start + value.len());
        Some(field.ok_or(ProxyFault::LengthInvalid))
    })
}

/// The maximum number of custom fields that are stored, which is the number of their types. An empty field takes 3
/// bytes in the header and 24 in memory.
const CUSTOM_MOST: usize = 16;

fn read_fields(header: &[u8], start: usize, info: &mut ConnectionInfo) -> Result<(), ProxyFault> {
    let mut has_checksum = false;
    for field in fields(header, start) {
        let (kind, at, value) = field?;
        match kind {
            kind::ALPN => set(&mut info.alpn, value.into())?,
            kind::AUTHORITY => set(&mut info.authority, text(value)?)?,
            kind::CRC32C => {
                let sent = value.try_into().map(u32::from_be_bytes).map_err(|_| ProxyFault::FieldInvalid)?;
                if std::mem::replace(&mut has_checksum, true) {
                    return Err(ProxyFault::FieldInvalid);
                }
                // The checksum is computed over the header with zeros in place of the checksum.
                if sent != crc32c(&[&header[..at], &[0; 4], &header[at + 4..]]) {
                    return Err(ProxyFault::ChecksumWrong);
                }
            }
            kind::UNIQUE_ID if value.len() > UNIQUE_ID_MAX => return Err(ProxyFault::FieldInvalid),
            kind::UNIQUE_ID => set(&mut info.unique_id, value.into())?,
            kind::SSL => {
                // If the first flag is not set, the client did not use TLS, and the other data has no meaning.
                if let Some(tls) = tls(value)? {
                    set(&mut info.tls, tls)?;
                }
            }
            kind::NETNS => set(&mut info.namespace, text(value)?)?,
            kind::CUSTOM_FIRST..=kind::CUSTOM_LAST if info.custom.len() < CUSTOM_MOST => {
                info.custom.push((kind, value.into()));
            }
            // Unknown types and padding must be ignored.
            _ => {}
        }
    }
    debug_assert!(info.unique_id.as_ref().is_none_or(|id| id.len() <= UNIQUE_ID_MAX));
    debug_assert!(info.custom.len() <= CUSTOM_MOST);
    Ok(())
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), ProxyFault> {
    if place.replace(value).is_some() { Err(ProxyFault::FieldInvalid) } else { Ok(()) }
}

fn text(value: &[u8]) -> Result<Box<str>, ProxyFault> {
    std::str::from_utf8(value).map(Into::into).map_err(|_| ProxyFault::FieldInvalid)
}

/// Reads `pp2_tlv_ssl`: flags, the result of the verification, and nested fields.
fn tls(value: &[u8]) -> Result<Option<TlsInfo>, ProxyFault> {
    const USED: u8 = 1;
    const CERTIFICATE: u8 = 2 | 4;
    let Some((&[flags, verify @ ..], _)) = value.split_first_chunk::<5>() else {
        return Err(ProxyFault::LengthInvalid);
    };
    let has_certificate = flags & CERTIFICATE != 0;
    let is_verified = has_certificate && verify == [0; 4];
    let mut tls = TlsInfo { has_certificate, is_verified, ..TlsInfo::default() };
    for field in fields(value, 5) {
        let (kind, _, value) = field?;
        match kind {
            kind::SSL_VERSION => set(&mut tls.version, text(value)?)?,
            kind::SSL_CN => set(&mut tls.common_name, text(value)?)?,
            kind::SSL_CIPHER => set(&mut tls.cipher, text(value)?)?,
            _ => {}
        }
    }
    Ok((flags & USED != 0).then_some(tls))
}
