//! Exchanges that have become WebSockets (RFC 8441): the bodies of the request and of the response are frames.
//!
//! The client's bytes wait in the exchange's [`Incoming`](crate::exchange::Incoming) until there is room for their
//! messages; the window of the stream bounds them. Frames to the client are the exchange's backlog.

use super::Multiplexed;
use crate::app::App;
use crate::config::{Config, READ_AHEAD};
use crate::connection::link::Link;
use crate::connection::pausing::resume;
use crate::connection::step::NextAction;
use crate::connection::websocket::WebSocketOf;
use crate::context::{EngineContext, Time};
use crate::deadline::{Millis, Wait};
use crate::exchange::{Backlog, Exchange, Index, Until};
use crate::observe::{Observer, Stage};

impl<A: App> Multiplexed<A> {
    /// Returns true if the exchange at `index` is an open WebSocket.
    pub(super) fn is_websocket(&self, index: Index) -> bool {
        self.exchanges.get(index).is_some_and(Exchange::has_websocket)
    }

    /// Returns the WebSocket of the exchange at `index`. Its frames are the data of a stream.
    pub(in crate::connection) fn websocket_of<'c>(
        &'c mut self,
        index: Index,
        link: &'c mut Link<A>,
    ) -> WebSocketOf<'c, A> {
        WebSocketOf { exchange: self.exchanges.at(index), link, protocol: Some(&mut self.protocol) }
    }

    /// Continues a WebSocket: sends answers and output, wakes the application, then handles input. Returns the next
    /// action; `Again` if the turn has ended.
    pub(super) fn go_on_with_websocket(
        &mut self,
        index: Index,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Option<NextAction<A>> {
        let mut taken = 0;
        loop {
            let mut websocket = self.websocket_of(index, link);
            websocket.end_if_due(context);
            websocket.write_answers(context);
            let used = self.take_stream_frames(index, link, context, app);
            taken += used;
            if used == 0 || context.meter.is_turn_over() {
                break;
            }
        }
        self.end_with_input(index);
        self.websocket_of(index, link).write_answers(context);
        self.websocket_of(index, link).wake(app);
        if self.exchanges.at(index).websocket().is_some_and(|websocket| websocket.is_over()) {
            // No frame follows the waiting ones.
            Backlog::of(&mut self.exchanges.at(index).backlog).finish();
        }
        self.pump(index, link, context);
        if !self.is_websocket(index) {
            return None;
        }
        let backlog = self.websocket_of(index, link).backlog();
        let exchange = self.exchanges.at(index);
        let websocket = exchange.websocket()?;
        let (has_something, has_room) = (websocket.has_something(), websocket.has_room(backlog));
        match exchange.state.until() {
            Some(Until::Turn) => {
                exchange.state.wait_until(Until::Output);
                Some(NextAction::Again)
            }
            Some(Until::Output) if has_room => Some(resume(exchange, link.call(index), context)),
            Some(Until::Message) if has_something => {
                exchange.state.wait_until(Until::Thread);
                context.load.queued += 1;
                // A message counts as a call.
                link.count_call();
                context.observer.switch(link.call(index), Stage::Queue);
                Some(NextAction::Enqueue(index))
            }
            _ if taken > 0 && context.meter.is_turn_over() => Some(NextAction::Again),
            _ => None,
        }
    }

    /// Takes the messages that have arrived, as far as there is room for them, and lets the client send as many bytes
    /// again. Returns the number of bytes taken.
    fn take_stream_frames(
        &mut self,
        index: Index,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> usize {
        let exchange = self.exchanges.at(index);
        let (Some(config), stream) = (&context.config.websocket, exchange.stream) else { return 0 };
        if !exchange.websocket().is_some_and(|websocket| websocket.wants_input(config)) {
            return 0;
        }
        let Some(incoming) = &mut exchange.incoming else { return 0 };
        let mut bytes = std::mem::take(&mut context.scratch.chunks);
        bytes.clear();
        incoming.copy(READ_AHEAD, &mut bytes);
        let has_arrived = !bytes.is_empty();
        let used = if has_arrived { self.websocket_of(index, link).take_frames(&mut bytes, context, app) } else { 0 };
        context.scratch.chunks = bytes;
        if let Some(incoming) = &mut self.exchanges.at(index).incoming {
            incoming.advance(used);
        }
        self.grant(stream, used, link, context);
        used
    }

    /// Ends a WebSocket if its client has ended its side of the stream and all its bytes have been read.
    fn end_with_input(&mut self, index: Index) {
        let exchange = self.exchanges.at(index);
        let has_ended = exchange.incoming.as_ref().is_none_or(|incoming| incoming.is_over());
        if has_ended && !exchange.websocket().is_some_and(|websocket| websocket.is_over()) {
            exchange.lose_websocket();
        }
    }

    /// Records that the call of a WebSocket has ended. Returns true if the exchange was a WebSocket; the caller then
    /// has to drive the connection.
    pub(super) fn release_websocket(&mut self, index: Index) -> bool {
        let exchange = self.exchanges.at(index);
        let Some(websocket) = exchange.websocket() else { return false };
        websocket.release();
        exchange.in_flight = None;
        exchange.state.written();
        true
    }

    /// Removes the exchange at `index`, which may be a WebSocket.
    pub(super) fn remove(&mut self, index: Index, context: &mut EngineContext<A>) {
        context.statistics.websockets -= u64::from(self.is_websocket(index));
        self.exchanges.remove(index);
    }

    /// Sets the deadline of the WebSocket of the exchange at `index`. Its client must have read all output.
    pub(super) fn set_websocket_deadline(&mut self, index: Index, config: &Config, time: &mut Time) {
        let exchange = self.exchanges.at(index);
        let is_detached = exchange.is_detached();
        let Some(websocket) = exchange.websocket() else { return };
        let deadline = websocket.deadline(config, time.now);
        exchange.timer.turn_to(Wait::WebSocket, time.now);
        exchange.timer.deadline = if is_detached { Millis::MAX } else { deadline };
        time.sweep.note(exchange.timer.deadline);
    }
}
