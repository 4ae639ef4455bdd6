//! The server's side of the network: the engine's [`engine::Net`] and its sockets.

use super::pipe::{End, post};
use super::transport::SimTransport;
use super::{Listener, Network, Reset, Watched};
use crate::clock::Event;
use engine::{Accepted, EngineSocket, Local, Moved, Net, Socket};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// The port of connection number 0: the application sees the number of a connection in its peer's address.
const FIRST_PORT: u16 = 1024;

/// The network as the engine sees it.
#[derive(Debug)]
pub(crate) struct Side(pub(crate) Rc<RefCell<Network>>);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listening {
    network: Rc<RefCell<Network>>,
    index: usize,
    /// The real listener; `None` if the medium is simulated.
    socket: Option<EngineSocket>,
}

/// A connection's socket.
#[derive(Debug)]
pub(crate) struct SimSocket {
    network: Rc<RefCell<Network>>,
    number: usize,
    /// The real socket that carries out the engine's calls; `None` if the medium is simulated.
    socket: Option<EngineSocket>,
}

impl Listening {
    pub(crate) fn new(network: &Rc<RefCell<Network>>) -> Self {
        let mut inner = network.borrow_mut();
        inner.listeners.push(Listener { backlog: VecDeque::new(), is_open: true, is_watched: false, is_listed: false });
        let socket = inner.wires.as_mut().map(|wires| wires.open_listener().into());
        Self { network: Rc::clone(network), index: inner.listeners.len() - 1, socket }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut network = self.network.borrow_mut();
        let listener = &mut network.listeners[self.index];
        listener.is_open = false;
        listener.is_watched = false;
        // Connections that were not accepted are reset.
        for number in std::mem::take(&mut listener.backlog) {
            network.connections[number].was_refused = true;
            if self.socket.is_none() {
                network.reset_peer(number);
            }
            network.note_end(number);
        }
    }
}

impl Net for Side {
    type Listener = Listening;
    type Transport = SimTransport<SimSocket>;

    fn listen(&mut self, listener: &Listening, index: usize) -> io::Result<Local> {
        let mut network = self.0.borrow_mut();
        assert_eq!(index, listener.index, "listeners are watched in order");
        network.listeners[index].is_watched = true;
        if let (Some(wires), Some(socket)) = (&mut network.wires, &listener.socket) {
            return wires.os.listen(socket, index);
        }
        if !network.listeners[index].backlog.is_empty() {
            network.list_listener(index);
        }
        Ok(Local::Unix)
    }

    fn relisten(&mut self, listener: &Listening, index: usize, takes_turns: bool) -> io::Result<()> {
        let mut network = self.0.borrow_mut();
        if let (Some(wires), Some(socket)) = (&mut network.wires, &listener.socket) {
            return wires.os.relisten(socket, index, takes_turns);
        }
        network.listeners[index].is_watched = false;
        // This is called rarely, so if watching can fail, it fails half of the time.
        if network.conditions.failing_watches > 0 && network.shared.one_in(2) {
            network.shared.trace(|| format!("listener {index} cannot be watched again"));
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        drop(network);
        self.listen(listener, index).map(drop)
    }

    fn unlisten(&mut self, listener: &Listening) {
        let mut network = self.0.borrow_mut();
        network.listeners[listener.index].is_watched = false;
        if let (Some(wires), Some(socket)) = (&mut network.wires, &listener.socket) {
            wires.os.unlisten(socket);
        }
    }

    fn accept(&mut self, listener: &Listening) -> io::Result<Accepted<SimTransport<SimSocket>>> {
        let mut network = self.0.borrow_mut();
        let network = &mut *network;
        if !network.has_descriptor() {
            return Ok(Accepted::Exhausted(io::Error::other("out of descriptors")));
        }
        let mut socket = None;
        if let (Some(wires), Some(listener)) = (&mut network.wires, &listener.socket) {
            match wires.os.accept(listener)? {
                // The kernel returns connections in the order in which they arrived.
                Accepted::Connection(transport, _) => socket = Some(transport.into_socket()),
                Accepted::None => return Ok(Accepted::None),
                Accepted::Failed(error) | Accepted::Exhausted(error) => {
                    network.shared.fail(|| format!("a connection cannot be accepted: {error}"));
                    return Ok(Accepted::None);
                }
            }
        }
        let Some(number) = network.listeners[listener.index].backlog.pop_front() else { return Ok(Accepted::None) };
        network.shared.moved();
        let has_left = network.connections[number].reset_of_server.here().is_some();
        if (has_left && socket.is_none() && network.shared.one_in(2))
            || network.failed(network.conditions.failing_accepts)
        {
            network.shared.trace(|| format!("c{number} cannot be accepted"));
            network.connections[number].was_refused = true;
            network.reset_peer(number);
            return Ok(Accepted::Failed(io::ErrorKind::ConnectionAborted.into()));
        }
        network.connections[number].accepted = Some(network.shared.now());
        network.accepted += 1;
        network.open += 1;
        network.most_open = network.most_open.max(network.open);
        network.shared.trace(|| format!("c{number} accepted"));
        let socket = SimSocket { network: Rc::clone(&self.0), number, socket };
        let is_encrypted = network.connections[number].records.is_some();
        let transport = SimTransport::new(socket, &self.0, number, is_encrypted);
        Ok(Accepted::Connection(transport, Some(address_of(number))))
    }

    fn is_awaited(&self, listener: &Listening) -> bool {
        let network = self.0.borrow();
        match (&network.wires, &listener.socket) {
            (Some(wires), Some(socket)) => wires.os.is_awaited(socket),
            _ => !network.listeners[listener.index].backlog.is_empty(),
        }
    }

    fn watch(&mut self, transport: &SimTransport<SimSocket>, slot: usize, output: bool, again: bool) -> io::Result<()> {
        let socket = transport.socket();
        let mut network = self.0.borrow_mut();
        let shared = Rc::clone(&network.shared);
        let was_watched = network.connections[socket.number].watched.is_some();
        if was_watched != again {
            shared.fail(|| format!("c{} is watched: {was_watched}, but the engine assumes {again}", socket.number));
        }
        if network.failed(network.conditions.failing_watches) {
            shared.trace(|| format!("c{} cannot be watched", socket.number));
            network.connections[socket.number].was_refused = true;
            return Err(io::Error::other("no memory to watch it"));
        }
        network.connections[socket.number].watched = Some(Watched { slot, output });
        if let (Some(wires), Some(socket)) = (&mut network.wires, &socket.socket) {
            return wires.os.watch_descriptor(socket, slot, output, again);
        }
        // The next poll finds out whether there is anything to report.
        network.list(socket.number);
        Ok(())
    }

    fn room(&self) -> usize {
        let network = self.0.borrow();
        network.conditions.descriptors - network.conditions.reserve
    }

    fn drain_wakes(&mut self) {}
}

/// Returns the client's address of the connection with this number.
fn address_of(number: usize) -> SocketAddr {
    let port = FIRST_PORT + u16::try_from(number).expect("a world has fewer connections");
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Returns the number of the connection from this address.
pub(crate) fn number_of(address: SocketAddr) -> usize {
    usize::from(address.port() - FIRST_PORT)
}

impl SimSocket {
    /// Records the bytes that a real socket has received into `buffer`, and compares them with the bytes that the
    /// client has sent.
    fn note_received(&self, buffer: &[u8], outcome: &io::Result<Moved>) {
        let mut network = self.network.borrow_mut();
        let network = &mut *network;
        let shared = Rc::clone(&network.shared);
        let connection = &mut network.connections[self.number];
        match *outcome {
            Ok(Moved::Bytes(count)) if count > 0 => {
                if connection.to_server.take(count) != &buffer[..count] {
                    shared.fail(|| format!("c{} receives other bytes than its client has sent", self.number));
                }
                network.received += if connection.records.is_some() { 0 } else { count as u64 };
                shared.moved();
                shared.trace(|| format!("c{} receives {count}", self.number));
                if std::mem::take(&mut connection.to_server.wants_room) {
                    shared.schedule(shared.now() + connection.latency, Event::RoomAtPeer(self.number));
                }
            }
            Ok(_) => {}
            Err(_) => shared.moved(),
        }
    }

    /// Records how many of the `whole` bytes a real socket has sent.
    fn note_sent(&self, whole: usize, outcome: &io::Result<Moved>) {
        let mut network = self.network.borrow_mut();
        let network = &mut *network;
        let shared = Rc::clone(&network.shared);
        let now = shared.now();
        let count = match *outcome {
            Ok(Moved::Bytes(count)) => count,
            Ok(Moved::WouldBlock) => 0,
            Err(_) => return,
        };
        let connection = &mut network.connections[self.number];
        let is_encrypted = connection.records.is_some();
        let pipe = &mut connection.to_peer;
        let continues = pipe.full_since.is_some();
        if count < whole {
            pipe.full_since.get_or_insert(now);
        } else {
            pipe.full_since = None;
        }
        if count > 0 {
            pipe.sent_at(now, continues);
            network.sent += if is_encrypted { 0 } else { count as u64 };
            shared.moved();
        }
        shared.trace(|| format!("c{} sends {count} of {whole}", self.number));
        network.note_sent(self.number, count, count < whole);
    }

    fn send_bytes(&self, bytes: &[u8], whole: usize) -> io::Result<Moved> {
        let mut network = self.network.borrow_mut();
        let network = &mut *network;
        let shared = Rc::clone(&network.shared);
        let now = shared.now();
        let is_short = network.failed(network.conditions.short_sends);
        let connection = &mut network.connections[self.number];
        if let Reset::Here(at) = connection.reset_of_server {
            connection.reset_of_server = Reset::Reported(at);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if connection.reset_of_server.here().is_some() || connection.has_ended_output || connection.is_cut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut count = bytes.len().min(connection.to_peer.room());
        if is_short && count > 0 {
            // Memory is short for a moment; the engine retries soon.
            count = shared.index(count);
        }
        let pipe = &mut connection.to_peer;
        let continues = pipe.full_since.is_some();
        if count < whole {
            pipe.full_since.get_or_insert(now);
            if is_short {
                if !std::mem::replace(&mut connection.is_short_of_memory, true) {
                    shared.schedule(now + 1 + shared.below(3_000), Event::RoomAtServer(self.number));
                }
            } else {
                pipe.wants_room = true;
            }
        } else {
            pipe.full_since = None;
        }
        if count == 0 {
            return Ok(Moved::WouldBlock);
        }
        let arrivals = post(&shared, pipe, &bytes[..count], connection.latency, connection.packet);
        pipe.sent_at(now, continues);
        if !connection.has_vanished {
            for at in arrivals {
                shared.schedule(at, Event::ArriveAtPeer(self.number));
            }
        }
        network.sent += if connection.records.is_some() { 0 } else { count as u64 };
        shared.moved();
        shared.trace(|| format!("c{} sends {count} of {whole}", self.number));
        Ok(Moved::Bytes(count))
    }

    fn end(&self) {
        let mut network = self.network.borrow_mut();
        let network = &mut *network;
        let connection = &mut network.connections[self.number];
        if connection.to_peer.end != End::Open || connection.has_vanished {
            return;
        }
        let at = connection.to_peer.latest.max(network.shared.now() + connection.latency);
        connection.to_peer.end = End::At(at);
        network.shared.schedule(at, Event::ArriveAtPeer(self.number));
    }
}

impl Socket for SimSocket {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Moved> {
        if let Some(socket) = &self.socket {
            let outcome = socket.receive(buffer);
            self.note_received(buffer, &outcome);
            return outcome;
        }
        let mut network = self.network.borrow_mut();
        let network = &mut *network;
        let shared = &network.shared;
        let connection = &mut network.connections[self.number];
        if connection.is_cut {
            return Ok(Moved::Bytes(0));
        }
        if connection.to_server.unread() > 0 {
            let bytes = connection.to_server.take(buffer.len());
            let count = bytes.len();
            buffer[..count].copy_from_slice(bytes);
            network.received += if connection.records.is_some() { 0 } else { count as u64 };
            shared.moved();
            shared.trace(|| format!("c{} receives {count}", self.number));
            if std::mem::take(&mut connection.to_server.wants_room) {
                // Tell the peer that there is room.
                shared.schedule(shared.now() + connection.latency, Event::RoomAtPeer(self.number));
            }
            return Ok(Moved::Bytes(count));
        }
        match connection.reset_of_server {
            Reset::Here(at) => {
                connection.reset_of_server = Reset::Reported(at);
                shared.moved();
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Reset::Reported(_) => return Ok(Moved::Bytes(0)),
            Reset::None | Reset::At(_) => {}
        }
        if connection.to_server.is_ended() { Ok(Moved::Bytes(0)) } else { Ok(Moved::WouldBlock) }
    }

    fn send(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved> {
        self.network.borrow_mut().connections[self.number].holds_back = more;
        if let Some(socket) = &self.socket {
            let outcome = socket.send(slices, more);
            self.note_sent(slices.iter().map(|slice| slice.len()).sum(), &outcome);
            return outcome;
        }
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.send_bytes(&bytes, bytes.len())
    }

    fn send_file(&self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
        self.network.borrow_mut().connections[self.number].holds_back = false;
        if let Some(socket) = &self.socket {
            let outcome = socket.send_file(file, offset, count);
            let there = file.metadata()?.len().saturating_sub(offset).min(count);
            self.note_sent(usize::try_from(there).unwrap_or(usize::MAX), &outcome);
            return outcome;
        }
        let mut bytes = vec![0; usize::try_from(count.min(1 << 20)).unwrap_or(usize::MAX)];
        let mut length = 0;
        while length < bytes.len() {
            match file.read_at(&mut bytes[length..], offset + length as u64)? {
                0 => break,
                read => length += read,
            }
        }
        if length == 0 {
            return Ok(Moved::Bytes(0));
        }
        self.send_bytes(&bytes[..length], length)
    }

    fn end_output(&self) {
        if let Some(socket) = &self.socket {
            socket.end_output();
            self.network.borrow_mut().note_end(self.number);
        } else {
            self.end();
        }
        let mut network = self.network.borrow_mut();
        let connection = &mut network.connections[self.number];
        connection.has_ended_output = true;
        connection.holds_back = false;
    }

    fn reset_on_drop(&self) {
        if let Some(socket) = &self.socket {
            socket.reset_on_drop();
        }
        self.network.borrow_mut().connections[self.number].resets_on_drop = true;
    }

    fn cut(&self) {
        self.reset_on_drop();
        let mut network = self.network.borrow_mut();
        network.connections[self.number].is_cut = true;
        network.shared.trace(|| format!("c{} is cut", self.number));
        if let Some(socket) = &self.socket {
            socket.cut();
            if network.conditions.cuts_at_once {
                network.note_end(self.number);
            }
            return;
        }
        if network.conditions.cuts_at_once {
            network.reset_peer(self.number);
        }
        network.list(self.number);
    }

    fn has_peer_left(&self) -> bool {
        if let Some(socket) = &self.socket {
            return socket.has_peer_left();
        }
        self.network.borrow().has_left_or_was_cut(self.number)
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        let is_reset = {
            let network = self.network.borrow();
            let connection = &network.connections[self.number];
            let is_over = connection.reset_of_server.here().is_some();
            !is_over && (connection.resets_on_drop || connection.to_server.unread() > 0)
        };
        if !is_reset && self.socket.is_none() {
            self.end();
        }
        let mut network = self.network.borrow_mut();
        if self.socket.is_some() {
            // The real socket is closed after this function returns.
            network.note_end(self.number);
        } else if is_reset {
            network.reset_peer(self.number);
        }
        let now = network.shared.now();
        let connection = &network.connections[self.number];
        let is_over = connection.resets_on_drop || connection.reset_of_server.here().is_some();
        if connection.holds_back && !is_over {
            // If bytes happened to arrive just before, Linux would discard the bytes that it holds back.
            network.shared.fail(|| format!("c{} is closed while the kernel holds its last bytes back", self.number));
        }
        let connection = &mut network.connections[self.number];
        connection.dropped = Some((now, is_reset));
        connection.unread_since = (connection.to_server.unread() > 0).then_some(connection.to_server.last_arrival);
        connection.watched = None;
        connection.to_server.discard();
        network.open -= 1;
        network.shared.moved();
        network
            .shared
            .trace(|| format!("c{} closed by the server{}", self.number, if is_reset { " with a reset" } else { "" }));
    }
}
