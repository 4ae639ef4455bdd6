//! The waits of a connection and of its exchanges, and their deadlines.
//!
//! The connection waits for heads, for its peer to take output, and for the end; each exchange for its body, its turn,
//! and its client to take more of its response. While output of the connection waits, only that wait counts: everything
//! that has to follow the output is held up by it, and is not late.

use super::front::HEADER_TIMEOUT_LEAST;
use super::schedule::Schedule;
use super::{BUSY, Closing, Connection, History, Holder, Lifecycle, NextAction, known};
use crate::app::{App, Refusal};
use crate::config::{HIJACK_LINGER, IDLE_AFTER, LINGER, UNUSED_GRACE};
use crate::context::EngineContext;
use crate::deadline::{Millis, Wait, millis};
use crate::exchange::{Awaited, Exchange, Index, State};
use crate::protocol::Protocol;
use std::time::Duration;

/// The refusal sent to a client that was too slow to send.
const SLOW: Refusal = Refusal::of_status(408);

impl<A: App> Connection<A> {
    /// Returns the wait of the connection as a whole.
    fn awaits(&self) -> Wait {
        match self.lifecycle {
            Lifecycle::Gone | Lifecycle::Hijacked { holder: Holder::Call, .. } => Wait::App,
            Lifecycle::Hijacked { holder: Holder::Socket, .. } => Wait::Hijacker,
            _ if self.has_output() => Wait::Output,
            Lifecycle::Linger(_) => Wait::Linger,
            Lifecycle::Closing(_) => Wait::App,
            Lifecycle::Open if self.exchanges.first.has_websocket() => Wait::WebSocket,
            Lifecycle::Open if self.awaits_room() => Wait::Queue,
            Lifecycle::Open if self.awaits_proxy_header() => Wait::ProxyHeader,
            Lifecycle::Open if self.is_multiplexed() && !self.input.is_empty() && self.input.is_exhausted => Wait::Head,
            Lifecycle::Open if self.is_multiplexed() && self.protocol.is_in_head() => Wait::Head,
            Lifecycle::Open if !self.exchanges.is_empty() => Wait::App,
            Lifecycle::Open if self.input.is_empty() && self.history != History::New => Wait::Idle,
            Lifecycle::Open => Wait::Head,
        }
    }

    /// Sets the deadlines of the current waits.
    pub(crate) fn set_deadlines(&mut self, context: &mut EngineContext<A>) {
        let of_websocket = self.websocket_deadline(context);
        let now = context.now;
        let config = &context.config;
        let after =
            |timeout: Option<Duration>| timeout.map_or(Millis::MAX, |timeout| now.saturating_add(millis(timeout)));
        // Once the engine stops, a client that has not sent a complete head has less time.
        let grace = context.phase.grace();
        let graced = |timeout: Option<Duration>| after(timeout).min(after(grace));
        let wait = self.awaits();
        let is_unused = self.is_unused();
        let has_short_grace = self.history == History::New && grace.is_some_and(|grace| grace > UNUSED_GRACE);
        let before = self.timer.turn_to(wait, now);
        if let Some((Wait::Output, passed)) = before {
            self.send.waited += passed;
        }
        let is_new = before.is_some();
        let since = self.timer.since;
        self.timer.deadline = match wait {
            Wait::Idle => graced(config.keep_alive),
            Wait::Head if is_new && is_unused => graced(config.header_timeout).min(Self::unused_until(context)),
            Wait::Head if is_new => graced(config.header_timeout),
            // Its first bytes have arrived: the grace of a connection that is not used ends.
            Wait::Head if has_short_grace && !is_unused => {
                let limit = config.header_timeout.map_or(Millis::MAX, |limit| since.saturating_add(millis(limit)));
                limit.min(after(grace))
            }
            Wait::ProxyHeader if is_new => {
                graced(config.header_timeout.map(|timeout| timeout.max(HEADER_TIMEOUT_LEAST)))
            }
            Wait::Queue if is_new => after(config.queue_timeout),
            Wait::Linger if is_new => after(Some(LINGER)),
            Wait::Hijacker if is_new => after(Some(HIJACK_LINGER)),
            Wait::Head | Wait::ProxyHeader | Wait::Queue | Wait::Linger | Wait::Hijacker => self.timer.deadline,
            // An interrupted transfer continues where it was: the earlier waiting time counts too.
            Wait::Output => {
                let begun = self.timer.since.saturating_sub(self.send.waited);
                let limits = (config.write_timeout, config.min_rate);
                self.timer.transfer(limits, begun, self.send.moved, is_new, now)
            }
            Wait::WebSocket => of_websocket,
            Wait::App | Wait::Body => Millis::MAX,
        };
        let has_nothing_to_note = wait == Wait::Idle && self.history == History::Served;
        let rests_at = if has_nothing_to_note { now + millis(IDLE_AFTER) } else { Millis::MAX };
        context.sweep.note(self.timer.deadline.min(rests_at));
        let is_blocked = matches!(wait, Wait::Output) || self.lifecycle != Lifecycle::Open;
        if self.is_multiplexed() {
            for index in self.exchanges.indices() {
                self.exchanges.at(index).set_deadline(is_blocked, context);
            }
        } else {
            self.exchanges.first.set_deadline(is_blocked, context);
        }
    }

    /// Returns true if the connection waited for its peer to take output when its wait was last determined.
    pub(crate) fn awaits_output(&self) -> bool {
        self.timer.wait == Wait::Output
    }

    /// Returns true if the client of an exchange has not taken all output written for it, or had not when the
    /// exchange's wait was last determined.
    pub(crate) fn awaits_output_of(&self, index: Index) -> bool {
        let waits = |exchange: &Exchange<A>| exchange.has_backlog() || exchange.timer.wait == Wait::Output;
        self.is_multiplexed() && self.exchanges.get(index).is_some_and(waits)
    }

    /// Returns true if no request is in flight that a stop has to wait for: no request has begun, or its head is not
    /// complete.
    ///
    /// An incomplete head is no request yet: the server cannot process it, and its client, which has not sent all of
    /// it, cannot expect that it was processed. When its time is up the client gets 408, which says that the request
    /// was not processed and may be sent again (RFC 9110 section 15.5.9). A request with a complete head is in flight
    /// although its body is incomplete: a client that has sent its POST must not repeat it by itself (RFC 9110 section
    /// 9.2.2). Such a request is bounded by the time limits on a body that stalls or is too slow, and by the time for
    /// the stop as a whole.
    ///
    /// Input that was not parsed, or is kept from being read, may be a complete request.
    pub(crate) fn has_no_request(&self) -> bool {
        let is_looked_at = self.input.is_empty() || self.input.is_exhausted;
        self.is_between_exchanges() && is_looked_at && !self.has_output() && !self.awaits_room()
    }

    /// Returns true if no request is under way and none has begun.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.is_between_exchanges() && self.input.is_empty() && !self.has_output() && !self.awaits_room()
    }

    /// Returns the time since which the connection has waited for the client to send; `None` if it is not the client's
    /// turn to send, or if a call is running.
    pub(crate) fn silent_since(&self) -> Option<Millis> {
        if self.has_calls() || self.is_multiplexed() && !self.exchanges.is_empty() {
            return None;
        }
        let Exchange { timer, .. } = &self.exchanges.first;
        match self.timer.wait {
            Wait::Idle | Wait::Head | Wait::ProxyHeader | Wait::Linger => Some(self.timer.since),
            Wait::App if self.exchanges.first.is_receiving() && timer.wait == Wait::Body => Some(timer.since),
            _ => None,
        }
    }

    /// Returns true if nothing has ever arrived on the connection.
    pub(crate) fn is_unused(&self) -> bool {
        let is_in_head = self.is_multiplexed() && self.protocol.is_in_head();
        self.history == History::New && self.input.is_empty() && !is_in_head
    }

    /// Returns the time at which the connection is closed if nothing arrives on it, once the engine stops.
    pub(crate) fn unused_until(context: &EngineContext<A>) -> Millis {
        context.phase.grace().map_or(Millis::MAX, |grace| context.now.saturating_add(millis(grace.min(UNUSED_GRACE))))
    }

    /// Returns the deadline of the connection's wait.
    pub(crate) fn deadline(&self) -> Millis {
        self.timer.deadline
    }

    /// Brings the deadline forward.
    pub(crate) fn hurry(&mut self, deadline: Millis, context: &mut EngineContext<A>) {
        self.timer.deadline = self.timer.deadline.min(deadline);
        context.sweep.note(self.timer.deadline);
    }

    /// Brings the deadline forward for a request that was held back before it was read, and is queued now.
    pub(crate) fn hurry_queued(&mut self, deadline: Millis, context: &mut EngineContext<A>) {
        let exchange = &mut self.exchanges.first;
        if exchange.is_queued() {
            exchange.timer.deadline = exchange.timer.deadline.min(deadline);
            context.sweep.note(exchange.timer.deadline);
        }
    }

    /// Returns true if the deadline of any wait has passed.
    pub(crate) fn is_late(&self, now: Millis) -> bool {
        self.timer.is_late(now) || self.exchanges.any(|exchange| exchange.timer.is_late(now))
    }

    /// Releases the memory that is kept for speed, if the connection has been idle for a while; otherwise notes the
    /// time of the next check.
    pub(crate) fn rest(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if self.timer.wait != Wait::Idle || self.history != History::Served {
            return;
        }
        let rests_at = self.touched + millis(IDLE_AFTER);
        if rests_at <= context.now {
            self.protocol.forget();
            app.idle(known(&mut self.app));
            self.history = History::Rested;
        } else {
            // Not `rests_at`: with many busy connections the sweep would have to look at every moment.
            context.sweep.note(context.now + millis(IDLE_AFTER));
        }
    }

    /// Notes the time at which the sweep has to look again.
    pub(crate) fn note_deadline(&self, context: &mut EngineContext<A>) {
        context.sweep.note(self.timer.deadline);
        if self.is_multiplexed() {
            for (_, exchange) in self.exchanges.iter() {
                context.sweep.note(exchange.timer.deadline);
            }
        } else {
            context.sweep.note(self.exchanges.first.timer.deadline);
        }
    }

    /// Handles missed deadlines of the connection or of its exchanges. Unless the connection is closed, it has to be
    /// driven.
    pub(crate) fn expire(&mut self, now: Millis, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if self.timer.is_late(now) {
            let action = self.expire_connection(context, app);
            if let NextAction::Close = action {
                self.finish(context, app);
                return action;
            }
        }
        let late = |exchange: &Exchange<A>| exchange.timer.is_late(now);
        if !self.is_multiplexed() {
            if late(&self.exchanges.first) {
                self.expire_exchange_wait(0, context, app);
            }
            return NextAction::Again;
        }
        let indices: Vec<Index> =
            self.exchanges.iter().filter(|(_, exchange)| late(exchange)).map(|(index, _)| index).collect();
        for index in indices {
            self.expire_exchange_wait(index, context, app);
        }
        NextAction::Again
    }

    fn expire_connection(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        self.timer.deadline = Millis::MAX;
        match self.timer.wait {
            Wait::Idle if self.is_multiplexed() && self.protocol.announces_end() => {
                self.announce_end(context);
                self.lifecycle = Lifecycle::Closing(Closing::Linger);
                NextAction::Again
            }
            Wait::Idle | Wait::Linger | Wait::App | Wait::Body => self.end_connection(context, app),
            Wait::WebSocket => {
                self.expire_websocket(context);
                NextAction::Again
            }
            Wait::ProxyHeader => {
                context.statistics.timeouts += u64::from(!self.input.is_empty());
                self.end_connection(context, app)
            }
            Wait::Head if self.input.is_empty() && !(self.is_multiplexed() && self.protocol.is_in_head()) => {
                self.end_connection(context, app)
            }
            Wait::Head => {
                context.statistics.timeouts += 1;
                if self.is_multiplexed() {
                    return self.abort(context, app);
                }
                self.refuse_stored(SLOW, context, app);
                NextAction::Again
            }
            Wait::Queue => {
                self.schedule = Schedule::OnEvent;
                if self.is_multiplexed() {
                    // The connection is read now, and each of its requests is refused on its own exchange if there is
                    // no room.
                    return NextAction::Again;
                }
                context.statistics.queue_timeouts += 1;
                self.refuse_stored(BUSY, context, app);
                NextAction::Again
            }
            Wait::Output | Wait::Hijacker => {
                context.statistics.timeouts += 1;
                self.abort(context, app)
            }
        }
    }

    /// Handles the missed deadline of an exchange's wait.
    fn expire_exchange_wait(&mut self, index: Index, context: &mut EngineContext<A>, app: &mut A) {
        let exchange = self.exchanges.at(index);
        exchange.timer.deadline = Millis::MAX;
        match exchange.timer.wait {
            Wait::Body => {
                context.statistics.timeouts += 1;
                if exchange.is_out() {
                    self.break_body(index, SLOW, app);
                } else {
                    self.refuse_request(index, SLOW, context, app);
                }
            }
            Wait::Queue => {
                context.statistics.queue_timeouts += 1;
                self.refuse_request(index, BUSY, context, app);
            }
            Wait::Output => {
                context.statistics.timeouts += 1;
                self.abandon_exchange(index, context, app);
            }
            Wait::Idle
            | Wait::Head
            | Wait::ProxyHeader
            | Wait::App
            | Wait::Linger
            | Wait::WebSocket
            | Wait::Hijacker => {}
        }
    }
}

impl<A: App> Exchange<A> {
    /// Returns the wait of the exchange. `is_blocked`: its connection waits for something that has to happen before.
    fn awaits(&self, is_blocked: bool) -> Wait {
        match &self.state {
            _ if is_blocked || self.has_websocket() => Wait::App,
            State::Receiving(_) => Wait::Body,
            State::Queued(_) => Wait::Queue,
            _ if self.has_backlog() => Wait::Output,
            // While the application does not read more of the body, the client is not slow.
            State::Running(_) if self.awaits_input() => Wait::Body,
            _ => Wait::App,
        }
    }

    /// Returns true if the call waits for its client to send more of the body.
    fn awaits_input(&self) -> bool {
        self.waiter.as_ref().is_some_and(|(awaited, _)| awaited.has(Awaited::INPUT))
    }

    /// Sets the deadline of the current wait.
    fn set_deadline(&mut self, is_blocked: bool, context: &mut EngineContext<A>) {
        let wait = self.awaits(is_blocked);
        if wait == Wait::App && self.timer.wait == Wait::App {
            return;
        }
        let now = context.now;
        let config = &context.config;
        let before = self.timer.turn_to(wait, now);
        if let (Some((Wait::Body, passed)), Some(incoming)) = (before, &mut self.incoming) {
            incoming.waited += passed;
        }
        let is_new = before.is_some();
        // An interrupted transfer continues where it was: the earlier waiting time counts too.
        self.timer.deadline = match (wait, &self.state, &self.incoming) {
            (Wait::Body, State::Receiving(receiving), _) => {
                let (since, bytes) = (self.timer.since, receiving.spool.length());
                self.timer.transfer((config.body_timeout, config.min_rate), since, bytes, is_new, now)
            }
            (Wait::Body, _, Some(incoming)) => {
                let (begun, bytes) = (self.timer.since.saturating_sub(incoming.waited), incoming.arrived);
                self.timer.transfer((config.body_timeout, config.min_rate), begun, bytes, is_new, now)
            }
            (Wait::Queue, ..) if is_new => {
                config.queue_timeout.map_or(Millis::MAX, |timeout| now.saturating_add(millis(timeout)))
            }
            (Wait::Queue, ..) => self.timer.deadline,
            (Wait::Output, ..) => {
                let taken = self.backlog.as_ref().map_or(0, |backlog| backlog.taken());
                self.timer.transfer((config.write_timeout, config.min_rate), self.timer.since, taken, is_new, now)
            }
            _ => Millis::MAX,
        };
        context.sweep.note(self.timer.deadline);
    }
}
