//! The host's state that the engine calls. It implements [`App`] for every interface.
//!
//! The methods run while the engine is locked, so they must not run code of the application. They store messages as
//! [`Note`]s, which [`Host::tidy`](super::Host::tidy) delivers after the lock is released.

use super::job::{Request, Resumable};
use super::limits::Limits;
use super::shared::{Reason, Replacement, Waiter};
use super::sleepers::Sleepers;
use crate::access_log::{AccessLog, Entry, LoggedResponse, LoggerLines};
use crate::gil::WithGil;
use crate::interface::{Interface, Message, Remote, RequestBody, Requests};
use crate::object::{Chunk, Object};
use crate::quarantine::Quarantine;
use crate::rate_limit::{Exceeded, RateLimits};
use crate::refusals::{Refusals, Refused};
use crate::scoreboard::Stopwatch;
use crate::text::client;
use engine::{AcceptPause, App, Body, BodyMemory, Peer, Refusal, Rejection, Report};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use scheduler::RouteKeys;
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tls::{Security, TlsNet};
use wire::message::{BodyLength, Client, Draft, PartialRequestLine, RequestHead};
use wire::websocket::{Kind, Opening};

/// Severity levels of Python's `logging` module.
pub(super) const ERROR: u8 = 40;
pub(super) const WARNING: u8 = 30;
pub(super) const INFO: u8 = 20;

/// The method name in the route keys of WebSocket requests.
const WEBSOCKET: &[u8] = b"WEBSOCKET";

/// The host's state that the engine calls.
pub(crate) struct AppState<I: Interface> {
    requests: I::Requests,
    pub(super) access_log: Option<AccessLog>,
    pub(super) refusals: Refusals,
    limits: Limits,
    buffers_bodies: bool,
    /// The quarantine, which refuses and records routes; `None` without a supervisor that handles crashes.
    quarantine: Option<Arc<Quarantine>>,
    /// The rate limits of requests; `None` if there are none.
    rate_limits: Option<Arc<RateLimits>>,
    /// The keys of routes, by which threads predict which calls will block; `None` if nothing needs them.
    route_keys: Option<RouteKeys>,
    /// The stopwatch that measures calls; `None` without a scoreboard.
    pub(super) stopwatch: Option<Stopwatch>,
    /// True if a loop hosts the engine. Such a loop starts a call some time after the engine has dispatched it.
    pub(super) is_hosted: bool,
    notes: Vec<Note>,
    /// The threads whose wait inside a call has ended, and the waiters of the hosting loop whose wait has ended.
    pub(super) worker_wakes: Vec<usize>,
    pub(super) hosted_wakes: Vec<Py<PyAny>>,
    /// The threads and greenlets that wait for events of WebSockets.
    pub(super) sleepers: Sleepers,
    pub(super) replacement: Option<Arc<Replacement>>,
    /// The number of connections that have become idle and freed their buffers since the allocator last returned
    /// memory.
    rested: usize,
    memories: Vec<BodyMemory>,
}

/// The arguments of [`AppState::new`].
pub(crate) struct AppParts<R> {
    pub(crate) requests: R,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) limits: Limits,
    pub(crate) buffers_bodies: bool,
    pub(crate) quarantine: Option<Arc<Quarantine>>,
    pub(crate) rate_limits: Option<Arc<RateLimits>>,
    /// True if several threads run calls.
    pub(crate) multithread: bool,
    pub(crate) stopwatch: Option<Stopwatch>,
    pub(crate) is_hosted: bool,
    /// The accounts of the memory that bodies and messages use.
    pub(crate) memories: Vec<BodyMemory>,
}

/// A message for the error log, stored until the lock is released.
pub(super) struct Note {
    pub(super) level: u8,
    pub(super) message: String,
    pub(super) error: Option<PyErr>,
}

/// The data that the engine keeps with each connection.
pub(crate) struct Connection<C> {
    remote: Remote,
    of_interface: C,
}

impl<I: Interface> AppState<I> {
    pub(super) fn new(parts: AppParts<I::Requests>, replacement: Option<Arc<Replacement>>) -> Self {
        Self {
            requests: parts.requests,
            access_log: parts.access_log,
            refusals: Refusals::default(),
            limits: parts.limits,
            buffers_bodies: parts.buffers_bodies,
            quarantine: parts.quarantine,
            rate_limits: parts.rate_limits,
            route_keys: (parts.multithread && !parts.is_hosted).then(RouteKeys::default),
            stopwatch: parts.stopwatch,
            is_hosted: parts.is_hosted,
            notes: Vec::new(),
            worker_wakes: Vec::new(),
            hosted_wakes: Vec::new(),
            sleepers: Sleepers::default(),
            replacement,
            rested: 0,
            memories: parts.memories,
        }
    }

    /// Stores a message, which is reported after the lock is released.
    pub(super) fn note(&mut self, level: u8, message: String, error: Option<PyErr>) {
        self.notes.push(Note { level, message, error });
    }

    /// Stores a message if `request` is `None`, because the interface could not allocate the object.
    fn check_memory(&mut self, py: Python<'_>, request: Option<&Object>) {
        if request.is_none() {
            let error = PyErr::take(py);
            self.note(ERROR, "no memory for a request".to_owned(), error);
        }
    }

    /// Counts the refusal of a request that did not reach the application, and stores a message about it if one is due.
    /// The request object is as the interface made it.
    pub(super) fn note_refusal(&mut self, py: Python<'_>, refusal: Refusal, request: Option<&Object>) {
        let summary = request.map(|object| I::summary(py, object)).unwrap_or_default();
        let (address, port) = summary.client;
        let (method, target) = (summary.method.unwrap_or_default(), summary.target.unwrap_or_default());
        let message = self.refusals.note(refusal, || Refused {
            client: client(&address.unwrap_or_default(), &port.unwrap_or_default()),
            method: method.as_bytes(),
            target: target.as_bytes(),
        });
        if let Some(message) = message {
            self.note(INFO, message, None);
        }
    }

    /// Returns true if there may be messages to report, or access log lines to write.
    pub(super) fn may_have_news(&self) -> bool {
        self.has_notes() || self.access_log.is_some() || self.refusals.has_counts()
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes.is_empty() || self.access_log.as_ref().is_some_and(AccessLog::has_pending)
    }

    /// Removes and returns the messages, and the access log lines for a Python logger.
    pub(super) fn take_notes(&mut self, py: Python<'_>) -> (Vec<Note>, Option<LoggerLines>) {
        let lines = self.access_log.as_mut().and_then(|log| log.take_pending(py));
        (std::mem::take(&mut self.notes), lines)
    }

    /// Wakes a waiter after its event has happened.
    pub(super) fn wake_waiter(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Worker(worker) => self.worker_wakes.push(worker),
            Waiter::Hosted(waiter) => self.hosted_wakes.push(waiter),
            Waiter::Thread(bell) => bell.ring(),
            Waiter::WebSocket(serial) => {
                for sleeper in self.sleepers.take(serial) {
                    self.wake_waiter(sleeper);
                }
            }
        }
    }

    /// Returns the shortest time limit of any request; `None` if there is no limit.
    pub(super) fn shortest_limit(&self) -> Option<Duration> {
        self.limits.shortest()
    }

    /// Returns free memory to the system after many connections have become idle, or after bodies or messages have used
    /// much memory. That memory is free but fragmented, so the allocator would otherwise keep it as long as the process
    /// lives.
    pub(super) fn return_memory(&mut self) {
        const RESTED: usize = 500;
        const BYTES: usize = 16 << 20;
        // No short circuit: has_fallen must be called on every account, because it also starts the next peak after a
        // fall.
        let have_fallen = self.memories.iter().filter(|memory| memory.has_fallen(BYTES)).count() > 0;
        if self.rested >= RESTED || have_fallen {
            self.rested = 0;
            // SAFETY: the call takes no pointer and may be made at any time.
            #[cfg(target_env = "gnu")]
            unsafe {
                libc::malloc_trim(0);
            }
        }
    }
}

impl<I: Interface> App for WithGil<AppState<I>> {
    type Net = TlsNet;
    type Protocols = engine::AllProtocols;
    type Connection = Connection<<I::Requests as Requests>::Connection>;
    type Request = Request;
    // [`Resumable`] boxes its contents, which would otherwise be the largest data that a waiting connection moves.
    type Response = Resumable<I>;
    type Chunk = Chunk;
    type Waiter = Waiter;
    type Message = Message;

    fn connect(&mut self, peer: &Peer) -> Self::Connection {
        Connection { remote: Remote { peer: *peer, security: None }, of_interface: Default::default() }
    }

    fn refuses(
        &mut self,
        head: &RequestHead<'_>,
        is_websocket: bool,
        connection: &mut Self::Connection,
    ) -> Option<Refusal> {
        let (_, app) = self.parts();
        let method = if is_websocket { WEBSOCKET } else { head.method };
        let in_quarantine = |quarantine: &Arc<Quarantine>| {
            quarantine.refusal(|| app.requests.route(head).application, method, head.target.path)
        };
        if let Some(refusal) = app.quarantine.as_ref().and_then(in_quarantine) {
            return Some(refusal);
        }
        let limits = app.rate_limits.as_ref()?;
        let exceeded = limits.check(head, &connection.remote.peer)?;
        let refusal = exceeded.refusal;
        let message = report_exceeded(&mut app.refusals, &exceeded, head, connection.remote.peer);
        if let Some(message) = message {
            app.note(INFO, message, None);
        }
        Some(refusal)
    }

    fn begin(&mut self, head: &RequestHead<'_>, connection: &mut Self::Connection) -> Request {
        let (py, app) = self.parts();
        let route = app.requests.route(head);
        let object = app.requests.begin(py, head, route, &connection.remote, &mut connection.of_interface);
        app.check_memory(py, object.as_deref());
        let has_body = !matches!(head.body, BodyLength::None | BodyLength::Known(0));
        let is_arriving = has_body && (route.streams_bodies || !app.buffers_bodies);
        Request {
            object,
            route,
            body: if is_arriving { RequestBody::Arriving } else { RequestBody::Empty },
            is_chunked: head.body == BodyLength::Unknown,
            takes_errors: head.takes_errors,
            limit: app.limits.of(head.target.path),
            route_key: app.route_keys.as_ref().map(|route_keys| route_keys.of_request(head.method, head.target.path)),
            recorded: app
                .quarantine
                .as_ref()
                .and_then(|quarantine| quarantine.to_record(route.application, head.method, head.target.path)),
            entry: app
                .access_log
                .as_ref()
                .map(|_| Box::new(Entry::new(head, connection.remote.peer, connection.remote.security.as_ref()))),
            queued_at: None,
            is_refused: false,
        }
    }

    fn begin_websocket(
        &mut self,
        head: &RequestHead<'_>,
        opening: &Opening<'_>,
        connection: &mut Self::Connection,
    ) -> Request {
        let (py, app) = self.parts();
        let Connection { remote, of_interface } = connection;
        let route = app.requests.route(head);
        let object = app.requests.begin_websocket(py, head, route, opening, remote, of_interface);
        app.check_memory(py, object.as_deref());
        Request {
            object,
            route,
            body: RequestBody::WebSocket,
            is_chunked: false,
            takes_errors: false,
            limit: if route.limits_handshakes { app.limits.of(head.target.path) } else { None.into() },
            route_key: app.route_keys.as_ref().map(|route_keys| route_keys.of_request(WEBSOCKET, head.target.path)),
            recorded: app
                .quarantine
                .as_ref()
                .and_then(|quarantine| quarantine.to_record(route.application, WEBSOCKET, head.target.path)),
            entry: app.access_log.as_ref().map(|_| Box::new(Entry::new(head, remote.peer, remote.security.as_ref()))),
            queued_at: None,
            is_refused: false,
        }
    }

    fn message(&mut self, kind: Kind, bytes: Cow<'_, [u8]>) -> Message {
        let (py, _) = self.parts();
        match kind {
            Kind::Text => {
                let text = str::from_utf8(&bytes).expect("a text message is UTF-8");
                Message::Text(PyString::new(py, text).into_any().unbind().into())
            }
            Kind::Binary => Message::Binary(PyBytes::new(py, &bytes).into_any().unbind().into()),
        }
    }

    fn buffers(&mut self, request: &Request) -> bool {
        !matches!(request.body, RequestBody::Arriving)
    }

    fn queued(&mut self, request: &mut Request) {
        let (_, app) = self.parts();
        request.queued_at = app.stopwatch.as_ref().map(|_| Stopwatch::queue());
    }

    fn receive(&mut self, request: &mut Request, body: Body<'_>) {
        let (py, _) = self.parts();
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
        let (py, app) = self.parts();
        if let (Some(log), Some(entry)) = (&mut app.access_log, &request.entry) {
            log.write(py, entry, LoggedResponse::refused(refusal), request.object.as_deref(), None);
        }
        app.note_refusal(py, refusal, request.object.as_deref());
    }

    fn wake(&mut self, waiter: Waiter) {
        self.parts().1.wake_waiter(waiter);
    }

    fn idle(&mut self, connection: &mut Self::Connection) {
        connection.of_interface = Default::default();
    }

    fn rested(&mut self, connections: usize) {
        self.parts().1.rested += connections;
    }

    fn refused(
        &mut self,
        refusal: Refusal,
        line: Option<PartialRequestLine<'_>>,
        named: Option<&Client>,
        connection: &mut Self::Connection,
    ) {
        let (py, app) = self.parts();
        if let Some(log) = &mut app.access_log {
            let entry =
                Entry::unread(connection.remote.peer, connection.remote.security.as_ref(), named, line.as_ref());
            log.write(py, &entry, LoggedResponse::refused(refusal), None, None);
        }
        let message = app.refusals.note(refusal, || Refused {
            client: client_text(named, connection.remote.peer),
            method: line.map_or(b"", |line| line.method),
            target: line.map_or(b"", |line| line.target),
        });
        if let Some(message) = message {
            app.note(INFO, message, None);
        }
    }

    fn served(&mut self, head: &RequestHead<'_>, response: &Draft, body_bytes: u64, connection: &mut Self::Connection) {
        let (py, app) = self.parts();
        if let Some(log) = &mut app.access_log {
            let entry = Entry::new(head, connection.remote.peer, connection.remote.security.as_ref());
            let response =
                LoggedResponse { status: response.status(), body_bytes, draft: Some(response), close_code: None };
            log.write(py, &entry, response, None, None);
        }
    }

    fn secured(&mut self, security: Arc<Security>, connection: &mut Self::Connection) {
        connection.remote.security = Some(security);
    }

    fn failed_to_secure(&mut self, error: &io::Error, connection: &mut Self::Connection) {
        let (_, app) = self.parts();
        let message = app.refusals.note_insecure(error, || client_text(None, connection.remote.peer));
        if let Some(message) = message {
            app.note(INFO, message, None);
        }
    }

    fn rejected(&mut self, rejection: Rejection, connection: &mut Self::Connection) {
        let (_, app) = self.parts();
        if let Some(message) = app.refusals.note_rejection(rejection, || client_text(None, connection.remote.peer)) {
            app.note(INFO, message, None);
        }
    }

    fn report(&mut self, report: Report) {
        let (_, app) = self.parts();
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
            Report::AcceptPaused(AcceptPause::Failed(error)) if is_lost_listener(&error) => {
                if let Some(replacement) = &app.replacement {
                    replacement.request(Reason::Broken);
                }
                let cause = "the application or a library has closed or changed the listening socket";
                (ERROR, format!("connections cannot be accepted: {error}: {cause} (os.close, os.closerange, shutdown)"))
            }
            Report::AcceptPaused(AcceptPause::Failed(error)) => {
                (WARNING, format!("accepting pauses: {error}; raise the limit on open files (ulimit -n)"))
            }
            Report::FileShrank => {
                (ERROR, "a file became shorter while it was sent, and its response was cut".to_owned())
            }
            Report::StaticFileFailed(message) => (ERROR, message),
            Report::Panicked(message) => (ERROR, format!("this is a bug in kirsch, please report it: {message}")),
            Report::MessageMemoryFull(most) => (
                WARNING,
                format!(
                    "a WebSocket was closed with code 1013: messages that are incomplete, or that the application has \
                     not received, use {} MiB of memory; --body-memory-total allows no more",
                    most >> 20
                ),
            ),
            Report::HandshakesFull(most) => (
                WARNING,
                format!(
                    "more than {most} handshakes of TLS are under way: the oldest are closed for new ones; clients begin \
                     handshakes that they do not end"
                ),
            ),
            Report::SpoolFailed(error) => {
                let place = std::env::temp_dir();
                let place = place.display();
                let hint = if error.raw_os_error() == Some(libc::EFBIG) {
                    "raise the limit, which `ulimit -f` shows (LimitFSIZE= in a systemd unit)"
                } else {
                    "the variable TMPDIR names another directory"
                };
                (ERROR, format!("a request body could not be kept in a temporary file in {place}: {error}; {hint}"))
            }
        };
        app.note(level, message, None);
    }
}

/// Counts a request that exceeds a rate limit. Returns the message about it if one is due.
#[cold]
fn report_exceeded(
    refusals: &mut Refusals,
    exceeded: &Exceeded<'_>,
    head: &RequestHead<'_>,
    peer: Peer,
) -> Option<String> {
    let client = || client_text(head.client, peer);
    let message = refusals.note(exceeded.refusal, || Refused {
        client: client(),
        method: head.method,
        target: head.target.path,
    })?;
    Some(format!("{message} (--rate-limit {})", exceeded.limit))
}

/// Returns the client's address as text: the address from a trusted proxy's header field, or else that of the peer.
fn client_text(named: Option<&Client>, peer: Peer) -> String {
    let (address, port) = match (named, peer.address) {
        (Some(named), _) => (named.address, named.port),
        (None, Some(peer)) => (Some(peer.ip().to_canonical()), Some(peer.port())),
        (None, None) => (None, None),
    };
    let text = |part: Option<String>| part.unwrap_or_default();
    client(&text(address.map(|address| address.to_string())), &text(port.map(|port| port.to_string())))
}

/// Returns true if `error` says that the descriptor that accepts connections is no longer a listening socket.
fn is_lost_listener(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EOPNOTSUPP))
}
