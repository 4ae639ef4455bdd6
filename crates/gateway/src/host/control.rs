//! Requests to a running engine, from any thread or signal handler, and the delivery of the engine's reports.

use super::app::ERROR;
use super::shared::{ControlRequest, Stop};
use super::threads::Host;
use crate::access_log::AccessLog;
use crate::clock;
use crate::interface::Interface;
use pyo3::prelude::*;

impl<I: Interface> Host<I> {
    /// Handles the pending requests, and wakes the engine if it waits.
    pub(crate) fn wake(&self, py: Python<'_>) {
        self.obey(py);
        self.waker.wake();
    }

    /// Adds a request and wakes the engine. May be called in any thread and in signal handlers; never blocks.
    pub(crate) fn request(&self, py: Python<'_>, control: ControlRequest) {
        self.pending.put_down(control);
        self.wake(py);
    }

    /// Requests each engine of the server to stop.
    pub(super) fn stop_all(&self, py: Python<'_>, stop: Stop) {
        for host in self.shared.hosts() {
            host.request(py, ControlRequest::stop(stop));
        }
    }

    pub(crate) fn reopen_logs(&self, py: Python<'_>) -> PyResult<()> {
        let reopened = self.with(py, |state| state.app.access_log.as_mut().map_or(Ok(()), AccessLog::reopen));
        if let Ok(result) = reopened {
            return result;
        }
        // This thread already holds the lock, so another thread reopens the logs later.
        self.pending.put_down(ControlRequest { reopen_logs: true, ..ControlRequest::default() });
        self.waker.wake();
        Ok(())
    }

    /// Handles the pending requests. If this thread already holds the lock, another thread handles them later.
    pub(super) fn obey(&self, py: Python<'_>) {
        let Some(control) = self.pending.take() else { return };
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
            self.pending.put_down(control);
        }
    }

    /// Ends the server because of an exception.
    pub(crate) fn fail_with(&self, py: Python<'_>, error: PyErr) {
        self.shared.fail(py, error);
        self.stop_all(py, Stop::NOW);
    }

    /// Raises the error that has ended the server, if there is one.
    pub(crate) fn fail_if_failed(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(error) = self.shared.take_failure(py) {
            return Err(error);
        }
        self.with(py, |state| state.take_failure())?.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Delivers the messages that were stored while the lock was held. If `is_idle` is true, there is also time to
    /// write the access log and to return memory to the system.
    pub(super) fn tidy(&self, py: Python<'_>, is_idle: bool) {
        let put_down = self.with(py, |state| {
            if is_idle {
                state.app.return_memory();
            }
            // This runs before each wait, and usually there is nothing to deliver, so check cheaply.
            state.app.may_have_news().then(|| {
                let notes = state.app.has_notes().then(|| state.app.take_notes(py));
                if is_idle {
                    state.app.access_log.iter_mut().for_each(AccessLog::flush);
                }
                let notices = state.app.access_log.as_ref().map(|log| log.take_notices(false));
                (notes, notices.unwrap_or_default(), state.app.refusals.take_counts(false))
            })
        });
        // The call of `with` failed if this thread already holds the lock. Another thread delivers the messages later.
        if let Ok(Some((notes, notices, refusals))) = put_down {
            self.reports.deliver(py, notes, notices, refusals);
        }
    }

    /// Reports the events that were only counted. Called at the end, after the logs have been written.
    pub(crate) fn log_counts(&self, py: Python<'_>) {
        let counts = self.with(py, |state| {
            (state.app.access_log.as_ref().map(|log| log.take_notices(true)), state.app.refusals.take_counts(true))
        });
        if let Ok((notices, refusals)) = counts {
            self.reports.log_counts(py, notices.unwrap_or_default(), refusals);
        }
    }
}
