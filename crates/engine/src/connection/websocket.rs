//! A WebSocket, as the application uses it: on the exchange that it belongs to, over the link of its connection.

use super::link::Link;
use crate::app::App;
use crate::context::EngineContext;
use crate::exchange::{Awaited, Exchange, Index, State};
use crate::websocket::{Incoming, Room, Upgrade, WebSocket, WebSocketEnd, WebSocketId};
use wire::websocket::{AcceptMisuse, CloseCode, Outgoing, Prepared, SendError};

/// A message to be sent.
pub(crate) enum MessageOut<'m, C> {
    One(Outgoing<'m>),
    /// A binary message.
    Binary(C),
    Prepared(&'m Prepared),
}

/// The exchange of a WebSocket, or of a request for one, with the link that carries its frames.
pub(crate) struct WebSocketOf<'c, A: App> {
    pub(super) exchange: &'c mut Exchange<A>,
    pub(super) link: &'c mut Link<A>,
}

impl<A: App> WebSocketOf<'_, A> {
    /// Returns the WebSocket with this serial number, unless it is gone.
    fn named(&mut self, id: WebSocketId) -> Option<&mut WebSocket<A::Message>> {
        self.exchange.websocket().filter(|websocket| websocket.serial == id.serial)
    }

    /// Accepts the WebSocket that the request of the exchange at `index` asks for. `None` if the client has gone. The
    /// connection has to be driven then.
    pub(crate) fn accept<'f>(
        &mut self,
        index: Index,
        answer: (Option<&str>, impl IntoIterator<Item = (&'f [u8], &'f [u8])>),
        context: &mut EngineContext<A>,
    ) -> Result<Option<WebSocketId>, AcceptMisuse> {
        let (exchange, link) = (&mut *self.exchange, &mut *self.link);
        let (State::Running(_), None, Some(config)) =
            (exchange.state.view(), &exchange.in_flight, &context.config.websocket)
        else {
            return Ok(None);
        };
        let Some(Upgrade::Asked(opening)) = exchange.upgrade.as_deref() else { return Ok(None) };
        let serial = context.websockets.next_serial();
        let mut head = Vec::new();
        let (now, stamp) = (context.time.now, context.time.stamp(link.is_encrypted()));
        let websocket = WebSocket::accept(opening, answer, (serial, now), config, stamp, &mut head)?;
        *exchange.upgrade.as_deref_mut().expect("it was asked for") = Upgrade::Open(websocket);
        link.out(&mut context.scratch).bytes.extend_from_slice(&head);
        link.upgrade(&mut context.statistics);
        Ok(Some(WebSocketId { slot: link.slot(), exchange: index, serial }))
    }

    /// Takes a message. Also returns true if the connection has to be driven: there is room for more messages, or the
    /// client must be informed of the rule that it broke after the last message.
    pub(crate) fn receive(&mut self, id: WebSocketId, context: &EngineContext<A>) -> (Incoming<A::Message>, bool) {
        let is_link_open = self.link.lifecycle.is_open();
        let Some(config) = &context.config.websocket else { return (Incoming::Pending, false) };
        let Some(websocket) = self.named(id) else {
            return (Incoming::End(WebSocketEnd::abnormal()), false);
        };
        let (had_room, was_open) = (websocket.wants_input(config), websocket.is_open());
        let incoming = websocket.take();
        let (has_room, is_open) = (websocket.wants_input(config), websocket.is_open());
        if matches!(incoming, Incoming::Pending) && !is_link_open {
            // No more messages arrive, whatever has ended the WebSocket.
            return (Incoming::End(WebSocketEnd::abnormal()), false);
        }
        (incoming, !had_room && has_room || was_open && !is_open)
    }

    /// Writes a message. The connection has to be driven then.
    pub(crate) fn send(
        &mut self,
        id: WebSocketId,
        message: MessageOut<'_, A::Chunk>,
        context: &mut EngineContext<A>,
    ) -> Result<(), SendError> {
        if !self.link.lifecycle.is_open() {
            return Err(SendError::Closed);
        }
        let waiting = self.link.sending.waiting_bytes();
        let Some(websocket) = self.exchange.websocket().filter(|websocket| websocket.serial == id.serial) else {
            return Err(SendError::Closed);
        };
        let composer = self.link.sending.out(&mut context.scratch);
        let backlog = waiting + composer.unsent();
        let compression = &mut context.websockets.compression;
        let sent = match message {
            MessageOut::One(message) => websocket.send(message, compression, backlog, &mut composer.bytes),
            MessageOut::Binary(bytes) => {
                let message = Outgoing::Binary(bytes.as_ref());
                match websocket.send_head(message, backlog, &mut composer.bytes) {
                    Ok(true) => {
                        // The payload is sent without copying it.
                        let length = bytes.as_ref().len();
                        composer.push(bytes, length);
                        Ok(())
                    }
                    Ok(false) => websocket.send(message, compression, backlog, &mut composer.bytes),
                    Err(error) => Err(error),
                }
            }
            MessageOut::Prepared(message) => {
                websocket.send_prepared(message, compression, backlog, &mut composer.bytes)
            }
        };
        context.statistics.messages_out += u64::from(sent.is_ok());
        self.link.sending.store(&mut context.scratch);
        sent
    }

    /// Returns whether the client takes more, after a message was sent.
    pub(crate) fn room(&self) -> Room {
        WebSocket::<A::Message>::room(self.link.sending.backlog())
    }

    /// Begins the closing handshake. The connection has to be driven then.
    pub(crate) fn close(&mut self, id: WebSocketId, code: CloseCode, reason: &str, context: &mut EngineContext<A>) {
        if self.link.lifecycle.is_open() && self.named(id).is_some() {
            write_close(self.exchange, self.link, (code, reason, true), context);
        }
    }

    /// Fails a WebSocket whose call does not come to its end. Returns true if the exchange was a WebSocket; the
    /// connection has to be driven then.
    pub(crate) fn fail(&mut self, context: &mut EngineContext<A>) -> bool {
        let is_open = self.exchange.has_websocket() && self.exchange.is_running();
        if is_open {
            write_close(self.exchange, self.link, (CloseCode::INTERNAL_ERROR, "", true), context);
        }
        is_open
    }

    /// Returns the reason why no message follows, and the number of bytes of messages that have been sent.
    pub(crate) fn state(&mut self, id: WebSocketId) -> (Option<WebSocketEnd>, u64) {
        let is_open = self.link.lifecycle.is_open();
        match self.named(id) {
            Some(websocket) => {
                let end = websocket.end().cloned();
                (end.or_else(|| (!is_open).then(WebSocketEnd::abnormal)), websocket.sent_bytes)
            }
            None => (Some(WebSocketEnd::abnormal()), 0),
        }
    }

    /// Has `waiter` woken when one of the `awaited` conditions holds for a WebSocket, or it has gone. `waiter` replaces
    /// the previous waiter.
    pub(crate) fn wait(&mut self, id: WebSocketId, awaited: Awaited, waiter: A::Waiter, app: &mut A) {
        let is_named = self.named(id).is_some();
        if !is_named || has_awaited(self.exchange, awaited, self.link).unwrap_or(true) {
            return app.wake(waiter);
        }
        self.exchange.wait(awaited, waiter);
    }
}

/// Returns true if one of the awaited conditions holds; `None`: the exchange is no WebSocket.
pub(super) fn has_awaited<A: App>(exchange: &Exchange<A>, awaited: Awaited, link: &Link<A>) -> Option<bool> {
    let Some(Upgrade::Open(websocket)) = exchange.upgrade.as_deref() else { return None };
    let is_over = !link.lifecycle.is_open();
    Some(
        is_over
            || awaited.has(Awaited::INPUT) && websocket.has_something()
            || awaited.has(Awaited::OUTPUT) && websocket.has_room(link.sending.backlog())
            || awaited.has(Awaited::DEPARTURE) && !websocket.is_open(),
    )
}

/// Writes a Close frame, with its code and reason. `is_own`: the application has closed the WebSocket.
pub(super) fn write_close<A: App>(
    exchange: &mut Exchange<A>,
    link: &mut Link<A>,
    (code, reason, is_own): (CloseCode, &str, bool),
    context: &mut EngineContext<A>,
) {
    let out = link.out(&mut context.scratch);
    if let Some(websocket) = exchange.websocket() {
        websocket.close(code, reason, is_own, &mut out.bytes);
    }
}
