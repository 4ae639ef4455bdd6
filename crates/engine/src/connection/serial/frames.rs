//! The serial session after its exchange has become a WebSocket: the bytes of the connection are frames.
//!
//! Unlike with HTTP, the engine reads from the connection while output waits for the client, because a client may send
//! all its messages before it reads. The queue of messages bounds the input: while the queue is full, the engine does
//! not read.

use super::Serial;
use crate::app::App;
use crate::connection::lifecycle::Closing;
use crate::connection::link::Link;
use crate::connection::pausing::resume;
use crate::connection::step::{NextAction, Step};
use crate::connection::websocket::WebSocketOf;
use crate::context::EngineContext;
use crate::exchange::Until;
use crate::observe::{Observer, Stage};
use crate::transport::{Received, Transport};

impl<A: App> Serial<A> {
    /// Returns true if the bytes of the connection are frames of a WebSocket.
    #[inline]
    pub(super) fn is_websocket(&self, link: &Link<A>) -> bool {
        self.exchange.has_websocket() && link.lifecycle.is_open()
    }

    /// Runs one step of a WebSocket: sends answers and output, wakes the application, then handles input.
    pub(super) fn step_websocket(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        app: &mut A,
    ) -> Step<A> {
        let mut websocket = self.websocket_of(link);
        websocket.end_if_due(context);
        websocket.write_answers(context);
        if !link.flush(context) {
            return Step::Abort;
        }
        let (has_output, backlog) = (link.has_output(), link.sending.backlog());
        let Some(config) = &context.config.websocket else { return Step::Stop(NextAction::Close) };
        let Some(websocket) = self.exchange.websocket() else { return Step::Stop(NextAction::Wait) };
        let (is_over, wants_input) = (websocket.is_over(), websocket.wants_input(config));
        let (has_something, has_room) = (websocket.has_something(), websocket.has_room(backlog));
        self.websocket_of(link).wake(app);
        match self.exchange.state.until() {
            Some(Until::Turn) => {
                self.exchange.state.wait_until(Until::Output);
                return Step::Stop(NextAction::Again);
            }
            Some(Until::Output) if has_room => {
                return Step::Stop(resume(&mut self.exchange, link.call(0), context));
            }
            Some(Until::Message) if has_something => {
                self.exchange.state.wait_until(Until::Thread);
                context.load.queued += 1;
                // A message counts as a call: after a number of calls in a round, other connections are driven first.
                link.count_call();
                context.observer.switch(link.call(0), Stage::Queue);
                return Step::Stop(NextAction::Enqueue(0));
            }
            // The application still has to learn that the WebSocket has ended.
            Some(Until::Thread) if is_over => return Step::Stop(NextAction::Wait),
            Some(Until::Output | Until::Message | Until::Thread) | None => {}
        }
        if is_over && (!has_output || link.input.has_ended()) {
            // The server closes the transport before the client does (RFC 6455 section 7.1.1).
            link.lifecycle.close(Closing::Linger);
            return Step::Next;
        }
        if is_over || !wants_input {
            return Step::Stop(NextAction::Wait);
        }
        if link.input.has_unseen() {
            let mut input = link.input.take();
            let used = self.websocket_of(link).take_frames(input.unused_mut(), context, app);
            // Frames for which there is no room stay in the input: a client may have sent many messages at once.
            link.input.keep(input, used);
            return Step::Next;
        }
        if !link.input.is_readable() {
            return Step::Stop(NextAction::Wait);
        }
        self.receive_frames(link, context, buffer, app)
    }

    fn receive_frames(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        app: &mut A,
    ) -> Step<A> {
        match link.receive(buffer, || None, context) {
            Ok(Received::Bytes { count, .. }) => {
                let used = self.websocket_of(link).take_frames(&mut buffer[..count], context, app);
                link.input.keep_unseen(&buffer[used..count]);
                Step::Next
            }
            Ok(Received::WouldBlock) if link.transport.has_unsent() => Step::Next,
            Ok(Received::WouldBlock) => Step::Stop(NextAction::Wait),
            Ok(Received::End) => {
                self.exchange.lose_websocket();
                Step::Next
            }
            Err(_) => Step::Abort,
        }
    }

    /// Returns the WebSocket of the exchange. Its frames are the bytes of the link.
    pub(in crate::connection) fn websocket_of<'c>(&'c mut self, link: &'c mut Link<A>) -> WebSocketOf<'c, A> {
        WebSocketOf { exchange: &mut self.exchange, link, protocol: None }
    }

    /// Records that the call of a WebSocket has ended. Returns true if the exchange was a WebSocket; the caller then
    /// has to drive the connection.
    pub(super) fn release_websocket(&mut self) -> bool {
        let Some(websocket) = self.exchange.websocket() else { return false };
        websocket.release();
        self.exchange.in_flight = None;
        self.exchange.state.written();
        true
    }
}
