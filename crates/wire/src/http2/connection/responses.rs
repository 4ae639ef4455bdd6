//! Heads, bodies and trailers of responses.

use super::ServerConnection;
use crate::http1::{Request, Sender};
use crate::http2::error::ErrorCode;
use crate::http2::frame::{self, END_STREAM, FrameHeader, PAYLOAD};
use crate::http2::priority::Priority;
use crate::message::{Draft, FieldLines, Stamp};

impl ServerConnection {
    /// Writes the head of a response. `length` is the length of the body, if the caller knows it; a declared
    /// Content-Length takes precedence.
    pub fn begin(
        &mut self,
        id: u32,
        draft: &Draft,
        request: Request,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Sender {
        let refusal = self.streams.get(id).filter(|stream| stream.is_refused).and_then(|_| refusal(draft));
        let draft = refusal.as_ref().unwrap_or(draft);
        let (sender, declared) = Sender::of_stream(draft, request, length);
        // The acknowledgement of SETTINGS must precede frames that depend on these settings.
        self.write_control(out);
        let Some(stream) = self.streams.get_mut(id) else { return sender };
        if !stream.is_response_open() {
            return sender;
        }
        let trailer = draft.trailer.as_deref().filter(|_| request.takes_trailers && !sender.is_bodiless());
        let is_over = trailer.is_none() && sender.is_whole();
        stream.response_left = declared.filter(|_| trailer.is_none() && !sender.is_bodiless());
        if is_over {
            stream.end_response();
        }
        let answering = &mut self.answering;
        frame::write_block(id, is_over, out, |out| answering.head(draft, declared, trailer, stamp, out));
        sender
    }

    /// Writes an interim response with `fields`.
    pub fn write_interim(&mut self, id: u32, status: u16, fields: &FieldLines, out: &mut Vec<u8>) {
        if self.streams.get(id).is_some_and(|stream| stream.is_response_open()) {
            self.write_control(out);
            frame::write_block(id, false, out, |out| self.answering.interim(status, fields, out));
        }
    }

    /// Sends 100 (Continue) if the client waits for it before it sends the body (RFC 9110 section 10.1.1).
    pub fn tell_to_continue(&mut self, id: u32, out: &mut Vec<u8>) {
        let waits = self.streams.get_mut(id).is_some_and(|stream| std::mem::take(&mut stream.expects_continue));
        if waits {
            self.write_interim(id, 100, &FieldLines::default(), out);
        }
    }

    /// Returns the number of body bytes of the response that the client accepts now.
    #[must_use]
    pub fn window(&self, id: u32) -> usize {
        match self.streams.get(id) {
            Some(stream) => usize::try_from(stream.send_window.min(self.answering.window)).unwrap_or(0),
            // Nothing is written on a closed stream, so there is no limit.
            None => usize::MAX,
        }
    }

    /// If only the window of the connection, which all responses share, blocks this response: returns the number of
    /// bytes sent on all streams so far. Otherwise returns `None`.
    #[must_use]
    pub fn sent_meanwhile(&self, id: u32) -> Option<u64> {
        let is_held = self.answering.window <= 0 && self.streams.get(id).is_some_and(|stream| stream.send_window > 0);
        is_held.then_some(self.answering.sent)
    }

    /// Returns the priority of a response.
    #[must_use]
    pub fn priority_of(&self, id: u32) -> Priority {
        self.streams.get(id).map_or_else(Priority::default, |stream| stream.priority)
    }

    /// Writes a part of a response body, which must fit into the window.
    pub fn frame(&mut self, id: u32, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.chunks(PAYLOAD) {
            if !self.begin_data(id, part.len(), out) {
                return;
            }
            out.extend_from_slice(part);
        }
    }

    /// Writes the header of a DATA frame with `length` bytes, at most [`PAYLOAD`], which must fit into the window. The
    /// caller sends them directly behind the header. Returns false and writes nothing if the response is over.
    pub fn begin_data(&mut self, id: u32, length: usize, out: &mut Vec<u8>) -> bool {
        debug_assert!(length <= PAYLOAD, "clients accept frames of this length");
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.is_response_open()) else { return false };
        let left = stream.response_left.map(|left| left.saturating_sub(length as u64));
        stream.response_left = left;
        let is_last = left == Some(0);
        if is_last {
            stream.end_response();
        }
        let count = i64::try_from(length).unwrap_or(i64::MAX);
        stream.send_window -= count;
        self.answering.window -= count;
        self.answering.sent += length as u64;
        debug_assert!(stream.send_window >= 0 && self.answering.window >= 0, "a part fits into the window");
        let flags = if is_last { END_STREAM } else { 0 };
        FrameHeader { length, kind: frame::DATA, flags, stream: id }.write(out);
        self.note_data();
        true
    }

    /// Stores the trailers of a response until its end, if the client accepts trailers.
    pub fn keep_trailers(&mut self, id: u32, trailers: &FieldLines) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.is_response_open()
            && stream.takes_trailers
        {
            stream.trailers = Some(Box::new(trailers.clone()));
        }
    }

    /// Ends a response.
    pub fn end_response(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.is_response_open() {
            stream.end_response();
            if let Some(trailers) = stream.trailers.take().filter(|trailers| !trailers.is_empty()) {
                self.write_control(out);
                frame::write_block(id, true, out, |out| self.answering.trailers(&trailers, out));
            } else {
                frame::write(frame::DATA, END_STREAM, id, b"", out);
            }
        }
    }

    /// Discards the rest of a request whose response is complete (RFC 9113 section 8.1).
    pub fn discard_request(&mut self, id: u32) {
        let is_complete = self.streams.get(id).is_some_and(|stream| !stream.is_response_open());
        if is_complete {
            self.reset_stream(id, ErrorCode::NoError);
        } else {
            self.discard_body(id);
        }
    }
}

/// Returns a replacement for a response that would accept a WebSocket by mistake: an application that did not accept it
/// may not know that a status of 2xx does (RFC 8441 section 5). Returns `None` if `draft` rejects the WebSocket.
fn refusal(draft: &Draft) -> Option<Draft> {
    if !(200..300).contains(&draft.status()) {
        return None;
    }
    let mut refusal = Draft::default();
    // 501 is a valid status, and the fields have been checked.
    refusal.start_refusal(501).ok()?;
    for (name, value) in draft.fields() {
        refusal.field(name, value).ok();
    }
    Some(refusal)
}
