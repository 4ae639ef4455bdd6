//! Real sockets under the simulated connections.
//!
//! Latency, packets and pauses stay simulated: what arrives at the server at its virtual time is then written to a real
//! socket, and what the engine sends through its real socket is read from the other end at once and travels to the
//! client in virtual time. So the same plans, the same application and the same conditions hold for what Linux does as
//! for what [`super`] assumes that Linux does.
//!
//! Loopback is fast but not instantaneous. Where an event has to follow (bytes that were sent, an end, room for output),
//! [`Wires`] waits for it before virtual time goes on.

use super::pipe::{End, post};
use super::{Network, Reset};
use crate::clock::{Event, Shared};
use crate::plan::Medium;
use engine::{Os, Poller, Readiness};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketType, sockopt};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

/// How long the machine may take for what takes no virtual time. Only a failing world waits this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that are read from a client's socket at a time.
const READ: usize = 64 << 10;

#[derive(Clone, Debug)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The client's end of a connection.
#[derive(Debug)]
struct ClientEnd {
    socket: OwnedFd,
    /// Bytes that were written to it, and bytes that the engine has sent to it and that were read from it.
    written: u64,
    sent: u64,
    read: u64,
    /// The client's end was sent.
    is_shut: bool,
    /// The engine has closed its sending side, or all of it.
    expects_end: bool,
    /// The end or the reset has been read.
    is_ended: bool,
    /// The engine's last send was short, and its readiness for more was not reported yet.
    awaits_room: bool,
}

/// The real sockets of a network.
#[derive(Debug)]
pub(super) struct Wires {
    medium: Medium,
    pub(super) os: Os,
    poller: Poller,
    addresses: Vec<Address>,
    /// By number of the connection; `None` before it arrives, and after the client has reset it.
    ends: Vec<Option<ClientEnd>>,
    /// What is read at a time.
    buffer: Vec<u8>,
    /// The directory of Unix sockets, removed with the world.
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
        if let Some(directory) = &self.directory {
            let path = directory.path().join(self.addresses.len().to_string());
            let listener = UnixListener::bind(&path).expect("a new path");
            self.addresses.push(Address::Unix(path));
            return listener.into();
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
        self.addresses.push(Address::Tcp(listener.local_addr().expect("it is bound")));
        if let Medium::Tcp { send_buffer: Some(bytes), .. } = self.medium {
            // Its connections inherit the size.
            sockopt::set_socket_send_buffer_size(&listener, bytes).expect("a size that the kernel bounds itself");
        }
        listener.into()
    }

    /// Connects the client of connection `number`; false if the listener is closed.
    fn connect(&mut self, number: usize, listener: usize) -> bool {
        let address = self.addresses[listener].clone();
        let family = if matches!(address, Address::Tcp(_)) { AddressFamily::INET } else { AddressFamily::UNIX };
        let socket = rustix::net::socket(family, SocketType::STREAM, None).expect("a socket");
        if let Medium::Tcp { receive_buffer: Some(bytes), .. } = self.medium {
            sockopt::set_socket_recv_buffer_size(&socket, bytes).expect("a size that the kernel bounds itself");
        }
        let connected = match address {
            Address::Tcp(address) => rustix::net::connect(&socket, &address)
                .inspect(|()| sockopt::set_tcp_nodelay(&socket, true).expect("a TCP socket")),
            Address::Unix(path) => rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a short path")),
        };
        if connected.is_err() {
            return false;
        }
        rustix::io::ioctl_fionbio(&socket, true).expect("a socket");
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

    fn end_mut(&mut self, number: usize) -> Option<&mut ClientEnd> {
        self.ends.get_mut(number)?.as_mut()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.poller.is_ready()
    }

    /// Waits until the engine's poller has an event.
    fn await_event(&mut self, shared: &Shared, what: &str) {
        self.poller.wait_until_ready(Some(PATIENCE));
        if !self.poller.is_ready() {
            shared.fail(|| format!("no event at the server: {what}"));
        }
    }
}

impl ClientEnd {
    /// Waits until there is something to read.
    fn await_input(&self, shared: &Shared) {
        let mut descriptors = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience = Timespec::try_from(PATIENCE).expect("it fits");
        if !rustix::event::poll(&mut descriptors, Some(&patience)).is_ok_and(|count| count > 0) {
            shared.fail(|| format!("{} bytes were sent, and {} arrive; no end arrives", self.sent, self.read));
        }
    }
}

impl Network {
    /// The start of a connection arrives: connects its real socket. Returns false if the listener is closed.
    pub(super) fn connect_wire(&mut self, number: usize) -> bool {
        let listener = self.connections[number].listener;
        self.wires.as_mut().is_none_or(|wires| wires.connect(number, listener))
    }

    /// Takes what the engine's poller reports.
    pub(super) fn poll_wires(&mut self, ready: &mut Vec<Readiness>) {
        let Some(wires) = &mut self.wires else { return };
        let first = ready.len();
        // What was awaited, and what the kernel has noticed since.
        for _ in 0..2 {
            wires.poller.wait(Some(Duration::ZERO), ready).expect("the poller works");
        }
        for event in &ready[first..] {
            let Readiness::Connection { slot, .. } = event else { continue };
            let is_it = |connection: &super::Connection| {
                connection.dropped.is_none() && connection.watched.is_some_and(|watched| watched.slot == *slot)
            };
            if let Some(number) = self.connections.iter().position(is_it)
                && let Some(end) = wires.end_mut(number)
            {
                end.awaits_room = false;
            }
        }
    }

    /// The engine has sent `count` bytes of a connection; `is_short`: it has more, for which there was no room.
    pub(super) fn note_sent(&mut self, number: usize, count: usize, is_short: bool) {
        if let Some(end) = self.wires.as_mut().and_then(|wires| wires.end_mut(number)) {
            end.sent += count as u64;
            end.awaits_room = is_short;
        }
        self.carry_to_client(number);
    }

    /// The engine has ended its output.
    pub(super) fn note_end(&mut self, number: usize) {
        if let Some(end) = self.wires.as_mut().and_then(|wires| wires.end_mut(number)) {
            end.expects_end = true;
        }
    }

    /// Writes what has arrived at the server to the real socket, and then the end or the reset.
    pub(super) fn carry_to_server(&mut self, number: usize) {
        let now = self.shared.now();
        let shared = std::rc::Rc::clone(&self.shared);
        let Some(wires) = &mut self.wires else { return };
        let connection = &mut self.connections[number];
        let Some(end) = wires.ends.get_mut(number).and_then(Option::as_mut) else { return };
        let is_heard = connection.dropped.is_none() && connection.watched.is_some() && !connection.is_cut;
        if connection.reset_of_server.here().is_some() {
            sockopt::set_socket_linger(&end.socket, Some(Duration::ZERO)).ok();
            // Where both sides had ended already there is nothing to report.
            let is_over = end.is_shut || end.is_ended || end.expects_end;
            wires.ends[number] = None;
            if is_heard && !is_over {
                wires.await_event(&shared, "the client has reset its connection");
            }
            return;
        }
        // What the kernel has and the engine has not read yet stays in the pipe until the engine reads it.
        let pipe = &mut connection.to_server;
        let in_kernel =
            if connection.dropped.is_some() { 0 } else { usize::try_from(end.written - pipe.taken).unwrap_or(0) };
        let bytes = &pipe.arrived[pipe.read + in_kernel.min(pipe.unread())..];
        let mut written = 0;
        let mut is_reset = false;
        while written < bytes.len() {
            match rustix::net::send(&end.socket, &bytes[written..], SendFlags::NOSIGNAL) {
                Ok(count) => written += count,
                Err(Errno::WOULDBLOCK) => break,
                Err(error) => {
                    // The kernel reports a reset once: reading reports an end after it.
                    is_reset = error == Errno::CONNRESET;
                    break;
                }
            }
        }
        end.written += written as u64;
        let is_whole = written == bytes.len();
        let mut is_event = written > 0 && in_kernel == 0;
        if connection.dropped.is_some() {
            pipe.discard();
        } else if let (End::Here(_), false) = (pipe.end, end.is_shut) {
            // The end follows the last byte.
            if is_whole {
                end.is_shut = true;
                rustix::net::shutdown(&end.socket, Shutdown::Write).ok();
                is_event = true;
            } else {
                pipe.end = End::At(now);
            }
        }
        if is_reset {
            end.is_ended = true;
            self.reset_peer(number);
        } else if is_event && is_heard {
            wires.await_event(&shared, "the client has sent bytes or its end");
        }
    }

    /// Reads what the engine has sent on a connection, as far as the client's pipe has room, and lets it travel.
    fn carry_to_client(&mut self, number: usize) {
        let shared = std::rc::Rc::clone(&self.shared);
        let Some(wires) = &mut self.wires else { return };
        let connection = &mut self.connections[number];
        let mut buffer = std::mem::take(&mut wires.buffer);
        let mut is_reset = false;
        while let Some(end) = wires.end_mut(number)
            && !end.is_ended
            && !connection.has_vanished
            && connection.to_peer.room() > 0
            && !shared.has_failed()
        {
            let room = connection.to_peer.room().min(READ);
            match rustix::net::recv(&end.socket, &mut buffer[..room], RecvFlags::empty()) {
                Ok((0, _)) => {
                    end.is_ended = true;
                    let at = connection.to_peer.latest.max(shared.now() + connection.latency);
                    connection.to_peer.end = End::At(at);
                    shared.schedule(at, Event::ArriveAtPeer(number));
                }
                Ok((count, _)) => {
                    end.read += count as u64;
                    let (latency, packet) = (connection.latency, connection.packet);
                    for at in post(&shared, &mut connection.to_peer, &buffer[..count], latency, packet) {
                        shared.schedule(at, Event::ArriveAtPeer(number));
                    }
                }
                Err(Errno::WOULDBLOCK) if end.read < end.sent || end.expects_end => end.await_input(&shared),
                Err(Errno::WOULDBLOCK) => break,
                Err(_) => {
                    end.is_ended = true;
                    is_reset = true;
                }
            }
        }
        wires.buffer = buffer;
        if let Some(end) = wires.end_mut(number)
            && end.awaits_room
            && end.read == end.sent
            && !end.is_ended
            && connection.dropped.is_none()
            && connection.watched.is_some_and(|watched| watched.output)
        {
            wires.await_event(&shared, "there is room for output again");
        }
        if is_reset && self.connections[number].reset_of_peer == Reset::None {
            self.reset_peer(number);
        }
    }

    /// Moves the bytes of all connections as far as the kernel takes them. Called after each event.
    pub(crate) fn carry(&mut self) {
        if self.wires.is_none() {
            return;
        }
        for number in 0..self.connections.len() {
            if !self.connections[number].has_vanished && self.connections[number].arrived {
                if self.connections[number].to_server.unread() > 0 {
                    self.connections[number].to_server.deliver(self.shared.now());
                    self.carry_to_server(number);
                }
                self.carry_to_client(number);
            }
        }
    }
}
