//! The unsent output of an exchange of a multiplexed protocol.

use crate::output::Output;
use crate::protocol::{MultiplexedProtocol, StreamId};
use std::io;

/// The maximum number of bytes in one frame. It lets frames of other exchanges be sent in between.
const FRAME: usize = 16 << 10;

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
