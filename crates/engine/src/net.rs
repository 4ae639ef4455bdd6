//! What the engine asks of the operating system, so that a simulation can stand in for it.

use crate::transport::Transport;
use std::io;
use std::net::SocketAddr;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address; `None` on a Unix socket.
    pub address: Option<SocketAddr>,
    /// Which of the engine's listeners accepted it, counted from 0.
    pub listener: usize,
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix,
}

/// What became of an accept.
#[derive(Debug)]
pub enum Accepted<T> {
    /// A peer, and its address unless it came by a Unix socket.
    Connection(T, Option<SocketAddr>),
    /// No connection waits.
    None,
    /// This one failed, mostly because its peer left before it was accepted.
    Failed(io::Error),
    /// Out of descriptors or memory; a connection still waits.
    Exhausted(io::Error),
}

/// Something that became ready, told once ("edge-triggered").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The engine was woken ([`Waker::wake`](crate::Waker::wake)).
    Woken,
    /// A connection waits at the listener with this index.
    Listener(usize),
    /// The connection in this slot.
    Connection {
        /// As it was given to [`Net::watch`].
        slot: usize,
        /// There may be input, or its end, or an error.
        readable: bool,
        /// The peer sends no more, or is gone.
        read_closed: bool,
    },
}

/// The sockets of an engine and the poller that watches them.
pub trait Net {
    /// A listening socket. Dropping it closes it.
    type Listener;
    /// What moves the bytes of a connection. Dropping it closes the connection.
    type Transport: Transport;

    /// Watches `listener` under `index` and says where it listens.
    fn listen(&mut self, listener: &Self::Listener, index: usize) -> io::Result<Local>;

    /// Watches it in another way from now on, and reports again if a connection waits there. With `takes_turns` a new
    /// connection wakes only one of the processes that watch the listener so and wait for their pollers, and this
    /// process becomes the last in that order. Without it this process is woken too. Where the system has no such
    /// order (`EPOLLEXCLUSIVE`), every process is always woken.
    fn relisten(&mut self, listener: &Self::Listener, index: usize, takes_turns: bool) -> io::Result<()> {
        let _ = (listener, index, takes_turns);
        Ok(())
    }

    /// Watches it no more.
    fn unlisten(&mut self, listener: &Self::Listener);

    /// Takes in one peer.
    fn accept(&mut self, listener: &Self::Listener) -> io::Result<Accepted<Self::Transport>>;

    /// Whether a connection waits to be accepted, where accepting itself cannot tell.
    fn is_awaited(&self, listener: &Self::Listener) -> bool;

    /// Watches `transport` under `slot`, for its input and, if `output` says so, for room for output. `again`: it is
    /// watched already. Dropping the transport ends it.
    fn watch(&mut self, transport: &Self::Transport, slot: usize, output: bool, again: bool) -> io::Result<()>;

    /// Watches it no more, although it is not dropped.
    fn unwatch(&mut self, transport: &Self::Transport) {
        let _ = transport;
    }

    /// Connections that there is room for.
    fn room(&self) -> usize;

    /// Takes note of having been woken, so that the next wake is told again.
    fn drain_wakes(&mut self);
}
