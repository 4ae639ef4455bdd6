//! One call of the application, from its request to the end of its response. All of this runs unlocked, except that
//! writing the response, and ending it, locks the engine for a moment.

use super::app::{AppState, ERROR, WARNING};
use super::calls::Ended;
use super::exchange::ExchangeState;
use super::job::{
    Ending, Failure, InFlight, Job, MessageRules, Mismatch, OpenHandles, Request, Rest, Resumable, Stream,
};
use super::shared::Waiter;
use super::state::EngineState;
use super::threads::Host;
use super::waiting::take_back_interrupt;
use crate::clock;
use crate::gil::WithGil;
use crate::interface::{Answer, Handles as _, Input, Interface, RequestBody, ResponseBody};
use crate::object::{Chunk, Object};
use crate::stacks;
use crate::text::escaped;
use engine::{Progress, Refusal, Reply, Stage, Ticket};
use pyo3::exceptions::{PyBaseException, PyKeyboardInterrupt, PyOSError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wire::message::{Draft, Misuse};

/// The explanations that the client gets when the application fails or is too late.
const FAILED: &str = "The application has failed.";
const TOO_LATE: &str = "The application did not answer in time.";

/// The number of empty blocks that a response body may yield before other calls run. An empty block means "not yet".
const EMPTY_PER_POLL: usize = 64;

/// The way in which a response that goes on later is given back to the engine.
type Suspension<I> = fn(Resumable<I>) -> Progress<Resumable<I>>;

/// The reason why no further part of a response body is requested.
enum Pumped {
    /// The client has not taken the last part yet.
    Blocked,
    /// Other calls should run first.
    Due,
    /// The body has ended, or no more of it is needed, and the response has begun. The misuse is one for which
    /// [`Exchange::write`](crate::interface::Exchange::write) has raised an exception in the application.
    Ended(Option<Misuse>),
    /// The body is longer than was declared.
    TooLong(Mismatch),
    /// The client has left.
    Gone,
}

impl<I: Interface> Host<I> {
    /// Runs a job, in the engine's thread `worker` or in a loop that hosts the engine. The job is complete afterwards,
    /// unless this returns an ending: the caller has to [end](EngineState::end_whole) it, locked, and then
    /// [release](Self::release) it.
    pub(super) fn run(
        &self,
        py: Python<'_>,
        job: Job<I>,
        worker: Option<usize>,
        handles: &mut Option<I::Handles>,
    ) -> Option<Ending<I>> {
        // A call that panics ends when its handles are dropped, see the drop of `OpenHandles`.
        let run = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Call { ticket, request, key: Some(key) } => {
                self.call(py, ticket, request, key, worker, handles.take())
            }
            Job::Call { ticket, key: None, .. } => {
                self.cut_off_call(py, ticket, None);
                None
            }
            Job::Resume(ticket, Resumable::Stream(stream)) => {
                self.resume(py, &stream, Some(ticket));
                self.pump(py, stream);
                None
            }
            Job::Resume(ticket, Resumable::Listening(listening)) => {
                self.handle_message(py, listening, ticket);
                None
            }
            Job::Abandon(Resumable::Stream(stream)) => {
                self.resume(py, &stream, None);
                self.abandon(py, *stream);
                None
            }
            Job::Abandon(Resumable::Listening(listening)) => {
                self.abandon_listening(py, listening);
                None
            }
        }));
        run.unwrap_or_else(|_| {
            self.log(py, ERROR, "this is a bug in kirsch, please report it: a panic in a call", None);
            None
        })
    }

    /// Runs a job and completes it. `worker` is the number of this thread, if it is one beside the loop that hosts the
    /// engine.
    pub(crate) fn run_whole(&self, py: Python<'_>, job: Job<I>, worker: Option<usize>) {
        if let Some(mut ending) = self.run(py, job, worker, &mut None) {
            let ended = self.with(py, |state| state.end_whole(py, &mut ending));
            debug_assert!(ended.is_ok(), "a call does not run while the engine is locked");
            if let Some(handles) = self.release(py, ending) {
                self.interface.return_handles(py, handles);
            }
        }
    }

    /// Resumes the stream's call. Its time counts only from now on, because it may have waited for its thread.
    fn resume(&self, py: Python<'_>, stream: &Stream<I>, ticket: Option<Ticket>) {
        let call = &stream.call;
        let resumed = self.with(py, |state| {
            state.calls.resume(call.key, ticket.is_none(), clock::now().monotonic);
            call.handles.exchange().with(py, |exchange| {
                exchange.ticket = ticket;
                if let Some(ticket) = &exchange.ticket {
                    state.engine.switch_stage(ticket, Stage::App);
                }
            });
        });
        debug_assert!(resumed.is_ok(), "a call does not run while the engine is locked");
    }

    fn call(
        &self,
        py: Python<'_>,
        ticket: Ticket,
        request: Request,
        key: usize,
        worker: Option<usize>,
        handles: Option<I::Handles>,
    ) -> Option<Ending<I>> {
        let Request { object: Some(object), route, body, is_refused, limit, route_key, .. } = request else {
            self.cut_off_call(py, ticket, Some(key));
            return None;
        };
        let (is_chunked, takes_errors) = (request.is_chunked, request.takes_errors);
        let kept = handles.and_then(|mut handles| {
            let fit = self.interface.turn_handles(&mut handles, route);
            if fit {
                Some(handles)
            } else {
                self.interface.return_handles(py, handles);
                None
            }
        });
        let handles = match kept.map_or_else(|| self.interface.take_handles(py, route, &self.myself), Ok) {
            Ok(handles) => handles,
            Err(error) => {
                self.cut_off_call(py, ticket, Some(key));
                self.log(py, ERROR, "no memory for a request", Some(error));
                return None;
            }
        };
        let handles = OpenHandles::open(py, handles, ticket, key);
        let is_arriving = matches!(body, RequestBody::Arriving);
        let may_upgrade = matches!(body, RequestBody::WebSocket);
        let mut call = InFlight { key, request: object, handles, spooled: None, is_arriving };
        if is_refused {
            self.refuse(py, call);
            return None;
        }
        self.switch_call(py, &call, Stage::Environ);
        let answer = self.prepare(py, &mut call, Input { body, is_chunked, takes_errors }).and_then(|()| {
            self.switch_call(py, &call, Stage::App);
            let answer = self.interface.call(py, &call.request, &call.handles);
            let answer = self.come_back_with(py, answer);
            self.switch_call(py, &call, Stage::Other);
            answer
        });
        if may_upgrade {
            return self.answer_upgrade(py, call, answer, MessageRules { limit, route_key }, worker);
        }
        match answer {
            Ok(Answer::Whole(chunk)) => {
                self.close_input(py, &mut call);
                return Some(Ending { call, rest: Rest::Write(chunk) });
            }
            Ok(Answer::Body(body)) => self.respond(py, call, body, worker),
            Ok(Answer::Suspended(waiter)) => self.suspend_call(py, call, waiter),
            Ok(Answer::Returned(result)) => self.conclude_call(py, call, result),
            Err(error) => self.fail(py, call, Failure::Raised(error)),
        }
        None
    }

    /// Completes the request with the data that belong to this call alone.
    fn prepare(&self, py: Python<'_>, call: &mut InFlight<I>, input: Input) -> PyResult<()> {
        if let Some(make_waiter) = self.hooks.waiter.as_ref().filter(|_| call.handles.may_block()) {
            let waiter = make_waiter.call0(py)?;
            let key = call.key;
            let has_expired = self.with(py, |state| {
                state.calls.set_waiter(key, waiter);
                state.take_up(key);
                state.calls.has_expired(key)
            })?;
            // Another call of the same poll has held up the loop. The client has been answered, and nothing would interrupt
            // this call.
            if has_expired && let Some(exception) = &self.hooks.timeout_exception {
                return Err(PyErr::from_value(exception.bind(py).call0()?));
            }
        }
        call.spooled = self.interface.prepare(py, &call.request, &call.handles, input)?;
        Ok(())
    }

    /// Switches the call to another stage, if the stages of requests are measured.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "where they are not, it costs a branch and not a call")]
    pub(super) fn switch_call(&self, py: Python<'_>, call: &InFlight<I>, stage: Stage) {
        if self.times_stages {
            self.switch_stage(py, call, stage);
        }
    }

    #[cold]
    fn switch_stage(&self, py: Python<'_>, call: &InFlight<I>, stage: Stage) {
        let switched = self.with(py, |state| {
            call.handles.exchange().with(py, |exchange| {
                exchange.ticket.as_ref().and_then(|ticket| state.engine.switch_stage(ticket, stage))
            })
        });
        switched.ok();
    }

    /// Writes a response that the application makes part by part.
    pub(super) fn respond(&self, py: Python<'_>, call: InFlight<I>, body: I::Body, worker: Option<usize>) {
        self.switch_call(py, &call, Stage::App);
        let stream = Box::new(Stream { call, body, body_bytes: 0, first: None, worker });
        let Err(mut stream) = self.send_file(py, stream) else { return };
        match self.come_back(py, stream.body.start(py)) {
            Ok(()) => self.pump(py, stream),
            Err(error) => {
                let Stream { call, body, .. } = *stream;
                // Only the first error is reported.
                drop(body.close(py));
                self.fail(py, call, Failure::Raised(error));
            }
        }
    }

    /// Releases the objects that an ending still holds, or fails the call if its response could not be written. The
    /// handles may be used again if they are returned.
    pub(super) fn release(&self, py: Python<'_>, Ending { call, rest }: Ending<I>) -> Option<I::Handles> {
        match rest {
            Rest::Release(ended) => Some(release_call(py, call, ended)),
            Rest::Fail(failure) => {
                self.fail(py, call, *failure);
                None
            }
            Rest::InProgress => {
                self.fail(py, call, Failure::Mismatched(Mismatch::UNKNOWN));
                None
            }
            // Dropping its handles ends the call.
            Rest::Write(_) => None,
        }
    }

    /// Sends a regular file without reading it. Returns the stream if it has to be read.
    fn send_file(&self, py: Python<'_>, stream: Box<Stream<I>>) -> Result<(), Box<Stream<I>>> {
        let fits = |exchange: &mut ExchangeState| !exchange.draft.is_empty() && !exchange.begun;
        if !stream.call.handles.exchange().with(py, fits) {
            return Err(stream);
        }
        let Some((file, offset, left)) = stream.body.regular_file(py) else { return Err(stream) };
        let written = self.write_part(py, &stream.call, |reply, draft| {
            if reply.is_begun() || draft.is_empty() {
                // Another thread has interfered.
                return Err(I::unstarted());
            }
            // A file that is longer than the declared length is cut there (PEP 3333).
            let length = draft.content_length().map_or(left, |declared| declared.min(left));
            if let Err(misuse @ Misuse::BodyTooShort) = reply.check_length(draft, left) {
                return Ok(Some(Mismatch::of(misuse, draft, left)));
            }
            reply.begin(draft, Some(left));
            let written = reply.write_file(file, offset, length);
            debug_assert!(written.is_ok(), "the length is at most what was declared");
            Ok(None)
        });
        match written.and_then(|written| written) {
            Ok(None) => self.complete(py, *stream, None),
            Ok(Some(mismatch)) => self.break_off(py, *stream, Failure::Mismatched(mismatch)),
            Err(error) => self.break_off(py, *stream, Failure::Raised(error)),
        }
        Ok(())
    }

    /// Requests parts of a stream and sends them, as far as the client reads.
    pub(super) fn pump(&self, py: Python<'_>, mut stream: Box<Stream<I>>) {
        loop {
            match self.pump_some(py, &mut stream) {
                Ok(Pumped::Blocked) if stream.worker.is_some() => return self.suspend(py, stream, Progress::Blocked),
                // A greenlet waits for its client here.
                Ok(Pumped::Blocked) => {
                    if let Err(error) = self.wait_for_output(py, stream.call.handles.exchange()) {
                        return self.break_off(py, *stream, Failure::Raised(error));
                    }
                }
                Ok(Pumped::Due) => return self.suspend(py, stream, Progress::Yield),
                Ok(Pumped::Gone) => return self.abandon_running(py, *stream),
                Ok(Pumped::Ended(misuse)) => return self.complete(py, *stream, misuse),
                Ok(Pumped::TooLong(mismatch)) => return self.break_off(py, *stream, Failure::Mismatched(mismatch)),
                Err(error) => return self.break_off(py, *stream, Failure::Raised(error)),
            }
        }
    }

    /// Sends parts until one has to wait, or the body ends. No part waits for the next (PEP 3333, "Buffering and
    /// Streaming"): `Reply::send_soon` sends a part within a tick, and the first part at once.
    ///
    /// # Errors
    /// The exception that the application raised, or one for an invalid response of the application.
    fn pump_some(&self, py: Python<'_>, stream: &mut Stream<I>) -> PyResult<Pumped> {
        let mut empty = 0;
        while let Some(chunk) = self.next_part(py, stream)? {
            if chunk.as_ref().is_empty() {
                empty += 1;
                if empty == EMPTY_PER_POLL {
                    return Ok(Pumped::Due);
                }
                continue;
            }
            let ends_at_length = stream.body.ends_at_length();
            let (stop, body_bytes) = self.write_part(py, &stream.call, |reply, draft| {
                if !reply.is_begun() {
                    if draft.is_empty() {
                        return Err(I::unstarted());
                    }
                    reply.begin(draft, None);
                }
                let is_whole = if ends_at_length {
                    reply.write_fitting(chunk)
                } else if let Err(misuse) = reply.write(chunk) {
                    return Ok((Some(Pumped::TooLong(Mismatch::of(misuse, draft, reply.offered_bytes()))), 0));
                } else {
                    false
                };
                reply.send_soon();
                let stop = if is_whole || reply.is_bodiless() {
                    // HEAD, 204, 304: the client gets the head alone, and the rest of the body could be endless.
                    Some(Pumped::Ended(None))
                } else if reply.is_gone() {
                    Some(Pumped::Gone)
                } else if reply.is_full() {
                    Some(Pumped::Blocked)
                } else if reply.is_due() {
                    Some(Pumped::Due)
                } else {
                    None
                };
                Ok((stop, reply.body_bytes()))
            })??;
            stream.body_bytes = body_bytes;
            if let Some(stop) = stop {
                return Ok(stop);
            }
        }
        let exchange = stream.call.handles.exchange();
        if !exchange.with(py, |exchange| exchange.begun) {
            self.write_part(py, &stream.call, |reply, draft| {
                if reply.is_begun() {
                    return Ok(());
                }
                if draft.is_empty() {
                    return Err(I::unstarted());
                }
                // A body without parts has a known length.
                reply.begin(draft, Some(0));
                Ok(())
            })??;
        }
        Ok(Pumped::Ended(exchange.with(py, |exchange| exchange.misuse.take())))
    }

    fn next_part(&self, py: Python<'_>, stream: &mut Stream<I>) -> PyResult<Option<Chunk>> {
        match stream.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.come_back(py, stream.body.next(py)),
        }
    }

    /// Gives the stream to the engine until it may go on.
    fn suspend(&self, py: Python<'_>, stream: Box<Stream<I>>, how: Suspension<I>) {
        let suspended = self.with(py, |state| {
            let ticket = stream.call.handles.exchange().with(py, |exchange| exchange.ticket.take());
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let now = clock::now();
            state.calls.suspend(stream.call.key, now.monotonic);
            state.complete(py, ticket, how(Resumable::Stream(stream)), now);
        });
        debug_assert!(suspended.is_ok(), "a call does not run while the engine is locked");
    }

    /// Ends the response of a stream whose body has ended.
    fn complete(&self, py: Python<'_>, stream: Stream<I>, misuse_in_write: Option<Misuse>) {
        // The application may take its time to clean up; the client need not wait for that.
        let finished = self.write_last(py, &stream.call, |reply, draft| {
            let finished = reply.finish();
            if finished.is_ok() {
                reply.flush();
            }
            let misuse = finished.err();
            let mismatch = misuse.or(misuse_in_write).map(|misuse| Mismatch::of(misuse, draft, reply.offered_bytes()));
            (misuse.is_some(), mismatch)
        });
        let call = self.close(py, stream);
        match finished {
            Ok((false, None)) => self.end(py, call, Progress::Done),
            // `write` has raised this in the application, which has gone on. `write` has sent nothing of the excess.
            Ok((false, Some(mismatch))) => {
                self.report_mismatch(py, &call, mismatch, "");
                self.end(py, call, Progress::Done);
            }
            Ok((true, mismatch)) => {
                self.fail(py, call, Failure::Mismatched(mismatch.unwrap_or(Mismatch::UNKNOWN)));
            }
            Err(error) => self.fail(py, call, Failure::Raised(error)),
        }
    }

    /// Ends a stream whose body the application has failed to produce.
    fn break_off(&self, py: Python<'_>, stream: Stream<I>, failure: Failure) {
        let call = self.close(py, stream);
        self.fail(py, call, failure);
    }

    /// Ends a stream whose client has left, or whose application has accepted a WebSocket while a part was requested.
    fn abandon_running(&self, py: Python<'_>, stream: Stream<I>) {
        let call = self.close(py, stream);
        if call.handles.exchange().is_websocket(py) {
            let subject = subject::<I>(py, &call.request);
            let message = format!(
                "the application accepted the WebSocket on {subject} while a part of its response was read; it is closed \
                 with 1011"
            );
            self.log(py, WARNING, &message, None);
            self.close_failed(py, &call);
            return self.end(py, call, Progress::Done);
        }
        self.end(py, call, Progress::Cut);
    }

    /// Ends a suspended stream whose client has left. Its connection is gone already.
    fn abandon(&self, py: Python<'_>, stream: Stream<I>) {
        let body_bytes = stream.body_bytes;
        let mut call = self.close(py, stream);
        self.close_input(py, &mut call);
        let ended = self.with(py, |state| {
            call.handles.exchange().with(py, ExchangeState::take_ticket_for_good);
            state.end_call(py, &call, body_bytes)
        });
        if let Ok(ended) = ended {
            self.interface.return_handles(py, release_call(py, call, ended));
        }
    }

    /// Closes a stream's body. An exception that the body raises then does not change the response, but is reported.
    pub(super) fn close(&self, py: Python<'_>, Stream { call, body, .. }: Stream<I>) -> InFlight<I> {
        if let Err(error) = self.come_back(py, body.close(py)) {
            self.report_raised(py, &call, "while its response was closed, on", error);
        }
        call
    }

    /// Writes a part of a call's response.
    fn write_part<R>(
        &self,
        py: Python<'_>,
        call: &InFlight<I>,
        write: impl FnOnce(&mut Reply<'_, WithGil<AppState<I>>>, &Draft) -> R,
    ) -> PyResult<R> {
        Ok(self.with(py, |state| {
            call.handles.exchange().with(py, |exchange| {
                let Some(ticket) = &exchange.ticket else { unreachable!("the call has not ended") };
                let draft = &exchange.draft;
                let (written, is_begun) = state.engine.reply(ticket, |reply| (write(reply, draft), reply.is_begun()));
                exchange.begun |= is_begun;
                written
            })
        })?)
    }

    /// Writes the end of a call's response. The call itself goes on.
    fn write_last<R>(
        &self,
        py: Python<'_>,
        call: &InFlight<I>,
        write: impl FnOnce(&mut Reply<'_, WithGil<AppState<I>>>, &Draft) -> R,
    ) -> PyResult<R> {
        Ok(self.with(py, |state| {
            call.handles.exchange().with(py, |exchange| {
                let Some(ticket) = &exchange.ticket else { unreachable!("the call has not ended") };
                exchange.begun = true;
                exchange.finished = true;
                let draft = &exchange.draft;
                state.engine.reply(ticket, |reply| write(reply, draft))
            })
        })?)
    }

    /// Ends a call that has failed. If its response has not begun the client gets a 500, a 504 after a timeout, or the
    /// status for a broken request body; otherwise the connection is cut.
    pub(super) fn fail(&self, py: Python<'_>, call: InFlight<I>, failure: Failure) {
        self.switch_call(py, &call, Stage::Other);
        let mut refusal = (500, FAILED);
        let mut mismatched = None;
        match failure {
            Failure::Raised(error) if self.is_timeout(py, &error) => {
                refusal = (504, TOO_LATE);
                // The stack of the call was reported when the call missed its deadline, if stacks of other threads can
                // be shown.
                let error = (!stacks::are_shown()).then_some(error);
                let message = format!("{} was ended by kirsch.RequestTimeout", subject::<I>(py, &call.request));
                self.log_call(py, WARNING, &message, error);
            }
            // At its end, a loop that hosts the engine ends the remaining greenlets in this way.
            Failure::Raised(error) if is_greenlet_exit(py, &error) && self.is_gone(py, &call) => drop(error),
            Failure::Raised(error) => match self.broken_body(py, &call) {
                // The server's own read() raised the exception: the client is at fault, not the application.
                Some(broken) if error.is_instance_of::<PyOSError>(py) => {
                    refusal = (broken.status, "The request body did not arrive as announced.");
                    let message = format!("{}, of {}", error.value(py), subject::<I>(py, &call.request));
                    self.log_call(py, WARNING, &message, None);
                }
                _ => self.report_raised(py, &call, "on", error),
            },
            Failure::Mismatched(mismatch) => mismatched = Some(mismatch),
        }
        let (status, explanation) = refusal;
        let refused = self.write_last(py, &call, |reply, _| reply.fail(status, explanation)).unwrap_or(false);
        if let Some(mismatch) = mismatched {
            let outcome = if refused { "; 500 was sent" } else { "; the connection is cut" };
            self.report_mismatch(py, &call, mismatch, outcome);
        }
        if refused {
            // The access log shows the status that the client got.
            let _ = call.handles.exchange().with(py, |exchange| exchange.draft.start_refusal(status));
        }
        self.end(py, call, if refused { Progress::Done } else { Progress::Cut });
    }

    /// Answers a call with 503, because the maximum number of calls runs already or its route is in quarantine: the
    /// client should try again.
    #[cold]
    fn refuse(&self, py: Python<'_>, call: InFlight<I>) {
        let refusal = Refusal::of_status(503);
        let refused =
            self.write_last(py, &call, |reply, _| reply.fail(refusal.status, refusal.explanation())).unwrap_or(false);
        let _ = call.handles.exchange().with(py, |exchange| exchange.draft.start_refusal(refusal.status));
        let noted = self.with(py, |state| state.app.note_refusal(py, refusal, Some(&call.request)));
        debug_assert!(noted.is_ok(), "a call does not run while the engine is locked");
        self.end(py, call, if refused { Progress::Done } else { Progress::Cut });
    }

    fn is_gone(&self, py: Python<'_>, call: &InFlight<I>) -> bool {
        let is_gone = |state: &mut EngineState<I>| {
            call.handles
                .exchange()
                .with(py, |exchange| exchange.ticket.as_ref().is_some_and(|ticket| state.engine.is_gone(ticket)))
        };
        self.with(py, is_gone).unwrap_or(false)
    }

    /// Returns the refusal for the client of a request whose body is broken, if it is.
    pub(super) fn broken_body(&self, py: Python<'_>, call: &InFlight<I>) -> Option<Refusal> {
        if !call.is_arriving {
            return None;
        }
        let read = |state: &mut EngineState<I>| {
            call.handles.exchange().with(py, |exchange| {
                let ticket = exchange.ticket.as_ref()?;
                Some(state.engine.read(ticket, &mut [], clock::now(), WithGil::new(&mut state.app, py)))
            })
        };
        if let engine::Input::Broken(refusal) = self.with(py, read).ok()?? { Some(refusal) } else { None }
    }

    /// Ends a call whose response is over, complete or not: logs it, and releases the objects that it held.
    pub(super) fn end(&self, py: Python<'_>, mut call: InFlight<I>, progress: Progress<Resumable<I>>) {
        self.switch_call(py, &call, Stage::Other);
        self.close_input(py, &mut call);
        let ended = self.with(py, |state| {
            let ticket = call.handles.exchange().with(py, ExchangeState::take_ticket_for_good);
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let body_bytes = match call.handles.exchange().with(py, |exchange| exchange.websocket()) {
                Some(id) => {
                    state.app.wake_waiter(Waiter::WebSocket(id.serial()));
                    state.engine.websocket_state(id).1
                }
                None => state.engine.reply(&ticket, |reply| reply.body_bytes()),
            };
            let ended = state.end_call(py, &call, body_bytes);
            state.complete(py, ticket, progress, clock::now());
            ended
        });
        if let Ok(ended) = ended {
            self.interface.return_handles(py, release_call(py, call, ended));
        }
    }

    fn close_input(&self, py: Python<'_>, call: &mut InFlight<I>) {
        if let Some(file) = call.spooled.take()
            && let Err(error) = file.bind(py).call_method0(intern!(py, "close"))
        {
            self.report_raised(py, call, "while its input was closed, on", error);
        }
    }

    pub(super) fn report_raised(&self, py: Python<'_>, call: &InFlight<I>, when: &str, error: PyErr) {
        let message = format!("the application raised an exception {when} {}", subject::<I>(py, &call.request));
        let is_interrupt = error.is_instance_of::<PyKeyboardInterrupt>(py);
        // In a supervised worker no signal raises KeyboardInterrupt, and one request must not end the others.
        let is_supervised = || self.with(py, |state| state.app.replacement.is_some()).unwrap_or(false);
        let again = (is_interrupt && !is_supervised()).then(|| error.clone_ref(py));
        self.log_call(py, ERROR, &message, Some(error));
        if let Some(interrupt) = again {
            self.fail_with(py, interrupt);
        }
    }

    fn report_mismatch(&self, py: Python<'_>, call: &InFlight<I>, mismatch: Mismatch, outcome: &str) {
        let message = format!("{mismatch}, on {}{outcome}", subject::<I>(py, &call.request));
        self.log_call(py, ERROR, &message, None);
    }

    /// Reports a message about a call that has not ended. `RequestTimeout` is not raised during the report.
    fn log_call(&self, py: Python<'_>, level: u8, message: &str, error: Option<PyErr>) {
        self.sheltered(py, || self.log(py, level, message, error));
    }
}

/// Releases the objects that a call held, which may run code of the application. Returns the closed handles.
pub(super) fn release_call<I: Interface>(py: Python<'_>, call: InFlight<I>, ended: Ended) -> I::Handles {
    if ended.interrupted {
        take_back_interrupt(py);
    }
    let InFlight { request, handles, .. } = call;
    ended.release(py);
    request.release(py);
    handles.close(py)
}

/// Returns true if `error` is `GreenletExit`, which ends a greenlet silently.
pub(super) fn is_greenlet_exit(py: Python<'_>, error: &PyErr) -> bool {
    has_class(error.value(py), |name| name == "GreenletExit")
}

/// Returns true if `is_meant` accepts the name of one of the exception's classes. The class is known by its name alone,
/// because its package may not be imported.
pub(super) fn has_class(error: &Bound<'_, PyBaseException>, is_meant: impl Fn(&str) -> bool) -> bool {
    let mut classes = error.get_type().mro().into_iter();
    classes.any(|class| {
        class.cast::<PyType>().is_ok_and(|class| class.name().is_ok_and(|name| is_meant(&name.to_string_lossy())))
    })
}

/// Returns the method and the target of the request that a message is about, escaped for a terminal.
pub(super) fn subject<I: Interface>(py: Python<'_>, request: &Object) -> String {
    let summary = I::summary(py, request);
    let shown = |text: Option<String>| text.map_or_else(|| "?".to_owned(), |text| escaped(text.as_bytes()));
    format!("{} {}", shown(summary.method), shown(summary.target))
}
