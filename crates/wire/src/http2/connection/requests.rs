//! Frames of requests: header blocks (RFC 9113 sections 6.2 and 6.10), and bodies with their windows (sections 5.2 and
//! 6.1).

use super::{FrameStep, GoingAway, Http2Event, OpenBlock, Purpose, ReadStage, ServerConnection, is_tiny, skip};
use crate::http2::error::Violation;
use crate::http2::frame::{self, FrameHeader, HEADER};
use crate::http2::limits::{BLOCK_FRAMES, CONNECTION_WINDOW, PART_OF_WINDOW, STREAM_WINDOW};
use crate::http2::request::{HeadError, HeadScratch, RequestBuilder};
use crate::http2::stream::Stream;
use crate::http2::streams::{Ending, Usage};
use crate::message::{BodyLength, Fault, Limits};

impl ServerConnection {
    /// Starts a header block.
    pub(super) fn headers<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut HeadScratch,
        limits: &Limits,
    ) -> Result<FrameStep<'i>, Violation> {
        let fragment = fragment(header, payload)?;
        let mut purpose = self.purpose(header)?;
        if header.has(frame::HAS_PRIORITY) {
            let start = usize::from(header.has(frame::PADDED));
            if frame::number(&payload[start..]) == Some(header.stream) {
                purpose = Purpose::Reset(Violation::PriorityInvalid);
            }
        }
        let ends = header.has(frame::END_STREAM);
        scratch.builder.begin(purpose == Purpose::Trailers);
        self.open_block = Some(OpenBlock { stream: header.stream, ends, frames: 0, purpose });
        self.fragment(header, fragment, scratch, limits)
    }

    pub(super) fn continuation<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut HeadScratch,
        limits: &Limits,
    ) -> Result<FrameStep<'i>, Violation> {
        self.charge()?;
        if let Some(builder) = self.open_request.take() {
            scratch.builder = *builder;
        }
        self.fragment(header, payload, scratch, limits)
    }

    /// Returns the purpose of the block that a HEADERS frame starts. Marks a new stream number as used.
    fn purpose(&mut self, header: FrameHeader) -> Result<Purpose, Violation> {
        let id = header.stream;
        match self.streams.usage(id) {
            Usage::Idle if id.is_multiple_of(2) => Err(Violation::StreamIdInvalid),
            // After GOAWAY, new streams are ignored (RFC 9113 section 6.8).
            Usage::Idle if self.going_away == GoingAway::Final => Ok(Purpose::Nothing),
            Usage::Idle => {
                self.streams.mark_used(id);
                let is_full = self.streams.len() >= self.most_streams;
                Ok(if is_full { Purpose::Reset(Violation::StreamsTooMany) } else { Purpose::Request })
            }
            Usage::UnderWay => {
                let is_open = self.streams.get(id).is_some_and(|stream| stream.is_request_open());
                Ok(match (is_open, header.has(frame::END_STREAM)) {
                    (true, true) => Purpose::Trailers,
                    // Trailers must end the stream (RFC 9113 section 8.1).
                    (true, false) => Purpose::Reset(Violation::HeadMalformed),
                    (false, _) => Purpose::Reset(Violation::StreamEnded),
                })
            }
            Usage::Closed(Ending::ResetByServer) | Usage::Forgotten => Ok(Purpose::Nothing),
            Usage::Closed(Ending::ResetByClient) => Ok(Purpose::Reset(Violation::StreamEnded)),
            Usage::Closed(Ending::Complete) => Err(Violation::StreamEnded),
            Usage::LeftOut => Err(Violation::StreamIdInvalid),
        }
    }

    /// Decodes a fragment of the block.
    fn fragment<'i>(
        &mut self,
        header: FrameHeader,
        fragment: &[u8],
        scratch: &mut HeadScratch,
        limits: &Limits,
    ) -> Result<FrameStep<'i>, Violation> {
        let Some(block) = &mut self.open_block else { return Err(Violation::ContinuationUnexpected) };
        block.frames += 1;
        if block.frames > BLOCK_FRAMES {
            return Err(Violation::HeadTooLarge);
        }
        let block = *block;
        let is_whole = header.has(frame::END_HEADERS);
        let mut joined = std::mem::take(&mut self.fragment);
        let input = if joined.is_empty() {
            fragment
        } else {
            joined.extend_from_slice(fragment);
            &joined[..]
        };
        let HeadScratch { builder, literals } = &mut *scratch;
        let decoded = self.decoder.decode(input, literals, |name, value| builder.push(name, value, limits));
        let end = decoded.map_err(|_| Violation::CompressionInvalid)?;
        let rest = input.len() - end.used;
        if builder.is_excessive(limits) || rest > limits.head {
            return Err(Violation::HeadTooLarge);
        }
        if is_whole {
            self.decoder.end_block(rest).map_err(|_| Violation::CompressionInvalid)?;
            joined.clear();
        } else if joined.is_empty() {
            joined.extend_from_slice(&fragment[end.used..]);
        } else {
            joined.drain(..end.used);
        }
        self.fragment = joined;
        if !is_whole {
            self.open_request = Some(Box::new(std::mem::take(builder)));
            return Ok(FrameStep::Nothing);
        }
        self.open_block = None;
        self.whole_block(block, builder, limits)
    }

    fn whole_block<'i>(
        &mut self,
        block: OpenBlock,
        builder: &mut RequestBuilder,
        limits: &Limits,
    ) -> Result<FrameStep<'i>, Violation> {
        match block.purpose {
            Purpose::Nothing => {
                self.charge()?;
                Ok(FrameStep::Nothing)
            }
            Purpose::Reset(violation) => self.break_stream(block.stream, violation),
            Purpose::Trailers => self.trailers(block.stream, builder.finish_trailers()),
            Purpose::Request => self.request(block, builder, limits),
        }
    }

    fn trailers(&mut self, id: u32, end: Result<(), HeadError>) -> Result<FrameStep<'static>, Violation> {
        match end {
            Ok(()) => self.end_request(id),
            Err(HeadError::Malformed) => self.break_stream(id, Violation::HeadMalformed),
            Err(HeadError::Fault(fault)) => {
                if let Some(stream) = self.streams.get_mut(id) {
                    stream.end_request();
                }
                Ok(FrameStep::Event(Http2Event::Broken { stream: id, fault, is_head: false }))
            }
        }
    }

    /// Opens the stream of a request after its complete head.
    fn request(
        &mut self,
        block: OpenBlock,
        builder: &mut RequestBuilder,
        limits: &Limits,
    ) -> Result<FrameStep<'static>, Violation> {
        let id = block.stream;
        let result = builder.finish(block.ends, self.takes_websockets, &self.kept, limits);
        if result == Err(HeadError::Malformed) {
            return self.break_stream(id, Violation::HeadMalformed);
        }
        let facts = builder.facts();
        let mut stream = Stream::new(id, self.peer.initial_window, STREAM_WINDOW);
        stream.open(block.ends);
        stream.declared = facts.content_length.filter(|_| !block.ends);
        (stream.is_websocket, stream.is_refused) = (facts.is_websocket, facts.is_websocket);
        stream.takes_trailers = facts.takes_trailers;
        stream.expects_continue = facts.expects_continue && !block.ends;
        let step = match result {
            Ok(body) => {
                stream.has_body = !body.is_empty();
                FrameStep::Head { stream: id, body }
            }
            Err(HeadError::Fault(fault)) => {
                stream.is_wanted = false;
                FrameStep::Event(Http2Event::Broken { stream: id, fault, is_head: facts.is_head })
            }
            Err(HeadError::Malformed) => FrameStep::Head { stream: id, body: BodyLength::None },
        };
        self.streams.insert(stream, facts.priority);
        Ok(step)
    }

    // ---------------------------------------------------------------------------------------------------- bodies

    /// Starts a DATA frame. Returns `None` if the length of its padding has not arrived.
    pub(super) fn data<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<(usize, FrameStep<'i>)>, Violation> {
        let (used, padding) = if header.has(frame::PADDED) {
            if header.length == 0 {
                return Err(Violation::FrameLengthInvalid);
            }
            let Some(&padding) = payload.first() else { return Ok(None) };
            (1, usize::from(padding))
        } else {
            (0, 0)
        };
        let Some(left) = (header.length - used).checked_sub(padding) else { return Err(Violation::PaddingInvalid) };
        let ends = header.has(frame::END_STREAM);
        // The length of a frame is at most 16 KiB.
        let length = u32::try_from(header.length).unwrap_or(u32::MAX);
        self.receive_window -= i64::from(length);
        if self.receive_window < 0 {
            return Err(Violation::WindowExceeded);
        }
        // Frames of a WebSocket may be small. The engine limits their number.
        let is_websocket = self.streams.get(header.stream).is_some_and(|stream| stream.is_websocket);
        if is_tiny(left, ends) && (left == 0 || !is_websocket) {
            self.charge()?;
        }
        let count = HEADER + used;
        let is_open = self.streams.get(header.stream).is_some_and(|stream| stream.is_request_open());
        if !is_open {
            self.give_back(length);
            self.stage = skip(header.length - used);
            return Ok(Some((count, self.late_data(header.stream)?)));
        }
        let Some(stream) = self.streams.get_mut(header.stream) else { return Ok(None) };
        stream.receive_window -= i64::from(length);
        if stream.receive_window < 0 {
            self.give_back(length);
            self.stage = skip(header.length - used);
            return Ok(Some((count, self.break_stream(header.stream, Violation::WindowExceeded)?)));
        }
        // The frame is checked as a whole, so that the result does not depend on how it is split.
        if stream.declared.is_some_and(|declared| stream.received + left as u64 > declared) {
            self.give_back(length);
            self.stage = skip(header.length - used);
            return Ok(Some((count, self.break_stream(header.stream, Violation::ContentLengthWrong)?)));
        }
        // Padding counts as consumed immediately.
        let overhead = u32::try_from(used + padding).unwrap_or(u32::MAX);
        if overhead > 0 {
            self.grant(header.stream, overhead);
        }
        if left == 0 {
            self.stage = skip(padding);
            let step = if ends { self.end_request(header.stream)? } else { FrameStep::Nothing };
            return Ok(Some((count, step)));
        }
        self.stage = ReadStage::Data { stream: header.stream, left, padding, ends };
        Ok(Some((count, FrameStep::Nothing)))
    }

    /// Handles DATA on a stream whose request has ended.
    fn late_data(&mut self, stream: u32) -> Result<FrameStep<'static>, Violation> {
        match self.streams.usage(stream) {
            Usage::Idle => Err(Violation::IdleStream),
            Usage::LeftOut | Usage::Closed(Ending::Complete) => Err(Violation::StreamEnded),
            Usage::UnderWay | Usage::Closed(Ending::ResetByClient) => self.break_stream(stream, Violation::StreamEnded),
            // The client sent the frame before it received the reset.
            Usage::Closed(Ending::ResetByServer) | Usage::Forgotten => {
                self.charge()?;
                Ok(FrameStep::Nothing)
            }
        }
    }

    /// Reads a part of the data of a DATA frame.
    pub(super) fn data_part<'i>(
        &mut self,
        input: &'i [u8],
        limits: &Limits,
    ) -> Result<(usize, FrameStep<'i>), Violation> {
        let ReadStage::Data { stream: id, left, padding, ends } = self.stage else {
            return Ok((0, FrameStep::Nothing));
        };
        let bytes = &input[..left.min(input.len())];
        let left = left - bytes.len();
        self.stage = if left > 0 { ReadStage::Data { stream: id, left, padding, ends } } else { skip(padding) };
        let is_last = ends && left == 0;
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let Some(stream) = self.streams.get_mut(id) else {
            // The stream was reset while its frame arrived.
            self.give_back(count);
            return Ok((bytes.len(), FrameStep::Nothing));
        };
        stream.received += u64::from(count);
        stream.unconsumed += count;
        let is_wanted = stream.is_wanted;
        if is_last && !stream.is_length_right() {
            return Ok((bytes.len(), self.break_stream(id, Violation::ContentLengthWrong)?));
        }
        if is_wanted && !stream.is_websocket && stream.received > limits.body {
            stream.is_wanted = false;
            self.consumed(id, bytes.len());
            let broken = Http2Event::Broken { stream: id, fault: Fault::BodyTooLarge, is_head: false };
            return Ok((bytes.len(), FrameStep::Event(broken)));
        }
        if is_last {
            stream.end_request();
        }
        if !is_wanted {
            self.consumed(id, bytes.len());
            return Ok((bytes.len(), FrameStep::Nothing));
        }
        Ok((bytes.len(), FrameStep::Event(Http2Event::Data { stream: id, bytes, is_last })))
    }

    /// Handles `END_STREAM` that carries no data.
    pub(super) fn end_request(&mut self, id: u32) -> Result<FrameStep<'static>, Violation> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(FrameStep::Nothing) };
        if !stream.is_length_right() {
            return self.break_stream(id, Violation::ContentLengthWrong);
        }
        stream.end_request();
        let is_reported = stream.has_body && stream.is_wanted;
        Ok(if is_reported { FrameStep::Event(Http2Event::End { stream: id }) } else { FrameStep::Nothing })
    }

    /// Discards the rest of a request's body.
    pub fn discard_body(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_wanted = false;
            let unconsumed = usize::try_from(stream.unconsumed).unwrap_or(usize::MAX);
            self.consumed(id, unconsumed);
        }
    }

    /// Returns `bytes` to the client's windows, because they were read or discarded.
    pub fn consumed(&mut self, id: u32, bytes: usize) {
        // When a stream ends, its bytes are returned to the window of the connection.
        let Some(stream) = self.streams.get_mut(id) else { return };
        let count = u32::try_from(bytes).unwrap_or(u32::MAX).min(stream.unconsumed);
        stream.unconsumed -= count;
        self.grant(id, count);
    }

    /// Enlarges the windows of a stream and of the connection.
    fn grant(&mut self, id: u32, count: u32) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.is_request_open()
        {
            stream.owed += count;
            if stream.owed >= STREAM_WINDOW / 2 {
                let increment = std::mem::take(&mut stream.owed);
                stream.receive_window += i64::from(increment);
                frame::write_window_update(id, increment, &mut self.control);
            }
        }
        self.give_back(count);
    }

    /// Returns true if bodies that the application has not read fill the connection's window, so that the client cannot
    /// send any other body.
    #[must_use]
    pub fn is_full_of_bodies(&self) -> bool {
        self.receive_window + i64::from(self.owed) < i64::from(PART_OF_WINDOW)
    }

    /// Returns `count` bytes to the connection's window. Enlarges the window in large steps if unread bodies leave room
    /// for that.
    pub(super) fn give_back(&mut self, count: u32) {
        self.owed += count;
        let is_short = self.owed >= PART_OF_WINDOW && self.receive_window < i64::from(self.owed);
        if is_short || self.owed >= CONNECTION_WINDOW / 2 {
            let increment = std::mem::take(&mut self.owed);
            self.receive_window += i64::from(increment);
            frame::write_window_update(0, increment, &mut self.control);
        }
    }
}

/// Returns the part of the header block in a HEADERS frame, without padding and priority.
fn fragment(header: FrameHeader, payload: &[u8]) -> Result<&[u8], Violation> {
    let mut rest = payload;
    let mut padding = 0;
    if header.has(frame::PADDED) {
        let (&length, after) = rest.split_first().ok_or(Violation::FrameLengthInvalid)?;
        (padding, rest) = (usize::from(length), after);
    }
    if header.has(frame::HAS_PRIORITY) {
        rest = rest.get(5..).ok_or(Violation::FrameLengthInvalid)?;
    }
    let end = rest.len().checked_sub(padding).ok_or(Violation::PaddingInvalid)?;
    Ok(&rest[..end])
}
