//! The open sockets of this process's engines, by descriptor number, so that a forked child can close its copies.
//!
//! If a child kept a listening socket, the port would stay in use. If a child kept a connection, the client would not
//! see the end of the connection, and the parent's poller would continue to report its events (epoll(7), "Questions and
//! answers"). The numbers are in static memory, because the child cannot use an engine: another thread of the parent
//! may have held the engine's lock at the time of the fork.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of recorded descriptors: the first one that is not recorded has this number. A worker raises its limit on
/// open files to this value at most.
const RECORDED: usize = 1 << 20;

/// A bit for each descriptor, set while the descriptor is an open socket of an engine. The kernel allocates only the
/// pages that are written to.
static OPEN: [AtomicU64; RECORDED / 64] = [const { AtomicU64::new(0) }; RECORDED / 64];

/// A socket of an engine. It is recorded while it is open.
#[derive(Debug)]
pub struct EngineSocket(OwnedFd);

impl From<OwnedFd> for EngineSocket {
    fn from(descriptor: OwnedFd) -> Self {
        if let Some((word, bit)) = place(descriptor.as_raw_fd()) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self(descriptor)
    }
}

impl Drop for EngineSocket {
    fn drop(&mut self) {
        // Clear the bit before the socket is closed, because another thread may get the same number immediately.
        if let Some((word, bit)) = place(self.0.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl AsFd for EngineSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EngineSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Clears the record of open sockets and returns their numbers. For a forked child, which has to close the sockets and
/// must not use the engines any more.
pub fn take_engine_sockets() -> impl Iterator<Item = RawFd> {
    OPEN.iter().enumerate().flat_map(|(index, word)| {
        let mut bits = if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::Relaxed) };
        std::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            RawFd::try_from(index * 64 + bit).ok()
        })
    })
}

fn place(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((OPEN.get(number / 64)?, 1 << (number % 64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn is_recorded(descriptor: RawFd) -> bool {
        let (word, bit) = place(descriptor).unwrap();
        word.load(Ordering::Relaxed) & bit != 0
    }

    #[test]
    fn test_socket_is_recorded_while_it_is_open() {
        let (near, _far) = UnixStream::pair().unwrap();
        let socket = EngineSocket::from(OwnedFd::from(near));
        let number = socket.as_raw_fd();
        assert!(is_recorded(number));
        drop(socket);
        // Another test may have got the same number meanwhile, but no test records a socket.
        assert!(!is_recorded(number));
    }

    #[test]
    fn test_number_beyond_the_table_is_not_recorded() {
        assert!(place(RawFd::MAX).is_none());
        assert!(place(-1).is_none());
    }
}
