//! The session after its exchange has become a WebSocket: the bytes of the connection are frames.
//!
//! Unlike with HTTP, the engine reads the connection while output waits for the client, because a client may send all
//! its messages before it reads. The queue of messages bounds the input: while the queue is full, the engine does not
//! read.

use super::Serial;
use crate::app::App;
use crate::connection::lifecycle::Closing;
use crate::connection::link::Link;
use crate::connection::pausing::resume;
use crate::connection::step::{NextAction, Step};
use crate::connection::websocket::write_close;
use crate::context::EngineContext;
use crate::exchange::{Awaited, Until};
use crate::observe::{Observer, Stage};
use crate::transport::{Received, Transport};
use crate::websocket::{Overdue, Upgrade};
use wire::websocket::CloseCode;

impl<A: App> Serial<A> {
    /// Returns true if the connection carries frames of a WebSocket.
    #[inline]
    pub(super) fn is_websocket(&self, link: &Link<A>) -> bool {
        self.exchange.has_websocket() && link.lifecycle.is_open()
    }

    /// Does one step of a WebSocket: answers, output, waking the application, then input.
    pub(super) fn step_websocket(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        app: &mut A,
    ) -> Step<A> {
        self.end_if_due(link, context);
        self.write_answers(link, context);
        if !link.flush(false, context) {
            return Step::Abort;
        }
        let (has_output, backlog) = (link.has_output(), link.sending.backlog());
        let Some(config) = &context.config.websocket else { return Step::Stop(NextAction::Close) };
        let Some(websocket) = self.exchange.websocket() else { return Step::Stop(NextAction::Wait) };
        let (is_open, is_over, wants_input) = (websocket.is_open(), websocket.is_over(), websocket.wants_input(config));
        let (has_something, has_room) = (websocket.has_something(), websocket.has_room(backlog));
        if has_something {
            let awaited = if is_open { Awaited::INPUT } else { Awaited::INPUT.or(Awaited::DEPARTURE) };
            self.exchange.wake(awaited, app);
        }
        if has_room {
            self.exchange.wake(Awaited::OUTPUT, app);
        }
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
                // A message is work like a request: after a number of them in a round, other connections are driven
                // first.
                link.count_call();
                context.observer.switch(link.call(0), Stage::Queue);
                return Step::Stop(NextAction::Enqueue(0));
            }
            // The application has still to be informed of the end.
            Some(Until::Thread) if is_over => return Step::Stop(NextAction::Wait),
            Some(Until::Output | Until::Message | Until::Thread) | None => {}
        }
        if is_over && (!has_output || link.input.has_ended()) {
            // The server closes the transport, not the client (RFC 6455 section 7.1.1).
            link.lifecycle.close(Closing::Linger);
            return Step::Next;
        }
        if is_over || !wants_input {
            return Step::Stop(NextAction::Wait);
        }
        if link.input.has_unseen() {
            let mut input = link.input.take();
            let used = self.take_frames(input.unused_mut(), link, context, app);
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
                let used = self.take_frames(&mut buffer[..count], link, context, app);
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

    /// Takes the messages in `bytes`, as far as there is room for them. Returns the number of bytes taken.
    fn take_frames(
        &mut self,
        bytes: &mut [u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> usize {
        let backlog = link.sending.waiting_bytes();
        let EngineContext { config, websockets, time, meter, statistics, scratch, .. } = &mut *context;
        let out = &mut link.out(scratch).bytes;
        let (mut used, mut is_overloaded) = (0, false);
        if let (Some(config), Some(Upgrade::Open(websocket))) =
            (&config.websocket, self.exchange.upgrade.as_deref_mut())
        {
            let compression = &mut websockets.compression;
            (used, is_overloaded) =
                websocket.receive(bytes, (time.now, config), compression, (backlog, out), meter, |kind, bytes| {
                    statistics.messages_in += 1;
                    app.message(kind, bytes)
                });
        }
        if is_overloaded {
            context.report_overload(app);
        }
        used
    }

    /// Closes the WebSocket if the server ends, or if the call is over and has not closed it.
    fn end_if_due(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let end = context.websockets.end;
        let Some(websocket) = self.exchange.websocket().filter(|websocket| websocket.is_open()) else { return };
        if websocket.is_released() {
            write_close(&mut self.exchange, link, (CloseCode::NORMAL, "", true), context);
        } else if let Some(code) = end {
            write_close(&mut self.exchange, link, (code, "", false), context);
        }
    }

    /// Writes pongs and the answer to a Close frame.
    fn write_answers(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let Some(websocket) = self.exchange.websocket().filter(|websocket| websocket.owes_answer()) else { return };
        let backlog = link.sending.backlog();
        websocket.write_answers(backlog, &mut link.out(&mut context.scratch).bytes);
    }

    /// Handles the missed deadline of a wait of the WebSocket. The connection has to be driven then.
    pub(super) fn expire_websocket(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let (now, config) = (context.time.now, &context.config);
        let out = &mut link.out(&mut context.scratch).bytes;
        let overdue = self.exchange.websocket().map(|websocket| websocket.expire(now, config, out));
        context.statistics.timeouts += u64::from(overdue == Some(Overdue::Ended));
    }

    /// Closes the WebSocket because the application's call for a message has missed its deadline. Returns the bytes of
    /// messages that were sent; `None`: it is no WebSocket. The client's messages are kept, because dropping them needs
    /// the application.
    pub(super) fn expire_message(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) -> Option<u64> {
        self.exchange.websocket()?;
        let reason = "the application did not answer in time";
        write_close(&mut self.exchange, link, (CloseCode::INTERNAL_ERROR, reason, true), context);
        self.exchange.websocket().map(|websocket| websocket.sent_bytes)
    }

    /// Records that the call of a WebSocket is over. Returns true if the exchange was a WebSocket; the connection has
    /// to be driven then.
    pub(super) fn release_websocket(&mut self) -> bool {
        let Some(websocket) = self.exchange.websocket() else { return false };
        websocket.release();
        self.exchange.in_flight = None;
        self.exchange.state.written();
        true
    }
}
