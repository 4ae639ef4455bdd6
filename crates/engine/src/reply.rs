//! The interface through which the application writes a response.

use crate::app::{App, MultiplexedOf, SenderOf, SerialOf, TermsOf, TransportOf};
use crate::coalescing::DeferredOutput;
use crate::compose::Composer;
use crate::compression::{CompressionState, Offer};
use crate::config::{COPY_AT_MOST, WRITE_BUFFER};
use crate::deadline::Millis;
use crate::exchange::Backlog;
use crate::in_flight::{Ending, InFlight, Pace};
use crate::output::Output;
use crate::protocol::{MultiplexedProtocol, ResponseSender, ResponseTerms, SerialProtocol, StreamId};
use crate::statistics::Statistics;
use crate::transport::Transport;
use std::fs::File;
use std::io;
use wire::message::{Draft, FieldLines, Misuse, Page, Stamp};

/// The number of bytes that one response may produce for a fast-reading peer before other connections are served.
const SHARE: u64 = 256 << 10;

/// The time in milliseconds after which a part is certainly more than one tick later than the previous one, even with a
/// coarse clock.
const SLOW: Millis = 10;

/// The maximum time in milliseconds after a part that counts as within one tick.
const SOON: Millis = 1;

/// The number of bytes of unsent output above which the output is moved to a file.
const OVERFULL: u64 = 1 << 20;

/// The writer of one response. The caller calls [`begin`](Self::begin), writes parts, and calls
/// [`finish`](Self::finish); or it calls only [`refuse`](Self::refuse). It may use several `Reply` values for this: the
/// engine lends one while [`Engine::reply`](crate::Engine::reply) runs, and the application must not run during that
/// time.
///
/// Parts are collected and sent together when the borrowed `Reply` is returned, or at [`flush`](Self::flush). If the
/// application may need time for its next part, the caller has to flush first (PEP 3333: no block may be delayed).
pub struct Reply<'a, A: App> {
    pub(crate) slot: usize,
    pub(crate) out: &'a mut Composer<A::Chunk>,
    pub(crate) output: &'a mut Output<A::Chunk>,
    pub(crate) deferred: &'a mut DeferredOutput,
    pub(crate) channel: Channel<'a, A>,
    pub(crate) in_flight: &'a mut Option<InFlight<SenderOf<A>>>,
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) transport: &'a mut TransportOf<A>,
    pub(crate) stamp: &'a Stamp,
    pub(crate) now: Millis,
    pub(crate) terms: TermsOf<A>,
    /// The number of bytes sent on this response's connection.
    pub(crate) moved: &'a mut u64,
    pub(crate) loss: &'a mut Loss,
    /// True if the exchange has become a WebSocket or its connection is hijacked, so that no error page can replace the
    /// response.
    pub(crate) is_upgraded: bool,
    /// True if the application produced the parts of the last multi-part response without a pause.
    pub(crate) parts_come_fast: &'a mut bool,
    /// The way in which the previous streamed response on the same connection ended.
    pub(crate) ending: &'a mut Ending,
    /// The encoders of bodies; `None` if the server has no compression or the output is discarded.
    pub(crate) compression: Option<&'a mut CompressionState>,
    /// The content coding that the client accepts.
    pub(crate) offer: Offer,
}

/// The protocol that writes a response.
pub(crate) enum Channel<'a, A: App> {
    /// A serial protocol: the bytes of the response are contiguous on the connection.
    Serial(&'a mut SerialOf<A>),
    /// A multiplexed protocol: the parts of the response are frames, and the client's window bounds them.
    Stream {
        protocol: &'a mut MultiplexedOf<A>,
        stream: StreamId,
        /// The output that exceeds the client's window.
        backlog: &'a mut Option<Box<Backlog<A::Chunk>>>,
    },
}

impl<A: App> Channel<'_, A> {
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream { .. })
    }

    /// Writes the head of a response.
    #[inline]
    fn begin(
        &mut self,
        draft: &Draft,
        terms: TermsOf<A>,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> SenderOf<A> {
        match self {
            Self::Serial(protocol) => protocol.begin(draft, terms, length, stamp, out),
            Self::Stream { protocol, stream, .. } => protocol.begin(*stream, draft, terms, length, stamp, out),
        }
    }
}

/// The part of a connection that can no longer carry a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Nothing,
    /// The response cannot be sent completely, but its connection continues.
    Exchange,
    Connection,
}

impl<A: App> Reply<'_, A> {
    /// Returns true if the head has been written, so that the status can no longer change.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Writes the head. `length` is the length of the body, if it is known even though the application did not declare
    /// it.
    pub fn begin(&mut self, draft: &Draft, length: Option<u64>) {
        if self.compression.is_some()
            && let Some((draft, encoded)) = self.negotiate(draft, length)
        {
            self.begin_as(&draft, length.filter(|_| encoded.is_none()));
            if let Some(in_flight) = self.in_flight
                && !in_flight.sender.is_bodiless()
            {
                in_flight.encoded = encoded;
            }
            return;
        }
        self.begin_as(draft, length);
    }

    /// Writes the head of a response whose body is a file, which is sent without encoding.
    pub fn begin_file(&mut self, draft: &Draft, length: Option<u64>) {
        self.begin_as(draft, length);
    }

    /// Writes the head without changes.
    #[inline]
    fn begin_as(&mut self, draft: &Draft, length: Option<u64>) {
        debug_assert!(self.in_flight.is_none(), "a response has one head");
        self.recall();
        // On a multiplexed connection, output of other exchanges may follow the head, so it cannot be withdrawn.
        let can_be_unsaid = !self.channel.is_stream() && self.output.is_empty();
        let start = can_be_unsaid.then(|| (self.out.mark(), *self.moved));
        let sender = self.channel.begin(draft, self.terms, length, self.stamp, &mut self.out.bytes);
        let pace = if *self.parts_come_fast { Pace::Fast } else { Pace::First };
        *self.in_flight = Some(InFlight::new(sender, pace, start, draft.status()));
    }

    /// Sends an interim response 103 with `fields`, if the head has not been written.
    pub fn send_early_hints(&mut self, fields: &FieldLines) {
        if self.is_begun() {
            return;
        }
        self.recall();
        let out = &mut self.out.bytes;
        match &mut self.channel {
            Channel::Serial(protocol) => protocol.write_early_hints(fields, self.terms, out),
            Channel::Stream { protocol, stream, .. } => protocol.write_early_hints(*stream, fields, self.terms, out),
        }
        self.flush();
    }

    /// Checks that a body of `length` bytes has the length that `draft` declares, if it declares one.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`], [`Misuse::BodyTooShort`].
    pub fn check_length(&self, draft: &Draft, length: u64) -> Result<(), Misuse> {
        self.terms.check_length(draft, length)
    }

    /// Withdraws a response if only its head has been written and nothing has been sent. Otherwise returns false and
    /// changes nothing. A part of a body counts as sent, because a tick may send it at any time.
    fn unsay(&mut self) -> bool {
        let Some(InFlight { start: Some((mark, moved)), sender, .. }) = &*self.in_flight else { return false };
        let (mark, moved, body_bytes) = (*mark, *moved, sender.body_bytes());
        if body_bytes > 0 || moved != *self.moved || self.out.is_begun() || !self.output.is_empty() || self.is_gone() {
            return false;
        }
        self.out.rewind(mark);
        *self.in_flight = None;
        true
    }

    /// Sends error output of the application to the log of the web server in front, together with the next output or at
    /// the tick after the next; to nginx, after the head of the response. Returns false if the text is dropped, because
    /// the web server does not read its input.
    pub fn write_errors(&mut self, text: &[u8]) -> bool {
        self.recall();
        if self.is_gone() || self.out.unsent() as u64 + self.output.length() > SHARE {
            return false;
        }
        let is_begun = self.is_begun();
        if let Channel::Stream { protocol, stream, .. } = &mut self.channel {
            protocol.write_errors(*stream, text, is_begun, &mut self.out.bytes);
        }
        if self.output.is_empty() && !self.out.is_empty() {
            defer(self.out, self.deferred, self.slot);
        }
        true
    }

    /// Writes a part of the body.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`] if the body is longer than declared. Nothing of this part has been written then.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write(&mut self, chunk: A::Chunk) -> Result<(), Misuse> {
        self.recall();
        // If the previous part has not been sent yet, the parts arrive faster than ticks.
        *self.parts_come_fast |= self.out.deferred.is_some();
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        if in_flight.encoded.is_some() {
            return self.write_slice(chunk.as_ref());
        }
        let length = chunk.as_ref().len();
        let (admitted, verdict) = in_flight.sender.open(length as u64, &mut self.out.bytes);
        in_flight.produced += admitted;
        // At most the chunk's length is admitted, so the number fits a usize.
        let end = usize::try_from(admitted).unwrap_or(length);
        if self.channel.is_stream() {
            self.push_part(chunk, end);
            return verdict;
        }
        self.out.push(chunk, end);
        in_flight.sender.close(admitted, &mut self.out.bytes);
        self.transmit_if_full();
        verdict
    }

    /// Writes as much of a part of the body as fits into the declared length, for a file whose rest is to be ignored
    /// (PEP 3333, file wrappers). Returns true if the body is complete.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write_fitting(&mut self, chunk: A::Chunk) -> bool {
        self.recall();
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        if let Some(encoded) = &in_flight.encoded {
            let bytes = chunk.as_ref();
            let room = encoded.room().and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX);
            let written = self.write_slice(&bytes[..room.min(bytes.len())]);
            debug_assert_eq!(written, Ok(()), "a part that fits is admitted");
            return room <= bytes.len();
        }
        let length = chunk.as_ref().len();
        let room = in_flight.sender.room().unwrap_or(u64::MAX).min(length as u64);
        let (admitted, _) = in_flight.sender.open(room, &mut self.out.bytes);
        in_flight.produced += admitted;
        let end = usize::try_from(admitted).unwrap_or(length);
        let is_whole = in_flight.sender.room() == Some(0);
        if self.channel.is_stream() {
            self.push_part(chunk, end);
            return is_whole;
        }
        self.out.push(chunk, end);
        in_flight.sender.close(admitted, &mut self.out.bytes);
        self.transmit_if_full();
        is_whole
    }

    /// Appends `length` bytes of `file` from `offset` as a part of the body. The file is not read into memory, unless
    /// the body is encoded.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write_file(&mut self, file: File, offset: u64, length: u64) -> Result<(), Misuse> {
        self.recall();
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        if in_flight.encoded.is_some() {
            return self.encode_file(&file, offset, length);
        }
        let (admitted, verdict) = in_flight.sender.open(length, &mut self.out.bytes);
        in_flight.produced += admitted;
        if let Channel::Stream { backlog, .. } = &mut self.channel {
            Backlog::of(backlog).output.push_file(file.into(), offset, admitted);
            self.pump();
            return verdict;
        }
        self.out.move_to(self.output);
        self.output.push_file(file.into(), offset, admitted);
        in_flight.sender.close(admitted, &mut self.out.bytes);
        verdict
    }

    /// Ends the response.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`]. The caller then has to return the response with
    /// [`Progress::Cut`](crate::Progress::Cut).
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn finish(&mut self) -> Result<(), Misuse> {
        self.end(None)
    }

    /// Ends the response with trailers, or without them if the client accepts none.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    ///
    /// # Panics
    /// As [`finish`](Self::finish).
    pub fn finish_with(&mut self, trailers: &FieldLines) -> Result<(), Misuse> {
        self.end(Some(trailers))
    }

    fn end(&mut self, trailers: Option<&FieldLines>) -> Result<(), Misuse> {
        self.recall();
        if self.is_encoded() {
            self.finish_encoder()?;
        }
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        if in_flight.parts > 0 && *self.ending != Ending::Unpredictable {
            let is_soon = self.now.saturating_sub(in_flight.part_at) <= SOON;
            *self.ending = if is_soon { Ending::BehindPart(in_flight.parts) } else { Ending::Unknown };
        }
        let out = &mut self.out.bytes;
        match trailers {
            None => in_flight.sender.finish(out)?,
            Some(trailers) => in_flight.sender.finish_with(trailers, out)?,
        }
        if let (Channel::Stream { protocol, stream, .. }, Some(trailers)) = (&mut self.channel, trailers) {
            protocol.keep_trailers(*stream, trailers);
        }
        let is_gone = self.is_gone();
        if let Channel::Stream { protocol, stream, backlog } = &mut self.channel {
            if backlog.is_none() && self.output.is_empty() && !is_gone {
                protocol.end_response(*stream, &mut self.out.bytes);
                self.transmit_if_full();
            } else {
                Backlog::of(backlog).finish();
                self.pump();
            }
        }
        Ok(())
    }

    /// Frames as many of the first `end` bytes of `chunk` as the client accepts now. The rest waits in the backlog. A
    /// small part needs no backlog if no output waits, neither of this response nor of the connection.
    fn push_part(&mut self, chunk: A::Chunk, end: usize) {
        if !self.frame_at_once(&chunk.as_ref()[..end])
            && let Channel::Stream { backlog, .. } = &mut self.channel
        {
            Backlog::of(backlog).output.push_chunk(chunk, 0, end);
            self.pump();
        }
    }

    /// Frames a small part on a multiplexed connection, if the client accepts it now and no output waits. Returns false
    /// if the part has to go through the backlog.
    pub(crate) fn frame_at_once(&mut self, part: &[u8]) -> bool {
        let has_way = self.output.is_empty() && !self.is_gone() && part.len() <= COPY_AT_MOST;
        let Channel::Stream { protocol, stream, backlog } = &mut self.channel else { return false };
        if !has_way || backlog.is_some() || protocol.window(*stream) < part.len() {
            return false;
        }
        if !part.is_empty() {
            protocol.frame(*stream, part, &mut self.out.bytes);
            self.transmit_if_full();
        }
        true
    }

    pub(crate) fn transmit_if_full(&mut self) {
        if self.out.is_full() {
            self.transmit();
        }
    }

    /// Frames as much of the backlog as the client accepts now.
    pub(crate) fn pump(&mut self) {
        let is_gone = self.is_gone();
        let Channel::Stream { protocol, stream, backlog } = &mut self.channel else { return };
        if is_gone {
            **backlog = None;
            return;
        }
        let Some(backlog) = backlog else { return };
        if !self.output.is_empty() {
            return;
        }
        if !self.transport.has_unsent()
            && let Some(sent) = backlog.send_large(*protocol, *stream, self.out, self.output, self.transport)
        {
            self.statistics.bytes_out += sent;
            *self.moved += sent;
            if !self.output.is_empty() || backlog.has_large() {
                // The session sends the rest, in the order of its exchanges.
                return;
            }
        }
        let pumped = backlog.pump(*protocol, *stream, WRITE_BUFFER, self.scratch, &mut self.out.bytes);
        if pumped.is_err() {
            *self.loss = Loss::Exchange;
        } else {
            self.transmit_if_full();
        }
    }

    /// Sends an error page of the server, and ends the response and the connection. Returns false and does nothing if a
    /// part of the response has been sent, or the exchange has become a WebSocket.
    pub fn refuse(&mut self, status: u16, explanation: &str) -> bool {
        self.replace(status, explanation, self.terms.refusing())
    }

    /// Sends an error page like [`refuse`](Self::refuse), for an application that has failed. The connection stays open
    /// if its client wants that and the request has been read completely.
    pub fn fail(&mut self, status: u16, explanation: &str) -> bool {
        self.replace(status, explanation, self.terms)
    }

    fn replace(&mut self, status: u16, explanation: &str, terms: TermsOf<A>) -> bool {
        self.recall();
        if self.is_upgraded || self.is_begun() && !self.unsay() {
            return false;
        }
        let text = Page::text(status, explanation);
        // 503 means that the server is busy: send `Retry-After: 1`.
        let page = Page::error(status, &text, (status == 503).then_some(1));
        let out = &mut self.out.bytes;
        let sender = match &mut self.channel {
            Channel::Serial(protocol) => write_page(*protocol, &page, terms, self.stamp, out),
            Channel::Stream { protocol, stream, backlog } => {
                let (sender, page) = write_stream_page(*protocol, *stream, &page, terms, self.stamp, out);
                **backlog = Some(page);
                sender
            }
        };
        *self.in_flight = Some(InFlight::new(sender, Pace::First, None, status));
        self.pump();
        true
    }

    /// Sends as much of the output written so far as the peer accepts.
    pub fn flush(&mut self) {
        self.flush_encoded();
        self.transmit();
    }

    /// Makes the encoder write everything that it has buffered.
    #[inline]
    fn flush_encoded(&mut self) {
        if self.is_encoded() {
            self.recall();
            self.flush_encoder();
        }
    }

    /// Sends the output like [`flush`](Self::flush), but lets an encoder keep a part of the body.
    fn transmit(&mut self) {
        self.recall();
        if *self.loss == Loss::Connection {
            self.out.clear();
            return;
        }
        if let Some(in_flight) = self.in_flight {
            in_flight.count_status(self.statistics);
        }
        let mut count = 0;
        if flush(self.out, self.output, self.transport, false, &mut count).is_err() {
            *self.loss = Loss::Connection;
        }
        self.statistics.bytes_out += count;
        *self.moved += count;
    }

    /// Sends the output written so far before the application produces more. It is sent at once if the parts arrive
    /// slowly, or their pace is unknown. If they arrive fast, or this is probably the last part, it is sent together
    /// with the next output, or at the next tick if the application is still busy. Call this or [`flush`](Self::flush)
    /// before application code that may take long.
    pub fn send_soon(&mut self) {
        self.flush_encoded();
        let now = self.now;
        let may_wait = self.in_flight.as_mut().is_some_and(|in_flight| {
            let took = now.saturating_sub(std::mem::replace(&mut in_flight.part_at, now));
            if in_flight.pace == Pace::Fast && took > SLOW && took < now {
                in_flight.pace = Pace::Slow;
            }
            in_flight.parts = in_flight.parts.saturating_add(1);
            in_flight.pace == Pace::Fast || *self.ending == Ending::BehindPart(in_flight.parts)
        });
        if may_wait && !self.is_gone() && self.output.is_empty() && !self.out.is_begun() {
            if !self.out.is_empty() {
                defer(self.out, self.deferred, self.slot);
            }
            return;
        }
        self.transmit();
        if let Some(in_flight) = self.in_flight
            && in_flight.pace == Pace::First
        {
            in_flight.pace = Pace::Fast;
        }
    }

    /// Checks whether a tick has sent a part of the output. If so, moves the rest to the waiting output.
    fn recall(&mut self) {
        if !self.out.is_begun() {
            return;
        }
        if self.out.failed {
            *self.loss = Loss::Connection;
        }
        self.out.move_to(self.output);
        *self.parts_come_fast = false;
        if let Some(in_flight) = self.in_flight {
            if *self.ending == Ending::BehindPart(in_flight.parts) {
                *self.ending = Ending::Unpredictable;
            }
            in_flight.pace = Pace::Slow;
        }
    }

    /// Returns true if the peer has not read all flushed output, so that further output would accumulate.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let has_backlog = match &self.channel {
            Channel::Serial(_) => false,
            Channel::Stream { backlog, .. } => backlog.as_ref().is_some_and(|backlog| !backlog.is_empty()),
        };
        has_backlog || !self.output.is_empty() || self.transport.has_unsent()
    }

    /// Moves unsent output to a file, for an application that cannot stop producing.
    ///
    /// # Errors
    /// If the file cannot be written. The caller should cut the response then.
    pub fn relieve(&mut self) -> io::Result<()> {
        let output = match &mut self.channel {
            Channel::Stream { backlog: Some(backlog), .. } => &mut backlog.output,
            Channel::Serial(_) | Channel::Stream { .. } => &mut *self.output,
        };
        if *self.loss != Loss::Nothing || output.length() <= OVERFULL { Ok(()) } else { output.spill() }
    }

    /// Returns the number of body bytes of the response so far, without framing.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.in_flight.as_ref().map_or(0, |in_flight| in_flight.sender.body_bytes())
    }

    /// Returns the number of body bytes that the application has written so far, including those that exceed the
    /// declared length.
    #[must_use]
    pub fn offered_bytes(&self) -> u64 {
        self.in_flight.as_ref().map_or(0, |in_flight| match &in_flight.encoded {
            Some(encoded) => encoded.offered_bytes(),
            None => in_flight.sender.offered_bytes(),
        })
    }

    /// Returns true if the peer has left, or the response cannot be sent completely.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        *self.loss != Loss::Nothing
    }

    /// Returns true if the response has used its share and should let other connections continue.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| in_flight.produced >= SHARE)
    }

    /// Returns true if the response is sent without a body, even if the application produces one.
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| in_flight.sender.is_bodiless())
    }
}

/// Holds back the composed output of the connection in `slot` until it is sent together with other output, or at the
/// tick after the next.
pub(crate) fn defer<C>(out: &mut Composer<C>, deferred: &mut DeferredOutput, slot: usize) {
    if out.deferred.replace(deferred.tick).is_none() {
        deferred.slots.push(slot);
    }
}

/// Sends the waiting output and then the composed output. Output that the transport does not accept is kept. `ends`:
/// see [`Composer::send`]. Adds the number of bytes sent to `moved`, even if sending fails.
pub(crate) fn flush<C: AsRef<[u8]>>(
    out: &mut Composer<C>,
    output: &mut Output<C>,
    transport: &mut impl Transport,
    ends: bool,
    moved: &mut u64,
) -> io::Result<()> {
    if !output.is_empty() {
        out.move_to(output);
        return flush_waiting(output, transport, moved);
    }
    if transport.has_unsent() {
        transport.flush()?;
    }
    if out.is_empty() {
        return Ok(());
    }
    if !out.is_sent() {
        *moved += out.send(transport, ends)? as u64;
    }
    if out.is_sent() {
        out.clear();
    } else {
        out.move_to(output);
    }
    Ok(())
}

/// Sends as much of the waiting output as the transport accepts. Adds the number of bytes sent to `moved`, even if
/// sending fails.
pub(crate) fn flush_waiting<C: AsRef<[u8]>>(
    output: &mut Output<C>,
    transport: &mut impl Transport,
    moved: &mut u64,
) -> io::Result<()> {
    if transport.has_unsent() {
        transport.flush()?;
    }
    output.flush(transport, moved)
}

/// Writes an error page or a health report as a complete response.
pub(crate) fn write_page<P: SerialProtocol>(
    protocol: &mut P,
    page: &Page<'_>,
    terms: P::Terms,
    stamp: &Stamp,
    out: &mut Vec<u8>,
) -> P::Sender {
    let mut sender = protocol.begin(&page.draft(), terms, None, stamp, out);
    if sender.open(page.body.len() as u64, out).0 > 0 {
        out.extend_from_slice(page.body.as_bytes());
    }
    sender
}

/// Writes the head of a page like [`write_page`], on a multiplexed connection. Also returns the body, which waits until
/// the client accepts it.
pub(crate) fn write_stream_page<P: MultiplexedProtocol, C: AsRef<[u8]>>(
    protocol: &mut P,
    stream: StreamId,
    page: &Page<'_>,
    terms: P::Terms,
    stamp: &Stamp,
    out: &mut Vec<u8>,
) -> (P::Sender, Box<Backlog<C>>) {
    let mut sender = protocol.begin(stream, &page.draft(), terms, None, stamp, out);
    let mut backlog = Box::new(Backlog::new());
    if sender.open(page.body.len() as u64, out).0 > 0 {
        backlog.output.push_bytes(page.body.as_bytes());
    }
    backlog.finish();
    (sender, backlog)
}
