//! Requests of a serial protocol: the session receives them, and answers or refuses some of them without the
//! application.

use super::Serial;
use crate::app::{App, Refusal, SenderOf, TermsOf};
use crate::connection::bodies::{body_ended, hand_over, spool_refusal};
use crate::connection::exchanging::{Exchanging, Service};
use crate::connection::files::{copy_body, push_body};
use crate::connection::lifecycle::Closing;
use crate::connection::link::Link;
use crate::connection::opening::OpeningStep;
use crate::connection::reception::{AcceptedRequest, Reception, Verdict};
use crate::connection::step::Serviced;
use crate::context::EngineContext;
use crate::deadline::Wait;
use crate::exchange::Incoming;
use crate::health::Health;
use crate::meter;
use crate::observe::Observer;
use crate::protocol::{Event, ResponseSender, ResponseTerms, SerialProtocol};
use crate::reply;
use crate::responder::{Answer, Responder};
use crate::spool::Body;
use std::io;
use wire::message::{BodyLength, Draft, Fault, Page};

/// The reason why no more of the received bytes of a body are read.
enum Stop {
    More,
    End,
    Fault(Fault),
}

impl<A: App> Serial<A> {
    /// Reads the head at the beginning of `input`. Returns the number of bytes used, 0 if the head is incomplete; and
    /// the request, if it is ready: it has no body, its body is in `input`, or the application reads the body as it
    /// arrives.
    pub(super) fn message(
        &mut self,
        input: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<A::Request>) {
        let call = link.call(0);
        context.observer.parse(call);
        context.meter.charge(meter::HEAD);
        // The head borrows from `fields` and `front` until the verdict about the head is known.
        let (mut fields, mut front) = (std::mem::take(&mut context.scratch.fields), link.front.take());
        match self.protocol.next(input, &mut fields, &context.config.limits) {
            Ok((used, Event::Head { mut head, mut terms, expects_continue })) => {
                let (repeated, intermediaries) = (&mut self.repeated, front.as_deref_mut());
                let reception = Reception { call, has_room: true, repeated, front: intermediaries };
                let verdict = reception.judge(&mut head, &mut terms, link, context, app);
                (context.scratch.fields, link.front) = (fields, front);
                match verdict {
                    Verdict::Accepted(accepted) => {
                        self.begin(accepted, (terms, expects_continue), used, input, link, context, app)
                    }
                    Verdict::File { answer, has_body } => {
                        self.send_file(terms, &answer, has_body, link, context, app);
                        (used, None)
                    }
                    verdict => {
                        let has_more = used < input.len();
                        self.end_instead(verdict, terms, (input, has_more), link, context, app);
                        (input.len(), None)
                    }
                }
            }
            Ok(_) => {
                (context.scratch.fields, link.front) = (fields, front);
                (0, None)
            }
            Err(fault) => {
                (context.scratch.fields, link.front) = (fields, front);
                self.refuse_unread(fault.into(), input, link, context, app);
                (input.len(), None)
            }
        }
    }

    /// Answers a request without the application, and ends the connection. `input` begins with the request; `has_more`:
    /// other bytes follow the head.
    #[cold]
    fn end_instead(
        &mut self,
        verdict: Verdict<A>,
        terms: TermsOf<A>,
        (input, has_more): (&[u8], bool),
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        match verdict {
            Verdict::Broken(fault) => self.refuse_unread(fault.into(), input, link, context, app),
            Verdict::HealthCheck => {
                let health = context.load.health();
                self.answer_health_check(health, terms, link, context);
                link.input.discard();
                link.lifecycle.close(Closing::of(!terms.is_last() || has_more));
            }
            Verdict::BadHandshake(answer) => {
                let (draft, text) = *answer;
                self.refuse_handshake(terms, &draft, &text, link, context);
            }
            Verdict::Refused(refusal) => {
                context.statistics.quarantined += 1;
                context.observer.give_up(link.call(0));
                link.note_request(terms.is_last(), &mut context.load);
                self.write_refusal(refusal, terms, link, context);
                self.end_with_refusal(refusal.status, link, context);
            }
            Verdict::NoRoom | Verdict::File { .. } | Verdict::Accepted(_) => unreachable!("these are handled before"),
        }
    }

    /// Begins the exchange of a request. Returns the total number of bytes of `input` used, of which the head has used
    /// `used`; and the request, if it is ready.
    #[allow(clippy::too_many_arguments, reason = "it is the rest of `message`, which would be too long with it")]
    #[inline]
    fn begin(
        &mut self,
        AcceptedRequest { mut request, length, upgrade, offer }: AcceptedRequest<A>,
        (terms, expects_continue): (TermsOf<A>, bool),
        mut used: usize,
        input: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<A::Request>) {
        link.note_request(terms.is_last(), &mut context.load);
        self.exchange.timer.wait = Wait::App;
        self.exchange.upgrade = upgrade;
        self.exchange.offer = offer;
        if length.is_empty() {
            self.exchange.state.run(terms);
            link.count_call();
            return (used, Some(request));
        }
        let is_alone = input.len() == used;
        // A body that is completely in the input is borrowed, not copied.
        if let BodyLength::Known(length) = length
            && (input.len() - used) as u64 >= length
            && let Ok((count, Event::Data { bytes, .. })) =
                self.protocol.next(&input[used..], &mut context.scratch.fields, &context.config.limits)
        {
            used += count;
            let fits = bytes.len() <= context.config.body_memory;
            if let Some(reserved) = context.config.body_memory_total.reserve(bytes.len()).filter(|_| fits) {
                self.exchange.body_memory = Some(reserved);
                hand_over(link.call(0), &mut request, Body::Borrowed(bytes), context, app);
                self.exchange.state.run(terms);
                link.count_call();
                return (used, Some(request));
            }
            self.await_body(request, terms, BodyLength::Known(length), context);
            let config = &context.config;
            if let Err(error) = self.exchange.keep(bytes, config.body_memory, &mut context.meter) {
                self.spool_failed(error, link, context, app);
                return (input.len(), None);
            }
            return (used, self.body_ended(link, context, app));
        }
        if !context.config.buffer_bodies || !app.buffers(&request) {
            let memory = context.config.body_memory_total.reservation();
            let mut incoming = Box::new(Incoming::new(expects_continue && is_alone, memory));
            let (fields, limits) = (&mut context.scratch.fields, &context.config.limits);
            used += incoming.take(&mut self.protocol, &input[used..], fields, limits, &mut context.meter);
            self.exchange.incoming = Some(incoming);
            self.exchange.state.run(terms);
            link.count_call();
            return (used, Some(request));
        }
        if expects_continue && is_alone {
            self.tell_to_continue(link, context);
        }
        self.await_body(request, terms, length, context);
        let (count, ready) = self.body(&input[used..], link, context, app);
        (used + count, ready)
    }

    // ------------------------------------------------------------------------------------------------------------ body

    /// Begins to receive the body of a request, which the application gets as a whole.
    fn await_body(&mut self, request: A::Request, terms: TermsOf<A>, length: BodyLength, context: &EngineContext<A>) {
        self.exchange.state.receive(request, terms, length, &context.config.body_memory_total);
    }

    /// Reads the part of a body that is in `input`. Returns the number of bytes used, and the request if its body is
    /// complete.
    ///
    /// Chunks that arrive together are stored together. A body may arrive in chunks of one byte, and each would
    /// otherwise be a separate write to the file.
    pub(super) fn body(
        &mut self,
        input: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<A::Request>) {
        let mut chunks = std::mem::take(&mut context.scratch.chunks);
        chunks.clear();
        // If the part is contiguous in the input, it is not copied before it is stored.
        let mut only: &[u8] = &[];
        let (mut used, mut steps) = (0, 0);
        let stop = loop {
            steps += 1;
            match self.protocol.next(&input[used..], &mut context.scratch.fields, &context.config.limits) {
                Ok((count, event)) => {
                    used += count;
                    match event {
                        Event::Data { bytes, is_last } => {
                            if only.is_empty() && chunks.is_empty() {
                                only = bytes;
                            } else {
                                chunks.extend_from_slice(std::mem::take(&mut only));
                                chunks.extend_from_slice(bytes);
                            }
                            if is_last {
                                break Stop::End;
                            }
                        }
                        Event::End => break Stop::End,
                        _ => break Stop::More,
                    }
                }
                Err(fault) => break Stop::Fault(fault),
            }
        };
        context.meter.charge(meter::CHUNK * steps);
        let kept = match stop {
            Stop::Fault(_) => Ok(()),
            Stop::More | Stop::End => {
                let bytes = if only.is_empty() { &chunks } else { only };
                self.exchange.keep(bytes, context.config.body_memory, &mut context.meter)
            }
        };
        context.scratch.chunks = chunks;
        if let Err(error) = kept {
            self.spool_failed(error, link, context, app);
            return (input.len(), None);
        }
        match stop {
            Stop::More => (used, None),
            Stop::End => (used, self.body_ended(link, context, app)),
            Stop::Fault(fault) => {
                self.refuse_request(0, fault.into(), link, context, app);
                (input.len(), None)
            }
        }
    }

    /// Ends a body that has been received as a whole. Returns the request, which is now ready.
    fn body_ended(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Option<A::Request> {
        match body_ended(&mut self.exchange, link.call(0), context, app) {
            Ok(request) => {
                link.count_call();
                request
            }
            Err(error) => {
                self.spool_failed(error, link, context, app);
                None
            }
        }
    }

    fn spool_failed(&mut self, error: io::Error, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) {
        let refusal = spool_refusal(error, app);
        self.refuse_request(0, refusal, link, context, app);
    }

    /// Takes a part of a body that the application reads as it arrives. Returns the number of bytes used.
    pub(super) fn take_in(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> usize {
        let Some(incoming) = &mut self.exchange.incoming else { return 0 };
        let (fields, limits) = (&mut context.scratch.fields, &context.config.limits);
        let used = incoming.take(&mut self.protocol, input, fields, limits, &mut context.meter);
        if incoming.has_something() {
            self.exchange.wake(crate::exchange::Awaited::INPUT, app);
        }
        used
    }

    /// Sends 100 (Continue) to a client that waits for it before it sends its body.
    pub(super) fn tell_to_continue(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) {
        context.statistics.count_status(100);
        self.protocol.tell_to_continue(&mut link.out(&mut context.scratch).bytes);
    }

    // ------------------------------------------------------------------------------------------------ answer or
    // refusal

    /// Answers a health check and ends the connection, so that the next check arrives on a new connection. Only checks
    /// on new connections can be answered while no thread polls the engine.
    fn answer_health_check(
        &mut self,
        health: Health,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        let is_encrypted = link.is_encrypted();
        let out = &mut link.out(&mut context.scratch).bytes;
        let (stamp, state) = (context.time.stamp(is_encrypted), (health, &context.statistics, context.load.queued));
        context.responders.health.answer(state, |page| {
            reply::write_page(&mut self.protocol, page, terms.refusing(), stamp, out);
        });
        context.statistics.health_checks += 1;
        context.observer.give_up(link.call(0));
    }

    /// Answers the request that was read last with a file. The engine does not read the request's body; if there is
    /// one, the connection ends with the response.
    fn send_file(
        &mut self,
        terms: TermsOf<A>,
        answer: &Answer,
        has_body: bool,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        context.note_file(answer, app);
        link.note_request(terms.is_last(), &mut context.load);
        let ends = context.is_draining() || has_body;
        let terms = if ends { terms.ending() } else { terms };
        let is_encrypted = link.is_encrypted();
        let out = &mut link.out(&mut context.scratch).bytes;
        let mut sender = self.protocol.begin(answer.draft(), terms, None, context.time.stamp(is_encrypted), out);
        let has_content = sender.open(answer.body_bytes(), out).0 > 0;
        let keeps_alive = sender.keeps_alive();
        let written = sender.finish(out);
        debug_assert_eq!(written, Ok(()), "a response with a file is as long as it says");
        if has_content && answer.is_in_memory() {
            let before = out.len();
            copy_body(&answer.body, out);
            context.meter.charge((out.len() - before) as u64);
        } else if has_content {
            push_body(&answer.body, link.sending.waiting());
        }
        context.observer.give_up(link.call(0));
        if !keeps_alive {
            link.lifecycle.close(Closing::of(!terms.is_last() || ends));
        }
    }

    /// Refuses a WebSocket handshake that breaks a rule, and makes it the last request of the connection.
    fn refuse_handshake(
        &mut self,
        terms: TermsOf<A>,
        draft: &Draft,
        text: &str,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        link.note_request(terms.is_last(), &mut context.load);
        let is_encrypted = link.is_encrypted();
        let out = &mut link.out(&mut context.scratch).bytes;
        let mut sender = self.protocol.begin(draft, terms.refusing(), None, context.time.stamp(is_encrypted), out);
        if sender.open(text.len() as u64, out).0 > 0 {
            out.extend_from_slice(text.as_bytes());
        }
        context.observer.give_up(link.call(0));
        self.end_with_refusal(draft.status(), link, context);
    }

    /// Answers the stored input, which never became a request, with a refusal.
    pub(super) fn refuse_stored(
        &mut self,
        refusal: Refusal,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let input = link.input.take();
        self.refuse_unread(refusal, input.unused(), link, context, app);
    }

    /// Answers `unread`, input that never became a request, with a refusal, and ends the connection.
    pub(super) fn refuse_unread(
        &mut self,
        refusal: Refusal,
        unread: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let line = self.protocol.partial_line(unread);
        let (client, data) = link.client_and_data();
        app.refused(refusal, line, client, data);
        self.write_refusal(refusal, self.protocol.unread_terms(), link, context);
        context.observer.give_up(link.call(0));
        self.end_with_refusal(refusal.status, link, context);
    }

    /// Writes the page of a refusal.
    pub(super) fn write_refusal(
        &mut self,
        refusal: Refusal,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        link.out(&mut context.scratch);
        self.compose_refusal(refusal, terms, link, context);
    }

    /// Composes the page of a refusal after output of which a part may have been sent. Returns the sender of the page.
    pub(super) fn compose_refusal(
        &mut self,
        refusal: Refusal,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) -> SenderOf<A> {
        let text = Page::text(refusal.status, refusal.explanation());
        let page = Page::error(refusal.status, &text, context.retry_after(refusal));
        let is_encrypted = link.is_encrypted();
        let out = link.sending.raw_out(&mut context.scratch);
        reply::write_page(&mut self.protocol, &page, terms.refusing(), context.time.stamp(is_encrypted), out)
    }

    /// Closes the connection after a refusal has been written as the last output.
    pub(super) fn end_with_refusal(&mut self, status: u16, link: &mut Link<A>, context: &mut EngineContext<A>) {
        self.exchange.incoming = None;
        link.close_refused(status, &mut context.statistics);
    }

    // -------------------------------------------------------------------------------------- while no thread can call

    /// Returns true if the request at the beginning of `input` may be read: the queue of requests has room, or a
    /// responder of the engine may answer the request. Returns `None` if `input` is too short to tell.
    #[inline]
    pub(super) fn glance_if_full(&self, input: &[u8], context: &EngineContext<A>) -> Option<bool> {
        if context.load.is_full { self.glance(input, context) } else { Some(true) }
    }

    /// Returns true if a responder of the engine may answer the request at the beginning of `input`; `None` if `input`
    /// is too short to tell.
    fn glance(&self, input: &[u8], context: &EngineContext<A>) -> Option<bool> {
        context.responders.may_answer(|path| self.protocol.glance(input, path))
    }

    /// Answers the request in the stored input of a new connection, if it is a health check. Other requests stay in the
    /// input: to check them, a separate protocol value parses them.
    pub(super) fn answer_first(
        &mut self,
        health: Health,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) -> Service {
        let input = link.input.unused();
        match self.glance(input, context) {
            None => return Service::Unclear,
            Some(false) => return Service::Done(Serviced::Waits),
            Some(true) => {}
        }
        let mut protocol = self.protocol.fresh();
        let EngineContext { scratch, config, responders, .. } = context;
        let (terms, is_last) = match protocol.next(input, &mut scratch.fields, &config.limits) {
            Ok((_, Event::More)) => return Service::Unclear,
            Ok((count, Event::Head { head, terms, .. })) if responders.health.answers(&head) => {
                (terms, terms.is_last() && count == input.len())
            }
            _ => return Service::Done(Serviced::Waits),
        };
        self.answer_health_check(health, terms, link, context);
        link.input.discard();
        link.lifecycle.close(Closing::of(!is_last));
        Service::Answered
    }

    /// Reads until a head is complete. Returns the properties of the request that determine the form of its response.
    pub(super) fn awaited_head(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
    ) -> Option<TermsOf<A>> {
        link.receive_unread(context, buffer);
        if link.input.is_empty() || link.open_stored(context) != Ok(OpeningStep::Ready) {
            return None;
        }
        // A separate protocol value parses the head, so that the thread that polls the engine next reads it again from
        // its start.
        let mut protocol = self.protocol.fresh();
        match protocol.next(link.input.unused(), &mut context.scratch.fields, &context.config.limits) {
            Ok((_, Event::Head { terms, .. })) => Some(terms),
            _ => None,
        }
    }
}
