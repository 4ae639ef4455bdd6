//! One request and its response, as an interface sees them. The application may use an exchange from any attached
//! thread and at any time, even long after the response has ended. Therefore
//!
//! * the state is [`Guarded`], and this guard is the innermost lock: no code may call Python while it holds the guard;
//! * the host stores the ticket in the exchange, and removes it, only while the engine is locked (and stores it before
//!   the application receives the exchange). So a thread that finds a ticket while the engine is locked reaches the
//!   connection of this response and no other;
//! * an exchange that the application has kept may outlive its server; its methods then report that the response has
//!   ended.
//!
//! Only the host sees the state; interfaces use the `pub(crate)` methods of [`Exchange`].

use crate::guarded::Guarded;
use crate::known_head::KnownHead;
use crate::object::{Chunk, Message, OutgoingMessage};
pub(crate) use engine::{Awaited, HijackId, HijackRefusal, Hijacked, Incoming, WebSocketEnd};
use engine::{Ticket, WebSocketId};
use pyo3::ffi;
use pyo3::prelude::*;
use std::fs::File;
use std::sync::Weak;
use std::time::Duration;
use wire::message::{Draft, FieldLines, Misuse};
use wire::websocket::{AcceptMisuse, CloseCode, Prepared};

/// The operations that an exchange requests from its host.
pub(crate) trait ExchangeHost: Send + Sync {
    /// Sends a part of the body. Blocks while the client reads slowly, if other calls can run meanwhile. Returns false
    /// if there was no response to write to.
    ///     ///
    /// # Errors
    /// `ValueError` if the body exceeds the declared length; the exception that ended a wait.
    fn write(&self, py: Python<'_>, exchange: &Exchange, chunk: Chunk) -> PyResult<bool>;

    /// Reads from a streamed request body into `buffer`, and blocks until at least one byte has arrived. Returns the
    /// number of bytes, 0 at the end of the body, and `None` if the response has ended.
    ///
    /// # Errors
    /// `ConnectionResetError` if the client left before the end of the body, `TimeoutError` if the body did not arrive
    /// in time, `OSError` if the body is malformed or too long.
    fn read(&self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> PyResult<Option<usize>>;

    /// Returns true if the client has left, and also if the response has ended, because then there is no client to wait
    /// for.
    ///     ///
    /// # Errors
    /// `RuntimeError` ([`Reentered`](super::shared::Reentered)) if this thread already holds the engine's lock.
    fn is_disconnected(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<bool>;

    /// Writes a part of the body without blocking, and then ends or continues the response as `end` says. The head is
    /// sent with the first part.
    ///     ///
    /// # Errors
    /// `ValueError` if the body becomes longer than the declared length, or ends before it. The part is not written
    /// then.
    fn send(&self, py: Python<'_>, exchange: &Exchange, part: Option<Part>, end: End<'_>) -> PyResult<Sent>;

    /// Sends an interim response 103 with `fields`, unless the head of the response has been sent or the client cannot
    /// read interim responses.
    ///     ///
    /// # Errors
    /// `RuntimeError` if this thread already holds the engine's lock.
    fn send_early_hints(&self, py: Python<'_>, exchange: &Exchange, fields: &FieldLines) -> PyResult<Sent>;

    /// Forwards to the peer the error text that the application writes about the request, if the peer accepts such text
    /// ([`Input::takes_errors`](crate::interface::Input)).
    fn write_errors(&self, py: Python<'_>, exchange: &Exchange, text: &[u8]);

    /// Sends the head without a body part, if the application has set a head and it has not been sent.
    fn send_head(&self, py: Python<'_>, exchange: &Exchange);

    /// Reads from a streamed request body into `buffer` without blocking. With an empty buffer it reads nothing, and
    /// returns the variant that the next read would return.
    ///     ///
    /// # Errors
    /// `RuntimeError` if this thread already holds the engine's lock.
    fn receive(&self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> PyResult<Received>;

    /// Registers `waiter`: the interface [wakes](crate::interface::Interface::wake) it once, as soon as any of
    /// `awaited` happens or if one has happened already. Replaces an earlier registration. Returns false if the
    /// response has ended.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn wake_when(&self, py: Python<'_>, exchange: &Exchange, awaited: Awaited, waiter: Py<PyAny>) -> PyResult<bool>;

    /// Accepts the requested WebSocket, with the subprotocol and header fields that the application chose.
    ///
    /// # Errors
    /// `RuntimeError` if this thread already holds the engine's lock.
    fn accept(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        subprotocol: Option<&str>,
        fields: &[(Vec<u8>, Vec<u8>)],
    ) -> PyResult<Acceptance>;

    /// Removes and returns the next message of an accepted WebSocket, without blocking.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn take_message(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Incoming<Message>>;

    /// Removes and returns the next message like [`take_message`](Self::take_message). If there is none yet, registers
    /// `waiter` to be woken once, when any of `awaited` happens.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn take_message_or_wait(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        awaited: Awaited,
        waiter: &Py<PyAny>,
    ) -> PyResult<Incoming<Message>>;

    /// Sends a message on an accepted WebSocket, without blocking.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn send_message(&self, py: Python<'_>, exchange: &Exchange, message: &OutgoingMessage<'_>)
    -> PyResult<MessageSent>;

    /// Removes and returns the next message of an accepted WebSocket. Blocks up to `timeout` (`None`: without limit).
    ///
    /// # Errors
    /// As [`accept`](Self::accept); the exception that ended the wait.
    fn receive_message(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        timeout: Option<Duration>,
    ) -> PyResult<Incoming<Message>>;

    /// Sends a message on an accepted WebSocket. Blocks up to `timeout` until the output buffer has room for it.
    ///
    /// # Errors
    /// As [`receive_message`](Self::receive_message).
    fn send_message_in(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        message: &OutgoingMessage<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<MessageSent>;

    /// Sends a message that was framed once for many recipients, without blocking.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn send_prepared(&self, py: Python<'_>, exchange: &Exchange, message: &Prepared) -> PyResult<MessageSent>;

    /// Closes an accepted WebSocket, if it is open.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn close_websocket(&self, py: Python<'_>, exchange: &Exchange, code: CloseCode, reason: &str) -> PyResult<()>;

    /// Returns the close code and reason of a WebSocket that can deliver no more messages; `None` while it is open.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn websocket_end(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Option<WebSocketEnd>>;

    /// Hands the connection of a WebSocket request over to the application.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn hijack(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Result<Hijacked, HijackRefusal>>;

    /// Ends a hijack after the application has closed the socket that it received.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn end_hijack(&self, py: Python<'_>, id: HijackId) -> PyResult<()>;

    /// Concludes a suspended call that has ended with `result`.
    fn conclude(&self, py: Python<'_>, exchange: &Exchange, result: PyResult<()>);

    /// Cuts off the call with this ticket and key, because it cannot end by itself.
    fn cut_off(&self, py: Python<'_>, ticket: Ticket, key: usize);
}

/// A handler of the messages of a WebSocket. Any thread may call it, but only one at a time.
pub(crate) trait MessageHandler: Send + Sync {
    /// Handles the opening of the WebSocket.
    ///
    /// # Errors
    /// The exception that the application raised.
    fn open(&self, py: Python<'_>) -> PyResult<()>;

    /// Handles a message.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn message(&self, py: Python<'_>, message: Message) -> PyResult<()>;

    /// Handles the end of the WebSocket; no message follows. Called exactly once, even if `open` or `message` has
    /// failed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn close(&self, py: Python<'_>, end: WebSocketEnd) -> PyResult<()>;
}

/// A part of a response's body.
pub(crate) enum Part {
    Chunk(Chunk),
    File {
        file: File,
        offset: u64,
        length: u64,
        /// True if the file is the whole body. A file that is longer than the declared length is then truncated to it.
        is_whole: bool,
    },
}

/// Says whether a response goes on after a part of its body.
#[derive(Clone, Copy)]
pub(crate) enum End<'a> {
    /// More of the body follows.
    NotYet,
    /// The response ends.
    Here,
    /// The response ends with these trailers, which are not sent to a client that does not accept trailers.
    Trailers(&'a FieldLines),
}

/// The outcome of sending a part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The part has been sent or queued.
    Done,
    /// The part has been queued, and the client has much output left to read: further output only accumulates.
    Full,
    /// The client has left.
    Gone,
    /// The response had ended already.
    Over,
}

/// The result of reading a request body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    /// The number of bytes that have been read.
    Bytes(usize),
    /// All data that have arrived have been read; more may arrive.
    Pending,
    /// The end of the body.
    End,
    /// The client has left, or the response has ended.
    Left,
    /// The rest of the body will not arrive, for example after a malformed chunk.
    Broken,
}

/// The outcome of accepting a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    Accepted,
    /// The client has left, or the request has been answered already.
    Gone,
    /// The handshake response must not contain the application's subprotocol or header fields.
    Misused(AcceptMisuse),
}

/// The outcome of sending a message on a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageSent {
    /// The message has been sent or queued.
    Done,
    /// The message has been queued, and the client has much output left to read.
    Full,
    /// The message was not sent, because the client has much output left to read. The caller may retry later.
    Refused,
    /// The WebSocket is closed.
    Closed,
}

/// One request and its response, as the application uses them. An exchange is reused for many requests.
pub(crate) struct Exchange {
    host: Weak<dyn ExchangeHost>,
    state: Guarded<ExchangeState>,
}

/// The state of one response: the head that the application has set, and the ticket that gives access to the engine.
pub(super) struct ExchangeState {
    pub(super) draft: Draft,
    /// The head of an earlier response, kept because the next response often has the same head.
    known_head: KnownHead,
    /// The ticket of the exchange in the engine; `None` while the response is suspended and after it has ended.
    pub(super) ticket: Option<Ticket>,
    /// The key of the call among [`Calls`](super::calls::Calls).
    pub(super) key: usize,
    /// True once the head has been written.
    pub(super) begun: bool,
    /// True once the end has been written, or the response has been given up: no thread may write to it any more.
    pub(super) finished: bool,
    /// True from [`Exchange::open`] until the response ends.
    is_open: bool,
    /// The WebSocket or hijacked connection that replaces the response after an upgrade.
    pub(super) upgraded: Option<Upgraded>,
    /// The handler of the WebSocket's messages, until the host takes it when the application's call has returned.
    pub(super) handler: Option<Box<dyn MessageHandler>>,
    /// The status of a response that the application started after the upgrade, and that is not sent; 0 if there is
    /// none.
    pub(super) ignored_status: u16,
    /// The misuse for which `write` raised an exception. Kept for the report, because the application may swallow the
    /// exception.
    pub(super) misuse: Option<Misuse>,
}

/// The result of an upgrade: the kind of connection that replaces the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgraded {
    /// A WebSocket whose frames the engine reads and writes.
    WebSocket(WebSocketId),
    /// A connection that the application reads and writes by itself.
    Hijacked,
}

impl ExchangeState {
    /// Returns the id of the WebSocket that replaces the response, or `None`.
    pub(super) fn websocket(&self) -> Option<WebSocketId> {
        if let Some(Upgraded::WebSocket(id)) = self.upgraded { Some(id) } else { None }
    }

    /// Marks the response as ended, and returns its ticket. Later writes of the application are ignored; the caller
    /// ends the call next. Called with the engine locked. The key stays valid until the call ends.
    pub(super) fn take_ticket_for_good(&mut self) -> Option<Ticket> {
        self.is_open = false;
        self.ticket.take()
    }

    /// Returns true if the response has ended. `key` must not be used then: once the call has ended too, its key may
    /// belong to another call.
    pub(super) fn is_over(&self) -> bool {
        !self.is_open
    }
}

/// The reason why a response cannot be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartRefusal {
    /// The response has ended.
    Over,
    /// The head has been sent.
    Begun,
    /// A head is set already, and the application did not ask to replace it.
    Again,
}

impl Exchange {
    /// Creates an exchange in the closed state, in which it behaves like one whose response has ended.
    /// [`open`](Self::open) makes it usable.
    pub(crate) fn new(host: Weak<dyn ExchangeHost>) -> Self {
        let state = ExchangeState {
            draft: Draft::default(),
            known_head: KnownHead::default(),
            ticket: None,
            key: 0,
            begun: false,
            finished: false,
            is_open: false,
            upgraded: None,
            handler: None,
            ignored_status: 0,
            misuse: None,
        };
        Self { host, state: Guarded::new(state) }
    }

    /// Returns an empty draft of a response head, to be filled and [stored](Self::store_draft). If `replaces` is true,
    /// a head may be stored already.
    pub(crate) fn take_draft(&self, py: Python<'_>, replaces: bool) -> Result<Draft, StartRefusal> {
        self.state.with(py, |state| {
            if state.upgraded.is_some() {
                return Ok(Draft::default());
            }
            admit(state, replaces)?;
            // The stored draft is empty, but may have memory allocated.
            Ok(if replaces { Draft::default() } else { std::mem::take(&mut state.draft) })
        })
    }

    /// Starts a response with a cached head, if one was made from these same objects before, and calls `then` while the
    /// state is guarded, so the response cannot end meanwhile. Returns `None` if there is no such head, or if the
    /// response cannot be started.
    ///     ///
    /// # Safety
    /// `status` and `headers` are live objects.
    pub(crate) unsafe fn start_known<R>(
        &self,
        py: Python<'_>,
        status: *mut ffi::PyObject,
        headers: *mut ffi::PyObject,
        then: impl FnOnce() -> R,
    ) -> Option<R> {
        self.state.with(py, |state| {
            if state.upgraded.is_some() || admit(state, false).is_err() {
                return None;
            }
            // SAFETY: the caller guarantees that both objects are live.
            let known = unsafe { state.known_head.find(py, status, headers) }?;
            state.draft.clone_from(known);
            Some(then())
        })
    }

    /// Caches the head that was just made from these objects, if later responses may use them again. No Python code may
    /// have run since the head was made.
    ///     ///
    /// # Safety
    /// `status` and `headers` are live objects.
    pub(crate) unsafe fn keep_head(&self, py: Python<'_>, status: *mut ffi::PyObject, headers: *mut ffi::PyObject) {
        // SAFETY: the caller guarantees that both objects are live.
        let before = self.state.with(py, |state| unsafe { state.known_head.keep(py, status, headers, &state.draft) });
        // Dropped outside of the guard, because the destructors may run Python code.
        drop(before);
    }

    /// Stores the response head, and calls `then` while the state is guarded, so the response cannot end meanwhile.
    /// Checks again whether the response may be started, because filling the draft may have run code of the
    /// application.
    pub(crate) fn store_draft<R>(
        &self,
        py: Python<'_>,
        replaces: bool,
        draft: Draft,
        then: impl FnOnce() -> R,
    ) -> Result<R, StartRefusal> {
        self.state.with(py, |state| {
            if state.upgraded.is_some() {
                // The handshake response has been sent; the application's head is only remembered for a report.
                state.ignored_status = draft.status();
                return Ok(then());
            }
            admit(state, replaces)?;
            state.draft = draft;
            Ok(then())
        })
    }

    /// Registers `handler` for the messages of a WebSocket; the host uses it after the application's call has returned.
    /// Returns false if the call has returned already, if there is no WebSocket, or if it has a handler.
    pub(crate) fn set_handler(&self, py: Python<'_>, handler: Box<dyn MessageHandler>) -> bool {
        let rest = self.state.with(py, |state| {
            if state.websocket().is_none() || state.ticket.is_none() || state.handler.is_some() {
                return Some(handler);
            }
            state.handler = Some(handler);
            None
        });
        rest.is_none()
    }

    /// Returns true once the application has set a response head.
    pub(crate) fn is_started(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| !state.draft.is_empty())
    }

    /// See [`ExchangeHost::write`].
    pub(crate) fn write(&self, py: Python<'_>, chunk: Chunk) -> PyResult<bool> {
        self.host.upgrade().map_or(Ok(false), |host| host.write(py, self, chunk))
    }

    /// See [`ExchangeHost::read`].
    pub(crate) fn read(&self, py: Python<'_>, buffer: &mut [u8]) -> PyResult<Option<usize>> {
        self.host.upgrade().map_or(Ok(None), |host| host.read(py, self, buffer))
    }

    /// See [`ExchangeHost::is_disconnected`].
    pub(crate) fn is_disconnected(&self, py: Python<'_>) -> PyResult<bool> {
        self.host.upgrade().map_or(Ok(true), |host| host.is_disconnected(py, self))
    }

    /// See [`ExchangeHost::send`].
    pub(crate) fn send(&self, py: Python<'_>, part: Option<Part>, end: End<'_>) -> PyResult<Sent> {
        self.host.upgrade().map_or(Ok(Sent::Over), |host| host.send(py, self, part, end))
    }

    /// See [`ExchangeHost::send_early_hints`].
    pub(crate) fn send_early_hints(&self, py: Python<'_>, fields: &FieldLines) -> PyResult<Sent> {
        self.host.upgrade().map_or(Ok(Sent::Over), |host| host.send_early_hints(py, self, fields))
    }

    /// See [`ExchangeHost::write_errors`].
    pub(crate) fn write_errors(&self, py: Python<'_>, text: &[u8]) {
        if let Some(host) = self.host.upgrade() {
            host.write_errors(py, self, text);
        }
    }

    /// See [`ExchangeHost::send_head`].
    pub(crate) fn send_head(&self, py: Python<'_>) {
        if let Some(host) = self.host.upgrade() {
            host.send_head(py, self);
        }
    }

    /// See [`ExchangeHost::receive`].
    pub(crate) fn receive(&self, py: Python<'_>, buffer: &mut [u8]) -> PyResult<Received> {
        self.host.upgrade().map_or(Ok(Received::Left), |host| host.receive(py, self, buffer))
    }

    /// See [`ExchangeHost::wake_when`].
    pub(crate) fn wake_when(&self, py: Python<'_>, awaited: Awaited, waiter: Py<PyAny>) -> PyResult<bool> {
        self.host.upgrade().map_or(Ok(false), |host| host.wake_when(py, self, awaited, waiter))
    }

    /// See [`ExchangeHost::accept`].
    pub(crate) fn accept(
        &self,
        py: Python<'_>,
        subprotocol: Option<&str>,
        fields: &[(Vec<u8>, Vec<u8>)],
    ) -> PyResult<Acceptance> {
        self.host.upgrade().map_or(Ok(Acceptance::Gone), |host| host.accept(py, self, subprotocol, fields))
    }

    /// Returns true if the response has ended.
    pub(crate) fn is_over(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.is_over())
    }

    /// Returns true if the exchange has become a WebSocket that the engine runs.
    pub(crate) fn is_websocket(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.websocket().is_some())
    }

    /// Returns true if the exchange has become a WebSocket or a hijacked connection.
    pub(crate) fn is_upgraded(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.upgraded.is_some())
    }

    /// See [`ExchangeHost::hijack`].
    pub(crate) fn hijack(&self, py: Python<'_>) -> PyResult<Result<Hijacked, HijackRefusal>> {
        self.host.upgrade().map_or(Ok(Err(HijackRefusal::Over)), |host| host.hijack(py, self))
    }

    /// See [`ExchangeHost::end_hijack`].
    pub(crate) fn end_hijack(&self, py: Python<'_>, id: HijackId) -> PyResult<()> {
        self.host.upgrade().map_or(Ok(()), |host| host.end_hijack(py, id))
    }

    /// See [`ExchangeHost::take_message`].
    pub(crate) fn take_message(&self, py: Python<'_>) -> PyResult<Incoming<Message>> {
        let host = self.host.upgrade();
        host.map_or(Ok(Incoming::End(WebSocketEnd::abnormal())), |host| host.take_message(py, self))
    }

    /// See [`ExchangeHost::take_message_or_wait`].
    pub(crate) fn take_message_or_wait(
        &self,
        py: Python<'_>,
        awaited: Awaited,
        waiter: &Py<PyAny>,
    ) -> PyResult<Incoming<Message>> {
        let host = self.host.upgrade();
        host.map_or(Ok(Incoming::End(WebSocketEnd::abnormal())), |host| {
            host.take_message_or_wait(py, self, awaited, waiter)
        })
    }

    /// See [`ExchangeHost::send_message`].
    pub(crate) fn send_message(&self, py: Python<'_>, message: &OutgoingMessage<'_>) -> PyResult<MessageSent> {
        self.host.upgrade().map_or(Ok(MessageSent::Closed), |host| host.send_message(py, self, message))
    }

    /// See [`ExchangeHost::receive_message`].
    pub(crate) fn receive_message(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Incoming<Message>> {
        let host = self.host.upgrade();
        host.map_or(Ok(Incoming::End(WebSocketEnd::abnormal())), |host| host.receive_message(py, self, timeout))
    }

    /// See [`ExchangeHost::send_message_in`].
    pub(crate) fn send_message_in(
        &self,
        py: Python<'_>,
        message: &OutgoingMessage<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<MessageSent> {
        let host = self.host.upgrade();
        host.map_or(Ok(MessageSent::Closed), |host| host.send_message_in(py, self, message, timeout))
    }

    /// See [`ExchangeHost::send_prepared`].
    pub(crate) fn send_prepared(&self, py: Python<'_>, message: &Prepared) -> PyResult<MessageSent> {
        self.host.upgrade().map_or(Ok(MessageSent::Closed), |host| host.send_prepared(py, self, message))
    }

    /// See [`ExchangeHost::close_websocket`].
    pub(crate) fn close_websocket(&self, py: Python<'_>, code: CloseCode, reason: &str) -> PyResult<()> {
        self.host.upgrade().map_or(Ok(()), |host| host.close_websocket(py, self, code, reason))
    }

    /// See [`ExchangeHost::websocket_end`].
    pub(crate) fn websocket_end(&self, py: Python<'_>) -> PyResult<Option<WebSocketEnd>> {
        self.host.upgrade().map_or(Ok(Some(WebSocketEnd::abnormal())), |host| host.websocket_end(py, self))
    }

    /// See [`ExchangeHost::conclude`].
    pub(crate) fn conclude(&self, py: Python<'_>, result: PyResult<()>) {
        if let Some(host) = self.host.upgrade() {
            host.conclude(py, self, result);
        }
    }

    /// Calls `act` with the guarded state. `act` must not call Python.
    pub(super) fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&mut ExchangeState) -> R) -> R {
        self.state.with(py, act)
    }

    /// Opens the exchange for the response of `ticket`, before the application receives the exchange.
    pub(super) fn open(&self, py: Python<'_>, ticket: Ticket, key: usize) {
        self.with(py, |state| {
            state.ticket = Some(ticket);
            state.key = key;
            state.is_open = true;
        });
    }

    /// Closes the exchange after its response has ended, and resets it for reuse.
    pub(super) fn close(&self, py: Python<'_>) {
        let handler = self.with(py, |state| {
            state.is_open = false;
            state.draft.clear();
            state.begun = false;
            state.finished = false;
            state.upgraded = None;
            state.ignored_status = 0;
            state.misuse = None;
            state.handler.take()
        });
        drop(handler);
    }

    /// Cuts off a response that has not ended, after code of the server has panicked.
    pub(super) fn abort(&self, py: Python<'_>) {
        let left = self.with(py, |state| state.take_ticket_for_good().map(|ticket| (ticket, state.key)));
        if let Some((ticket, key)) = left
            && let Some(host) = self.host.upgrade()
        {
            host.cut_off(py, ticket, key);
        }
    }
}

fn admit(state: &ExchangeState, replaces: bool) -> Result<(), StartRefusal> {
    if state.is_over() {
        Err(StartRefusal::Over)
    } else if replaces && state.begun {
        Err(StartRefusal::Begun)
    } else if !replaces && !state.draft.is_empty() {
        Err(StartRefusal::Again)
    } else {
        Ok(())
    }
}
