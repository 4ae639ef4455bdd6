//! The reports of a host: messages for the error log, and lines of the access log that go to a logger.
//!
//! Reporting runs Python, so it never happens while the engine is locked: messages are [notes](Note) until then.

use super::app::{INFO, Note, WARNING};
use crate::access_log::LoggerLines;
use pyo3::prelude::*;

/// See the module.
pub(super) struct Reports {
    /// A function that is called with the level, the message and an exception.
    hook: Option<Py<PyAny>>,
}

impl Reports {
    pub(super) fn new(hook: Option<Py<PyAny>>) -> Self {
        Self { hook }
    }

    /// Calls the report hook. Writes to standard error if there is none.
    pub(super) fn log(&self, py: Python<'_>, level: u8, message: &str, error: Option<PyErr>) {
        let error = error.map(|error| error.into_value(py));
        if let Some(report) = &self.hook {
            if let Err(error) = report.call1(py, (level, message, error)) {
                error.write_unraisable(py, Some(report.bind(py)));
            }
            return;
        }
        eprintln!("kirsch: {message}");
        if let Some(error) = error {
            PyErr::from_value(error.into_bound(py).into_any()).display(py);
        }
    }

    /// Reports the stored messages.
    #[inline(never)]
    pub(super) fn deliver(
        &self,
        py: Python<'_>,
        notes: Option<(Vec<Note>, Option<LoggerLines>)>,
        notices: Vec<String>,
        refusals: Vec<String>,
    ) {
        self.log_counts(py, notices, refusals);
        let Some((notes, lines)) = notes else { return };
        if let Some(LoggerLines { logger, lines }) = lines {
            for line in lines {
                if let Err(error) = logger.call1(py, line) {
                    error.write_unraisable(py, Some(logger.bind(py)));
                }
            }
        }
        for Note { level, message, error } in notes {
            self.log(py, level, &message, error);
        }
    }

    /// Reports the events that were only counted.
    pub(super) fn log_counts(&self, py: Python<'_>, notices: Vec<String>, refusals: Vec<String>) {
        for notice in notices {
            self.log(py, WARNING, &format!("access log: {notice}"), None);
        }
        for refusals in refusals {
            self.log(py, INFO, &refusals, None);
        }
    }
}
