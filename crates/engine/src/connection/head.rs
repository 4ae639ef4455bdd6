//! The beginning of a request: the engine reads its head, and passes it to the application or to a responder.

use super::front::client;
use super::{BUSY, Closing, Connection, Lifecycle, known};
use crate::app::{App, Refusal, RequestOf};
use crate::config::WebSocketConfig;
use crate::context::EngineContext;
use crate::deadline::Wait;
use crate::exchange::{Incoming, Index, Receiving, State};
use crate::health::Health;
use crate::meter;
use crate::observe::{Observer, Stage};
use crate::protocol::{Event, Protocol, Reset, StreamId};
use crate::reply;
use crate::responder::Responder;
use crate::spool::Body;
use crate::websocket::Upgrade;
use wire::message::{BodyLength, Draft, Fault, Page};
use wire::websocket::{Carrier, Opening, WebSocketRefusal};

/// A head that has been read, and the application's request made from it.
pub(super) struct Begun<A: App> {
    pub(super) stream: StreamId,
    pub(super) request: A::Request,
    pub(super) facts: RequestOf<A>,
    pub(super) length: BodyLength,
    pub(super) expects_continue: bool,
    pub(super) upgrade: Option<Box<Upgrade<A::Message>>>,
}

impl<A: App> Connection<A> {
    /// Reads the next message: a head, or any other event of a multiplexed protocol. Returns the number of bytes used,
    /// 0 until the message is complete, and a request that is ready: because it has no body, or its body has arrived
    /// with it, or the request does not wait for its body.
    /// Longer than other functions: it is one match, during which the head is borrowed from the connection.
    pub(super) fn message(
        &mut self,
        input: &[u8],
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<(Index, A::Request)>) {
        let call = self.next_call();
        context.observer.parse(call);
        context.meter.charge(meter::HEAD);
        let is_multiplexed = self.is_multiplexed();
        let has_room = !is_multiplexed || self.has_room(context);
        let limits = &context.config.limits;
        match self.protocol.next(input, &mut context.fields, limits) {
            Ok((used, Event::Head { stream, mut head, request: mut facts, expects_continue })) => {
                if let Some(front) = &mut self.front
                    && let Err(fault) = front.forwarding.apply(&mut head, context.config.trust.as_ref())
                {
                    return self.refuse_head(stream, fault, used, input, context, app);
                }
                if head.retained {
                    self.has_upgrade_field = head.field(b"upgrade").is_some();
                }
                if context.responder.answers(&head) {
                    return (self.respond(stream, facts, used, input, context), None);
                }
                if !has_room {
                    self.refuse_stream(stream, facts, context, app);
                    return (used, None);
                }
                let (now, wall) = (context.now, context.wall);
                if let Some(answer) = context.files.as_mut().and_then(|files| files.answer(&head, now, wall)) {
                    let body_bytes = if head.method == b"HEAD" { 0 } else { answer.body_bytes() };
                    app.served(&head, answer.draft(), body_bytes, known(&mut self.app));
                    let has_body = !head.body.is_empty();
                    self.send_file(stream, facts, &answer, has_body, context, app);
                    return (used, None);
                }
                let mut opening = None;
                let may_have_upgrade = self.has_upgrade_field || head.changed.is_none() && !head.retained;
                if let Some(config) = &context.config.websocket
                    && may_have_upgrade
                    && WebSocketConfig::is_asked_for(&head)
                {
                    match Opening::read(&head, Carrier::Http1) {
                        Ok(read) => opening = Some((read.keep(config.deflate), read)),
                        // No proxy considers the request an upgrade (RFC 9110 section 7.8).
                        Err(WebSocketRefusal::ConnectionMissing) if !config.refuses_broken => {}
                        // A proxy that does not look at the answer forwards all further bytes as frames: none of them
                        // is read as a request.
                        Err(_) if !config.refuses_broken => facts = A::Protocol::ending(facts),
                        Err(refusal) => {
                            let text = refusal.text();
                            let draft = refusal.draft(&text);
                            let body_bytes = if head.method == b"HEAD" { 0 } else { text.len() as u64 };
                            app.served(&head, &draft, body_bytes, known(&mut self.app));
                            self.refuse_handshake(stream, facts, &draft, &text, context);
                            return (input.len(), None);
                        }
                    }
                }
                if let Some(refusal) = app.refuses(&head, opening.is_some()) {
                    let mut draft = Draft::default();
                    // It is a status.
                    draft.start_refusal(refusal.status).ok();
                    app.served(&head, &draft, 0, known(&mut self.app));
                    self.refuse_quarantined(stream, refusal, facts, context);
                    return (if is_multiplexed { used } else { input.len() }, None);
                }
                context.observer.switch(call, Stage::Environ);
                let (request, upgrade) = match opening {
                    None => (app.begin(&head, known(&mut self.app)), None),
                    Some((kept, opening)) => {
                        let request = app.begin_websocket(&head, &opening, known(&mut self.app));
                        (request, Some(Box::new(Upgrade::Asked(kept))))
                    }
                };
                context.observer.switch(call, Stage::Parse);
                let begun = Begun { stream, request, facts, length: head.body, expects_continue, upgrade };
                self.begin(begun, used, input, context, app)
            }
            Ok((used, Event::More)) => (used, None),
            Ok((used, event)) if is_multiplexed => {
                let event = Self::owned(event);
                context.observer.give_up(call);
                (used, self.follow(event, context, app))
            }
            Ok((used, _)) => {
                debug_assert!(false, "a serial protocol reports a head where one is awaited");
                (used, None)
            }
            Err(fault) => {
                if is_multiplexed {
                    self.fail(fault, context, app);
                } else {
                    self.refuse_unread(fault.into(), input, context, app);
                }
                (input.len(), None)
            }
        }
    }

    /// Refuses a request with a complete head that no proxy can have sent. Returns the number of bytes used.
    #[cold]
    fn refuse_head(
        &mut self,
        stream: StreamId,
        fault: Fault,
        used: usize,
        input: &[u8],
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<(Index, A::Request)>) {
        if self.is_multiplexed() {
            let event = Self::owned(Event::Broken { stream, fault });
            return (used, self.follow(event, context, app));
        }
        self.refuse_unread(fault.into(), input, context, app);
        (input.len(), None)
    }

    /// Answers a request that the application [refuses](App::refuses). Its body is not received.
    #[cold]
    fn refuse_quarantined(
        &mut self,
        stream: StreamId,
        refusal: Refusal,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
    ) {
        context.statistics.quarantined += 1;
        context.observer.give_up(self.next_call());
        self.note_begin(facts, context);
        if self.is_multiplexed() {
            let index = self.exchanges.insert(stream, context.now);
            return self.refuse_exchange(index, refusal, facts, context);
        }
        self.write_refusal(refusal, facts, context);
        self.end_with_refusal(refusal.status, context);
    }

    /// Begins an exchange for a request. Returns the number of bytes of `input` used in all, `used` of them by the
    /// head, and the request if it is ready.
    fn begin(
        &mut self,
        begun: Begun<A>,
        used: usize,
        input: &[u8],
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<(Index, A::Request)>) {
        let Begun { stream, mut request, facts, length, expects_continue, upgrade } = begun;
        let mut used = used;
        self.note_begin(facts, context);
        let index = self.exchanges.insert(stream, context.now);
        self.exchanges.at(index).timer.wait = Wait::App;
        self.exchanges.at(index).upgrade = upgrade;
        if length.is_empty() {
            return (used, Some((index, self.ready(index, request, facts))));
        }
        let is_alone = input.len() == used;
        // A body that is in the input as a whole is borrowed, not copied.
        if !self.is_multiplexed()
            && let BodyLength::Known(length) = length
            && (input.len() - used) as u64 >= length
            && let Ok((count, Event::Data { bytes, .. })) =
                self.protocol.next(&input[used..], &mut context.fields, &context.config.limits)
        {
            used += count;
            let fits = bytes.len() <= context.config.body_memory;
            if let Some(reserved) = context.config.body_memory_total.reserve(bytes.len()).filter(|_| fits) {
                self.exchanges.at(index).body_memory = Some(reserved);
                self.hand_over(index, &mut request, Body::Borrowed(bytes), context, app);
                return (used, Some((index, self.ready(index, request, facts))));
            }
            self.await_body(index, request, facts, BodyLength::Known(length), context);
            if let Err(error) = self.keep(index, bytes, context) {
                self.spool_failed(index, error, context, app);
                return (input.len(), None);
            }
            return (used, self.body_ended(index, context, app));
        }
        if !context.config.buffer_bodies || !app.buffers(&request) {
            let memory = context.config.body_memory_total.reservation();
            let mut incoming = Box::new(Incoming::new(expects_continue && is_alone, memory));
            if !self.is_multiplexed() {
                let (fields, limits) = (&mut context.fields, &context.config.limits);
                used += incoming.take(&mut self.protocol, &input[used..], fields, limits, &mut context.meter);
            }
            self.exchanges.at(index).incoming = Some(incoming);
            return (used, Some((index, self.ready(index, request, facts))));
        }
        if expects_continue && is_alone {
            self.tell_to_continue(stream, context);
        }
        self.await_body(index, request, facts, length, context);
        if self.is_multiplexed() {
            return (used, None);
        }
        let (count, ready) = self.body(&input[used..], context, app);
        (used + count, ready)
    }

    /// Records that a head has been read: the next wait begins now.
    pub(super) fn note_begin(&mut self, facts: RequestOf<A>, context: &mut EngineContext<A>) {
        if self.history == super::History::New {
            let is_brief = self.protocol.serves_one(facts);
            context.brief_in_a_row = if is_brief { context.brief_in_a_row.saturating_add(1) } else { 0 };
        }
        self.history = super::History::Served;
        self.timer.wait = Wait::App;
        self.send.moved = 0;
        self.send.waited = 0;
    }

    /// Begins to receive the exchange's body as a whole.
    fn await_body(
        &mut self,
        index: Index,
        request: A::Request,
        facts: RequestOf<A>,
        length: BodyLength,
        context: &EngineContext<A>,
    ) {
        let receiving = Receiving::new(request, facts, length, &context.config.body_memory_total);
        self.exchanges.at(index).state = State::Receiving(Box::new(receiving));
    }

    /// Gives the application the body of its request.
    pub(super) fn hand_over(
        &mut self,
        index: Index,
        request: &mut A::Request,
        body: Body<'_>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let call = self.call(index);
        context.observer.switch(call, Stage::Environ);
        app.receive(request, body);
        context.observer.switch(call, Stage::Parse);
    }

    pub(super) fn ready(&mut self, index: Index, request: A::Request, facts: RequestOf<A>) -> A::Request {
        self.exchanges.at(index).state = State::Running(facts);
        self.turn.called += 1;
        request
    }

    /// Has the responder answer the request whose head took `used` bytes of `input`. Returns the bytes used.
    fn respond(
        &mut self,
        stream: StreamId,
        facts: RequestOf<A>,
        used: usize,
        input: &[u8],
        context: &mut EngineContext<A>,
    ) -> usize {
        let is_last = A::Protocol::is_last(facts) && used == input.len();
        let health = context.health();
        if self.is_multiplexed() {
            self.answer_health_check(stream, health, facts, context);
            return used;
        }
        self.answer_health_check(stream, health, facts, context);
        self.lifecycle = Lifecycle::Closing(if is_last { Closing::Orderly } else { Closing::Linger });
        input.len()
    }

    /// Answers a health check. With a serial protocol the answer ends the connection, so that the next check arrives on
    /// a new connection: only checks on new connections can be answered while no thread polls the engine.
    pub(super) fn answer_health_check(
        &mut self,
        stream: StreamId,
        health: Health,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
    ) {
        let call = self.next_call();
        let mut out = std::mem::take(&mut self.out(context).bytes);
        let mut backlog = None;
        let EngineContext { responder, statistics, queued, stamp, .. } = context;
        let protocol = &mut self.protocol;
        responder.answer((health, &*statistics, *queued), |page| {
            let facts = A::Protocol::refusing(facts);
            reply::write_page::<_, A::Chunk>(protocol, stream, page, facts, stamp, &mut out, &mut backlog);
        });
        self.out(context).bytes = out;
        context.statistics.health_checks += 1;
        context.observer.give_up(call);
        if self.is_multiplexed() {
            let index = self.exchanges.insert(stream, context.now);
            let exchange = self.exchanges.at(index);
            exchange.state = State::Finishing(facts);
            exchange.backlog = backlog;
            self.pump(index, context);
        } else {
            self.input.discard();
        }
    }

    /// Answers the kept input, which never became a request, with a refusal.
    pub(super) fn refuse_stored(&mut self, refusal: Refusal, context: &mut EngineContext<A>, app: &mut A) {
        let input = std::mem::take(&mut self.input.bytes);
        let used = std::mem::take(&mut self.input.used);
        self.refuse_unread(refusal, &input[used..], context, app);
    }

    /// Answers `unread`, which never became a request, with a refusal, and ends the connection.
    pub(super) fn refuse_unread(
        &mut self,
        refusal: Refusal,
        unread: &[u8],
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let line = self.protocol.partial_line(unread);
        app.refused(refusal, line, client(self.front.as_deref()), known(&mut self.app));
        self.write_refusal(refusal, self.protocol.unread_request(), context);
        context.observer.give_up(self.next_call());
        self.end_with_refusal(refusal.status, context);
    }

    /// Refuses a request that the application will not see: its body did not arrive as it should, or it waited too
    /// long.
    pub(super) fn refuse_request(
        &mut self,
        index: Index,
        refusal: Refusal,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let Some((request, facts)) = self.take_request(index, context) else { return };
        app.abandon_request(request, Some(refusal));
        context.observer.give_up(self.call(index));
        if self.is_multiplexed() {
            return self.refuse_exchange(index, refusal, facts, context);
        }
        self.write_refusal(refusal, facts, context);
        self.end_with_refusal(refusal.status, context);
    }

    /// Removes and returns a request for which the application has not been called. Its exchange becomes free.
    pub(super) fn take_request(
        &mut self,
        index: Index,
        context: &mut EngineContext<A>,
    ) -> Option<(A::Request, RequestOf<A>)> {
        let exchange = self.exchanges.at(index);
        match std::mem::replace(&mut exchange.state, State::Free) {
            State::Receiving(receiving) => Some((receiving.request, receiving.facts)),
            State::Queued(queued) => {
                context.queued -= 1;
                exchange.body_memory = None;
                exchange.upgrade = None;
                Some((queued.request, queued.facts))
            }
            state => {
                exchange.state = state;
                None
            }
        }
    }

    /// Writes the page with which a request is refused.
    fn write_refusal(&mut self, refusal: Refusal, facts: RequestOf<A>, context: &mut EngineContext<A>) {
        self.out(context);
        self.compose_refusal(refusal, facts, context);
    }

    /// Composes the page of a refusal after output that may have been sent in part. Returns the sender of the page.
    pub(super) fn compose_refusal(
        &mut self,
        refusal: Refusal,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
    ) -> <A::Protocol as Protocol>::Sender {
        let text = Page::text(refusal.status, refusal.explanation());
        let page = Page::error(refusal.status, &text, context.retry_after(refusal));
        let out = self.send.composer.get_or_insert_with(|| context.composer());
        let facts = A::Protocol::refusing(facts);
        let (stream, stamp) = (self.exchanges.first.stream, &context.stamp);
        reply::write_page::<_, A::Chunk>(&mut self.protocol, stream, &page, facts, stamp, &mut out.bytes, &mut None)
    }

    /// Ends the connection after a refusal has been written, which is the last output that the peer gets.
    pub(super) fn end_with_refusal(&mut self, status: u16, context: &mut EngineContext<A>) {
        context.statistics.refused += 1;
        context.statistics.count_status(status);
        self.exchanges.first.incoming = None;
        self.input.discard();
        self.lifecycle = Lifecycle::Closing(Closing::Linger);
    }

    /// Sends 100 (Continue) to a client that waits for it before it sends its body.
    pub(super) fn tell_to_continue(&mut self, stream: StreamId, context: &mut EngineContext<A>) {
        context.statistics.count_status(100);
        let mut out = std::mem::take(&mut self.out(context).bytes);
        self.protocol.tell_to_continue(stream, &mut out);
        self.out(context).bytes = out;
    }

    /// Refuses a request for which there is no room, on a connection that has other requests.
    fn refuse_stream(&mut self, stream: StreamId, facts: RequestOf<A>, context: &mut EngineContext<A>, app: &mut A) {
        app.refused(BUSY, None, client(self.front.as_deref()), known(&mut self.app));
        if !self.protocol.can_refuse() {
            let index = self.exchanges.insert(stream, context.now);
            return self.refuse_exchange(index, BUSY, facts, context);
        }
        context.statistics.refused += 1;
        let mut out = std::mem::take(&mut self.out(context).bytes);
        self.protocol.reset(stream, Reset::Refused, &mut out);
        self.out(context).bytes = out;
    }
}
