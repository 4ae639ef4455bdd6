//! Frames (RFC 9113 section 4): their headers, and functions that write them.

use super::error::{ErrorCode, Violation};

/// The length of a frame header in bytes.
pub(super) const HEADER: usize = 9;
/// The largest payload that this crate sends and accepts. Every peer must accept it (RFC 9113 section 4.2).
pub(super) const PAYLOAD: usize = 16_384;
/// The bytes that a client sends first (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
/// Defined in RFC 9218 section 7.1.
pub(super) const PRIORITY_UPDATE: u8 = 16;

pub(super) const END_STREAM: u8 = 0x01;
pub(super) const ACK: u8 = 0x01;
pub(super) const END_HEADERS: u8 = 0x04;
pub(super) const PADDED: u8 = 0x08;
pub(super) const HAS_PRIORITY: u8 = 0x20;

/// The largest stream number, and the largest window.
pub(super) const MOST: u32 = (1 << 31) - 1;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    /// Reads the header at the start of `input`. Returns `None` if it is incomplete.
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = *input.first_chunk::<HEADER>()?;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // The reserved bit is ignored (section 4.1).
        Some(Self { length, kind, flags, stream: u32::from_be_bytes(stream) & MOST })
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Checks the rules for the order and the length of frames that hold in both roles (RFC 9113 sections 3.4, 4.2 and
    /// 6.10). `open_block` is the stream whose header block is incomplete. Returns true if the frame continues that
    /// block; then the caller need not check other rules.
    #[inline]
    pub(super) fn check_order(self, awaits_settings: bool, open_block: Option<u32>) -> Result<bool, Violation> {
        if awaits_settings && (self.kind != SETTINGS || self.has(ACK)) {
            return Err(Violation::SettingsMissing);
        }
        if self.length > PAYLOAD {
            return Err(Violation::FrameTooLarge);
        }
        match open_block {
            Some(stream) if self.kind == CONTINUATION && self.stream == stream => Ok(true),
            Some(_) => Err(Violation::ContinuationExpected),
            None if self.kind == CONTINUATION => Err(Violation::ContinuationUnexpected),
            None => Ok(false),
        }
    }

    /// Returns the encoded header. `length` is at most [`PAYLOAD`].
    fn bytes(self) -> [u8; HEADER] {
        debug_assert!(self.length <= PAYLOAD, "a frame fits into the least size that all peers take");
        let mut bytes = [0; HEADER];
        bytes[..3].copy_from_slice(&self.length.to_be_bytes()[size_of::<usize>() - 3..]);
        (bytes[3], bytes[4]) = (self.kind, self.flags);
        bytes[5..].copy_from_slice(&self.stream.to_be_bytes());
        bytes
    }

    /// Appends the header.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }
}

/// Appends a frame.
pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    FrameHeader { length: payload.len(), kind, flags, stream }.write(out);
    out.extend_from_slice(payload);
}

pub(super) fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    write(RST_STREAM, 0, stream, &(code as u32).to_be_bytes(), out);
}

pub(super) fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    write(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), out);
}

/// Appends GOAWAY: no stream above `last` was or will be processed.
pub(super) fn write_go_away(last: u32, code: ErrorCode, explanation: &str, out: &mut Vec<u8>) {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last.to_be_bytes());
    payload[4..].copy_from_slice(&(code as u32).to_be_bytes());
    let length = payload.len() + explanation.len();
    FrameHeader { length, kind: GOAWAY, flags: 0, stream: 0 }.write(out);
    out.extend_from_slice(&payload);
    out.extend_from_slice(explanation.as_bytes());
}

/// Appends HEADERS with the header block that `write` appends.
pub(super) fn write_block(stream: u32, ends_stream: bool, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let length = out.len() - start - HEADER;
    if length > PAYLOAD {
        let block = out.split_off(start + HEADER);
        out.truncate(start);
        return write_headers(stream, &block, ends_stream, out);
    }
    let flags = END_HEADERS | if ends_stream { END_STREAM } else { 0 };
    out[start..start + HEADER].copy_from_slice(&FrameHeader { length, kind: HEADERS, flags, stream }.bytes());
}

/// Appends a header block as HEADERS, followed by CONTINUATION frames if it is long.
pub(super) fn write_headers(stream: u32, block: &[u8], ends_stream: bool, out: &mut Vec<u8>) {
    let (first, mut rest) = block.split_at(block.len().min(PAYLOAD));
    let ends = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
    write(HEADERS, ends(rest) | if ends_stream { END_STREAM } else { 0 }, stream, first, out);
    while !rest.is_empty() {
        let part;
        (part, rest) = rest.split_at(rest.len().min(PAYLOAD));
        write(CONTINUATION, ends(rest), stream, part, out);
    }
}

/// Returns the first four bytes as a number without the reserved bit; `None` if there are fewer.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes) & MOST)
}
