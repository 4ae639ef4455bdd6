//! Writes log lines to a file, a pipe or a terminal without ever blocking the thread that logs.
//!
//! `write(2)` blocks as long as a pipe is full, a terminal is stopped, or a disk does not respond. So callers only
//! append to a bounded queue, and one thread for each log writes the lines. That thread holds neither the GIL nor the
//! engine's lock, so only the log is delayed. Two cheaper ways are not sufficient:
//!
//! * `O_NONBLOCK` belongs to the open file description. Standard error shares it with the shell and with every other
//!   process of the terminal, which would all get `EAGAIN`.
//! * The result of `poll(2)` before `write(2)` is valid only until another process fills the pipe.
//!
//! ```text
//!   request threads ──append──▶ queue (at most CAPACITY) ──▶ writer thread ──write(2)──▶ file, pipe, terminal
//!                    └─ full: drop and count                 └─ error: drop and count
//! ```
//!
//! Lines stay whole and in order. At most `PIPE_BUF` bytes are written to a pipe at a time, cut at the end of a line,
//! because the kernel does not mix these with the output of other processes. If a full disk has accepted only the
//! beginning of a line, this beginning is removed.
//!
//! The thread is started with the first line, and ends after some time without lines. A process that forks first waits
//! for that end ([`flush_all`]). If the thread does not end in time, the child starts with an empty queue
//! (`after_fork_in_child`), because the queued lines belong to the parent, whose thread writes them.

mod ending;
mod forks;
mod log;
mod target;

pub(crate) use log::{Log, dropped};

use log::{DROPPED, Manner, flush_all, system_text};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use target::Target;

/// Opens the access log at `path`, or on standard output if that is `-`.
///
/// # Errors
/// `OSError` if the file cannot be opened.
pub(crate) fn access_log(path: &Path) -> PyResult<Arc<Log>> {
    if path.as_os_str() == "-" {
        Ok(lent("standard output", libc::STDOUT_FILENO, Manner::Notice))
    } else {
        file(path, Manner::Notice)
    }
}

/// Opens a log's path again, after a rotation.
///
/// # Errors
/// `OSError` if it cannot be opened. The old file stays in use then.
pub(crate) fn reopen(log: &Log) -> PyResult<()> {
    log.reopen().map_err(|(error, path)| os_error(&error, path))
}

fn file(path: &Path, manner: Manner) -> PyResult<Arc<Log>> {
    forks::handle();
    Log::file(path, manner).map_err(|error| os_error(&error, path))
}

fn lent(name: &str, descriptor: libc::c_int, manner: Manner) -> Arc<Log> {
    forks::handle();
    Log::new(name, None, Target::Lent(descriptor), manner)
}

/// The error log, as a Python class.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct LogWriter(Arc<Log>);

#[pymethods]
impl LogWriter {
    #[new]
    #[pyo3(signature = (path = PathBuf::new(), *, json = false))]
    #[allow(clippy::needless_pass_by_value, reason = "it is Python's argument")]
    fn new(path: PathBuf, json: bool) -> PyResult<Self> {
        let manner = if json { Manner::Json } else { Manner::Text };
        let log = if path.as_os_str().is_empty() {
            lent("standard error", libc::STDERR_FILENO, manner)
        } else {
            file(&path, manner)?
        };
        Ok(Self(log))
    }

    fn write(&self, py: Python<'_>, lines: &[u8], patience: f64) -> PyResult<()> {
        let patience = seconds(patience)?;
        py.detach(|| self.0.append(lines, patience));
        Ok(())
    }

    fn reopen(&self) -> PyResult<()> {
        reopen(&self.0)
    }
}

/// Waits up to `patience` seconds until all logs are written. Returns true if they are.
#[pyfunction]
#[pyo3(signature = (patience, *, settle = false))]
pub(crate) fn flush_logs(py: Python<'_>, patience: f64, settle: bool) -> PyResult<bool> {
    let patience = seconds(patience)?;
    Ok(py.detach(|| flush_all(patience, settle)))
}

/// Counts a line that Python has dropped.
#[pyfunction]
pub(crate) fn count_dropped_line() {
    DROPPED.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of lines that this process has dropped.
#[pyfunction]
pub(crate) fn dropped_lines() -> u64 {
    dropped()
}

fn seconds(patience: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(patience).map_err(|error| PyValueError::new_err(format!("patience: {error}")))
}

/// Makes an `OSError` with the error number, which selects its subclass, and with the path.
fn os_error(error: &io::Error, path: &Path) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), system_text(error), path.as_os_str().to_owned()))
}
