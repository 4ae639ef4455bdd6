//! One exchange of a multiplexed session: its request, its output, and its end.

use super::Multiplexed;
use crate::app::{App, Refusal, TermsOf};
use crate::config::{Config, WRITE_BUFFER};
use crate::connection::bodies::{body_ended, spool_refusal};
use crate::connection::exchanging::{Exchanging, release_exchange};
use crate::connection::files::push_body;
use crate::connection::link::Link;
use crate::connection::reception::{AcceptedRequest, Reception, Verdict};
use crate::connection::step::BUSY;
use crate::context::{EngineContext, Time};
use crate::deadline::{Millis, SharedTransfer, Wait};
use crate::exchange::{Awaited, Backlog, Cause, Incoming, Index, State};
use crate::health::Health;
use crate::meter;
use crate::observe::Observer;
use crate::protocol::{MultiplexedProtocol, Reset, ResponseSender, ResponseTerms, StreamEvent, StreamId};
use crate::reply::{self, Loss};
use crate::responder::{Answer, Responder};
use crate::transport::Transport;
use std::io;
use wire::message::{Fault, Page};

/// An event that was read, without references to the state of the protocol.
enum Read<'i, A: App> {
    More,
    Nothing,
    Head { stream: StreamId, verdict: Verdict<A>, terms: TermsOf<A> },
    Data { stream: StreamId, bytes: &'i [u8], is_last: bool },
    Reset { stream: StreamId },
    Credit { stream: StreamId },
    Broken { stream: StreamId, fault: Fault },
}

/// A request that is ready, with the index of its exchange.
type Ready<A> = Option<(Index, <A as App>::Request)>;

impl<A: App> Multiplexed<A> {
    /// Reads the next event. Returns the number of bytes used, 0 if the event is incomplete; and a request, if one is
    /// ready: it has no body, its body is complete, or the application reads the body as it arrives.
    pub(super) fn message(
        &mut self,
        input: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Ready<A>) {
        let call = link.call(self.exchanges.next_index());
        context.observer.parse(call);
        context.meter.charge(meter::HEAD);
        let has_room = self.has_room(context);
        // The head borrows from `scratch` and `front` until the verdict about the head is known.
        let (mut scratch, mut front) = (context.scratch.head.take().unwrap_or_default(), link.front.take());
        self.protocol.set_time(context.time.now);
        let read = match self.protocol.next(input, &mut scratch, &context.config.limits) {
            Ok((used, event)) => {
                let read = match event {
                    StreamEvent::Head { stream, mut head, mut terms } => {
                        let (repeated, front) = (&mut self.repeated, front.as_deref_mut());
                        let reception = Reception { call, has_room, repeated, front };
                        let verdict = reception.judge(&mut head, &mut terms, link, context, app);
                        Read::Head { stream, verdict, terms }
                    }
                    StreamEvent::Data { stream, bytes, is_last } => Read::Data { stream, bytes, is_last },
                    StreamEvent::End { stream } => Read::Data { stream, bytes: &[], is_last: true },
                    StreamEvent::Reset { stream } => Read::Reset { stream },
                    StreamEvent::Credit { stream } => Read::Credit { stream },
                    StreamEvent::Broken { stream, fault } => Read::Broken { stream, fault },
                    StreamEvent::More => Read::More,
                    StreamEvent::Nothing => Read::Nothing,
                };
                Ok((used, read))
            }
            Err(fault) => Err(fault),
        };
        (context.scratch.head, link.front) = (Some(scratch), front);
        let (used, read) = match read {
            Ok(read) => read,
            Err(fault) => {
                self.fail(fault, link, context, app);
                return (input.len(), None);
            }
        };
        if !matches!(read, Read::Head { .. } | Read::More) {
            context.observer.give_up(call);
        }
        (used, self.follow(read, link, context, app))
    }

    /// Handles an event. Returns the request that it has made ready, if there is one.
    fn follow(
        &mut self,
        read: Read<'_, A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Ready<A> {
        match read {
            Read::More | Read::Nothing => {}
            Read::Head { stream, verdict, terms } => return self.obey(verdict, stream, terms, link, context, app),
            Read::Data { stream, bytes, is_last } => {
                if link.timer.wait == Wait::Head && !self.protocol.is_in_head() {
                    // The incomplete frame of the wait is complete now. If another one follows, its time begins anew.
                    link.begin_next_wait();
                }
                return self.take_data(stream, (bytes, is_last), link, context, app);
            }
            Read::Reset { stream } => {
                if let Some(index) = self.exchanges.find(stream) {
                    self.protocol.forget_stream(stream);
                    context.observer.give_up(link.call(index));
                    self.release_one(index, true, context, app);
                }
            }
            Read::Credit { stream } => {
                if let Some(index) = self.exchanges.find(stream) {
                    self.pump(index, link, context);
                }
            }
            Read::Broken { stream, fault } => self.take_broken(stream, fault, link, context, app),
        }
        None
    }

    /// Answers or refuses a request, or begins its exchange, as `verdict` says. Returns the request if it is ready.
    fn obey(
        &mut self,
        verdict: Verdict<A>,
        stream: StreamId,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Ready<A> {
        match verdict {
            Verdict::Accepted(accepted) => return self.begin(accepted, stream, terms, link, context, app),
            Verdict::Broken(fault) => {
                context.observer.give_up(link.call(self.exchanges.next_index()));
                self.take_broken(stream, fault, link, context, app);
            }
            Verdict::HealthCheck => {
                let health = context.load.health();
                self.answer_health_check(stream, health, terms, link, context);
            }
            Verdict::NoRoom => self.refuse_stream(stream, terms, link, context, app),
            Verdict::File { answer, .. } => self.send_file(stream, terms, &answer, link, context, app),
            Verdict::BadHandshake(answer) => {
                // Refused WebSocket handshakes of multiplexed protocols are answered with an ordinary error page.
                let refusal = Refusal::of_status(answer.0.status());
                let index = self.note_begin(stream, link, context);
                self.refuse_exchange(index, refusal, terms, link, context);
            }
            Verdict::Refused(refusal) => {
                context.statistics.quarantined += 1;
                context.observer.give_up(link.call(self.exchanges.next_index()));
                let index = self.note_begin(stream, link, context);
                self.refuse_exchange(index, refusal, terms, link, context);
            }
        }
        None
    }

    /// Creates the exchange of a request whose head has been read. Nothing else creates exchanges: a connection whose
    /// requests the engine answers or refuses by itself is as little new as one with a call.
    pub(super) fn note_begin(&mut self, stream: StreamId, link: &mut Link<A>, context: &mut EngineContext<A>) -> Index {
        link.note_request(self.protocol.serves_one(), &mut context.load);
        self.exchanges.insert(stream, context.time.now)
    }

    /// Begins the exchange of a request. Returns the request if it is ready.
    fn begin(
        &mut self,
        AcceptedRequest { request, length, upgrade, offer }: AcceptedRequest<A>,
        stream: StreamId,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Ready<A> {
        let index = self.note_begin(stream, link, context);
        let exchange = self.exchanges.at(index);
        exchange.timer.wait = Wait::App;
        exchange.upgrade = upgrade;
        exchange.offer = offer;
        let memory = &context.config.body_memory_total;
        if exchange.upgrade.is_some() && !length.is_empty() {
            // The request's body consists of the frames of the WebSocket.
            exchange.incoming = Some(Box::new(Incoming::new(false, memory.reservation())));
        } else if !length.is_empty() {
            self.protocol.tell_to_continue(stream, &mut link.out(&mut context.scratch).bytes);
            if context.config.buffer_bodies && app.buffers(&request) {
                exchange.state.receive(request, terms, length, memory);
                return None;
            }
            exchange.incoming = Some(Box::new(Incoming::new(false, memory.reservation())));
        }
        exchange.state.run(terms);
        link.count_call();
        Some((index, request))
    }

    // ------------------------------------------------------------------------------------------------------------ body

    /// Takes a part of a request's body, and ends the body if the part is the last one. Returns the request if it is
    /// ready.
    fn take_data(
        &mut self,
        stream: StreamId,
        (bytes, is_last): (&[u8], bool),
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Ready<A> {
        let Some(index) = self.exchanges.find(stream) else {
            // The exchange had ended while these bytes were on their way.
            self.grant(stream, bytes.len(), link, context);
            return None;
        };
        context.meter.charge(meter::CHUNK);
        let exchange = self.exchanges.at(index);
        if let Some(incoming) = &mut exchange.incoming {
            if !bytes.is_empty() {
                incoming.push(bytes, false);
            }
            if is_last {
                incoming.finish();
            }
            // The call of a WebSocket is woken when a message is complete, not by its bytes.
            if !exchange.has_websocket() {
                exchange.wake(Awaited::INPUT, app);
            }
            return None;
        }
        if !exchange.is_receiving() {
            self.grant(stream, bytes.len(), link, context);
            return None;
        }
        if let Err(error) = exchange.keep(bytes, context.config.body_memory, &mut context.meter) {
            self.spool_failed(index, error, link, context, app);
            return None;
        }
        self.grant(stream, bytes.len(), link, context);
        if !is_last {
            return None;
        }
        match body_ended(self.exchanges.at(index), link.call(index), context, app) {
            Ok(request) => {
                link.count_call();
                request.map(|request| (index, request))
            }
            Err(error) => {
                self.spool_failed(index, error, link, context, app);
                None
            }
        }
    }

    fn spool_failed(
        &mut self,
        index: Index,
        error: io::Error,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let refusal = spool_refusal(error, app);
        self.refuse_request(index, refusal, link, context, app);
    }

    /// Refuses a request that breaks a rule. The other exchanges continue.
    fn take_broken(
        &mut self,
        stream: StreamId,
        fault: Fault,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let Some(index) = self.exchanges.find(stream) else {
            // The head cannot be read, so it never becomes a request.
            let (client, data) = link.client_and_data();
            let line = context.scratch.head.as_deref().and_then(|scratch| self.protocol.partial_line(scratch));
            app.refused(fault.into(), line, client, data);
            let index = self.note_begin(stream, link, context);
            let terms = self.protocol.unread_terms();
            return self.refuse_exchange(index, fault.into(), terms, link, context);
        };
        let exchange = self.exchanges.at(index);
        if exchange.is_out() {
            exchange.break_body(fault.into(), app);
        } else {
            self.refuse_request(index, fault.into(), link, context, app);
        }
    }

    /// Allows the client to send `bytes` more bytes of a body.
    pub(super) fn grant(&mut self, stream: StreamId, bytes: usize, link: &mut Link<A>, context: &mut EngineContext<A>) {
        if bytes > 0 {
            self.protocol.consumed(stream, bytes, &mut link.out(&mut context.scratch).bytes);
        }
    }

    // ------------------------------------------------------------------------------------------------ answer or
    // refusal

    /// Answers a health check.
    pub(super) fn answer_health_check(
        &mut self,
        stream: StreamId,
        health: Health,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        let call = link.call(self.exchanges.next_index());
        let is_encrypted = link.is_encrypted();
        let out = &mut link.out(&mut context.scratch).bytes;
        let (stamp, state) = (context.time.stamp(is_encrypted), (health, &context.statistics, context.load.queued));
        let (_, backlog) = context.responders.health.answer(state, |page| {
            reply::write_stream_page(&mut self.protocol, stream, page, terms.refusing(), stamp, out)
        });
        context.statistics.health_checks += 1;
        context.observer.give_up(call);
        let index = self.note_begin(stream, link, context);
        let exchange = self.exchanges.at(index);
        exchange.state.answer(terms);
        exchange.backlog = Some(backlog);
        self.pump(index, link, context);
    }

    /// Answers a request with a file. The engine does not read the request's body, if there is one.
    fn send_file(
        &mut self,
        stream: StreamId,
        terms: TermsOf<A>,
        answer: &Answer,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let call = link.call(self.exchanges.next_index());
        context.note_file(answer, app);
        let is_encrypted = link.is_encrypted();
        let out = &mut link.out(&mut context.scratch).bytes;
        let mut sender =
            self.protocol.begin(stream, answer.draft(), terms, None, context.time.stamp(is_encrypted), out);
        let has_content = sender.open(answer.body_bytes(), out).0 > 0;
        let written = sender.finish(out);
        debug_assert_eq!(written, Ok(()), "a response with a file is as long as it says");
        let mut backlog = Box::new(Backlog::new());
        if has_content {
            push_body(&answer.body, &mut backlog.output);
        }
        backlog.finish();
        let index = self.note_begin(stream, link, context);
        let exchange = self.exchanges.at(index);
        exchange.state.answer(terms);
        exchange.backlog = Some(backlog);
        context.observer.give_up(call);
        self.pump(index, link, context);
    }

    /// Refuses a request for which there is no room.
    fn refuse_stream(
        &mut self,
        stream: StreamId,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let (client, data) = link.client_and_data();
        app.refused(BUSY, None, client, data);
        if !self.protocol.can_refuse() {
            let index = self.note_begin(stream, link, context);
            return self.refuse_exchange(index, BUSY, terms, link, context);
        }
        link.note_request(self.protocol.serves_one(), &mut context.load);
        context.statistics.refused += 1;
        self.reset(stream, Reset::Refused, link, context);
    }

    /// Refuses a request with a page, without the application. The exchange at `index` is already free, and carries the
    /// page.
    pub(super) fn refuse_exchange(
        &mut self,
        index: Index,
        refusal: Refusal,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        context.statistics.refused += 1;
        self.answer_exchange(index, refusal, terms, link, context);
        self.exchanges.at(index).state.answer(terms);
        self.pump(index, link, context);
    }

    /// Writes the page of a refusal as the response of an exchange. Returns the length of its body.
    pub(super) fn answer_exchange(
        &mut self,
        index: Index,
        refusal: Refusal,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) -> u64 {
        context.statistics.count_status(refusal.status);
        let text = Page::text(refusal.status, refusal.explanation());
        let page = Page::error(refusal.status, &text, context.retry_after(refusal));
        let exchange = self.exchanges.at(index);
        let is_encrypted = link.is_encrypted();
        let out = &mut link.out(&mut context.scratch).bytes;
        let (sender, backlog) = reply::write_stream_page(
            &mut self.protocol,
            exchange.stream,
            &page,
            terms,
            context.time.stamp(is_encrypted),
            out,
        );
        exchange.backlog = Some(backlog);
        sender.body_bytes()
    }

    // ---------------------------------------------------------------------------------------------------------- output

    /// Frames a part of the exchange's unsent output, as much as its client accepts now. Large parts are also sent.
    pub(super) fn pump(&mut self, index: Index, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let has_backlog = self.exchanges.get(index).is_some_and(|exchange| exchange.backlog.is_some());
        if link.has_output() || link.sending.is_full() || self.has_sent_share || !has_backlog {
            return;
        }
        let exchange = self.exchanges.at(index);
        let stream = exchange.stream;
        let Some(backlog) = &mut exchange.backlog else { return };
        // If a tick has sent a part of the composed output, the rest moves to the waiting output.
        link.out(&mut context.scratch);
        let EngineContext { scratch, statistics, .. } = context;
        let (sending, transport) = (&mut link.sending, &mut link.transport);
        if sending.send_large(backlog, (&mut self.protocol, stream), transport, scratch, statistics)
            && (link.has_output() || backlog.has_large())
        {
            self.has_sent_share = true;
            return;
        }
        let mut chunks = std::mem::take(&mut context.scratch.chunks);
        let out = &mut link.out(&mut context.scratch).bytes;
        let pumped = backlog.pump(&mut self.protocol, stream, WRITE_BUFFER, &mut chunks, out);
        context.scratch.chunks = chunks;
        let is_complete = backlog.is_complete();
        if pumped.is_err() {
            context.statistics.cut += 1;
            self.cut_exchange(index, link, context);
        } else if is_complete && matches!(exchange.state.view(), State::Finishing(_)) {
            self.end_exchange(index, link, context);
        } else if is_complete {
            // The call of the exchange has missed its deadline but is still running, so the connection has to stay
            // open.
            self.protocol.stay(&mut link.out(&mut context.scratch).bytes);
        }
    }

    pub(super) fn reset(&mut self, stream: StreamId, reset: Reset, link: &mut Link<A>, context: &mut EngineContext<A>) {
        self.protocol.reset(stream, reset, &mut link.out(&mut context.scratch).bytes);
    }

    /// Writes the messages of the protocol itself, such as acknowledgements.
    pub(super) fn write_control(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let mut control = std::mem::take(&mut context.scratch.chunks);
        control.clear();
        self.protocol.write_control(&mut control);
        if !control.is_empty() {
            link.out(&mut context.scratch).bytes.extend_from_slice(&control);
        }
        context.scratch.chunks = control;
    }

    /// Handles a failed write: the client of a call is gone, or the response cannot be sent.
    #[cold]
    pub(super) fn lose(&mut self, index: Index, loss: Loss, link: &mut Link<A>, context: &mut EngineContext<A>) {
        self.exchanges.at(index).end_body(Fault::Truncated.into());
        if loss == Loss::Exchange {
            return self.cut_exchange(index, link, context);
        }
        link.transport.reset_on_drop();
        link.lose();
        self.detach(Cause::Left);
    }

    // ------------------------------------------------------------------------------------------------------------- end

    /// Completes an exchange after the application has written the whole response.
    pub(super) fn complete_exchange(
        &mut self,
        index: Index,
        is_body_left: bool,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        let exchange = self.exchanges.at(index);
        exchange.drop_all_but_backlog();
        exchange.state.written();
        if is_body_left {
            let stream = exchange.stream;
            self.reset(stream, Reset::Complete, link, context);
        }
        if self.exchanges.at(index).is_sent() {
            self.end_exchange(index, link, context);
        }
    }

    /// Ends an exchange that is complete on both sides.
    pub(super) fn end_exchange(&mut self, index: Index, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let stream = self.exchanges.at(index).stream;
        self.protocol.forget_stream(stream);
        self.remove(index, context);
        if self.has_announced_end && self.exchanges.is_empty() && !self.protocol.announces_end() {
            // This may have been the last exchange. Requests that arrived since the last poll still have to be
            // answered, so the transport is read again.
            link.input.note_readable();
        }
    }

    /// Ends the exchange of a call that has returned after its client received a response from the engine, or left.
    pub(super) fn end_detached(&mut self, index: Index, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let exchange = self.exchanges.at(index);
        if !exchange.is_sent() && exchange.is_expired() && link.lifecycle.is_open() {
            exchange.drop_all_but_backlog();
            exchange.state.written();
        } else {
            self.end_exchange(index, link, context);
        }
    }

    /// Cuts a response, and informs its client. The other exchanges continue. A running call continues without a
    /// client.
    pub(super) fn cut_exchange(&mut self, index: Index, link: &mut Link<A>, context: &mut EngineContext<A>) {
        let exchange = self.exchanges.at(index);
        let stream = exchange.stream;
        exchange.backlog = None;
        if exchange.is_out() {
            exchange.state.detach(Cause::Left);
        } else {
            // The engine may find that a file is too short while its response is suspended.
            if let State::Suspended(suspended) = exchange.state.end() {
                context.statistics.suspended -= 1;
                context.abandoned.push(suspended.response);
            }
            self.remove(index, context);
        }
        self.reset(stream, Reset::Cut, link, context);
    }

    /// Sets the deadlines of the exchanges. Visits only those whose deadline may have changed, because a client may
    /// have a hundred exchanges and send a few bytes at a time.
    ///
    /// A response that waits because others use the window of the connection is not late while the client reads those.
    /// A body that the client cannot send, because the application does not read others, has no deadline.
    pub(super) fn set_exchange_deadlines(&mut self, is_blocked: bool, config: &Config, time: &mut Time) {
        let mut sending = self.sending.take();
        let conditions = (is_blocked, self.protocol.is_full_of_bodies());
        let have_changed = std::mem::replace(&mut self.conditions, conditions) != conditions;
        for index in self.exchanges.unsettled(have_changed) {
            let exchange = self.exchanges.settle(index);
            let stream = exchange.stream;
            if exchange.has_websocket() && !exchange.has_backlog() {
                self.set_websocket_deadline(index, config, time);
                continue;
            }
            let wait = exchange.awaits();
            if wait == Wait::Body && conditions.1 {
                exchange.hold(wait, Millis::MAX, config, time);
            } else if wait == Wait::Output
                && !is_blocked
                && let Some(sent) = self.protocol.sent_meanwhile(stream)
            {
                let sending = self
                    .sending
                    .get_or_insert_with(|| sending.take().unwrap_or_else(|| SharedTransfer::new(sent, time.now)));
                let limits = (config.write_timeout, config.min_rate);
                exchange.hold(wait, sending.deadline(limits, sent, time.now), config, time);
            } else {
                exchange.settle_deadline(wait, is_blocked, config, time);
            }
        }
    }

    /// Gives up an exchange whose client has not read output for too long.
    pub(super) fn abandon_exchange(
        &mut self,
        index: Index,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let exchange = self.exchanges.at(index);
        let stream = exchange.stream;
        exchange.backlog = None;
        context.statistics.cut += 1;
        context.observer.give_up(link.call(index));
        self.release_one(index, true, context, app);
        self.reset(stream, Reset::Cut, link, context);
    }

    /// Gives up an exchange without a running call. If `has_left`, tells a running call that the client has gone.
    pub(super) fn release_one(&mut self, index: Index, has_left: bool, context: &mut EngineContext<A>, app: &mut A) {
        self.exchanges.at(index).lose_websocket();
        if release_exchange(self.exchanges.at(index), has_left, context, app) {
            self.remove(index, context);
        }
    }
}
