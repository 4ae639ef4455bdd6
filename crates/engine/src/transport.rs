//! Between a socket and a protocol: moves bytes in both directions, as they are or through a cipher.
//!
//! A transport says by itself whether it is *drained* ([`Received::Bytes`]): whether reading again is of no use until the
//! poller reports readiness. For a plain socket a short read tells ([`Tcp`]). For one that deciphers records it does not:
//! the socket may be drained while plaintext lies in the transport, and a record may be here in part only.
//!
//! A transport may have bytes of its own to send, such as the answer to a handshake message that came while reading. It
//! says so ([`Transport::has_unsent`]), and they count as output of the connection: nothing is read or produced while
//! they wait, and the poller is asked for room.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

/// What became of a send; an error means that the peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many bytes were taken.
    Bytes(usize),
    /// None for now; readiness tells when to try again.
    WouldBlock,
}

/// What a transport has received; an error means that the peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, at least one.
    Bytes {
        /// Bytes that were put into the buffer.
        count: usize,
        /// There is nothing more until the poller reports readiness. It is not said where that is not certain.
        is_drained: bool,
    },
    /// Nothing for now; readiness tells when to try again.
    WouldBlock,
    /// The end of input.
    End,
}

/// Moves the bytes of one connection. None of its calls waits.
pub trait Transport {
    /// The poller has reported that the peer sends no more, or is gone: the end of input is to be read.
    fn note_read_closed(&mut self);

    /// Receives into `buffer`, which is not empty.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Sends the slices as one; `more` says that more follows at once, so that the last packet may wait to be filled.
    /// What it reports as taken it sends, by [`flush`](Self::flush) if not at once.
    fn send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved>;

    /// Sends up to `count` bytes of `file` from `offset`; 0 if the file ends there.
    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved>;

    /// Whether bytes were taken, or are the transport's own, which the socket has not.
    fn has_unsent(&self) -> bool;

    /// Sends such bytes, as many as the socket takes.
    fn flush(&mut self) -> io::Result<()>;

    /// Says that nothing more will be sent. The peer may be gone already, which changes nothing.
    fn end_output(&mut self);

    /// Ends the output if the last send had `more`, so that nothing waits for bytes that do not come. The engine calls it
    /// before it drops a transport: Linux discards what it holds back (`MSG_MORE`) when a socket is closed while received
    /// bytes are unread, and the peer would see a reset in place of the response.
    fn end_held_output(&mut self) {}

    /// Makes dropping the transport a reset. Best effort: if it fails, the peer sees an early end instead.
    fn reset_on_drop(&mut self);

    /// Makes dropping the transport a reset, and resets the connection now, although it is still held, where the system
    /// can do so. What the peer sees must never be an orderly end.
    fn cut(&mut self);

    /// Another descriptor of the socket, for what speaks to the peer in place of the engine.
    ///
    /// # Errors
    /// If the system refuses one, or the bytes of the protocol are not those of a socket.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends both directions now, also for those who have a duplicate.
    fn shut_down(&mut self) {
        self.end_output();
    }

    /// Whether the peer has ended its side or is gone, seen past whatever it sent before.
    fn has_peer_left(&self) -> bool;
}

/// A stream socket of the operating system, or of a simulation. None of its calls waits.
pub trait Socket {
    /// Receives into `buffer`. No bytes received are the end of input.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Moved>;

    /// As [`Transport::send`].
    fn send(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved>;

    /// As [`Transport::send_file`].
    fn send_file(&self, file: &File, offset: u64, count: u64) -> io::Result<Moved>;

    /// As [`Transport::end_output`].
    fn end_output(&self);

    /// As [`Transport::reset_on_drop`].
    fn reset_on_drop(&self);

    /// As [`Transport::cut`].
    fn cut(&self);

    /// As [`Transport::duplicate`].
    ///
    /// # Errors
    /// As there.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Transport::shut_down`].
    fn shut_down(&self) {
        self.end_output();
    }

    /// As [`Transport::has_peer_left`].
    fn has_peer_left(&self) -> bool;
}

/// The plain transport: the bytes of the protocol are those of the socket.
#[derive(Debug)]
pub struct Tcp<S> {
    socket: S,
    /// The peer has said that it sends no more, so the end of input has still to be read even after a short read: no
    /// readiness is reported for it again.
    is_read_closed: bool,
    /// The last send said that more follows, so the socket may hold its bytes back.
    holds_back: bool,
}

impl<S> Tcp<S> {
    /// The transport of a connected socket.
    pub fn new(socket: S) -> Self {
        Self { socket, is_read_closed: false, holds_back: false }
    }

    /// What it stands on.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Gives the socket back, for a transport that puts something on top of it.
    pub fn into_socket(self) -> S {
        self.socket
    }
}

impl<S: Socket> Transport for Tcp<S> {
    #[inline]
    fn note_read_closed(&mut self) {
        self.is_read_closed = true;
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        Ok(match self.socket.receive(buffer)? {
            Moved::Bytes(0) => Received::End,
            // A short read has drained the socket: no second call to be told so. Readiness, which is edge-triggered,
            // is reported again with the next byte, but not for an end of input that lies behind what was read.
            Moved::Bytes(count) => Received::Bytes { count, is_drained: count < buffer.len() && !self.is_read_closed },
            Moved::WouldBlock => Received::WouldBlock,
        })
    }

    #[inline]
    fn send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved> {
        self.holds_back = more;
        self.socket.send(slices, more)
    }

    #[inline]
    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
        self.holds_back = false;
        self.socket.send_file(file, offset, count)
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        false
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end_output(&mut self) {
        self.holds_back = false;
        self.socket.end_output();
    }

    fn end_held_output(&mut self) {
        if self.holds_back {
            self.end_output();
        }
    }

    fn reset_on_drop(&mut self) {
        self.holds_back = false;
        self.socket.reset_on_drop();
    }

    fn cut(&mut self) {
        self.holds_back = false;
        self.socket.cut();
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.duplicate()
    }

    fn shut_down(&mut self) {
        self.socket.shut_down();
    }

    fn has_peer_left(&self) -> bool {
        self.socket.has_peer_left()
    }
}
