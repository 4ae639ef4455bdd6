//! Compressors and decompressors that connections share (RFC 7692 section 7.2).

use super::fault::WebSocketFault;
use std::fmt;
use zlib_rs::{DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

/// The last bytes of zlib's output for a message, which WebSocket omits (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// An empty final block. If the stream ends with it, the blocks before it are complete.
const FINAL: [u8; 2] = [3, 0];

/// The number of bytes that are compressed or inflated at a time. A message's limit is checked after each such part.
const PART: usize = 16 * 1024;

/// The default of a peer's window in bits (RFC 7692 section 7.1.2).
pub(super) const WINDOW_BITS_MOST: u8 = 15;

/// The smallest window in bits: zlib supports no smaller one in raw streams.
pub(super) const WINDOW_BITS_LEAST: u8 = 9;

/// The number of idle decompressors that are kept.
const SPARE: usize = 4;

/// The approximate size of a decompressor in bytes.
pub(super) const INFLATER_BYTES: usize = 44 << 10;

/// The length of a message in bytes up to which any compression ratio is allowed.
const RATIO_FROM: u64 = 1 << 20;

/// The maximum compression ratio beyond [`RATIO_FROM`]. JSON and logs reach 5 to 50. DEFLATE reaches 1032 if a single
/// byte repeats, which serves only to fill a server's memory.
const RATIO: u64 = 100;

/// The compressors and decompressors that the connections of one thread share.
///
/// A compressor starts over with each message, so one for each window size serves all peers. A decompressor belongs to
/// one connection while a compressed message arrives. Nothing is allocated before the first compressed message.
pub struct Compression {
    level: i32,
    compressors: [Option<Box<zlib_rs::Deflate>>; (WINDOW_BITS_MOST - WINDOW_BITS_LEAST) as usize + 1],
    spare: Vec<Inflate>,
    part: Box<[u8]>,
}

impl Compression {
    /// Creates the compressors' owner. `level` is from 1 (fast) to 9 (small).
    ///
    /// # Panics
    /// If `level` is not in this range.
    #[must_use]
    pub fn new(level: u8) -> Self {
        assert!((1..=9).contains(&level), "levels are 1 to 9");
        Self { level: level.into(), compressors: Default::default(), spare: Vec::new(), part: Box::default() }
    }

    /// Compresses the message `bytes` with a window of `bits` and appends the result to `out`. Returns false and
    /// appends nothing if the result would not be shorter than the message.
    pub(super) fn deflate(&mut self, bits: u8, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let Self { level, compressors, part, .. } = self;
        prepare(part);
        let config = DeflateConfig { level: *level, window_bits: -i32::from(bits), ..DeflateConfig::default() };
        let slot = &mut compressors[usize::from(bits - WINDOW_BITS_LEAST)];
        let compressor = slot.get_or_insert_with(|| Box::new(zlib_rs::Deflate::new_with_config(config)));
        compressor.reset();
        let (start, mut rest) = (out.len(), bytes);
        loop {
            let (before_in, before_out) = (compressor.total_in(), compressor.total_out());
            // This fails only in an invalid state; then the message is sent uncompressed.
            if compressor.compress(rest, part, DeflateFlush::SyncFlush).is_err() {
                out.truncate(start);
                return false;
            }
            let written = moved(before_out, compressor.total_out());
            rest = &rest[moved(before_in, compressor.total_in())..];
            out.extend_from_slice(&part[..written]);
            // The tail will be removed, so its length is allowed in addition.
            if out.len() - start >= bytes.len() + TAIL.len() {
                out.truncate(start);
                return false;
            }
            if written < part.len() {
                break;
            }
        }
        debug_assert!(rest.is_empty() && out.ends_with(&TAIL), "a flush ends with an empty stored block");
        out.truncate(out.len() - TAIL.len());
        true
    }

    fn take(&mut self) -> Inflate {
        // A decompressor with the largest window can read all smaller ones.
        self.spare.pop().unwrap_or_else(|| Inflate::new(false, WINDOW_BITS_MOST))
    }

    fn put_back(&mut self, mut inflate: Inflate) {
        if self.spare.len() < SPARE {
            inflate.reset(false);
            self.spare.push(inflate);
        }
    }
}

impl fmt::Debug for Compression {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compressors = self.compressors.iter().flatten().count();
        out.debug_struct("Compression")
            .field("level", &self.level)
            .field("compressors", &compressors)
            .field("spare", &self.spare.len())
            .finish_non_exhaustive()
    }
}

/// The bytes to which the peer's next message may refer, stored between messages.
#[derive(Debug)]
pub(super) enum Context {
    /// The peer's messages never refer to earlier ones (`no_context_takeover`).
    None,
    /// The last bytes of the messages so far, at most `most`.
    Kept { bytes: Vec<u8>, most: usize },
}

impl Context {
    /// Creates the context of a peer with a window of `bits`; `None` means that its messages never refer to earlier
    /// ones.
    pub(super) fn new(bits: Option<u8>) -> Self {
        match bits {
            None => Context::None,
            Some(bits) => Context::Kept { bytes: Vec::new(), most: 1 << bits.max(WINDOW_BITS_LEAST) },
        }
    }

    fn bytes(&self) -> &[u8] {
        if let Context::Kept { bytes, .. } = self { bytes } else { &[] }
    }

    fn add(&mut self, message: &[u8]) {
        let Context::Kept { bytes, most } = self else { return };
        let new = &message[message.len().saturating_sub(*most)..];
        let old = bytes.len().saturating_sub(*most - new.len());
        bytes.drain(..old);
        // The capacity doubles, as that of a vector does, but does not exceed the window.
        let needed = bytes.len() + new.len();
        if needed > bytes.capacity() {
            bytes.reserve_exact((2 * bytes.capacity()).clamp(needed, *most) - bytes.len());
        }
        bytes.extend_from_slice(new);
        debug_assert!(bytes.len() <= *most, "the context fits the window");
    }
}

/// A compressed message while it arrives.
pub(super) struct Inflating {
    inflate: Inflate,
    /// The number of its compressed bytes that have arrived.
    received: u64,
    /// True if the decompressor has read nothing since the message began, or since its last final block.
    is_fresh: bool,
}

impl fmt::Debug for Inflating {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Inflating").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Inflating {
    pub(super) fn begin(compression: &mut Compression, context: &Context) -> Self {
        let mut inflating = Self { inflate: compression.take(), received: 0, is_fresh: true };
        inflating.refer_to(context.bytes());
        inflating
    }

    /// Returns the number of compressed bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Inflates the next bytes and appends the result to `message`.
    ///
    /// # Errors
    /// [`WebSocketFault::DeflateInvalid`]; [`WebSocketFault::MessageTooLarge`] as soon as `message` exceeds `most`
    /// bytes or the maximum compression ratio.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        message: &mut Vec<u8>,
        most: usize,
        context: &Context,
        compression: &mut Compression,
    ) -> Result<(), WebSocketFault> {
        self.received += input.len() as u64;
        prepare(&mut compression.part);
        self.step(input, message, most, context, &mut compression.part)
    }

    fn step(
        &mut self,
        mut input: &[u8],
        message: &mut Vec<u8>,
        most: usize,
        context: &Context,
        part: &mut [u8],
    ) -> Result<(), WebSocketFault> {
        while !input.is_empty() {
            let before = message.len();
            let (used, status) = self.inflate_part(input, message, most, part)?;
            self.is_fresh &= used == 0;
            input = &input[used..];
            let written = message.len() - before;
            match status {
                // A final block ends the DEFLATE stream, but not the message (RFC 7692 section 7.2.3.4).
                Status::StreamEnd => self.restart(message, context),
                // If the output buffer is full, more output may be pending although all input was read.
                _ if written == part.len() && input.is_empty() => self.drain(message, most, context, part)?,
                _ if used == 0 && written == 0 => return Err(WebSocketFault::DeflateInvalid),
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends the output that did not fit the buffer when the last byte of input was read.
    fn drain(
        &mut self,
        message: &mut Vec<u8>,
        most: usize,
        context: &Context,
        part: &mut [u8],
    ) -> Result<(), WebSocketFault> {
        loop {
            let before = message.len();
            let (_, status) = self.inflate_part(&[], message, most, part)?;
            if status == Status::StreamEnd {
                self.restart(message, context);
            }
            if message.len() - before < part.len() {
                return Ok(());
            }
        }
    }

    /// Inflates once and appends the result to `message`. Returns the number of input bytes read.
    ///
    /// The bytes before an error are appended too, up to `most` bytes, so that the first error does not depend on how
    /// the input is split.
    fn inflate_part(
        &mut self,
        input: &[u8],
        message: &mut Vec<u8>,
        most: usize,
        part: &mut [u8],
    ) -> Result<(usize, Status), WebSocketFault> {
        let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, part, InflateFlush::NoFlush);
        message.extend_from_slice(&part[..moved(before_out, self.inflate.total_out())]);
        // The ratio uses all received bytes, because a final block resets the decompressor's own counter.
        let most = most.min(usize::try_from(RATIO_FROM + RATIO * self.received).unwrap_or(usize::MAX));
        if message.len() > most {
            message.truncate(most);
            return Err(WebSocketFault::MessageTooLarge);
        }
        let status = status.map_err(|_| WebSocketFault::DeflateInvalid)?;
        Ok((moved(before_in, self.inflate.total_in()), status))
    }

    /// Starts a new DEFLATE stream after a final block. It may refer to the message so far and to the earlier ones.
    fn restart(&mut self, message: &[u8], context: &Context) {
        self.inflate.reset(false);
        self.is_fresh = true;
        self.refer_to(context.bytes());
        self.refer_to(&message[message.len().saturating_sub(1 << WINDOW_BITS_MOST)..]);
    }

    fn refer_to(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let set = self.inflate.set_dictionary(bytes);
            debug_assert!(set.is_ok(), "a raw stream takes a dictionary between blocks");
        }
    }

    /// Ends the message: returns the decompressor to `compression`, and adds the message to the context of the next
    /// one.
    pub(super) fn end(
        mut self,
        message: &mut Vec<u8>,
        most: usize,
        context: &mut Context,
        compression: &mut Compression,
    ) -> Result<(), WebSocketFault> {
        prepare(&mut compression.part);
        let result = self.end_blocks(message, most, context, &mut compression.part);
        compression.put_back(self.inflate);
        if result.is_ok() {
            context.add(message);
        }
        result
    }

    fn end_blocks(
        &mut self,
        message: &mut Vec<u8>,
        most: usize,
        context: &Context,
        part: &mut [u8],
    ) -> Result<(), WebSocketFault> {
        // A message may end with a final block, and some senders encode an empty message as no bytes at all.
        if self.is_fresh {
            return Ok(());
        }
        self.step(&TAIL, message, most, context, part)?;
        if self.is_fresh {
            return Err(WebSocketFault::DeflateInvalid);
        }
        let before = message.len();
        let (used, status) = self.inflate_part(&FINAL, message, most, part)?;
        let is_whole = status == Status::StreamEnd && used == FINAL.len() && message.len() == before;
        if is_whole { Ok(()) } else { Err(WebSocketFault::DeflateInvalid) }
    }

    /// Returns the decompressor of a message that is not read to its end.
    pub(super) fn abandon(self, compression: &mut Compression) {
        compression.put_back(self.inflate);
    }
}

/// Allocates the buffer for the output of compressors and decompressors.
fn prepare(part: &mut Box<[u8]>) {
    if part.is_empty() {
        *part = vec![0; PART].into_boxed_slice();
    }
}

/// Returns the difference of two counters, which is at most the length of a slice.
fn moved(before: u64, after: u64) -> usize {
    usize::try_from(after - before).expect("no more than a slice holds")
}
