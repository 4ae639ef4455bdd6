//! One call of the application, from its request to the end of its response. All of this runs unlocked; where the
//! response is written, and where it ends, the engine is locked for a moment.

use super::stream::{Pumped, Stream};
use super::{Chunk, ERROR, FileWrapper, Request, RequestBody, WARNING, Wsgi};
use crate::access_log::escaped;
use crate::calls::Ended;
use crate::clock;
use crate::host::{EngineState, Host};
use crate::object::{Item, Object};
use crate::stacks;
use crate::wsgi::start_response::{Exchange, Handles};
use engine::scheduler::RouteKey;
use engine::{Progress, Reply, Stage, Ticket};
use pyo3::exceptions::{PyAssertionError, PyKeyboardInterrupt, PyOSError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use wire::http1::{Draft, Misuse};

/// What the user sees when the application fails.
const FAILED: &str = "The application has failed.";
const TOO_LATE: &str = "The application did not answer in time.";

/// Something to be run for the application.
pub(crate) enum Job {
    /// A request; `key`: of the call that has begun, `None` if memory was short.
    Call { ticket: Ticket, request: Request, key: Option<usize> },
    /// A response that may go on.
    Resume(Ticket, Box<Stream>),
    /// A response that cannot go on.
    Abandon(Box<Stream>),
}

impl Job {
    /// The thread that has to run it: an iterable stays where it was made.
    pub(crate) fn worker(&self) -> Option<usize> {
        match self {
            Job::Call { .. } => None,
            Job::Resume(_, stream) | Job::Abandon(stream) => stream.worker(),
        }
    }

    /// What it has in common with others, if anything is known of it. Of a response that goes on nothing is.
    pub(crate) fn route_key(&self) -> Option<RouteKey> {
        match self {
            Job::Call { request, .. } => request.route_key,
            Job::Resume(..) | Job::Abandon(_) => None,
        }
    }

    /// The number of its call.
    pub(crate) fn number(&self, wsgi: &Wsgi) -> u64 {
        match self {
            Job::Call { key, .. } => key.map_or(0, |key| wsgi.calls.number(key)),
            Job::Resume(_, stream) | Job::Abandon(stream) => wsgi.calls.number(stream.key()),
        }
    }
}

/// A call of the application, while its response is written.
pub(crate) struct Call {
    /// Its key among [`Calls`](crate::calls::Calls).
    pub(super) key: usize,
    pub(super) environ: Object,
    pub(super) handles: Handles,
    /// The input, where it has to be closed: it holds a file.
    spooled: Option<Object>,
    /// The input hands the body on as it arrives.
    pub(super) is_arriving: bool,
}

/// A call whose response is one block: what is left to be done with it.
pub(crate) struct Ending {
    call: Call,
    rest: Rest,
}

enum Rest {
    /// To be written, locked.
    Write(Chunk),
    /// It has been. What is left is to be let go of.
    LetGo(Ended),
    /// It could not be.
    Fail(Failure),
}

/// Why a response could not be as the application wanted it.
pub(super) enum Failure {
    Raised(PyErr),
    Mismatched(Mismatch),
}

/// A response whose body is not as long as its Content-Length says.
#[derive(Clone, Copy)]
pub(super) struct Mismatch {
    misuse: Misuse,
    declared: Option<u64>,
    /// What the application offered as the body, as far as it came to that.
    offered: u64,
}

impl Mismatch {
    pub(super) fn of(misuse: Misuse, draft: &Draft, offered: u64) -> Self {
        Self { misuse, declared: draft.content_length(), offered }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { misuse, declared, offered } = self;
        write!(out, "{misuse}")?;
        match declared {
            // Of a body that is too long the rest is not asked for.
            Some(declared) if *misuse == Misuse::BodyTooLong => {
                write!(out, " (declared: {declared} bytes; produced: at least {offered})")
            }
            Some(declared) => write!(out, " (declared: {declared} bytes; produced: {offered})"),
            None => Ok(()),
        }
    }
}

impl Host {
    /// Runs a job, by the crew's thread `worker` or by a loop that hosts the engine. It has been put back afterwards,
    /// but for what is returned: that is to be [ended](Self::end), locked, and then [let go of](Self::let_go).
    pub(crate) fn run(
        &self,
        py: Python<'_>,
        job: Job,
        worker: Option<usize>,
        handles: &mut Option<Handles>,
    ) -> Option<Ending> {
        // The call that unwinds ends with its handles, see their drop.
        let run = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Call { ticket, request, key: Some(key) } => {
                self.call(py, ticket, request, key, worker, handles.take())
            }
            Job::Call { ticket, key: None, .. } => {
                self.cut_off(py, ticket, None);
                None
            }
            Job::Resume(ticket, stream) => {
                self.resume(py, &stream, Some(ticket));
                self.pump(py, stream);
                None
            }
            Job::Abandon(stream) => {
                self.resume(py, &stream, None);
                self.abandon(py, *stream);
                None
            }
        }));
        run.unwrap_or_else(|_| {
            self.log(py, ERROR, "this is a bug in kirsch, please report it: a panic in a call", None);
            None
        })
    }

    /// Runs a job as a whole.
    pub(crate) fn run_whole(&self, py: Python<'_>, job: Job) {
        if let Some(mut ending) = self.run(py, job, None, &mut None) {
            let ended = self.with(py, |state| ending.end(py, state));
            debug_assert!(ended.is_ok(), "a call does not run while the engine is locked");
            if let Some(handles) = self.let_go_of(py, ending) {
                self.handles.give_back(handles);
            }
        }
    }

    /// The stream's call counts again: from now on, for it may have waited for its thread.
    fn resume(&self, py: Python<'_>, stream: &Stream, ticket: Option<Ticket>) {
        let resumed = self.with(py, |state| {
            state.wsgi.calls.resume(stream.key(), ticket.is_none(), clock::now().monotonic);
            stream.call().handles.exchange().with(py, |exchange| {
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
        handles: Option<Handles>,
    ) -> Option<Ending> {
        let Request { environ: Some(environ), body, is_chunked, .. } = request else {
            self.cut_off(py, ticket, Some(key));
            return None;
        };
        let Some(mut handles) = handles.or_else(|| self.handles.take()) else {
            let error = PyErr::take(py);
            self.cut_off(py, ticket, Some(key));
            self.log(py, ERROR, "no memory for a request", error);
            return None;
        };
        handles.open(py, ticket, key);
        let mut call = Call { key, environ, handles, spooled: None, is_arriving: false };
        self.switch_call(py, &call, Stage::Environ);
        let returned = self.prepare(py, &mut call, body, is_chunked).and_then(|()| self.run_application(py, &call));
        match returned {
            Ok(returned) => self.respond(py, call, returned, worker),
            Err(error) => {
                self.fail(py, call, Failure::Raised(error));
                None
            }
        }
    }

    /// Completes the environ with what is this call's alone.
    fn prepare(&self, py: Python<'_>, call: &mut Call, body: RequestBody, is_chunked: bool) -> PyResult<()> {
        self.inputs.set_disconnected(py, &call.environ, call.handles.disconnected())?;
        if let Some(waiter) = self.make_waiter(py) {
            let waiter = waiter?;
            let key = call.key;
            self.with(py, |state| {
                state.wsgi.calls.set_waiter(key, waiter);
                if let Some(stopwatch) = &mut state.wsgi.stopwatch {
                    stopwatch.take_up(key);
                }
            })?;
        }
        let length = match body {
            RequestBody::Empty => 0,
            RequestBody::Bytes(bytes) => self.inputs.set_bytes(py, &call.environ, &bytes)?,
            RequestBody::File(spooled) => {
                let (file, length) = *spooled;
                call.spooled = Some(self.inputs.set_file(py, &call.environ, file)?);
                length
            }
            RequestBody::Arriving => {
                call.is_arriving = true;
                return self.inputs.set_arriving(py, &call.environ, call.handles.start_response());
            }
        };
        if is_chunked { self.inputs.set_length(py, &call.environ, length) } else { Ok(()) }
    }

    /// Calls the application; what it returned, or its exception.
    fn run_application(&self, py: Python<'_>, call: &Call) -> PyResult<Object> {
        self.switch_call(py, call, Stage::App);
        let arguments = [ptr::null_mut(), call.environ.as_ptr(), call.handles.start_response()];
        // SAFETY: all are live; the slot before the arguments is ours to lend (PY_VECTORCALL_ARGUMENTS_OFFSET).
        let returned = unsafe {
            let count = 2 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            let application = self.application.as_ptr();
            let result = ffi::PyObject_Vectorcall(application, arguments.as_ptr().add(1), count, ptr::null_mut());
            Object::from_new_or_error(py, result)
        };
        self.switch_call(py, call, Stage::Other);
        returned
    }

    /// The call goes over to another stage, where somebody wants to know the times of stages.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "where nobody does, it is to cost a branch and not a call")]
    fn switch_call(&self, py: Python<'_>, call: &Call, stage: Stage) {
        if self.times_stages {
            self.switch_stage(py, call.handles.answer(), stage);
        }
    }

    /// Writes the response that the application returned.
    fn respond(&self, py: Python<'_>, mut call: Call, returned: Object, worker: Option<usize>) -> Option<Ending> {
        // SAFETY: `returned` is live, an exact tuple has `Py_SIZE` items and never changes, and nothing of Python runs
        // between looking at the item of a list and taking a reference to it.
        let only_item = unsafe {
            let object = returned.as_ptr();
            if ffi::PyList_CheckExact(object) != 0 && ffi::PyList_GET_SIZE(object) == 1 {
                Item::of(object, 0).map(Item::keep)
            } else if ffi::PyTuple_CheckExact(object) != 0 && ffi::Py_SIZE(object) == 1 {
                Some(Object::from_borrowed(ffi::PyTuple_GET_ITEM(object, 0)))
            } else {
                None
            }
        };
        if let Some(item) = only_item
            && call.handles.exchange().with(py, |exchange| !exchange.draft.is_empty())
        {
            // The usual response: everything is here, so its length is known and head and body leave together.
            self.close_input(py, &mut call);
            match chunk_of(py, item) {
                Ok(chunk) => return Some(Ending { call, rest: Rest::Write(chunk) }),
                Err(error) => self.fail(py, call, Failure::Raised(error)),
            }
            return None;
        }
        // What is left of the response is made by the application, part by part.
        self.switch_call(py, &call, Stage::App);
        // SAFETY: `returned` is live.
        let is_file = unsafe { ffi::Py_TYPE(returned.as_ptr()) } == self.file_wrapper.as_ptr().cast();
        let stream = Box::new(Stream::new(call, returned, worker));
        match if is_file { self.send_file(py, stream) } else { Err(stream) } {
            Ok(()) => {}
            Err(mut stream) => match stream.start(py) {
                Ok(()) => self.pump(py, stream),
                Err(error) => {
                    let (call, closed) = stream.close(py);
                    // What went wrong first is what is reported.
                    drop(closed);
                    self.fail(py, call, Failure::Raised(error));
                }
            },
        }
        None
    }

    /// Lets go of what an ending still holds, or answers that its response was too short or too long. The handles may be used again
    /// if they are returned.
    pub(crate) fn let_go_of(&self, py: Python<'_>, Ending { call, rest }: Ending) -> Option<Handles> {
        match rest {
            Rest::LetGo(ended) => Some(Self::let_go(py, call, ended)),
            Rest::Fail(failure) => {
                self.fail(py, call, failure);
                None
            }
            // Its handles' drop ends it.
            Rest::Write(_) => None,
        }
    }

    /// Sends a regular file without reading it; gives the stream back if it has to be read.
    fn send_file(&self, py: Python<'_>, stream: Box<Stream>) -> Result<(), Box<Stream>> {
        let fits = |exchange: &mut Exchange| !exchange.draft.is_empty() && !exchange.begun;
        if !stream.call().handles.exchange().with(py, fits) {
            return Err(stream);
        }
        let regular = {
            let wrapper = stream.iterable().bind(py);
            wrapper.cast::<FileWrapper>().ok().and_then(|wrapper| wrapper.get().regular_file(py))
        };
        let Some((file, offset, left)) = regular else { return Err(stream) };
        let written = self.write(py, stream.call(), |reply, draft| {
            if reply.is_begun() || draft.is_empty() {
                // Another thread has interfered.
                return Err(unstarted());
            }
            // A file that is longer ends where its length says (PEP 3333).
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

    /// Pulls a stream as far as the peer reads.
    pub(super) fn pump(&self, py: Python<'_>, mut stream: Box<Stream>) {
        loop {
            match stream.pump(py, self) {
                Ok(Pumped::Blocked) if stream.worker().is_some() => return self.suspend(py, stream, Progress::Blocked),
                // A greenlet waits for its peer where it is.
                Ok(Pumped::Blocked) => {
                    if let Err(error) = self.wait_for_output(py, stream.call().handles.answer()) {
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

    /// Leaves the stream to the engine until it may go on.
    fn suspend(&self, py: Python<'_>, stream: Box<Stream>, how: fn(Box<Stream>) -> Progress<Box<Stream>>) {
        let suspended = self.with(py, |state| {
            let ticket = stream.call().handles.exchange().with(py, |exchange| exchange.ticket.take());
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let now = clock::now();
            state.wsgi.calls.suspend(stream.key(), now.monotonic);
            state.engine.complete(ticket, how(stream), now, &mut state.wsgi);
        });
        debug_assert!(suspended.is_ok(), "a call does not run while the engine is locked");
    }

    /// The iterable has ended: so does the response.
    fn complete(&self, py: Python<'_>, stream: Stream, misuse_told: Option<Misuse>) {
        // The application may take its time to clean up; the peer need not wait for that.
        let finished = self.write_last(py, stream.call(), |reply, draft| {
            let finished = reply.finish();
            if finished.is_ok() {
                reply.flush();
            }
            let misuse = finished.err();
            (misuse.is_some(), misuse.or(misuse_told).map(|misuse| Mismatch::of(misuse, draft, reply.offered_bytes())))
        });
        let call = self.close(py, stream);
        match finished {
            Ok((false, None)) => self.end(py, call, Progress::Done),
            // `write` has raised it in the application, which has gone on, and sent nothing of what was too much.
            Ok((false, Some(mismatch))) => {
                self.report_mismatch(py, &call, mismatch, "");
                self.end(py, call, Progress::Done);
            }
            Ok((true, mismatch)) => {
                let unknown = || Mismatch { misuse: Misuse::BodyTooShort, declared: None, offered: 0 };
                self.fail(py, call, Failure::Mismatched(mismatch.unwrap_or_else(unknown)));
            }
            Err(error) => self.fail(py, call, Failure::Raised(error)),
        }
    }

    /// The application has failed to produce its iterable's response.
    fn break_off(&self, py: Python<'_>, stream: Stream, failure: Failure) {
        let call = self.close(py, stream);
        self.fail(py, call, failure);
    }

    fn abandon_running(&self, py: Python<'_>, stream: Stream) {
        let call = self.close(py, stream);
        self.end(py, call, Progress::Cut);
    }

    /// The peer of a suspended stream has left; its connection is gone already.
    fn abandon(&self, py: Python<'_>, stream: Stream) {
        let body_bytes = stream.body_bytes();
        let mut call = self.close(py, stream);
        self.close_input(py, &mut call);
        let ended = self.with(py, |state| {
            call.handles.exchange().with(py, Exchange::take_ticket_for_good);
            state.wsgi.end_call(py, &call, body_bytes)
        });
        if let Ok(ended) = ended {
            self.handles.give_back(Self::let_go(py, call, ended));
        }
    }

    /// Lets go of a stream's iterable. What it raises then does not change the response, but is reported.
    fn close(&self, py: Python<'_>, stream: Stream) -> Call {
        let (call, closed) = stream.close(py);
        if let Err(error) = closed {
            self.report_raised(py, &call, "while its response was closed, on", error);
        }
        call
    }

    /// Writes a part of a call's response.
    pub(super) fn write<R>(
        &self,
        py: Python<'_>,
        call: &Call,
        write: impl FnOnce(&mut Reply<'_, Wsgi>, &wire::http1::Draft) -> R,
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

    /// Ends a call's response, though not yet the call.
    fn write_last<R>(
        &self,
        py: Python<'_>,
        call: &Call,
        write: impl FnOnce(&mut Reply<'_, Wsgi>, &Draft) -> R,
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

    /// The application failed: the peer gets a 500 if its response has not begun, and sees a cut if it has.
    fn fail(&self, py: Python<'_>, call: Call, failure: Failure) {
        self.switch_call(py, &call, Stage::Other);
        let mut refusal = (500, FAILED);
        let mut mismatched = None;
        match failure {
            Failure::Raised(error) if self.is_timeout(py, &error) => {
                refusal = (504, TOO_LATE);
                // Its stack was told when its time was up, where that of another thread can be.
                let error = (!stacks::are_shown()).then_some(error);
                let message = format!("{} was ended by kirsch.RequestTimeout", subject(py, &call.environ));
                self.log_call(py, WARNING, &message, error);
            }
            // Whoever hosts the engine ends what is left in this way.
            Failure::Raised(error) if is_greenlet_exit(py, &error) && self.is_gone(py, &call) => drop(error),
            Failure::Raised(error) => match self.broken_body(py, &call) {
                // What our own read() raised is the peer's fault, not the application's.
                Some(status) if error.is_instance_of::<PyOSError>(py) => {
                    refusal = (status, "The request body did not arrive as announced.");
                    let message = format!("{}, of {}", error.value(py), subject(py, &call.environ));
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
            // What the log says is what the peer got.
            let _ = call.handles.exchange().with(py, |exchange| exchange.draft.start_refusal(status));
        }
        self.end(py, call, if refused { Progress::Done } else { Progress::Cut });
    }

    fn is_gone(&self, py: Python<'_>, call: &Call) -> bool {
        let is_gone = |state: &mut EngineState| {
            call.handles
                .exchange()
                .with(py, |exchange| exchange.ticket.as_ref().is_some_and(|ticket| state.engine.is_gone(ticket)))
        };
        self.with(py, is_gone).unwrap_or(false)
    }

    /// The status for a request whose body broke, if it did.
    fn broken_body(&self, py: Python<'_>, call: &Call) -> Option<u16> {
        if !call.is_arriving {
            return None;
        }
        let read = |state: &mut EngineState| {
            call.handles.exchange().with(py, |exchange| {
                let ticket = exchange.ticket.as_ref()?;
                Some(state.engine.read(ticket, &mut [], clock::now(), &mut state.wsgi))
            })
        };
        if let engine::Input::Broken(refusal) = self.with(py, read).ok()?? { Some(refusal.status) } else { None }
    }

    /// The response is over, whole or not: it is logged, and what it held is let go.
    fn end(&self, py: Python<'_>, mut call: Call, progress: Progress<Box<Stream>>) {
        self.switch_call(py, &call, Stage::Other);
        self.close_input(py, &mut call);
        let ended = self.with(py, |state| {
            let ticket = call.handles.exchange().with(py, Exchange::take_ticket_for_good);
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let body_bytes = state.engine.reply(&ticket, |reply| reply.body_bytes());
            let ended = state.wsgi.end_call(py, &call, body_bytes);
            state.engine.complete(ticket, progress, clock::now(), &mut state.wsgi);
            ended
        });
        if let Ok(ended) = ended {
            self.handles.give_back(Self::let_go(py, call, ended));
        }
    }

    fn close_input(&self, py: Python<'_>, call: &mut Call) {
        if let Some(file) = call.spooled.take()
            && let Err(error) = file.bind(py).call_method0(intern!(py, "close"))
        {
            self.report_raised(py, call, "while its input was closed, on", error);
        }
    }

    /// What a call held goes, where what goes may do what it likes. The handles are closed.
    fn let_go(py: Python<'_>, call: Call, ended: Ended) -> Handles {
        if ended.interrupted {
            Self::take_back_interrupt(py);
        }
        drop(ended);
        let Call { environ, handles, .. } = call;
        drop(environ);
        handles.close(py);
        handles
    }

    fn report_raised(&self, py: Python<'_>, call: &Call, when: &str, error: PyErr) {
        let message = format!("the application raised an exception {when} {}", subject(py, &call.environ));
        let is_interrupt = error.is_instance_of::<PyKeyboardInterrupt>(py);
        let again = is_interrupt.then(|| error.clone_ref(py));
        self.log_call(py, ERROR, &message, Some(error));
        if let Some(interrupt) = again {
            self.fail_with(py, interrupt);
        }
    }

    fn report_mismatch(&self, py: Python<'_>, call: &Call, mismatch: Mismatch, outcome: &str) {
        let message = format!("{mismatch}, on {}{outcome}", subject(py, &call.environ));
        self.log_call(py, ERROR, &message, None);
    }

    /// Reports something before the call that it is about has ended. `RequestTimeout` is not raised in the report.
    fn log_call(&self, py: Python<'_>, level: u8, message: &str, error: Option<PyErr>) {
        self.sheltered(py, || self.log(py, level, message, error));
    }
}

impl Ending {
    /// Writes the response and puts its call back.
    pub(crate) fn end(&mut self, py: Python<'_>, state: &mut EngineState) {
        let Self { call, rest } = self;
        // Until it has been written, it is taken for one that cannot be.
        let unwritten = Mismatch { misuse: Misuse::BodyTooShort, declared: None, offered: 0 };
        let Rest::Write(chunk) = std::mem::replace(rest, Rest::Fail(Failure::Mismatched(unwritten))) else {
            return;
        };
        let length = chunk.as_ref().len() as u64;
        let written = call.handles.exchange().with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { unreachable!("the call has not ended") };
            let draft = &exchange.draft;
            let written = state.engine.reply(ticket, |reply| {
                if !reply.is_begun() {
                    if draft.is_empty() {
                        // Another thread has called start_response again meanwhile, and is not done.
                        return Err(Failure::Raised(unstarted()));
                    }
                    if let Err(misuse) = reply.check_length(draft, length) {
                        return Err(Failure::Mismatched(Mismatch::of(misuse, draft, length)));
                    }
                    reply.begin(draft, Some(length));
                }
                match reply.write(chunk).and_then(|()| reply.finish()) {
                    Ok(()) => Ok(reply.body_bytes()),
                    Err(misuse) => Err(Failure::Mismatched(Mismatch::of(misuse, draft, reply.offered_bytes()))),
                }
            });
            written.map(|written| (exchange.take_ticket_for_good(), written))
        });
        let (ticket, body_bytes) = match written {
            Ok(written) => written,
            Err(failure) => {
                *rest = Rest::Fail(failure);
                return;
            }
        };
        let Some(ticket) = ticket else { unreachable!("it was there") };
        let ended = state.wsgi.end_call(py, call, body_bytes);
        state.engine.complete(ticket, Progress::Done, state.clock.now(), &mut state.wsgi);
        *rest = Rest::LetGo(ended);
    }
}

/// The response has no status.
pub(super) fn unstarted() -> PyErr {
    PyAssertionError::new_err("start_response was not called before the first block of the response (PEP 3333)")
}

/// Whether it is what ends a greenlet without further words.
fn is_greenlet_exit(py: Python<'_>, error: &PyErr) -> bool {
    let mut route_keys = error.get_type(py).mro().into_iter();
    route_keys.any(|route_key| {
        route_key.cast::<PyType>().is_ok_and(|route_key| route_key.name().is_ok_and(|name| name == "GreenletExit"))
    })
}

/// The request that a message is about, as method and target, fit for a terminal.
fn subject(py: Python<'_>, environ: &Object) -> String {
    let get = |key: &str| match environ.bind(py).get_item(key) {
        Ok(value) => escaped(value.to_string().as_bytes()),
        Err(_) => "?".to_owned(),
    };
    format!("{} {}", get("REQUEST_METHOD"), get("RAW_URI"))
}

/// A block that the application produced. A subclass is copied: its content could be let go by code of its own, at a
/// time that is ours.
pub(crate) fn chunk_of(py: Python<'_>, item: Object) -> PyResult<Chunk> {
    // SAFETY: `item` is live.
    unsafe {
        if ffi::PyBytes_CheckExact(item.as_ptr()) != 0 {
            return Ok(Chunk(item));
        }
        if ffi::PyBytes_Check(item.as_ptr()) != 0 {
            let bytes = crate::object::bytes_of(item.as_ptr());
            return Ok(Chunk(pyo3::types::PyBytes::new(py, bytes).into_any().unbind().into()));
        }
    }
    let route_key = item.bind(py).get_type();
    let name = route_key.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    Err(PyTypeError::new_err(format!("the response must consist of bytes (PEP 3333), not {name}")))
}
