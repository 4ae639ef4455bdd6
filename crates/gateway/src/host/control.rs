//! Requests to a running engine, from any thread and from signal handlers, and the engine's reports.

use super::app::{ERROR, INFO, Note, WARNING};
use super::shared::{Control, Reentered, Stop, lock};
use super::threads::Host;
use crate::access_log::{AccessLog, LoggerLines};
use crate::clock;
use crate::interface::Interface;
use engine::Times;
use pyo3::prelude::*;
use std::sync::atomic::Ordering;

impl<I: Interface> Host<I> {
    /// Carries out earlier requests, and ends a wait of the engine.
    pub(crate) fn wake(&self, py: Python<'_>) {
        self.obey(py);
        self.waker.wake();
    }

    /// Requests the end of the server. May be called anywhere and does not wait.
    pub(crate) fn stop(&self, py: Python<'_>, stop: Stop) {
        self.request(py, Control { stop: Some(stop), ..Control::default() });
    }

    /// [Stops](Self::stop) each of the server's engines.
    pub(super) fn stop_all(&self, py: Python<'_>, stop: Stop) {
        for host in self.shared.hosts() {
            host.stop(py, stop);
        }
    }

    /// Requests that each response be the last one of its connection. It may be called anywhere and does not wait.
    pub(crate) fn drain(&self, py: Python<'_>) {
        self.request(py, Control { drain: true, ..Control::default() });
    }

    fn request(&self, py: Python<'_>, control: Control) {
        self.put_down(control);
        self.wake(py);
    }

    fn put_down(&self, control: Control) {
        lock(&self.control).add(control);
        self.has_control.store(true, Ordering::Relaxed);
    }

    pub(crate) fn reopen_logs(&self, py: Python<'_>) -> PyResult<()> {
        let reopened = self.with(py, |state| state.app.access_log.as_mut().map_or(Ok(()), AccessLog::reopen));
        if let Ok(result) = reopened {
            return result;
        }
        // This thread holds the lock. Another thread reopens the logs later.
        self.put_down(Control { reopen_logs: true, ..Control::default() });
        self.waker.wake();
        Ok(())
    }

    /// Carries out earlier requests. If this thread holds the lock, another thread does so later.
    pub(super) fn obey(&self, py: Python<'_>) {
        if !self.has_control.swap(false, Ordering::Relaxed) {
            return;
        }
        let control = std::mem::take(&mut *lock(&self.control));
        let done = self.with(py, |state| {
            if control.drain {
                state.engine.drain();
            }
            if let Some(Stop { limit, grace }) = control.stop {
                state.engine.stop(clock::now(), limit, grace);
            }
            if control.reopen_logs
                && let Some(Err(error)) = state.app.access_log.as_mut().map(AccessLog::reopen)
            {
                state.app.note(ERROR, format!("the access log could not be opened again: {error}"), None);
            }
        });
        if done.is_err() {
            self.put_down(control);
        }
    }

    /// Ends the server with an exception.
    pub(crate) fn fail_with(&self, py: Python<'_>, error: PyErr) {
        self.shared.fail(py, error);
        self.stop_all(py, Stop::NOW);
    }

    /// Raises the error that has ended the server, if there is one.
    pub(crate) fn fail_if_failed(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(error) = self.shared.take_failure(py) {
            return Err(error);
        }
        self.with(py, |state| state.broken.take())?.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Returns the stage times of requests that are over, and the number of those for which there was no room.
    pub(crate) fn times(&self, py: Python<'_>) -> Result<(Vec<Times>, u64), Reentered> {
        self.with(py, |state| state.engine.times())
    }

    /// Delivers the messages that were stored while the lock was held. `is_idle`: there is time to write the access log
    /// and to give memory back.
    pub(super) fn tidy(&self, py: Python<'_>, is_idle: bool) {
        let put_down = self.with(py, |state| {
            if is_idle {
                state.app.return_memory();
            }
            // Usually there is nothing to deliver, and this runs before each wait.
            state.app.may_have_news().then(|| {
                let notes = state.app.has_notes().then(|| state.app.take_notes(py));
                if is_idle {
                    state.app.access_log.iter_mut().for_each(AccessLog::flush);
                }
                let notices = state.app.access_log.as_ref().map(|log| log.take_notices(false));
                (notes, notices.unwrap_or_default(), state.app.refusals.take_counts(false))
            })
        });
        // If this thread holds the lock, another thread does this later.
        if let Ok(Some((notes, notices, refusals))) = put_down {
            self.deliver(py, notes, notices, refusals);
        }
    }

    /// Reports the stored messages.
    #[inline(never)]
    fn deliver(
        &self,
        py: Python<'_>,
        notes: Option<(Vec<Note>, Option<LoggerLines>)>,
        notices: Vec<String>,
        refusals: Vec<String>,
    ) {
        self.log_given_counts(py, notices, refusals);
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

    /// Reports, at the end and after the logs have been written, the events that were only counted.
    pub(crate) fn log_counts(&self, py: Python<'_>) {
        let counts = self.with(py, |state| {
            (state.app.access_log.as_ref().map(|log| log.take_notices(true)), state.app.refusals.take_counts(true))
        });
        if let Ok((notices, refusals)) = counts {
            self.log_given_counts(py, notices.unwrap_or_default(), refusals);
        }
    }

    fn log_given_counts(&self, py: Python<'_>, notices: Vec<String>, refusals: Vec<String>) {
        for notice in notices {
            self.log(py, WARNING, &format!("access log: {notice}"), None);
        }
        for refusals in refusals {
            self.log(py, INFO, &refusals, None);
        }
    }

    /// Calls the report hook. Writes to standard error if there is none.
    pub(super) fn log(&self, py: Python<'_>, level: u8, message: &str, error: Option<PyErr>) {
        let error = error.map(|error| error.into_value(py));
        if let Some(report) = &self.report {
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
}
