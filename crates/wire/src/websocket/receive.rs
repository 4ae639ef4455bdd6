//! The reading side: converts bytes to messages and control frames (RFC 6455 sections 5 and 6.2, RFC 7692 section
//! 7.2.2).

use super::close::CloseFrame;
use super::deflate::{Compression, Context, INFLATER_BYTES, Inflating};
use super::extension::Deflate;
use super::fault::WebSocketFault;
use super::frame::{self, Allowed, ControlPayload, HEADER_MAX, Header, Kind, Opcode};
use super::mask;
use std::borrow::Cow;

/// The number of compressed bytes that are inflated in one step. They expand to at most 1 MiB.
const INFLATE_AT_MOST: usize = 1024;

/// The next item in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<'i> {
    /// The whole input was used, and more is needed.
    More,
    /// A part of a message: a frame that does not end it, or the bytes that were inflated in one step. It lets the
    /// caller measure the work, because empty fragments and compressed bytes cost far more than their length suggests.
    Part,
    /// A complete message. It borrows from the input if it arrived in one piece as one uncompressed frame.
    Message {
        /// The type of the message.
        kind: Kind,
        /// The bytes of the message; valid UTF-8 if it is text.
        bytes: Cow<'i, [u8]>,
    },
    /// A Ping frame.
    Ping(ControlPayload),
    /// A Pong frame.
    Pong(ControlPayload),
    /// A Close frame. All input after it is discarded.
    Close(CloseFrame),
}

/// The part of a frame to which the next byte belongs.
#[derive(Debug)]
enum Stage {
    /// A header, of which `length` bytes have arrived.
    Header { bytes: [u8; HEADER_MAX], length: u8 },
    /// The payload of a data frame.
    Data { is_final: bool, left: u64, key: [u8; 4], offset: u64 },
    /// The payload of a control frame.
    Control { opcode: Opcode, left: u8, key: [u8; 4], payload: Box<ControlPayload> },
    /// The input after a Close frame or a fault, which is discarded.
    Over,
}

const START: Stage = Stage::Header { bytes: [0; HEADER_MAX], length: 0 };

/// An incomplete message.
#[derive(Debug)]
struct Partial {
    kind: Kind,
    bytes: Vec<u8>,
    /// The length of the prefix that is known to be valid UTF-8. Used only for text.
    valid: usize,
    inflating: Option<Inflating>,
}

/// A reader of the peer's frames.
///
/// It uses its whole input and stores the received part of a message. Text is validated as it arrives, and the message
/// limit is enforced during inflating.
#[derive(Debug)]
pub struct Receiver {
    is_masked: bool,
    stage: Stage,
    message: Option<Box<Partial>>,
    /// The bytes to which compressed messages may refer; `None` if compression was not negotiated.
    context: Option<Context>,
}

impl Receiver {
    /// Creates the receiver of a server or of a client.
    #[must_use]
    pub fn new(is_server: bool, deflate: Option<Deflate>) -> Self {
        let context = deflate.map(|deflate| Context::new(deflate.context_bits));
        Self { is_masked: is_server, stage: START, message: None, context }
    }

    /// Returns true if a message or a frame is incomplete.
    #[must_use]
    pub fn is_in_message(&self) -> bool {
        self.message.is_some() || !matches!(self.stage, Stage::Header { length: 0, .. } | Stage::Over)
    }

    /// Returns the memory used for the incomplete message and the peer's compression context, in bytes.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let message = self.message.as_ref().map_or(0, |message| {
            let inflater = if message.inflating.is_some() { INFLATER_BYTES } else { 0 };
            size_of::<Partial>() + message.bytes.capacity() + inflater
        });
        let context = if let Some(Context::Kept { bytes, .. }) = &self.context { bytes.capacity() } else { 0 };
        message + context
    }

    /// Returns the number of bytes received of the incomplete message, after inflating.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.bytes.len())
    }

    /// Drops the received part of a message. All later input is discarded.
    pub fn stop(&mut self, compression: &mut Compression) {
        self.stage = Stage::Over;
        if let Some(inflating) = self.message.take().and_then(|message| message.inflating) {
            inflating.abandon(compression);
        }
    }

    /// Reads from `input`, which is unmasked in place. Returns the number of bytes used, and their meaning.
    ///
    /// `most` is the maximum length of a message in bytes.
    ///
    /// # Errors
    /// The rule that the peer broke. Later input is discarded.
    pub fn next<'i>(
        &mut self,
        input: &'i mut [u8],
        most: usize,
        compression: &mut Compression,
    ) -> Result<(usize, Received<'i>), WebSocketFault> {
        let result = self.read(input, most, compression);
        if matches!(result, Err(_) | Ok((_, Received::Close(_)))) {
            self.stop(compression);
        }
        result
    }

    fn read<'i>(
        &mut self,
        input: &'i mut [u8],
        most: usize,
        compression: &mut Compression,
    ) -> Result<(usize, Received<'i>), WebSocketFault> {
        let mut at = 0;
        loop {
            match &mut self.stage {
                Stage::Over => return Ok((input.len(), Received::More)),
                Stage::Header { .. } => {
                    let Some(header) = self.header(input, &mut at)? else { return Ok((at, Received::More)) };
                    let is_here = (input.len() - at) as u64 >= header.length;
                    match header.opcode {
                        Opcode::Message(kind) if header.is_final && !header.is_compressed && is_here => {
                            return whole(kind, header, at, input, most);
                        }
                        Opcode::Message(_) | Opcode::Continuation => self.begin_data(header, most, compression)?,
                        opcode => {
                            // The payload of a control frame has at most 125 bytes.
                            #[allow(clippy::cast_possible_truncation)]
                            let left = header.length as u8;
                            self.stage = Stage::Control { opcode, left, key: header.key, payload: Box::default() };
                        }
                    }
                }
                Stage::Data { .. } => {
                    let rest = &mut input[at..];
                    at += self.data(rest, most, compression)?;
                    if !matches!(self.stage, Stage::Data { left: 0, .. }) {
                        return Ok((at, if at < input.len() { Received::Part } else { Received::More }));
                    }
                    return Ok(match self.end_frame(most, compression)? {
                        Some((kind, bytes)) => (at, Received::Message { kind, bytes: Cow::Owned(bytes) }),
                        None => (at, Received::Part),
                    });
                }
                Stage::Control { opcode, left, key, payload } => {
                    let part = &input[at..input.len().min(at + usize::from(*left))];
                    payload.extend(part);
                    at += part.len();
                    // `part` is not longer than `left`.
                    #[allow(clippy::cast_possible_truncation)]
                    let taken = part.len() as u8;
                    *left -= taken;
                    if *left > 0 {
                        return Ok((at, Received::More));
                    }
                    mask::apply(payload.bytes_mut(), *key, 0);
                    let (opcode, payload) = (*opcode, **payload);
                    self.stage = START;
                    let received = match opcode {
                        Opcode::Ping => Received::Ping(payload),
                        Opcode::Pong => Received::Pong(payload),
                        _ => Received::Close(CloseFrame::read(&payload)?),
                    };
                    return Ok((at, received));
                }
            }
        }
    }

    /// Reads the header that begins or continues at `at`. Returns `None` if it is incomplete.
    fn header(&mut self, input: &[u8], at: &mut usize) -> Result<Option<Header>, WebSocketFault> {
        let allowed = Allowed {
            is_masked: self.is_masked,
            may_compress: self.context.is_some(),
            is_in_message: self.message.is_some(),
        };
        let Stage::Header { bytes, length } = &mut self.stage else { return Ok(None) };
        let rest = &input[*at..];
        if *length == 0
            && let Some((header, used)) = frame::read(rest, allowed)?
        {
            *at += used;
            return Ok(Some(header));
        }
        let old = usize::from(*length);
        let new = rest.len().min(HEADER_MAX - old);
        bytes[old..old + new].copy_from_slice(&rest[..new]);
        if let Some((header, used)) = frame::read(&bytes[..old + new], allowed)? {
            *at += used - old;
            *length = 0;
            return Ok(Some(header));
        }
        *at += new;
        // A header has at most 14 bytes.
        #[allow(clippy::cast_possible_truncation)]
        let here = (old + new) as u8;
        *length = here;
        Ok(None)
    }

    /// Starts a data frame that is incomplete, compressed, or not a whole message.
    fn begin_data(&mut self, header: Header, most: usize, compression: &mut Compression) -> Result<(), WebSocketFault> {
        if let Opcode::Message(kind) = header.opcode {
            let context = self.context.as_ref().filter(|_| header.is_compressed);
            let inflating = context.map(|context| Inflating::begin(compression, context));
            self.message = Some(Box::new(Partial { kind, bytes: Vec::new(), valid: 0, inflating }));
        }
        if let Some(message) = &self.message {
            // Compression enlarges incompressible data only a little.
            let (before, limit) = match &message.inflating {
                Some(inflating) => (inflating.received(), (most as u64).saturating_add(most as u64 / 8 + 1024)),
                None => (message.bytes.len() as u64, most as u64),
            };
            if header.length > limit.saturating_sub(before) {
                return Err(WebSocketFault::MessageTooLarge);
            }
        }
        self.stage = Stage::Data { is_final: header.is_final, left: header.length, key: header.key, offset: 0 };
        Ok(())
    }

    /// Reads the part of a data frame's payload at the start of `input`. Returns its length.
    fn data(&mut self, input: &mut [u8], most: usize, compression: &mut Compression) -> Result<usize, WebSocketFault> {
        let (Stage::Data { left, key, offset, .. }, Some(message)) = (&mut self.stage, &mut self.message) else {
            return Ok(0);
        };
        let step = if message.inflating.is_some() { INFLATE_AT_MOST } else { usize::MAX };
        let length = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len()).min(step);
        let part = &mut input[..length];
        mask::apply(part, *key, *offset);
        *left -= length as u64;
        *offset += length as u64;
        let Partial { kind, bytes, valid, inflating } = &mut **message;
        let inflated = if let (Some(inflating), Some(context)) = (inflating, &self.context) {
            inflating.read(part, bytes, most, context, compression)
        } else {
            bytes.extend_from_slice(part);
            Ok(())
        };
        // Text is validated before the inflating error is returned: it precedes the bytes that could not be inflated.
        if *kind == Kind::Text {
            *valid += valid_text(&bytes[*valid..])?;
        }
        inflated.map(|()| length)
    }

    /// Ends a data frame. Returns the message if this was its last frame.
    fn end_frame(
        &mut self,
        most: usize,
        compression: &mut Compression,
    ) -> Result<Option<(Kind, Vec<u8>)>, WebSocketFault> {
        let stage = std::mem::replace(&mut self.stage, START);
        if !matches!(stage, Stage::Data { is_final: true, .. }) {
            return Ok(None);
        }
        let Some(message) = self.message.take() else { return Ok(None) };
        let Partial { kind, mut bytes, mut valid, inflating } = *message;
        if let (Some(inflating), Some(context)) = (inflating, &mut self.context) {
            inflating.end(&mut bytes, most, context, compression)?;
        }
        if kind == Kind::Text {
            valid += valid_text(&bytes[valid..])?;
            if valid != bytes.len() {
                return Err(WebSocketFault::TextInvalid);
            }
        }
        Ok(Some((kind, bytes)))
    }
}

/// Returns a message of one frame that is completely in the input. Its payload begins at `at`.
fn whole(
    kind: Kind,
    header: Header,
    at: usize,
    input: &mut [u8],
    most: usize,
) -> Result<(usize, Received<'_>), WebSocketFault> {
    // The payload is in memory, so its length fits `usize`.
    let length = usize::try_from(header.length).unwrap_or(usize::MAX);
    if length > most {
        return Err(WebSocketFault::MessageTooLarge);
    }
    let bytes = &mut input[at..at + length];
    mask::apply(bytes, header.key, 0);
    if kind == Kind::Text && str::from_utf8(bytes).is_err() {
        return Err(WebSocketFault::TextInvalid);
    }
    Ok((at + length, Received::Message { kind, bytes: Cow::Borrowed(bytes) }))
}

/// Returns the length of the valid UTF-8 prefix. The bytes after it may be the start of a character.
fn valid_text(bytes: &[u8]) -> Result<usize, WebSocketFault> {
    match str::from_utf8(bytes) {
        Ok(_) => Ok(bytes.len()),
        Err(error) if error.error_len().is_none() => Ok(error.valid_up_to()),
        Err(_) => Err(WebSocketFault::TextInvalid),
    }
}
