//! The system calls, and what their errors mean here. Nothing else in the crate makes one.

use crate::app::Local;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketFlags, sockopt};
use rustix::process::Resource;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Bytes went through, or none can for now; an error means that the peer is gone.
pub(crate) enum Moved {
    Bytes(usize),
    WouldBlock,
}

/// What became of an accept.
pub(crate) enum Accepted {
    Connection(OwnedFd, Option<SocketAddr>),
    /// Nobody waits.
    None,
    /// This one failed, mostly because its peer left before it was accepted.
    Failed(io::Error),
    /// Out of descriptors or memory; somebody still waits.
    Exhausted(io::Error),
}

pub(crate) fn accept(listener: impl AsFd) -> io::Result<Accepted> {
    match rustix::net::acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok((socket, address)) => {
            Ok(Accepted::Connection(socket, address.and_then(|address| SocketAddr::try_from(address).ok())))
        }
        Err(Errno::WOULDBLOCK) => Ok(Accepted::None),
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
            Ok(Accepted::Exhausted(error.into()))
        }
        Err(error @ (Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP)) => Err(error.into()),
        // accept(2): errors of the new connection are handed on and are to be taken like "try again".
        Err(error) => Ok(Accepted::Failed(error.into())),
    }
}

/// Whether somebody waits to be accepted, where accepting itself cannot tell.
pub(crate) fn is_awaited(listener: impl AsFd) -> bool {
    let mut descriptors = [PollFd::new(&listener, PollFlags::IN)];
    // A failure tells nothing, so somebody might.
    rustix::event::poll(&mut descriptors, Some(&Timespec::default())) != Ok(0)
}

pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Moved> {
    match rustix::net::recv(socket, buffer, RecvFlags::empty()) {
        Ok((count, _)) => Ok(Moved::Bytes(count)),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(Moved::WouldBlock),
        Err(error) => Err(error.into()),
    }
}

/// Sends the slices as one; `more` says that more follows at once, so that the last packet may wait to be filled.
pub(crate) fn send(socket: impl AsFd, slices: &[IoSlice<'_>], more: bool) -> io::Result<Moved> {
    let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
    let sent = match slices {
        [only] => rustix::net::send(socket, only, flags),
        _ => rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags),
    };
    moved(sent)
}

/// Sends up to `count` bytes of `file` from `offset`.
pub(crate) fn send_file(socket: impl AsFd, file: impl AsFd, offset: u64, count: u64) -> io::Result<Moved> {
    // Linux moves at most 0x7ffff000 bytes in one call.
    let count = usize::try_from(count.min(0x7fff_f000)).unwrap_or(usize::MAX);
    let mut offset = offset;
    moved(rustix::fs::sendfile(socket, file, Some(&mut offset), count))
}

fn moved(result: rustix::io::Result<usize>) -> io::Result<Moved> {
    match result {
        Ok(count) => Ok(Moved::Bytes(count)),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(Moved::WouldBlock),
        Err(error) => Err(error.into()),
    }
}

/// Says that nothing more will be sent. The peer may be gone already, which changes nothing.
pub(crate) fn end_output(socket: impl AsFd) {
    rustix::net::shutdown(socket, Shutdown::Write).ok();
}

/// Makes closing the socket a reset. Best effort: if it fails, the peer sees an early end instead.
pub(crate) fn reset_on_close(socket: impl AsFd) {
    sockopt::set_socket_linger(socket, Some(Duration::ZERO)).ok();
}

/// Connections that the process's limit on descriptors has room for. Some stay free, so that the application can
/// open its files, and a report can be written, while all connections are taken.
pub(crate) fn descriptors_for_connections() -> usize {
    const FREE_AT_MOST: u64 = 64;
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit - FREE_AT_MOST.min(limit / 2)).unwrap_or(usize::MAX)
}

/// Prepares a listening socket and says where it listens.
pub(crate) fn listener(socket: &OwnedFd) -> io::Result<Local> {
    rustix::io::ioctl_fionbio(socket, true)?;
    let address: SocketAddrAny = rustix::net::getsockname(socket)?;
    match SocketAddr::try_from(address) {
        Ok(address) => {
            // On Linux accepted sockets inherit it. Responses leave in one piece; waiting for more only delays them.
            sockopt::set_tcp_nodelay(socket, true)?;
            Ok(Local::Tcp(address))
        }
        Err(_) => Ok(Local::Unix),
    }
}
