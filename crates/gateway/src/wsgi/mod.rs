//! The gateway of WSGI (PEP 3333): an [`App`] of the engine, and what calls the Python application for it.
//!
//! ```text
//!   locked    begin: head ──environ──▶ Request ─▶ (queue) ─▶ Job::Call
//!   unlocked  Site::run: application(environ, start_response) ──▶ iterable
//!             iterable ──▶ one list item: head and body at once
//!                      ──▶ a file: sendfile
//!                      ──▶ anything else: Stream, pulled as fast as the peer reads
//! ```
//!
//! The methods of [`App`] are called while the engine is locked, by a thread that is attached to the interpreter; that
//! is what the `assume_attached` below rests on. They run nothing that the application's user wrote.

mod call;
mod environ;
mod input;
mod start_response;
mod stream;
mod table;

pub(crate) mod file_wrapper;

pub(crate) use call::{Ending, Job, chunk_of};
pub(crate) use input::Inputs;
pub(crate) use start_response::{HandleTypes, Handles, StartResponse, read_too_late};

use crate::access_log::{AccessLog, Entry, LoggerLines, Response, variable};
use crate::calls::{Calls, Ended, Late, Limit, Limits, Place};
use crate::host::Waiter;
use crate::object::{Object, bytes_of};
use crate::refusals::{Refusals, Refused};
use crate::scoreboard::{Moment, Stopwatch};
use call::Call;
use engine::scheduler::{RouteKey, RouteKeys};
use engine::{AcceptPause, App, Body, Expired, Local, Now, Os, Peer, Refusal, Report, Work};
use environ::{ConnectionState, Constants, Environs};
use file_wrapper::FileWrapper;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::time::Duration;
use stream::Stream;
use wire::http1::{Draft, Framing, Head, PartialRequestLine};

/// Severities of `logging`.
pub(crate) const ERROR: u8 = 40;
pub(crate) const WARNING: u8 = 30;
pub(crate) const INFO: u8 = 20;

/// The gateway's state, guarded by the same lock as the engine.
pub(crate) struct Wsgi {
    environs: Environs,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) calls: Calls,
    pub(crate) refusals: Refusals,
    limits: Limits,
    buffers_bodies: bool,
    /// Where threads have to know which calls will wait.
    route_keys: Option<RouteKeys>,
    /// Takes the time of calls, where somebody wants to know it.
    pub(crate) stopwatch: Option<Stopwatch>,
    /// Who calls the application takes a job up later than it is handed out.
    pub(crate) is_hosted: bool,
    /// Calls that wait in the middle for their peers to read.
    pub(crate) blocked: u64,
    /// What is to be told when the lock is open.
    notes: Vec<Note>,
    /// Whose wait in the middle of a call is over.
    worker_wakes: Vec<usize>,
    hosted_wakes: Vec<Py<PyAny>>,
    /// Connections that have given back what they kept, since memory was last returned.
    rested: usize,
}

/// What somebody should be told.
pub(crate) struct Note {
    pub(crate) level: u8,
    pub(crate) message: String,
    pub(crate) error: Option<PyErr>,
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
    body: RequestBody,
    is_chunked: bool,
    limit: Limit,
    route_key: Option<RouteKey>,
    entry: Option<Box<Entry>>,
    /// Since when it waits in the queue, or has, if the time is taken.
    queued_at: Option<Moment>,
}

/// What a request's body has become.
enum RequestBody {
    /// There is none.
    Empty,
    /// A `bytes` object.
    Bytes(Object),
    /// A file without a name, at its start, and its length.
    File(Box<(File, u64)>),
    /// It is still arriving.
    Arriving,
}

/// What is needed to make a [`Wsgi`].
pub(crate) struct Parts<'py> {
    pub(crate) multithread: bool,
    pub(crate) multiprocess: bool,
    pub(crate) software: String,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) limits: Limits,
    pub(crate) buffers_bodies: bool,
    pub(crate) stopwatch: Option<Stopwatch>,
    pub(crate) is_hosted: bool,
    pub(crate) place: Place,
    /// What an application is given as `wsgi.errors`; `sys.stderr` where there is none.
    pub(crate) errors: Option<Bound<'py, PyAny>>,
}

impl Wsgi {
    pub(crate) fn new<'py>(py: Python<'py>, locals: &[Local], parts: Parts<'py>) -> PyResult<Self> {
        let constants = Constants {
            errors: parts.errors.map_or_else(|| py.import("sys")?.getattr("stderr"), Ok)?,
            file_wrapper: py.get_type::<FileWrapper>().into_any(),
            multithread: parts.multithread,
            multiprocess: parts.multiprocess,
            software: parts.software,
        };
        Ok(Self {
            environs: Environs::new(py, locals, &constants)?,
            access_log: parts.access_log,
            calls: Calls::new(parts.place),
            refusals: Refusals::default(),
            limits: parts.limits,
            buffers_bodies: parts.buffers_bodies,
            route_keys: (parts.multithread && !parts.is_hosted).then(RouteKeys::default),
            stopwatch: parts.stopwatch,
            is_hosted: parts.is_hosted,
            blocked: 0,
            notes: Vec::new(),
            worker_wakes: Vec::new(),
            hosted_wakes: Vec::new(),
            rested: 0,
        })
    }

    /// What the engine has handed out, as something to run; a call begins to count.
    pub(crate) fn begin_job(&mut self, work: Work<Self>, now: Now) -> Job {
        match work {
            Work::Call(ticket, mut request) => {
                // SAFETY: see the module.
                let py = unsafe { Python::assume_attached() };
                let entry = request.entry.take();
                let key = request.environ.as_ref().map(|environ| {
                    let worker = self.calls.place().worker();
                    let environ = environ.clone_ref(py);
                    self.calls.begin(ticket.call(), environ, entry, request.limit, worker, now.monotonic)
                });
                if let (Some(stopwatch), Some(key)) = (&mut self.stopwatch, key) {
                    if self.is_hosted {
                        stopwatch.dispatch(key);
                    } else {
                        stopwatch.begin(key, request.queued_at);
                    }
                }
                Job::Call { ticket, request, key }
            }
            Work::Resume(ticket, stream) => Job::Resume(ticket, stream),
            Work::Abandon(stream) => Job::Abandon(stream),
        }
    }

    /// Puts a message down until it can be told.
    pub(crate) fn note(&mut self, level: u8, message: String, error: Option<PyErr>) {
        self.notes.push(Note { level, message, error });
    }

    pub(crate) fn has_notes(&self) -> bool {
        !self.notes.is_empty() || self.access_log.as_ref().is_some_and(AccessLog::has_pending)
    }

    /// The messages, and the lines that go to a logger.
    pub(crate) fn take_notes(&mut self, py: Python<'_>) -> (Vec<Note>, Option<LoggerLines>) {
        let lines = self.access_log.as_mut().and_then(|log| log.take_pending(py));
        (std::mem::take(&mut self.notes), lines)
    }

    /// The shortest time limit that any request has.
    pub(crate) fn shortest_limit(&self) -> Option<Duration> {
        self.limits.shortest()
    }

    pub(crate) fn take_worker_wake(&mut self) -> Option<usize> {
        self.worker_wakes.pop()
    }

    pub(crate) fn take_hosted_wakes(&mut self) -> Vec<Py<PyAny>> {
        std::mem::take(&mut self.hosted_wakes)
    }

    pub(crate) fn wake_worker(&mut self, worker: usize) {
        self.worker_wakes.push(worker);
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

    /// A call is over: it counts no longer, and is logged. What the application knows of it is returned, to be let go
    /// when the lock is open.
    fn end_call(&mut self, py: Python<'_>, call: &Call, body_bytes: u64) -> Ended {
        let number = self.calls.number(call.key);
        let mut ended = self.end(call.key);
        if let (Some(log), Some(entry)) = (&mut self.access_log, ended.entry.take()) {
            let (is_refused, body_bytes) = match ended.expired {
                Some(Expired::Answered { body_bytes }) => (true, body_bytes),
                Some(Expired::Cut { body_bytes }) => (false, body_bytes),
                _ => (false, body_bytes),
            };
            // To write a line takes Python, during which an exchange is not to be used: the draft is lent.
            let exchange = call.handles.exchange();
            let mut draft = exchange.with(py, |exchange| std::mem::take(&mut exchange.draft));
            if is_refused {
                // What the application said later is not what its client got.
                draft = timeout_draft();
            }
            let response = Response { status: draft.status(), body_bytes, draft: Some(&draft) };
            log.write(py, &entry, response, Some(&ended.environ), Some(number));
            exchange.with(py, |exchange| exchange.draft = draft);
        }
        ended
    }

    /// Writes the line of a request that was answered with 504 while its call goes on.
    pub(crate) fn log_late(&mut self, py: Python<'_>, Late { number, entry, environ, body_bytes }: &Late) {
        if let Some(log) = &mut self.access_log {
            let draft = timeout_draft();
            let response = Response { status: 504, body_bytes: *body_bytes, draft: Some(&draft) };
            log.write(py, entry, response, Some(environ), Some(*number));
        }
    }

    /// A call is over, and counts no longer.
    pub(crate) fn end(&mut self, key: usize) -> Ended {
        if let Some(stopwatch) = &mut self.stopwatch {
            stopwatch.end(key);
        }
        self.calls.end(key)
    }
}

/// The head of the engine's own answer for a call that has missed its deadline.
fn timeout_draft() -> Draft {
    let mut draft = Draft::default();
    // It is a status.
    draft.start_refusal(504).ok();
    draft
}

/// A client's address for people; that of a Unix socket says nothing.
fn client(address: &str, port: &str) -> String {
    match address {
        "" => "on a Unix socket".to_owned(),
        address if address.contains(':') => format!("[{address}]:{port}"),
        address => format!("{address}:{port}"),
    }
}

impl App for Wsgi {
    type Net = Os;
    type Connection = ConnectionState;
    type Request = Request;
    // What a connection that waits would otherwise move about is larger than all else.
    type Response = Box<Stream>;
    type Chunk = Chunk;
    type Waiter = Waiter;

    fn connect(&mut self, peer: &Peer) -> ConnectionState {
        ConnectionState::new(*peer)
    }

    fn begin(&mut self, head: &Head<'_>, connection: &mut ConnectionState) -> Request {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        let environ = self.environs.make(py, head, connection);
        if environ.is_none() {
            let error = PyErr::take(py);
            self.note(ERROR, "no memory for a request".to_owned(), error);
        }
        let has_body = !matches!(head.framing, Framing::None | Framing::Length(0));
        Request {
            environ,
            body: if has_body && !self.buffers_bodies { RequestBody::Arriving } else { RequestBody::Empty },
            is_chunked: head.framing == Framing::Chunked,
            limit: self.limits.of(head.target.path),
            route_key: self.route_keys.as_ref().map(|route_keys| route_keys.of_request(head.method, head.target.path)),
            entry: self.access_log.as_ref().map(|_| Box::new(Entry::new(head, connection.peer))),
            queued_at: None,
        }
    }

    fn queued(&mut self, request: &mut Request) {
        request.queued_at = self.stopwatch.as_ref().map(|_| Stopwatch::queue());
    }

    fn receive(&mut self, request: &mut Request, body: Body<'_>) {
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        let bytes = match &body {
            Body::Empty => b"",
            Body::Borrowed(bytes) => *bytes,
            Body::Memory(bytes) => bytes.as_slice(),
            Body::File(..) => {
                if let Body::File(file, length) = body {
                    request.body = RequestBody::File(Box::new((file, length)));
                }
                return;
            }
        };
        request.body = if bytes.is_empty() {
            RequestBody::Empty
        } else {
            RequestBody::Bytes(PyBytes::new(py, bytes).into_any().unbind().into())
        };
    }

    fn abandon_request(&mut self, request: Request, refusal: Option<Refusal>) {
        let Some(refusal) = refusal else { return };
        // SAFETY: see the module.
        let py = unsafe { Python::assume_attached() };
        if let (Some(log), Some(entry)) = (&mut self.access_log, &request.entry) {
            log.write(py, entry, Response::refused(refusal), request.environ.as_ref(), None);
        }
        // The application has not had it, so it is as the server made it.
        let known = |name| request.environ.as_ref().and_then(|environ| variable(py, environ, name)).unwrap_or_default();
        let (method, target) = (known("REQUEST_METHOD"), known("REQUEST_URI"));
        let told = self.refusals.note(refusal, || Refused {
            client: client(&known("REMOTE_ADDR"), &known("REMOTE_PORT")),
            method: method.as_bytes(),
            target: target.as_bytes(),
        });
        if let Some(told) = told {
            self.note(INFO, told, None);
        }
    }

    fn wake(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Worker(worker) => self.worker_wakes.push(worker),
            Waiter::Hosted(waiter) => self.hosted_wakes.push(waiter),
        }
    }

    fn idle(&mut self, connection: &mut ConnectionState) {
        connection.forget();
        self.rested += 1;
    }

    fn refused(&mut self, refusal: Refusal, line: Option<PartialRequestLine<'_>>, connection: &mut ConnectionState) {
        if let Some(log) = &mut self.access_log {
            // SAFETY: see the module.
            let py = unsafe { Python::assume_attached() };
            let entry = Entry::unread(connection.peer, line.as_ref());
            log.write(py, &entry, Response::refused(refusal), None, None);
        }
        let told = self.refusals.note(refusal, || Refused {
            client: match connection.peer.address {
                Some(address) => client(&address.ip().to_canonical().to_string(), &address.port().to_string()),
                None => client("", ""),
            },
            method: line.map_or(b"", |line| line.method),
            target: line.map_or(b"", |line| line.target),
        });
        if let Some(told) = told {
            self.note(INFO, told, None);
        }
    }

    fn report(&mut self, report: Report) {
        let (level, message) = match report {
            Report::AcceptPaused(AcceptPause::Connections(most)) => {
                (WARNING, format!("accepting pauses: {most} connections are open; --worker-connections allows no more"))
            }
            Report::AcceptPaused(AcceptPause::Descriptors(most)) => (
                WARNING,
                format!(
                    "accepting pauses: {most} connections are open; the limit on open files allows no more: raise it \
                     (ulimit -n)"
                ),
            ),
            Report::AcceptPaused(AcceptPause::Failed(error)) => {
                (WARNING, format!("accepting pauses: {error}; raise the limit on open files (ulimit -n)"))
            }
            Report::FileShrank => {
                (ERROR, "a file became shorter while it was sent, and its response was cut".to_owned())
            }
            Report::Panicked(message) => (ERROR, format!("this is a bug in kirsch, please report it: {message}")),
            Report::SpoolFailed(error) => {
                (ERROR, format!("a request body could not be kept in a temporary file: {error}"))
            }
        };
        self.note(level, message, None);
    }
}
