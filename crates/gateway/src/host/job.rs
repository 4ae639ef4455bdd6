//! The jobs that the engine dispatches: calls of the application that begin, and responses that continue. A thread of
//! the engine, or the loop that hosts it, runs them.

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
    /// The object that represents the request for the application; `None` if its allocation failed.
    pub(super) object: Option<RequestObject>,
    pub(super) route: Route,
    pub(super) body: RequestBody,
    pub(super) is_chunked: bool,
    pub(super) takes_errors: bool,
    pub(super) limit: Limit,
    pub(super) route_key: Option<RouteKey>,
    /// The route for the quarantine's record; `None` if no routes are recorded or refused.
    pub(super) recorded: Option<Box<quarantine::QuarantineRoute>>,
    pub(super) entry: Option<Box<Entry>>,
    /// The time at which the request entered the queue, if requests are measured.
    pub(super) queued_at: Option<Moment>,
    /// True if the request must be answered with 503, because the maximum number of calls is running or its route is in
    /// quarantine.
    pub(super) is_refused: bool,
}

/// A unit of work for a thread or for the hosting loop.
pub(crate) enum Job<I: Interface> {
    /// A request. `key` is the key of the call that has begun; `None` if the allocation of the request object failed.
    Call { ticket: Ticket, request: Request, key: Option<usize> },
    /// A response that may continue, because its client has read output or has sent a message.
    Resume(Ticket, Resumable<I>),
    /// A response that cannot continue, because its connection is gone.
    Abandon(Resumable<I>),
}

/// A response that the engine holds until it can continue.
pub(crate) enum Resumable<I: Interface> {
    /// A response that continues when its client has read the output.
    Stream(Box<Stream<I>>),
    /// A WebSocket whose handler runs when a message has arrived.
    Listening(Box<Listening<I>>),
}

impl<I: Interface> Resumable<I> {
    fn call(&self) -> &InFlight<I> {
        match self {
            Resumable::Stream(stream) => &stream.call,
            Resumable::Listening(listening) => &listening.call,
        }
    }

    /// Returns true if only a thread beside the hosting loop may run the response.
    fn is_threaded(&self) -> bool {
        match self {
            Resumable::Stream(stream) => stream.worker.is_some(),
            Resumable::Listening(listening) => listening.is_threaded,
        }
    }

    /// Returns the index of the thread that must run the response; `None` if any thread may.
    fn worker(&self) -> Option<usize> {
        match self {
            Resumable::Stream(stream) => stream.worker,
            Resumable::Listening(_) => None,
        }
    }
}

/// A WebSocket whose messages are handled like requests: any thread may run the application's handler, but only one at
/// a time. Between messages the engine holds this value, and the WebSocket occupies no thread.
pub(crate) struct Listening<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) handler: Box<dyn MessageHandler>,
    pub(super) rules: MessageRules,
    /// The number of the call itself. The handling of each message gets another number.
    pub(super) number: u64,
    /// True if the call began in a thread: any thread may run the handler, but not the loop that hosts the engine.
    pub(super) is_threaded: bool,
    /// True once the handler has failed: it receives only the end, and no more messages.
    pub(super) has_failed: bool,
}

/// The settings for the handling of each message.
#[derive(Clone, Copy)]
pub(super) struct MessageRules {
    /// The time limit for the handling of one message.
    pub(super) limit: Limit,
    pub(super) route_key: Option<RouteKey>,
}

impl<I: Interface> Job<I> {
    /// Returns the index of the thread that must run the job (`None`: any thread may). A response body stays in the
    /// thread that made it.
    pub(super) fn worker(&self) -> Option<usize> {
        match self {
            Job::Call { .. } => None,
            Job::Resume(_, response) | Job::Abandon(response) => response.worker(),
        }
    }

    /// Returns true if only a thread beside the hosting loop may run the job.
    pub(super) fn is_threaded(&self) -> bool {
        match self {
            Job::Call { request, .. } => request.route.is_threaded,
            Job::Resume(_, response) | Job::Abandon(response) => response.is_threaded(),
        }
    }

    /// Returns the key of the job's route, which requests for the same route share; `None` for a stream that
    /// continues.
    pub(super) fn route_key(&self) -> Option<RouteKey> {
        match self {
            Job::Call { request, .. } => request.route_key,
            Job::Resume(_, Resumable::Listening(listening)) => listening.rules.route_key,
            Job::Resume(..) | Job::Abandon(_) => None,
        }
    }

    /// Returns the key of the call that the job begins; `None` if it begins none.
    pub(super) fn beginning(&self) -> Option<usize> {
        match self {
            Job::Call { key, .. } => *key,
            Job::Resume(..) | Job::Abandon(_) => None,
        }
    }

    /// Returns the number of the job's call; 0 if there is no call.
    pub(super) fn number(&self, calls: &Calls) -> u64 {
        match self {
            Job::Call { key, .. } => key.map_or(0, |key| calls.number(key)),
            Job::Resume(_, response) | Job::Abandon(response) => calls.number(response.call().key()),
        }
    }
}

/// A call of the application that has not ended.
pub(crate) struct InFlight<I: Interface> {
    /// The key of the call in [`Calls`].
    key: usize,
    /// The object that represents the request for the application.
    request: RequestObject,
    handles: OpenHandles<I>,
    /// The input object, if it must be closed because it holds a file.
    spooled: Option<Object>,
    /// True if the input streams the request body.
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

    /// Stores the input until [`take_input`](Self::take_input) removes it to close it.
    pub(super) fn keep_input(&mut self, spooled: Option<Object>) {
        self.spooled = spooled;
    }

    pub(super) fn take_input(&mut self) -> Option<Object> {
        self.spooled.take()
    }

    /// Returns the method and the target of the request for a message, with control characters escaped.
    pub(super) fn subject(&self, py: Python<'_>) -> String {
        let summary = I::summary(py, &self.request);
        let shown = |text: Option<String>| text.map_or_else(|| "?".to_owned(), |text| escaped(text.as_bytes()));
        format!("{} {}", shown(summary.method), shown(summary.target))
    }

    /// Releases the objects that the call held, which may run code of the application. Returns the closed handles for
    /// reuse.
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

/// The handles of a response that has not ended. Only a panic in the server drops them; the drop then cuts the response
/// off.
pub(crate) struct OpenHandles<I: Interface>(Option<I::Handles>);

impl<I: Interface> OpenHandles<I> {
    pub(super) fn open(py: Python<'_>, handles: I::Handles, ticket: Ticket, key: usize) -> Self {
        handles.exchange().open(py, ticket, key);
        Self(Some(handles))
    }

    /// Closes the handles after their response has ended.
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

/// A response whose body the application produces part by part.
///
/// The server requests the next part from the application only after the client has read the one before. So a response
/// to a slow client occupies the memory of one part and no thread; meanwhile the engine holds the stream. The stream
/// continues in the thread in which it began, because the application may use thread-local data.
pub(crate) struct Stream<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) body: I::Body,
    pub(super) body_bytes: u64,
    /// A part that was taken from the body and has not been written.
    pub(super) first: Option<Chunk>,
    /// The index of the thread that must run the stream; `None` in a loop that hosts the engine.
    pub(super) worker: Option<usize>,
}

/// A call whose response is one block, and the steps that remain to end it.
pub(crate) struct Ending<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) rest: Rest,
}

pub(super) enum Rest {
    /// The block must be written, with the engine locked.
    Write(Chunk),
    /// The block has been written. The objects that the call held must be released, with the engine unlocked.
    Release(Ended),
    /// The block could not be written. Boxed, because an ending is moved for each request, and a failure is the largest
    /// and the rarest of its values.
    Fail(Box<Failure>),
    /// The block is being written. An ending in this state means that the write panicked.
    InProgress,
}

/// The reason why a response could not be sent as the application specified it.
pub(super) enum Failure {
    Raised(PyErr),
    Mismatched(Mismatch),
}

/// A response whose body is longer or shorter than its Content-Length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    misuse: Misuse,
    declared: Option<u64>,
    /// The number of body bytes that the application had produced so far.
    offered: u64,
}

impl Mismatch {
    /// A body that is too short by an unknown number of bytes.
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
            // The server stops reading a body that is too long, so its full length is unknown.
            Some(declared) if *misuse == Misuse::BodyTooLong => {
                write!(out, " (declared: {declared} bytes; produced: at least {offered})")
            }
            Some(declared) => write!(out, " (declared: {declared} bytes; produced: {offered})"),
            None => Ok(()),
        }
    }
}
