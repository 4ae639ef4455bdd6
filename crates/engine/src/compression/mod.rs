//! Content codings of the application's responses: which response is encoded, and with which coding.
//!
//! The engine encodes a body between the application and the protocol, in the same way for every interface and
//! protocol. A request has an [`Offer`], which is read from its head. When the head of the response is written,
//! [`Policy`] decides whether the body is encoded, and the engine changes the head accordingly
//! ([`Draft::depending_on_coding`]). The body then passes through an [`EncodedBody`], which belongs to the response
//! ([`reply`]).
//!
//! A server without compression has no [`CompressionState`], and its requests have empty offers.

mod encoder;
mod policy;
mod reply;

pub use policy::CompressionConfig;
pub(crate) use policy::Offer;
pub use reply::ENCODE_AT_ONCE;

use crate::memory::Reservation;
use encoder::{ContentEncoder, memory_of, work_of};
use policy::Policy;
use std::io;
use wire::files::Coding;
use wire::message::{Draft, Misuse, RequestHead};

/// The maximum number of unused encoders of each coding that an engine keeps.
const SPARE: usize = 2;

/// The state that all encoded responses of an engine share.
pub(crate) struct CompressionState {
    policy: Policy,
    /// Unused encoders, at the index of their coding.
    spare: [Vec<ContentEncoder>; Coding::ALL.len()],
    /// A buffer for the output of an encoder, until it is framed.
    encoded: Vec<u8>,
    /// The work done since the last call of [`take_work`](Self::take_work), in units of the meter.
    work: u64,
}

impl CompressionState {
    pub(crate) fn new(config: CompressionConfig) -> Self {
        Self { policy: Policy::new(config), spare: Default::default(), encoded: Vec::new(), work: 0 }
    }

    /// Returns the coding that the client of a request accepts.
    pub(crate) fn offer(&self, head: &RequestHead<'_>) -> Offer {
        self.policy.offer(head)
    }

    /// Returns the work done since the last call, in units of the meter.
    pub(crate) fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }

    /// Returns an encoder and the reservation of its memory; `None` if the memory for encoders is exhausted.
    fn encoder(&mut self, coding: Coding) -> Option<(ContentEncoder, Reservation)> {
        let reservation = self.policy.memory().reserve(memory_of(coding))?;
        let encoder = match self.spare[coding as usize].pop() {
            Some(encoder) => encoder,
            None => ContentEncoder::new(coding)?,
        };
        Some((encoder, reservation))
    }

    /// Takes an encoder back after the end of its body, for reuse.
    fn take_back(&mut self, coding: Coding, mut encoder: ContentEncoder) {
        let spare = &mut self.spare[coding as usize];
        // Brotli allocates memory anew for each body, so its encoder is not kept.
        if coding != Coding::Brotli && spare.len() < SPARE && encoder.reset().is_ok() {
            spare.push(encoder);
        }
    }
}

/// The body of a response while it is encoded, and the rest of its declared length.
#[derive(Debug)]
pub(crate) struct EncodedBody {
    coding: Coding,
    /// The encoder; `None` once the body has ended.
    encoder: Option<ContentEncoder>,
    /// The reservation of the encoder's memory, until the response is complete.
    _memory: Reservation,
    /// The number of bytes that the application has declared but not written yet, before encoding; `None` if it
    /// declared no length.
    left: Option<u64>,
    /// The number of bytes that the application has written, including those of a part that was too long.
    offered: u64,
    /// True if a part was longer than the rest of the declared length.
    is_too_long: bool,
}

impl EncodedBody {
    fn new(coding: Coding, (encoder, memory): (ContentEncoder, Reservation), draft: &Draft) -> Self {
        let left = draft.content_length();
        Self { coding, encoder: Some(encoder), _memory: memory, left, offered: 0, is_too_long: false }
    }

    /// Returns the number of bytes that the application may still write; `None` if it is unknown.
    pub(crate) fn room(&self) -> Option<u64> {
        self.left
    }

    /// Returns the number of bytes that the application has written, before encoding.
    pub(crate) fn offered_bytes(&self) -> u64 {
        self.offered
    }

    /// Counts a part of `length` bytes.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`] if the body is longer than declared.
    fn admit(&mut self, length: u64) -> Result<(), Misuse> {
        if self.is_too_long {
            return Err(Misuse::BodyTooLong);
        }
        self.offered += length;
        if let Some(left) = &mut self.left {
            if length > *left {
                self.is_too_long = true;
                return Err(Misuse::BodyTooLong);
            }
            *left -= length;
        }
        Ok(())
    }

    /// Encodes `plain` into the output buffer of `state`. Returns the work that this took, in units of the meter.
    fn encode(&mut self, plain: &[u8], state: &mut CompressionState) -> io::Result<u64> {
        state.encoded.clear();
        let Some(encoder) = &mut self.encoder else { return Ok(0) };
        encoder.write(plain, &mut state.encoded)?;
        let work = work_of(self.coding) * plain.len() as u64;
        state.work += work;
        Ok(work)
    }
}
