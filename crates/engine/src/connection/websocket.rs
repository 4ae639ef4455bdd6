//! A connection of HTTP/1.1 whose exchange has become a WebSocket: its bytes are frames.
//!
//! Unlike with HTTP, the engine reads the connection while output waits for the client, because a client may send all
//! its messages before it reads. The queue of messages bounds the input: while the queue is full, the engine does not
//! read.

use super::{Closing, Connection, Lifecycle, NextAction, Step, known};
use crate::app::{App, RequestOf};
use crate::config::WebSocketConfig;
use crate::context::EngineContext;
use crate::exchange::{Awaited, Index, State, Until};
use crate::observe::{Observer, Stage};
use crate::protocol::{Protocol, ResponseSender, StreamId};
use crate::transport::{Received, Transport};
use crate::websocket::{Incoming, Overdue, Room, Upgrade, WebSocket, WebSocketEnd, WebSocketId};
use wire::message::{Draft, RequestHead};
use wire::websocket::{AcceptMisuse, CloseCode, Outgoing, Prepared, SendError};

/// A message to be sent.
pub(crate) enum Sending<'m, C> {
    One(Outgoing<'m>),
    /// A binary message.
    Binary(C),
    Prepared(&'m Prepared),
}

impl<A: App> Connection<A> {
    /// Returns true if the connection carries frames of a WebSocket.
    pub(super) fn is_websocket(&self) -> bool {
        self.lifecycle == Lifecycle::Open && self.exchanges.first.has_websocket()
    }

    fn websocket(&mut self) -> Option<&mut WebSocket<A::Message>> {
        self.exchanges.first.upgrade.as_mut().and_then(|upgrade| upgrade.websocket())
    }

    /// Returns the WebSocket with this serial number, and the number of bytes of output that wait.
    fn named(&mut self, id: WebSocketId) -> Option<(&mut WebSocket<A::Message>, usize)> {
        let backlog = self.backlog();
        self.websocket().filter(|websocket| websocket.serial == id.serial).map(|websocket| (websocket, backlog))
    }

    /// Returns the number of bytes of output that wait in memory.
    fn backlog(&self) -> usize {
        let composed = self.send.composer.as_ref().map_or(0, |out| out.unsent());
        composed + usize::try_from(self.send.waiting.length()).unwrap_or(usize::MAX)
    }

    /// Refuses a handshake that breaks a rule. It is the last request of its connection.
    pub(super) fn refuse_handshake(
        &mut self,
        stream: StreamId,
        facts: RequestOf<A>,
        draft: &Draft,
        text: &str,
        context: &mut EngineContext<A>,
    ) {
        self.note_begin(facts, context);
        let mut out = std::mem::take(&mut self.out(context).bytes);
        let facts = A::Protocol::refusing(facts);
        let mut sender = self.protocol.begin(stream, draft, facts, None, &context.stamp, &mut out);
        if sender.open(text.len() as u64, &mut out).0 > 0 {
            out.extend_from_slice(text.as_bytes());
        }
        self.out(context).bytes = out;
        context.observer.give_up(self.next_call());
        self.end_with_refusal(draft.status(), context);
    }

    /// Accepts the WebSocket. `None` if the client has gone. The connection has to be driven then.
    pub(crate) fn accept_websocket<'f>(
        &mut self,
        index: Index,
        answer: (Option<&str>, impl IntoIterator<Item = (&'f [u8], &'f [u8])>),
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Result<Option<WebSocketId>, AcceptMisuse> {
        let slot = self.slot;
        let exchange = self.exchanges.at(index);
        let (State::Running(_), None, Some(config)) = (&exchange.state, &exchange.in_flight, &context.config.websocket)
        else {
            return Ok(None);
        };
        let Some(Upgrade::Asked(opening)) = exchange.upgrade.as_deref() else { return Ok(None) };
        context.websocket_serial += 1;
        let serial = context.websocket_serial;
        let mut head = Vec::new();
        let websocket = WebSocket::accept(opening, answer, (serial, context.now), config, &context.stamp, &mut head)?;
        *exchange.upgrade.as_deref_mut().expect("it was asked for") = Upgrade::Open(websocket);
        self.out(context).bytes.extend_from_slice(&head);
        context.statistics.websockets += 1;
        self.is_upgraded = true;
        context.statistics.count_status(101);
        // No head follows on this connection.
        self.protocol.forget();
        app.idle(known(&mut self.app));
        Ok(Some(WebSocketId { slot, exchange: index, serial }))
    }

    /// Takes a message. Also returns true if the connection has to be driven: there is room for more messages, or the
    /// client must be informed of the rule that it broke after the last message.
    pub(crate) fn receive_message(
        &mut self,
        id: WebSocketId,
        context: &EngineContext<A>,
    ) -> (Incoming<A::Message>, bool) {
        let Some(config) = &context.config.websocket else { return (Incoming::Pending, false) };
        let Some((websocket, _)) = self.named(id) else {
            return (Incoming::End(WebSocketEnd::abnormal()), false);
        };
        let (had_room, was_open) = (websocket.wants_input(config), websocket.is_open());
        let incoming = websocket.take();
        let (has_room, is_open) = (websocket.wants_input(config), websocket.is_open());
        if matches!(incoming, Incoming::Pending) && self.lifecycle != Lifecycle::Open {
            // No more messages arrive, whatever has ended the WebSocket.
            return (Incoming::End(WebSocketEnd::abnormal()), false);
        }
        (incoming, !had_room && has_room || was_open && !is_open)
    }

    /// Writes a message. The connection has to be driven then.
    pub(crate) fn send_message(
        &mut self,
        id: WebSocketId,
        message: Sending<'_, A::Chunk>,
        context: &mut EngineContext<A>,
    ) -> Result<(), SendError> {
        if self.lifecycle != Lifecycle::Open {
            return Err(SendError::Closed);
        }
        let mut out = std::mem::take(&mut self.out(context).bytes);
        // The payload to be sent without copying it.
        let mut chunk = None;
        let sent = match (self.named(id), message) {
            (None, _) => Err(SendError::Closed),
            (Some((websocket, backlog)), Sending::One(message)) => {
                websocket.send(message, &mut context.compression, backlog + out.len(), &mut out)
            }
            (Some((websocket, backlog)), Sending::Binary(bytes)) => {
                let message = Outgoing::Binary(bytes.as_ref());
                match websocket.send_head(message, backlog + out.len(), &mut out) {
                    Ok(true) => {
                        chunk = Some(bytes);
                        Ok(())
                    }
                    Ok(false) => websocket.send(message, &mut context.compression, backlog + out.len(), &mut out),
                    Err(error) => Err(error),
                }
            }
            (Some((websocket, backlog)), Sending::Prepared(message)) => {
                websocket.send_prepared(message, &mut context.compression, backlog + out.len(), &mut out)
            }
        };
        let composer = self.out(context);
        composer.bytes = out;
        if let Some(chunk) = chunk {
            let length = chunk.as_ref().len();
            composer.push(chunk, length);
        }
        context.statistics.messages_out += u64::from(sent.is_ok());
        self.store(context);
        sent
    }

    /// Returns whether the client takes more, after a message was sent.
    pub(crate) fn room(&self) -> Room {
        WebSocket::<A::Message>::room(self.backlog())
    }

    /// Begins the closing handshake. The connection has to be driven then.
    pub(crate) fn close_websocket(
        &mut self,
        id: WebSocketId,
        code: CloseCode,
        reason: &str,
        context: &mut EngineContext<A>,
    ) {
        if self.lifecycle == Lifecycle::Open && self.named(id).is_some() {
            self.write_close(code, reason, true, context);
        }
    }

    /// Fails a WebSocket whose call does not come to its end. Returns true if the exchange was a WebSocket; the
    /// connection has to be driven then.
    pub(crate) fn fail_websocket(&mut self, index: Index, context: &mut EngineContext<A>) -> bool {
        let exchange = self.exchanges.at(index);
        let is_open = exchange.has_websocket() && matches!(exchange.state, State::Running(_));
        if is_open {
            self.write_close(CloseCode::INTERNAL_ERROR, "", true, context);
        }
        is_open
    }

    fn write_close(&mut self, code: CloseCode, reason: &str, is_own: bool, context: &mut EngineContext<A>) {
        let mut out = std::mem::take(&mut self.out(context).bytes);
        if let Some(websocket) = self.websocket() {
            websocket.close(code, reason, is_own, &mut out);
        }
        self.out(context).bytes = out;
    }

    /// Returns the reason why no message follows, and the number of bytes of messages that have been sent.
    pub(crate) fn websocket_state(&mut self, id: WebSocketId) -> (Option<WebSocketEnd>, u64) {
        let is_open = self.lifecycle == Lifecycle::Open;
        match self.named(id) {
            Some((websocket, _)) => {
                let end = websocket.end().cloned();
                (end.or_else(|| (!is_open).then(WebSocketEnd::abnormal)), websocket.sent_bytes)
            }
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }

    /// Returns true if one of the awaited conditions holds; `None`: the exchange is no WebSocket.
    pub(super) fn has_awaited_of_websocket(&self, index: Index, awaited: Awaited) -> Option<bool> {
        let Some(Upgrade::Open(websocket)) = self.exchanges.get(index)?.upgrade.as_deref() else { return None };
        let is_over = self.lifecycle != Lifecycle::Open;
        Some(
            is_over
                || awaited.has(Awaited::INPUT) && websocket.has_something()
                || awaited.has(Awaited::OUTPUT) && websocket.has_room(self.backlog())
                || awaited.has(Awaited::DEPARTURE) && !websocket.is_open(),
        )
    }

    /// Has `waiter` woken when one of the `awaited` conditions holds for a WebSocket, or it has gone. `waiter` replaces
    /// the previous waiter.
    pub(crate) fn wait_for_websocket(&mut self, id: WebSocketId, awaited: Awaited, waiter: A::Waiter, app: &mut A) {
        let is_named = self.named(id).is_some();
        if !is_named || self.has_awaited_of_websocket(id.exchange, awaited).unwrap_or(true) {
            return app.wake(waiter);
        }
        self.exchanges.at(id.exchange).waiter = Some((awaited, waiter));
    }

    /// Closes the WebSocket because the application's call for a message has missed its deadline. Returns the bytes of
    /// messages that were sent; `None`: it is no WebSocket. The client's messages are kept: see
    /// [`expire_call`](Self::expire_call).
    pub(super) fn expire_message(&mut self, context: &mut EngineContext<A>) -> Option<u64> {
        self.websocket()?;
        self.write_close(CloseCode::INTERNAL_ERROR, "the application did not answer in time", true, context);
        self.websocket().map(|websocket| websocket.sent_bytes)
    }

    /// Does one step of a WebSocket: answers, output, waking the application, then input.
    pub(super) fn step_websocket(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        self.end_if_due(context);
        self.write_answers(context);
        if !self.flush(context) {
            return Step::Stop(self.abort(context, app));
        }
        let (has_output, backlog) = (self.has_output(), self.backlog());
        let Some(config) = &context.config.websocket else { return Step::Stop(NextAction::Close) };
        let exchange = &mut self.exchanges.first;
        let Some(websocket) = exchange.upgrade.as_mut().and_then(|upgrade| upgrade.websocket()) else {
            return Step::Stop(NextAction::Wait);
        };
        let (is_over, wants_input) = (websocket.is_over(), websocket.wants_input(config));
        let (has_something, has_room) = (websocket.has_something(), websocket.has_room(backlog));
        if has_something {
            let awaited = if websocket.is_open() { Awaited::INPUT } else { Awaited::INPUT.or(Awaited::DEPARTURE) };
            exchange.wake(awaited, app);
        }
        if has_room {
            exchange.wake(Awaited::OUTPUT, app);
        }
        if let State::Suspended(suspended) = &mut exchange.state {
            match suspended.until {
                Until::Turn => {
                    suspended.until = Until::Output;
                    return Step::Stop(NextAction::Again);
                }
                Until::Output if has_room => return Step::Stop(self.resume(0, context)),
                Until::Message if has_something => {
                    suspended.until = Until::Thread;
                    context.queued += 1;
                    // A message is work like a request: after a number of them in a round, other connections are driven
                    // first.
                    self.turn.called += 1;
                    context.observer.switch(self.call(0), Stage::Queue);
                    return Step::Stop(NextAction::Enqueue(0));
                }
                // The application has still to be informed of the end.
                Until::Thread if is_over => return Step::Stop(NextAction::Wait),
                Until::Output | Until::Message | Until::Thread => {}
            }
        }
        if is_over && (!has_output || self.input.has_ended()) {
            // The server closes the transport, not the client (RFC 6455 section 7.1.1).
            self.lifecycle = Lifecycle::Closing(Closing::Linger);
            return Step::Next;
        }
        if is_over || !wants_input {
            return Step::Stop(NextAction::Wait);
        }
        if self.input.has_unseen() {
            let mut bytes = std::mem::take(&mut self.input.bytes);
            let start = self.input.used;
            let used = self.take_frames(&mut bytes[start..], context, app);
            // Frames for which there is no room stay in the input: a client may have sent many messages at once.
            self.input.keep(bytes, start + used);
            return Step::Next;
        }
        if !self.input.is_readable() {
            return Step::Stop(NextAction::Wait);
        }
        self.receive_frames(context, buffer, app)
    }

    fn receive_frames(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        match self.transport.receive(buffer) {
            Ok(Received::Bytes { count, is_drained }) => {
                context.statistics.bytes_in += count as u64;
                context.meter.charge(count as u64);
                if is_drained {
                    self.input.note_drained();
                }
                let used = self.take_frames(&mut buffer[..count], context, app);
                self.input.keep(buffer[used..count].to_vec(), 0);
                Step::Next
            }
            Ok(Received::WouldBlock) => {
                self.input.note_drained();
                if self.transport.has_unsent() { Step::Next } else { Step::Stop(NextAction::Wait) }
            }
            Ok(Received::End) => {
                self.input.end();
                if let Some(websocket) = self.websocket() {
                    websocket.lose();
                }
                Step::Next
            }
            Err(_) => Step::Stop(self.abort(context, app)),
        }
    }

    /// Takes the messages in `bytes`, as far as there is room for them. Returns the number of bytes taken.
    fn take_frames(&mut self, bytes: &mut [u8], context: &mut EngineContext<A>, app: &mut A) -> usize {
        let backlog = usize::try_from(self.send.waiting.length()).unwrap_or(usize::MAX);
        let mut out = std::mem::take(&mut self.out(context).bytes);
        let EngineContext { config, compression, now, meter, statistics, .. } = &mut *context;
        let (mut used, mut is_overloaded) = (0, false);
        if let (Some(config), Some(Upgrade::Open(websocket))) =
            (&config.websocket, self.exchanges.first.upgrade.as_deref_mut())
        {
            let output = (backlog, &mut out);
            (used, is_overloaded) =
                websocket.receive(bytes, (*now, config), compression, output, meter, |kind, bytes| {
                    statistics.messages_in += 1;
                    app.message(kind, bytes)
                });
        }
        self.out(context).bytes = out;
        if is_overloaded {
            context.report_overload(app);
        }
        used
    }

    /// Closes the WebSocket if the server ends, or if the call is over and has not closed it.
    fn end_if_due(&mut self, context: &mut EngineContext<A>) {
        let end = context.websocket_end;
        let Some(websocket) = self.websocket().filter(|websocket| websocket.is_open()) else { return };
        if websocket.is_released() {
            self.write_close(CloseCode::NORMAL, "", true, context);
        } else if let Some(code) = end {
            self.write_close(code, "", false, context);
        }
    }

    /// Writes pongs and the answer to a Close frame.
    fn write_answers(&mut self, context: &mut EngineContext<A>) {
        if self.websocket().is_none_or(|websocket| !websocket.owes_answer()) {
            return;
        }
        let backlog = self.backlog();
        let mut out = std::mem::take(&mut self.out(context).bytes);
        if let Some(websocket) = self.websocket() {
            websocket.write_answers(backlog, &mut out);
        }
        self.out(context).bytes = out;
    }

    /// Handles the missed deadline of a wait of the WebSocket. The connection has to be driven then.
    pub(super) fn expire_websocket(&mut self, context: &mut EngineContext<A>) {
        let mut out = std::mem::take(&mut self.out(context).bytes);
        let (now, config) = (context.now, &context.config);
        let overdue = self.websocket().map(|websocket| websocket.expire(now, config, &mut out));
        self.out(context).bytes = out;
        context.statistics.timeouts += u64::from(overdue == Some(Overdue::Ended));
    }

    /// Ends the WebSocket because the peer is gone, or must see that something is missing.
    pub(super) fn lose_websocket(&mut self) {
        if let Some(websocket) = self.websocket() {
            websocket.lose();
        }
    }

    /// Records that the call of a WebSocket is over. Returns true if the exchange was a WebSocket; the connection has
    /// to be driven then.
    pub(super) fn release_websocket(&mut self, index: Index, facts: RequestOf<A>) -> bool {
        let exchange = self.exchanges.at(index);
        let Some(websocket) = exchange.upgrade.as_mut().and_then(|upgrade| upgrade.websocket()) else { return false };
        websocket.release();
        exchange.in_flight = None;
        exchange.state = State::Finishing(facts);
        true
    }

    /// Returns the time at which the WebSocket has work to do.
    pub(super) fn websocket_deadline(&mut self, context: &EngineContext<A>) -> crate::deadline::Millis {
        let (config, now) = (&context.config, context.now);
        self.websocket().map_or(crate::deadline::Millis::MAX, |websocket| websocket.deadline(config, now))
    }
}

impl WebSocketConfig {
    /// Returns true if a request with this head asks for a WebSocket.
    pub(super) fn is_asked_for(head: &RequestHead<'_>) -> bool {
        wire::websocket::wants_websocket(head)
    }
}
