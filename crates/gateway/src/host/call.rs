//! One call of the application, from its request to the end of its response. This code runs unlocked; only writing and
//! ending the response lock the engine briefly.
//!
//! ```text
//!   Job::run ──▶ begin ─┬─ one block ───────▶ Ending: written and ended by the caller, who locks the engine anyway
//!                       ├─ a body in parts ─▶ Stream ──▶ end
//!                       ├─ suspended ───────▶ Suspended … conclude ──▶ end
//!                       └─ failed ──────────▶ fail ──▶ end
//! ```
//!
//! A call never ends twice: [`end`](InFlight::end) and [`fail`](InFlight::fail) consume it.

use super::app::{AppState, ERROR, WARNING};
use super::exceptions::{broken_body, is_cancellation, is_greenlet_exit, says_client_left, says_no_more};
use super::exchange::ExchangeState;
use super::job::{
    Ending, Failure, InFlight, Job, MessageRules, Mismatch, OpenHandles, Request, Rest, Resumable, Stream,
};
use super::shared::Waiter;
use super::slices::encode_most;
use super::state::EngineState;
use super::threads::Host;
use crate::clock;
use crate::forks;
use crate::gil::WithGil;
use crate::interface::{Answer, Handles as _, Input, Interface, RequestBody};
use crate::stacks;
use engine::{Progress, Refusal, Reply, Stage, Ticket};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError};
use pyo3::intern;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wire::message::Draft;

/// The explanations in the response to the client: the application has failed, or has missed its deadline.
const FAILED: &str = "The application has failed.";
const TOO_LATE: &str = "The application did not answer in time.";

impl<I: Interface> Job<I> {
    /// Runs a job, in the engine's thread `worker` or (`None`) in the loop that hosts the engine. If this returns an
    /// ending, the caller must lock the engine, [end](EngineState::end_whole) it, unlock, and
    /// [release](Ending::release) it. Otherwise the job is complete.
    pub(super) fn run(
        self,
        host: &Host<I>,
        py: Python<'_>,
        worker: Option<usize>,
        handles: &mut Option<I::Handles>,
    ) -> Option<Ending<I>> {
        // If a call panics, the drop of its `OpenHandles` ends it.
        let run = catch_unwind(AssertUnwindSafe(|| {
            match self {
                Job::Call { ticket, request, key: Some(key) } => {
                    return InFlight::begin(host, py, (ticket, key), request, worker, handles.take());
                }
                Job::Call { ticket, key: None, .. } => host.cut_off(py, ticket, None),
                Job::Resume(ticket, Resumable::Stream(stream)) => stream.go_on(host, py, ticket),
                Job::Resume(ticket, Resumable::Listening(listening)) => listening.handle_message(host, py, ticket),
                Job::Abandon(Resumable::Stream(stream)) => stream.give_up(host, py),
                Job::Abandon(Resumable::Listening(listening)) => listening.abandon(host, py),
            }
            None
        }));
        run.unwrap_or_else(|_| {
            host.reports.log(py, ERROR, "this is a bug in kirsch, please report it: a panic in a call", None);
            None
        })
    }

    /// Runs a job and completes it. `worker` is the number of this thread among the threads beside the hosting loop;
    /// `None` in the loop itself.
    pub(crate) fn run_whole(self, host: &Host<I>, py: Python<'_>, worker: Option<usize>) {
        if let Some(mut ending) = self.run(host, py, worker, &mut None) {
            let ended = host.with(py, |state| state.end_whole(py, &mut ending));
            debug_assert!(ended.is_ok(), "a call does not run while the engine is locked");
            if let Some(handles) = ending.release(host, py) {
                host.interface.return_handles(py, handles);
            }
        }
    }

    /// Answers a request with 503, or closes a WebSocket with 1013, because no thread was free.
    pub(crate) fn refuse(mut self, host: &Host<I>, py: Python<'_>) {
        match &mut self {
            Job::Call { request, .. } => request.is_refused = true,
            Job::Resume(_, Resumable::Listening(listening)) => listening.close_overloaded(host, py),
            Job::Resume(..) | Job::Abandon(_) => {}
        }
        self.run_whole(host, py, None);
    }
}

impl<I: Interface> Ending<I> {
    /// Releases the objects that an ending still holds, or fails the call if its response could not be written. Returns
    /// the handles if they can be reused.
    pub(super) fn release(self, host: &Host<I>, py: Python<'_>) -> Option<I::Handles> {
        let Self { call, rest } = self;
        match rest {
            Rest::Release(ended) => return Some(call.release(py, ended)),
            Rest::Fail(failure) => call.fail(host, py, *failure),
            Rest::InProgress => call.fail(host, py, Failure::Mismatched(Mismatch::UNKNOWN)),
            // Dropping the handles of the call ends it.
            Rest::Write(_) => {}
        }
        None
    }
}

impl<I: Interface> InFlight<I> {
    /// Calls the application. `begun` is the ticket of the request, and the key of the call.
    fn begin(
        host: &Host<I>,
        py: Python<'_>,
        begun: (Ticket, usize),
        request: Request,
        worker: Option<usize>,
        handles: Option<I::Handles>,
    ) -> Option<Ending<I>> {
        let (ticket, key) = begun;
        let Request { object: Some(object), route, body, is_refused, limit, route_key, .. } = request else {
            host.cut_off(py, ticket, Some(key));
            return None;
        };
        let (is_chunked, takes_errors) = (request.is_chunked, request.takes_errors);
        let kept = handles.and_then(|mut handles| {
            let fit = host.interface.turn_handles(&mut handles, route);
            if fit {
                Some(handles)
            } else {
                host.interface.return_handles(py, handles);
                None
            }
        });
        let handles = match kept.map_or_else(|| host.interface.take_handles(py, route, &host.myself), Ok) {
            Ok(handles) => handles,
            Err(error) => {
                host.cut_off(py, ticket, Some(key));
                host.reports.log(py, ERROR, "no memory for a request", Some(error));
                return None;
            }
        };
        let handles = OpenHandles::open(py, handles, ticket, key);
        let may_upgrade = matches!(body, RequestBody::WebSocket);
        let mut call = Self::new(key, object, handles, matches!(body, RequestBody::Arriving));
        if is_refused {
            call.refuse(host, py);
            return None;
        }
        call.switch_stage(host, py, Stage::Environ);
        let answer = call.prepare(host, py, Input { body, is_chunked, takes_errors }).and_then(|()| {
            call.switch_stage(host, py, Stage::App);
            let answer = host.interface.call(py, call.request(), call.handles());
            if !host.origin.is_here() {
                leave::<I>(py, &answer);
            }
            call.switch_stage(host, py, Stage::Other);
            answer
        });
        if may_upgrade {
            return call.answer_upgrade(host, py, answer, MessageRules { limit, route_key }, worker);
        }
        match answer {
            Ok(Answer::Whole(chunk)) => {
                call.close_input(host, py);
                match encode_most(host, py, call.exchange(), chunk, true) {
                    Ok(Ok(chunk)) => return Some(Ending { call, rest: Rest::Write(chunk) }),
                    Ok(Err(mismatch)) => call.fail(host, py, Failure::Mismatched(mismatch)),
                    Err(error) => call.fail(host, py, Failure::Raised(error)),
                }
            }
            Ok(Answer::Body(body)) => Stream::start(call, body, worker, host, py),
            Ok(Answer::Suspended(waiter)) => call.suspend(host, py, waiter),
            Ok(Answer::Returned(result)) => call.conclude(host, py, result),
            Err(error) => call.fail(host, py, Failure::Raised(error)),
        }
        None
    }

    /// Switches the call to another stage, if the engine measures the stages of requests.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "where they are not, it costs a branch and not a call")]
    pub(super) fn switch_stage(&self, host: &Host<I>, py: Python<'_>, stage: Stage) {
        if host.times_stages {
            self.switch_measured(host, py, stage);
        }
    }

    #[cold]
    fn switch_measured(&self, host: &Host<I>, py: Python<'_>, stage: Stage) {
        let switched = host.with(py, |state| {
            self.exchange().with(py, |exchange| {
                exchange.ticket.as_ref().and_then(|ticket| state.engine.switch_stage(ticket, stage))
            })
        });
        switched.ok();
    }

    /// Adds the data of this call to its request object: the waiter and the input.
    fn prepare(&mut self, host: &Host<I>, py: Python<'_>, input: Input) -> PyResult<()> {
        if let Some(make_waiter) = host.hooks.waiter.as_ref().filter(|_| self.handles().may_block()) {
            let waiter = make_waiter.call0(py)?;
            let key = self.key();
            let has_expired = host.with(py, |state| {
                state.calls.set_waiter(key, waiter);
                state.take_up(key);
                state.calls.has_expired(key)
            })?;
            // Another call of the same poll blocked the loop until this call's deadline passed. The client already has
            // its 504, and nothing would interrupt this call later.
            if has_expired && let Some(exception) = &host.hooks.timeout_exception {
                return Err(PyErr::from_value(exception.bind(py).call0()?));
            }
        }
        let spooled = host.interface.prepare(py, self.request(), self.handles(), input)?;
        self.keep_input(spooled);
        Ok(())
    }

    /// Stores a call that has been suspended, and sends the response head if the application has set one.
    pub(super) fn suspend(self, host: &Host<I>, py: Python<'_>, waiter: Py<PyAny>) {
        let key = self.key();
        let suspended = host.with(py, |state| {
            state.calls.set_waiter(key, waiter);
            state.send_head(py, self.exchange());
        });
        debug_assert!(suspended.is_ok(), "a call does not run while the engine is locked");
        // From here on the time counts as the application's, both its waits and its work.
        self.switch_stage(host, py, Stage::App);
        host.suspended.keep(py, self);
    }

    /// Concludes a call that has returned or raised. Ends its response if it has not ended.
    pub(super) fn conclude(self, host: &Host<I>, py: Python<'_>, result: PyResult<()>) {
        if self.exchange().with(py, |exchange| exchange.is_over()) {
            if let Err(error) = result
                && !is_cancellation(py, &error)
            {
                self.report_raised(host, py, "after its response, on", error);
            }
            return self.release_answered(host, py);
        }
        if self.exchange().with(py, |exchange| exchange.upgraded.is_some()) {
            return self.conclude_websocket(host, py, result);
        }
        let (is_gone, has_left, is_expired) = host
            .with(py, |state| {
                let (is_gone, has_left) = self.exchange().with(py, |exchange| {
                    let Some(ticket) = &exchange.ticket else { return (false, false) };
                    (state.engine.is_gone(ticket), state.engine.has_peer_left(ticket))
                });
                (is_gone, has_left, state.calls.has_expired(self.key()))
            })
            .unwrap_or_default();
        match result {
            // This is the cancellation that interrupted the call at its deadline. Report it as a timeout.
            Err(error) if is_expired && is_cancellation(py, &error) => {
                let error = host.hooks.timeout_error(py).unwrap_or(error);
                self.fail(host, py, Failure::Raised(error));
            }
            Err(error) if is_gone && !is_expired => {
                self.report_left(host, py, "after its client had left, on", error);
                self.end(host, py, Progress::Cut);
            }
            Ok(()) if is_gone => self.end(host, py, Progress::Cut),
            result => {
                let error = match self.broken_body(host, py) {
                    // A client that has shut down its sending side has nearly always left, and the server has reported
                    // that to the application. So an early return or a disconnect exception is no error of the
                    // application.
                    None if has_left && !is_expired && says_no_more(py, &result) => {
                        return self.end(host, py, Progress::Cut);
                    }
                    None => result.err().unwrap_or_else(I::incomplete),
                    // The client is at fault, whether or not the application raised an exception.
                    Some(refusal) => {
                        if let Err(error) = result {
                            self.report_left(host, py, "after the body of its request had broken off, on", error);
                        }
                        broken_body(refusal)
                    }
                };
                self.fail(host, py, Failure::Raised(error));
            }
        }
    }

    /// Reports an exception that the application raised after its client had left, unless the exception itself only
    /// says that.
    pub(super) fn report_left(&self, host: &Host<I>, py: Python<'_>, when: &str, error: PyErr) {
        if !I::says_websocket_is_closed(py, &error) && !says_client_left(error.value(py)) {
            self.report_raised(host, py, when, error);
        }
    }

    /// Releases a call whose response ended before the call did.
    fn release_answered(self, host: &Host<I>, py: Python<'_>) {
        let ended = host.with(py, |state| state.calls.end(self.key()));
        if let Ok(ended) = ended {
            host.interface.return_handles(py, self.release(py, ended));
        }
    }

    /// Writes a part of the response by `write`.
    pub(super) fn write_part<R>(
        &self,
        host: &Host<I>,
        py: Python<'_>,
        write: impl FnOnce(&mut Reply<'_, WithGil<AppState<I>>>, &Draft) -> R,
    ) -> PyResult<R> {
        Ok(host.with(py, |state| {
            self.exchange().with(py, |exchange| {
                let Some(ticket) = &exchange.ticket else { unreachable!("the call has not ended") };
                let draft = &exchange.draft;
                let (written, is_begun) = state.engine.reply(ticket, |reply| (write(reply, draft), reply.is_begun()));
                exchange.begun |= is_begun;
                written
            })
        })?)
    }

    /// Writes the end of the response by `write`. The call itself continues.
    pub(super) fn write_last<R>(
        &self,
        host: &Host<I>,
        py: Python<'_>,
        write: impl FnOnce(&mut Reply<'_, WithGil<AppState<I>>>, &Draft) -> R,
    ) -> PyResult<R> {
        Ok(host.with(py, |state| {
            self.exchange().with(py, |exchange| {
                let Some(ticket) = &exchange.ticket else { unreachable!("the call has not ended") };
                exchange.begun = true;
                exchange.finished = true;
                let draft = &exchange.draft;
                state.engine.reply(ticket, |reply| write(reply, draft))
            })
        })?)
    }

    /// Ends a call that has failed. If the response head has not been sent, the client gets 500, 504 after a timeout,
    /// or the status for a broken request body; otherwise the connection is cut.
    pub(super) fn fail(self, host: &Host<I>, py: Python<'_>, failure: Failure) {
        self.switch_stage(host, py, Stage::Other);
        let mut refusal = (500, FAILED);
        let mut mismatched = None;
        match failure {
            Failure::Raised(error) if host.hooks.is_timeout(py, &error) => {
                refusal = (504, TOO_LATE);
                // The report of the missed deadline included the stack of the call, if this interpreter can show stacks
                // of other threads. So the traceback is logged only if it cannot.
                let error = (!stacks::are_shown()).then_some(error);
                let message = format!("{} was ended by kirsch.RequestTimeout", self.subject(py));
                host.log_call(py, WARNING, &message, error);
            }
            // A hosting loop that ends kills the remaining greenlets with this exception.
            Failure::Raised(error) if is_greenlet_exit(py, &error) && self.is_gone(host, py) => drop(error),
            Failure::Raised(error) => match self.broken_body(host, py) {
                // The server's own read() raised the exception: the client is at fault, not the application.
                Some(broken) if error.is_instance_of::<PyOSError>(py) => {
                    refusal = (broken.status, "The request body did not arrive as announced.");
                    let message = format!("{}, of {}", error.value(py), self.subject(py));
                    host.log_call(py, WARNING, &message, None);
                }
                _ => self.report_raised(host, py, "on", error),
            },
            Failure::Mismatched(mismatch) => mismatched = Some(mismatch),
        }
        let (status, explanation) = refusal;
        let refused = self.write_last(host, py, |reply, _| reply.fail(status, explanation)).unwrap_or(false);
        if let Some(mismatch) = mismatched {
            let outcome = if refused { "; 500 was sent" } else { "; the connection is cut" };
            self.report_mismatch(host, py, mismatch, outcome);
        }
        if refused {
            // The access log shows the status that the client received.
            let _ = self.exchange().with(py, |exchange| exchange.draft.start_refusal(status));
        }
        self.end(host, py, if refused { Progress::Done } else { Progress::Cut });
    }

    /// Answers a call with 503, because the maximum number of calls is running or its route is in quarantine. The
    /// client may retry.
    #[cold]
    fn refuse(self, host: &Host<I>, py: Python<'_>) {
        let refusal = Refusal::of_status(503);
        let refused =
            self.write_last(host, py, |reply, _| reply.fail(refusal.status, refusal.explanation())).unwrap_or(false);
        let _ = self.exchange().with(py, |exchange| exchange.draft.start_refusal(refusal.status));
        let noted = host.with(py, |state| state.app.note_refusal(py, refusal, Some(self.request())));
        debug_assert!(noted.is_ok(), "a call does not run while the engine is locked");
        self.end(host, py, if refused { Progress::Done } else { Progress::Cut });
    }

    fn is_gone(&self, host: &Host<I>, py: Python<'_>) -> bool {
        let is_gone = |state: &mut EngineState<I>| {
            self.exchange()
                .with(py, |exchange| exchange.ticket.as_ref().is_some_and(|ticket| state.engine.is_gone(ticket)))
        };
        host.with(py, is_gone).unwrap_or(false)
    }

    /// Returns the refusal for a request whose body is malformed or incomplete; `None` if the body is intact.
    pub(super) fn broken_body(&self, host: &Host<I>, py: Python<'_>) -> Option<Refusal> {
        if !self.is_arriving() {
            return None;
        }
        let read = |state: &mut EngineState<I>| {
            self.exchange().with(py, |exchange| {
                let ticket = exchange.ticket.as_ref()?;
                Some(state.engine.read(ticket, &mut [], clock::now(), WithGil::new(&mut state.app, py)))
            })
        };
        if let engine::Input::Broken(refusal) = host.with(py, read).ok()?? { Some(refusal) } else { None }
    }

    /// Ends a call whose response is complete or cut. Logs it, and releases the objects that it held.
    pub(super) fn end(mut self, host: &Host<I>, py: Python<'_>, progress: Progress<Resumable<I>>) {
        self.switch_stage(host, py, Stage::Other);
        self.close_input(host, py);
        let ended = host.with(py, |state| {
            let ticket = self.exchange().with(py, ExchangeState::take_ticket_for_good);
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let body_bytes = match self.exchange().with(py, |exchange| exchange.websocket()) {
                Some(id) => {
                    state.app.wake_waiter(Waiter::WebSocket(id.serial()));
                    state.engine.websocket_state(id).1
                }
                None => state.engine.reply(&ticket, |reply| reply.body_bytes()),
            };
            let ended = state.end_call(py, &self, body_bytes);
            state.complete(py, ticket, progress, clock::now());
            ended
        });
        if let Ok(ended) = ended {
            host.interface.return_handles(py, self.release(py, ended));
        }
    }

    pub(super) fn close_input(&mut self, host: &Host<I>, py: Python<'_>) {
        if let Some(file) = self.take_input()
            && let Err(error) = file.bind(py).call_method0(intern!(py, "close"))
        {
            self.report_raised(host, py, "while its input was closed, on", error);
        }
    }

    pub(super) fn report_raised(&self, host: &Host<I>, py: Python<'_>, when: &str, error: PyErr) {
        let message = format!("the application raised an exception {when} {}", self.subject(py));
        let is_interrupt = error.is_instance_of::<PyKeyboardInterrupt>(py);
        // A supervised worker gets no KeyboardInterrupt from a signal, so the application raised it; it must not end
        // other requests.
        let is_supervised = || host.with(py, |state| state.app.replacement.is_some()).unwrap_or(false);
        let again = (is_interrupt && !is_supervised()).then(|| error.clone_ref(py));
        host.log_call(py, ERROR, &message, Some(error));
        if let Some(interrupt) = again {
            host.fail_with(py, interrupt);
        }
    }

    pub(super) fn report_mismatch(&self, host: &Host<I>, py: Python<'_>, mismatch: Mismatch, outcome: &str) {
        let message = format!("{mismatch}, on {}{outcome}", self.subject(py));
        host.log_call(py, ERROR, &message, None);
    }

    /// Ends a suspended call that cannot finish, because the loop that hosted the engine has ended.
    pub(super) fn abandon(self, host: &Host<I>, py: Python<'_>) {
        if self.exchange().with(py, |exchange| exchange.is_over()) {
            self.release_answered(host, py);
        } else {
            self.end(host, py, Progress::Cut);
        }
    }
}

/// Ends this process if it is a child that the application has forked and the call has returned in it.
#[cold]
fn leave<I: Interface>(py: Python<'_>, answer: &PyResult<Answer<I::Body>>) {
    match answer {
        Ok(Answer::Returned(result)) => forks::leave(py, result),
        Ok(Answer::Suspended(_)) => forks::leave_awaiting(py),
        answer => forks::leave(py, answer),
    }
}
