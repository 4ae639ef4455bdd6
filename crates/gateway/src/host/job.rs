//! What a thread, or the loop that hosts the engine, runs for the application.

use super::calls::{Calls, Ended};
use super::exchange::MessageHandler;
use super::limits::Limit;
use crate::access_log::Entry;
use crate::interface::{Handles as _, Interface, RequestBody, RequestObject, Route};
use crate::object::{Chunk, Object};
use crate::quarantine;
use crate::scoreboard::Moment;
use engine::Ticket;
use engine::scheduler::RouteKey;
use pyo3::prelude::*;
use std::fmt;
use std::ops::Deref;
use wire::message::{Draft, Misuse};

/// A request whose head is here.
pub(crate) struct Request {
    /// What the application will be given; `None` if memory was short.
    pub(super) object: Option<RequestObject>,
    pub(super) route: Route,
    pub(super) body: RequestBody,
    pub(super) is_chunked: bool,
    pub(super) takes_errors: bool,
    pub(super) limit: Limit,
    pub(super) route_key: Option<RouteKey>,
    /// The route to be recorded, while routes are recorded or refused.
    pub(super) recorded: Option<Box<quarantine::Route>>,
    pub(super) entry: Option<Box<Entry>>,
    /// Since when it waits in the queue, or has, if the time is taken.
    pub(super) queued_at: Option<Moment>,
    /// As many calls as may ran already when this one began, or its route is in quarantine: it is answered with 503.
    pub(super) is_refused: bool,
}

/// Something to be run for the application.
pub(crate) enum Job<I: Interface> {
    /// A request; `key`: of the call that has begun, `None` if memory was short.
    Call { ticket: Ticket, request: Request, key: Option<usize> },
    /// A response that may go on.
    Resume(Ticket, Resumable<I>),
    /// A response that cannot go on.
    Abandon(Resumable<I>),
}

/// A response that was given back to the engine.
pub(crate) enum Resumable<I: Interface> {
    /// It goes on when its client has taken what was written.
    Stream(Box<Stream<I>>),
    /// It goes on when a message has come.
    Listening(Box<Listening<I>>),
}

impl<I: Interface> Resumable<I> {
    fn call(&self) -> &InFlight<I> {
        match self {
            Resumable::Stream(stream) => &stream.call,
            Resumable::Listening(listening) => &listening.call,
        }
    }

    /// Whether a thread beside the loop that hosts the engine has to run it.
    fn is_threaded(&self) -> bool {
        match self {
            Resumable::Stream(stream) => stream.worker.is_some(),
            Resumable::Listening(listening) => listening.is_threaded,
        }
    }

    /// The thread that it belongs to.
    fn worker(&self) -> Option<usize> {
        match self {
            Resumable::Stream(stream) => stream.worker,
            Resumable::Listening(_) => None,
        }
    }
}

/// A WebSocket whose messages are work, as requests are: each is given to the application's handler by any thread, one at a
/// time. Between them this lies in the engine, and no thread has it.
pub(crate) struct Listening<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) handler: Box<dyn MessageHandler>,
    pub(super) rules: MessageRules,
    /// The number of the call. Each message has one of its own.
    pub(super) number: u64,
    /// It began in a thread, so any thread may go on with it, but no loop that hosts the engine.
    pub(super) is_threaded: bool,
    /// The handler has raised: it gets no message any more, only the end.
    pub(super) has_failed: bool,
}

/// What holds for each message that a handler is given.
#[derive(Clone, Copy)]
pub(super) struct MessageRules {
    /// How long the handler may take.
    pub(super) limit: Limit,
    pub(super) route_key: Option<RouteKey>,
}

impl<I: Interface> Job<I> {
    /// The thread that has to run it: a response body stays where it was made.
    pub(super) fn worker(&self) -> Option<usize> {
        match self {
            Job::Call { .. } => None,
            Job::Resume(_, response) | Job::Abandon(response) => response.worker(),
        }
    }

    /// Whether a thread beside the loop that hosts the engine has to run it.
    pub(super) fn is_threaded(&self) -> bool {
        match self {
            Job::Call { request, .. } => request.route.is_threaded,
            Job::Resume(_, response) | Job::Abandon(response) => response.is_threaded(),
        }
    }

    /// What it has in common with others, if anything is known of it. Of a response that goes on nothing is.
    pub(super) fn route_key(&self) -> Option<RouteKey> {
        match self {
            Job::Call { request, .. } => request.route_key,
            Job::Resume(_, Resumable::Listening(listening)) => listening.rules.route_key,
            Job::Resume(..) | Job::Abandon(_) => None,
        }
    }

    /// The key of the call that it begins, if it begins one.
    pub(super) fn beginning(&self) -> Option<usize> {
        match self {
            Job::Call { key, .. } => *key,
            Job::Resume(..) | Job::Abandon(_) => None,
        }
    }

    /// The number of its call.
    pub(super) fn number(&self, calls: &Calls) -> u64 {
        match self {
            Job::Call { key, .. } => key.map_or(0, |key| calls.number(key)),
            Job::Resume(_, response) | Job::Abandon(response) => calls.number(response.call().key),
        }
    }
}

/// A call of the application, while its response is written.
pub(crate) struct InFlight<I: Interface> {
    /// Its key among [`Calls`].
    pub(super) key: usize,
    /// What the application was given.
    pub(super) request: RequestObject,
    pub(super) handles: OpenHandles<I>,
    /// The input, where it has to be closed: it holds a file.
    pub(super) spooled: Option<Object>,
    /// The input passes the body on as it arrives.
    pub(super) is_arriving: bool,
}

/// The handles of a response that is not over. To drop them is to cut the response off: code of ours has panicked.
pub(crate) struct OpenHandles<I: Interface>(Option<I::Handles>);

impl<I: Interface> OpenHandles<I> {
    pub(super) fn open(py: Python<'_>, handles: I::Handles, ticket: Ticket, key: usize) -> Self {
        handles.exchange().open(py, ticket, key);
        Self(Some(handles))
    }

    /// The response is over.
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
/// The application is asked for its next part only when the client has taken the one before, so a slow client holds one
/// part, not the response, and no thread: meanwhile the stream lies in the engine. It goes on in the thread where it
/// began, because that is where the application keeps what it needs.
pub(crate) struct Stream<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) body: I::Body,
    pub(super) body_bytes: u64,
    /// A part that was taken from the body and not written.
    pub(super) first: Option<Chunk>,
    /// The thread that it belongs to; `None` where a loop hosts the engine.
    pub(super) worker: Option<usize>,
}

/// A call whose response is one block: what is left to be done with it.
pub(crate) struct Ending<I: Interface> {
    pub(super) call: InFlight<I>,
    pub(super) rest: Rest,
}

pub(super) enum Rest {
    /// To be written, with the engine locked.
    Write(Chunk),
    /// It has been. What the call held is to be released.
    Release(Ended),
    /// It could not be. Boxed, because an exception is the largest of what an ending may hold, and the rarest: an ending
    /// is moved for each request.
    Fail(Box<Failure>),
    /// It is being written. What is left so has panicked.
    InProgress,
}

/// Why a response could not be as the application wanted it.
pub(super) enum Failure {
    Raised(PyErr),
    Mismatched(Mismatch),
}

/// A response whose body is not as long as its Content-Length says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mismatch {
    misuse: Misuse,
    declared: Option<u64>,
    /// What the application offered as the body, as far as it came to that.
    offered: u64,
}

impl Mismatch {
    /// A body of which nothing is known but that it is too short.
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
