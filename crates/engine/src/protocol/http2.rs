//! HTTP/2, with many requests at a time, based on the state machines of [`wire::http2`].

use super::{MultiplexedProtocol, Reset, StreamEvent, StreamId};
use crate::deadline::Millis;
use wire::http1::{Request, Sender};
use wire::http2::{HeadScratch, Http2Event, ServerConnection};
use wire::message::{Draft, Fault, FieldLines, Limits, PartialRequestLine, Stamp, Version};

/// The server's side of an HTTP/2 connection.
#[derive(Debug, Default)]
pub struct Http2 {
    connection: ServerConnection,
    /// True if the last request that broke a rule has the method HEAD.
    is_head: bool,
}

impl MultiplexedProtocol for Http2 {
    type Terms = Request;
    type Sender = Sender;

    fn fresh(&self) -> Self {
        Self::default()
    }

    fn open(&mut self, exchanges: usize, limits: &Limits) {
        self.connection.open(exchanges, limits);
    }

    fn take_websockets(&mut self) {
        self.connection.take_websockets();
    }

    fn accept_websocket(&mut self, stream: StreamId) {
        self.connection.accept_websocket(stream);
    }

    fn set_time(&mut self, now: Millis) {
        self.connection.set_time(now);
    }

    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        scratch: &'s mut HeadScratch,
        limits: &Limits,
    ) -> Result<(usize, StreamEvent<'s, 'i, Request>), Fault> {
        let Ok((used, event)) = self.connection.next(input, scratch, limits) else { return Err(Fault::Http2Violated) };
        let event = match event {
            Http2Event::More => StreamEvent::More,
            Http2Event::Nothing => StreamEvent::Nothing,
            Http2Event::Head { stream, head, takes_trailers } => {
                let terms = Request { is_head: head.method == b"HEAD", takes_trailers, ..unread() };
                StreamEvent::Head { stream, head, terms }
            }
            Http2Event::Data { stream, bytes, is_last } => StreamEvent::Data { stream, bytes, is_last },
            Http2Event::End { stream } => StreamEvent::End { stream },
            Http2Event::Reset { stream } => StreamEvent::Reset { stream },
            Http2Event::Credit { stream } => StreamEvent::Credit { stream },
            Http2Event::Broken { stream, fault, is_head } => {
                self.is_head = is_head;
                StreamEvent::Broken { stream, fault }
            }
        };
        Ok((used, event))
    }

    fn forget(&mut self) {
        self.connection.rest();
    }

    fn unread_terms(&self) -> Request {
        Request { is_head: self.is_head, ..unread() }
    }

    fn partial_line<'s>(&self, scratch: &'s HeadScratch) -> Option<PartialRequestLine<'s>> {
        scratch.partial_line()
    }

    fn is_end_agreed(&self) -> bool {
        self.connection.is_end_agreed()
    }

    fn answers_violations(&self) -> bool {
        true
    }

    fn is_ending(&self, _may_have_arrived: bool) -> bool {
        self.connection.is_ending()
    }

    fn is_unread(&self) -> bool {
        // The client's WINDOW_UPDATE frames for the last responses may still be on their way. If the socket were closed
        // before they are read, the kernel's reset could destroy the end of these responses.
        true
    }

    fn is_in_head(&self) -> bool {
        self.connection.is_in_head()
    }

    fn tell_to_continue(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        self.connection.tell_to_continue(stream, out);
    }

    fn write_early_hints(&mut self, stream: StreamId, fields: &FieldLines, _terms: Request, out: &mut Vec<u8>) {
        self.connection.write_interim(stream, 103, fields, out);
    }

    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        terms: Request,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Sender {
        self.connection.begin(stream, draft, terms, length, stamp, out)
    }

    fn window(&self, stream: StreamId) -> usize {
        self.connection.window(stream)
    }

    fn sent_meanwhile(&self, stream: StreamId) -> Option<u64> {
        self.connection.sent_meanwhile(stream)
    }

    fn is_full_of_bodies(&self) -> bool {
        self.connection.is_full_of_bodies()
    }

    fn rank(&self, stream: StreamId) -> u64 {
        let priority = self.connection.priority_of(stream);
        // Non-incremental responses are useful only as a whole, so they are sent one after the other; incremental ones
        // share (RFC 9218 section 10).
        let place = if priority.is_incremental { u64::from(u32::MAX) } else { u64::from(stream) };
        u64::from(priority.urgency) << 32 | place
    }

    fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        self.connection.frame(stream, bytes, out);
    }

    fn begin_frame(&mut self, stream: StreamId, length: usize, out: &mut Vec<u8>) -> bool {
        self.connection.begin_data(stream, length, out)
    }

    fn keep_trailers(&mut self, stream: StreamId, trailers: &FieldLines) {
        self.connection.keep_trailers(stream, trailers);
    }

    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        self.connection.end_response(stream, out);
    }

    fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        match reset {
            Reset::Refused => self.connection.refuse(stream),
            Reset::Complete => self.connection.discard_request(stream),
            Reset::Cut => self.connection.cut(stream),
        }
        self.connection.write_control(out);
    }

    fn forget_stream(&mut self, stream: StreamId) {
        self.connection.forget_stream(stream);
    }

    fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        self.connection.consumed(stream, bytes);
        self.connection.write_control(out);
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        self.connection.drain();
        self.connection.write_control(out);
    }

    fn leave(&mut self, out: &mut Vec<u8>) -> bool {
        self.connection.leave();
        self.connection.write_control(out);
        true
    }

    fn has_control(&self) -> bool {
        self.connection.has_control()
    }

    fn must_write_control(&self) -> bool {
        self.connection.must_write_control()
    }

    fn write_control(&mut self, out: &mut Vec<u8>) {
        self.connection.write_control(out);
    }
}

/// Returns the properties that determine the form of a response, for a request that could not be read.
fn unread() -> Request {
    Request { version: Version::Http11, is_head: false, keep_alive: true, takes_trailers: false }
}
