//! inotify(7) for `--reload`: which entries of which directories have changed. What that means is Python's affair
//! (`kirsch/supervisor/inotify.py`).

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;

/// One read takes this much: the events of about two hundred files.
const BUFFER: usize = 8 << 10;
/// So many events are taken at a time at most, so that the caller gets on where there is no end of them.
const EVENTS: usize = 4096;

/// See the stub.
#[pyclass(frozen, module = "kirsch._native")]
pub struct Inotify {
    fd: Mutex<Option<OwnedFd>>,
}

/// With its number, which a conversion from `io::Error` does not keep.
fn os_error(error: Errno) -> PyErr {
    let text = io::Error::from(error).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((error.raw_os_error(), text))
}

impl Inotify {
    /// Calls `act` with the descriptor.
    fn with<R>(&self, act: impl FnOnce(&OwnedFd) -> Result<R, Errno>) -> PyResult<R> {
        let fd = self.fd.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let fd = fd.as_ref().ok_or_else(|| PyValueError::new_err("it is closed"))?;
        act(fd).map_err(os_error)
    }
}

#[pymethods]
impl Inotify {
    #[new]
    fn new() -> PyResult<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(os_error)?;
        Ok(Self { fd: Mutex::new(Some(fd)) })
    }

    fn fileno(&self) -> PyResult<RawFd> {
        self.with(|fd| Ok(fd.as_raw_fd()))
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is converted from Python")]
    fn add(&self, path: PathBuf) -> PyResult<i32> {
        // IN_CLOSE_WRITE and not IN_MODIFY: a file that is being written is not whole yet.
        let flags = WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        self.with(|fd| inotify::add_watch(fd, path.as_path(), flags))
    }

    fn remove(&self, watch: i32) -> PyResult<()> {
        self.with(|fd| match inotify::remove_watch(fd, watch) {
            // It has gone with its directory, as an event that is still to be read tells.
            Err(Errno::INVAL) => Ok(()),
            removed => removed,
        })
    }

    fn read(&self) -> PyResult<Vec<(i32, u32, OsString)>> {
        self.with(|fd| {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = Reader::new(fd.as_fd(), &mut buffer);
            let mut events = Vec::new();
            // All events of one read are taken: those left in the reader would be lost with it.
            while events.len() < EVENTS || !reader.is_buffer_empty() {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map_or(OsStr::new(""), |name| OsStr::from_bytes(name.to_bytes()));
                        events.push((event.wd(), event.events().bits(), name.to_owned()));
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(events)
        })
    }

    fn close(&self) {
        *self.fd.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }
}
