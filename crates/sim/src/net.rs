//! The network: listeners, and connections as pairs of pipes with latency and capacity.
//!
//! The server's side is the engine's [`engine::Net`]. It behaves as Linux does, as far as a server can rely on it:
//!
//! * Readiness is edge-triggered, as with epoll. It is reported once, and again with new bytes, an end or a reset, and
//!   with free space after a send was short. Registering reports the current state. Each report describes the state at
//!   the time of the poll. A short receive has taken everything.
//! * Closing a connection resets it if input is unread, or when input arrives later (see RFC 9112, section 9.6). A
//!   reset destroys what the peer has not read yet.
//! * A peer that vanished sends nothing, so nothing is lost and nothing arrives.

use crate::clock::{Event, Micros, Shared};
use engine::{Accepted, Local, Moved, Net, Readiness, Socket, Tcp};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// The application sees the number of a connection as its peer's address.
const FIRST_PORT: u16 = 1024;

/// One direction of a connection.
#[derive(Debug)]
struct Pipe {
    /// Bytes under way, with the time of arrival; never out of order.
    under_way: VecDeque<(Micros, Vec<u8>)>,
    under_way_bytes: usize,
    /// Arrived bytes; those from `read` on are unread.
    arrived: Vec<u8>,
    read: usize,
    /// Capacity in bytes, for bytes under way and unread ones together.
    capacity: usize,
    latest: Micros,
    end: End,
    /// Whether the last send was short.
    wants_room: bool,
    /// Total bytes that were sent, that have arrived, and that were read.
    sent: u64,
    taken: u64,
    last_arrival: Micros,
    last_send: Micros,
    /// Since when the sender's bytes do not fit completely.
    full_since: Option<Micros>,
}

/// The end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Under way, behind all bytes.
    At(Micros),
    Here(Micros),
}

impl Pipe {
    fn new(capacity: usize) -> Self {
        Self {
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            arrived: Vec::new(),
            read: 0,
            capacity,
            latest: 0,
            end: End::Open,
            wants_room: false,
            sent: 0,
            taken: 0,
            last_arrival: 0,
            last_send: 0,
            full_since: None,
        }
    }

    fn unread(&self) -> usize {
        self.arrived.len() - self.read
    }

    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.under_way_bytes + self.unread())
    }

    /// Delivers what has arrived by now; whether there was anything.
    fn deliver(&mut self, now: Micros) -> bool {
        let mut any = false;
        while let Some((at, _)) = self.under_way.front()
            && *at <= now
        {
            let Some((_, bytes)) = self.under_way.pop_front() else { break };
            self.under_way_bytes -= bytes.len();
            self.arrived.drain(..std::mem::take(&mut self.read));
            self.arrived.extend_from_slice(&bytes);
            self.last_arrival = now;
            any = true;
        }
        if let End::At(at) = self.end
            && at <= now
            && self.under_way.is_empty()
        {
            self.end = End::Here(now);
            any = true;
        }
        any
    }

    fn take(&mut self, most: usize) -> &[u8] {
        let count = most.min(self.unread());
        let from = self.read;
        self.read += count;
        self.taken += count as u64;
        &self.arrived[from..self.read]
    }

    fn is_ended(&self) -> bool {
        matches!(self.end, End::Here(_))
    }

    /// Loses what has not arrived.
    fn lose(&mut self) {
        self.under_way.clear();
        self.under_way_bytes = 0;
    }

    fn discard(&mut self) {
        self.lose();
        self.arrived.clear();
        self.read = 0;
    }
}

/// The reset of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reset {
    None,
    /// Sent by the other side; arrives at this time.
    At(Micros),
    /// Arrived; the next call fails with it.
    Here(Micros),
    /// Reported to this side.
    Reported(Micros),
}

impl Reset {
    fn here(self) -> Option<Micros> {
        match self {
            Reset::Here(at) | Reset::Reported(at) => Some(at),
            Reset::None | Reset::At(_) => None,
        }
    }
}

#[derive(Debug)]
struct Connection {
    /// The peer that it belongs to.
    peer: usize,
    listener: usize,
    latency: Micros,
    /// Maximum packet size in bytes.
    packet: usize,
    to_server: Pipe,
    to_peer: Pipe,
    // The server's side.
    arrived: bool,
    accepted: Option<Micros>,
    /// When the server dropped the connection, and whether with a reset.
    dropped: Option<(Micros, bool)>,
    /// Since when input was unread when the server dropped the connection.
    unread_since: Option<Micros>,
    watched: Option<Watched>,
    resets_on_drop: bool,
    is_cut: bool,
    has_ended_output: bool,
    reset_of_server: Reset,
    /// Whether it is in the list of ready sockets.
    is_listed: bool,
    /// A send was short for lack of memory, which is available again soon.
    is_short_of_memory: bool,
    /// Watching or accepting it failed.
    was_refused: bool,
    // The peer's side.
    is_closed: bool,
    has_vanished: bool,
    reset_of_peer: Reset,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    slot: usize,
    output: bool,
}

#[derive(Debug)]
struct Listener {
    backlog: VecDeque<usize>,
    is_open: bool,
    is_watched: bool,
    is_listed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadyEntry {
    Listener(usize),
    Connection(usize),
}

/// Disturbances of the server's system calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// Maximum number of open descriptors, and how many of them [`Net::room`] keeps free.
    pub(crate) descriptors: usize,
    pub(crate) reserve: usize,
    /// One in this many accepts fails; 0: none.
    pub(crate) failing_accepts: u32,
    /// One in this many watches fails; 0: none.
    pub(crate) failing_watches: u32,
    /// One in this many sends is short although there is space; 0: none.
    pub(crate) short_sends: u32,
    /// Whether an open connection can be reset.
    pub(crate) cuts_at_once: bool,
    /// Maximum number of readiness reports per poll.
    pub(crate) events: usize,
}

/// Properties of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) peer: usize,
    pub(crate) listener: usize,
    pub(crate) latency: Micros,
    pub(crate) packet: usize,
    pub(crate) capacity: usize,
}

/// What a peer gets when it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Bytes(Vec<u8>),
    Nothing,
    End,
    Reset,
}

/// What is known of a connection at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    pub(crate) accepted: Option<Micros>,
    pub(crate) dropped: Option<(Micros, bool)>,
    pub(crate) unread_since: Option<Micros>,
    pub(crate) was_refused: bool,
    pub(crate) last_arrival: Micros,
    pub(crate) last_send: Micros,
    pub(crate) taken: u64,
    /// Since when the last bytes sent did not fit.
    pub(crate) full_since: Option<Micros>,
    /// When the peer's end or reset arrived at the server.
    pub(crate) left_at: Option<Micros>,
}

#[derive(Debug)]
pub(crate) struct Network {
    shared: Rc<Shared>,
    conditions: Conditions,
    connections: Vec<Connection>,
    listeners: Vec<Listener>,
    listed: VecDeque<ReadyEntry>,
    is_woken: bool,
    /// Descriptors that the process has open for other purposes.
    pub(crate) other_files: usize,
    open: usize,
    pub(crate) most_open: usize,
    pub(crate) accepted: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl Network {
    pub(crate) fn new(shared: Rc<Shared>, conditions: Conditions) -> Self {
        Self {
            shared,
            conditions,
            connections: Vec::new(),
            listeners: Vec::new(),
            listed: VecDeque::new(),
            is_woken: false,
            other_files: 0,
            open: 0,
            most_open: 0,
            accepted: 0,
            received: 0,
            sent: 0,
        }
    }

    // ------------------------------------------------------------------------------------------- the peers' side

    /// Begins a connection, which arrives after its latency.
    pub(crate) fn connect(&mut self, route: Route) -> usize {
        let number = self.connections.len();
        self.connections.push(Connection {
            peer: route.peer,
            listener: route.listener,
            latency: route.latency,
            packet: route.packet,
            to_server: Pipe::new(route.capacity),
            to_peer: Pipe::new(route.capacity),
            arrived: false,
            accepted: None,
            dropped: None,
            unread_since: None,
            watched: None,
            resets_on_drop: false,
            is_cut: false,
            has_ended_output: false,
            reset_of_server: Reset::None,
            is_listed: false,
            is_short_of_memory: false,
            was_refused: false,
            is_closed: false,
            has_vanished: false,
            reset_of_peer: Reset::None,
        });
        self.shared.schedule(self.shared.now() + route.latency, Event::ArriveAtServer(number));
        number
    }

    /// Sends bytes to the server, as many as fit; returns their number.
    pub(crate) fn peer_sends(&mut self, number: usize, bytes: &[u8]) -> usize {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        if connection.is_closed || connection.reset_of_peer.here().is_some() {
            return 0;
        }
        let count = bytes.len().min(connection.to_server.room());
        connection.to_server.wants_room = count < bytes.len();
        if !connection.has_vanished {
            let latency = connection.latency;
            let arrivals = post(&self.shared, &mut connection.to_server, &bytes[..count], latency, connection.packet);
            for at in arrivals {
                self.shared.schedule(at, Event::ArriveAtServer(number));
            }
            connection.to_server.last_send = now;
            self.shared.moved();
        }
        count
    }

    pub(crate) fn peer_reads(&mut self, number: usize, most: usize) -> Got {
        let connection = &mut self.connections[number];
        if connection.reset_of_peer.here().is_some() {
            return Got::Reset;
        }
        if connection.to_peer.unread() > 0 {
            let bytes = connection.to_peer.take(most).to_vec();
            self.shared.moved();
            let pipe = &mut connection.to_peer;
            // The sender is notified of free space once there is a useful amount.
            if pipe.wants_room && pipe.room() >= pipe.capacity.div_ceil(3) && !connection.has_vanished {
                pipe.wants_room = false;
                self.shared.schedule(self.shared.now() + connection.latency, Event::RoomAtServer(number));
            }
            return Got::Bytes(bytes);
        }
        if connection.to_peer.is_ended() { Got::End } else { Got::Nothing }
    }

    /// Whether a read by the peer would return bytes, an end or a reset.
    pub(crate) fn peer_is_ready(&self, number: usize) -> bool {
        let connection = &self.connections[number];
        connection.reset_of_peer.here().is_some() || connection.to_peer.unread() > 0 || connection.to_peer.is_ended()
    }

    /// Closes the peer's sending side.
    pub(crate) fn peer_ends(&mut self, number: usize) {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        if connection.has_vanished || connection.to_server.end != End::Open {
            return;
        }
        let at = connection.to_server.latest.max(now + connection.latency);
        connection.to_server.end = End::At(at);
        self.shared.schedule(at, Event::ArriveAtServer(number));
    }

    /// Closes the peer's socket: an end, or a reset if it has unread input.
    pub(crate) fn peer_closes(&mut self, number: usize) {
        if self.connections[number].to_peer.unread() > 0 {
            return self.peer_resets(number);
        }
        self.peer_ends(number);
        self.connections[number].is_closed = true;
    }

    pub(crate) fn peer_resets(&mut self, number: usize) {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        connection.is_closed = true;
        if connection.has_vanished || connection.reset_of_server != Reset::None {
            return;
        }
        connection.to_server.lose();
        connection.reset_of_server = Reset::At(now + connection.latency);
        self.shared.schedule(now + connection.latency, Event::ArriveAtServer(number));
    }

    /// The peer vanishes without a message.
    pub(crate) fn peer_vanishes(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        connection.has_vanished = true;
        connection.to_server.lose();
        if !connection.to_server.is_ended() {
            connection.to_server.end = End::Open;
        }
        if let Reset::At(_) = connection.reset_of_server {
            connection.reset_of_server = Reset::None;
        }
    }

    // ---------------------------------------------------------------------------------------------------- events

    /// Delivers what arrives at the server.
    pub(crate) fn arrive_at_server(&mut self, number: usize) {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        if connection.has_vanished && connection.arrived {
            return;
        }
        if !connection.arrived {
            connection.arrived = true;
            let listener = connection.listener;
            if !self.listeners[listener].is_open {
                connection.was_refused = true;
                return self.reset_peer(number);
            }
            self.listeners[listener].backlog.push_back(number);
            self.list_listener(listener);
        }
        let connection = &mut self.connections[number];
        let mut any = connection.to_server.deliver(now);
        if let Reset::At(at) = connection.reset_of_server
            && at <= now
        {
            connection.reset_of_server = Reset::Here(now);
            connection.to_peer.lose();
            any = true;
        }
        if !any {
            return;
        }
        if connection.dropped.is_some() {
            // The listener is closed.
            let has_data = connection.to_server.unread() > 0;
            connection.to_server.discard();
            if has_data && connection.reset_of_server.here().is_none() {
                self.reset_peer(number);
            }
            return;
        }
        self.shared.trace(|| {
            let connection = &self.connections[number];
            format!(
                "c{number} at the server: {} unread{}{}",
                connection.to_server.unread(),
                if connection.to_server.is_ended() { ", end" } else { "" },
                if connection.reset_of_server.here().is_some() { ", reset" } else { "" }
            )
        });
        self.list(number);
    }

    /// Delivers what arrives at a peer: bytes, an end, a reset. Returns the peer that has to act.
    pub(crate) fn arrive_at_peer(&mut self, number: usize) -> Option<usize> {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        if connection.has_vanished {
            return None;
        }
        let mut any = connection.to_peer.deliver(now);
        if let Reset::At(at) = connection.reset_of_peer
            && at <= now
        {
            connection.reset_of_peer = Reset::Here(now);
            // Unread bytes are lost.
            connection.to_peer.discard();
            any = true;
        }
        if connection.is_closed {
            if connection.to_peer.unread() > 0 {
                connection.to_peer.discard();
                if connection.reset_of_server == Reset::None {
                    connection.reset_of_server = Reset::At(now + connection.latency);
                    self.shared.schedule(now + connection.latency, Event::ArriveAtServer(number));
                }
            }
            return None;
        }
        any.then_some(connection.peer)
    }

    pub(crate) fn room_at_server(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        connection.is_short_of_memory = false;
        if connection.dropped.is_none() && connection.to_peer.full_since.is_some() {
            self.list(number);
        }
    }

    /// Returns the peer that can send again.
    pub(crate) fn room_at_peer(&self, number: usize) -> usize {
        self.connections[number].peer
    }

    fn reset_peer(&mut self, number: usize) {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        if connection.reset_of_peer == Reset::None && !connection.has_vanished {
            connection.to_peer.lose();
            connection.reset_of_peer = Reset::At(now + connection.latency);
            self.shared.schedule(now + connection.latency, Event::ArriveAtPeer(number));
        }
    }

    fn list(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        if connection.watched.is_some() && !std::mem::replace(&mut connection.is_listed, true) {
            self.listed.push_back(ReadyEntry::Connection(number));
        }
    }

    fn list_listener(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        if listener.is_watched && !std::mem::replace(&mut listener.is_listed, true) {
            self.listed.push_back(ReadyEntry::Listener(index));
        }
    }

    /// Connections that wait to be accepted.
    pub(crate) fn awaiting(&self) -> usize {
        self.listeners.iter().filter(|listener| listener.is_open).map(|listener| listener.backlog.len()).sum()
    }

    /// Ends the wait for readiness.
    pub(crate) fn wake(&mut self) {
        self.is_woken = true;
    }

    /// Whether a poll would report something.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_woken || !self.listed.is_empty()
    }

    /// Reports what became ready, once each, a part of it at a time and in random order.
    pub(crate) fn poll(&mut self, ready: &mut Vec<Readiness>) {
        if std::mem::take(&mut self.is_woken) {
            ready.push(Readiness::Woken);
        }
        let mut left = self.conditions.events;
        while left > 0
            && let Some(listed) = self.listed.pop_front()
        {
            match listed {
                ReadyEntry::Listener(index) => {
                    let listener = &mut self.listeners[index];
                    listener.is_listed = false;
                    if listener.is_open && !listener.backlog.is_empty() {
                        ready.push(Readiness::Listener(index));
                    }
                }
                ReadyEntry::Connection(number) => {
                    let connection = &mut self.connections[number];
                    connection.is_listed = false;
                    let Some(watched) = connection.watched.filter(|_| connection.dropped.is_none()) else { continue };
                    let has_failed = connection.reset_of_server.here().is_some() || connection.is_cut;
                    let read_closed = has_failed || connection.to_server.is_ended();
                    let readable = read_closed || connection.to_server.unread() > 0;
                    let writable = watched.output && (has_failed || connection.to_peer.room() > 0);
                    if readable || writable {
                        self.shared.trace(|| format!("c{number} is ready: {readable} {read_closed} {writable}"));
                        ready.push(Readiness::Connection { slot: watched.slot, readable, read_closed });
                    }
                }
            }
            left -= 1;
        }
    }

    // ----------------------------------------------------------------------------------------------------- state

    /// When the peer's end or reset arrived at the server, if it has.
    pub(crate) fn left_at(&self, number: usize) -> Option<Micros> {
        let connection = &self.connections[number];
        let ended = match connection.to_server.end {
            End::Here(at) => Some(at),
            End::Open | End::At(_) => None,
        };
        [ended, connection.reset_of_server.here()].into_iter().flatten().min()
    }

    /// Whether the peer has left, as far as the server can know, or the server has cut the connection itself.
    pub(crate) fn has_left_or_was_cut(&self, number: usize) -> bool {
        self.connections[number].is_cut || self.left_at(number).is_some()
    }

    /// Bytes that the server has sent on a connection.
    pub(crate) fn sent_on(&self, number: usize) -> u64 {
        self.connections[number].to_peer.sent
    }

    /// Bytes that the server has received on a connection.
    pub(crate) fn taken(&self, number: usize) -> u64 {
        self.connections[number].to_server.taken
    }

    pub(crate) fn history(&self, number: usize) -> History {
        let connection = &self.connections[number];
        History {
            accepted: connection.accepted,
            dropped: connection.dropped,
            unread_since: connection.unread_since,
            was_refused: connection.was_refused,
            last_arrival: connection.to_server.last_arrival,
            last_send: connection.to_peer.last_send,
            taken: connection.to_server.taken,
            full_since: connection.to_peer.full_since,
            left_at: self.left_at(number),
        }
    }

    /// Connections that the server has open.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    fn has_descriptor(&self) -> bool {
        self.open + self.other_files < self.conditions.descriptors
    }

    fn failed(&self, odds: u32) -> bool {
        odds > 0 && self.shared.one_in(odds)
    }
}

/// Sends bytes in packets; returns when each arrives.
fn post(shared: &Shared, pipe: &mut Pipe, bytes: &[u8], latency: Micros, packet: usize) -> Vec<Micros> {
    let mut arrivals = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = if packet >= rest.len() { rest.len() } else { 1 + shared.index(packet) };
        // Packets have some jitter and never overtake each other.
        let at = pipe.latest.max(shared.now() + latency + shared.below(latency / 4 + 1));
        pipe.latest = at;
        pipe.under_way.push_back((at, rest[..count].to_vec()));
        pipe.under_way_bytes += count;
        if arrivals.last() != Some(&at) {
            arrivals.push(at);
        }
        rest = &rest[count..];
    }
    pipe.sent += bytes.len() as u64;
    arrivals
}

// ------------------------------------------------------------------------------------------------ the server's side

/// The network as the engine sees it.
#[derive(Debug)]
pub(crate) struct Side(pub(crate) Rc<RefCell<Network>>);

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listening {
    network: Rc<RefCell<Network>>,
    index: usize,
}

/// A connection's socket.
#[derive(Debug)]
pub(crate) struct SimSocket {
    network: Rc<RefCell<Network>>,
    number: usize,
}

impl Listening {
    pub(crate) fn new(network: &Rc<RefCell<Network>>) -> Self {
        let mut inner = network.borrow_mut();
        inner.listeners.push(Listener { backlog: VecDeque::new(), is_open: true, is_watched: false, is_listed: false });
        Self { network: Rc::clone(network), index: inner.listeners.len() - 1 }
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
            network.reset_peer(number);
        }
    }
}

impl Net for Side {
    type Listener = Listening;
    type Transport = Tcp<SimSocket>;

    fn listen(&mut self, listener: &Listening, index: usize) -> io::Result<Local> {
        let mut network = self.0.borrow_mut();
        assert_eq!(index, listener.index, "listeners are watched in order");
        network.listeners[index].is_watched = true;
        if !network.listeners[index].backlog.is_empty() {
            network.list_listener(index);
        }
        Ok(Local::Unix)
    }

    fn relisten(&mut self, listener: &Listening, index: usize, _takes_turns: bool) -> io::Result<()> {
        let mut network = self.0.borrow_mut();
        network.listeners[index].is_watched = false;
        // This is rare, so where watching can fail, it fails half of the time.
        if network.conditions.failing_watches > 0 && network.shared.one_in(2) {
            network.shared.trace(|| format!("listener {index} cannot be watched again"));
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        drop(network);
        self.listen(listener, index).map(drop)
    }

    fn unlisten(&mut self, listener: &Listening) {
        self.0.borrow_mut().listeners[listener.index].is_watched = false;
    }

    fn accept(&mut self, listener: &Listening) -> io::Result<Accepted<Tcp<SimSocket>>> {
        let mut network = self.0.borrow_mut();
        let network = &mut *network;
        if !network.has_descriptor() {
            return Ok(Accepted::Exhausted(io::Error::other("out of descriptors")));
        }
        let Some(number) = network.listeners[listener.index].backlog.pop_front() else { return Ok(Accepted::None) };
        network.shared.moved();
        let has_left = network.connections[number].reset_of_server.here().is_some();
        if (has_left && network.shared.one_in(2)) || network.failed(network.conditions.failing_accepts) {
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
        let socket = SimSocket { network: Rc::clone(&self.0), number };
        Ok(Accepted::Connection(Tcp::new(socket), Some(address_of(number))))
    }

    fn is_awaited(&self, listener: &Listening) -> bool {
        !self.0.borrow().listeners[listener.index].backlog.is_empty()
    }

    fn watch(&mut self, transport: &Tcp<SimSocket>, slot: usize, output: bool, again: bool) -> io::Result<()> {
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

/// The address from which the connection with this number comes.
fn address_of(number: usize) -> SocketAddr {
    let port = FIRST_PORT + u16::try_from(number).expect("a world has fewer connections");
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The number of the connection from this address.
pub(crate) fn number_of(address: SocketAddr) -> usize {
    usize::from(address.port() - FIRST_PORT)
}

impl SimSocket {
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
            // Memory is short for a moment; the engine tries again soon.
            count = shared.index(count);
        }
        let pipe = &mut connection.to_peer;
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
        pipe.last_send = now;
        if !connection.has_vanished {
            for at in arrivals {
                shared.schedule(at, Event::ArriveAtPeer(self.number));
            }
        }
        network.sent += count as u64;
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
            network.received += count as u64;
            shared.moved();
            shared.trace(|| format!("c{} receives {count}", self.number));
            if std::mem::take(&mut connection.to_server.wants_room) {
                // The peer is notified of free space.
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

    fn send(&self, slices: &[IoSlice<'_>], _more: bool) -> io::Result<Moved> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.send_bytes(&bytes, bytes.len())
    }

    fn send_file(&self, file: &File, offset: u64, count: u64) -> io::Result<Moved> {
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
        self.end();
        self.network.borrow_mut().connections[self.number].has_ended_output = true;
    }

    fn reset_on_drop(&self) {
        self.network.borrow_mut().connections[self.number].resets_on_drop = true;
    }

    fn cut(&self) {
        self.reset_on_drop();
        let mut network = self.network.borrow_mut();
        network.connections[self.number].is_cut = true;
        network.shared.trace(|| format!("c{} is cut", self.number));
        if network.conditions.cuts_at_once {
            network.reset_peer(self.number);
        }
        network.list(self.number);
    }

    fn has_peer_left(&self) -> bool {
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
        if !is_reset {
            self.end();
        }
        let mut network = self.network.borrow_mut();
        if is_reset {
            network.reset_peer(self.number);
        }
        let now = network.shared.now();
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

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Conditions = Conditions {
        descriptors: 10,
        reserve: 1,
        failing_accepts: 0,
        failing_watches: 0,
        short_sends: 0,
        cuts_at_once: true,
        events: 256,
    };

    struct Rig {
        shared: Rc<Shared>,
        network: Rc<RefCell<Network>>,
        side: Side,
        listener: Listening,
    }

    impl Rig {
        fn new() -> Self {
            let shared = Shared::new(1, false);
            let network = Rc::new(RefCell::new(Network::new(Rc::clone(&shared), CALM)));
            let listener = Listening::new(&network);
            let mut side = Side(Rc::clone(&network));
            side.listen(&listener, 0).unwrap();
            Self { shared, network, side, listener }
        }

        /// A connection with a capacity of 10 bytes.
        fn connect(&mut self) -> (usize, SimSocket) {
            let route = Route { peer: 0, listener: 0, latency: 5, packet: usize::MAX, capacity: 10 };
            let number = self.network.borrow_mut().connect(route);
            self.settle();
            let Ok(Accepted::Connection(transport, address)) = self.side.accept(&self.listener) else {
                panic!("no connection waits to be accepted");
            };
            assert_eq!(address.map(number_of), Some(number));
            self.side.watch(&transport, 7, true, false).unwrap();
            (number, transport.into_socket())
        }

        /// Delivers everything under way.
        fn settle(&mut self) {
            while let Some(event) = self.shared.advance() {
                let mut network = self.network.borrow_mut();
                match event {
                    Event::ArriveAtServer(number) => network.arrive_at_server(number),
                    Event::ArriveAtPeer(number) => {
                        network.arrive_at_peer(number);
                    }
                    Event::RoomAtServer(number) => network.room_at_server(number),
                    _ => {}
                }
            }
        }

        fn poll(&self) -> Vec<Readiness> {
            let mut ready = Vec::new();
            self.network.borrow_mut().poll(&mut ready);
            ready
        }

        fn peer_sends(&mut self, number: usize, bytes: &[u8]) -> usize {
            let count = self.network.borrow_mut().peer_sends(number, bytes);
            self.settle();
            count
        }

        fn peer_reads(&mut self, number: usize) -> Got {
            let got = self.network.borrow_mut().peer_reads(number, usize::MAX);
            self.settle();
            got
        }
    }

    fn readable(read_closed: bool) -> Readiness {
        Readiness::Connection { slot: 7, readable: true, read_closed }
    }

    #[test]
    fn readiness_is_reported_once_and_again_with_news() {
        let mut rig = Rig::new();
        let (number, socket) = rig.connect();
        rig.poll();
        assert_eq!(rig.poll(), []);
        rig.peer_sends(number, b"ab");
        assert_eq!(rig.poll(), [readable(false)]);
        assert_eq!(rig.poll(), []);
        rig.peer_sends(number, b"c");
        rig.network.borrow_mut().peer_ends(number);
        rig.settle();
        assert_eq!(rig.poll(), [readable(true)]);
        let mut buffer = [0; 10];
        assert_eq!(socket.receive(&mut buffer).unwrap(), Moved::Bytes(3));
        assert_eq!(socket.receive(&mut buffer).unwrap(), Moved::Bytes(0));
        assert_eq!(rig.poll(), []);
        // Watching again reports the current state.
        let socket = Tcp::new(socket);
        rig.side.watch(&socket, 7, true, true).unwrap();
        assert_eq!(rig.poll(), [readable(true)]);
    }

    #[test]
    fn free_space_is_reported_after_a_short_send() {
        let mut rig = Rig::new();
        let (number, socket) = rig.connect();
        rig.poll();
        assert_eq!(socket.send(&[IoSlice::new(&[b'x'; 8])], false).unwrap(), Moved::Bytes(8));
        rig.settle();
        assert!(matches!(rig.peer_reads(number), Got::Bytes(bytes) if bytes.len() == 8));
        assert_eq!(rig.poll(), [], "no send was short");
        assert_eq!(socket.send(&[IoSlice::new(&[b'x'; 15])], false).unwrap(), Moved::Bytes(10));
        assert_eq!(socket.send(&[IoSlice::new(b"x")], false).unwrap(), Moved::WouldBlock);
        rig.settle();
        assert_eq!(rig.poll(), []);
        assert!(matches!(rig.peer_reads(number), Got::Bytes(bytes) if bytes.len() == 10));
        assert_eq!(rig.poll(), [Readiness::Connection { slot: 7, readable: false, read_closed: false }]);
    }

    #[test]
    fn closing_with_unread_input_destroys_what_the_peer_has_not_read() {
        for (sends, unread_at_close) in [(&b"more"[..], true), (b"more", false), (b"", false)] {
            let mut rig = Rig::new();
            let (number, socket) = rig.connect();
            if unread_at_close {
                rig.peer_sends(number, sends);
            }
            socket.send(&[IoSlice::new(b"answer")], false).unwrap();
            rig.settle();
            drop(socket);
            if !unread_at_close {
                rig.peer_sends(number, sends);
            }
            rig.settle();
            if sends.is_empty() {
                assert_eq!(rig.peer_reads(number), Got::Bytes(b"answer".to_vec()));
                assert_eq!(rig.peer_reads(number), Got::End);
            } else {
                assert_eq!(rig.peer_reads(number), Got::Reset);
            }
        }
    }

    #[test]
    fn reset_is_reported_after_received_bytes() {
        let mut rig = Rig::new();
        let (number, socket) = rig.connect();
        rig.peer_sends(number, b"abc");
        rig.network.borrow_mut().peer_resets(number);
        rig.settle();
        assert!(socket.has_peer_left());
        let mut buffer = [0; 10];
        assert_eq!(socket.receive(&mut buffer).unwrap(), Moved::Bytes(3));
        assert_eq!(socket.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(socket.send(&[IoSlice::new(b"x")], false).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn nothing_arrives_from_a_peer_that_vanished() {
        let mut rig = Rig::new();
        let (number, socket) = rig.connect();
        rig.poll();
        rig.network.borrow_mut().peer_sends(number, b"lost");
        rig.network.borrow_mut().peer_vanishes(number);
        assert_eq!(socket.send(&[IoSlice::new(&[b'x'; 12])], false).unwrap(), Moved::Bytes(10));
        rig.settle();
        assert_eq!(rig.poll(), []);
        assert_eq!(socket.receive(&mut [0; 4]).unwrap(), Moved::WouldBlock);
        assert!(!socket.has_peer_left());
    }

    #[test]
    fn cut_resets_a_connection_whose_socket_is_open() {
        let mut rig = Rig::new();
        let (number, socket) = rig.connect();
        socket.send(&[IoSlice::new(b"half")], false).unwrap();
        socket.cut();
        rig.settle();
        assert_eq!(rig.peer_reads(number), Got::Reset);
        assert!(socket.has_peer_left());
    }

    #[test]
    fn accept_fails_without_descriptors() {
        let mut rig = Rig::new();
        rig.network.borrow_mut().other_files = CALM.descriptors;
        assert!(matches!(rig.side.accept(&rig.listener), Ok(Accepted::Exhausted(_))));
        rig.network.borrow_mut().other_files = 0;
        assert!(matches!(rig.side.accept(&rig.listener), Ok(Accepted::None)));
    }
}
