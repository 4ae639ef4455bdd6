//! The interface between the host and the ways to call an application, such as WSGI and ASGI.
//!
//! The host has the engine, the threads or the event loop, the deadlines and the logs. It is generic over an
//! [`Interface`], which knows Python and the heads of requests and responses. An interface knows no thread, no engine
//! and no protocol; it uses them through the methods of its [`Exchange`].
//!
//! ```text
//!   engine locked      Requests::begin: request head ──▶ what the application is given, a dict
//!   engine not locked  Interface::prepare: request body ──▶ dict
//!                      Interface::call: application(dict) ──▶ Answer::Whole: one block, which the host writes
//!                                                         ├─▶ Answer::Body: pulled by the host as the client reads
//!                                                         └─▶ Answer::Suspended, Returned: written by the application,
//!                                                             through the exchange
//! ```

pub(crate) use crate::host::exchange::{
    Acceptance, End, Exchange, ExchangeHost, MessageHandler, MessageSent, Part, Received, Sent, StartRefusal,
};
pub(crate) use crate::object::{Message, OutgoingMessage};
pub(crate) use engine::{Awaited, HijackId, HijackRefusal, Hijacked, Incoming, Local, Peer, WebSocketEnd};
pub(crate) use wire::websocket::Opening;

use crate::object::{Chunk, Object};
use crate::reused::Reused;
use pyo3::prelude::*;
use std::fs::File;
use std::ops::Deref;
use std::sync::{Arc, Weak};
pub(crate) use tls::Security;
use wire::message::RequestHead;

/// A listener as the application sees it in its requests.
#[derive(Clone, Debug)]
pub(crate) struct ListenerInfo {
    pub(crate) local: Local,
    /// True if the listener's connections are encrypted.
    pub(crate) is_encrypted: bool,
}

/// The peer of a connection.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) peer: Peer,
    /// The result of the TLS handshake; `None` if the connection is not encrypted.
    pub(crate) security: Option<Arc<Security>>,
}

/// The application that a request is for, and how the host calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The index of the application among those of the interface.
    pub(crate) application: usize,
    /// True if a loop hosts the engine and the host calls this application in threads beside the loop.
    pub(crate) is_threaded: bool,
    /// True if this application receives each body as a stream, even if the server buffers bodies for others.
    pub(crate) streams_bodies: bool,
    /// True if a WebSocket request has a deadline until the application accepts it.
    pub(crate) limits_handshakes: bool,
}

/// A way to call applications.
pub(crate) trait Interface: Send + Sync + Sized + 'static {
    /// The factory of request objects.
    type Requests: Requests;
    /// The Python objects with which an application responds.
    type Handles: Handles;
    /// A response body that the application produces part by part.
    type Body: ResponseBody;

    /// Returns the handles for a new response, whose exchange belongs to `host`.
    ///
    /// # Errors
    /// `MemoryError`.
    fn take_handles(&self, py: Python<'_>, route: Route, host: &Weak<dyn ExchangeHost>) -> PyResult<Self::Handles>;

    /// Prepares the handles of an ended call for a call of `route`. Returns false if they cannot be reused for it.
    fn turn_handles(&self, handles: &mut Self::Handles, route: Route) -> bool {
        let _ = (handles, route);
        true
    }

    /// Takes back the handles of a response that has ended, to reuse them if nothing else refers to them.
    fn return_handles(&self, py: Python<'_>, handles: Self::Handles);

    /// Adds the data of this call to its request object, above all the body. Returns a file-like object that the host
    /// closes when the response has ended, if there is one.
    ///
    /// # Errors
    /// `MemoryError`, `OSError`.
    fn prepare(
        &self,
        py: Python<'_>,
        request: &Object,
        handles: &Self::Handles,
        input: Input,
    ) -> PyResult<Option<Object>>;

    /// Calls the application with its request object and handles.
    ///
    /// # Errors
    /// The exception that the application raised, or one that says why its return value is invalid.
    fn call(&self, py: Python<'_>, request: &Object, handles: &Self::Handles) -> PyResult<Answer<Self::Body>>;

    /// Wakes a waiter after an event of the engine ([`Exchange::wake_when`]). `is_waiting` is true if the hosting loop
    /// waits in this thread; then no task is current, and the waiting task may run a step at once.
    ///     ///
    /// # Errors
    /// An exception of that step that must end the program.
    fn wake(&self, py: Python<'_>, waiter: &Py<PyAny>, is_waiting: bool) -> PyResult<()> {
        let _ = (py, waiter, is_waiting);
        Ok(())
    }

    /// Called when the hosting loop has run all that was ready, and is about to wait.
    fn before_wait(&self, py: Python<'_>) {
        let _ = py;
    }

    /// Called at the end of the server: no call begins or continues after it.
    fn end(&self, py: Python<'_>) {
        let _ = py;
    }

    /// Returns the exception for an application that produced a body without having set a response head.
    fn unstarted() -> PyErr;

    /// Returns the exception for a call that ended before its response was complete.
    fn incomplete() -> PyErr {
        Self::unstarted()
    }

    /// Returns true if `error` is the exception for the use of a closed WebSocket. The application need not catch it.
    fn says_websocket_is_closed(py: Python<'_>, error: &PyErr) -> bool {
        let _ = (py, error);
        false
    }

    /// Returns the data of a request for a report. Runs no application code.
    fn summary(py: Python<'_>, request: &Object) -> Summary;
}

/// Makes the request objects of the application from the heads of requests. All methods run while the engine is locked,
/// so they must not run application code.
pub(crate) trait Requests: Send + 'static {
    /// The data that are kept with a connection, to make its next request object faster.
    type Connection: Default + Send;

    /// Returns the application that the request is for, and how the host calls it.
    fn route(&self, head: &RequestHead<'_>) -> Route {
        let _ = head;
        Route::default()
    }

    /// Returns the request object, a dict, without the body. `route` is the result of [`route`](Self::route) for this
    /// request. Returns `None` with a Python exception set if an allocation fails.
    fn begin(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        route: Route,
        remote: &Remote,
        connection: &mut Self::Connection,
    ) -> Option<RequestObject>;

    /// Does the same as [`begin`](Self::begin) for a WebSocket request, if the interface supports WebSockets.
    fn begin_websocket(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        route: Route,
        opening: &Opening<'_>,
        remote: &Remote,
        connection: &mut Self::Connection,
    ) -> Option<RequestObject> {
        let _ = opening;
        self.begin(py, head, route, remote, connection)
    }
}

/// The dict that represents a request, with which the application is called.
pub(crate) struct RequestObject {
    object: Object,
    /// The pool to which the dict returns after the call; `None` if it is not reused.
    reused: Option<Arc<Reused>>,
}

impl RequestObject {
    pub(crate) fn reused(object: Object, reused: &Arc<Reused>) -> Self {
        Self { object, reused: Some(Arc::clone(reused)) }
    }

    /// Releases the dict after the call, or returns it to its pool. This may run application code.
    pub(crate) fn release(self, py: Python<'_>) {
        match self.reused {
            None => self.object.release(py),
            Some(reused) => reused.take_back(py, self.object),
        }
    }
}

impl From<Object> for RequestObject {
    fn from(object: Object) -> Self {
        Self { object, reused: None }
    }
}

impl Deref for RequestObject {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

/// The Python objects with which an application responds to one request.
pub(crate) trait Handles: Send {
    /// Returns the exchange, which lives as long as these objects.
    fn exchange(&self) -> &Exchange;

    /// Returns true if the application may still hold one of the objects. They must not be reused then, because the
    /// application would reach the next response through it.
    fn is_shared(&self) -> bool;

    /// Returns true if the call may block its thread or greenlet.
    fn may_block(&self) -> bool {
        true
    }
}

/// A response body that the application produces part by part. It stays in the thread that created it.
pub(crate) trait ResponseBody: Send {
    /// Starts the iteration. The application may set the response head only now.
    ///
    /// # Errors
    /// The exception that the application raised.
    fn start(&mut self, py: Python<'_>) -> PyResult<()>;

    /// Returns the next part; `None` at the end of the body.
    ///     ///
    /// # Errors
    /// The exception that the application raised; `TypeError` if the part is not `bytes`.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Chunk>>;

    /// Returns true if a body that exceeds the declared length is truncated to it. Otherwise such a body is an error.
    fn ends_at_length(&self) -> bool;

    /// If the body is a regular file that the engine can send itself, returns a new descriptor for it, the offset, and
    /// the number of bytes that are left.
    fn regular_file(&self, py: Python<'_>) -> Option<(File, u64, u64)>;

    /// Tells the application that no more parts will be requested. Called exactly once, also after an error.
    ///     ///
    /// # Errors
    /// The exception that the application raised.
    fn close(self, py: Python<'_>) -> PyResult<()>;
}

/// The application's answer to a call.
pub(crate) enum Answer<B> {
    /// The whole body. The application has set the response head.
    Whole(Chunk),
    /// A body that the host requests part by part.
    Body(B),
    /// The call continues, but its thread is free. The application writes its response through the exchange, and the
    /// interface ends the call with [`Exchange::conclude`]. The object, such as a Task, identifies the call in reports.
    Suspended(Py<PyAny>),
    /// The call has ended with this result. The application has written its response through the exchange.
    Returned(PyResult<()>),
}

/// The body of a request, and the properties of the request that a call needs.
pub(crate) struct Input {
    pub(crate) body: RequestBody,
    /// True if the body was sent without a declared length.
    pub(crate) is_chunked: bool,
    /// True if the peer accepts error text from the application ([`Exchange::write_errors`]).
    pub(crate) takes_errors: bool,
}

/// The body of a request.
pub(crate) enum RequestBody {
    /// No body.
    Empty,
    /// A `bytes` object.
    Bytes(Object),
    /// An unnamed temporary file, positioned at its start, and its length in bytes.
    File(Box<(File, u64)>),
    /// A body that is still arriving; [`Exchange::read`] reads it.
    Arriving,
    /// No body: the request is for a WebSocket ([`Exchange::accept`]).
    WebSocket,
}

/// The data of a request for a report; `None` for what is unknown.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) method: Option<String>,
    pub(crate) target: Option<String>,
    /// The address and the port.
    pub(crate) client: (Option<String>, Option<String>),
}
