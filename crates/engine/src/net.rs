//! The engine's interface to the operating system. A simulation can implement it instead.

use crate::transport::Transport;
use std::io;
use std::net::SocketAddr;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The address of the peer; `None` on a Unix socket.
    pub address: Option<SocketAddr>,
    /// The index of the engine's listener that accepted the connection, from 0.
    pub listener: usize,
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix,
}

/// The result of accepting.
#[derive(Debug)]
pub enum Accepted<T> {
    /// A connection, with the address of its peer unless it uses a Unix socket.
    Connection(T, Option<SocketAddr>),
    /// No connection waits.
    None,
    /// Accepting this connection failed, usually because its peer had already left.
    Failed(io::Error),
    /// The process has no free descriptors or memory. A connection still waits.
    Exhausted(io::Error),
}

/// An event of readiness, reported once ("edge-triggered").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The engine was woken ([`Waker::wake`](crate::Waker::wake)).
    Woken,
    /// A connection waits at the listener with this index.
    Listener(usize),
    /// The connection in this slot is ready.
    Connection {
        /// The slot that was passed to [`Net::watch`].
        slot: usize,
        /// True if there may be input, the end of input, or an error.
        readable: bool,
        /// True if the peer sends nothing more, or is gone.
        read_closed: bool,
    },
}

/// The sockets of an engine and the poller that watches them.
pub trait Net {
    /// A listening socket. Dropping it closes it.
    type Listener;
    /// The transport of a connection. Dropping it closes the connection.
    type Transport: Transport;

    /// Watches `listener` under `index`. Returns the address on which it listens.
    fn listen(&mut self, listener: &Self::Listener, index: usize) -> io::Result<Local>;

    /// Changes how the listener is watched, and reports readiness again if a connection waits. With `takes_turns`, a
    /// new connection wakes only one of the processes that watch the listener in this mode and wait for their pollers;
    /// this process becomes the last in the order. Without `takes_turns`, every new connection also wakes this process.
    /// If the system has no such order (`EPOLLEXCLUSIVE`), every new connection wakes every process.
    fn relisten(&mut self, listener: &Self::Listener, index: usize, takes_turns: bool) -> io::Result<()> {
        let _ = (listener, index, takes_turns);
        Ok(())
    }

    /// Stops watching the listener.
    fn unlisten(&mut self, listener: &Self::Listener);

    /// Accepts one connection.
    fn accept(&mut self, listener: &Self::Listener) -> io::Result<Accepted<Self::Transport>>;

    /// Returns true if a connection waits to be accepted. For callers that cannot find out by accepting it.
    fn is_awaited(&self, listener: &Self::Listener) -> bool;

    /// Watches `transport` under `slot` for input and, if `output` is true, for room for output. `again`: the transport
    /// is already watched. Dropping the transport ends the watching.
    fn watch(&mut self, transport: &Self::Transport, slot: usize, output: bool, again: bool) -> io::Result<()>;

    /// Stops watching the transport without dropping it.
    fn unwatch(&mut self, transport: &Self::Transport) {
        let _ = transport;
    }

    /// Returns the maximum number of connections for which the system has descriptors.
    fn room(&self) -> usize;

    /// Removes pending wakes, so that the next wake is reported again.
    fn drain_wakes(&mut self);
}
