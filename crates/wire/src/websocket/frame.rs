//! The header of a frame (RFC 6455 section 5.2).

use super::fault::WebSocketFault;
use std::fmt;
use std::ops::Deref;

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// Arbitrary bytes.
    Binary,
}

/// The opcode of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Message(Kind),
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn read(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Message(Kind::Text),
            2 => Opcode::Message(Kind::Binary),
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    pub(super) fn bits(self) -> u8 {
        match self {
            Opcode::Continuation => 0,
            Opcode::Message(Kind::Text) => 1,
            Opcode::Message(Kind::Binary) => 2,
            Opcode::Close => 8,
            Opcode::Ping => 9,
            Opcode::Pong => 10,
        }
    }

    fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }
}

pub(super) const FIN: u8 = 0x80;
pub(super) const RSV1: u8 = 0x40;
const RSV2_RSV3: u8 = 0x30;
const MASK: u8 = 0x80;

/// The maximum length of a header: two bytes, a length of eight bytes and a mask of four.
pub(super) const HEADER_MAX: usize = 14;

/// A decoded frame header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) is_final: bool,
    /// True if the frame begins a compressed message (RFC 7692 section 6).
    pub(super) is_compressed: bool,
    pub(super) opcode: Opcode,
    pub(super) length: u64,
    /// The masking key; zeros if the frame is not masked.
    pub(super) key: [u8; 4],
}

/// The conditions on which the validity of a frame header depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// True if the frames come from a client.
    pub(super) is_masked: bool,
    /// True if permessage-deflate was negotiated.
    pub(super) may_compress: bool,
    /// True if a message is incomplete.
    pub(super) is_in_message: bool,
}

/// Reads the header at the start of `bytes`. Returns it with its length; `None` if it is incomplete.
///
/// Each byte is checked as soon as it is available, so the fault does not depend on how the bytes are split.
pub(super) fn read(bytes: &[u8], allowed: Allowed) -> Result<Option<(Header, usize)>, WebSocketFault> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let opcode = Opcode::read(first & 0x0f).ok_or(WebSocketFault::OpcodeUnknown)?;
    let is_compressed = first & RSV1 != 0;
    if first & RSV2_RSV3 != 0 || is_compressed && !(allowed.may_compress && matches!(opcode, Opcode::Message(_))) {
        return Err(WebSocketFault::ReservedBit);
    }
    let is_final = first & FIN != 0;
    match opcode {
        Opcode::Continuation if !allowed.is_in_message => return Err(WebSocketFault::ContinuationUnexpected),
        Opcode::Message(_) if allowed.is_in_message => return Err(WebSocketFault::MessageInterrupted),
        _ if opcode.is_control() && !is_final => return Err(WebSocketFault::ControlFragmented),
        _ => {}
    }
    let Some(&second) = bytes.get(1) else { return Ok(None) };
    match (second & MASK != 0, allowed.is_masked) {
        (false, true) => return Err(WebSocketFault::MaskMissing),
        (true, false) => return Err(WebSocketFault::MaskUnexpected),
        _ => {}
    }
    let short = second & !MASK;
    if opcode.is_control() && short > 125 {
        return Err(WebSocketFault::ControlTooLong);
    }
    let (length, mut at) = match short {
        126 => {
            let Some(&[_, _, a, b]) = bytes.first_chunk() else { return Ok(None) };
            let length = u64::from(u16::from_be_bytes([a, b]));
            if length < 126 {
                return Err(WebSocketFault::LengthNotMinimal);
            }
            (length, 4)
        }
        127 => {
            if bytes.get(2).is_some_and(|&highest| highest & 0x80 != 0) {
                return Err(WebSocketFault::LengthTooLarge);
            }
            let Some(long) = bytes.get(2..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
            let length = u64::from_be_bytes(*long);
            if u16::try_from(length).is_ok() {
                return Err(WebSocketFault::LengthNotMinimal);
            }
            (length, 10)
        }
        short => (u64::from(short), 2),
    };
    let mut key = [0; 4];
    if allowed.is_masked {
        let Some(mask) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
        key = *mask;
        at += 4;
    }
    Ok(Some((Header { is_final, is_compressed, opcode, length, key }, at)))
}

/// Writes a header that begins with the byte `first`, for a payload of `length` bytes. Returns it with its length.
pub(super) fn write(first: u8, length: u64, key: Option<[u8; 4]>) -> ([u8; HEADER_MAX], usize) {
    let mut bytes = [0; HEADER_MAX];
    bytes[0] = first;
    // The match arms ensure that each length fits its type.
    #[allow(clippy::cast_possible_truncation)]
    let mut at = match length {
        0..126 => {
            bytes[1] = length as u8;
            2
        }
        126..0x1_0000 => {
            bytes[1] = 126;
            bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            4
        }
        _ => {
            bytes[1] = 127;
            bytes[2..10].copy_from_slice(&length.to_be_bytes());
            10
        }
    };
    if let Some(key) = key {
        bytes[1] |= MASK;
        bytes[at..at + 4].copy_from_slice(&key);
        at += 4;
    }
    (bytes, at)
}

/// The payload of a control frame, at most 125 bytes.
#[derive(Clone, Copy)]
pub struct ControlPayload {
    bytes: [u8; ControlPayload::MOST],
    length: u8,
}

impl ControlPayload {
    /// The maximum length of a control frame's payload (RFC 6455 section 5.5).
    pub const MOST: usize = 125;

    /// Creates a payload. Returns `None` if `bytes` are more than 125.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut payload = Self::default();
        (bytes.len() <= Self::MOST).then(|| {
            payload.extend(bytes);
            payload
        })
    }

    /// Appends `bytes`, which must fit.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        // At most 125: otherwise the line above panics.
        #[allow(clippy::cast_possible_truncation)]
        let added = bytes.len() as u8;
        self.length += added;
        debug_assert!(usize::from(self.length) <= Self::MOST);
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..usize::from(self.length)]
    }
}

impl Default for ControlPayload {
    fn default() -> Self {
        Self { bytes: [0; Self::MOST], length: 0 }
    }
}

impl Deref for ControlPayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl PartialEq for ControlPayload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ControlPayload {}

impl fmt::Debug for ControlPayload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_that_is_written_is_read_back_with_the_shortest_length() {
        for (length, size) in
            [(0, 2), (125, 2), (126, 4), (65535, 4), (65536, 10), (u64::try_from(i64::MAX).unwrap(), 10)]
        {
            for key in [None, Some([1, 2, 3, 4])] {
                let (bytes, used) = write(FIN | 2, length, key);
                assert_eq!(used, size + key.map_or(0, |_| 4));
                let allowed = Allowed { is_masked: key.is_some(), may_compress: false, is_in_message: false };
                for cut in 0..used {
                    assert!(read(&bytes[..cut], allowed).unwrap().is_none(), "{length} cut at {cut}");
                }
                let (header, read) = read(&bytes[..used], allowed).unwrap().unwrap();
                assert_eq!((read, header.length, header.key), (used, length, key.unwrap_or_default()));
            }
        }
    }
}
