//! So many requests, and then somebody is told.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

/// Tells somebody, once, when so many requests have begun.
pub(crate) struct RequestLimit {
    left: u64,
    /// A pipe or a socket.
    descriptor: File,
}

impl RequestLimit {
    pub(crate) fn new(requests: u64, descriptor: OwnedFd) -> Self {
        Self { left: requests, descriptor: descriptor.into() }
    }

    /// A request begins. Returns whether the limit is reached, which has been told then.
    pub(crate) fn count(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return false;
        }
        let mut descriptor = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: the structure is one descriptor's, which is open.
        let has_room = unsafe { libc::poll(&raw mut descriptor, 1, 0) } == 1;
        // Where there is no room, bytes lie there that nobody has read: they say as much. One that is gone needs no word.
        if has_room {
            self.descriptor.write_all(&[0]).ok();
        }
        true
    }
}
