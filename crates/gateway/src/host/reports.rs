//! The reports of a host: messages for the error log, and access log lines for a Python logger.
//!
//! Reporting runs Python code, so it never happens while the engine is locked: messages are stored as [notes](Note)
//! until then.

use super::app::{INFO, Note, WARNING};
use crate::access_log::LoggerLines;
use pyo3::prelude::*;

/// The report hook of a host.
pub(super) struct Reports {
    /// A function `report(level, message, exception)`; `None`: messages go to standard error.
    hook: Option<Py<PyAny>>,
}

impl Reports {
    pub(super) fn new(hook: Option<Py<PyAny>>) -> Self {
        Self { hook }
    }

    /// Passes a message to the report hook, or writes it to standard error if there is no hook.
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

    /// Delivers the stored messages and access log lines.
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
