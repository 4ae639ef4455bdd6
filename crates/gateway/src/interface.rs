//! The interface between the host and the ways to call an application, such as WSGI.
//!
//! The host has the engine, the threads or the loop, the deadlines and the logs, and is generic over an [`Interface`].
//! An interface knows Python and the heads of requests and responses. It knows no thread, no engine and no protocol:
//! what it needs of them are the methods of its [`Exchange`].
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

/// A listener, as requests show it.
#[derive(Clone, Debug)]
pub(crate) struct ListenerInfo {
    pub(crate) local: Local,
    /// Its connections are encrypted.
    pub(crate) is_encrypted: bool,
}

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) peer: Peer,
    /// The result of its handshake, if the connection is encrypted.
    pub(crate) security: Option<Arc<Security>>,
}

/// The application of a request, and how it is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// Its index among the applications of the interface.
    pub(crate) application: usize,
    /// A loop hosts the engine, and this application is called in threads beside it.
    pub(crate) is_threaded: bool,
    /// It receives a body as it arrives, whatever is set for others.
    pub(crate) streams_bodies: bool,
    /// The call of a request that asks for a WebSocket has a deadline until the application accepts it.
    pub(crate) limits_handshakes: bool,
}

/// Calls an application.
pub(crate) trait Interface: Send + Sync + Sized + 'static {
    /// Makes requests of heads.
    type Requests: Requests;
    /// The objects with which an application answers.
    type Handles: Handles;
    /// A response body that the application produces part by part.
    type Body: ResponseBody;

    /// Handles for a new response, whose exchange belongs to `host`.
    ///
    /// # Errors
    /// `MemoryError`.
    fn take_handles(&self, py: Python<'_>, route: Route, host: &Weak<dyn ExchangeHost>) -> PyResult<Self::Handles>;

    /// Has handles of a call that has ended serve one of `route`. Returns false if they cannot.
    fn turn_handles(&self, handles: &mut Self::Handles, route: Route) -> bool {
        let _ = (handles, route);
        true
    }

    /// The response is over: handles that nothing else refers to may be used again.
    fn return_handles(&self, py: Python<'_>, handles: Self::Handles);

    /// Completes a request with what belongs to this call alone. Returns a file-like object that the host closes when
    /// the response is over.
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

    /// Calls the application.
    ///
    /// # Errors
    /// The exception that it has raised, or one that says why the object that it has returned is wrong.
    fn call(&self, py: Python<'_>, request: &Object, handles: &Self::Handles) -> PyResult<Answer<Self::Body>>;

    /// Wakes a waiter for an event of the engine ([`Exchange::wake_when`]). `is_waiting`: the loop that hosts the
    /// engine waits for it here, so that no task is current, and a task that waited can make its step.
    ///
    /// # Errors
    /// An exception of such a step that ends the program.
    fn wake(&self, py: Python<'_>, waiter: &Py<PyAny>, is_waiting: bool) -> PyResult<()> {
        let _ = (py, waiter, is_waiting);
        Ok(())
    }

    /// The loop that hosts the engine has run what was ready, and is about to wait.
    fn before_wait(&self, py: Python<'_>) {
        let _ = py;
    }

    /// No call comes any more, and none goes on.
    fn end(&self, py: Python<'_>) {
        let _ = py;
    }

    /// Returns the exception for a body whose response has no head.
    fn unstarted() -> PyErr;

    /// Returns the exception for a call that has ended before its response.
    fn incomplete() -> PyErr {
        Self::unstarted()
    }

    /// Returns true if `error` is the exception for the use of a WebSocket that is closed. The application need not
    /// catch it.
    fn says_websocket_is_closed(py: Python<'_>, error: &PyErr) -> bool {
        let _ = (py, error);
        false
    }

    /// Returns the data of a request for a report. Runs no code of the application.
    fn summary(py: Python<'_>, request: &Object) -> Summary;
}

/// Makes what an application is given of the heads of requests. It is used while the engine is locked, so it runs
/// nothing of the application's.
pub(crate) trait Requests: Send + 'static {
    /// The data that are kept with a connection, so that its next request is cheaper to make.
    type Connection: Default + Send;

    /// Returns the application of the request, and how it is called.
    fn route(&self, head: &RequestHead<'_>) -> Route {
        let _ = head;
        Route::default()
    }

    /// Returns the request without its body: a dict. `route` is what [`route`](Self::route) has returned for it.
    /// Returns `None` with an exception set if memory is short.
    fn begin(
        &mut self,
        py: Python<'_>,
        head: &RequestHead<'_>,
        route: Route,
        remote: &Remote,
        connection: &mut Self::Connection,
    ) -> Option<RequestObject>;

    /// Does the same for a request that asks for a WebSocket, if the interface has them.
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

/// The dict of a request that the application is called with.
pub(crate) struct RequestObject {
    object: Object,
    /// Takes it back, if it may be used again.
    reused: Option<Arc<Reused>>,
}

impl RequestObject {
    pub(crate) fn reused(object: Object, reused: &Arc<Reused>) -> Self {
        Self { object, reused: Some(Arc::clone(reused)) }
    }

    /// The call is over. It may run code of the application's.
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

/// The Python objects of one exchange, with which an application answers.
pub(crate) trait Handles: Send {
    /// The exchange, which lives as long as these.
    fn exchange(&self) -> &Exchange;

    /// Returns true if the application may still hold one of them, and would reach the next response with it.
    fn is_shared(&self) -> bool;

    /// Returns true if the call may wait in the middle, in its thread or greenlet.
    fn may_block(&self) -> bool {
        true
    }
}

/// A response body that the application produces part by part. It stays on the thread that it was made on.
pub(crate) trait ResponseBody: Send {
    /// Begins to produce. The application may give the response its head only now.
    ///
    /// # Errors
    /// The exception that the application has raised.
    fn start(&mut self, py: Python<'_>) -> PyResult<()>;

    /// The next part; `None`: the body has come to its end.
    ///
    /// # Errors
    /// The exception that the application has raised; `TypeError` if it is not `bytes`.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Chunk>>;

    /// Returns true if a body that is longer than the response declares ends there, instead of being wrong.
    fn ends_at_length(&self) -> bool;

    /// The file that the body is, if it need not be read here: a descriptor of our own, the offset, and how many bytes
    /// are left.
    fn regular_file(&self, py: Python<'_>) -> Option<(File, u64, u64)>;

    /// Tells the application that nothing more is wanted: once, whatever happened before.
    ///
    /// # Errors
    /// The exception that the application has raised.
    fn close(self, py: Python<'_>) -> PyResult<()>;
}

/// The answer of an application.
pub(crate) enum Answer<B> {
    /// The body as a whole; the response has its head.
    Whole(Chunk),
    /// A body that comes in parts.
    Body(B),
    /// The call goes on, and its thread does something else meanwhile. The application writes its response through the
    /// exchange, and the interface ends the call with [`Exchange::conclude`]. The object is what reports know the call
    /// by.
    Suspended(Py<PyAny>),
    /// The call is over, with this result. The application has written its response through the exchange.
    Returned(PyResult<()>),
}

/// A request's body, and what else its head says to a call.
pub(crate) struct Input {
    pub(crate) body: RequestBody,
    /// It came without a declared length.
    pub(crate) is_chunked: bool,
    /// The client takes what the application reports ([`Exchange::write_errors`]).
    pub(crate) takes_errors: bool,
}

/// The body of a request.
pub(crate) enum RequestBody {
    /// There is none.
    Empty,
    /// A `bytes` object.
    Bytes(Object),
    /// A file without a name, at its start, and its length.
    File(Box<(File, u64)>),
    /// It is still arriving, and is read with [`Exchange::read`].
    Arriving,
    /// There is none, and the request asks for a WebSocket ([`Exchange::accept`]).
    WebSocket,
}

/// The data of a request in a report, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) method: Option<String>,
    pub(crate) target: Option<String>,
    /// Address and port.
    pub(crate) client: (Option<String>, Option<String>),
}
