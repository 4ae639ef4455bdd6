//! The transport of engines that may have both plain and encrypted listeners.

use super::{Cipher, Encrypted, Moved, Received, Socket, Tcp, Transport};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

/// A plain transport or an encrypted one.
#[derive(Debug)]
pub enum ClearOrEncrypted<S, C> {
    /// A plain transport: the bytes of the protocol are those of the socket.
    Clear(Tcp<S>),
    /// An encrypted transport. The box keeps plain connections small.
    Encrypted(Box<Encrypted<S, C>>),
}

/// Calls a method on the transport, plain or encrypted.
macro_rules! of_either {
    ($self:expr, $transport:ident => $call:expr) => {
        match $self {
            ClearOrEncrypted::Clear($transport) => $call,
            ClearOrEncrypted::Encrypted($transport) => $call,
        }
    };
}

impl<S, C> ClearOrEncrypted<S, C>
where
    S: Socket,
    C: Cipher,
{
    /// Returns the socket.
    pub fn socket(&self) -> &S {
        of_either!(self, transport => transport.socket())
    }
}

impl<S: Socket, C: Cipher> Transport for ClearOrEncrypted<S, C> {
    type Security = C::Security;

    fn note_read_closed(&mut self) {
        of_either!(self, transport => transport.note_read_closed());
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        of_either!(self, transport => transport.receive(buffer))
    }

    #[inline]
    fn send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved> {
        of_either!(self, transport => transport.send(slices, more))
    }

    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
        of_either!(self, transport => transport.send_file(file, offset, count))
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        of_either!(self, transport => transport.has_unsent())
    }

    fn unsent_bytes(&self) -> usize {
        of_either!(self, transport => transport.unsent_bytes())
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        of_either!(self, transport => transport.flush())
    }

    fn end_output(&mut self) {
        of_either!(self, transport => transport.end_output());
    }

    fn end_held_output(&mut self) {
        of_either!(self, transport => transport.end_held_output());
    }

    fn reset_on_drop(&mut self) {
        of_either!(self, transport => transport.reset_on_drop());
    }

    fn cut(&mut self) {
        of_either!(self, transport => transport.cut());
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        of_either!(self, transport => transport.duplicate())
    }

    fn shut_down(&mut self) {
        of_either!(self, transport => transport.shut_down());
    }

    fn has_peer_left(&self) -> bool {
        of_either!(self, transport => transport.has_peer_left())
    }

    fn begin(&mut self, received: &[u8]) -> bool {
        of_either!(self, transport => transport.begin(received))
    }

    #[inline]
    fn has_begun(&self) -> bool {
        of_either!(self, transport => transport.has_begun())
    }

    fn is_encrypted(&self) -> bool {
        of_either!(self, transport => transport.is_encrypted())
    }

    fn is_shaking_hands(&self) -> bool {
        of_either!(self, transport => transport.is_shaking_hands())
    }

    fn agreed_protocol(&self) -> Option<&[u8]> {
        of_either!(self, transport => transport.agreed_protocol())
    }

    fn take_security(&mut self) -> Option<C::Security> {
        match self {
            Self::Clear(_) => None,
            Self::Encrypted(encrypted) => encrypted.take_security(),
        }
    }

    #[inline]
    fn take_work(&mut self) -> u64 {
        of_either!(self, transport => transport.take_work())
    }
}
