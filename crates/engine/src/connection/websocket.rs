//! A WebSocket, as the application and the sessions use it: it belongs to an exchange, and its frames travel on the
//! link of the connection (HTTP/1) or on one stream (HTTP/2).

use super::link::Link;
use crate::app::{App, MultiplexedOf};
use crate::config::Config;
use crate::context::EngineContext;
use crate::exchange::{Awaited, Backlog, Exchange, Index, State};
use crate::protocol::MultiplexedProtocol;
use crate::websocket::{Incoming, Overdue, Room, Upgrade, WebSocket, WebSocketEnd, WebSocketId};
use wire::websocket::{AcceptMisuse, CloseCode, Compression, Outgoing, Prepared, SendError};

/// A message that the application sends.
pub(crate) enum MessageOut<'m, C> {
    One(Outgoing<'m>),
    /// A binary message, which may be sent without a copy.
    Binary(C),
    Prepared(&'m Prepared),
}

/// The state needed to write frames.
pub(super) struct Writing<'w> {
    config: &'w Config,
    compression: &'w mut Compression,
    /// The number of unsent bytes before these frames.
    backlog: usize,
    out: &'w mut Vec<u8>,
}

/// The exchange of a WebSocket, or of a request for one, with the carrier of its frames: the link, or a stream on it.
pub(crate) struct WebSocketOf<'c, A: App> {
    pub(super) exchange: &'c mut Exchange<A>,
    pub(super) link: &'c mut Link<A>,
    /// The protocol of the stream; `None` if the frames are sent directly on the link.
    pub(super) protocol: Option<&'c mut MultiplexedOf<A>>,
}

impl<A: App> WebSocketOf<'_, A> {
    /// Returns the WebSocket with the serial number of `id`, unless it is gone.
    fn named(&mut self, id: WebSocketId) -> Option<&mut WebSocket<A::Message>> {
        self.exchange.websocket().filter(|websocket| websocket.serial == id.serial)
    }

    /// Returns true if frames can be sent.
    fn is_open(&self) -> bool {
        self.link.lifecycle.is_open() && (self.protocol.is_none() || !self.exchange.is_detached())
    }

    /// Returns the number of bytes of output that the client has not read.
    pub(super) fn backlog(&self) -> usize {
        match &self.exchange.backlog {
            Some(backlog) if self.protocol.is_some() => usize::try_from(backlog.output.length()).unwrap_or(usize::MAX),
            _ if self.protocol.is_some() => 0,
            _ => self.link.sending.backlog(),
        }
    }

    /// Calls `write` to write frames of the WebSocket.
    pub(super) fn write<R>(
        &mut self,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut WebSocket<A::Message>, Writing<'_>) -> R,
    ) -> Option<R> {
        let waiting = self.backlog();
        let Exchange { upgrade, backlog, .. } = &mut *self.exchange;
        let websocket = upgrade.as_mut()?.websocket()?;
        let EngineContext { config, websockets, scratch, .. } = context;
        let compression = &mut websockets.compression;
        if self.protocol.is_none() {
            let waiting = self.link.sending.waiting_bytes();
            let composer = self.link.sending.out(scratch);
            let backlog = waiting + composer.unsent();
            return Some(write(websocket, Writing { config, compression, backlog, out: &mut composer.bytes }));
        }
        let mut frames = Vec::new();
        let result = write(websocket, Writing { config, compression, backlog: waiting, out: &mut frames });
        if !frames.is_empty() {
            Backlog::of(backlog).output.push_bytes(&frames);
        }
        Some(result)
    }

    /// Accepts the WebSocket that the request of the exchange at `index` asks for. Returns `None` if the client has
    /// gone. The caller has to drive the connection afterwards.
    pub(crate) fn accept<'f>(
        &mut self,
        index: Index,
        (subprotocol, fields): (Option<&str>, impl IntoIterator<Item = (&'f [u8], &'f [u8])>),
        context: &mut EngineContext<A>,
    ) -> Result<Option<WebSocketId>, AcceptMisuse> {
        let (exchange, link) = (&mut *self.exchange, &mut *self.link);
        let (&State::Running(terms), None, Some(config)) =
            (exchange.state.view(), &exchange.in_flight, &context.config.websocket)
        else {
            return Ok(None);
        };
        let Some(Upgrade::Asked(opening)) = exchange.upgrade.as_deref() else { return Ok(None) };
        let agreement = opening.agree(subprotocol)?;
        let stamp = context.time.stamp(link.is_encrypted());
        match &mut self.protocol {
            None => {
                let mut head = Vec::new();
                agreement.write(fields, stamp, &mut head)?;
                link.out(&mut context.scratch).bytes.extend_from_slice(&head);
                link.upgrade(&mut context.statistics);
            }
            Some(protocol) => {
                let draft = agreement.draft(fields)?;
                protocol.accept_websocket(exchange.stream);
                let out = &mut link.out(&mut context.scratch).bytes;
                protocol.begin(exchange.stream, &draft, terms, None, stamp, out);
                context.statistics.websockets += 1;
                context.statistics.count_status(200);
            }
        }
        let serial = context.websockets.next_serial();
        let websocket = WebSocket::new(agreement.deflate, (serial, context.time.now), config);
        *exchange.upgrade.as_deref_mut().expect("it was asked for") = Upgrade::Open(websocket);
        link.sending.store(&mut context.scratch);
        Ok(Some(WebSocketId { slot: link.slot(), exchange: index, serial }))
    }

    /// Removes and returns the next message. The second value is true if the caller has to drive the connection: there
    /// is room for more messages, or the client must be told which rule it broke after the last message.
    pub(crate) fn receive(&mut self, id: WebSocketId, context: &EngineContext<A>) -> (Incoming<A::Message>, bool) {
        let is_link_open = self.is_open();
        let Some(config) = &context.config.websocket else { return (Incoming::Pending, false) };
        let Some(websocket) = self.named(id) else {
            return (Incoming::End(WebSocketEnd::abnormal()), false);
        };
        let (had_room, was_open) = (websocket.wants_input(config), websocket.is_open());
        let incoming = websocket.take();
        let (has_room, is_open) = (websocket.wants_input(config), websocket.is_open());
        if matches!(incoming, Incoming::Pending) && !is_link_open {
            // No more messages can arrive, whatever has ended the WebSocket.
            return (Incoming::End(WebSocketEnd::abnormal()), false);
        }
        (incoming, !had_room && has_room || was_open && !is_open)
    }

    /// Writes a message. The caller has to drive the connection afterwards.
    pub(crate) fn send(
        &mut self,
        id: WebSocketId,
        message: MessageOut<'_, A::Chunk>,
        context: &mut EngineContext<A>,
    ) -> Result<(), SendError> {
        if !self.is_open() || self.named(id).is_none() {
            return Err(SendError::Closed);
        }
        let sent = match message {
            MessageOut::Binary(bytes) if self.protocol.is_none() => self.send_binary(bytes, context),
            MessageOut::One(message) => {
                self.write(context, |websocket, to| websocket.send(message, to.compression, to.backlog, to.out))
            }
            MessageOut::Binary(bytes) => {
                let message = Outgoing::Binary(bytes.as_ref());
                self.write(context, |websocket, to| websocket.send(message, to.compression, to.backlog, to.out))
            }
            MessageOut::Prepared(message) => self
                .write(context, |websocket, to| websocket.send_prepared(message, to.compression, to.backlog, to.out)),
        };
        let sent = sent.unwrap_or(Err(SendError::Closed));
        context.statistics.messages_out += u64::from(sent.is_ok());
        self.link.sending.store(&mut context.scratch);
        sent
    }

    /// Writes a binary message to the link, without copying its payload.
    fn send_binary(&mut self, bytes: A::Chunk, context: &mut EngineContext<A>) -> Option<Result<(), SendError>> {
        let waiting = self.link.sending.waiting_bytes();
        let websocket = self.exchange.websocket()?;
        let composer = self.link.sending.out(&mut context.scratch);
        let backlog = waiting + composer.unsent();
        let message = Outgoing::Binary(bytes.as_ref());
        Some(match websocket.send_head(message, backlog, &mut composer.bytes) {
            Ok(true) => {
                let length = bytes.as_ref().len();
                composer.push(bytes, length);
                Ok(())
            }
            Ok(false) => websocket.send(message, &mut context.websockets.compression, backlog, &mut composer.bytes),
            Err(error) => Err(error),
        })
    }

    /// Returns the room for output after a message was sent.
    pub(crate) fn room(&self) -> Room {
        WebSocket::<A::Message>::room(self.backlog())
    }

    /// Begins the closing handshake. The caller has to drive the connection afterwards.
    pub(crate) fn close(&mut self, id: WebSocketId, code: CloseCode, reason: &str, context: &mut EngineContext<A>) {
        if self.is_open() && self.named(id).is_some() {
            self.write_close((code, reason, true), context);
        }
    }

    /// Fails a WebSocket whose call ended with an error. Returns true if the exchange was a WebSocket; the caller then
    /// has to drive the connection.
    pub(crate) fn fail(&mut self, context: &mut EngineContext<A>) -> bool {
        let is_open = self.exchange.has_websocket() && self.exchange.is_running();
        if is_open {
            self.write_close((CloseCode::INTERNAL_ERROR, "", true), context);
        }
        is_open
    }

    /// Returns why no further message can arrive, `None` while the WebSocket is open; and the number of bytes of
    /// messages that have been sent.
    pub(crate) fn state(&mut self, id: WebSocketId) -> (Option<WebSocketEnd>, u64) {
        let is_open = self.is_open();
        match self.named(id) {
            Some(websocket) => {
                let end = websocket.end().cloned();
                (end.or_else(|| (!is_open).then(WebSocketEnd::abnormal)), websocket.sent_bytes)
            }
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }

    /// Wakes `waiter` when any condition of `awaited` holds for the WebSocket, or it has ended. `waiter` replaces the
    /// previous waiter.
    pub(crate) fn wait(&mut self, id: WebSocketId, awaited: Awaited, waiter: A::Waiter, app: &mut A) {
        let is_named = self.named(id).is_some();
        if !is_named || self.has_awaited(awaited).unwrap_or(true) {
            return app.wake(waiter);
        }
        self.exchange.wait(awaited, waiter);
    }

    /// Returns true if any condition of `awaited` holds; `None` if the exchange is no WebSocket.
    pub(super) fn has_awaited(&self, awaited: Awaited) -> Option<bool> {
        let Some(Upgrade::Open(websocket)) = self.exchange.upgrade.as_deref() else { return None };
        Some(
            !self.is_open()
                || awaited.has(Awaited::INPUT) && websocket.has_something()
                || awaited.has(Awaited::OUTPUT) && websocket.has_room(self.backlog())
                || awaited.has(Awaited::DEPARTURE) && !websocket.is_open(),
        )
    }

    /// Writes a Close frame with a code and a reason. `is_own`: the application closes the WebSocket.
    pub(super) fn write_close(
        &mut self,
        (code, reason, is_own): (CloseCode, &str, bool),
        context: &mut EngineContext<A>,
    ) {
        self.write(context, |websocket, to| websocket.close(code, reason, is_own, to.out));
    }

    /// Closes the WebSocket if the server stops or drains, or if the call has ended without closing it.
    pub(super) fn end_if_due(&mut self, context: &mut EngineContext<A>) {
        let end = context.websockets.end;
        let Some(websocket) = self.exchange.websocket().filter(|websocket| websocket.is_open()) else { return };
        if websocket.is_released() {
            self.write_close((CloseCode::NORMAL, "", true), context);
        } else if let Some(code) = end {
            self.write_close((code, "", false), context);
        }
    }

    /// Writes the pongs and the Close frame that answer the client's frames.
    pub(super) fn write_answers(&mut self, context: &mut EngineContext<A>) {
        if self.exchange.websocket().is_some_and(|websocket| websocket.owes_answer()) {
            self.write(context, |websocket, to| websocket.write_answers(to.backlog, to.out));
        }
    }

    /// Handles a missed deadline of the WebSocket. The caller has to drive the connection afterwards.
    pub(super) fn expire(&mut self, context: &mut EngineContext<A>) {
        let now = context.time.now;
        let overdue = self.write(context, |websocket, to| websocket.expire(now, to.config, to.out));
        context.statistics.timeouts += u64::from(overdue == Some(Overdue::Ended));
    }

    /// Closes the WebSocket because the application's call for a message has missed its deadline. Returns the number of
    /// bytes of messages that were sent; `None` if the exchange is no WebSocket. The client's messages are kept,
    /// because only the application may drop them.
    pub(super) fn expire_message(&mut self, context: &mut EngineContext<A>) -> Option<u64> {
        self.exchange.websocket()?;
        self.write_close((CloseCode::INTERNAL_ERROR, "the application did not answer in time", true), context);
        self.exchange.websocket().map(|websocket| websocket.sent_bytes)
    }

    /// Wakes the waiting call of the application for the conditions that hold now.
    pub(super) fn wake(&mut self, app: &mut A) {
        let backlog = self.backlog();
        let Some(websocket) = self.exchange.websocket() else { return };
        let (is_open, has_something, has_room) =
            (websocket.is_open(), websocket.has_something(), websocket.has_room(backlog));
        if has_something {
            let awaited = if is_open { Awaited::INPUT } else { Awaited::INPUT.or(Awaited::DEPARTURE) };
            self.exchange.wake(awaited, app);
        }
        if has_room {
            self.exchange.wake(Awaited::OUTPUT, app);
        }
    }

    /// Takes the messages in `bytes` for which there is room. Returns the number of bytes taken.
    pub(super) fn take_frames(&mut self, bytes: &mut [u8], context: &mut EngineContext<A>, app: &mut A) -> usize {
        let waiting = if self.protocol.is_some() { self.backlog() } else { self.link.sending.waiting_bytes() };
        let EngineContext { config, websockets, time, meter, statistics, scratch, .. } = &mut *context;
        let mut answers = Vec::new();
        let out = if self.protocol.is_some() { &mut answers } else { &mut self.link.out(scratch).bytes };
        let (mut used, mut is_overloaded) = (0, false);
        if let (Some(config), Some(Upgrade::Open(websocket))) =
            (&config.websocket, self.exchange.upgrade.as_deref_mut())
        {
            let compression = &mut websockets.compression;
            (used, is_overloaded) =
                websocket.receive(bytes, (time.now, config), compression, (waiting, out), meter, |kind, bytes| {
                    statistics.messages_in += 1;
                    app.message(kind, bytes)
                });
        }
        if !answers.is_empty() {
            Backlog::of(&mut self.exchange.backlog).output.push_bytes(&answers);
        }
        if is_overloaded {
            context.report_overload(app);
        }
        used
    }
}
