//! Connections that the application has taken over. It speaks to the client itself, and the end of the call ends the
//! connection.

use super::app::{INFO, WARNING};
use super::call::{is_greenlet_exit, subject};
use super::exchange::{Exchange, Upgraded};
use super::job::InFlight;
use super::state::EngineState;
use super::threads::Host;
use crate::clock;
use crate::gil::WithGil;
use crate::interface::{Handles as _, HijackId, HijackRefusal, Hijacked, Interface};
use engine::Progress;
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;

impl<I: Interface> EngineState<I> {
    /// See [`ExchangeHost::hijack`](super::exchange::ExchangeHost::hijack).
    pub(super) fn hijack(&mut self, py: Python<'_>, exchange: &Exchange) -> Result<Hijacked, HijackRefusal> {
        // The ticket is put back before the engine is unlocked.
        let ticket = exchange.with(py, |exchange| exchange.ticket.take()).ok_or(HijackRefusal::Over)?;
        let hijacked = self.engine.hijack(&ticket, clock::now(), WithGil::new(&mut self.app, py));
        exchange.with(py, |exchange| {
            exchange.ticket = Some(ticket);
            if hijacked.is_ok() {
                exchange.upgraded = Some(Upgraded::Hijacked);
                exchange.begun = true;
                exchange.draft.start_upgrade();
                // The call lasts as long as both sides want.
                self.calls.upgrade(exchange.key);
            }
        });
        hijacked
    }

    /// See [`ExchangeHost::end_hijack`](super::exchange::ExchangeHost::end_hijack).
    pub(super) fn end_hijack(&mut self, py: Python<'_>, id: HijackId) {
        self.engine.end_hijack(id, clock::now(), WithGil::new(&mut self.app, py));
    }
}

impl<I: Interface> Host<I> {
    /// Ends a call that had taken over its connection. `ignores`: the application has returned a body, which is not
    /// sent. A failure ends the connection at once; otherwise the application may still wait for its client's last
    /// bytes.
    pub(super) fn conclude_hijacked(&self, py: Python<'_>, call: InFlight<I>, result: PyResult<()>, ignores: bool) {
        let status = call.handles.exchange().with(py, |exchange| exchange.ignored_status);
        let progress = match result {
            // The server ends, and with it the greenlet.
            Err(error) if is_greenlet_exit(py, &error) => Progress::Cut,
            // The client has left. Applications also raise this to tell Werkzeug's server that there is no response.
            Err(error) if error.is_instance_of::<PyConnectionError>(py) => Progress::Done,
            Err(error) => {
                self.report_raised(py, &call, "on", error);
                Progress::Cut
            }
            Ok(()) if status >= 400 => {
                let subject = subject::<I>(py, &call.request);
                let message = format!(
                    "the application answered {status} on {subject} after it had taken the connection over, which is \
                     closed"
                );
                self.log(py, WARNING, &message, None);
                Progress::Cut
            }
            Ok(()) => {
                if ignores {
                    let subject = subject::<I>(py, &call.request);
                    let message = format!(
                        "the response of the application on {subject} is ignored, because it has taken the connection \
                         over: return an empty body"
                    );
                    self.log(py, INFO, &message, None);
                }
                Progress::Done
            }
        };
        self.end(py, call, progress);
    }
}
