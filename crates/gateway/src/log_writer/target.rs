//! The files and descriptors to which logs are written.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The destination of a log's lines.
pub(super) enum Target {
    /// A descriptor that the process inherited, such as standard error. If the program redirects it, the log follows.
    Lent(RawFd),
    /// A file that was opened for this log.
    Owned(OwnedFd),
}

impl Target {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::Owned(open(path)?.into()))
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Lent(fd) => *fd,
            Self::Owned(fd) => fd.as_raw_fd(),
        }
    }

    pub(super) fn is_file(&self) -> bool {
        self.status().is_some_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG)
    }

    /// Returns the file's status; `None` if the descriptor is closed.
    fn status(&self) -> Option<libc::stat> {
        // SAFETY: all zeros is a valid value of the structure, and the call fills it; for a closed descriptor the call
        // returns an error.
        unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            (libc::fstat(self.fd(), &raw mut status) == 0).then_some(status)
        }
    }

    /// Removes `end` from the end of the file. Returns false if the file does not end with it, because another process
    /// has appended since, or if the file is not readable.
    pub(super) fn reclaim(&self, end: &[u8]) -> bool {
        let Some(status) = self.status() else { return false };
        let Ok(length) = libc::off_t::try_from(end.len()) else { return false };
        let begin = status.st_size - length;
        if begin < 0 {
            return false;
        }
        let mut found = vec![0; end.len()];
        // SAFETY: the buffer has room for that many bytes; for a closed descriptor the calls return errors.
        unsafe {
            let count = libc::pread(self.fd(), found.as_mut_ptr().cast(), found.len(), begin);
            usize::try_from(count) == Ok(end.len()) && found == end && libc::ftruncate(self.fd(), begin) == 0
        }
    }

    /// Writes all bytes, however long that blocks. Returns the number of bytes written, and the error that stopped the
    /// write.
    pub(super) fn write(&self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            // SAFETY: the buffer has the given length; for a closed descriptor the call returns an error.
            let count = unsafe { libc::write(self.fd(), rest.as_ptr().cast(), rest.len()) };
            if let Ok(count) = usize::try_from(count) {
                written += count;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                ErrorKind::Interrupted => {}
                // Another process that shares the file description has set O_NONBLOCK.
                ErrorKind::WouldBlock => self.await_room(),
                _ => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }

    fn await_room(&self) {
        let mut descriptor = libc::pollfd { fd: self.fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: the structure describes one descriptor.
        unsafe { libc::poll(&raw mut descriptor, 1, 1000) };
    }
}

/// Opens a log for appending without blocking. A FIFO is opened for reading too, so it needs no reader, and keeps its
/// data until a reader opens it.
fn open(path: &Path) -> io::Result<File> {
    let is_fifo = std::fs::metadata(path).is_ok_and(|status| status.file_type().is_fifo());
    if is_fifo {
        return OpenOptions::new().read(true).write(true).open(path);
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o644);
    match options.clone().read(true).open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => options.open(path),
        opened => opened,
    }
}
