//! The transport of a simulated connection, plain or encrypted. It counts the bytes of the protocol, which differ from
//! those on the wire if they are encrypted.

use super::Network;
use super::pipe::PlainCounts;
use crate::cipher::RecordCipher;
use engine::{ClearOrEncrypted, Encrypted, Moved, Received, Socket, Tcp, Transport};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The transport of a simulated connection.
#[derive(Debug)]
pub(crate) struct SimTransport<S> {
    transport: ClearOrEncrypted<S, RecordCipher>,
    network: Rc<RefCell<Network>>,
    number: usize,
}

impl<S: Socket> SimTransport<S> {
    pub(super) fn new(socket: S, network: &Rc<RefCell<Network>>, number: usize, is_encrypted: bool) -> Self {
        let transport = if is_encrypted {
            ClearOrEncrypted::Encrypted(Box::new(Encrypted::new(Tcp::new(socket), RecordCipher::default(), false)))
        } else {
            ClearOrEncrypted::Clear(Tcp::new(socket))
        };
        Self { transport, network: Rc::clone(network), number }
    }

    pub(super) fn socket(&self) -> &S {
        self.transport.socket()
    }

    #[cfg(test)]
    pub(super) fn into_socket(self) -> S {
        match self.transport {
            ClearOrEncrypted::Clear(transport) => transport.into_socket(),
            ClearOrEncrypted::Encrypted(_) => panic!("the tests of the network have plain connections"),
        }
    }

    fn count(&self, count: impl FnOnce(&mut PlainCounts, &mut Network)) {
        if self.transport.is_encrypted() {
            let network = &mut *self.network.borrow_mut();
            let mut counts = network.connections[self.number].plain;
            count(&mut counts, network);
            network.connections[self.number].plain = counts;
        }
    }

    fn count_sent(&self, moved: &io::Result<Moved>) {
        let Ok(Moved::Bytes(count)) = *moved else { return };
        self.count(|counts, network| {
            counts.sent += count as u64;
            network.sent += count as u64;
        });
        if count > 0 {
            self.note_send();
        }
    }

    fn note_send(&self) {
        self.count(|counts, network| {
            counts.earlier_send = std::mem::replace(&mut counts.last_send, network.shared.now());
        });
    }
}

impl<S: Socket> Transport for SimTransport<S> {
    type Security = ();

    fn begin(&mut self, received: &[u8]) -> bool {
        self.transport.begin(received)
    }

    fn has_begun(&self) -> bool {
        self.transport.has_begun()
    }

    fn is_encrypted(&self) -> bool {
        self.transport.is_encrypted()
    }

    fn agreed_protocol(&self) -> Option<&[u8]> {
        self.transport.agreed_protocol()
    }

    fn take_security(&mut self) -> Option<()> {
        self.transport.take_security()
    }

    fn take_work(&mut self) -> u64 {
        self.transport.take_work()
    }

    fn note_read_closed(&mut self) {
        self.transport.note_read_closed();
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let received = self.transport.receive(buffer);
        if let Ok(Received::Bytes { count, .. }) = received {
            self.count(|counts, network| {
                counts.taken += count as u64;
                network.received += count as u64;
            });
        }
        received
    }

    fn send(&mut self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved> {
        let moved = self.transport.send(slices, more);
        self.count_sent(&moved);
        moved
    }

    fn send_file(&mut self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
        let moved = self.transport.send_file(file, offset, count);
        self.count_sent(&moved);
        moved
    }

    fn has_unsent(&self) -> bool {
        self.transport.has_unsent()
    }

    fn unsent_bytes(&self) -> usize {
        self.transport.unsent_bytes()
    }

    fn flush(&mut self) -> io::Result<()> {
        let had_unsent = self.transport.has_unsent();
        let flushed = self.transport.flush();
        if had_unsent {
            self.count(|counts, network| counts.last_send = network.shared.now());
        }
        flushed
    }

    fn end_output(&mut self) {
        self.transport.end_output();
    }

    fn end_held_output(&mut self) {
        self.transport.end_held_output();
    }

    fn reset_on_drop(&mut self) {
        self.transport.reset_on_drop();
    }

    fn cut(&mut self) {
        self.transport.cut();
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        self.transport.duplicate()
    }

    fn shut_down(&mut self) {
        self.transport.shut_down();
    }

    fn has_peer_left(&self) -> bool {
        self.transport.has_peer_left()
    }
}
