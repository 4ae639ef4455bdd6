//! The simulated network: listeners, and connections as pairs of pipes with latency and capacity.
//!
//! The server's side is the engine's [`engine::Net`]. It behaves like Linux, in everything on which a server can rely:
//!
//! * Readiness is edge-triggered, as with epoll. It is reported once, and again after new bytes, an end or a reset, and
//!   when there is room after a short send. Registering reports the current state. Each report describes the state at
//!   the time of the poll. A short receive has taken everything.
//! * Closing a connection resets it if input is unread, or when input arrives later (see RFC 9112, section 9.6). A
//!   reset destroys bytes that the peer has not read yet.
//! * A peer that has vanished sends nothing, not even an end or a reset.
//!
//! With a [`Medium`] other than the simulated one, real sockets carry the bytes that have arrived (see [`wires`]).

mod carrying;
mod pipe;
mod records;
mod server;
#[cfg(test)]
mod tests;
mod transport;
mod wires;

pub(crate) use server::{Listening, Side, number_of};
pub(crate) use wires::Medium;

use crate::clock::{Event, Micros, Shared};
use engine::Readiness;
use pipe::{End, Pipe, PlainCounts, post};
use records::ClientRecords;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use wires::Wires;

/// The state of a reset of one side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reset {
    None,
    /// The other side has sent a reset, which arrives at this time.
    At(Micros),
    /// A reset arrived at this time. The next call fails with it.
    Here(Micros),
    /// A reset arrived at this time, and a call of this side has failed with it.
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
    /// The peer to which the connection belongs.
    peer: usize,
    listener: usize,
    latency: Micros,
    /// The maximum packet size in bytes.
    packet: usize,
    to_server: Pipe,
    to_peer: Pipe,
    // The server's side.
    arrived: bool,
    accepted: Option<Micros>,
    /// The time when the server dropped the connection, and true if it did so with a reset.
    dropped: Option<(Micros, bool)>,
    /// The time since which input had been unread when the server dropped the connection; `None` if no input was
    /// unread.
    unread_since: Option<Micros>,
    watched: Option<Watched>,
    resets_on_drop: bool,
    is_cut: bool,
    has_ended_output: bool,
    /// True if the last send announced more bytes, so that the kernel holds its bytes back.
    holds_back: bool,
    reset_of_server: Reset,
    /// True if the connection is in the list of ready sockets.
    is_listed: bool,
    /// True if a send was short for lack of memory, which becomes available again soon.
    is_short_of_memory: bool,
    /// True if watching or accepting the connection failed.
    was_refused: bool,
    // The peer's side.
    is_closed: bool,
    has_vanished: bool,
    reset_of_peer: Reset,
    /// The client's side of the encryption; `None` if the connection is not encrypted.
    records: Option<Box<ClientRecords>>,
    plain: PlainCounts,
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
    /// The maximum number of open descriptors, and the number of them that [`Net::room`] keeps free.
    pub(crate) descriptors: usize,
    pub(crate) reserve: usize,
    /// One in this many accepts fails; 0 for none.
    pub(crate) failing_accepts: u32,
    /// One in this many watches fails; 0 for none.
    pub(crate) failing_watches: u32,
    /// One in this many sends is short although there is room; 0 for none.
    pub(crate) short_sends: u32,
    /// True if cutting an open connection resets it at once.
    pub(crate) cuts_at_once: bool,
    /// The maximum number of readiness events per poll.
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
    pub(crate) is_encrypted: bool,
}

/// The result of a peer's read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Bytes(Vec<u8>),
    Nothing,
    End,
    Reset,
}

/// The history of a connection, for the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    pub(crate) accepted: Option<Micros>,
    pub(crate) dropped: Option<(Micros, bool)>,
    pub(crate) unread_since: Option<Micros>,
    pub(crate) was_refused: bool,
    pub(crate) last_arrival: Micros,
    pub(crate) last_send: Micros,
    /// The time of the server's send before the last one.
    pub(crate) earlier_send: Micros,
    pub(crate) taken: u64,
    /// The time since which the last sent bytes have not fitted completely.
    pub(crate) full_since: Option<Micros>,
    /// The time when the peer's end or reset arrived at the server.
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
    /// The requests whose exchanges their clients have reset, each with its connection and the offset of the reset's
    /// end in the bytes that the client sends.
    pub(crate) resets: BTreeMap<usize, (usize, u64)>,
    /// The requests whose resets the engine has read, as far as the clients know.
    pub(crate) seen_resets: BTreeSet<usize>,
    /// The number of descriptors that the process has open for other purposes.
    pub(crate) other_files: usize,
    open: usize,
    pub(crate) most_open: usize,
    pub(crate) accepted: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The real sockets; `None` if the engine's sockets are simulated.
    wires: Option<Wires>,
}

impl Network {
    pub(crate) fn new(shared: Rc<Shared>, conditions: Conditions, medium: Medium) -> Self {
        Self {
            wires: (medium != Medium::Simulated).then(|| Wires::new(medium)),
            shared,
            conditions,
            connections: Vec::new(),
            listeners: Vec::new(),
            listed: VecDeque::new(),
            is_woken: false,
            resets: BTreeMap::new(),
            seen_resets: BTreeSet::new(),
            other_files: 0,
            open: 0,
            most_open: 0,
            accepted: 0,
            received: 0,
            sent: 0,
        }
    }

    // ------------------------------------------------------------------------------------------- the peers' side

    /// Begins a connection, which arrives after its latency. Returns its number.
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
            holds_back: false,
            reset_of_server: Reset::None,
            is_listed: false,
            is_short_of_memory: false,
            was_refused: false,
            is_closed: false,
            has_vanished: false,
            reset_of_peer: Reset::None,
            records: route.is_encrypted.then(|| Box::new(ClientRecords::new(number))),
            plain: PlainCounts::default(),
        });
        self.shared.schedule(self.shared.now() + route.latency, Event::ArriveAtServer(number));
        number
    }

    /// Sends as many of the bytes to the server as fit. Returns their number.
    pub(crate) fn peer_sends(&mut self, number: usize, bytes: &[u8]) -> usize {
        self.flush_records(number);
        let shared = Rc::clone(&self.shared);
        let connection = &mut self.connections[number];
        if connection.is_closed || connection.reset_of_peer.here().is_some() {
            return 0;
        }
        let Some(records) = &mut connection.records else { return self.wire_sends(number, bytes) };
        if !records.may_seal() {
            return 0;
        }
        let count = records.seal(bytes, &shared);
        self.flush_records(number);
        count
    }

    /// Moves encrypted bytes of a client into its pipe, as far as there is room, and then the end of the client's side.
    /// Handles the hello of the server, if it has arrived.
    pub(crate) fn flush_records(&mut self, number: usize) {
        let shared = Rc::clone(&self.shared);
        let connection = &mut self.connections[number];
        let Some(records) = &mut connection.records else { return };
        if connection.is_closed || connection.reset_of_peer.here().is_some() {
            return;
        }
        let arrived = &connection.to_peer.arrived[connection.to_peer.read..];
        let hello = records.hello_length(arrived);
        if hello > 0 {
            let bytes = connection.to_peer.take(hello).to_vec();
            records.open(&bytes, &shared);
        }
        let unsent = std::mem::take(&mut records.unsent);
        let count = if unsent.is_empty() { 0 } else { self.wire_sends(number, &unsent) };
        let Some(records) = &mut self.connections[number].records else { return };
        records.unsent = unsent[count..].to_vec();
        if records.is_ending && records.unsent.is_empty() {
            self.wire_ends(number);
        }
    }

    /// Sends bytes on the wire. Returns the number of bytes that fit.
    fn wire_sends(&mut self, number: usize, bytes: &[u8]) -> usize {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        let count = bytes.len().min(connection.to_server.room());
        connection.to_server.wants_room = count < bytes.len();
        if !connection.has_vanished {
            let latency = connection.latency;
            let arrivals = post(&self.shared, &mut connection.to_server, &bytes[..count], latency, connection.packet);
            for at in arrivals {
                self.shared.schedule(at, Event::ArriveAtServer(number));
            }
            connection.to_server.sent_at(now, false);
            self.shared.moved();
        }
        count
    }

    pub(crate) fn peer_reads(&mut self, number: usize, most: usize) -> Got {
        let shared = Rc::clone(&self.shared);
        let connection = &mut self.connections[number];
        if connection.reset_of_peer.here().is_some() {
            return Got::Reset;
        }
        let has_opened = connection.records.as_ref().is_some_and(|records| records.has_opened());
        // The client's TLS library reads ahead at the client's pace, so that a long record does not look like a pause
        // to the server.
        let is_more = !has_opened || connection.to_peer.unread() > 0;
        let got = if is_more { self.wire_reads(number, most) } else { Got::Bytes(Vec::new()) };
        let Some(records) = &mut self.connections[number].records else { return got };
        match got {
            Got::Bytes(bytes) => {
                records.open(&bytes, &shared);
                Got::Bytes(records.take(most))
            }
            // An end without a close record is a cut: the client cannot know whether it has received everything.
            Got::End if !records.has_ended => Got::Reset,
            got => got,
        }
    }

    /// Reads bytes from the wire.
    fn wire_reads(&mut self, number: usize, most: usize) -> Got {
        let connection = &mut self.connections[number];
        if connection.to_peer.unread() > 0 {
            let bytes = connection.to_peer.take(most).to_vec();
            self.shared.moved();
            let pipe = &mut connection.to_peer;
            // The sender learns of free space once there is a useful amount.
            if pipe.wants_room && pipe.room() >= pipe.capacity.div_ceil(3) && !connection.has_vanished {
                pipe.wants_room = false;
                self.shared.schedule(self.shared.now() + connection.latency, Event::RoomAtServer(number));
            }
            return Got::Bytes(bytes);
        }
        if connection.to_peer.is_ended() { Got::End } else { Got::Nothing }
    }

    /// Returns true if a read by the peer would return bytes, an end or a reset.
    pub(crate) fn peer_is_ready(&self, number: usize) -> bool {
        let connection = &self.connections[number];
        let has_opened = connection.records.as_ref().is_some_and(|records| records.has_opened());
        let has_bytes = has_opened || connection.to_peer.unread() > 0;
        connection.reset_of_peer.here().is_some() || has_bytes || connection.to_peer.is_ended()
    }

    /// Ends the peer's output.
    pub(crate) fn peer_ends(&mut self, number: usize) {
        match &mut self.connections[number].records {
            Some(records) => {
                records.end();
                self.flush_records(number);
            }
            None => self.wire_ends(number),
        }
    }

    fn wire_ends(&mut self, number: usize) {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        if connection.has_vanished || connection.to_server.end != End::Open {
            return;
        }
        let at = connection.to_server.latest.max(now + connection.latency);
        connection.to_server.end = End::At(at);
        self.shared.schedule(at, Event::ArriveAtServer(number));
    }

    /// Closes the peer's socket: with an end, or with a reset if it has unread input.
    pub(crate) fn peer_closes(&mut self, number: usize) {
        if self.connections[number].to_peer.unread() > 0 {
            return self.peer_resets(number);
        }
        self.peer_ends(number);
        // Encrypted bytes for which there is no room are lost.
        if self.connections[number].records.is_some() {
            self.wire_ends(number);
        }
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

    /// Makes the peer vanish without a message.
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

    /// Delivers everything that has arrived at the server by now.
    pub(crate) fn arrive_at_server(&mut self, number: usize) {
        let now = self.shared.now();
        let connection = &mut self.connections[number];
        if connection.has_vanished && connection.arrived {
            return;
        }
        if !connection.arrived {
            connection.arrived = true;
            let listener = connection.listener;
            if !self.listeners[listener].is_open || !self.connect_wire(number) {
                self.connections[number].was_refused = true;
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
        self.shared.moved();
        if self.wires.is_some() {
            return self.carry_to_server(number);
        }
        let connection = &mut self.connections[number];
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

    /// Delivers everything that has arrived at a peer by now: bytes, an end, a reset. Returns the peer if it has to
    /// act.
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

    /// Returns the peer of a connection, which can now send again.
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
        let is_watched = self.wires.is_none() && connection.watched.is_some();
        if is_watched && !std::mem::replace(&mut connection.is_listed, true) {
            self.listed.push_back(ReadyEntry::Connection(number));
        }
    }

    fn list_listener(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        let is_watched = self.wires.is_none() && listener.is_watched;
        if is_watched && !std::mem::replace(&mut listener.is_listed, true) {
            self.listed.push_back(ReadyEntry::Listener(index));
        }
    }

    /// Returns the number of connections that wait to be accepted.
    pub(crate) fn awaiting(&self) -> usize {
        self.listeners.iter().filter(|listener| listener.is_open).map(|listener| listener.backlog.len()).sum()
    }

    /// Ends the wait for readiness.
    pub(crate) fn wake(&mut self) {
        self.is_woken = true;
    }

    /// Returns true if the wait for readiness was ended, and no thread has noticed that yet.
    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// Returns true if a poll would report an event.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_woken || !self.listed.is_empty() || self.wires.as_ref().is_some_and(Wires::is_ready)
    }

    /// Reports the sockets that became ready, once each. A poll reports only some of them, in random order.
    pub(crate) fn poll(&mut self, ready: &mut Vec<Readiness>) {
        if std::mem::take(&mut self.is_woken) {
            ready.push(Readiness::Woken);
        }
        self.poll_wires(ready);
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

    /// Returns the time when the peer's end or reset arrived at the server; `None` if neither has.
    pub(crate) fn left_at(&self, number: usize) -> Option<Micros> {
        let connection = &self.connections[number];
        let ended = match connection.to_server.end {
            End::Here(at) => Some(at),
            End::Open | End::At(_) => None,
        };
        [ended, connection.reset_of_server.here()].into_iter().flatten().min()
    }

    /// Returns true if the server can know that the peer has left, or has itself cut the connection.
    pub(crate) fn has_left_or_was_cut(&self, number: usize) -> bool {
        self.connections[number].is_cut || self.left_at(number).is_some()
    }

    /// Returns true if the server has received the client's reset of a request's exchange, after the first `before`
    /// bytes of the connection.
    pub(crate) fn has_received_reset(&self, id: usize, before: u64) -> bool {
        self.resets.get(&id).is_some_and(|&(number, end)| before < end && self.taken(number) >= end)
    }

    /// Returns the number of protocol bytes that the server has sent on a connection.
    pub(crate) fn sent_on(&self, number: usize) -> u64 {
        let connection = &self.connections[number];
        if connection.records.is_some() { connection.plain.sent } else { connection.to_peer.sent }
    }

    /// Returns the number of protocol bytes that the server has received on a connection.
    pub(crate) fn taken(&self, number: usize) -> u64 {
        let connection = &self.connections[number];
        if connection.records.is_some() { connection.plain.taken } else { connection.to_server.taken }
    }

    pub(crate) fn history(&self, number: usize) -> History {
        let connection = &self.connections[number];
        let (last_send, earlier_send) = if connection.records.is_some() {
            (connection.plain.last_send, connection.plain.earlier_send)
        } else {
            (connection.to_peer.last_send, connection.to_peer.earlier_send)
        };
        History {
            accepted: connection.accepted,
            dropped: connection.dropped,
            unread_since: connection.unread_since,
            was_refused: connection.was_refused,
            last_arrival: connection.to_server.last_arrival,
            last_send,
            earlier_send,
            taken: self.taken(number),
            full_since: connection.to_peer.full_since,
            left_at: self.left_at(number),
        }
    }

    /// Returns the number of connections that clients have begun. They are numbered from 0.
    pub(crate) fn connected(&self) -> usize {
        self.connections.len()
    }

    /// Returns an open connection whose last bytes the kernel holds back for further bytes that the server does not send.
    /// If the server waits for room, the kernel has more than one packet, and sends it.
    pub(crate) fn held_back(&self) -> Option<usize> {
        self.connections.iter().position(|it| {
            let is_over = it.dropped.is_some() || it.reset_of_server.here().is_some();
            it.holds_back && !is_over && !it.watched.is_some_and(|watched| watched.output)
        })
    }

    /// Returns the number of connections that the server has open.
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
