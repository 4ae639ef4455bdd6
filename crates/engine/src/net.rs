//! What the engine asks of the operating system, so that a simulation can stand in for it.

use crate::app::Local;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// Bytes went through, or none can for now; an error means that the peer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many. None received is the end of input.
    Bytes(usize),
    /// None for now; readiness tells when to try again.
    WouldBlock,
}

/// What became of an accept.
#[derive(Debug)]
pub enum Accepted<S> {
    /// A peer, and its address unless it came by a Unix socket.
    Connection(S, Option<SocketAddr>),
    /// Nobody waits.
    None,
    /// This one failed, mostly because its peer left before it was accepted.
    Failed(io::Error),
    /// Out of descriptors or memory; somebody still waits.
    Exhausted(io::Error),
}

/// Something that became ready, told once ("edge-triggered").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The engine was woken ([`Waker::wake`](crate::Waker::wake)).
    Woken,
    /// Somebody waits at the listener with this index.
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

/// A connection's socket. None of its calls waits.
pub trait Socket {
    /// Receives into `buffer`.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Moved>;

    /// Sends the slices as one; `more` says that more follows at once, so that the last packet may wait to be filled.
    fn send(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved>;

    /// Sends up to `count` bytes of `file` from `offset`; 0 if the file ends there.
    fn send_file(&self, file: &File, offset: u64, count: u64) -> io::Result<Moved>;

    /// Says that nothing more will be sent. The peer may be gone already, which changes nothing.
    fn end_output(&self);

    /// Makes dropping the socket a reset. Best effort: if it fails, the peer sees an early end instead.
    fn reset_on_drop(&self);

    /// Makes dropping the socket a reset, and resets the connection now, although the socket is still held, where the
    /// system can do so. What the peer sees must never be an orderly end.
    fn cut(&self);

    /// Whether the peer has ended its side or is gone, seen past whatever it sent before.
    fn has_peer_left(&self) -> bool;
}

/// The sockets of an engine and the poller that watches them.
pub trait Net {
    /// A listening socket. Dropping it closes it.
    type Listener;
    /// A connection. Dropping it closes it.
    type Socket: Socket;

    /// Watches `listener` under `index` and says where it listens.
    fn listen(&mut self, listener: &Self::Listener, index: usize) -> io::Result<Local>;

    /// Watches it in another way from now on, and tells again if somebody waits there. While `takes_turns` somebody who
    /// comes wakes one only of those processes that watch the same listener so and wait for their pollers, and this one
    /// is the last in the row again; otherwise this one is woken too, whoever else is. Where the system knows no
    /// such thing, everybody is always woken.
    fn relisten(&mut self, listener: &Self::Listener, index: usize, takes_turns: bool) -> io::Result<()> {
        let _ = (listener, index, takes_turns);
        Ok(())
    }

    /// Watches it no more.
    fn unlisten(&mut self, listener: &Self::Listener);

    /// Takes in one peer.
    fn accept(&mut self, listener: &Self::Listener) -> io::Result<Accepted<Self::Socket>>;

    /// Whether somebody waits to be accepted, where accepting itself cannot tell.
    fn is_awaited(&self, listener: &Self::Listener) -> bool;

    /// Watches `socket` under `slot`, for its input and, if `output` says so, for room for output. `again`: it is
    /// watched already. Dropping the socket ends it.
    fn watch(&mut self, socket: &Self::Socket, slot: usize, output: bool, again: bool) -> io::Result<()>;

    /// Connections that there is room for.
    fn room(&self) -> usize;

    /// Takes note of having been woken, so that the next wake is told again.
    fn drain_wakes(&mut self);
}
