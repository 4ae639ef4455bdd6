//! So many requests, and then somebody is told.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Tells somebody, once, when so many requests have begun. All engines of a server count together.
pub(crate) struct RequestLimit {
    left: AtomicU64,
    /// A pipe or a socket.
    descriptor: File,
}

impl RequestLimit {
    pub(crate) fn new(requests: u64, descriptor: OwnedFd) -> Self {
        Self { left: requests.into(), descriptor: descriptor.into() }
    }

    /// A request begins. Returns whether the limit is reached, which has been told then.
    pub(crate) fn count(&self) -> bool {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(1) => self.tell(),
            Ok(_) => return false,
            // Another engine has told it.
            Err(_) => {}
        }
        true
    }

    fn tell(&self) {
        let mut descriptor = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: the structure is one descriptor's, which is open.
        let has_room = unsafe { libc::poll(&raw mut descriptor, 1, 0) } == 1;
        // Where there is no room, bytes lie there that nobody has read: they say as much. One that is gone needs no word.
        if has_room {
            (&self.descriptor).write_all(&[0]).ok();
        }
    }
}
