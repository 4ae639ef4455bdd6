//! The number of requests after which a worker is replaced (`--max-requests`). Uses no Python.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes one byte to a descriptor when the given number of requests has begun. All engines of a server share it.
pub(crate) struct RequestLimit {
    left: AtomicU64,
    /// A pipe or a socket that the supervisor reads.
    descriptor: File,
}

impl RequestLimit {
    pub(crate) fn new(requests: u64, descriptor: OwnedFd) -> Self {
        Self { left: requests.into(), descriptor: descriptor.into() }
    }

    /// Counts a request that begins. Returns true if the limit has been reached; the byte has been written then.
    pub(crate) fn count(&self) -> bool {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(1) => self.notify(),
            Ok(_) => return false,
            // Another engine has reached the limit.
            Err(_) => {}
        }
        true
    }

    fn notify(&self) {
        let mut descriptor = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: the structure describes one descriptor, which is open.
        let has_room = unsafe { libc::poll(&raw mut descriptor, 1, 0) } == 1;
        // A full pipe has unread bytes, which notify the reader as well. A reader that has closed its end needs no
        // byte.
        if has_room {
            (&self.descriptor).write_all(&[0]).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn test_byte_is_written_once_when_the_limit_is_reached() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let limit = RequestLimit::new(3, writer.into());
        assert_eq!([0; 5].map(|_| limit.count()), [false, false, true, true, true]);
        drop(limit);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [0]);
    }

    #[test]
    fn test_limit_neither_waits_for_a_reader_nor_fails_without_one() {
        let (reader, writer) = std::io::pipe().unwrap();
        // A pipe holds at least one page; after this loop it is full.
        let full = writer.try_clone().unwrap();
        // SAFETY: the descriptor is open; the calls set its size and a flag.
        unsafe { libc::fcntl(full.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        while (&full).write(&[1; 4096]).is_ok() {}
        assert!(RequestLimit::new(1, writer.into()).count());
        drop(reader);
        assert!(RequestLimit::new(1, full.into()).count());
    }
}
