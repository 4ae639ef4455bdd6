//! The session of a serial protocol, which has one exchange at a time.
//!
//! The session reads the next request when the previous response is complete. [`request`] receives requests and refuses
//! them; [`frames`] serves the session after its exchange has become a WebSocket.

mod frames;
mod request;

use super::exchanging::{Exchanging, Served, Service, release_exchange};
use super::lifecycle::{Closing, LinkState};
use super::link::Link;
use super::pausing::{Ended, keep_incomplete, look_for_departure, resume};
use super::reception::Repeated;
use super::replying;
use super::step::{BUSY, Expired, MISSED, NextAction, SLOW, Step};
use crate::app::{App, Progress, Refusal, SerialOf, TermsOf};
use crate::config::{Config, GLANCE};
use crate::context::{EngineContext, Time};
use crate::deadline::{Millis, Sweep, Wait};
use crate::exchange::{Awaited, Cause, Detached, Exchange, Index, Input, State, Until};
use crate::health::Health;
use crate::observe::Observer;
use crate::protocol::{ResponseSender, ResponseTerms, SerialProtocol};
use crate::reply::{Channel, Loss, Reply};
use crate::transport::Transport;
use wire::message::Fault;

/// The session of a connection with a serial protocol.
pub(super) struct Serial<A: App> {
    protocol: SerialOf<A>,
    exchange: Exchange<A>,
    repeated: Repeated,
}

impl<A: App> Serial<A> {
    pub(super) fn new(protocol: SerialOf<A>, now: Millis) -> Self {
        Self { protocol, exchange: Exchange::new(now), repeated: Repeated::default() }
    }

    /// Returns true if the next request may be read.
    #[inline]
    fn awaits_head(&self, link: &Link<A>) -> bool {
        link.lifecycle.is_open() && self.exchange.is_free()
    }

    /// Returns true if the connection and the exchange wait only for a call that has just begun, and their timers
    /// already say so. This is the usual case after a request has been read.
    #[inline]
    pub(super) fn awaits_call_alone(&self, link: &Link<A>) -> bool {
        let has_noted = link.timer.wait == Wait::App && self.exchange.timer.wait == Wait::App;
        has_noted
            && self.exchange.is_running()
            && !self.exchange.has_waiter()
            && self.exchange.upgrade.is_none()
            && link.lifecycle.is_open()
            && !link.has_output()
            && !link.schedule.awaits_room()
    }

    /// Continues the exchange of an open connection that has no output. Returns the next action; `None` if there may be
    /// input to serve.
    fn go_on(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Option<NextAction<A>> {
        match self.exchange.state.view() {
            State::Suspended(_) if self.exchange.state.until() == Some(Until::Turn) => {
                // The response has used its share of this turn.
                self.exchange.state.wait_until(Until::Output);
                Some(NextAction::Again)
            }
            State::Suspended(_) => Some(resume(&mut self.exchange, link.call(0), context)),
            State::Running(_) => {
                self.exchange.wake(Awaited::OUTPUT, app);
                look_for_departure(&mut self.exchange, link, app);
                (!self.exchange.wants_body()).then_some(NextAction::Wait)
            }
            State::Queued(_) => Some(NextAction::Wait),
            State::Free | State::Receiving(_) | State::Detached(_) | State::Finishing(_) => None,
        }
    }

    /// Ends the exchange, whose call has returned or never ran.
    fn free_exchange(&mut self) {
        self.exchange.state.end();
        self.exchange.clear();
    }
}

impl<A: App> Exchanging<A> for Serial<A> {
    #[inline]
    fn exchange(&self, _index: Index) -> Option<&Exchange<A>> {
        Some(&self.exchange)
    }

    #[inline]
    fn exchange_mut(&mut self, _index: Index) -> &mut Exchange<A> {
        &mut self.exchange
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.exchange.is_free()
    }

    #[inline]
    fn any(&self, mut is: impl FnMut(&Exchange<A>) -> bool) -> bool {
        is(&self.exchange)
    }

    fn receiving(&self) -> Option<Index> {
        (self.exchange.is_free() || self.exchange.is_receiving()).then_some(0)
    }

    fn is_receiving_body(&self) -> bool {
        self.exchange.is_receiving() || self.exchange.is_running() && self.exchange.incoming.is_some()
    }

    fn is_in_head(&self) -> bool {
        false
    }

    fn answer_refused(
        &mut self,
        _index: Index,
        refusal: Refusal,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        self.write_refusal(refusal, terms, link, context);
        self.end_with_refusal(refusal.status, link, context);
    }

    fn step(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        if self.is_websocket(link) {
            return self.step_websocket(link, context, buffer, app);
        }
        if link.is_composing() && !context.load.is_full && self.awaits_head(link) && link.input.has_unseen() {
            return self.serve_stored(link, context, app);
        }
        if !link.flush_in_step(false, context) {
            return Step::Abort;
        }
        if link.has_output() {
            // A client that reads slowly may leave, too.
            look_for_departure(&mut self.exchange, link, app);
            return link.wait_for_output();
        }
        if link.lifecycle.is_open() {
            if let Some(action) = self.go_on(link, context, app) {
                return Step::Stop(action);
            }
        } else if let Some(step) = link.step_to_end(self.exchange.is_out()) {
            return step;
        }
        self.read_on(link, context, buffer, app)
    }

    fn receive_some(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        app: &mut A,
    ) -> Step<A> {
        let mut room = buffer.len();
        if self.exchange.is_running()
            && let Some(incoming) = &self.exchange.incoming
        {
            room = incoming.room(&context.config.body_memory_total).min(room);
            if room == 0 {
                return Step::Stop(NextAction::Wait);
            }
        } else if context.load.is_full && self.awaits_head(link) {
            if !context.responders.answers_by_path() {
                return Step::Stop(NextAction::AwaitRoom);
            }
            // The next request may be one that a responder of the engine answers, even though the queue is full.
            room = GLANCE.min(room);
        }
        self.receive(link, context, &mut buffer[..room], app)
    }

    #[inline]
    fn serve_one(
        &mut self,
        rest: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Served<A>) {
        let (used, request) = match self.exchange.state.view() {
            State::Free => match self.glance_if_full(rest, context) {
                Some(true) => self.message(rest, link, context, app),
                Some(false) => return (0, Served::Stop(NextAction::AwaitRoom)),
                None => return (0, Served::NeedsMore),
            },
            State::Receiving(_) => self.body(rest, link, context, app),
            State::Running(_) => {
                let used = self.take_in(rest, context, app);
                // The remaining input is either kept for later, or is too short to be parsed.
                let is_exhausted = self.exchange.wants_body() || used == rest.len();
                return (used, if is_exhausted { Served::NeedsMore } else { Served::Later });
            }
            State::Queued(_) | State::Suspended(_) | State::Detached(_) | State::Finishing(_) => {
                return (0, Served::Later);
            }
        };
        match request {
            Some(request) => (used, Served::Stop(NextAction::Call(0, request))),
            None if used == 0 || self.exchange.is_receiving() => (used, Served::NeedsMore),
            None => (used, Served::GoOn),
        }
    }

    fn end_of_input(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        if self.receiving().is_some() {
            context.observer.give_up(link.call(0));
        }
        match self.exchange.state.view() {
            State::Free if self.protocol.end_of_input(link.input.unused()).is_ok() => {
                return Step::Stop(NextAction::Close);
            }
            State::Free => self.refuse_stored(Fault::Truncated.into(), link, context, app),
            State::Receiving(_) => self.refuse_request(0, Fault::Truncated.into(), link, context, app),
            State::Running(_) => self.exchange.break_body(Fault::Truncated.into(), app),
            _ => return Step::Stop(NextAction::Close),
        }
        Step::Next
    }

    fn is_to_end(&self, _link: &Link<A>) -> bool {
        false
    }

    #[inline]
    fn flush(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) -> bool {
        link.flush(context)
    }

    #[inline]
    fn reply<R>(
        &mut self,
        index: Index,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut Reply<'_, A>) -> R,
    ) -> R {
        let exchange = &mut self.exchange;
        let has_websocket = exchange.has_websocket();
        let terms = match *exchange.state.view() {
            // Only frames may be written on a connection that is a WebSocket, so this arm is for HTTP responses only.
            State::Running(terms) if !has_websocket => terms,
            State::Running(terms) | State::Detached(Detached { terms, .. }) => {
                let output_is_replaced = has_websocket || exchange.is_hijacked();
                let (mut protocol, in_flight) = (self.protocol.fresh(), &mut exchange.in_flight);
                let channel = Channel::Serial(&mut protocol);
                return replying::reply_to_none(channel, (in_flight, output_is_replaced), terms, link, context, write);
            }
            _ => unreachable!("a ticket is for an exchange whose call is out"),
        };
        let goes_on = exchange.is_body_here() && !context.is_draining();
        let terms = if goes_on { terms } else { terms.ending() };
        let (channel, call) = (Channel::Serial(&mut self.protocol), (link.call(index), terms, exchange.offer));
        let in_flight = &mut exchange.in_flight;
        let (result, loss) = replying::reply(channel, in_flight, call, link, context, write);
        if loss != Loss::Nothing {
            self.lose(link);
        }
        link.sending.store(&mut context.scratch);
        result
    }

    fn complete(
        &mut self,
        index: Index,
        progress: Progress<A::Response>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        let call = link.call(index);
        let exchange = &mut self.exchange;
        exchange.count_status(&mut context.statistics);
        let State::Running(terms) = *exchange.state.view() else {
            debug_assert!(exchange.is_out(), "a ticket is for an exchange whose call is out");
            // This drops the bytes that were read ahead of the application. Until now they counted as body memory.
            self.free_exchange();
            if link.lifecycle.return_hijacked() && matches!(progress, Progress::Cut) {
                link.transport.shut_down();
                link.lifecycle.lose();
            }
            context.observer.give_up(call);
            context.abandoned.extend(progress.into_response());
            return;
        };
        if matches!(progress, Progress::Done) && self.release_websocket() {
            return context.observer.answered(call);
        }
        let exchange = &mut self.exchange;
        match keep_incomplete(exchange, progress, call, context) {
            None => {}
            Some(Ended::Done) => {
                context.observer.answered(call);
                // If the rest of a body has not been read, the start of the next request is unknown.
                let is_body_left = exchange.incoming.take().is_some_and(|incoming| !incoming.has_ended());
                exchange.body_memory = None;
                exchange.upgrade = None;
                exchange.state.end();
                let goes_on = exchange.in_flight.take().is_some_and(|in_flight| in_flight.sender.keeps_alive());
                if !goes_on || is_body_left {
                    let may_be_sending = !terms.is_last() || context.is_draining() || is_body_left;
                    link.lifecycle.close(Closing::of(may_be_sending));
                }
            }
            Some(Ended::Cut) => {
                context.observer.give_up(call);
                context.statistics.cut += 1;
                let in_flight = exchange.in_flight.take();
                let needs_reset = exchange.has_websocket() || in_flight.is_some_and(|it| it.sender.needs_reset());
                self.free_exchange();
                link.lifecycle.close(if needs_reset { Closing::Reset } else { Closing::Linger });
            }
        }
    }

    fn read(&mut self, _index: Index, buffer: &mut [u8], link: &mut Link<A>, context: &mut EngineContext<A>) -> Input {
        if self.exchange.take_expectation() {
            self.tell_to_continue(link, context);
        }
        self.exchange.read(buffer)
    }

    fn expire_call(&mut self, _index: Index, link: &mut Link<A>, context: &mut EngineContext<A>) -> Expired {
        let State::Running(terms) = *self.exchange.state.view() else { return Expired::Left };
        self.exchange.end_body(MISSED);
        self.exchange.state.detach(Cause::Expired { is_written_off: false });
        let of_websocket = self.websocket_of(link).expire_message(context);
        let (expired, closing) = match &mut self.exchange.in_flight {
            _ if of_websocket.is_some() => {
                (Expired::Cut { body_bytes: of_websocket.unwrap_or_default() }, Closing::Linger)
            }
            None => {
                let page = self.compose_refusal(MISSED, terms, link, context);
                context.statistics.count_status(MISSED.status);
                (Expired::Answered { body_bytes: page.body_bytes() }, Closing::Linger)
            }
            Some(in_flight) => {
                in_flight.count_status(&mut context.statistics);
                let sender = &in_flight.sender;
                if sender.is_whole() {
                    (Expired::Whole, Closing::Linger)
                } else {
                    context.statistics.cut += 1;
                    let closing = if sender.needs_reset() { Closing::Reset } else { Closing::Linger };
                    (Expired::Cut { body_bytes: sender.body_bytes() }, closing)
                }
            }
        };
        link.lifecycle.close(closing);
        if !link.has_output() && link.send_composed(&mut context.statistics) {
            // All output has been sent: signal the end to the client at once.
            if closing == Closing::Reset {
                link.transport.cut();
            } else {
                link.transport.end_output();
                link.lifecycle.linger();
                link.input.discard();
            }
        }
        expired
    }

    #[inline]
    fn awaits(&self, link: &Link<A>) -> Wait {
        if self.exchange.has_websocket() {
            return Wait::WebSocket;
        }
        match link.awaits_before_request() {
            Some(wait) => wait,
            None if self.exchange.is_free() => link.awaits_request(),
            None => Wait::App,
        }
    }

    #[inline]
    fn websocket_deadline(&mut self, config: &Config, now: Millis) -> Millis {
        self.exchange.websocket().map_or(Millis::MAX, |websocket| websocket.deadline(config, now))
    }

    #[inline]
    fn set_deadlines(&mut self, is_blocked: bool, config: &Config, time: &mut Time) {
        self.exchange.settle_deadline(self.exchange.awaits(), is_blocked, config, time);
    }

    fn note_deadlines(&self, sweep: &mut Sweep) {
        sweep.note(self.exchange.timer.deadline);
    }

    fn is_late(&mut self, delay: Millis, now: Millis) -> bool {
        self.exchange.timer.is_missed(delay, now)
    }

    fn expire(&mut self, wait: Wait, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        match wait {
            Wait::WebSocket => self.websocket_of(link).expire(context),
            Wait::Head if !link.input.is_empty() => {
                context.statistics.timeouts += 1;
                self.refuse_stored(SLOW, link, context, app);
            }
            Wait::Queue => {
                link.schedule.stop_awaiting_room();
                context.statistics.queue_timeouts += 1;
                self.refuse_stored(BUSY, link, context, app);
            }
            _ => return Step::End,
        }
        Step::Next
    }

    fn expire_exchanges(&mut self, now: Millis, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) {
        if self.exchange.timer.is_late(now) {
            self.expire_exchange(0, link, context, app);
        }
    }

    fn forget(&mut self) {
        self.protocol.forget();
    }

    fn release(&mut self, has_left: bool, context: &mut EngineContext<A>, app: &mut A) {
        if release_exchange(&mut self.exchange, has_left, context, app) {
            self.exchange.clear();
        }
    }

    fn detach(&mut self, cause: Cause) {
        self.exchange.state.detach(cause);
    }

    fn service(&mut self, health: Health, link: &mut Link<A>, context: &mut EngineContext<A>) -> Service {
        self.answer_first(health, link, context)
    }

    fn refuse_waiting(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        orphans: &mut Vec<(A::Request, Refusal)>,
    ) -> bool {
        let terms = match self.exchange.state.view() {
            State::Free => match self.awaited_head(link, context, buffer) {
                Some(terms) => terms,
                // The poller does not report this input again, so the connection has to be driven.
                None => return !link.input.is_empty(),
            },
            State::Receiving(_) | State::Queued(_) => match self.take_request(0, context) {
                Some((request, terms)) => {
                    orphans.push((request, BUSY));
                    terms
                }
                None => return false,
            },
            _ => return false,
        };
        link.schedule.await_event();
        self.compose_refusal(BUSY, terms, link, context);
        context.observer.give_up(link.call(0));
        self.end_with_refusal(BUSY.status, link, context);
        if link.send_composed(&mut context.statistics) {
            link.transport.end_output();
        }
        true
    }
}

impl<A: App> Serial<A> {
    /// Handles a failed write: the client of the call is gone.
    #[cold]
    fn lose(&mut self, link: &mut Link<A>) {
        debug_assert!(!matches!(link.lifecycle.state(), LinkState::Hijacked { .. }), "its call writes to nobody");
        self.exchange.end_body(Fault::Truncated.into());
        link.transport.reset_on_drop();
        link.lose();
        self.exchange.state.detach(Cause::Left);
    }
}
