//! The part of [`Reply`] that writes encoded bodies.

use super::EncodedBody;
use super::policy::Decision;
use crate::app::App;
use crate::exchange::Backlog;
use crate::protocol::{ResponseSender, ResponseTerms as _};
use crate::reply::{Channel, Loss, Reply};
use std::fs::File;
use std::os::unix::fs::FileExt;
use wire::message::{Draft, Misuse};

/// The maximum number of bytes that are encoded at a time while the engine is locked. A caller with more bytes writes
/// slices of this length, and unlocks the engine in between.
pub const ENCODE_AT_ONCE: usize = 128 << 10;

impl<A: App> Reply<'_, A> {
    /// Returns the head to send instead of `draft`, and the encoder of the body if it is encoded; `None` if `draft` is
    /// sent unchanged. `length`: see [`begin`](Reply::begin).
    #[cold]
    pub(crate) fn negotiate(
        &mut self,
        draft: &Draft,
        length: Option<u64>,
    ) -> Option<(Draft, Option<Box<EncodedBody>>)> {
        let is_delimited = self.terms.delimits_body();
        let state = self.compression.as_deref_mut()?;
        let decision = match state.policy.decide(draft, length, self.offer) {
            // Encoding makes the length unknown, and the end of the body would then have to be the end of the
            // connection (HTTP/1.0).
            Decision::Encoded(_) if !is_delimited => Decision::Plain,
            decision => decision,
        };
        match decision {
            Decision::Independent => None,
            Decision::Marked => Some((draft.without_decision(), None)),
            Decision::Plain => Some((draft.depending_on_coding(None), None)),
            Decision::Confirmed => Some((draft.confirming_coded(), None)),
            Decision::Encoded(coding) => Some(match state.encoder(coding) {
                None => (draft.depending_on_coding(None), None),
                Some(encoder) => {
                    let body = Box::new(EncodedBody::new(coding, encoder, draft));
                    (draft.depending_on_coding(Some(coding.token())), Some(body))
                }
            }),
        }
    }

    /// Begins a response if its body will be encoded. Otherwise returns false and does nothing. For a body that the
    /// caller writes in slices with [`write_slice`](Self::write_slice).
    pub fn begin_encoded(&mut self, draft: &Draft, length: Option<u64>) -> bool {
        let is_encoded = !self.is_begun()
            && self.terms.delimits_body()
            && self
                .compression
                .as_deref()
                .is_some_and(|state| matches!(state.policy.decide(draft, length, self.offer), Decision::Encoded(_)));
        if is_encoded {
            self.begin(draft, length);
        }
        self.is_encoded()
    }

    /// Returns true if the body of the response is encoded.
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| in_flight.encoded.is_some())
    }

    /// Writes a part of a body that [is encoded](Self::is_encoded).
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`] if the body is longer than declared. Nothing of this part has been written then.
    pub fn write_slice(&mut self, plain: &[u8]) -> Result<(), Misuse> {
        let Some(in_flight) = self.in_flight else { return Ok(()) };
        let Some(body) = &mut in_flight.encoded else { return Ok(()) };
        body.admit(plain.len() as u64)?;
        // Without a state the engine discards the output of the call.
        let Some(state) = self.compression.as_deref_mut() else { return Ok(()) };
        match body.encode(plain, state) {
            Ok(work) => in_flight.produced += work,
            Err(_) => *self.loss = Loss::Exchange,
        }
        self.push_encoded();
        Ok(())
    }

    /// Writes a part of a file like [`write_slice`](Self::write_slice). If it cannot be read, the response is cut.
    #[cold]
    pub(crate) fn encode_file(&mut self, file: &File, offset: u64, length: u64) -> Result<(), Misuse> {
        let mut buffer = [0; 16 << 10];
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end && !self.is_gone() {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            match file.read_at(&mut buffer[..most], at) {
                Ok(count @ 1..) => self.write_slice(&buffer[..count])?,
                Ok(0) | Err(_) => *self.loss = Loss::Exchange,
            }
            at += most as u64;
        }
        Ok(())
    }

    /// Writes everything that the client needs to decode the body so far.
    #[cold]
    pub(crate) fn flush_encoder(&mut self) {
        let (Some(in_flight), Some(state)) = (self.in_flight.as_mut(), self.compression.as_deref_mut()) else { return };
        if let Some(EncodedBody { encoder: Some(encoder), .. }) = in_flight.encoded.as_deref_mut() {
            state.encoded.clear();
            if encoder.flush(&mut state.encoded).is_err() {
                *self.loss = Loss::Exchange;
            }
            self.push_encoded();
        }
    }

    /// Writes the end of the encoded body.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`] if the application declared more.
    #[cold]
    pub(crate) fn finish_encoder(&mut self) -> Result<(), Misuse> {
        let Some(body) = self.in_flight.as_mut().and_then(|in_flight| in_flight.encoded.as_mut()) else {
            return Ok(());
        };
        if body.left.is_some_and(|left| left > 0) {
            return Err(Misuse::BodyTooShort);
        }
        let Some(state) = self.compression.as_deref_mut() else { return Ok(()) };
        if let Some(mut encoder) = body.encoder.take() {
            state.encoded.clear();
            if encoder.finish(&mut state.encoded).is_err() {
                *self.loss = Loss::Exchange;
            }
            state.take_back(body.coding, encoder);
            self.push_encoded();
        }
        Ok(())
    }

    /// Frames the output of the encoder.
    fn push_encoded(&mut self) {
        let (Some(in_flight), Some(state)) = (self.in_flight.as_mut(), self.compression.as_deref_mut()) else { return };
        let encoded = std::mem::take(&mut state.encoded);
        let (admitted, _) = in_flight.sender.open(encoded.len() as u64, &mut self.out.bytes);
        let bytes = &encoded[..usize::try_from(admitted).unwrap_or(encoded.len())];
        if !self.channel.is_stream() {
            self.out.bytes.extend_from_slice(bytes);
            in_flight.sender.close(admitted, &mut self.out.bytes);
            self.transmit_if_full();
        } else if !self.frame_at_once(bytes)
            && let Channel::Stream { backlog, .. } = &mut self.channel
        {
            Backlog::of(backlog).output.push_bytes(bytes);
            self.pump();
        }
        if let Some(state) = self.compression.as_deref_mut() {
            state.encoded = encoded;
        }
    }
}
