//! Exchanges: each is one request and its response.
//!
//! An exchange is `Running` while the application runs its call. It is `Detached` while the call runs but the engine
//! discards its output. In both states the connection keeps the exchange's index, because a [`Ticket`](crate::Ticket)
//! refers to it. [`state`] has the table of all transitions, docs/design/engine.md its diagram.

mod backlog;
mod collection;
mod incoming;
mod state;

pub(crate) use backlog::Backlog;
pub(crate) use collection::Exchanges;
pub(crate) use incoming::Incoming;
pub use incoming::Input;
pub(crate) use state::{Cause, Detached, ExchangeState, State, Until};

use crate::app::{App, Refusal, SenderOf, TermsOf};
use crate::compression::Offer;
use crate::config::Config;
use crate::context::{EngineContext, Load, Time};
use crate::deadline::{Millis, Timer, Wait, millis};
use crate::in_flight::InFlight;
use crate::memory::Reservation;
use crate::meter::{self, Meter};
use crate::protocol::StreamId;
use crate::statistics::Statistics;
use crate::websocket::{Upgrade, WebSocket};
use std::io;

/// The index of an exchange on its connection.
pub(crate) type Index = u32;

/// An exchange: one request and its response.
pub(crate) struct Exchange<A: App> {
    /// The number by which a multiplexed protocol identifies the exchange.
    pub(crate) stream: StreamId,
    pub(crate) state: ExchangeState<A>,
    /// The body of the request, if the application reads it as it arrives.
    pub(crate) incoming: Option<Box<Incoming>>,
    /// The reservation of memory for a buffered body. The application keeps the body until the response is complete.
    pub(crate) body_memory: Option<Reservation>,
    /// The response, from its head to its end.
    pub(crate) in_flight: Option<InFlight<SenderOf<A>>>,
    /// The part of the response that the client's window does not admit yet, if each exchange has its own window.
    pub(crate) backlog: Option<Box<Backlog<A::Chunk>>>,
    /// The WebSocket that the exchange has become, or the request for one.
    pub(crate) upgrade: Option<Box<Upgrade<A::Message>>>,
    /// The content coding that the client accepts for the response.
    pub(crate) offer: Offer,
    /// The thread or greenlet that waits during the call, and the conditions for which it waits.
    waiter: Option<(Awaited, A::Waiter)>,
    pub(crate) timer: Timer,
    /// True if the exchange may have changed since its deadline was set. [`Exchanges::at`] sets this.
    is_changed: bool,
}

/// A set of conditions. A call that waits for the set continues when any of them is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited(u8);

impl Awaited {
    /// A read returns a result: a part of the body, its end, or an error because the rest will not arrive.
    pub const INPUT: Self = Self(1);
    /// The client has read all output, or is gone.
    pub const OUTPUT: Self = Self(2);
    /// The client has closed its side of the connection, or is gone.
    pub const DEPARTURE: Self = Self(4);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the two sets have a condition in common.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl<A: App> Exchange<A> {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            stream: 0,
            state: ExchangeState::new(),
            incoming: None,
            body_memory: None,
            in_flight: None,
            backlog: None,
            upgrade: None,
            offer: Offer::default(),
            waiter: None,
            timer: Timer::new(now),
            is_changed: true,
        }
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state.view(), State::Free)
    }

    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.state.view(), State::Receiving(_))
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state.view(), State::Running(_))
    }

    /// Returns true if the request, or a message of the WebSocket, waits for a thread that can call the application.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state.view(), State::Queued(_)) || self.has_queued_message()
    }

    /// Returns true if a message of the WebSocket waits for a thread.
    pub(crate) fn has_queued_message(&self) -> bool {
        self.state.until() == Some(Until::Thread)
    }

    /// Returns true if the application runs a call for this exchange, so that its index must be kept.
    #[inline]
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state.view(), State::Running(_) | State::Detached(_))
    }

    /// Returns true if the output of the call is discarded.
    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.state.view(), State::Detached(_))
    }

    /// Returns the reason why the output of the call is discarded; `None` if the output is not discarded.
    pub(crate) fn cause(&self) -> Option<Cause> {
        if let State::Detached(detached) = self.state.view() { Some(detached.cause) } else { None }
    }

    /// Returns true if the running call has missed its deadline.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self.cause(), Some(Cause::Expired { .. }))
    }

    /// Returns true if the application has hijacked the connection.
    pub(crate) fn is_hijacked(&self) -> bool {
        self.cause() == Some(Cause::Hijacked)
    }

    /// Returns true if only a call is left that is not expected to return.
    pub(crate) fn is_written_off(&self) -> bool {
        self.cause() == Some(Cause::Expired { is_written_off: true })
    }

    /// Records that the call is not expected to return, if it has missed its deadline.
    pub(crate) fn write_off(&mut self) {
        if self.is_expired() {
            self.state.detach_again(Cause::Expired { is_written_off: true });
        }
    }

    /// Returns true if the call is running, no part of its response has been written, and its client is not known to be
    /// gone.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.in_flight.is_none() && self.is_running() && !self.has_websocket()
    }

    /// Removes and returns a request for which the application has not been called; the exchange is free then. Returns
    /// `None` if there is no such request.
    pub(crate) fn take_request(&mut self, load: &mut Load) -> Option<(A::Request, TermsOf<A>)> {
        let terms = self.state.terms()?;
        match self.state.view() {
            State::Receiving(_) => {}
            State::Queued(_) => {
                load.queued -= 1;
                self.body_memory = None;
                self.upgrade = None;
            }
            _ => return None,
        }
        match self.state.end() {
            State::Receiving(receiving) => Some((receiving.request, terms)),
            State::Queued(queued) => Some((queued.request, terms)),
            _ => None,
        }
    }

    // ------------------------------------------------------------------------------------------------------------ body

    /// Stores a part of a body that is received as a whole.
    ///
    /// # Errors
    /// If the part cannot be written to the body's file.
    pub(crate) fn keep(&mut self, bytes: &[u8], body_memory: usize, meter: &mut Meter) -> io::Result<()> {
        let Some(spool) = self.state.spool().filter(|_| !bytes.is_empty()) else { return Ok(()) };
        if spool.push(bytes, body_memory)? {
            meter.charge(meter::WRITE);
        }
        Ok(())
    }

    /// Returns true if the engine may receive more of the request's body now.
    pub(crate) fn wants_body(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.wants_more())
    }

    /// Returns true if the whole body has arrived, or there is none.
    pub(crate) fn is_body_here(&self) -> bool {
        self.incoming.as_ref().is_none_or(|incoming| incoming.has_ended())
    }

    /// Returns true if the call could read from the body without waiting.
    pub(crate) fn has_input(&self) -> bool {
        self.incoming.as_ref().is_none_or(|incoming| incoming.has_something())
    }

    /// Returns true, once, if the client waits for 100 (Continue), the call reads the body, and no part of the response
    /// has been written.
    pub(crate) fn take_expectation(&mut self) -> bool {
        let takes = self.incoming.as_mut().is_some_and(|incoming| incoming.take_expectation());
        takes && self.in_flight.is_none()
    }

    /// Reads into `buffer` from the part of the body that has arrived.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Input {
        self.incoming.as_mut().map_or(Input::End, |incoming| incoming.read(buffer))
    }

    /// Ends a body that a call reads, because the rest will not arrive, and wakes the call.
    pub(crate) fn break_body(&mut self, refusal: Refusal, app: &mut A) {
        self.end_body(refusal);
        self.wake(Awaited::INPUT, app);
    }

    /// Ends a body that a call reads, because the rest will not arrive, without waking the call.
    pub(crate) fn end_body(&mut self, refusal: Refusal) {
        if let Some(incoming) = &mut self.incoming {
            incoming.end(refusal);
        }
    }

    // -------------------------------------------------------------------------------------------------------- response

    /// Counts the status of the response, if the client receives it.
    pub(crate) fn count_status(&mut self, statistics: &mut Statistics) {
        let was_written = !self.is_expired() && !self.has_websocket();
        if let Some(in_flight) = &mut self.in_flight
            && was_written
        {
            in_flight.count_status(statistics);
        }
    }

    /// Returns true if a part of the response waits for room in the window of this exchange.
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| !backlog.is_empty())
    }

    /// Returns true if the client has been sent the end of the response, or nothing of the response waits.
    pub(crate) fn is_sent(&self) -> bool {
        self.backlog.as_ref().is_none_or(|backlog| backlog.is_complete())
    }

    /// Drops the rest of the request and of the response, except the output that waits for the client.
    pub(crate) fn drop_all_but_backlog(&mut self) {
        self.incoming = None;
        self.body_memory = None;
        self.in_flight = None;
    }

    /// Drops everything that the exchange holds.
    pub(crate) fn clear(&mut self) {
        self.drop_all_but_backlog();
        self.backlog = None;
        self.upgrade = None;
    }

    // ------------------------------------------------------------------------------------------------------- WebSocket

    /// Returns true if the exchange is an open WebSocket.
    #[inline]
    pub(crate) fn has_websocket(&self) -> bool {
        self.upgrade.as_deref().is_some_and(|upgrade| matches!(upgrade, Upgrade::Open(_)))
    }

    pub(crate) fn websocket(&mut self) -> Option<&mut WebSocket<A::Message>> {
        self.upgrade.as_mut().and_then(|upgrade| upgrade.websocket())
    }

    /// Ends the WebSocket, if the exchange is one, because the peer is gone, or must see that messages are missing.
    pub(crate) fn lose_websocket(&mut self) {
        if let Some(websocket) = self.websocket() {
            websocket.lose();
        }
    }

    // --------------------------------------------------------------------------------------------------------- waiting

    /// Sets the waiter of the call: `waiter` is woken once, when any condition of `awaited` holds. It replaces the
    /// previous waiter.
    pub(crate) fn wait(&mut self, awaited: Awaited, waiter: A::Waiter) {
        self.waiter = Some((awaited, waiter));
    }

    /// Returns true if the call waits for a condition.
    #[inline]
    pub(crate) fn has_waiter(&self) -> bool {
        self.waiter.is_some()
    }

    /// Returns true if the call waits for any of these conditions.
    pub(crate) fn waits_for(&self, awaited: Awaited) -> bool {
        self.waiter.as_ref().is_some_and(|(what, _)| what.has(awaited))
    }

    /// Wakes the call if it waits for any of these conditions.
    pub(crate) fn wake(&mut self, awaited: Awaited, app: &mut A) {
        if let Some((_, waiter)) = self.waiter.take_if(|(what, _)| what.has(awaited)) {
            app.wake(waiter);
        }
    }

    /// Wakes the call if it still waits, because the condition can no longer become true.
    pub(crate) fn release(&mut self, app: &mut A) {
        if let Some((_, waiter)) = self.waiter.take() {
            app.wake(waiter);
        }
    }

    /// Removes the waiter of a call that has already stopped waiting for another reason.
    pub(crate) fn stop_waiting(&mut self) {
        self.waiter = None;
    }

    /// Returns the wait of the exchange.
    pub(crate) fn awaits(&self) -> Wait {
        match self.state.view() {
            State::Queued(_) => Wait::Queue,
            _ if self.has_websocket() && !self.has_backlog() => Wait::App,
            State::Receiving(_) => Wait::Body,
            _ if self.has_backlog() => Wait::Output,
            // While the application does not read more of the body, the client is not slow.
            State::Running(_) if self.waits_for(Awaited::INPUT) => Wait::Body,
            _ => Wait::App,
        }
    }

    /// Sets the deadline of the current wait, which [`awaits`](Self::awaits) returned. If `is_blocked`, the connection
    /// waits for something that has to happen first, so the time of a transfer is held. The time in the queue passes.
    #[inline]
    pub(crate) fn settle_deadline(&mut self, wait: Wait, is_blocked: bool, config: &Config, time: &mut Time) {
        if is_blocked && matches!(wait, Wait::Body | Wait::Output) {
            self.hold(wait, Millis::MAX, config, time);
        } else {
            self.set_deadline(wait, config, time);
        }
    }

    /// Sets the deadline of the current wait.
    fn set_deadline(&mut self, wait: Wait, config: &Config, time: &mut Time) {
        if wait == Wait::App && self.timer.wait == Wait::App {
            return;
        }
        let now = time.now;
        self.timer.release(now);
        let before = self.timer.turn_to(wait, now);
        if let (Some((Wait::Body, passed)), Some(incoming)) = (before, &mut self.incoming) {
            incoming.waited += passed;
        }
        let is_new = before.is_some();
        // An interrupted transfer continues its measurement: the time that it waited before counts, too.
        self.timer.deadline = match (wait, self.state.view(), &self.incoming) {
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
        time.sweep.note(self.timer.deadline);
    }

    /// Sets the deadline of a transfer that cannot proceed before those of other exchanges.
    pub(crate) fn hold(&mut self, wait: Wait, deadline: Millis, config: &Config, time: &mut Time) {
        if self.timer.wait != wait {
            self.set_deadline(wait, config, time);
        }
        self.timer.hold(deadline, time.now);
        time.sweep.note(deadline);
    }

    /// Gives up a request for which the application has not been called, or a suspended response. The exchange is free
    /// afterwards.
    pub(crate) fn give_up(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        match self.state.end() {
            State::Receiving(receiving) => app.abandon_request(receiving.request, None),
            State::Queued(queued) => {
                context.load.queued -= 1;
                app.abandon_request(queued.request, None);
            }
            State::Suspended(suspended) => {
                context.statistics.suspended -= 1;
                context.load.queued -= usize::from(suspended.until == Until::Thread);
                context.abandoned.push(suspended.response);
                self.release(app);
            }
            State::Free | State::Finishing(_) | State::Running(_) | State::Detached(_) => {}
        }
    }
}
