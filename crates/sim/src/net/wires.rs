//! Real sockets underneath the simulated connections.
//!
//! Latency, packets and pauses remain simulated. Bytes that arrive at the server at their virtual time are then written
//! to a real socket. Bytes that the engine sends through its real socket are read from the other end immediately and
//! travel to the client in virtual time. So the same plans, application and conditions test Linux itself, and the
//! simulated network's assumptions about Linux.
//!
//! Loopback is fast but not instantaneous. If an event has to follow (sent bytes, an end, room for output), [`Wires`]
//! waits for it before virtual time advances.

use crate::clock::Shared;
use crate::sockets::{self, Address};
use engine::{Os, Poller};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The maximum real time for an operation that takes no virtual time. Only a failing world waits this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of bytes that are read from a client's socket at a time.
pub(super) const READ: usize = 64 << 10;

/// The kind of the engine's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Simulated,
    /// Loopback connections. The fields are the sizes of the kernel's buffers at the server and at the clients; `None`:
    /// the kernel chooses.
    Tcp {
        send_buffer: Option<usize>,
        receive_buffer: Option<usize>,
    },
    /// Unix sockets, which have no resets.
    Unix,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(super) struct ClientEnd {
    pub(super) socket: OwnedFd,
    /// The numbers of bytes that were written to the socket, sent to it by the engine, and read from it.
    pub(super) written: u64,
    pub(super) sent: u64,
    pub(super) read: u64,
    /// True if the client's end was sent.
    pub(super) is_shut: bool,
    /// True if the engine has ended its output, or closed its socket.
    pub(super) expects_end: bool,
    /// True if the end or the reset has been read.
    pub(super) is_ended: bool,
    /// True if the engine's last send was short, and its readiness for more has not been reported yet.
    pub(super) awaits_room: bool,
}

/// The real sockets of a network.
#[derive(Debug)]
pub(super) struct Wires {
    pub(super) medium: Medium,
    pub(super) os: Os,
    pub(super) poller: Poller,
    addresses: Vec<Address>,
    /// The clients' ends, by number of the connection; `None` before a connection arrives and after its client's reset.
    pub(super) ends: Vec<Option<ClientEnd>>,
    /// The buffer for one read from a client's socket.
    pub(super) buffer: Vec<u8>,
    /// The directory of the Unix sockets. It is removed with the world.
    directory: Option<tempfile::TempDir>,
}

impl Wires {
    pub(super) fn new(medium: Medium) -> Self {
        let (os, poller, _) = Os::new().expect("descriptors are left");
        let directory = (medium == Medium::Unix).then(|| tempfile::tempdir().expect("a directory for temporary files"));
        Self { medium, os, poller, addresses: Vec::new(), ends: Vec::new(), buffer: vec![0; READ], directory }
    }

    /// Opens the next listening socket.
    pub(super) fn open_listener(&mut self) -> OwnedFd {
        let (listener, address) = match (&self.directory, self.medium) {
            (Some(directory), _) => sockets::listen_at(&directory.path().join(self.addresses.len().to_string())),
            (None, Medium::Tcp { send_buffer, .. }) => sockets::listen(send_buffer),
            (None, _) => sockets::listen(None),
        };
        self.addresses.push(address);
        listener
    }

    /// Connects the client of connection `number`. Returns false if the listener is closed.
    pub(super) fn connect(&mut self, number: usize, listener: usize) -> bool {
        let receive_buffer = if let Medium::Tcp { receive_buffer, .. } = self.medium { receive_buffer } else { None };
        let Ok(socket) = sockets::connect(&self.addresses[listener], receive_buffer) else { return false };
        self.ends.resize_with(self.ends.len().max(number + 1), || None);
        self.ends[number] = Some(ClientEnd {
            socket,
            written: 0,
            sent: 0,
            read: 0,
            is_shut: false,
            expects_end: false,
            is_ended: false,
            awaits_room: false,
        });
        true
    }

    pub(super) fn end_mut(&mut self, number: usize) -> Option<&mut ClientEnd> {
        self.ends.get_mut(number)?.as_mut()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.poller.is_ready()
    }

    /// Waits until the engine's poller has an event.
    pub(super) fn await_event(&mut self, shared: &Shared, what: &str) {
        self.poller.wait_until_ready(Some(PATIENCE));
        if !self.poller.is_ready() {
            shared.fail(|| format!("no event at the server: {what}"));
        }
    }
}

impl ClientEnd {
    /// Waits until there is something to read.
    pub(super) fn await_input(&self, shared: &Shared) {
        let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience = Timespec::try_from(PATIENCE).expect("it fits");
        if !rustix::event::poll(&mut descriptors, Some(&patience)).is_ok_and(|count| count > 0) {
            shared.fail(|| format!("{} bytes were sent, and {} arrive; no end arrives", self.sent, self.read));
        }
    }
}
