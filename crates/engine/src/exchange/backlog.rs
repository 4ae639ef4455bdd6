//! The unsent output of an exchange of a multiplexed protocol.

use crate::compose::Composer;
use crate::config::FRAME;
use crate::output::Output;
use crate::protocol::{MultiplexedProtocol, StreamId};
use crate::transport::Transport;
use std::io;

/// The number of bytes from which on a part of a response is sent without copying it.
const LARGE: usize = 2 * FRAME;
/// The maximum number of frames that are sent without copying them before other exchanges are served.
const FRAMES: usize = 16;

/// The part of a response that has not been sent, because it exceeds the client's window.
///
/// Its size is bounded like the output of a connection: the application stops producing while the backlog is not empty.
#[derive(Debug)]
pub(crate) struct Backlog<C> {
    pub(crate) output: Output<C>,
    end: End,
    /// The number of body bytes that have been framed for the client.
    taken: u64,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More may be written.
    Open,
    /// The whole response has been written. The client must be told of the end after the remaining bytes.
    Due,
    Sent,
}

impl<C: AsRef<[u8]>> Backlog<C> {
    pub(crate) fn new() -> Self {
        Self { output: Output::new(), end: End::Open, taken: 0 }
    }

    /// Returns the backlog in `place`, after creating one if there is none.
    pub(crate) fn of(place: &mut Option<Box<Self>>) -> &mut Self {
        place.get_or_insert_with(|| Box::new(Self::new()))
    }

    /// Marks the end: no output follows the waiting bytes.
    pub(crate) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }

    /// Stops sending. The waiting bytes are dropped together with the backlog.
    pub(crate) fn stop(&mut self) {
        self.end = End::Sent;
    }

    /// Returns true if the client has been sent the end of the response.
    pub(crate) fn is_complete(&self) -> bool {
        self.end == End::Sent
    }

    /// Sends frames of the first part of the output without copying it, if the part is large and in memory, behind the
    /// composed output `out`. Output that the transport does not accept waits in `waiting`. Returns the number of bytes
    /// sent; `None` if the output has to be framed by [`pump`](Self::pump), also because earlier output waits.
    pub(crate) fn send_large<P: MultiplexedProtocol>(
        &mut self,
        protocol: &mut P,
        stream: StreamId,
        out: &mut Composer<C>,
        waiting: &mut Output<C>,
        transport: &mut impl Transport,
    ) -> Option<u64> {
        if !waiting.is_empty() || out.is_begun() {
            return None;
        }
        let room = protocol.window(stream).min(FRAMES * FRAME);
        let part = self.output.front().filter(|_| self.has_large() && room >= LARGE)?;
        let (mut heads, mut frames, mut count) = ([0; FRAMES], 0, 0);
        for frame in part[..part.len().min(room)].chunks(FRAME) {
            if !protocol.begin_frame(stream, frame.len(), &mut out.bytes) {
                break;
            }
            heads[frames] = out.bytes.len();
            (frames, count) = (frames + 1, count + frame.len());
        }
        if frames == 0 {
            return None;
        }
        let sent = out.send_frames(&heads[..frames], &part[..count], transport, waiting);
        self.output.advance(count);
        self.taken += count as u64;
        Some(sent as u64)
    }

    /// Returns true if [`send_large`](Self::send_large) may send more.
    pub(crate) fn has_large(&self) -> bool {
        self.end != End::Sent && self.output.front().is_some_and(|part| part.len() >= LARGE)
    }

    /// Frames the output that the client accepts now, up to `room` bytes, the room on the connection. `scratch` is a
    /// reusable buffer.
    ///
    /// # Errors
    /// If a file cannot be read, or is shorter than it was when its length was declared.
    pub(crate) fn pump<P: MultiplexedProtocol>(
        &mut self,
        protocol: &mut P,
        stream: StreamId,
        room: usize,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let before = out.len();
        while self.end != End::Sent && !self.output.is_empty() && out.len() - before < room {
            let count = protocol.window(stream).min(FRAME);
            if count == 0 {
                return Ok(());
            }
            if let Some(part) = self.output.front().filter(|part| part.len() >= count) {
                protocol.frame(stream, &part[..count], out);
                self.output.advance(count);
                self.taken += count as u64;
                continue;
            }
            scratch.clear();
            self.output.take(count, scratch)?;
            protocol.frame(stream, scratch, out);
            self.taken += scratch.len() as u64;
        }
        if self.output.is_empty() && self.end == End::Due {
            protocol.end_response(stream, out);
            self.end = End::Sent;
        }
        Ok(())
    }

    /// Returns the number of body bytes that have been framed for the client so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns true if all output that has been written so far has been framed.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == End::Sent || self.output.is_empty() && self.end == End::Open
    }
}
