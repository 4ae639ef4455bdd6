//! What an exchange of a multiplexed protocol has to send and its client does not take yet.

use crate::output::Output;
use crate::protocol::{Protocol, StreamId};
use std::io;

/// Bytes of one frame at most: others come in between.
const FRAME: usize = 16 << 10;

/// A response's body on its way to the client, as far as the client's window has kept it.
///
/// It is bounded as the output of a connection is: the application stops to produce while it is not empty.
#[derive(Debug)]
pub(crate) struct Backlog<C> {
    pub(crate) output: Output<C>,
    end: End,
    /// Bytes that the client has taken.
    taken: u64,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More may be written.
    Open,
    /// All has been written, and the end is to be sent behind it.
    Due,
    Sent,
}

impl<C: AsRef<[u8]>> Backlog<C> {
    pub(crate) fn new() -> Self {
        Self { output: Output::new(), end: End::Open, taken: 0 }
    }

    /// Nothing follows what is here.
    pub(crate) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }

    /// Nothing more of it is sent. What it holds is let go with it.
    pub(crate) fn stop(&mut self) {
        self.end = End::Sent;
    }

    /// Whether the client has been sent the end of the response.
    pub(crate) fn is_complete(&self) -> bool {
        self.end == End::Sent
    }

    /// Frames what the client takes now, as far as there is `room` on the connection. `scratch` is what it says.
    ///
    /// # Errors
    /// A file that could not be read, or is shorter than it was said to be.
    pub(crate) fn pump<P: Protocol>(
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

    /// Bytes of the body that the client has taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether the client has taken all that has been written so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == End::Sent || self.output.is_empty() && self.end == End::Open
    }
}
