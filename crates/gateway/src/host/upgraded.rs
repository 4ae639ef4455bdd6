//! Calls whose requests became WebSockets or hijacked connections: the effect of the application's answer, and the end
//! of the call.
//!
//! After the upgrade there is no response. The application's answer is ignored, and a message reports it unless it is
//! empty.

use super::app::{INFO, WARNING};
use super::exceptions::{is_cancellation, is_greenlet_exit};
use super::job::{Ending, Failure, InFlight, Listening, MessageRules, Rest, Stream};
use super::state::EngineState;
use super::threads::Host;
use crate::interface::{Answer, Interface, ResponseBody};
use crate::object::Chunk;
use engine::Progress;
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use wire::websocket::CloseCode;

impl<I: Interface> InFlight<I> {
    fn is_upgraded(&self, py: Python<'_>) -> bool {
        self.exchange().is_upgraded(py)
    }

    /// Handles the application's answer to a request for a WebSocket. The answer is ignored if the application has
    /// accepted.
    pub(super) fn answer_upgrade(
        self,
        host: &Host<I>,
        py: Python<'_>,
        answer: PyResult<Answer<I::Body>>,
        rules: MessageRules,
        worker: Option<usize>,
    ) -> Option<Ending<I>> {
        match answer {
            Ok(Answer::Whole(chunk)) if !self.is_upgraded(py) => {
                return Some(Ending { call: self, rest: Rest::Write(chunk) });
            }
            Ok(Answer::Whole(chunk)) => self.conclude_upgrade(host, py, !chunk.as_ref().is_empty(), rules),
            Ok(Answer::Body(body)) => self.respond_or_ignore(host, py, body, rules, worker),
            Ok(Answer::Suspended(waiter)) => self.suspend(host, py, waiter),
            Ok(Answer::Returned(result)) => self.conclude(host, py, result),
            Err(error) if self.is_upgraded(py) => self.conclude_websocket(host, py, Err(error)),
            Err(error) => self.fail(host, py, Failure::Raised(error)),
        }
        None
    }

    /// Sends the response with which the application rejects the WebSocket. If the application accepts while it still
    /// yields parts, these parts are ignored.
    fn respond_or_ignore(
        self,
        host: &Host<I>,
        py: Python<'_>,
        mut body: I::Body,
        rules: MessageRules,
        worker: Option<usize>,
    ) {
        if !self.is_upgraded(py) && body.regular_file(py).is_some() {
            return Stream::start(self, body, worker, host, py);
        }
        let mut ignores = false;
        let pulled = host.origin.come_back(py, body.start(py)).and_then(|()| {
            loop {
                match host.origin.come_back(py, body.next(py))? {
                    None => return Ok(None),
                    Some(chunk) if self.is_upgraded(py) => ignores |= !chunk.as_ref().is_empty(),
                    Some(chunk) if chunk.as_ref().is_empty() => {}
                    Some(chunk) => return PyResult::<Option<Chunk>>::Ok(Some(chunk)),
                }
            }
        });
        let is_upgraded = self.is_upgraded(py);
        let stream = Stream { call: self, body, body_bytes: 0, first: None, worker };
        match pulled {
            Ok(first) if !is_upgraded => Box::new(Stream { first, ..stream }).pump(host, py),
            Ok(_) => {
                let call = stream.close(host, py);
                call.conclude_upgrade(host, py, ignores, rules);
            }
            Err(error) => {
                let call = stream.close(host, py);
                if is_upgraded {
                    call.conclude_websocket(host, py, Err(error));
                } else {
                    call.fail(host, py, Failure::Raised(error));
                }
            }
        }
    }

    /// Continues after the application has accepted and returned. `ignores` is true if it returned a body that is not
    /// empty.
    fn conclude_upgrade(self, host: &Host<I>, py: Python<'_>, ignores: bool, rules: MessageRules) {
        let exchange = self.exchange();
        if !exchange.is_websocket(py) {
            return self.conclude_hijacked(host, py, Ok(()), ignores);
        }
        let (handler, status) = exchange.with(py, |state| (state.handler.take(), state.ignored_status));
        if status >= 400 {
            let subject = self.subject(py);
            let message = format!(
                "the application answered {status} on {subject} after it had accepted the WebSocket, which is closed \
                 with 1011"
            );
            host.reports.log(py, WARNING, &message, None);
            self.close_failed(host, py);
            drop(handler);
            return self.end(host, py, Progress::Done);
        }
        if ignores {
            let subject = self.subject(py);
            let message = format!(
                "the response of the application on {subject} is ignored, because the request has become a WebSocket: \
                 return an empty body"
            );
            host.reports.log(py, INFO, &message, None);
        }
        match handler {
            None => self.conclude_websocket(host, py, Ok(())),
            Some(handler) => Listening::begin(self, handler, rules, host, py),
        }
    }

    /// Closes the WebSocket of a call with 1011, if it is still open.
    pub(super) fn close_failed(&self, host: &Host<I>, py: Python<'_>) {
        let exchange = self.exchange();
        let closed = host.with_waking(py, |state| {
            state.close_websocket(py, exchange, CloseCode::INTERNAL_ERROR, "");
        });
        debug_assert!(closed.is_ok(), "a call does not run while the engine is locked");
    }

    /// Ends a WebSocket whose call has ended: with 1011 if the application failed, otherwise with 1000.
    pub(super) fn conclude_websocket(self, host: &Host<I>, py: Python<'_>, result: PyResult<()>) {
        let exchange = self.exchange();
        if !exchange.is_websocket(py) {
            return self.conclude_hijacked(host, py, result, false);
        }
        let end = host.with(py, |state| state.websocket_state(py, exchange).0).ok().flatten();
        match (result, end) {
            (Ok(()), _) => {}
            (Err(error), Some(end)) if !end.is_own => {
                self.report_left(host, py, "after its client had closed the WebSocket, on", error);
            }
            (Err(error), Some(_)) if I::says_websocket_is_closed(py, &error) => {}
            // The server is ending: the application closed the WebSocket and was cancelled while it cleaned up. This is
            // no error.
            (Err(error), Some(_)) if is_cancellation(py, &error) => {}
            (Err(error), _) => {
                self.report_raised(host, py, "on", error);
                let failed = |state: &mut EngineState<I>| {
                    state.close_websocket(py, exchange, CloseCode::INTERNAL_ERROR, "");
                };
                let closed = host.with(py, failed);
                debug_assert!(closed.is_ok(), "a call does not end while the engine is locked");
            }
        }
        self.end(host, py, Progress::Done);
    }

    /// Ends a call that took over its connection. `ignores` is true if the application returned a body, which is not
    /// sent. After a failure the connection is cut at once; otherwise it stays until the application closes its socket.
    pub(super) fn conclude_hijacked(self, host: &Host<I>, py: Python<'_>, result: PyResult<()>, ignores: bool) {
        let status = self.exchange().with(py, |exchange| exchange.ignored_status);
        let progress = match result {
            // The server is ending, and kills its greenlets.
            Err(error) if is_greenlet_exit(py, &error) => Progress::Cut,
            // The client has left. Applications also raise this to tell Werkzeug's server that they send no response.
            Err(error) if error.is_instance_of::<PyConnectionError>(py) => Progress::Done,
            Err(error) => {
                self.report_raised(host, py, "on", error);
                Progress::Cut
            }
            Ok(()) if status >= 400 => {
                let subject = self.subject(py);
                let message = format!(
                    "the application answered {status} on {subject} after it had taken the connection over, which is \
                     closed"
                );
                host.reports.log(py, WARNING, &message, None);
                Progress::Cut
            }
            Ok(()) => {
                if ignores {
                    let subject = self.subject(py);
                    let message = format!(
                        "the response of the application on {subject} is ignored, because it has taken the connection \
                         over: return an empty body"
                    );
                    host.reports.log(py, INFO, &message, None);
                }
                Progress::Done
            }
        };
        self.end(host, py, progress);
    }
}
