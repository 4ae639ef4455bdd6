//! What the generator asks of the operating system, so that a simulation can stand in for it.

pub use engine::Moved;
use std::io::{self, IoSlice};

/// Nanoseconds since the start of a run.
pub type Nanos = u64;

/// Sockets that connect. None of the calls waits.
///
/// What becomes ready is told to [`Generator::ready`](crate::Generator::ready), once ("edge-triggered"): input that came,
/// its end, an error, a connection that opened; and room for output where it was [asked for](Net::want_output).
pub trait Net {
    /// A connection, which may still be opening. Dropping it closes it.
    type Socket;

    /// Begins to open a connection to one of the target's addresses; all that is ready with it is told by its `slot`.
    ///
    /// `None`: the server's queue is full and the system does not wait for it (Unix sockets); to be tried again.
    fn connect(&mut self, address: usize, slot: usize) -> io::Result<Option<Self::Socket>>;

    /// Whether the connection is open, or its failure.
    fn is_open(&self, socket: &Self::Socket) -> io::Result<bool>;

    /// Sends the slices as one. While the connection opens, this is [`Moved::WouldBlock`].
    fn send(&mut self, socket: &Self::Socket, slices: &[IoSlice<'_>]) -> io::Result<Moved>;

    /// Receives into `buffer`; no bytes are the end of input.
    fn receive(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<Moved>;

    /// From now on, room for output is told too, and that a connection has opened.
    fn want_output(&mut self, socket: &Self::Socket, slot: usize) -> io::Result<()>;
}
