//! The jobs that a thread, or the loop that hosts the engine, runs for the application.

use super::calls::{Calls, Ended};
use super::exchange::{Exchange, MessageHandler};
use super::limits::Limit;
use crate::access_log::Entry;
use crate::interface::{Handles as _, Interface, RequestBody, RequestObject, Route};
use crate::interrupt;
use crate::object::{Chunk, Object};
use crate::quarantine;
use crate::scoreboard::Moment;
use crate::text::escaped;
use engine::Ticket;
use pyo3::prelude::*;
use scheduler::RouteKey;
use std::fmt;
use std::ops::Deref;
use wire::message::{Draft, Misuse};

/// A request whose head has arrived.
pub(crate) struct Request {
    /// The object that the application will be given; `None` if memory was short.
    pub(super) object: Option<RequestObject>,
    pub(super) route: Route,
    pub(super) body: RequestBody,
    pub(super) is_chunked: bool,
    pub(super) takes_errors: bool,
    pub(super) limit: Limit,
    pub(super) route_key: Option<RouteKey>,
    /// The route to be recorded, while routes are recorded or refused.
    pub(super) recorded: Option<Box<quarantine::QuarantineRoute>>,
    pub(super) entry: Option<Box<Entry>>,
    /// The time at which the request entered the queue, if it is measured.
    pub(super) queued_at: Option<Moment>,
    /// True if the maximum number of calls ran already when this one began, or if its route is in quarantine: the
    /// request is answered with 503.
    pub(super) is_refused: bool,
}

/// A unit of work to be run for the application.
pub(crate) enum Job<I: Interface> {
    /// A request. `key` is the key of the call that has begun; `None` if memory was short.
    Call { ticket: Ticket, request: Request, key: Option<usize> },
    /// A response that may continue.
    Resume(Ticket, Resumable<I>),
    /// A response that cannot continue.
    Abandon(Resumable<I>),
}

/// A response that was given back to the engine.
pub(crate) enum Resumable<I: Interface> {
    /// A response that goes on when its client has read the output.
    Stream(Box<Stream<I>>),
    /// A WebSocket that goes on when a message has arrived.
    Listening(Box<Listening<I>>),
}

impl<I: Interface> Resumable<I> {
    fn call(&self) -> &InFlight<I> {
        match self {
            Resumable::Stream(stream) => &stream.call,
            Resumable::Listening(listening) => &listening.call,
        }
    }

    /// Returns true if a thread beside the loop that hosts the engine has to run the response.
    fn is_threaded(&self) -> bool {
        match self {
            Resumable::Stream(stream) => stream.worker.is_some(),
            Resumable::Listening(listening) => listening.is_threaded,
        }
    }

    /// Returns the thread to which the response belongs.
    fn worker(&self) -> Option<usize> {
        match self {
            Resumable::Stream(stream) => stream.worker,
            Resumable::Listening(_) => None,
        }
    }
}

/// A WebSocket whose messages are handled like requests: any thread may give a message to the application's handler,
/// one at a time. Between messages the engine holds this, and no thread does.
pub(crate) struct Listening<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) handler: Box<dyn MessageHandler>,
    pub(super) rules: MessageRules,
    /// The number of the call. Each message has a number of its own.
    pub(super) number: u64,
    /// True if the call began in a thread: any thread may go on with it, but not the loop that hosts the engine.
    pub(super) is_threaded: bool,
    /// True once the handler has failed: it gets no more messages, only the end.
    pub(super) has_failed: bool,
}

/// The settings for each message that a handler is given.
#[derive(Clone, Copy)]
pub(super) struct MessageRules {
    /// The time limit of the handler for one message.
    pub(super) limit: Limit,
    pub(super) route_key: Option<RouteKey>,
}

impl<I: Interface> Job<I> {
    /// Returns the thread that has to run the job: a response body stays in the thread that made it.
    pub(super) fn worker(&self) -> Option<usize> {
        match self {
            Job::Call { .. } => None,
            Job::Resume(_, response) | Job::Abandon(response) => response.worker(),
        }
    }

    /// Returns true if a thread beside the loop that hosts the engine has to run the job.
    pub(super) fn is_threaded(&self) -> bool {
        match self {
            Job::Call { request, .. } => request.route.is_threaded,
            Job::Resume(_, response) | Job::Abandon(response) => response.is_threaded(),
        }
    }

    /// Returns the key of the job's route, which similar jobs share, if it is known. It is unknown for a response that
    /// goes on.
    pub(super) fn route_key(&self) -> Option<RouteKey> {
        match self {
            Job::Call { request, .. } => request.route_key,
            Job::Resume(_, Resumable::Listening(listening)) => listening.rules.route_key,
            Job::Resume(..) | Job::Abandon(_) => None,
        }
    }

    /// Returns the key of the call that the job begins, if it begins one.
    pub(super) fn beginning(&self) -> Option<usize> {
        match self {
            Job::Call { key, .. } => *key,
            Job::Resume(..) | Job::Abandon(_) => None,
        }
    }

    /// Returns the number of the job's call; 0 if there is none.
    pub(super) fn number(&self, calls: &Calls) -> u64 {
        match self {
            Job::Call { key, .. } => key.map_or(0, |key| calls.number(key)),
            Job::Resume(_, response) | Job::Abandon(response) => calls.number(response.call().key()),
        }
    }
}

/// A call of the application, while its response is written.
pub(crate) struct InFlight<I: Interface> {
    /// The key of the call in [`Calls`].
    key: usize,
    /// The object that the application was given.
    request: RequestObject,
    handles: OpenHandles<I>,
    /// The input, if it has to be closed because it holds a file.
    spooled: Option<Object>,
    /// True if the input passes the body on as it arrives.
    is_arriving: bool,
}

impl<I: Interface> InFlight<I> {
    pub(super) fn new(key: usize, request: RequestObject, handles: OpenHandles<I>, is_arriving: bool) -> Self {
        Self { key, request, handles, spooled: None, is_arriving }
    }

    pub(super) fn key(&self) -> usize {
        self.key
    }

    pub(super) fn request(&self) -> &Object {
        &self.request
    }

    pub(super) fn handles(&self) -> &I::Handles {
        &self.handles
    }

    pub(super) fn exchange(&self) -> &Exchange {
        self.handles.exchange()
    }

    pub(super) fn is_arriving(&self) -> bool {
        self.is_arriving
    }

    /// Keeps the input until it is [taken](Self::take_input) to be closed.
    pub(super) fn keep_input(&mut self, spooled: Option<Object>) {
        self.spooled = spooled;
    }

    pub(super) fn take_input(&mut self) -> Option<Object> {
        self.spooled.take()
    }

    /// Returns the method and the target of the request, escaped for a terminal.
    pub(super) fn subject(&self, py: Python<'_>) -> String {
        let summary = I::summary(py, &self.request);
        let shown = |text: Option<String>| text.map_or_else(|| "?".to_owned(), |text| escaped(text.as_bytes()));
        format!("{} {}", shown(summary.method), shown(summary.target))
    }

    /// Releases the objects that the call held, which may run code of the application. Returns the closed handles.
    pub(super) fn release(self, py: Python<'_>, ended: Ended) -> I::Handles {
        if ended.interrupted {
            interrupt::take_back(py);
        }
        let Self { request, handles, .. } = self;
        ended.release(py);
        request.release(py);
        handles.close(py)
    }
}

/// The handles of a response that is not over. Dropping them cuts the response off: code of the server has panicked.
pub(crate) struct OpenHandles<I: Interface>(Option<I::Handles>);

impl<I: Interface> OpenHandles<I> {
    pub(super) fn open(py: Python<'_>, handles: I::Handles, ticket: Ticket, key: usize) -> Self {
        handles.exchange().open(py, ticket, key);
        Self(Some(handles))
    }

    /// Closes the handles of a response that is over.
    pub(super) fn close(mut self, py: Python<'_>) -> I::Handles {
        let handles = self.0.take().expect("handles are closed once");
        handles.exchange().close(py);
        handles
    }
}

impl<I: Interface> Deref for OpenHandles<I> {
    type Target = I::Handles;

    fn deref(&self) -> &I::Handles {
        self.0.as_ref().expect("handles are there until they are closed")
    }
}

impl<I: Interface> Drop for OpenHandles<I> {
    fn drop(&mut self) {
        if let Some(handles) = self.0.take() {
            Python::attach(|py| handles.exchange().abort(py));
        }
    }
}

/// A response that is produced part by part.
///
/// The server requests the next part from the application only after the client has read the part before. So a slow
/// client holds one part, not the response, and no thread: meanwhile the engine holds the stream. The stream goes on in
/// the thread in which it began, because the application keeps its own data in that thread.
pub(crate) struct Stream<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) body: I::Body,
    pub(super) body_bytes: u64,
    /// A part that was taken from the body and not written.
    pub(super) first: Option<Chunk>,
    /// The thread to which the stream belongs; `None` in a loop that hosts the engine.
    pub(super) worker: Option<usize>,
}

/// A call whose response is one block, and the work that is left.
pub(crate) struct Ending<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) rest: Rest,
}

pub(super) enum Rest {
    /// The block is to be written, with the engine locked.
    Write(Chunk),
    /// The block has been written. The objects that the call held are to be released.
    Release(Ended),
    /// The block could not be written. Boxed, because a failure is the largest and the rarest value that an ending may
    /// hold: an ending is moved for each request.
    Fail(Box<Failure>),
    /// The block is being written. An ending that is left so has panicked.
    InProgress,
}

/// The reason why a response could not be sent as the application wanted.
pub(super) enum Failure {
    Raised(PyErr),
    Mismatched(Mismatch),
}

/// A response whose body is not as long as its Content-Length says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    misuse: Misuse,
    declared: Option<u64>,
    /// The number of bytes of the body that the application had offered so far.
    offered: u64,
}

impl Mismatch {
    /// A body of which nothing is known except that it is too short.
    pub(super) const UNKNOWN: Self = Self { misuse: Misuse::BodyTooShort, declared: None, offered: 0 };

    pub(super) fn of(misuse: Misuse, draft: &Draft, offered: u64) -> Self {
        Self { misuse, declared: draft.content_length(), offered }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { misuse, declared, offered } = self;
        write!(out, "{misuse}")?;
        match declared {
            // The application is not asked for the rest of a body that is too long.
            Some(declared) if *misuse == Misuse::BodyTooLong => {
                write!(out, " (declared: {declared} bytes; produced: at least {offered})")
            }
            Some(declared) => write!(out, " (declared: {declared} bytes; produced: {offered})"),
            None => Ok(()),
        }
    }
}
