//! inotify(7) for `--reload`: reports which entries of which directories have changed. `kirsch/supervisor/inotify.py`
//! interprets the reports.

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

/// The size of the read buffer in bytes: enough for the events of about 200 files.
const BUFFER: usize = 8 << 10;
/// The number of events after which a call returns, so that it ends even if events arrive without pause.
const EVENTS: usize = 4096;

/// An inotify descriptor for Python. Its methods never block.
#[pyclass(frozen, module = "kirsch._native")]
pub struct Inotify {
    fd: Mutex<Option<OwnedFd>>,
}

/// Converts an error into an `OSError` with its number, which PyO3's conversion from `io::Error` does not keep.
fn os_error(error: Errno) -> PyErr {
    let text = io::Error::from(error).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((error.raw_os_error(), text))
}

impl Inotify {
    /// Calls `act` with the descriptor. Raises `ValueError` if it is closed.
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
        // IN_CLOSE_WRITE instead of IN_MODIFY, because a file that is still being written is incomplete.
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
            // The kernel has removed the watch with its directory; an unread event says so.
            Err(Errno::INVAL) => Ok(()),
            removed => removed,
        })
    }

    fn read(&self) -> PyResult<Vec<(i32, u32, OsString)>> {
        self.with(|fd| {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = Reader::new(fd.as_fd(), &mut buffer);
            let mut events = Vec::new();
            // Read all events of the buffer: the rest would be lost with the reader.
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
