//! The gateway of WSGI (PEP 3333): an [`App`] of the engine that calls a Python application.
//!
//! ```text
//!   begin: head ──environ──▶ Request
//!   call:  Request + body ──▶ application(environ, start_response) ──▶ iterable
//!          iterable ──▶ one list item: head and body at once
//!                   ──▶ a file: sendfile
//!                   ──▶ anything else: Stream, pulled as fast as the peer reads
//! ```
//!
//! Every method is called by `Server::run` in turning the engine, attached to the interpreter; that is what the
//! `assume_attached` below rests on.

mod environ;
mod input;
mod start_response;
mod stream;
mod table;

pub(crate) mod file_wrapper;

use crate::access_log::{AccessLog, Entry, escaped};
use crate::object::{Object, bytes_of};
use engine::{AcceptPause, App, Body, Local, Peer, Progress, Refusal, Reply, Report};
use environ::{ConnectionState, Constants, Environs};
use file_wrapper::FileWrapper;
use input::Inputs;
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use start_response::{Pair, Pairs};
use std::ptr;
use stream::Stream;
use wire::http1::{Framing, Head, Misuse};

/// What the user sees when the application fails.
const FAILED: &str = "The application has failed.";

/// Severities of `logging`.
pub(crate) const ERROR: u8 = 40;
pub(crate) const WARNING: u8 = 30;

/// A WSGI application behind the engine.
pub(crate) struct Wsgi {
    application: Object,
    environs: Environs,
    inputs: Inputs,
    pairs: Pairs,
    file_wrapper: Object,
    pub(crate) access_log: Option<AccessLog>,
    report: Option<Py<PyAny>>,
    /// Connections that have given back what they kept, since memory was last returned.
    rested: usize,
    /// `KeyboardInterrupt` reached the application: the server is to end with it.
    pub(crate) interrupt: Option<PyErr>,
}

/// A part of a body on its way out: a `bytes` object, whose content never changes.
pub(crate) struct Chunk(Object);

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a Chunk is made of live bytes objects only, and the reference it holds outlives the result.
        unsafe { bytes_of(self.0.as_ptr()) }
    }
}

/// A request whose head is here.
pub(crate) struct Request {
    /// `None` if memory was short.
    environ: Option<Object>,
    is_chunked: bool,
    entry: Option<Box<Entry>>,
}

/// A call of the application, while its response is written.
struct Call {
    environ: Object,
    pair: Pair,
    /// The file that the body was spooled to, as a Python stream.
    spooled: Option<Object>,
    entry: Option<Box<Entry>>,
}

/// What is needed to make a [`Wsgi`].
pub(crate) struct Parts<'py> {
    pub(crate) application: Bound<'py, PyAny>,
    pub(crate) multiprocess: bool,
    pub(crate) software: String,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) report: Option<Py<PyAny>>,
}

impl Wsgi {
    pub(crate) fn new(py: Python<'_>, locals: &[Local], parts: Parts<'_>) -> PyResult<Self> {
        let file_wrapper = py.get_type::<FileWrapper>();
        let constants = Constants {
            errors: py.import("sys")?.getattr("stderr")?,
            file_wrapper: file_wrapper.clone().into_any(),
            multiprocess: parts.multiprocess,
            software: parts.software,
        };
        Ok(Self {
            application: parts.application.unbind().into(),
            environs: Environs::new(py, locals, &constants)?,
            inputs: Inputs::new(py)?,
            pairs: Pairs::new(py)?,
            file_wrapper: file_wrapper.into_any().unbind().into(),
            access_log: parts.access_log,
            report: parts.report,
            rested: 0,
            interrupt: None,
        })
    }

    /// Gives memory back to the system after many connections have come to rest: what they kept is free, but
    /// scattered, and would otherwise stay with the process for as long as it lives.
    pub(crate) fn return_memory(&mut self) {
        const WORTH_IT: usize = 500;
        if self.rested >= WORTH_IT {
            self.rested = 0;
            // SAFETY: the call takes no pointer and may be made at any time.
            #[cfg(target_env = "gnu")]
            unsafe {
                libc::malloc_trim(0);
            }
        }
    }

    fn set_body(&self, py: Python<'_>, call: &mut Call, body: Body<'_>, is_chunked: bool) -> PyResult<()> {
        let input = self.inputs.make(py, body)?;
        let chunked_length = is_chunked.then_some(input.as_ref().map_or(0, |input| input.length));
        let stream = input.as_ref().map(|input| &input.stream);
        self.environs.set_body(py, &call.environ, stream, chunked_length).ok_or_else(|| PyErr::fetch(py))?;
        call.spooled = input.filter(|input| input.is_file).map(|input| input.stream);
        Ok(())
    }

    /// Calls the application; what it returned, or its exception.
    fn run(&mut self, py: Python<'_>, call: &Call, reply: &mut Reply<'_, Self>) -> PyResult<Object> {
        let arguments = [ptr::null_mut(), call.environ.as_ptr(), call.pair.start_response()];
        let application = self.application.as_ptr();
        // SAFETY: all are live; the slot before the arguments is ours to lend (PY_VECTORCALL_ARGUMENTS_OFFSET).
        call.pair.with_reply(reply, || unsafe {
            let count = 2 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            let result = ffi::PyObject_Vectorcall(application, arguments.as_ptr().add(1), count, ptr::null_mut());
            Object::from_new_or_error(py, result)
        })
    }

    /// Writes the response that the application returned.
    fn respond(
        &mut self,
        py: Python<'_>,
        call: Call,
        returned: Object,
        reply: &mut Reply<'_, Self>,
    ) -> Progress<Stream> {
        // SAFETY: `returned` is live, an exact list or tuple has `Py_SIZE` items, and nothing of Python runs between
        // looking at the item and taking a reference to it.
        let only_item = unsafe {
            let object = returned.as_ptr();
            if ffi::PyList_CheckExact(object) != 0 && ffi::PyList_GET_SIZE(object) == 1 {
                Some(Object::from_borrowed(ffi::PyList_GET_ITEM(object, 0)))
            } else if ffi::PyTuple_CheckExact(object) != 0 && ffi::Py_SIZE(object) == 1 {
                Some(Object::from_borrowed(ffi::PyTuple_GET_ITEM(object, 0)))
            } else {
                None
            }
        };
        if let Some(item) = only_item
            && !call.pair.exchange().draft.is_empty()
        {
            return match self.respond_with_one(py, &call, item, reply) {
                Ok(()) => self.finish(call, reply),
                Err(failure) => self.fail(py, call, failure, reply),
            };
        }
        // SAFETY: `returned` is live.
        let is_file = unsafe { ffi::Py_TYPE(returned.as_ptr()) } == self.file_wrapper.as_ptr().cast();
        match Stream::open(py, call, returned, is_file, reply) {
            Ok(stream) => self.pump(py, stream, reply),
            Err((call, error)) => self.fail(py, call, Failure::Raised(error), reply),
        }
    }

    /// The usual response: everything is here, so its length is known and head and body leave together.
    fn respond_with_one(
        &mut self,
        py: Python<'_>,
        call: &Call,
        item: Object,
        reply: &mut Reply<'_, Self>,
    ) -> Result<(), Failure> {
        let chunk = chunk_of(py, item).map_err(Failure::Raised)?;
        let length = chunk.as_ref().len();
        if !reply.is_begun() {
            reply.begin(&call.pair.exchange().draft, Some(length as u64));
        }
        let written = reply.write(chunk);
        if written == Err(Misuse::BodyTooLong) {
            self.report_misuse(py, call, Misuse::BodyTooLong);
        }
        reply.finish().map_err(Failure::Misused)
    }

    /// Pulls a stream as far as the peer reads.
    fn pump(&mut self, py: Python<'_>, mut stream: Stream, reply: &mut Reply<'_, Self>) -> Progress<Stream> {
        match stream.pump(py, reply) {
            Ok(stream::Pumped::Blocked) => Progress::Blocked(stream),
            Ok(stream::Pumped::Due) => Progress::Yield(stream),
            Ok(stream::Pumped::Gone) => {
                self.abandon(stream);
                Progress::Cut
            }
            Ok(stream::Pumped::Ended) => {
                // The application may take its time to clean up; the peer need not wait for that.
                let finished = reply.finish();
                reply.flush();
                let misuse = stream.misuse().or(finished.err());
                let call = self.close(py, stream);
                match misuse {
                    None => self.finish(call, reply),
                    Some(Misuse::BodyTooLong) => {
                        self.report_misuse(py, &call, Misuse::BodyTooLong);
                        self.finish(call, reply)
                    }
                    Some(misuse) => self.fail(py, call, Failure::Misused(misuse), reply),
                }
            }
            Err(error) => {
                let call = self.close(py, stream);
                self.fail(py, call, Failure::Raised(error), reply)
            }
        }
    }

    /// Lets go of a stream's iterable. What it raises then does not change the response, but is reported.
    fn close(&mut self, py: Python<'_>, stream: Stream) -> Call {
        let (call, closed) = stream.close(py);
        if let Err(error) = closed {
            self.report_raised(py, &call, "while its response was closed, on", error);
        }
        call
    }

    /// The response is written as a whole.
    fn finish(&mut self, call: Call, reply: &Reply<'_, Self>) -> Progress<Stream> {
        self.release(call, reply.body_bytes());
        Progress::Done
    }

    /// The application failed: the peer gets a 500 if its response has not begun, and sees a cut if it has.
    fn fail(&mut self, py: Python<'_>, call: Call, failure: Failure, reply: &mut Reply<'_, Self>) -> Progress<Stream> {
        match failure {
            Failure::Raised(error) => self.report_raised(py, &call, "on", error),
            Failure::Misused(misuse) => self.report_misuse(py, &call, misuse),
        }
        let refused = reply.refuse(500, FAILED);
        if refused {
            // What the log says is what the peer got.
            let _ = call.pair.exchange().draft.start(b"500 Internal Server Error");
        }
        self.release(call, reply.body_bytes());
        if refused { Progress::Done } else { Progress::Cut }
    }

    /// The response is over, whole or not: it is logged, and what it held is let go.
    fn release(&mut self, call: Call, body_bytes: u64) {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        if let (Some(log), Some(entry)) = (&mut self.access_log, &call.entry) {
            let draft = &call.pair.exchange().draft;
            log.write(py, entry, draft.status(), body_bytes, Some(draft), Some(&call.environ));
        }
        if let Some(file) = &call.spooled
            && let Err(error) = file.bind(py).call_method0(intern!(py, "close"))
        {
            self.report_raised(py, &call, "while its input was closed, on", error);
        }
        self.pairs.give_back(call.pair);
    }

    fn report_raised(&mut self, py: Python<'_>, call: &Call, when: &str, error: PyErr) {
        let message = format!("the application raised an exception {when} {}", subject(py, &call.environ));
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            self.interrupt = Some(error.clone_ref(py));
        }
        self.tell(py, ERROR, &message, Some(error));
    }

    fn report_misuse(&mut self, py: Python<'_>, call: &Call, misuse: Misuse) {
        let message = format!("{misuse}, on {}", subject(py, &call.environ));
        self.tell(py, ERROR, &message, None);
    }

    /// Hands a message to whoever reports; the last resort is Python's own place for what nobody can handle.
    pub(crate) fn tell(&self, py: Python<'_>, level: u8, message: &str, error: Option<PyErr>) {
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

/// Why a response could not be as the application wanted it.
enum Failure {
    Raised(PyErr),
    Misused(Misuse),
}

/// The request that a message is about, as method and target, fit for a terminal.
fn subject(py: Python<'_>, environ: &Object) -> String {
    let get = |key: &str| match environ.bind(py).get_item(key) {
        Ok(value) => escaped(value.to_string().as_bytes()),
        Err(_) => "?".to_owned(),
    };
    format!("{} {}", get("REQUEST_METHOD"), get("RAW_URI"))
}

fn chunk_of(py: Python<'_>, item: Object) -> PyResult<Chunk> {
    // SAFETY: `item` is live.
    if unsafe { ffi::PyBytes_Check(item.as_ptr()) } != 0 {
        return Ok(Chunk(item));
    }
    let kind = item.bind(py).get_type();
    let name = kind.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    Err(PyTypeError::new_err(format!("the response must consist of bytes (PEP 3333), not {name}")))
}

impl App for Wsgi {
    type Connection = ConnectionState;
    type Request = Request;
    type Response = Stream;
    type Chunk = Chunk;

    fn connect(&mut self, peer: &Peer) -> ConnectionState {
        ConnectionState::new(*peer)
    }

    fn begin(&mut self, head: &Head<'_>, connection: &mut ConnectionState) -> Request {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        let environ = self.environs.make(py, head, connection);
        if environ.is_none() {
            let error = PyErr::take(py);
            self.tell(py, ERROR, "no memory for a request", error);
        }
        let entry = self.access_log.as_ref().map(|_| Box::new(Entry::new(head, connection.peer)));
        Request { environ, is_chunked: head.framing == Framing::Chunked, entry }
    }

    fn call(&mut self, request: Request, body: Body<'_>, reply: &mut Reply<'_, Self>) -> Progress<Stream> {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        let (Some(environ), Some(pair)) = (request.environ, self.pairs.take()) else {
            PyErr::take(py);
            reply.refuse(500, FAILED);
            return Progress::Done;
        };
        let mut call = Call { environ, pair, spooled: None, entry: request.entry };
        if (!matches!(body, Body::Empty) || request.is_chunked)
            && let Err(error) = self.set_body(py, &mut call, body, request.is_chunked)
        {
            return self.fail(py, call, Failure::Raised(error), reply);
        }
        match self.run(py, &call, reply) {
            Ok(returned) => self.respond(py, call, returned, reply),
            Err(error) => self.fail(py, call, Failure::Raised(error), reply),
        }
    }

    fn resume(&mut self, response: Stream, reply: &mut Reply<'_, Self>) -> Progress<Stream> {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        self.pump(py, response, reply)
    }

    fn abandon(&mut self, response: Stream) {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        let body_bytes = response.body_bytes();
        let call = self.close(py, response);
        self.release(call, body_bytes);
    }

    fn abandon_request(&mut self, request: Request, refusal: Option<Refusal>) {
        if let (Some(log), Some(entry), Some(refusal)) = (&mut self.access_log, &request.entry, refusal) {
            // SAFETY: see the module.
            let py = unsafe { Python::assume_attached() };
            log.write(py, entry, refusal.status, 0, None, request.environ.as_ref());
        }
    }

    fn idle(&mut self, connection: &mut ConnectionState) {
        connection.forget();
        self.rested += 1;
    }

    fn refused(&mut self, refusal: Refusal, connection: &mut ConnectionState) {
        if let Some(log) = &mut self.access_log {
            // SAFETY: see the module.
            let py = unsafe { Python::assume_attached() };
            let entry = Entry::unread(connection.peer);
            log.write(py, &entry, refusal.status, 0, None, None);
        }
    }

    fn report(&mut self, report: Report) {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        match report {
            Report::AcceptPaused(pause) => {
                let message = match pause {
                    AcceptPause::Connections(most) => {
                        format!("accepting pauses: {most} connections are open; --worker-connections allows no more")
                    }
                    AcceptPause::Descriptors(most) => format!(
                        "accepting pauses: {most} connections are open; the limit on open files allows no more: raise \
                         it (ulimit -n)"
                    ),
                    AcceptPause::Failed(error) => {
                        format!("accepting pauses: {error}; raise the limit on open files (ulimit -n)")
                    }
                };
                self.tell(py, WARNING, &message, None);
            }
            Report::FileShrank => {
                let message = "a file became shorter while it was sent, and its response was cut";
                self.tell(py, ERROR, message, None);
            }
            Report::Panicked(message) => {
                let message = format!("this is a bug in kirsch, please report it: {message}");
                self.tell(py, ERROR, &message, None);
            }
            Report::SpoolFailed(error) => {
                let message = format!("a request body could not be kept in a temporary file: {error}");
                self.tell(py, ERROR, &message, None);
            }
        }
    }
}
