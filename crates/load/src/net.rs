//! The generator's interface to the network, which tests replace by a simulation.

pub use engine::Moved;
use std::fmt;
use std::io::{self, IoSlice};

/// A time in nanoseconds since the start of a run.
pub type Nanos = u64;

/// The reason for a failed TLS handshake, wrapped in the error of a connection that could not be opened.
#[derive(Debug)]
pub(crate) struct TlsFault {
    /// The kind: `certificate`, `alert`, `protocol` or `alpn`.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl fmt::Display for TlsFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for TlsFault {}

/// Client sockets. No method blocks.
///
/// Readiness is reported to [`Generator::ready`](crate::Generator::ready), edge-triggered: input, the end of input, an
/// error, an opened connection; and space for output, if [requested](Net::want_output).
pub trait Net {
    /// A connection, which may still be opening, with TLS if the target uses it. Dropping it closes the connection.
    type Socket;

    /// Starts to open a connection to one of the target's addresses. Its readiness is reported with `slot`.
    ///
    /// Returns `None` if the server's backlog is full and the system does not wait for it (Unix sockets). The caller
    /// tries again later.
    fn connect(&mut self, address: usize, slot: usize) -> io::Result<Option<Self::Socket>>;

    /// Returns true if the connection is open, and an error if it failed to open.
    fn is_open(&mut self, socket: &mut Self::Socket) -> io::Result<bool>;

    /// Sends the slices in one call. Returns [`Moved::WouldBlock`] while the connection is opening.
    fn send(&mut self, socket: &mut Self::Socket, slices: &[IoSlice<'_>]) -> io::Result<Moved>;

    /// Receives into `buffer`. A result of zero bytes is the end of input.
    fn receive(&mut self, socket: &mut Self::Socket, buffer: &mut [u8]) -> io::Result<Moved>;

    /// Requests a report when there is space for output, or when the connection has opened.
    fn want_output(&mut self, socket: &mut Self::Socket, slot: usize) -> io::Result<()>;
}
