//! Writes log lines to a file, a pipe or a terminal, and never makes the thread that logs wait for it.
//!
//! `write(2)` waits as long as a pipe is full, a terminal is stopped, or a disk does not answer. So callers only append
//! to a bounded queue, and one thread for each log takes lines from there and writes them. That thread holds neither
//! the GIL nor the engine, so nothing but the log waits with it. Two cheaper ways do not suffice:
//!
//! * `O_NONBLOCK` belongs to the open file description. Standard error shares that with the shell and with every other
//!   process of the terminal, which would all get `EAGAIN`.
//! * `poll(2)` before `write(2)` tells the truth only until another process has filled the pipe.
//!
//! ```text
//!   request threads ──append──▶ queue (at most CAPACITY) ──▶ writer thread ──write(2)──▶ file, pipe, terminal
//!                    └─ full: drop and count                 └─ error: drop and count
//! ```
//!
//! Lines stay whole and in order. A pipe gets at most `PIPE_BUF` bytes at a time, cut at the end of a line, because the
//! kernel does not mix these with what other processes write. A line of which a full disk has taken only the beginning
//! is taken back.
//!
//! The thread is started with the first line and ends when none has come for a while. A process that forks waits for
//! that before ([`flush_all`]); should it not come in time, the child begins with an empty queue
//! (`after_fork_in_child`): what is queued belongs to the parent, whose thread writes it.

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

/// The access log: to `path`, or to standard output where that is `-`.
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
/// `OSError` if it cannot be opened; then the old file stays in use.
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

/// The error log, as Python has it.
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

/// See the stub.
#[pyfunction]
#[pyo3(signature = (patience, *, settle = false))]
pub(crate) fn flush_logs(py: Python<'_>, patience: f64, settle: bool) -> PyResult<bool> {
    let patience = seconds(patience)?;
    Ok(py.detach(|| flush_all(patience, settle)))
}

/// See the stub.
#[pyfunction]
pub(crate) fn count_dropped_line() {
    DROPPED.fetch_add(1, Ordering::Relaxed);
}

/// See the stub.
#[pyfunction]
pub(crate) fn dropped_lines() -> u64 {
    dropped()
}

fn seconds(patience: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(patience).map_err(|error| PyValueError::new_err(format!("patience: {error}")))
}

/// As Python raises it: with the number, which chooses the class, and the path.
fn os_error(error: &io::Error, path: &Path) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), system_text(error), path.as_os_str().to_owned()))
}
