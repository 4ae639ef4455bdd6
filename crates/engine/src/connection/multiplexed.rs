//! The methods for connections whose protocol has many exchanges at a time.
//!
//! Each exchange has a window for its response ([`Protocol::window`]): output that its client does not take yet is the
//! exchange's backlog, and does not delay other exchanges. The engine reads the connection all the time, because that
//! is how clients say that they take more. The memory that this may need is bounded by the number of exchanges
//! ([`Config::exchanges`]) and by the window of each request's body.
//!
//! [`Config::exchanges`]: crate::Config::exchanges

use super::front::client;
use super::{BUSY, Closing, Connection, Expired, History, Lifecycle, NextAction, known};
use crate::app::{App, Refusal, RequestOf};
use crate::config::WRITE_BUFFER;
use crate::context::EngineContext;
use crate::exchange::{Awaited, Cause, Exchange, Index, State, Until};
use crate::health::Health;
use crate::observe::Observer;
use crate::protocol::{Event, Protocol, Reset, ResponseSender, StreamId};
use crate::reply;
use crate::transport::Transport;
use wire::message::{Fault, Page};

/// An event that is not a head.
#[derive(Clone, Copy)]
pub(super) enum Other<'i> {
    Nothing,
    Data { stream: StreamId, bytes: &'i [u8], is_last: bool },
    End { stream: StreamId },
    Reset { stream: StreamId },
    Credit { stream: StreamId },
    Broken { stream: StreamId, fault: Fault },
}

impl<A: App> Connection<A> {
    /// Returns the part of an event that does not borrow from the state of the protocol.
    pub(super) fn owned<'i>(event: Event<'_, 'i, RequestOf<A>>) -> Other<'i> {
        match event {
            Event::Data { stream, bytes, is_last } => Other::Data { stream, bytes, is_last },
            Event::End { stream } => Other::End { stream },
            Event::Reset { stream } => Other::Reset { stream },
            Event::Credit { stream } => Other::Credit { stream },
            Event::Broken { stream, fault } => Other::Broken { stream, fault },
            Event::More | Event::Nothing | Event::Head { .. } => Other::Nothing,
        }
    }

    /// Returns true if another exchange may begin.
    pub(super) fn has_room(&self, context: &EngineContext<A>) -> bool {
        let is_told = self.has_announced_end && self.protocol.announces_end();
        self.exchanges.len() < context.config.exchanges && !context.is_full && !is_told
    }

    /// Returns true if there is work beside the only exchange, whose call is running, before the poller reports an
    /// event: input that may hold other requests, other exchanges, or answers of the protocol.
    pub(crate) fn has_more_beside(&self) -> bool {
        let has_input = self.input.has_unseen() || self.input.is_readable();
        has_input || self.exchanges.len() != 1 || self.protocol.has_control()
    }

    /// Returns true if the poller need not report the connection before the only exchange, whose call is running, is
    /// answered: the connection ends with it, and no further input matters. The connection is then like a short-lived
    /// one of a serial protocol. A wait for the client to leave, or to take output, has the poller watch it all the
    /// same.
    pub(crate) fn ends_with_call(&self) -> bool {
        self.protocol.has_read_all() && !self.has_more_beside()
    }

    /// Begins the end of an open connection: tells the client that no further exchange is begun, if the protocol can do
    /// so. Otherwise the protocol ends the connection after the next exchange ([`Protocol::is_ending`]).
    pub(super) fn announce_end(&mut self, context: &mut EngineContext<A>) {
        if !std::mem::replace(&mut self.has_announced_end, true) {
            self.write(context, |protocol, out| protocol.drain(out));
        }
    }

    /// Returns true if a connection whose client cannot be told of its end is to end now: no exchange is under way, and
    /// none is to follow.
    pub(super) fn is_to_end(&self) -> bool {
        self.is_multiplexed() && self.is_between_exchanges() && self.may_end()
    }

    /// Returns true if requests may have arrived that must be answered before the last response is sent, because the
    /// connection ends with that response.
    pub(super) fn must_look_before_end(&self) -> bool {
        let may_have_arrived = self.input.is_readable() && !self.has_output();
        may_have_arrived && self.is_between_exchanges() && self.protocol.is_ending(false)
    }

    /// Returns true if the protocol wants the connection to end once no exchange is under way and all input is read.
    pub(super) fn may_end(&self) -> bool {
        self.protocol.is_ending(self.input.is_readable() || self.input.has_unseen())
    }

    /// Returns true if the connection is not read, because a call has still to read a full buffer of its request's
    /// body, and the protocol has no windows to hold back this body alone.
    pub(super) fn is_held_up(&self, context: &EngineContext<A>) -> bool {
        let is_full = |exchange: &Exchange<A>| exchange.incoming.as_ref().is_some_and(|incoming| incoming.is_full());
        !context.config.buffer_bodies && !self.protocol.has_windows() && self.exchanges.any(is_full)
    }

    /// Handles an event. Returns a request that has become ready.
    pub(super) fn follow(
        &mut self,
        event: Other<'_>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Option<(Index, A::Request)> {
        match event {
            Other::Nothing => {}
            Other::Data { stream, bytes, is_last } => return self.take_data(stream, bytes, is_last, context, app),
            Other::End { stream } => return self.take_data(stream, &[], true, context, app),
            Other::Reset { stream } => {
                if let Some(index) = self.exchanges.find(stream) {
                    self.protocol.forget_stream(stream);
                    context.observer.give_up(self.call(index));
                    self.release_exchange(index, true, context, app);
                }
            }
            Other::Credit { stream } => {
                if let Some(index) = self.exchanges.find(stream) {
                    self.pump(index, context);
                }
            }
            Other::Broken { stream, fault } => {
                let Some(index) = self.exchanges.find(stream) else {
                    // Its head cannot be read: it never becomes a request.
                    app.refused(fault.into(), None, client(self.front.as_deref()), known(&mut self.app));
                    let index = self.exchanges.insert(stream, context.now);
                    let facts = self.protocol.unread_request();
                    self.refuse_exchange(index, fault.into(), facts, context);
                    return None;
                };
                if self.exchanges.at(index).is_out() {
                    self.break_body(index, fault.into(), app);
                } else {
                    self.refuse_request(index, fault.into(), context, app);
                }
            }
        }
        None
    }

    /// Takes a part of a request's body, and its end with the last one.
    fn take_data(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        is_last: bool,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Option<(Index, A::Request)> {
        let Some(index) = self.exchanges.find(stream) else {
            // The bytes were on their way when their exchange ended.
            self.grant(stream, bytes.len(), context);
            return None;
        };
        context.meter.charge(crate::meter::CHUNK);
        let exchange = self.exchanges.at(index);
        if let Some(incoming) = &mut exchange.incoming {
            if !bytes.is_empty() {
                incoming.push(bytes, false);
            }
            if is_last {
                incoming.finish();
            }
            exchange.wake(Awaited::INPUT, app);
            return None;
        }
        if !exchange.is_receiving() {
            self.grant(stream, bytes.len(), context);
            return None;
        }
        if let Err(error) = self.keep(index, bytes, context) {
            self.spool_failed(index, error, context, app);
            return None;
        }
        self.grant(stream, bytes.len(), context);
        if is_last { self.body_ended(index, context, app) } else { None }
    }

    /// Allows the client to send `bytes` more bytes of a body.
    pub(super) fn grant(&mut self, stream: StreamId, bytes: usize, context: &mut EngineContext<A>) {
        if bytes > 0 {
            self.write(context, |protocol, out| protocol.consumed(stream, bytes, out));
        }
    }

    fn reset(&mut self, stream: StreamId, reset: Reset, context: &mut EngineContext<A>) {
        self.write(context, |protocol, out| protocol.reset(stream, reset, out));
    }

    /// Has the protocol append its output to the composed bytes.
    pub(super) fn write<R>(
        &mut self,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut A::Protocol, &mut Vec<u8>) -> R,
    ) -> R {
        self.out(context);
        let out = self.send.composer.get_or_insert_with(|| context.composer());
        write(&mut self.protocol, &mut out.bytes)
    }

    /// Continues all exchanges of an open connection that has nothing to send. Returns the resulting action, unless
    /// there may be input to be served.
    pub(super) fn go_on_with_all(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<NextAction<A>> {
        // The engine answers the first request of a new connection even while it drains.
        let may_announce = self.history != History::New || !self.protocol.announces_end();
        if context.is_draining() && may_announce {
            self.announce_end(context);
        }
        let mut has_yielded = false;
        for index in self.exchanges.indices() {
            self.pump(index, context);
            let Some(exchange) = self.exchanges.get(index) else { continue };
            if exchange.is_free() || exchange.has_backlog() {
                continue;
            }
            let exchange = self.exchanges.at(index);
            match &mut exchange.state {
                // A call whose response was cut meanwhile, because a file was too short, also waits in vain.
                State::Running(_) | State::Detached(_) => {
                    exchange.wake(Awaited::OUTPUT, app);
                    self.look_for_departure(index, app);
                }
                State::Suspended(suspended) => {
                    if std::mem::replace(&mut suspended.until, Until::Output) == Until::Turn {
                        has_yielded = true;
                        continue;
                    }
                    return Some(self.resume(index, context));
                }
                _ => {}
            }
        }
        if self.exchanges.is_empty() {
            let is_announced = self.has_announced_end && self.protocol.announces_end() && self.input.is_empty();
            let is_ending = self.may_end();
            if is_announced || is_ending {
                let may_be_sending = !is_ending || self.protocol.is_unread();
                self.lifecycle = Lifecycle::Closing(if may_be_sending { Closing::Linger } else { Closing::Orderly });
                // The end follows in this turn: until then the client may consider the connection persistent.
                return None;
            }
        } else if self.is_held_up(context) {
            return Some(if has_yielded { NextAction::Again } else { NextAction::Wait });
        }
        has_yielded.then_some(NextAction::Again)
    }

    /// Frames the part of the waiting output that the client of an exchange takes now.
    pub(super) fn pump(&mut self, index: Index, context: &mut EngineContext<A>) {
        if self.has_output() || self.send.composer.as_ref().is_some_and(|out| out.is_full()) {
            return;
        }
        let exchange = self.exchanges.at(index);
        let stream = exchange.stream;
        let Some(mut backlog) = exchange.backlog.take() else { return };
        let mut scratch = std::mem::take(&mut context.chunks);
        let pumped =
            self.write(context, |protocol, out| backlog.pump(protocol, stream, WRITE_BUFFER, &mut scratch, out));
        context.chunks = scratch;
        let is_complete = backlog.is_complete();
        let exchange = self.exchanges.at(index);
        exchange.backlog = Some(backlog);
        if pumped.is_err() {
            context.statistics.cut += 1;
            self.cut_exchange(index, context);
        } else if is_complete && matches!(exchange.state, State::Finishing(_)) {
            self.end_exchange(index);
        } else if is_complete {
            // The call of the exchange, which was late, is still running.
            self.write(context, |protocol, out| protocol.stay(out));
        }
    }

    /// Completes an exchange after the application has written the whole response.
    pub(super) fn complete_exchange(
        &mut self,
        index: Index,
        is_body_left: bool,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
    ) {
        let exchange = self.exchanges.at(index);
        exchange.body_memory = None;
        exchange.in_flight = None;
        exchange.state = State::Finishing(facts);
        if is_body_left {
            let stream = exchange.stream;
            self.reset(stream, Reset::Complete, context);
        }
        if self.exchanges.at(index).backlog.as_ref().is_none_or(|backlog| backlog.is_complete()) {
            self.end_exchange(index);
        }
    }

    /// Ends an exchange that is complete on both sides.
    fn end_exchange(&mut self, index: Index) {
        let stream = self.exchanges.at(index).stream;
        self.protocol.forget_stream(stream);
        self.exchanges.remove(index);
        if self.has_announced_end && self.exchanges.is_empty() && !self.protocol.announces_end() {
            // This may have been the last exchange: the transport is read again for input that arrived since the last
            // poll.
            self.input.note_readable();
        }
    }

    /// Ends the exchange of a call that has returned after its client got its answer, or has gone.
    pub(super) fn end_detached(&mut self, index: Index) {
        let exchange = self.exchanges.at(index);
        let is_sent = exchange.backlog.as_ref().is_none_or(|backlog| backlog.is_complete());
        match exchange.facts() {
            Some(facts) if !is_sent && exchange.is_expired() && self.lifecycle == Lifecycle::Open => {
                exchange.incoming = None;
                exchange.body_memory = None;
                exchange.in_flight = None;
                exchange.state = State::Finishing(facts);
            }
            _ => self.end_exchange(index),
        }
    }

    /// Breaks off a response, and tells its client. The other exchanges continue. A running call continues without a
    /// client.
    pub(super) fn cut_exchange(&mut self, index: Index, context: &mut EngineContext<A>) {
        let exchange = self.exchanges.at(index);
        let stream = exchange.stream;
        exchange.backlog = None;
        if exchange.is_out() {
            exchange.detach(Cause::Left);
        } else {
            // A file can turn out to be too short while its response is suspended.
            if let State::Suspended(suspended) = std::mem::replace(&mut exchange.state, State::Free) {
                context.statistics.suspended -= 1;
                context.abandoned.push(suspended.response);
            }
            self.exchanges.remove(index);
        }
        self.reset(stream, Reset::Cut, context);
    }

    /// Gives up an exchange whose client has taken nothing for too long.
    pub(super) fn abandon_exchange(&mut self, index: Index, context: &mut EngineContext<A>, app: &mut A) {
        let stream = self.exchanges.at(index).stream;
        context.statistics.cut += 1;
        context.observer.give_up(self.call(index));
        self.exchanges.at(index).backlog = None;
        self.release_exchange(index, true, context, app);
        self.reset(stream, Reset::Cut, context);
    }

    /// Answers a request that the application will not see with a page, on the request's own exchange, which is free.
    pub(super) fn refuse_exchange(
        &mut self,
        index: Index,
        refusal: Refusal,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
    ) {
        context.statistics.refused += 1;
        self.answer_exchange(index, refusal, facts, context);
        self.exchanges.at(index).state = State::Finishing(facts);
        self.pump(index, context);
    }

    /// Writes the page of a refusal as the response of an exchange. Returns the length of its body.
    fn answer_exchange(
        &mut self,
        index: Index,
        refusal: Refusal,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
    ) -> u64 {
        context.statistics.count_status(refusal.status);
        let text = Page::text(refusal.status, refusal.explanation());
        let page = Page::error(refusal.status, &text, context.retry_after(refusal));
        let stream = self.exchanges.at(index).stream;
        let mut backlog = None;
        let mut head = std::mem::take(&mut context.chunks);
        head.clear();
        let (protocol, stamp) = (&mut self.protocol, &context.stamp);
        let sender = reply::write_page::<_, A::Chunk>(protocol, stream, &page, facts, stamp, &mut head, &mut backlog);
        self.out(context).bytes.extend_from_slice(&head);
        context.chunks = head;
        self.exchanges.at(index).backlog = backlog;
        sender.body_bytes()
    }

    /// Answers the client of a call that has missed its deadline; its exchange is detached.
    pub(super) fn expire_exchange(
        &mut self,
        index: Index,
        refusal: Refusal,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
    ) -> Expired {
        let exchange = self.exchanges.at(index);
        let expired = match &mut exchange.in_flight {
            None => {
                let body_bytes = self.answer_exchange(index, refusal, facts, context);
                Expired::Answered { body_bytes }
            }
            Some(in_flight) => {
                in_flight.count_status(&mut context.statistics);
                if in_flight.sender.is_whole() {
                    Expired::Whole
                } else {
                    let body_bytes = in_flight.sender.body_bytes();
                    let stream = exchange.stream;
                    context.statistics.cut += 1;
                    // The waiting output belongs to the application: it is dropped when the call returns.
                    if let Some(backlog) = &mut exchange.backlog {
                        backlog.stop();
                    }
                    self.reset(stream, Reset::Cut, context);
                    Expired::Cut { body_bytes }
                }
            }
        };
        // Output that waits is sent first: a frame must not get into the middle of another one.
        if !self.has_output() {
            self.send_composed(&mut context.statistics);
        }
        self.set_deadlines(context);
        expired
    }

    /// Refuses all waiting requests, while no thread polls the engine. Returns true if the connection has to be driven.
    ///
    /// If no exchange is under way, requests that have not been read are refused too. Otherwise they stay unread,
    /// because the input after them may concern running calls, and so the application.
    pub(super) fn refuse_waiting_exchanges(
        &mut self,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        orphans: &mut Vec<(A::Request, Refusal)>,
    ) -> bool {
        let before = orphans.len();
        let is_between_exchanges = self.is_between_exchanges();
        for index in self.exchanges.indices() {
            if let Some((request, facts)) = self.take_request(index, context) {
                orphans.push((request, BUSY));
                self.refuse_exchange(index, BUSY, facts, context);
            }
        }
        let has_read = is_between_exchanges && self.refuse_unread_exchanges(context, buffer);
        self.send_composed(&mut context.statistics);
        self.set_deadlines(context);
        has_read || orphans.len() > before
    }

    /// Refuses the requests that have arrived on a connection without any under way. Returns true if input was read.
    fn refuse_unread_exchanges(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8]) -> bool {
        self.receive_unread(context, buffer);
        if self.input.is_empty() {
            return false;
        }
        if self.awaits_proxy_header() && !matches!(self.take_stored_proxy_header(context), Ok(true)) {
            return true;
        }
        // The thread that polls the engine next finds out what is wrong with the rest.
        while let Ok((count @ 1.., event)) =
            self.protocol.next(&self.input.bytes[self.input.used..], &mut context.fields, &context.config.limits)
        {
            self.input.used += count;
            // All exchanges here are refused ones: they hold no values of the application.
            match event {
                Event::Head { stream, request: facts, .. } => {
                    let index = self.exchanges.insert(stream, context.now);
                    self.refuse_exchange(index, BUSY, facts, context);
                }
                Event::Data { stream, bytes, .. } => {
                    let length = bytes.len();
                    self.grant(stream, length, context);
                }
                Event::Reset { stream } => {
                    self.protocol.forget_stream(stream);
                    if let Some(index) = self.exchanges.find(stream) {
                        self.exchanges.remove(index);
                    }
                }
                Event::Credit { stream } => {
                    if let Some(index) = self.exchanges.find(stream) {
                        self.pump(index, context);
                    }
                }
                Event::Broken { stream, fault } if self.exchanges.find(stream).is_none() => {
                    let index = self.exchanges.insert(stream, context.now);
                    self.refuse_exchange(index, fault.into(), self.protocol.unread_request(), context);
                }
                Event::Broken { .. } | Event::End { .. } | Event::More | Event::Nothing => {}
            }
        }
        if self.input.is_empty() {
            self.input.discard();
        }
        true
    }

    /// Answers the health check at the beginning of the input of a new connection, while no thread polls the engine,
    /// and ends the connection: only the first request of a connection can be read then. Returns true if the answer is
    /// complete; otherwise a thread that polls the engine has to write the rest.
    pub(super) fn answer_first_exchange(&mut self, health: Health, context: &mut EngineContext<A>) -> bool {
        let (stream, facts) = loop {
            let unused = &self.input.bytes[self.input.used..];
            match self.protocol.next(unused, &mut context.fields, &context.config.limits) {
                Ok((count, Event::Head { stream, request: facts, .. })) => {
                    self.input.used += count;
                    break (stream, facts);
                }
                Ok((count @ 1.., _)) => self.input.used += count,
                Ok((0, _)) | Err(_) => return false,
            }
        };
        self.announce_end(context);
        self.answer_health_check(stream, health, facts, context);
        if !self.exchanges.is_empty() {
            return false;
        }
        self.input.discard();
        self.lifecycle = Lifecycle::Closing(Closing::Linger);
        true
    }

    /// Fails a connection whose peer broke a rule of the protocol itself: nothing more can be read.
    pub(super) fn fail(&mut self, fault: Fault, context: &mut EngineContext<A>, app: &mut A) {
        context.statistics.refused += 1;
        app.refused(fault.into(), None, client(self.front.as_deref()), known(&mut self.app));
        self.input.discard();
        self.release_exchanges(true, context, app);
        self.transport.reset_on_drop();
        self.lifecycle = Lifecycle::Closing(Closing::Reset);
    }
}
