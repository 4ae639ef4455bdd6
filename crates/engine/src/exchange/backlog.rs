//! The output of an exchange of a multiplexed protocol that its client does not take yet.

use crate::output::Output;
use crate::protocol::{MultiplexedProtocol, StreamId};
use std::io;

/// The maximum number of bytes in one frame, so that frames of other exchanges are sent in between.
const FRAME: usize = 16 << 10;

/// The part of a response's body that the client's window keeps from being sent.
///
/// It is bounded like the output of a connection: the application stops producing while it is not empty.
#[derive(Debug)]
pub(crate) struct Backlog<C> {
    pub(crate) output: Output<C>,
    end: End,
    /// The number of bytes that the client has taken.
    taken: u64,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More may be written.
    Open,
    /// The whole response has been written, and its end is to be sent after it.
    Due,
    Sent,
}

impl<C: AsRef<[u8]>> Backlog<C> {
    pub(crate) fn new() -> Self {
        Self { output: Output::new(), end: End::Open, taken: 0 }
    }

    /// Returns the backlog in `place`, which is a new one if there was none.
    pub(crate) fn of(place: &mut Option<Box<Self>>) -> &mut Self {
        place.get_or_insert_with(|| Box::new(Self::new()))
    }

    /// Marks the end: no output follows the bytes that wait.
    pub(crate) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }

    /// Stops sending. The bytes that wait are dropped together with the backlog.
    pub(crate) fn stop(&mut self) {
        self.end = End::Sent;
    }

    /// Returns true if the end of the response has been sent to the client.
    pub(crate) fn is_complete(&self) -> bool {
        self.end == End::Sent
    }

    /// Frames the output that the client takes now, as far as there is `room` on the connection. `scratch` is a scratch
    /// buffer.
    ///
    /// # Errors
    /// A file that could not be read, or is shorter than it was said to be.
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

    /// Returns the number of bytes of the body that the client has taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns true if the client has taken all output that has been written so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == End::Sent || self.output.is_empty() && self.end == End::Open
    }
}
