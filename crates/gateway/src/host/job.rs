//! What a thread, or the loop that hosts the engine, runs for the application.

use super::calls::{Calls, Ended};
use super::limits::Limit;
use crate::access_log::Entry;
use crate::interface::{Handles as _, Interface, RequestBody, Route};
use crate::object::{Chunk, Object};
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
    pub(super) object: Option<Object>,
    pub(super) route: Route,
    pub(super) body: RequestBody,
    pub(super) is_chunked: bool,
    pub(super) limit: Limit,
    pub(super) route_key: Option<RouteKey>,
    pub(super) entry: Option<Box<Entry>>,
    /// Since when it waits in the queue, or has, if the time is taken.
    pub(super) queued_at: Option<Moment>,
    /// As many calls as may ran already when this one began: it is refused.
    pub(super) is_beyond_limit: bool,
}

/// Something to be run for the application.
pub(crate) enum Job<I: Interface> {
    /// A request; `key`: of the call that has begun, `None` if memory was short.
    Call { ticket: Ticket, request: Request, key: Option<usize> },
    /// A response that may go on.
    Resume(Ticket, Box<Stream<I>>),
    /// A response that cannot go on.
    Abandon(Box<Stream<I>>),
}

impl<I: Interface> Job<I> {
    /// The thread that has to run it: a response body stays where it was made.
    pub(super) fn worker(&self) -> Option<usize> {
        match self {
            Job::Call { .. } => None,
            Job::Resume(_, stream) | Job::Abandon(stream) => stream.worker,
        }
    }

    /// Whether a thread beside the loop that hosts the engine has to run it.
    pub(super) fn is_threaded(&self) -> bool {
        match self {
            Job::Call { request, .. } => request.route.is_threaded,
            Job::Resume(_, stream) | Job::Abandon(stream) => stream.worker.is_some(),
        }
    }

    /// What it has in common with others, if anything is known of it. Of a response that goes on nothing is.
    pub(super) fn route_key(&self) -> Option<RouteKey> {
        match self {
            Job::Call { request, .. } => request.route_key,
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
            Job::Resume(_, stream) | Job::Abandon(stream) => calls.number(stream.call.key),
        }
    }
}

/// A call of the application, while its response is written.
pub(crate) struct InFlight<I: Interface> {
    /// Its key among [`Calls`].
    pub(super) key: usize,
    /// What the application was given.
    pub(super) request: Object,
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
    /// It could not be.
    Fail(Failure),
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
