//! Moves datagrams between one UDP socket and the connections of QUIC on it, and fires their timers.

use std::collections::BTreeSet;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use mio::{Events, Interest, Poll, Token};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, Event, ServerConfig,
};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};

/// The side of HTTP/3 above a connection: a server or a client.
pub trait Http {
    /// Handles an event of a connection.
    fn event(&mut self, handle: usize, connection: &mut Connection, event: Event);
    /// Writes what the connection should send now.
    fn fill(&mut self, _handle: usize, _connection: &mut Connection) {}
}

struct Peer {
    connection: Connection,
    /// The entry of this connection in `Driver::timers`.
    timer: Option<Instant>,
    is_ready: bool,
}

/// A socket and its connections.
pub struct Driver {
    socket: mio::net::UdpSocket,
    udp: UdpSocketState,
    poll: Poll,
    events: Events,
    endpoint: Endpoint,
    peers: Vec<Option<Peer>>,
    ready: Vec<usize>,
    timers: BTreeSet<(Instant, usize)>,
    received: Vec<u8>,
    output: Vec<u8>,
    /// The number of datagrams of one system call: 1 without segmentation by the kernel.
    segments: usize,
}

impl Driver {
    pub fn new(address: SocketAddr, server: Option<ServerConfig>, has_gso: bool) -> io::Result<Self> {
        let mut socket = mio::net::UdpSocket::bind(address)?;
        let udp = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Large enough that load on one machine loses nothing.
        udp.set_recv_buffer_size(UdpSockRef::from(&socket), 4 << 20)?;
        udp.set_send_buffer_size(UdpSockRef::from(&socket), 4 << 20)?;
        let poll = Poll::new()?;
        poll.registry().register(&mut socket, Token(0), Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(8),
            endpoint: Endpoint::new(
                Arc::new(EndpointConfig::default()),
                server.map(Arc::new),
                !udp.may_fragment(),
                None,
            ),
            peers: Vec::new(),
            ready: Vec::new(),
            timers: BTreeSet::new(),
            received: vec![0; BATCH_SIZE * udp.gro_segments() * 1500],
            output: Vec::new(),
            segments: if has_gso { udp.max_gso_segments() } else { 1 },
            udp,
            socket,
        })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Begins a connection.
    pub fn connect(&mut self, config: ClientConfig, server: SocketAddr) {
        let (handle, connection) = self.endpoint.connect(Instant::now(), config, server, "localhost").expect("valid");
        self.insert(handle, connection);
    }

    /// Lets each connection fill its output in the next turn.
    pub fn wake_all(&mut self) {
        (0..self.peers.len()).for_each(|handle| self.mark(handle));
    }

    /// Waits for datagrams or a timer, unless something is ready, and handles them.
    pub fn turn(&mut self, http: &mut impl Http) -> io::Result<()> {
        let wait = self.timers.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let wait = if self.ready.is_empty() { wait } else { Some(std::time::Duration::ZERO) };
        match self.poll.poll(&mut self.events, wait) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = Instant::now();
        self.receive(now)?;
        while let Some(&(at, handle)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            let peer = self.peers[handle].as_mut().expect("timers end with their connection");
            peer.timer = None;
            peer.connection.handle_timeout(now);
            self.mark(handle);
        }
        for handle in std::mem::take(&mut self.ready) {
            self.drive(handle, now, http);
        }
        Ok(())
    }

    fn insert(&mut self, handle: ConnectionHandle, connection: Connection) {
        if self.peers.len() <= handle.0 {
            self.peers.resize_with(handle.0 + 1, || None);
        }
        self.peers[handle.0] = Some(Peer { connection, timer: None, is_ready: false });
        self.mark(handle.0);
    }

    fn mark(&mut self, handle: usize) {
        if let Some(peer) = self.peers[handle].as_mut().filter(|peer| !peer.is_ready) {
            peer.is_ready = true;
            self.ready.push(handle);
        }
    }

    /// Reads all datagrams that have arrived.
    fn receive(&mut self, now: Instant) -> io::Result<()> {
        let mut received = std::mem::take(&mut self.received);
        let size = received.len() / BATCH_SIZE;
        loop {
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let mut chunks = received.chunks_exact_mut(size);
            let mut buffers: [IoSliceMut; BATCH_SIZE] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("BATCH_SIZE of them")));
            let count = match self.udp.recv(UdpSockRef::from(&self.socket), &mut buffers, &mut metas) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            for (meta, buffer) in metas.iter().zip(&buffers).take(count) {
                let mut data = BytesMut::from(&buffer[..meta.len]);
                while !data.is_empty() {
                    let datagram = data.split_to(meta.stride.min(data.len()));
                    self.datagram(now, meta, datagram);
                }
            }
        }
        self.received = received;
        Ok(())
    }

    fn datagram(&mut self, now: Instant, meta: &RecvMeta, datagram: BytesMut) {
        let ecn = meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
        self.output.clear();
        match self.endpoint.handle(now, meta.addr, meta.dst_ip, ecn, datagram, &mut self.output) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(peer) = &mut self.peers[handle.0] {
                    peer.connection.handle_event(event);
                    self.mark(handle.0);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                match self.endpoint.accept(incoming, now, &mut self.output, None) {
                    Ok((handle, connection)) => self.insert(handle, connection),
                    Err(error) => error.response.iter().for_each(|transmit| self.send(transmit)),
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.send(&transmit),
            None => {}
        }
    }

    /// Handles the events of a connection, and sends what it has to send.
    fn drive(&mut self, handle: usize, now: Instant, http: &mut impl Http) {
        let Some(mut peer) = self.peers[handle].take() else { return };
        peer.is_ready = false;
        let connection = &mut peer.connection;
        while let Some(event) = connection.poll() {
            http.event(handle, connection, event);
        }
        http.fill(handle, connection);
        loop {
            self.output.clear();
            let Some(transmit) = connection.poll_transmit(now, self.segments, &mut self.output) else { break };
            self.send(&transmit);
        }
        let mut is_drained = false;
        while let Some(event) = connection.poll_endpoint_events() {
            is_drained |= event.is_drained();
            if let Some(event) = self.endpoint.handle_event(ConnectionHandle(handle), event) {
                connection.handle_event(event);
            }
        }
        let timer = if is_drained { None } else { connection.poll_timeout() };
        if timer != peer.timer {
            peer.timer.map(|at| self.timers.remove(&(at, handle)));
            timer.map(|at| self.timers.insert((at, handle)));
            peer.timer = timer;
        }
        if !is_drained {
            self.peers[handle] = Some(peer);
        }
    }

    /// Sends `output`. A datagram that the socket does not take is lost, as any may be.
    fn send(&self, transmit: &quinn_proto::Transmit) {
        let contents = &self.output[..transmit.size];
        let ecn = transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8));
        let (destination, segment_size, src_ip) = (transmit.destination, transmit.segment_size, transmit.src_ip);
        let transmit = quinn_udp::Transmit { destination, ecn, contents, segment_size, src_ip };
        let _ = self.udp.try_send(UdpSockRef::from(&self.socket), &transmit);
    }
}
