//! Transports, which move bytes between a socket and a protocol in both directions, plain or encrypted.
//!
//! A transport reports when it is *drained* ([`Received::Bytes`]): then reading again is useless until the poller
//! reports readiness. A short read shows this for a plain socket ([`Tcp`]). It does not for a transport that decrypts
//! records: the socket may be drained while plaintext is left in the transport, and a record may have arrived only in
//! part.
//!
//! A transport may have bytes of its own to send, such as the answer to a handshake message. It reports them
//! ([`Transport::has_unsent`]), and they count as output of the connection: while they wait, the engine reads and
//! produces nothing and lets the poller watch for room for output.

mod cipher;
mod either;
mod encrypted;

pub use cipher::{Cipher, CipherFault};
pub use either::ClearOrEncrypted;
pub use encrypted::Encrypted;

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

/// The result of a send. An error means that the peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The number of bytes that were accepted.
    Bytes(usize),
    /// No bytes were accepted. The caller may try again after the poller has reported readiness.
    WouldBlock,
}

/// The result of a receive. An error means that the peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// At least one byte was received.
    Bytes {
        /// The number of bytes in the buffer.
        count: usize,
        /// True if certainly nothing more can be received until the poller reports readiness.
        is_drained: bool,
    },
    /// Nothing was received. The caller may try again after the poller has reported readiness.
    WouldBlock,
    /// The end of input.
    End,
}

/// A transport, which moves the bytes of one connection. None of its methods blocks.
pub trait Transport {
    /// The result of the handshake of an encrypted transport: the peer, and the terms of the encryption.
    type Security;

    /// Begins with these bytes, which have been received, after the header of the PROXY protocol before them was read.
    /// Returns true if the transport has taken them. A plain transport takes none: they are the protocol's.
    fn begin(&mut self, received: &[u8]) -> bool {
        let _ = received;
        false
    }

    /// Returns true if the peer has begun a handshake, so that a request is about to follow.
    fn has_begun(&self) -> bool {
        false
    }

    /// Returns true if the bytes of the protocol are encrypted on their way.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// Returns true if the handshake of an encrypted transport is not over.
    fn is_shaking_hands(&self) -> bool {
        false
    }

    /// Returns the name of the protocol on which the handshake has agreed (ALPN, RFC 7301).
    fn agreed_protocol(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the result of the handshake, once. `None` before its end and for plain transports.
    fn take_security(&mut self) -> Option<Self::Security> {
        None
    }

    /// Returns the work that the transport has done since the last call, besides receiving and sending, in units of the
    /// engine's meter (the cost of a received byte).
    fn take_work(&mut self) -> u64 {
        0
    }

    /// Notes that the poller has reported that the peer sends no more, or is gone. Then the end of input must still be
    /// read.
    fn note_read_closed(&mut self);

    /// Receives into `buffer`, which is not empty.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Sends the slices as one. `more`: more bytes follow at once, so the last packet may wait to be filled. The
    /// transport sends all bytes that it reports as accepted, if not at once then by [`flush`](Self::flush).
    fn send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved>;

    /// Sends up to `count` bytes of `file` from `offset`; 0 if the file ends there.
    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved>;

    /// Returns true if the transport has accepted bytes, or has bytes of its own, that it has not passed to the socket.
    fn has_unsent(&self) -> bool;

    /// Returns the number of bytes that the transport has not passed to the socket, which shows how fast the peer takes
    /// them.
    fn unsent_bytes(&self) -> usize {
        0
    }

    /// Sends these unsent bytes, as many as the socket accepts.
    fn flush(&mut self) -> io::Result<()>;

    /// Ends the output. Does nothing if the peer is already gone.
    fn end_output(&mut self);

    /// Ends the output if the last send had `more`, so that no bytes wait for others that will not follow. The engine
    /// calls this before it drops a transport: Linux discards the bytes that it holds back (`MSG_MORE`) when a socket
    /// with unread bytes is closed, and the peer would see a reset instead of the response.
    fn end_held_output(&mut self) {}

    /// Makes dropping the transport a reset. Best effort: if it fails, the peer sees an early end instead.
    fn reset_on_drop(&mut self);

    /// Makes dropping the transport a reset, and resets the connection at once, although the transport still exists, if
    /// the system can do so. The peer must never see an orderly end.
    fn cut(&mut self);

    /// Returns another descriptor of the socket, for code that communicates with the peer instead of the engine.
    ///
    /// # Errors
    /// If the system refuses one, or if the protocol's bytes differ from the socket's, as with encryption.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends both directions at once, also for owners of a duplicate.
    fn shut_down(&mut self) {
        self.end_output();
    }

    /// Returns true if the peer has ended its output or is gone, even if earlier bytes of it are unread.
    fn has_peer_left(&self) -> bool;
}

/// A stream socket of the operating system, or of a simulation. None of its methods blocks.
pub trait Socket {
    /// Receives into `buffer`. Returns zero bytes at the end of input.
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
    /// True if the peer sends no more. Then the end of input must be read even after a short read, because the poller
    /// does not report it again.
    is_read_closed: bool,
    /// True if the last send announced more bytes, so that the socket may hold bytes back.
    holds_back: bool,
}

impl<S> Tcp<S> {
    /// Creates the transport of a connected socket.
    pub fn new(socket: S) -> Self {
        Self { socket, is_read_closed: false, holds_back: false }
    }

    /// Returns the socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Returns the socket, for a transport that is built on top of it.
    pub fn into_socket(self) -> S {
        self.socket
    }
}

impl<S: Socket> Transport for Tcp<S> {
    type Security = Infallible;

    #[inline]
    fn note_read_closed(&mut self) {
        self.is_read_closed = true;
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        Ok(match self.socket.receive(buffer)? {
            Moved::Bytes(0) => Received::End,
            // A short read has drained the socket, so no second call is needed to find out. The poller, which is
            // edge-triggered, reports readiness again with the next byte, but not for an end of input directly behind
            // these bytes.
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
