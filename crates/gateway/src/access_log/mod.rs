//! The access log: one line for each request, formatted without the interpreter.
//!
//! A format is compiled once into pieces ([`format`]). Lines are collected in a buffer, which is passed to the writer
//! thread ([`log_writer`](crate::log_writer)) when the engine is about to wait or when the buffer is full. Optionally,
//! lines go to a Python callable instead (`logging`), at the cost of `logging`.

mod format;

pub(crate) use format::{Entry, LoggedResponse, is_request_id, samples_trace};

use crate::log_writer::{self, Log};
use crate::object::Object;
use format::{Format, Line, LineTime};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::sync::Arc;
use std::time::Duration;

/// The number of bytes above which collected lines are passed to the writer.
const BUFFER: usize = 64 << 10;

enum Sink {
    Log(Arc<Log>),
    Logger(Py<PyAny>),
}

/// Lines that are still to be passed to a Python logger, each with its atoms.
pub(crate) struct LoggerLines {
    pub(crate) logger: Py<PyAny>,
    pub(crate) lines: Vec<(String, Py<PyAny>)>,
}

/// The access log of one engine.
pub(crate) struct AccessLog {
    format: Format,
    sink: Sink,
    buffer: Vec<u8>,
    /// Lines that are still to be passed to the logger, with their atoms.
    pending: Vec<(String, Py<PyAny>)>,
    line: String,
    time: LineTime,
}

impl AccessLog {
    /// Creates an access log that writes to `logger` or `log`, in the format `combined`, `json`, or one of gunicorn's
    /// atoms. Returns `None` if there is neither target.
    ///
    /// # Errors
    /// `ValueError` for an invalid format, such as an unknown atom.
    /// `ValueError` for an unknown atom.
    pub(crate) fn new(log: Option<Arc<Log>>, format: &str, logger: Option<Py<PyAny>>) -> PyResult<Option<Self>> {
        let sink = match (logger, log) {
            (Some(logger), _) => Sink::Logger(logger),
            (None, Some(log)) => Sink::Log(log),
            (None, None) => return Ok(None),
        };
        let compiled = Format::compile(format)
            .map_err(|message| PyValueError::new_err(format!("access_log_format: {format:?} {message}")))?;
        Ok(Some(Self {
            format: compiled,
            sink,
            buffer: Vec::new(),
            pending: Vec::new(),
            line: String::new(),
            time: LineTime::default(),
        }))
    }

    /// Opens the path again, after a rotation.
    ///
    /// # Errors
    /// `OSError` if it cannot be opened. The old file stays in use then.
    pub(crate) fn reopen(&mut self) -> PyResult<()> {
        self.flush();
        match &self.sink {
            Sink::Log(log) => log_writer::reopen(log),
            Sink::Logger(_) => Ok(()),
        }
    }

    /// Passes the collected lines to the writer.
    pub(crate) fn flush(&mut self) {
        if let Sink::Log(log) = &self.sink
            && !self.buffer.is_empty()
        {
            log.append(&self.buffer, Duration::ZERO);
            self.buffer.clear();
        }
    }

    /// Returns the messages about dropped lines.
    pub(crate) fn take_notices(&self, is_last: bool) -> Vec<String> {
        match &self.sink {
            Sink::Log(log) => log.take_notices(is_last),
            Sink::Logger(_) => Vec::new(),
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Removes and returns the lines for the logger, which must be called while the engine is unlocked.
    pub(crate) fn take_pending(&mut self, py: Python<'_>) -> Option<LoggerLines> {
        match &self.sink {
            Sink::Logger(logger) if !self.pending.is_empty() => {
                Some(LoggerLines { logger: logger.clone_ref(py), lines: std::mem::take(&mut self.pending) })
            }
            _ => None,
        }
    }

    /// Formats a line and adds it to the collected ones.
    pub(crate) fn write<'a>(
        &mut self,
        py: Python<'_>,
        entry: &'a Entry,
        response: LoggedResponse<'a>,
        request: Option<&'a Object>,
        call: Option<u64>,
    ) {
        let variable = |name: &str| request.and_then(|request| request.item_text(py, name));
        let line = Line { entry, response, variable: &variable, call, took: entry.begun.elapsed() };
        let time = self.time.of(entry);
        self.line.clear();
        line.push(&self.format, time, &mut self.line);
        if let Sink::Logger(_) = &self.sink {
            match line.atoms(time).into_py_dict(py) {
                Ok(atoms) => self.pending.push((self.line.clone(), atoms.into_any().unbind())),
                Err(error) => error.write_unraisable(py, None),
            }
            return;
        }
        self.buffer.extend_from_slice(self.line.as_bytes());
        self.buffer.push(b'\n');
        if self.buffer.len() > BUFFER {
            self.flush();
        }
    }
}

/// Checks a format.
///
/// # Errors
/// `ValueError` that says why the format is invalid.
pub(crate) fn check_format(format: &str) -> PyResult<()> {
    Format::compile(format).map(drop).map_err(PyValueError::new_err)
}
