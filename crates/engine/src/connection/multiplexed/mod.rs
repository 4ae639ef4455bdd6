//! The session of a multiplexed protocol, which has many exchanges at a time.
//!
//! Each exchange has a window for its response ([`MultiplexedProtocol::window`]). Output that exceeds the window is the
//! exchange's backlog, and does not delay other exchanges. The engine reads from the connection all the time, because
//! clients announce larger windows there. The memory that this may need is bounded by the number of exchanges
//! ([`Config::exchanges`]) and by the window of each request's body.
//!
//! [`streams`] has the code for one exchange, [`frames`] the code for one that has become a WebSocket.

mod frames;
mod streams;
mod watchdog;

use super::exchanging::{Exchanging, Served, Service};
use super::lifecycle::Closing;
use super::link::{History, Link};
use super::pausing::{Ended, keep_incomplete, look_for_departure, resume};
use super::reception::Repeated;
use super::replying;
use super::step::{BUSY, BesideCall, Expired, MISSED, NextAction, Serviced, Share, Step};
use crate::app::{App, MultiplexedOf, Progress, Refusal, TermsOf};
use crate::config::Config;
use crate::context::{EngineContext, Time};
use crate::deadline::{Millis, SharedTransfer, Sweep, Wait};
use crate::exchange::{Awaited, Cause, Detached, Exchange, Exchanges, Index, Input, State, Until};
use crate::health::Health;
use crate::observe::Observer;
use crate::protocol::{MultiplexedProtocol, Reset, ResponseSender, ResponseTerms};
use crate::reply::{Channel, Loss, Reply};
use crate::statistics::Statistics;
use crate::transport::Transport;
use wire::message::Fault;

/// The session of a connection with a multiplexed protocol.
pub(super) struct Multiplexed<A: App> {
    protocol: MultiplexedOf<A>,
    exchanges: Exchanges<A>,
    repeated: Repeated,
    /// True if the session has told the protocol that no further exchange may begin.
    has_announced_end: bool,
    /// The common progress of the responses that wait because other responses use the window of the connection.
    sending: Option<SharedTransfer>,
    /// The conditions on which the deadlines of all exchanges depended when they were set: the connection is blocked;
    /// the client can send no body because the application has not read others.
    conditions: (bool, bool),
    /// True if the peer broke a rule of the connection, so that nothing more can be read.
    has_failed: bool,
    /// True if a response has sent its share of a large part, and its window may have room for more. No other response
    /// sends anything in this step.
    has_sent_share: bool,
    /// The number of exchanges that the statistics count as streams; `None` if they do not count this connection.
    streams: Option<usize>,
}

impl<A: App> Multiplexed<A> {
    pub(super) fn new(mut protocol: MultiplexedOf<A>, config: &Config, now: Millis) -> Self {
        if config.websocket.is_some() {
            protocol.take_websockets();
        }
        protocol.open(config.exchanges, &config.limits);
        Self {
            protocol,
            exchanges: Exchanges::new(now),
            repeated: Repeated::default(),
            has_announced_end: false,
            sending: None,
            conditions: (false, false),
            has_failed: false,
            has_sent_share: false,
            streams: None,
        }
    }

    // -------------------------------------------------------------------------------------------------------- counting

    /// Returns the number of exchanges that the statistics count as streams; `None` if the protocol has no streams.
    pub(super) fn streams(&self) -> Option<usize> {
        self.streams
    }

    /// Updates the number of exchanges in the statistics, if they are streams of HTTP/2.
    pub(super) fn count_streams(&mut self, statistics: &mut Statistics) {
        if !self.protocol.is_of_web_server() {
            let streams = self.exchanges.len();
            statistics.count_streams(self.streams.replace(streams), Some(streams));
        }
    }

    // ------------------------------------------------------------------------------------------ the end of a
    // connection

    /// Begins the end of an open connection: tells the client that no further exchange may begin, if the protocol can
    /// do so. Otherwise the protocol ends the connection after the next exchange ([`MultiplexedProtocol::is_ending`]).
    fn announce_end(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) {
        if !std::mem::replace(&mut self.has_announced_end, true) {
            self.protocol.drain(&mut link.out(&mut context.scratch).bytes);
        }
    }

    /// Tells the client that an open connection without exchanges ends now. Returns false if the protocol cannot.
    fn leave(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) -> bool {
        self.has_announced_end = true;
        self.protocol.leave(&mut link.out(&mut context.scratch).bytes)
    }

    /// Returns true if the client has opened the connection but begun no request, and the protocol can announce the
    /// end.
    fn has_begun_no_request(&self, link: &Link<A>) -> bool {
        let is_open = link.input.is_empty() && !link.is_opening();
        is_open && self.protocol.announces_end() && !self.protocol.is_in_head()
    }

    /// Returns true if input has to be read before the last response is sent: requests may have arrived, and the
    /// connection ends with that response.
    fn must_look_before_end(&self, link: &Link<A>) -> bool {
        let may_have_arrived = link.input.is_readable() && !link.has_output();
        let is_between = link.lifecycle.is_open() && self.exchanges.is_empty();
        self.has_announced_end && may_have_arrived && is_between && self.protocol.is_ending(false)
    }

    /// Returns true if the connection should end once no exchange is under way and all input has been read.
    fn may_end(&self, link: &Link<A>) -> bool {
        self.protocol.is_ending(link.input.is_readable() || link.input.has_unseen())
    }

    /// Returns the work that the connection has while the call that it has begun runs.
    pub(super) fn beside_call(&self, link: &Link<A>) -> BesideCall {
        let has_input = link.input.has_unseen() || link.input.is_readable();
        if has_input || self.exchanges.len() != 1 || self.protocol.has_control() {
            BesideCall::More
        } else if self.protocol.has_read_all() {
            BesideCall::End
        } else {
            BesideCall::Nothing
        }
    }

    /// Fails a connection whose peer broke a rule of the protocol, so that nothing more can be read. If the protocol
    /// informs its client, the connection ends when no exchange is under way; otherwise now.
    fn fail(&mut self, fault: Fault, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) {
        context.statistics.refused += 1;
        let (client, data) = link.client_and_data();
        app.refused(fault.into(), None, client, data);
        link.input.discard();
        self.has_failed = true;
        if self.protocol.answers_violations() {
            return;
        }
        self.release(true, context, app);
        link.transport.reset_on_drop();
        link.lifecycle.close(Closing::Reset);
    }

    // ----------------------------------------------------------------------------------------------------------- steps

    /// Returns true if the engine must not read from the connection: a call has not read a full buffer of its request's
    /// body, and the protocol has no windows with which to hold back this body alone.
    fn is_held_up(&self, context: &EngineContext<A>) -> bool {
        let is_full = |exchange: &Exchange<A>| exchange.incoming.as_ref().is_some_and(|incoming| incoming.is_full());
        !context.config.buffer_bodies && !self.protocol.has_windows() && self.exchanges.any(is_full)
    }

    /// Returns the connection's share of the calls and of the queue. `is_of_proxy`: its peer is a trusted proxy.
    pub(super) fn share(&self, is_of_proxy: bool, config: &Config) -> Share {
        let count = |is: fn(&Exchange<A>) -> bool| self.exchanges.iter().filter(|(_, exchange)| is(exchange)).count();
        let is_of_many = is_of_proxy || self.protocol.is_of_web_server();
        let most = if is_of_many { usize::MAX } else { config.calls.max(1) };
        Share { calls: count(Exchange::is_out), most, queued: count(Exchange::is_queued) }
    }

    /// Runs a step of an open connection that has failed. It ends when the exchanges under way have been answered, as
    /// far as their windows allow; the windows no longer grow.
    fn step_failed(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        if link.transport.has_peer_left() {
            return Step::Abort;
        }
        if self.exchanges.any(|exchange| !exchange.has_backlog()) {
            return Step::Stop(NextAction::Wait);
        }
        self.release(true, context, app);
        link.lifecycle.close(Closing::Linger);
        Step::Next
    }

    /// Writes the messages that the protocol itself has to send.
    fn write_pending_control(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) {
        // If the handshake of the connection has failed, its protocol has not begun and may write nothing.
        if self.protocol.has_control() && !(link.is_opening() && link.transport.is_encrypted()) {
            self.write_control(link, context);
        }
    }

    /// Returns true if another exchange may begin.
    fn has_room(&self, context: &EngineContext<A>) -> bool {
        let is_told = self.has_announced_end && self.protocol.announces_end() && self.protocol.is_end_agreed();
        self.exchanges.len() < context.config.exchanges && !context.load.is_full && !is_told
    }

    /// Continues all exchanges of an open connection that has no output. Returns the next action; `None` if there may
    /// be input to serve.
    fn go_on_with_all(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Option<NextAction<A>> {
        // While the engine drains, it still answers the first request of a new connection.
        let may_announce = link.history() != History::New || !self.protocol.announces_end();
        if context.is_draining() && may_announce {
            self.announce_end(link, context);
        }
        let mut has_yielded = false;
        // Requests that are being received or wait for a thread need no work here. A client can have many of them at
        // little cost.
        let goes_on = |exchange: &Exchange<A>| {
            exchange.has_backlog() || !matches!(exchange.state.view(), State::Receiving(_) | State::Queued(_))
        };
        let some = self.exchanges.iter().filter(|(_, exchange)| goes_on(exchange));
        let mut order: Vec<(u64, Index)> =
            some.map(|(index, exchange)| (self.protocol.rank(exchange.stream), index)).collect();
        order.sort_unstable();
        for (_, index) in order {
            if self.is_websocket(index) {
                match self.go_on_with_websocket(index, link, context, app) {
                    Some(NextAction::Again) => has_yielded = true,
                    Some(action) => {
                        // Send the output now: the client need not wait for the call. If the peer is gone, the next
                        // turn finds that out.
                        self.flush(link, context);
                        return Some(action);
                    }
                    None => {}
                }
                continue;
            }
            self.pump(index, link, context);
            let Some(exchange) = self.exchanges.get(index) else { continue };
            if exchange.is_free() || exchange.has_backlog() {
                continue;
            }
            match exchange.state.view() {
                // This also wakes a call whose response has been cut because a file was too short: its output will not
                // be sent.
                State::Running(_) | State::Detached(_)
                    // Most calls wait for neither, and their deadlines stay as they are.
                    if exchange.waits_for(Awaited::OUTPUT.or(Awaited::DEPARTURE)) =>
                {
                    let exchange = self.exchanges.at(index);
                    exchange.wake(Awaited::OUTPUT, app);
                    look_for_departure(exchange, link, app);
                }
                State::Suspended(_) if exchange.state.until() == Some(Until::Turn) => {
                    self.exchanges.at(index).state.wait_until(Until::Output);
                    has_yielded = true;
                }
                State::Suspended(_) => return Some(resume(self.exchanges.at(index), link.call(index), context)),
                _ => {}
            }
        }
        if self.exchanges.is_empty() {
            let is_told = self.protocol.announces_end() && self.protocol.is_end_agreed();
            let is_announced = self.has_announced_end && is_told && link.input.is_empty();
            let is_ending = self.may_end(link);
            if is_announced || is_ending {
                let may_be_sending = !is_ending || self.protocol.is_unread();
                link.lifecycle.close(Closing::of(may_be_sending));
                // Close in this turn, not earlier: until now the client may consider the connection persistent.
                return None;
            }
        } else if self.is_held_up(context) {
            return Some(if has_yielded || self.has_sent_share { NextAction::Again } else { NextAction::Wait });
        }
        has_yielded.then_some(NextAction::Again)
    }
}

impl<A: App> Exchanging<A> for Multiplexed<A> {
    fn exchange(&self, index: Index) -> Option<&Exchange<A>> {
        self.exchanges.get(index)
    }

    fn exchange_mut(&mut self, index: Index) -> &mut Exchange<A> {
        self.exchanges.at(index)
    }

    fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    fn any(&self, is: impl FnMut(&Exchange<A>) -> bool) -> bool {
        self.exchanges.any(is)
    }

    fn receiving(&self) -> Option<Index> {
        let is_receiving = || self.exchanges.get(0).is_some_and(Exchange::is_receiving);
        (self.exchanges.is_empty() || is_receiving()).then_some(0)
    }

    fn is_receiving_body(&self) -> bool {
        false
    }

    fn is_in_head(&self) -> bool {
        self.protocol.is_in_head()
    }

    fn answer_refused(
        &mut self,
        index: Index,
        refusal: Refusal,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    ) {
        self.refuse_exchange(index, refusal, terms, link, context);
    }

    fn step(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        let is_composing = link.is_composing() && !context.load.is_full && !self.protocol.must_write_control();
        if is_composing && link.lifecycle.is_open() && link.input.has_unseen() {
            return self.serve_stored(link, context, app);
        }
        if self.must_look_before_end(link) {
            return self.receive(link, context, buffer, app);
        }
        self.write_pending_control(link, context);
        if !link.flush_in_step(self.is_to_end(link), context) {
            return Step::Abort;
        }
        if link.has_output() {
            return link.wait_for_output();
        }
        if link.lifecycle.is_open() {
            if let Some(action) = self.go_on_with_all(link, context, app) {
                return Step::Stop(action);
            }
            if link.sending.has_composed() || std::mem::take(&mut self.has_sent_share) {
                // Send more frames of exchanges whose windows have room, or the last frame together with the end.
                return Step::Next;
            }
            if self.has_failed && link.lifecycle.is_open() {
                return self.step_failed(link, context, app);
            }
        }
        if !link.lifecycle.is_open()
            && let Some(step) = link.step_to_end(self.has_calls())
        {
            return step;
        }
        self.read_on(link, context, buffer, app)
    }

    fn serve_one(
        &mut self,
        rest: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Served<A>) {
        if self.is_held_up(context) {
            return (0, Served::Later);
        }
        let (used, ready) = self.message(rest, link, context, app);
        match ready {
            Some((index, request)) => (used, Served::Stop(NextAction::Call(index, request))),
            None if used == 0 => (0, Served::NeedsMore),
            None if self.protocol.must_write_control() => (used, Served::Later),
            None => (used, Served::GoOn),
        }
    }

    fn end_of_input(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, _app: &mut A) -> Step<A> {
        if self.receiving().is_some() {
            context.observer.give_up(link.call(0));
        }
        // The peer can no longer announce larger windows.
        if self.exchanges.is_empty() { Step::Stop(NextAction::Close) } else { Step::Abort }
    }

    /// Returns true if a connection whose protocol cannot announce the end has to be closed now: no exchange is under
    /// way, and none follows.
    fn is_to_end(&self, link: &Link<A>) -> bool {
        link.lifecycle.is_open() && self.exchanges.is_empty() && self.may_end(link)
    }

    fn flush(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) -> bool {
        self.write_pending_control(link, context);
        link.flush(context)
    }

    fn reply<R>(
        &mut self,
        index: Index,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut Reply<'_, A>) -> R,
    ) -> R {
        let exchange = self.exchanges.at(index);
        let stream = exchange.stream;
        let has_websocket = exchange.has_websocket();
        let terms = match *exchange.state.view() {
            State::Running(terms) if !has_websocket => terms,
            State::Running(terms) | State::Detached(Detached { terms, .. }) => {
                let (mut protocol, mut backlog) = (self.protocol.fresh(), None);
                let channel = Channel::Stream { protocol: &mut protocol, stream, backlog: &mut backlog };
                let in_flight = (&mut exchange.in_flight, has_websocket);
                return replying::reply_to_none(channel, in_flight, terms, link, context, write);
            }
            _ => unreachable!("a ticket is for an exchange whose call is out"),
        };
        let goes_on = exchange.is_body_here() && !context.is_draining();
        let terms = if goes_on { terms } else { terms.ending() };
        let Exchange { in_flight, backlog, offer, .. } = exchange;
        let channel = Channel::Stream { protocol: &mut self.protocol, stream, backlog };
        let call = (link.call(index), terms, *offer);
        let (result, loss) = replying::reply(channel, in_flight, call, link, context, write);
        if loss != Loss::Nothing {
            self.lose(index, loss, link, context);
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
        let exchange = self.exchanges.at(index);
        exchange.count_status(&mut context.statistics);
        if !exchange.is_running() {
            debug_assert!(exchange.is_out(), "a ticket is for an exchange whose call is out");
            self.end_detached(index, link, context);
            context.observer.give_up(call);
            context.abandoned.extend(progress.into_response());
            return;
        }
        if matches!(progress, Progress::Done) && self.release_websocket(index) {
            return context.observer.answered(call);
        }
        let exchange = self.exchanges.at(index);
        match keep_incomplete(exchange, progress, call, context) {
            None => {}
            Some(Ended::Done) => {
                context.observer.answered(call);
                let is_body_left = exchange.incoming.take().is_some_and(|incoming| !incoming.has_ended());
                self.complete_exchange(index, is_body_left, link, context);
            }
            Some(Ended::Cut) => {
                context.observer.give_up(call);
                context.statistics.cut += 1;
                exchange.state.written();
                self.cut_exchange(index, link, context);
            }
        }
    }

    fn read(&mut self, index: Index, buffer: &mut [u8], link: &mut Link<A>, context: &mut EngineContext<A>) -> Input {
        let exchange = self.exchanges.at(index);
        let (stream, input) = (exchange.stream, exchange.read(buffer));
        if let Input::Bytes(count) = input {
            self.grant(stream, count, link, context);
        }
        input
    }

    fn expire_call(&mut self, index: Index, link: &mut Link<A>, context: &mut EngineContext<A>) -> Expired {
        let exchange = self.exchanges.at(index);
        let State::Running(terms) = *exchange.state.view() else { return Expired::Left };
        exchange.end_body(MISSED);
        exchange.state.detach(Cause::Expired { is_written_off: false });
        let of_websocket = self.websocket_of(index, link).expire_message(context);
        let exchange = self.exchanges.at(index);
        let expired = match &mut exchange.in_flight {
            _ if of_websocket.is_some() => Expired::Cut { body_bytes: of_websocket.unwrap_or_default() },
            None => {
                let body_bytes = self.answer_exchange(index, MISSED, terms, link, context);
                Expired::Answered { body_bytes }
            }
            Some(in_flight) => {
                in_flight.count_status(&mut context.statistics);
                if in_flight.sender.is_whole() {
                    // The call may have written the last byte without having ended the response.
                    if let Some(backlog) = &mut exchange.backlog {
                        backlog.finish();
                    }
                    Expired::Whole
                } else {
                    let body_bytes = in_flight.sender.body_bytes();
                    let stream = exchange.stream;
                    context.statistics.cut += 1;
                    // The unsent output belongs to the application, so it is dropped only when the call returns.
                    if let Some(backlog) = &mut exchange.backlog {
                        backlog.stop();
                    }
                    self.reset(stream, Reset::Cut, link, context);
                    Expired::Cut { body_bytes }
                }
            }
        };
        // Output that waits must be sent first: a frame must not be inserted into another one.
        if !link.has_output() {
            link.send_composed(&mut context.statistics);
        }
        expired
    }

    fn awaits(&self, link: &Link<A>) -> Wait {
        let is_in_head = !link.input.is_empty() && link.input.is_exhausted() || self.protocol.is_in_head();
        match link.awaits_before_request() {
            Some(wait) => wait,
            None if is_in_head => Wait::Head,
            None if self.exchanges.is_empty() => link.awaits_request(),
            None => Wait::App,
        }
    }

    fn websocket_deadline(&mut self, _config: &Config, _now: Millis) -> Millis {
        Millis::MAX
    }

    fn set_deadlines(&mut self, is_blocked: bool, config: &Config, time: &mut Time) {
        self.set_exchange_deadlines(is_blocked, config, time);
    }

    fn note_deadlines(&self, sweep: &mut Sweep) {
        for (_, exchange) in self.exchanges.iter() {
            sweep.note(exchange.timer.deadline);
        }
    }

    fn is_late(&mut self, delay: Millis, now: Millis) -> bool {
        // Each exchange is asked: one that is excused does not end because of another one that is not.
        let indices = self.exchanges.indices();
        indices.into_iter().filter(|&index| self.exchanges.at(index).timer.is_missed(delay, now)).count() > 0
    }

    fn expire(&mut self, wait: Wait, link: &mut Link<A>, context: &mut EngineContext<A>, _app: &mut A) -> Step<A> {
        match wait {
            Wait::Idle if self.protocol.announces_end() => {
                let is_second = self.has_announced_end;
                self.announce_end(link, context);
                // Until the client knows that the connection ends, a request may be on its way.
                if is_second || self.protocol.is_end_agreed() {
                    self.leave(link, context);
                    link.lifecycle.close(Closing::Linger);
                }
                Step::Next
            }
            Wait::Head if self.has_begun_no_request(link) => {
                if !self.leave(link, context) {
                    return Step::End;
                }
                link.lifecycle.close(Closing::Linger);
                Step::Next
            }
            Wait::Head if !link.input.is_empty() || self.protocol.is_in_head() => {
                context.statistics.timeouts += 1;
                Step::Abort
            }
            Wait::Queue => {
                // The connection is read now. If there is no room, each request is refused on its own exchange.
                link.schedule.await_event();
                Step::Next
            }
            _ => Step::End,
        }
    }

    fn expire_exchanges(&mut self, now: Millis, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) {
        let late = self.exchanges.iter().filter(|(_, exchange)| exchange.timer.is_late(now));
        let late: Vec<Index> = late.map(|(index, _)| index).collect();
        for index in late {
            match self.expire_exchange(index, link, context, app) {
                Wait::Output => {
                    context.statistics.timeouts += 1;
                    self.abandon_exchange(index, link, context, app);
                }
                Wait::WebSocket => self.websocket_of(index, link).expire(context),
                _ => {}
            }
        }
        // The sweep has cleared the deadlines of the other exchanges, which are not set again.
        for (_, exchange) in self.exchanges.iter().filter(|(_, exchange)| !exchange.timer.is_late(now)) {
            context.time.sweep.note(exchange.timer.deadline);
        }
    }

    fn forget(&mut self) {
        self.protocol.forget();
    }

    fn release(&mut self, has_left: bool, context: &mut EngineContext<A>, app: &mut A) {
        for index in self.exchanges.indices() {
            self.release_one(index, has_left, context, app);
        }
    }

    fn detach(&mut self, cause: Cause) {
        for index in self.exchanges.indices() {
            self.exchanges.at(index).state.detach(cause);
        }
    }

    fn service(&mut self, health: Health, link: &mut Link<A>, context: &mut EngineContext<A>) -> Service {
        if let Some(service) = watchdog::asks_first(self, link, context) {
            return service;
        }
        if watchdog::answer_first(self, health, link, context) {
            Service::Answered
        } else {
            Service::Done(Serviced::Waits)
        }
    }

    fn refuse_waiting(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        orphans: &mut Vec<(A::Request, Refusal)>,
    ) -> bool {
        // If no exchange is under way, requests that have not been read are refused, too. Otherwise they stay unread:
        // the input after them may concern running calls and so involve the application.
        let before = orphans.len();
        let is_between_exchanges = self.exchanges.is_empty();
        for index in self.exchanges.indices() {
            if let Some((request, terms)) = self.take_request(index, context) {
                orphans.push((request, BUSY));
                self.refuse_exchange(index, BUSY, terms, link, context);
            }
        }
        let has_read = is_between_exchanges && watchdog::refuse_unread_exchanges(self, link, context, buffer);
        link.send_composed(&mut context.statistics);
        has_read || orphans.len() > before
    }
}
