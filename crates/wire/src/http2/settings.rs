//! SETTINGS (RFC 9113 section 6.5).

use super::error::Violation;
use super::frame::{self, MOST, PAYLOAD};

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
/// Defined in RFC 8441 section 3.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// Defined in RFC 9218 section 2.1.
const NO_RFC7540_PRIORITIES: u16 = 9;

/// The initial flow-control window of a stream until the peer sends `SETTINGS_INITIAL_WINDOW_SIZE`.
pub(super) const DEFAULT_WINDOW: u32 = 65_535;

/// The peer's settings that this end obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerSettings {
    /// The maximum size of the dynamic table of this end's encoder, in bytes.
    pub(super) header_table: usize,
    /// The initial flow-control window of a new stream, in bytes.
    pub(super) initial_window: u32,
    /// The number of streams that this end may have open at a time.
    pub(super) most_streams: u32,
    /// `SETTINGS_ENABLE_PUSH`, if the peer sent it. This crate never pushes.
    pub(super) allows_push: Option<bool>,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table: super::hpack::TABLE_SIZE,
            initial_window: DEFAULT_WINDOW,
            most_streams: u32::MAX,
            allows_push: None,
        }
    }
}

impl PeerSettings {
    /// Applies the settings of a frame in their order.
    pub(super) fn take(&mut self, payload: &[u8]) -> Result<(), Violation> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Violation::FrameLengthInvalid);
        }
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                HEADER_TABLE_SIZE => self.header_table = usize::try_from(value).unwrap_or(usize::MAX),
                INITIAL_WINDOW_SIZE if value > MOST => return Err(Violation::SettingWindowTooLarge),
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_CONCURRENT_STREAMS => self.most_streams = value,
                // This crate never sends a frame larger than the size that every peer accepts, so the value is only
                // checked.
                MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => return Err(Violation::SettingInvalid),
                ENABLE_PUSH | ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Violation::SettingInvalid);
                }
                ENABLE_PUSH => self.allows_push = Some(value == 1),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The settings of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnSettings {
    pub(super) streams: u32,
    pub(super) window: u32,
    pub(super) head: u32,
    /// True if an extended CONNECT may open a WebSocket.
    pub(super) takes_websockets: bool,
}

impl OwnSettings {
    /// Appends the SETTINGS frame that a server sends first.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let settings = [
            (MAX_CONCURRENT_STREAMS, self.streams),
            (INITIAL_WINDOW_SIZE, self.window),
            (MAX_HEADER_LIST_SIZE, self.head),
            (NO_RFC7540_PRIORITIES, 1),
            (ENABLE_CONNECT_PROTOCOL, 1),
        ];
        write(&settings[..if self.takes_websockets { 5 } else { 4 }], out);
    }
}

/// The settings of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientSettings {
    pub(super) window: u32,
}

impl ClientSettings {
    /// Appends the SETTINGS frame that a client sends first.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        write(&[(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, self.window)], out);
    }
}

fn write(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(30);
    for (name, value) in settings {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    debug_assert!(payload.len() <= PAYLOAD, "a few settings fit into a frame");
    frame::write(frame::SETTINGS, 0, 0, &payload, out);
}
