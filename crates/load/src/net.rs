//! The generator's interface to the operating system, which a simulation can replace.

pub use engine::Moved;
use std::fmt;
use std::io::{self, IoSlice};

/// Nanoseconds since the start of a run.
pub type Nanos = u64;

/// The reason why a handshake of TLS has failed, as the error of a connection that could not be opened.
#[derive(Debug)]
pub(crate) struct TlsFault {
    /// `certificate`, `alert`, `protocol` or `alpn`.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl fmt::Display for TlsFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for TlsFault {}

/// Sockets that connect. None of the calls blocks.
///
/// Readiness is passed to [`Generator::ready`](crate::Generator::ready), edge-triggered: input, its end, an error, an
/// opened connection; and space for output if [requested](Net::want_output).
pub trait Net {
    /// A connection, which may still be opening, with TLS if the target has it. Dropping it closes it.
    type Socket;

    /// Begins to open a connection to one of the target's addresses. Its readiness is reported with `slot`.
    ///
    /// `None`: the server's queue is full and the system does not wait for it (Unix sockets); the caller tries again
    /// later.
    fn connect(&mut self, address: usize, slot: usize) -> io::Result<Option<Self::Socket>>;

    /// Returns true once the connection is open; an error if it failed to open.
    fn is_open(&mut self, socket: &mut Self::Socket) -> io::Result<bool>;

    /// Sends the slices in one call. While the connection opens, this returns [`Moved::WouldBlock`].
    fn send(&mut self, socket: &mut Self::Socket, slices: &[IoSlice<'_>]) -> io::Result<Moved>;

    /// Receives into `buffer`; zero bytes are the end of input.
    fn receive(&mut self, socket: &mut Self::Socket, buffer: &mut [u8]) -> io::Result<Moved>;

    /// Requests reports of space for output, and of the connection's opening.
    fn want_output(&mut self, socket: &mut Self::Socket, slot: usize) -> io::Result<()>;
}
