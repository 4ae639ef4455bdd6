//! The calls of a connection: how they start, wait and return, on sessions of both kinds.

use super::Connection;
use super::exchanging::Exchanging;
use super::pausing::{has_client_left, resume};
use super::session::with_session;
use super::step::{Expired, LEFT, NextAction};
use crate::app::{App, Progress};
use crate::context::EngineContext;
use crate::exchange::{Awaited, Cause, Exchange, Index, Input, State, Until};
use crate::observe::Observer;
use crate::reply::Reply;
use crate::transport::Transport;

/// Methods for the thread that runs a call.
impl<A: App> Connection<A> {
    /// Returns the exchange at `index`; `None` if a multiplexed session has no exchange there.
    #[inline]
    pub(crate) fn exchange(&self, index: Index) -> Option<&Exchange<A>> {
        with_session!(&self.session, session => session.exchange(index))
    }

    /// Returns the exchange at `index`, which must be under way.
    #[inline]
    pub(crate) fn exchange_mut(&mut self, index: Index) -> &mut Exchange<A> {
        with_session!(&mut self.session, session => session.exchange_mut(index))
    }

    /// Returns true if the client of a call is known to have left.
    pub(crate) fn has_client_left(&self, index: Index) -> bool {
        self.exchange(index).is_none_or(|exchange| has_client_left(exchange, &self.link))
    }

    /// Queues a request until a thread can call the application.
    pub(crate) fn enqueue(&mut self, index: Index, request: A::Request, context: &mut EngineContext<A>) {
        self.exchange_mut(index).state.enqueue(request);
        context.load.queued += 1;
        // Send the output that was composed before this request; it need not wait for the request.
        self.flush(context);
        self.set_deadlines(context);
        self.link.sending.store(&mut context.scratch);
    }

    /// Returns the queued request, which is to be answered now. Returns `None` if the request no longer waits, or if
    /// its client has left. In the second case the engine sends a refusal that asks the client to try again (it may
    /// have closed only its side), and the caller has to drive the connection.
    pub(crate) fn dequeue(&mut self, index: Index, context: &mut EngineContext<A>, app: &mut A) -> Option<A::Request> {
        if !self.exchange(index).is_some_and(Exchange::is_queued) {
            return None;
        }
        if self.link.transport.has_peer_left() {
            context.statistics.left += 1;
            let Self { link, session } = self;
            with_session!(session, session => session.refuse_request(index, LEFT, link, context, app));
            return None;
        }
        let request = self.exchange_mut(index).state.dequeue()?;
        context.load.queued -= 1;
        self.set_deadlines(context);
        Some(request)
    }

    /// Suspends a response, which is to continue because a message has arrived, until a thread is free.
    pub(crate) fn enqueue_message(&mut self, index: Index, response: A::Response, context: &mut EngineContext<A>) {
        self.exchange_mut(index).state.suspend(response, Until::Thread);
        context.statistics.suspended += 1;
        context.load.queued += 1;
    }

    /// Returns the response that waits for a thread since its message arrived; `None` if no such response waits.
    pub(crate) fn dequeue_message(&mut self, index: Index, context: &mut EngineContext<A>) -> Option<A::Response> {
        if !self.exchange(index).is_some_and(Exchange::has_queued_message) {
            return None;
        }
        context.load.queued -= 1;
        let call = self.link.call(index);
        match resume(self.exchange_mut(index), call, context) {
            NextAction::Resume(_, response) => Some(response),
            _ => None,
        }
    }

    /// Calls `write` with a `Reply`, through which it writes the response.
    #[inline]
    pub(crate) fn reply<R>(
        &mut self,
        index: Index,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut Reply<'_, A>) -> R,
    ) -> R {
        let Self { link, session } = self;
        with_session!(session, session => session.reply(index, link, context, write))
    }

    /// Records the result of a call. The caller has to drive the connection afterwards.
    #[inline]
    pub(crate) fn complete(&mut self, index: Index, progress: Progress<A::Response>, context: &mut EngineContext<A>) {
        let Self { link, session } = self;
        with_session!(session, session => session.complete(index, progress, link, context));
    }

    /// Reads into `buffer` from the part of a body that has arrived. This may make room for more, so the caller has to
    /// drive the connection afterwards.
    pub(crate) fn read(&mut self, index: Index, buffer: &mut [u8], context: &mut EngineContext<A>) -> Input {
        let Self { link, session } = self;
        with_session!(session, session => session.read(index, buffer, link, context))
    }

    /// Answers the client of a call that has missed its deadline. The caller has to drive the connection afterwards.
    ///
    /// The engine cannot end the call itself. Until the call returns, its ticket stays valid and its exchange is kept,
    /// `Detached`. With a serial protocol the connection closes meanwhile, as after any last response, but keeps its
    /// slot.
    ///
    /// This may run in the watchdog's thread, which does not hold the GIL. It drops no object that the application gave
    /// to the engine and calls no method of [`App`].
    pub(crate) fn expire_call(&mut self, index: Index, context: &mut EngineContext<A>) -> Expired {
        let exchange = self.exchange_mut(index);
        if exchange.state.detach_again(Cause::Expired { is_written_off: false }) {
            if let Some(in_flight) = &mut exchange.in_flight {
                in_flight.count_status(&mut context.statistics);
            }
            return Expired::Left;
        }
        if !matches!(exchange.state.view(), State::Running(_)) {
            return Expired::Left;
        }
        context.observer.give_up(self.link.call(index));
        let Self { link, session } = self;
        let expired = with_session!(session, session => session.expire_call(index, link, context));
        self.set_deadlines(context);
        expired
    }

    /// Makes a running call wait until there is input, or the input ends.
    pub(crate) fn wait_for_input(
        &mut self,
        index: Index,
        waiter: A::Waiter,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let of_websocket = self.websocket(index).has_awaited(Awaited::INPUT);
        let exchange = with_session!(&mut self.session, session => session.exchange_mut(index));
        if of_websocket.unwrap_or_else(|| exchange.has_input()) {
            return app.wake(waiter);
        }
        exchange.wait(Awaited::INPUT, waiter);
        self.set_deadlines(context);
    }

    /// Makes a running call wait until the client has read all output, or is gone. The caller has to drive the
    /// connection afterwards, because no attempt to send the output may have been made.
    pub(crate) fn wait_for_output(&mut self, index: Index, waiter: A::Waiter, app: &mut A) {
        let of_websocket = self.websocket(index).has_awaited(Awaited::OUTPUT);
        let Self { link, session } = self;
        let exchange = with_session!(session, session => session.exchange_mut(index));
        let has_output = link.has_output() || exchange.has_backlog();
        let is_over = of_websocket.unwrap_or(!has_output);
        if exchange.is_detached() || is_over {
            return app.wake(waiter);
        }
        exchange.wait(Awaited::OUTPUT, waiter);
    }

    /// Makes a running call wait for any condition of `awaited`. Returns true if the caller has to drive the
    /// connection, because no attempt to send the output may have been made.
    pub(crate) fn wait_for_any(
        &mut self,
        index: Index,
        awaited: Awaited,
        waiter: A::Waiter,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> bool {
        let of_websocket = self.websocket(index).has_awaited(awaited);
        let Self { link, session } = self;
        let exchange = with_session!(session, session => session.exchange_mut(index));
        let is_output_taken = !link.has_output() && !exchange.has_backlog();
        let is_over = awaited.has(Awaited::INPUT) && exchange.has_input()
            || awaited.has(Awaited::OUTPUT) && (is_output_taken || exchange.is_detached())
            || awaited.has(Awaited::DEPARTURE) && has_client_left(exchange, link);
        if of_websocket.unwrap_or(is_over) {
            app.wake(waiter);
            return of_websocket.is_none();
        }
        exchange.wait(awaited, waiter);
        if of_websocket.is_some() {
            // The engine reads from a WebSocket, and sets its deadlines, independent of which call waits.
            return false;
        }
        self.set_deadlines(context);
        true
    }
}
