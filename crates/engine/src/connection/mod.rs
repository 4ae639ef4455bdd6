//! A connection: it receives requests, serves them, sends responses, and has deadlines.
//!
//! A connection consists of a [link](link), which moves bytes, and a [session](session), which has the protocol and its
//! exchanges. [`Connection::drive`] does everything that is possible without waiting, and sets the deadlines of the
//! next waits. [`lifecycle`] has the states of a connection, [`crate::exchange`] those of an exchange. A connection
//! that has ended while calls of the application still run is `Gone`: it keeps its slot until these calls return.
//!
//! While output waits for the peer, the engine reads, parses and produces nothing for this connection. This is
//! backpressure in both directions. With a serial protocol the engine also does not read the next request while an
//! exchange is under way.

mod bodies;
mod call;
mod deadlines;
mod exchanging;
mod files;
mod front;
mod hijack;
mod input;
mod lifecycle;
mod link;
mod multiplexed;
mod opening;
mod pausing;
mod reception;
mod replying;
mod schedule;
mod sending;
mod serial;
mod session;
mod step;
mod watchdog;
mod websocket;

use crate::app::{App, Refusal, Report, TransportOf};
use crate::config::{CALLS_PER_ROUND, Config, IDLE_AFTER};
use crate::context::{EngineContext, Load};
use crate::deadline::{Millis, Wait, millis};
use crate::exchange::{Exchange, Index};
use crate::health::Health;
use crate::meter;
use crate::net::Peer;
use crate::observe::{Observer, Stage};
use crate::transport::Transport;
use crate::websocket::WebSocketId;
use deadlines::unused_until;
use exchanging::Exchanging;
use lifecycle::{Closing, LinkState};
use link::{History, Link};
use session::{Session, with_session};
use std::any::Any;
use step::Step;
use wire::websocket::AcceptMisuse;

pub(crate) use hijack::end_hijack;
pub use hijack::{HijackId, HijackRefusal, Hijacked};
pub use step::Expired;
pub(crate) use step::{BesideCall, NextAction, Serviced, Share};
pub(crate) use websocket::{MessageOut, WebSocketOf};

pub(crate) struct Connection<A: App> {
    link: Link<A>,
    session: Session<A>,
}

/// The maximum size of a connection in bytes, without its transport and the application's data. Each of ten thousand
/// idle connections takes this memory, so a field has to be worth its size. `tests/test_idle_memory.py` measures the
/// sum.
const BYTES: usize = 632;

impl<A: App> Connection<A> {
    pub(crate) fn new(transport: TransportOf<A>, slot: usize, peer: &Peer, context: &EngineContext<A>) -> Self {
        let of_app = size_of::<Option<A::Connection>>() + size_of::<TransportOf<A>>();
        debug_assert!(size_of::<Self>() <= BYTES + of_app, "{} bytes and {of_app} bytes", size_of::<Self>() - of_app);
        let kind = context.config.protocols.get(peer.listener).copied().unwrap_or_default();
        Self {
            link: Link::new(transport, slot, peer, kind, context),
            session: Session::of_kind(kind, &context.config, context.time.now),
        }
    }

    // ----------------------------------------------------------------------------------------------------------- parts

    #[inline]
    pub(crate) fn link(&self) -> &Link<A> {
        &self.link
    }

    #[inline]
    pub(crate) fn link_mut(&mut self) -> &mut Link<A> {
        &mut self.link
    }

    /// Returns the WebSocket of the exchange at `index`, or its request for one.
    pub(crate) fn websocket(&mut self, index: Index) -> WebSocketOf<'_, A> {
        let Self { link, session } = self;
        match session {
            Session::Serial(session) => session.websocket_of(link),
            Session::Multiplexed(session) => session.websocket_of(index, link),
        }
    }

    // ------------------------------------------------------------------------------------------------------- questions

    /// Returns true if the connection can have several exchanges at a time.
    #[inline]
    pub(crate) fn is_multiplexed(&self) -> bool {
        matches!(self.session, Session::Multiplexed(_))
    }

    /// Returns the number of exchanges that the statistics count as streams; `None` if the protocol has no streams.
    #[inline]
    pub(crate) fn streams(&self) -> Option<usize> {
        match &self.session {
            Session::Serial(_) => None,
            Session::Multiplexed(session) => session.streams(),
        }
    }

    /// Returns what a multiplexed connection has to do while the call that it has begun runs; `None` for a serial one.
    pub(crate) fn beside_call(&self) -> Option<BesideCall> {
        match &self.session {
            Session::Serial(_) => None,
            Session::Multiplexed(session) => Some(session.beside_call(&self.link)),
        }
    }

    /// Returns the connection's share of the calls and of the queue.
    #[inline]
    pub(crate) fn share(&self, config: &Config) -> Share {
        match &self.session {
            Session::Serial(_) => Share { calls: 0, most: usize::MAX, queued: 0 },
            Session::Multiplexed(session) => session.share(self.link.is_of_proxy(), config),
        }
    }

    /// Returns true if a call for this connection has not returned yet, so that the slot must be kept.
    fn has_calls(&self) -> bool {
        with_session!(&self.session, session => session.has_calls())
    }

    /// Returns true if the peer is gone and the connection exists only because calls have not returned.
    pub(crate) fn is_left_over(&self) -> bool {
        self.link.lifecycle.is_gone() && self.has_calls()
    }

    /// Returns true if the peer is gone and only calls are left that were [written off](crate::Engine::write_off).
    pub(crate) fn is_written_off(&self) -> bool {
        let has_other = |session: &Session<A>| with_session!(session, it => it.any(|it| !it.is_written_off()));
        self.is_left_over() && !has_other(&self.session)
    }

    /// Returns true if no exchange is under way and a new one could begin.
    fn is_between_exchanges(&self) -> bool {
        self.link.lifecycle.is_open() && with_session!(&self.session, session => session.is_empty())
    }

    /// Returns true if the connection may need much work, because it receives a body or its last turn took much work.
    /// The engine serves other connections first.
    pub(crate) fn is_bulk(&self) -> bool {
        self.link.was_busy()
            || match self.link.lifecycle.state() {
                LinkState::Linger(_) => true,
                LinkState::Open => with_session!(&self.session, session => session.is_receiving_body()),
                LinkState::Closing(_) | LinkState::Hijacked { .. } | LinkState::Gone => false,
            }
    }

    /// Returns true if no request has been read from the connection yet.
    pub(crate) fn is_new(&self) -> bool {
        let is_untouched =
            self.link.history() == History::New && !self.link.schedule.awaits_room() && !self.link.has_output();
        is_untouched && self.is_between_exchanges()
    }

    /// Returns true if there is no request in flight for which a stop has to wait: none has begun, or its head is
    /// incomplete.
    ///
    /// An incomplete head is no request yet: the server cannot process it, and its client, which has not sent all of
    /// it, cannot expect that it was processed. When the time is up, the client receives 408, which says that the
    /// request was not processed and may be sent again (RFC 9110 section 15.5.9). A request with a complete head is in
    /// flight although its body is incomplete: a client that has sent a POST must not repeat it automatically (RFC 9110
    /// section 9.2.2). Such a request is bounded by the time limits on a stalled or slow body, and by the time limit of
    /// the stop.
    ///
    /// Input that was not parsed, or was not read because the queue is full, may be a complete request.
    pub(crate) fn has_no_request(&self) -> bool {
        let is_looked_at = self.link.input.is_empty() || self.link.input.is_exhausted();
        self.is_between_exchanges() && is_looked_at && !self.link.has_output() && !self.link.schedule.awaits_room()
    }

    /// Returns true if no request is under way and none has begun to arrive.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.is_between_exchanges()
            && self.link.input.is_empty()
            && !self.link.has_output()
            && !self.link.schedule.awaits_room()
    }

    /// Returns true if nothing has ever arrived on the connection.
    pub(crate) fn is_unused(&self) -> bool {
        self.link.is_unused() && !with_session!(&self.session, session => session.is_in_head())
    }

    /// Returns the time since which the connection has waited for input from the client; `None` if it does not wait for
    /// input, or if a call is running.
    pub(crate) fn silent_since(&self) -> Option<Millis> {
        let first = self.exchange(0).filter(|_| !self.is_multiplexed());
        match self.link.timer.wait {
            _ if self.has_calls() || self.is_multiplexed() && !self.is_between_exchanges() => None,
            Wait::Idle | Wait::Head | Wait::ProxyHeader | Wait::Linger => Some(self.link.timer.since),
            Wait::App => {
                let receiving = first.filter(|first| first.is_receiving() && first.timer.wait == Wait::Body);
                receiving.map(|first| first.timer.since)
            }
            _ => None,
        }
    }

    // --------------------------------------------------------------------------------------------------------- driving

    /// Stores the application's data for the connection, and ends the connection if its peer may not connect here.
    pub(crate) fn introduce(&mut self, data: A::Connection, context: &mut EngineContext<A>, app: &mut A) {
        self.link.introduce(data);
        self.link.reject_if_forbidden(context, app);
    }

    /// Does everything that is possible without waiting, and sets the deadlines of the next waits.
    pub(crate) fn drive(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> NextAction<A> {
        context.meter.begin_turn();
        // If there is much to do, a connection that has already begun a call in this round lets other connections go
        // first.
        let most_calls = if context.meter.is_stage_over() { 1 } else { CALLS_PER_ROUND };
        let has_turn = self.link.begin_turn(context.time.now, context.time.round, most_calls);
        let mut action = NextAction::Again;
        while has_turn && !context.meter.is_turn_over() {
            context.meter.charge(meter::STEP);
            let Self { link, session } = self;
            match with_session!(session, session => session.step(link, context, buffer, app)) {
                Step::Next => {}
                Step::Become(kind) => *session = Session::of_kind(kind, &context.config, context.time.now),
                Step::Stop(stop) => {
                    action = stop;
                    break;
                }
                step => {
                    action = self.end_by(&step, context, app);
                    break;
                }
            }
        }
        match action {
            // A step that stops to wait has just flushed. A second flush could send the output for which the connection
            // waits, and then no event would drive the connection again.
            NextAction::Again if !self.flush(context) => action = self.abort(context, app),
            // Output composed for earlier requests is sent together with the response to this one, if that is ready
            // within a tick.
            NextAction::Call(..) => self.link.sending.defer(&mut context.coalescing.deferred, self.link.slot()),
            _ => {}
        }
        self.link.end_turn(context.meter.is_bulk(), &mut context.handshakes);
        if context.observer.is_some() {
            self.observe_wait(&action, context);
        }
        if let NextAction::Close = action {
            if self.link.sending.has_file_shrunk() {
                context.statistics.cut += 1;
                app.report(Report::FileShrank);
            }
            self.finish(context, app);
        } else {
            self.set_deadlines(context);
            self.rest_in_crowd(context, app);
        }
        self.link.sending.store(&mut context.scratch);
        action
    }

    /// Ends the connection, if the result of a step requires it.
    fn end_by(&mut self, step: &Step<A>, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        match step {
            Step::Next | Step::Become(_) | Step::Stop(_) => NextAction::Again,
            Step::Abort => self.abort(context, app),
            Step::End => self.end(context, app),
            Step::Leave => self.leave(context, app),
        }
    }

    /// Tells the observer what the request that is being received now waits for.
    #[cold]
    fn observe_wait(&self, action: &NextAction<A>, context: &mut EngineContext<A>) {
        let receiving = with_session!(&self.session, session => session.receiving());
        let receiving = receiving.filter(|_| self.link.lifecycle.is_open());
        let (index, stage) = match (action, receiving) {
            (NextAction::Call(index, _), _) => (*index, Stage::Queue),
            (NextAction::AwaitRoom | NextAction::Again, Some(index)) => (index, Stage::Queue),
            (NextAction::Wait, Some(index)) => (index, Stage::Peer),
            _ => return,
        };
        context.observer.switch(self.link.call(index), stage);
    }

    /// Sends the output. Returns false if the peer is gone.
    fn flush(&mut self, context: &mut EngineContext<A>) -> bool {
        let Self { link, session } = self;
        with_session!(session, session => session.flush(link, context))
    }

    /// Makes the poller report when the transport has input and, if there is output, when it accepts output again.
    /// Returns false if that failed.
    #[inline]
    pub(crate) fn watch(&mut self, net: &mut A::Net) -> bool {
        let (has_output, slot) = (self.link.has_output(), self.link.slot());
        self.link.schedule.watch(net, &self.link.transport, slot, has_output)
    }

    /// Makes the connection wait for room in the queue of requests: a request may have arrived that cannot be queued
    /// now.
    pub(crate) fn await_room(&mut self, context: &mut EngineContext<A>) {
        self.link.schedule.await_room();
        self.set_deadlines(context);
    }

    /// Records that the connection was read before there was room, and no longer waits for room.
    pub(crate) fn stop_awaiting_room(&mut self, context: &mut EngineContext<A>) {
        self.link.schedule.stop_awaiting_room();
        self.set_deadlines(context);
    }

    // ------------------------------------------------------------------------------------------------------- deadlines

    /// Sets the deadlines of the current waits.
    pub(crate) fn set_deadlines(&mut self, context: &mut EngineContext<A>) {
        let now = context.time.now;
        let Self { link, session } = self;
        if let Session::Serial(session) = session
            && session.awaits_call_alone(link)
        {
            link.timer.deadline = Millis::MAX;
            return;
        }
        if let Session::Multiplexed(session) = session {
            session.count_streams(&mut context.statistics);
        }
        with_session!(session, session => {
            let websocket = session.websocket_deadline(&context.config, now);
            let wait = link.awaits().unwrap_or_else(|| session.awaits(link));
            let is_unused = wait == Wait::Head && link.is_unused() && !session.is_in_head();
            link.set_deadline(wait, is_unused, websocket, context);
            session.set_deadlines(link.is_blocked(), &context.config, &mut context.time);
        });
    }

    /// Returns true if the client of the exchange at `index` has output to read, or had when the wait was last
    /// determined. The output may belong to the connection or to the exchange.
    #[inline]
    pub(crate) fn awaits_output(&self, index: Index) -> bool {
        let waits = |exchange: &Exchange<A>| exchange.has_backlog() || exchange.timer.wait == Wait::Output;
        self.link.awaits_output() || self.exchange(index).is_some_and(waits)
    }

    /// Moves the deadline of a connection without a request forward, because the engine stops: to `until`, or earlier
    /// if nothing has ever arrived on the connection.
    pub(crate) fn hurry(&mut self, until: Millis, context: &mut EngineContext<A>) {
        let unused = unused_until(context.time.now, context.load.phase.grace());
        self.link.hurry(if self.is_unused() { unused } else { until }, &mut context.time);
    }

    /// Moves the deadline of a queued request forward to `deadline`, because the request already waited before it was
    /// read.
    pub(crate) fn hurry_queued(&mut self, deadline: Millis, context: &mut EngineContext<A>) {
        if self.exchange(0).is_some_and(Exchange::is_queued) {
            let timer = &mut self.exchange_mut(0).timer;
            timer.deadline = timer.deadline.min(deadline);
            context.time.sweep.note(timer.deadline);
        }
    }

    /// Returns true if the client has missed the deadline of any wait. `delay` is the time for which the check is late:
    /// see [`Timer::is_missed`](crate::deadline::Timer::is_missed).
    pub(crate) fn is_late(&mut self, delay: Millis, now: Millis) -> bool {
        self.link.timer.is_missed(delay, now)
            || with_session!(&mut self.session, session => session.is_late(delay, now))
    }

    /// Tells the sweep when to check this connection again. If the connection has been idle for a while, frees the
    /// memory that it keeps for speed, and returns true.
    pub(crate) fn look_at_idle(&mut self, context: &mut EngineContext<A>, app: &mut A) -> bool {
        context.time.sweep.note(self.link.timer.deadline);
        with_session!(&self.session, session => session.note_deadlines(&mut context.time.sweep));
        let Some(since) = self.link.may_rest_since() else { return false };
        let rests = since + millis(IDLE_AFTER) <= context.time.now;
        if rests {
            self.rest(&mut context.load, app);
        } else {
            // Not the exact time: with many busy connections the sweep would then run all the time.
            context.time.sweep.note(context.time.now + millis(IDLE_AFTER));
        }
        rests
    }

    /// Frees the memory that is kept only for speed, if the connection is idle and many others keep theirs.
    #[inline]
    pub(crate) fn rest_in_crowd(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if self.link.may_rest_since().is_some() && !self.link.keep_warm(context.config.warm, &mut context.load) {
            self.rest(&mut context.load, app);
        }
    }

    /// Frees the memory that is kept only for speed.
    fn rest(&mut self, load: &mut Load, app: &mut A) {
        with_session!(&mut self.session, session => session.forget());
        app.idle(self.link.app_data());
        self.link.rest(load);
    }

    /// Handles missed deadlines of the connection and of its exchanges. Unless the connection is closed, the caller has
    /// to drive it afterwards.
    pub(crate) fn expire(&mut self, now: Millis, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if self.link.timer.is_late(now) {
            let action = self.expire_wait(context, app);
            if let NextAction::Close = action {
                self.finish(context, app);
                return action;
            }
        }
        let Self { link, session } = self;
        with_session!(session, session => session.expire_exchanges(now, link, context, app));
        NextAction::Again
    }

    /// Handles the missed deadline of the connection's wait.
    fn expire_wait(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        let Self { link, session } = self;
        link.timer.deadline = Millis::MAX;
        let step = match link.timer.wait {
            Wait::Linger | Wait::App | Wait::Body => Step::End,
            Wait::ProxyHeader => {
                context.statistics.timeouts += u64::from(!link.input.is_empty());
                Step::End
            }
            Wait::Output | Wait::Hijacker => {
                context.statistics.timeouts += 1;
                Step::Abort
            }
            wait @ (Wait::Idle | Wait::Head | Wait::Queue | Wait::WebSocket) => {
                with_session!(session, session => session.expire(wait, link, context, app))
            }
        };
        self.end_by(&step, context, app)
    }

    // ------------------------------------------------------------------------------------------------------------- end

    /// Ends the connection because the peer is gone, or because it must see that a response is incomplete. The
    /// connection is closed once its running calls have returned.
    fn abort(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if let LinkState::Hijacked { .. } = self.link.lifecycle.state() {
            // This also ends the connection for threads of the application that wait for the client.
            self.link.transport.shut_down();
            return self.leave(context, app);
        }
        with_session!(&mut self.session, session => session.exchange_mut(0).lose_websocket());
        self.link.transport.reset_on_drop();
        if !self.has_calls() {
            return NextAction::Close;
        }
        self.link.transport.cut();
        self.leave(context, app)
    }

    /// Ends the connection because nothing more has to be sent to the peer. The connection is closed once its running
    /// calls have returned.
    fn end(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if !self.has_calls() {
            return NextAction::Close;
        }
        if self.link.lifecycle.state() == LinkState::Closing(Closing::Reset) {
            self.link.transport.cut();
        }
        self.leave(context, app)
    }

    /// Gives up the peer, and keeps the connection for its running calls.
    fn leave(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        self.link.lose();
        if !self.has_calls() {
            return NextAction::Close;
        }
        with_session!(&mut self.session, session => session.release(true, context, app));
        NextAction::Wait
    }

    /// Cuts all exchanges under way. The slot stays if a call is running.
    pub(crate) fn cut(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        let only_lingers = matches!(self.link.lifecycle.state(), LinkState::Linger(_)) && !self.has_calls();
        if self.is_between_requests() || only_lingers {
            return NextAction::Close;
        }
        let has_expired = with_session!(&self.session, session => session.any(Exchange::is_expired));
        if !self.link.lifecycle.is_gone() && !has_expired {
            context.statistics.cut += 1;
        }
        let action = self.abort(context, app);
        if let NextAction::Close = action {
            self.finish(context, app);
        }
        action
    }

    /// Gives up the exchanges of a connection that has ended.
    fn finish(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        self.link.sending.drop_composed(&mut context.scratch);
        self.link.transport.end_held_output();
        self.link.lifecycle.lose();
        with_session!(&mut self.session, session => {
            if !session.is_empty() {
                session.release(true, context, app);
            }
        });
    }

    /// Gives up a connection after a panic in the code that drives it. Returns true if the slot has to be kept because
    /// a call is running.
    pub(crate) fn give_up(&mut self, context: &mut EngineContext<A>, app: &mut A) -> bool {
        if self.has_calls() {
            self.abort(context, app);
            return true;
        }
        self.link.transport.reset_on_drop();
        // The application must also be told about the other exchanges on the connection, which did not cause the panic.
        self.finish(context, app);
        false
    }

    // --------------------------------------------------------------------------------------------------------- upgrade

    /// Gives the application the connection of a request that asks for a WebSocket; the application then answers the
    /// request itself. The caller has to drive the connection afterwards.
    pub(crate) fn hijack(
        &mut self,
        index: Index,
        net: &mut A::Net,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Result<Hijacked, HijackRefusal> {
        let Session::Serial(session) = &mut self.session else { return Err(HijackRefusal::Over) };
        let hijacked = hijack::hijack(session.exchange_mut(index), &mut self.link, context)?;
        self.link.schedule.unwatch(net, &self.link.transport);
        self.rest(&mut context.load, app);
        Ok(hijacked)
    }

    /// Accepts the WebSocket that a request asks for. Returns `None` if the client has gone. The caller has to drive
    /// the connection afterwards.
    pub(crate) fn accept_websocket<'f>(
        &mut self,
        index: Index,
        answer: (Option<&str>, impl IntoIterator<Item = (&'f [u8], &'f [u8])>),
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Result<Option<WebSocketId>, AcceptMisuse> {
        let accepted = self.websocket(index).accept(index, answer, context)?;
        if accepted.is_some() && !self.is_multiplexed() {
            // No further head arrives on this connection.
            self.rest(&mut context.load, app);
        }
        Ok(accepted)
    }

    // -------------------------------------------------------------------------------------------------------- watchdog

    /// Answers a connection on which no request has been read yet, if its input is a health check. Other requests stay
    /// in the input, unchanged.
    pub(crate) fn service_pending(
        &mut self,
        health: Health,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
    ) -> Serviced {
        let Self { link, session } = self;
        let serviced = match session {
            Session::Serial(session) => watchdog::service(session, health, link, context, buffer),
            Session::Multiplexed(session) => watchdog::service(&mut **session, health, link, context, buffer),
        };
        // The thread that drives the connection next begins with the input kept here, whether or not a request is in it:
        // a web server may wait for the answer to its FastCGI GET_VALUES.
        link.input.set_exhausted(false);
        if serviced == Serviced::Over {
            link.sending.discard();
            if link.is_introduced() {
                // It may take a while until the transport is dropped.
                link.transport.end_output();
            }
        } else {
            self.set_deadlines(context);
        }
        self.link.sending.store(&mut context.scratch);
        serviced
    }

    /// Answers waiting requests with 503, while no thread can poll the engine. Adds the requests that must be reported
    /// to the application to `orphans`. Returns true if the caller has to drive the connection.
    pub(crate) fn refuse_waiting(
        &mut self,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        orphans: &mut Vec<(A::Request, Refusal)>,
    ) -> bool {
        let Self { link, session } = self;
        // The response before this request may not have been sent.
        if link.has_output() || link.sending.has_composed() || !link.lifecycle.is_open() {
            return false;
        }
        let refused = with_session!(session, session => session.refuse_waiting(link, context, buffer, orphans));
        self.set_deadlines(context);
        refused
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
