//! The writing side: converts messages and control frames to bytes (RFC 6455 sections 5 and 6.1, RFC 7692 section
//! 7.2.1).

use super::close;
use super::close_code::CloseCode;
use super::deflate::{Compression, WINDOW_BITS_LEAST, WINDOW_BITS_MOST};
use super::extension::Deflate;
use super::frame::{self, ControlPayload, FIN, HEADER_MAX, Kind, Opcode, RSV1};
use super::mask::{self, Role};
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// The minimum length of a message that is compressed. For a shorter one, resetting the compressor costs more than
/// sending the bytes.
const COMPRESS_FROM: usize = 256;

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
}

impl<'a> Outgoing<'a> {
    /// Returns the type of the message.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Outgoing::Text(_) => Kind::Text,
            Outgoing::Binary(_) => Kind::Binary,
        }
    }

    /// Returns the bytes of the message.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Outgoing::Text(text) => text.as_bytes(),
            Outgoing::Binary(bytes) => bytes,
        }
    }
}

/// A reason why the application must not send something now. No byte of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// A Close frame has been sent or received, or the connection has ended.
    Closed,
    /// A message that is sent in parts has not ended.
    MessageOpen,
    /// The unsent bytes exceed the limit. The message can be sent when the peer has accepted some of them.
    QueueFull,
    /// The parts of a message are of different types.
    KindChanged,
}

impl fmt::Display for SendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SendError::Closed => "the WebSocket is closed",
            SendError::MessageOpen => "a message that is sent in parts has not ended: send its last part first",
            SendError::QueueFull => "the client does not take its messages: more wait to be sent than the limit allows",
            SendError::KindChanged => "the parts of one message must be all text or all binary",
        })
    }
}

impl std::error::Error for SendError {}

/// The header of a frame, sent before the payload.
#[derive(Clone, Copy, Debug)]
pub struct FrameHead {
    bytes: [u8; HEADER_MAX],
    length: u8,
}

impl FrameHead {
    fn new(first: u8, length: u64, key: Option<[u8; 4]>) -> Self {
        let (bytes, length) = frame::write(first, length, key);
        // A header has at most 14 bytes.
        #[allow(clippy::cast_possible_truncation)]
        let length = length as u8;
        Self { bytes, length }
    }
}

impl Deref for FrameHead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The position between messages, or within a message that is sent in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Between,
    InMessage(Kind),
}

/// A writer of frames.
#[derive(Debug)]
pub struct Sender {
    role: Role,
    /// The compression window in bits; `None` if messages are not compressed.
    bits: Option<u8>,
    phase: Phase,
}

impl Sender {
    /// Creates the sender of one end of a connection.
    #[must_use]
    pub fn new(role: Role, deflate: Option<Deflate>) -> Self {
        let bits = deflate.and_then(|deflate| deflate.send_bits);
        debug_assert!(bits.is_none_or(|bits| (WINDOW_BITS_LEAST..=WINDOW_BITS_MOST).contains(&bits)));
        Self { role, bits, phase: Phase::Between }
    }

    /// Returns true if this is the server's end.
    #[must_use]
    pub fn is_server(&self) -> bool {
        matches!(self.role, Role::Server)
    }

    /// Appends a message to `out` as one frame. It is compressed if that was negotiated and makes it shorter.
    ///
    /// # Errors
    /// [`SendError::MessageOpen`].
    pub fn message(
        &mut self,
        message: Outgoing<'_>,
        compression: &mut Compression,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        self.check_between()?;
        let first = FIN | Opcode::Message(message.kind()).bits();
        if let Some(bits) = self.bits.filter(|_| message.bytes().len() >= COMPRESS_FROM) {
            let mut compressed = Vec::new();
            if compression.deflate(bits, message.bytes(), &mut compressed) {
                self.frame(first | RSV1, &compressed, out);
                return Ok(());
            }
        }
        self.frame(first, message.bytes(), out);
        Ok(())
    }

    /// Returns the header of a message that the caller sends as one frame without copying it: `length` bytes must
    /// follow it.
    ///
    /// Returns `None` if the payload may have to be changed first: a client masks it, and compression may shorten it.
    ///
    /// # Errors
    /// [`SendError::MessageOpen`].
    pub fn head(&mut self, kind: Kind, length: u64) -> Result<Option<FrameHead>, SendError> {
        self.check_between()?;
        let is_plain = self.is_server() && (self.bits.is_none() || length < COMPRESS_FROM as u64);
        Ok(is_plain.then(|| FrameHead::new(FIN | Opcode::Message(kind).bits(), length, None)))
    }

    /// Appends a part of a message, as one uncompressed frame.
    ///
    /// # Errors
    /// [`SendError::KindChanged`].
    pub fn part(&mut self, part: Outgoing<'_>, is_last: bool, out: &mut Vec<u8>) -> Result<(), SendError> {
        let opcode = match self.phase {
            Phase::Between => Opcode::Message(part.kind()),
            Phase::InMessage(kind) if kind == part.kind() => Opcode::Continuation,
            Phase::InMessage(_) => return Err(SendError::KindChanged),
        };
        self.phase = if is_last { Phase::Between } else { Phase::InMessage(part.kind()) };
        let first = opcode.bits() | if is_last { FIN } else { 0 };
        self.frame(first, part.bytes(), out);
        Ok(())
    }

    /// Returns the frame of a prepared message. Only for servers: each frame of a client has its own mask.
    ///
    /// # Errors
    /// [`SendError::MessageOpen`].
    pub fn prepared<'p>(
        &mut self,
        prepared: &'p Prepared,
        compression: &mut Compression,
    ) -> Result<&'p [u8], SendError> {
        debug_assert!(self.is_server(), "a client masks each frame anew");
        self.check_between()?;
        Ok(prepared.frame(self.bits, compression))
    }

    /// Appends a Ping frame to `out`.
    pub fn ping(&mut self, payload: &ControlPayload, out: &mut Vec<u8>) {
        self.frame(FIN | Opcode::Ping.bits(), payload, out);
    }

    /// Appends a Pong frame to `out`.
    pub fn pong(&mut self, payload: &ControlPayload, out: &mut Vec<u8>) {
        self.frame(FIN | Opcode::Pong.bits(), payload, out);
    }

    /// Appends a Close frame to `out`. A reason is cut at the end of a character after at most 123 bytes. Without a
    /// code, the reason is left out.
    pub fn close(&mut self, code: Option<CloseCode>, reason: &str, out: &mut Vec<u8>) {
        self.frame(FIN | Opcode::Close.bits(), &close::payload(code, reason), out);
    }

    fn check_between(&self) -> Result<(), SendError> {
        if self.phase == Phase::Between { Ok(()) } else { Err(SendError::MessageOpen) }
    }

    fn frame(&mut self, first: u8, payload: &[u8], out: &mut Vec<u8>) {
        let key = self.role.next_key();
        let head = FrameHead::new(first, payload.len() as u64, key);
        out.reserve(head.len() + payload.len());
        out.extend_from_slice(&head);
        let start = out.len();
        out.extend_from_slice(payload);
        if let Some(key) = key {
            mask::apply(&mut out[start..], key, 0);
        }
    }
}

/// A message of a server that is framed once and sent to many clients.
///
/// The uncompressed frame is made at once. A compressed frame is made when the first client needs it; there is one for
/// each negotiated window size.
#[derive(Debug)]
pub struct Prepared {
    head: u8,
    plain: Box<[u8]>,
    /// The frames by window size. An inner `None` means that compression does not make the message shorter.
    compressed: [OnceLock<Option<Box<[u8]>>>; (WINDOW_BITS_MOST - WINDOW_BITS_LEAST) as usize + 1],
}

impl Prepared {
    /// Creates the frame of a message.
    #[must_use]
    pub fn new(message: Outgoing<'_>) -> Self {
        let head = FrameHead::new(FIN | Opcode::Message(message.kind()).bits(), message.bytes().len() as u64, None);
        Self { head: head.length, plain: [&head, message.bytes()].concat().into(), compressed: Default::default() }
    }

    /// Returns the bytes of the message, without its header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.plain[usize::from(self.head)..]
    }

    /// Returns the frame for a client with a compression window of `bits`; `None` means no compression.
    fn frame(&self, bits: Option<u8>, compression: &mut Compression) -> &[u8] {
        let Some(bits) = bits.filter(|_| self.payload().len() >= COMPRESS_FROM) else { return &self.plain };
        let compressed = self.compressed[usize::from(bits - WINDOW_BITS_LEAST)].get_or_init(|| {
            let mut bytes = Vec::new();
            compression.deflate(bits, self.payload(), &mut bytes).then(|| {
                let head = FrameHead::new(self.plain[0] | RSV1, bytes.len() as u64, None);
                [&head, &bytes[..]].concat().into()
            })
        });
        compressed.as_deref().unwrap_or(&self.plain)
    }
}
