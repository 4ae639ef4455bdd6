//! One request and its response, as an interface sees it: what the application may say and ask from any thread that is
//! attached, and at any time, also when its response is long over. So
//!
//! * the state is [`Guarded`], and the innermost lock: Python is not called while it is used;
//! * the host puts a ticket into it and takes it out again while the engine is locked (and before the application knows
//!   the exchange), so a thread that finds one there, with the engine locked, finds the connection of this response and
//!   no other;
//! * an exchange that the application has kept may outlive its server, and says so.
//!
//! The host alone sees the state; interfaces have the methods of [`Exchange`] that are `pub(crate)`.

use crate::guarded::Guarded;
use crate::object::{Chunk, Message, OutgoingMessage};
pub(crate) use engine::{Awaited, HijackId, HijackRefusal, Hijacked, Incoming, WebSocketEnd};
use engine::{Ticket, WebSocketId};
use pyo3::prelude::*;
use std::fs::File;
use std::sync::Weak;
use std::time::Duration;
use wire::message::{Draft, FieldLines, Misuse};
use wire::websocket::{AcceptMisuse, CloseCode, Prepared};

/// What an exchange asks of the host that it belongs to.
pub(crate) trait ExchangeHost: Send + Sync {
    /// Sends a part of the body, and waits for a client that reads slowly if others can go on meanwhile. Returns whether
    /// there was a response to write to.
    ///
    /// # Errors
    /// `ValueError` for more than the response declares; what ends a wait.
    fn write(&self, py: Python<'_>, exchange: &Exchange, chunk: Chunk) -> PyResult<bool>;

    /// Reads from a request body that is passed on as it arrives, and waits until some of it is here. 0 bytes are its
    /// end; `None`: the response is over.
    ///
    /// # Errors
    /// `ConnectionResetError` if the client has left before its end, `TimeoutError` if it did not come in time, `OSError`
    /// if it is malformed or too long.
    fn read(&self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> PyResult<Option<usize>>;

    /// Whether the client of the response has left. The client of a response that is over has none to wait for.
    ///
    /// # Errors
    /// `RuntimeError` if this thread is in the server already.
    fn is_disconnected(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<bool>;

    /// Writes a part of the body without waiting, and ends the response as `end` says. The first part takes the head with
    /// it.
    ///
    /// # Errors
    /// `ValueError` for more or less than the response declares. Nothing of the part has been written then.
    fn send(&self, py: Python<'_>, exchange: &Exchange, part: Option<Part>, end: End<'_>) -> PyResult<Sent>;

    /// Sends an interim response 103 with `fields`. Nothing is sent where the head has been, or where the client cannot
    /// read one.
    ///
    /// # Errors
    /// `RuntimeError` if this thread is in the server already.
    fn send_early_hints(&self, py: Python<'_>, exchange: &Exchange, fields: &FieldLines) -> PyResult<Sent>;

    /// Passes on what the application reports of the request, where the client takes that
    /// ([`Input::takes_errors`](crate::interface::Input)).
    fn write_errors(&self, py: Python<'_>, exchange: &Exchange, text: &[u8]);

    /// Sends the head by itself, if the response has one that was not sent.
    fn send_head(&self, py: Python<'_>, exchange: &Exchange);

    /// Reads from a request body that is passed on as it arrives, without waiting. An empty buffer asks what the next read
    /// would give.
    ///
    /// # Errors
    /// `RuntimeError` if this thread is in the server already.
    fn receive(&self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> PyResult<Received>;

    /// Has the interface [wake](crate::interface::Interface::wake) `waiter`, once, when any of `awaited` is the case, or is
    /// already. It takes the place of what was awaited before. False if the response is over.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn wake_when(&self, py: Python<'_>, exchange: &Exchange, awaited: Awaited, waiter: Py<PyAny>) -> PyResult<bool>;

    /// Accepts the WebSocket that the request asks for, with a subprotocol and header fields of the application's.
    ///
    /// # Errors
    /// `RuntimeError` if this thread is in the server already.
    fn accept(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        subprotocol: Option<&str>,
        fields: &[(Vec<u8>, Vec<u8>)],
    ) -> PyResult<Acceptance>;

    /// Takes the next message of an accepted WebSocket, without waiting.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn take_message(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Incoming<Message>>;

    /// The same. If there is none yet, `waiter` is woken, once, when any of `awaited` is the case.
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

    /// Sends a message on an accepted WebSocket, without waiting.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn send_message(&self, py: Python<'_>, exchange: &Exchange, message: &OutgoingMessage<'_>)
    -> PyResult<MessageSent>;

    /// Takes the next message of an accepted WebSocket, and waits for it, at most so long.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); what ends the wait.
    fn receive_message(
        &self,
        py: Python<'_>,
        exchange: &Exchange,
        timeout: Option<Duration>,
    ) -> PyResult<Incoming<Message>>;

    /// Sends a message on an accepted WebSocket, and waits until there is room for it, at most so long.
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

    /// Sends a message that is framed once for many, without waiting.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn send_prepared(&self, py: Python<'_>, exchange: &Exchange, message: &Prepared) -> PyResult<MessageSent>;

    /// Closes an accepted WebSocket, if it is open.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn close_websocket(&self, py: Python<'_>, exchange: &Exchange, code: CloseCode, reason: &str) -> PyResult<()>;

    /// Why no message follows; `None` while the WebSocket is open.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn websocket_end(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Option<WebSocketEnd>>;

    /// Gives the application the connection of a request that asks for a WebSocket.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn hijack(&self, py: Python<'_>, exchange: &Exchange) -> PyResult<Result<Hijacked, HijackRefusal>>;

    /// The application has closed the socket that it was given.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    fn end_hijack(&self, py: Python<'_>, id: HijackId) -> PyResult<()>;

    /// A call that was suspended has come to its end.
    fn conclude(&self, py: Python<'_>, exchange: &Exchange, result: PyResult<()>);

    /// The call that has this ticket and this key does not come to its end.
    fn cut_off(&self, py: Python<'_>, ticket: Ticket, key: usize);
}

/// What takes the messages of a WebSocket. It is called by one thread at a time, by any.
pub(crate) trait MessageHandler: Send + Sync {
    /// The WebSocket is open.
    ///
    /// # Errors
    /// What the application has raised.
    fn open(&self, py: Python<'_>) -> PyResult<()>;

    /// A message has come.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn message(&self, py: Python<'_>, message: Message) -> PyResult<()>;

    /// No message follows. It is told once, whatever happened before.
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
        /// The part is the whole body: one that is longer than the response declares ends there.
        is_whole: bool,
    },
}

/// What follows a part of a response's body.
#[derive(Clone, Copy)]
pub(crate) enum End<'a> {
    /// More of it.
    NotYet,
    /// The response is over.
    Here,
    /// The response is over behind these trailers, which a client that takes none does not get.
    Trailers(&'a FieldLines),
}

/// What became of a part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It has been sent, or will be.
    Done,
    /// The same, and the client has not taken all of it: what is written now piles up.
    Full,
    /// The client has left.
    Gone,
    /// The response is over.
    Over,
}

/// What reading a request body has given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing has arrived that was not read.
    Pending,
    /// The body is over.
    End,
    /// The client has left, or the response is over.
    Left,
    /// The rest of the body will not come.
    Broken,
}

/// What became of accepting a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    Accepted,
    /// The client has left, or the request is answered.
    Gone,
    /// The answer may not be as the application wants it.
    Misused(AcceptMisuse),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageSent {
    /// It has been sent, or will be.
    Done,
    /// The same, and the client has much to take.
    Full,
    /// It has not: the client has much to take, and it may be sent again then.
    Refused,
    /// The WebSocket is closed.
    Closed,
}

/// See the module.
pub(crate) struct Exchange {
    host: Weak<dyn ExchangeHost>,
    state: Guarded<ExchangeState>,
}

/// What the application has said of one response, and where it is written.
pub(super) struct ExchangeState {
    pub(super) draft: Draft,
    /// Which of the engine's exchanges is answered; `None` once the response is over, and while it is suspended.
    pub(super) ticket: Option<Ticket>,
    /// The key of the call among [`Calls`](super::calls::Calls).
    pub(super) key: usize,
    /// The head has been written.
    pub(super) begun: bool,
    /// The end has been written too, or given up: what another thread still writes would stand behind it.
    pub(super) finished: bool,
    /// From [`Exchange::open`] until the response is over.
    is_open: bool,
    /// What it has become in place of a response.
    pub(super) upgraded: Option<Upgraded>,
    /// What takes its messages, until the host has it: the application's call has returned.
    pub(super) handler: Option<Box<dyn MessageHandler>>,
    /// The status of the response that the application has made besides, which is not sent; 0: it has made none.
    pub(super) ignored_status: u16,
    /// What `write` was not allowed to send, kept for the report: the application may swallow the exception.
    pub(super) misuse: Option<Misuse>,
}

/// What an exchange has become whose request asks for a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgraded {
    /// A WebSocket of the engine's.
    WebSocket(WebSocketId),
    /// A connection on which the application speaks to the client itself.
    Hijacked,
}

impl ExchangeState {
    /// The WebSocket that it has become.
    pub(super) fn websocket(&self) -> Option<WebSocketId> {
        if let Some(Upgraded::WebSocket(id)) = self.upgraded { Some(id) } else { None }
    }

    /// The response is over: nothing that the application says counts any more, and its call is about to end. Called with
    /// the engine locked, in which its key is valid until then.
    pub(super) fn take_ticket_for_good(&mut self) -> Option<Ticket> {
        self.is_open = false;
        self.ticket.take()
    }

    /// The response has come to its end, and with it the call: its key belongs to another call now, or to none.
    pub(super) fn is_over(&self) -> bool {
        !self.is_open
    }
}

/// Why a response cannot be started now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartRefusal {
    /// The response is over.
    Over,
    /// Its head has been sent.
    Begun,
    /// It has been started already, and the application did not say that it replaces that.
    Again,
}

impl Exchange {
    /// An exchange that is over, until the host [opens](Self::open) it.
    pub(crate) fn new(host: Weak<dyn ExchangeHost>) -> Self {
        let state = ExchangeState {
            draft: Draft::default(),
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

    /// Begins a response head: an empty draft, to be filled and [stored](Self::store_draft). `replaces`: the head that was
    /// stored before may be replaced.
    pub(crate) fn take_draft(&self, py: Python<'_>, replaces: bool) -> Result<Draft, StartRefusal> {
        self.state.with(py, |state| {
            if state.upgraded.is_some() {
                return Ok(Draft::default());
            }
            admit(state, replaces)?;
            // An empty one may have room.
            Ok(if replaces { Draft::default() } else { std::mem::take(&mut state.draft) })
        })
    }

    /// Stores the response head, and does `then` while the response is known not to be over. What was true when the draft
    /// was taken may have changed since: filling it may have run code of the application's.
    pub(crate) fn store_draft<R>(
        &self,
        py: Python<'_>,
        replaces: bool,
        draft: Draft,
        then: impl FnOnce() -> R,
    ) -> Result<R, StartRefusal> {
        self.state.with(py, |state| {
            if state.upgraded.is_some() {
                // The handshake was the response.
                state.ignored_status = draft.status();
                return Ok(then());
            }
            admit(state, replaces)?;
            state.draft = draft;
            Ok(then())
        })
    }

    /// Has the host give the messages of a WebSocket to `handler`, when the application's call has returned. False if it
    /// has returned already, or there is no WebSocket.
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

    /// Whether the application has given the response a head.
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

    /// Whether the response is over.
    pub(crate) fn is_over(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.is_over())
    }

    /// Whether it has become a WebSocket of the engine's.
    pub(crate) fn is_websocket(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.websocket().is_some())
    }

    /// Whether it has become a WebSocket, of the engine's or of the application's own.
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

    /// Does something with the state. `act` calls nothing of Python's.
    pub(super) fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&mut ExchangeState) -> R) -> R {
        self.state.with(py, act)
    }

    /// The exchange is that of `ticket` from now on. The application does not know it yet.
    pub(super) fn open(&self, py: Python<'_>, ticket: Ticket, key: usize) {
        self.with(py, |state| {
            state.ticket = Some(ticket);
            state.key = key;
            state.is_open = true;
        });
    }

    /// The response is over, and the exchange may be opened again.
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

    /// Cuts off a response that has not come to its end, because code of ours has panicked.
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
