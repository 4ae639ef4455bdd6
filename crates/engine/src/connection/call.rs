//! The calls of a connection: how they start, wait in the middle, and return, on sessions of both kinds.

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

/// The methods for the thread that runs a call.
impl<A: App> Connection<A> {
    /// Returns the exchange at `index`, if it can be under way.
    #[inline]
    pub(crate) fn exchange(&self, index: Index) -> Option<&Exchange<A>> {
        with_session!(&self.session, session => session.exchange(index))
    }

    /// Returns the exchange at `index`, which must be under way.
    #[inline]
    pub(crate) fn exchange_mut(&mut self, index: Index) -> &mut Exchange<A> {
        with_session!(&mut self.session, session => session.exchange_mut(index))
    }

    /// Returns true if the client of a call has left, as far as the server can tell.
    pub(crate) fn has_client_left(&self, index: Index) -> bool {
        self.exchange(index).is_none_or(|exchange| has_client_left(exchange, &self.link))
    }

    /// Queues a request until a thread can call the application.
    pub(crate) fn enqueue(&mut self, index: Index, request: A::Request, context: &mut EngineContext<A>) {
        self.exchange_mut(index).state.enqueue(request);
        context.load.queued += 1;
        // Output that was composed before this request need not wait as long.
        self.flush(context);
        self.set_deadlines(context);
        self.link.sending.store(&mut context.scratch);
    }

    /// Returns the waiting request, which is to be answered now. `None` if it does not wait any longer, or if its
    /// client has left meanwhile: the engine then tells the client to try again, in case it has only ended its side,
    /// and the connection has to be driven.
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

    /// Has a response that continues because a message has arrived wait for a thread.
    pub(crate) fn enqueue_message(&mut self, index: Index, response: A::Response, context: &mut EngineContext<A>) {
        self.exchange_mut(index).state.suspend(response, Until::Thread);
        context.statistics.suspended += 1;
        context.load.queued += 1;
    }

    /// Returns the response whose message has waited, because a thread is free now; `None` if no message waits.
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

    /// Calls `write` with a `Reply`, through which the response is written.
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

    /// Records how far the application got with a call. The connection has to be driven then.
    #[inline]
    pub(crate) fn complete(&mut self, index: Index, progress: Progress<A::Response>, context: &mut EngineContext<A>) {
        let Self { link, session } = self;
        with_session!(session, session => session.complete(index, progress, link, context));
    }

    /// Reads the part of a body that has arrived. Afterwards there may be room for more: the connection has to be
    /// driven.
    pub(crate) fn read(&mut self, index: Index, buffer: &mut [u8], context: &mut EngineContext<A>) -> Input {
        let Self { link, session } = self;
        with_session!(session, session => session.read(index, buffer, link, context))
    }

    /// Answers the client of a call that has missed its deadline. The connection has to be driven afterwards.
    ///
    /// The engine cannot end the call itself. Its ticket stays valid and its exchange is kept, `Detached`, until it
    /// returns. With a serial protocol the connection ends meanwhile, as after any last response; the slot stays taken.
    ///
    /// This may run in the watchdog's thread, which does not hold the GIL. It drops nothing that the application gave
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

    /// Has a call wait in the middle until there is input, or the input ends.
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

    /// Has a call wait in the middle until the client has taken all output, or is gone. The connection has to be driven
    /// then, because some of the output may not have been sent at all.
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

    /// Has a call wait in the middle for any of `awaited`. Returns true if the connection has to be driven then,
    /// because some output may not have been sent at all.
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
            // The reading and the deadlines of a WebSocket do not depend on which call waits.
            return false;
        }
        self.set_deadlines(context);
        true
    }
}
