//! Transports, which move bytes between a socket and a protocol in both directions, plain or encrypted.
//!
//! A transport reports when it is *drained* ([`Received::Bytes`]): reading again is then useless until the poller
//! reports readiness. For a plain socket ([`Tcp`]) a short read shows this. For a transport that decrypts records it
//! does not: the socket may be drained while the transport still has plaintext, or a record may have arrived only in
//! part.
//!
//! A transport may have bytes of its own to send, such as the answer to a handshake message. It reports them
//! ([`Transport::has_unsent`]), and they count as output of the connection: while they are unsent, the engine reads and
//! produces nothing, and the poller watches for room for output.

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
        /// True if nothing more can be received until the poller reports readiness.
        is_drained: bool,
    },
    /// Nothing was received. The caller may try again after the poller has reported readiness.
    WouldBlock,
    /// The end of input.
    End,
}

/// A transport, which moves the bytes of one connection. None of its methods blocks.
pub trait Transport {
    /// The result of the handshake of an encrypted transport: the identity of the peer, and the terms of the
    /// encryption.
    type Security;

    /// Starts the transport after a header of the PROXY protocol. `received` are the bytes received after the header.
    /// Returns true if the transport has taken them; a plain transport takes none, because they belong to the protocol.
    fn begin(&mut self, received: &[u8]) -> bool {
        let _ = received;
        false
    }

    /// Returns true if the peer has begun a handshake, so that a request will follow.
    fn has_begun(&self) -> bool {
        false
    }

    /// Returns true if the transport encrypts the bytes of the protocol.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// Returns true if the handshake of an encrypted transport has not ended.
    fn is_shaking_hands(&self) -> bool {
        false
    }

    /// Returns the protocol name that the handshake has negotiated (ALPN, RFC 7301); `None` for none.
    fn agreed_protocol(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the result of the handshake, once. Returns `None` before its end and for plain transports.
    fn take_security(&mut self) -> Option<Self::Security> {
        None
    }

    /// Returns the work that the transport has done since the last call, without receiving and sending, in units of the
    /// engine's meter (the cost of one received byte).
    fn take_work(&mut self) -> u64 {
        0
    }

    /// Records that the poller has reported that the peer sends nothing more, or is gone. The end of input must still
    /// be read.
    fn note_read_closed(&mut self);

    /// Receives into `buffer`, which must not be empty.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Sends the slices in order, in one call. `more`: more bytes follow at once, so the last packet may wait to be
    /// filled. Returns the number of bytes accepted; the transport may send a part of them only at the next
    /// [`flush`](Self::flush).
    fn send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved>;

    /// Sends at most `count` bytes of `file` from `offset`. Returns 0 bytes if the file ends there.
    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved>;

    /// Returns true if there are bytes that have not been passed to the socket: bytes that were accepted, or the
    /// transport's own messages.
    fn has_unsent(&self) -> bool;

    /// Returns the number of accepted bytes that have not been passed to the socket. The engine uses it to measure how
    /// fast the peer reads.
    fn unsent_bytes(&self) -> usize {
        0
    }

    /// Sends as many of the unsent bytes as the socket accepts.
    fn flush(&mut self) -> io::Result<()>;

    /// Ends the output. Does nothing if the peer is already gone.
    fn end_output(&mut self);

    /// Ends the output if the last send had `more`, so that the socket does not hold back bytes any longer. The engine
    /// calls this before it drops a transport: Linux discards the bytes that it holds back (`MSG_MORE`) when a socket
    /// with unread bytes is closed, and the peer would see a reset instead of the response.
    fn end_held_output(&mut self) {}

    /// Makes dropping the transport send a reset. This is best effort: if it fails, the peer sees an early end instead.
    fn reset_on_drop(&mut self);

    /// Resets the connection at once if the system can do so, otherwise when the transport is dropped. The peer must
    /// never see an orderly end.
    fn cut(&mut self);

    /// Returns a duplicate of the socket's descriptor, for code that communicates with the peer instead of the engine.
    ///
    /// # Errors
    /// If the system cannot duplicate it, or if the protocol's bytes differ from the socket's, as with encryption.
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Shuts down both directions at once, also for owners of a duplicate.
    fn shut_down(&mut self) {
        self.end_output();
    }

    /// Returns true if the peer has ended its output or is gone, even if earlier bytes from it are unread.
    fn has_peer_left(&self) -> bool;
}

/// A stream socket of the operating system, or of a simulation. None of its methods blocks.
pub trait Socket {
    /// Receives into `buffer`. Returns zero bytes at the end of input.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Moved>;

    /// See [`Transport::send`].
    fn send(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved>;

    /// See [`Transport::send_file`].
    fn send_file(&self, file: &File, offset: u64, count: u64) -> io::Result<Moved>;

    /// See [`Transport::end_output`].
    fn end_output(&self);

    /// See [`Transport::reset_on_drop`].
    fn reset_on_drop(&self);

    /// See [`Transport::cut`].
    fn cut(&self);

    /// See [`Transport::duplicate`].
    ///
    /// # Errors
    /// Those of [`Transport::duplicate`].
    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// See [`Transport::shut_down`].
    fn shut_down(&self) {
        self.end_output();
    }

    /// See [`Transport::has_peer_left`].
    fn has_peer_left(&self) -> bool;
}

/// The plain transport: the bytes of the protocol are those of the socket.
#[derive(Debug)]
pub struct Tcp<S> {
    socket: S,
    /// True if the peer sends nothing more. The end of input must then be read even after a short read, because the
    /// poller does not report it again.
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
            // A short read has drained the socket, so no second call is needed to find out. The poller is
            // edge-triggered: it reports readiness again with the next byte, but not for an end of input directly after
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
