//! The calls of a connection: how they start, write, wait in the middle, and return.

use super::{BUSY, Closing, Connection, Lifecycle, NextAction};
use crate::app::{App, Progress};
use crate::context::EngineContext;
use crate::exchange::{Awaited, Exchange, Index, Queued, State, Suspended, Until};
use crate::observe::{Observer, Stage};
use crate::protocol::{Protocol, ResponseSender};
use crate::reply::{Loss, Reply};
use crate::transport::Transport;
use wire::message::Fault;

impl<A: App> Connection<A> {
    /// Returns true if the call of a request is running, no part of its response has been written, and its client has
    /// not been found to be gone.
    pub(crate) fn is_unanswered(&self, index: Index) -> bool {
        let exchange = self.exchanges.get(index);
        exchange.is_some_and(|exchange| {
            exchange.in_flight.is_none() && matches!(exchange.state, State::Running(_)) && !exchange.has_websocket()
        })
    }

    /// Returns true if the output of a call is discarded.
    pub(crate) fn is_detached(&self, index: Index) -> bool {
        self.exchanges.get(index).is_none_or(|exchange| matches!(exchange.state, State::Detached(_)))
    }

    /// Has a request wait for a thread that calls the application.
    pub(crate) fn enqueue(&mut self, index: Index, request: A::Request, context: &mut EngineContext<A>) {
        let exchange = self.exchanges.at(index);
        let State::Running(facts) = exchange.state else { return };
        exchange.state = State::Queued(Box::new(Queued { request, facts }));
        context.queued += 1;
        // Output that was composed before this request need not wait as long.
        self.flush(context);
        self.set_deadlines(context);
        self.store(context);
    }

    /// Returns the waiting request, which is to be answered now. `None` if its client has left meanwhile: the engine
    /// then tells the client to try again, in case it has only ended its side, and the connection has to be driven.
    pub(crate) fn dequeue(&mut self, index: Index, context: &mut EngineContext<A>, app: &mut A) -> Option<A::Request> {
        if !self.is_queued(index) {
            return None;
        }
        if self.transport.has_peer_left() {
            context.statistics.left += 1;
            self.refuse_request(index, BUSY, context, app);
            return None;
        }
        let exchange = self.exchanges.at(index);
        let State::Queued(queued) = std::mem::replace(&mut exchange.state, State::Free) else { return None };
        context.queued -= 1;
        exchange.state = State::Running(queued.facts);
        self.set_deadlines(context);
        Some(queued.request)
    }

    /// Continues a suspended response.
    pub(super) fn resume(&mut self, index: Index, context: &mut EngineContext<A>) -> NextAction<A> {
        let exchange = self.exchanges.at(index);
        match std::mem::replace(&mut exchange.state, State::Free) {
            State::Suspended(suspended) => {
                exchange.state = State::Running(suspended.facts);
                context.statistics.suspended -= 1;
                context.observer.switch(self.call(index), Stage::Queue);
                NextAction::Resume(index, suspended.response)
            }
            state => {
                exchange.state = state;
                NextAction::Wait
            }
        }
    }

    /// Has a response that continues because a message has arrived wait for a thread.
    pub(crate) fn enqueue_message(&mut self, index: Index, response: A::Response, context: &mut EngineContext<A>) {
        let exchange = self.exchanges.at(index);
        let State::Running(facts) = exchange.state else { unreachable!("it was resumed") };
        exchange.state = State::Suspended(Box::new(Suspended { response, facts, until: Until::Thread }));
        context.statistics.suspended += 1;
        context.queued += 1;
    }

    /// Returns the response whose message has waited for a thread, which there is now; `None` if no message waits.
    pub(crate) fn dequeue_message(&mut self, index: Index, context: &mut EngineContext<A>) -> Option<A::Response> {
        if !self.exchanges.get(index).is_some_and(Exchange::has_queued_message) {
            return None;
        }
        context.queued -= 1;
        match self.resume(index, context) {
            NextAction::Resume(_, response) => Some(response),
            _ => None,
        }
    }

    /// Calls `write` with a `Reply`, through which the response is written.
    pub(crate) fn reply<R>(
        &mut self,
        index: Index,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut Reply<'_, A>) -> R,
    ) -> R {
        let call = self.call(index);
        let exchange = self.exchanges.at(index);
        let facts = match &exchange.state {
            // No bytes of HTTP may get between the frames of a WebSocket.
            State::Running(facts) if exchange.has_websocket() => {
                let facts = *facts;
                return self.reply_to_none(index, facts, context, write);
            }
            State::Running(facts) => *facts,
            State::Detached(detached) => {
                let facts = detached.facts;
                return self.reply_to_none(index, facts, context, write);
            }
            _ => unreachable!("a ticket is for an exchange whose call is out"),
        };
        let is_body_here = exchange.incoming.as_ref().is_none_or(|incoming| incoming.has_ended());
        let goes_on = is_body_here && !context.is_draining();
        let stage = context.observer.switch(call, Stage::Write);
        let mut loss = Loss::Nothing;
        let result = write(&mut Reply {
            slot: self.slot,
            out: self.send.composer.get_or_insert_with(|| context.composer()),
            output: &mut self.send.waiting,
            deferred: &mut context.deferred,
            protocol: &mut self.protocol,
            stream: exchange.stream,
            in_flight: &mut exchange.in_flight,
            backlog: &mut exchange.backlog,
            scratch: &mut context.chunks,
            statistics: &mut context.statistics,
            transport: &mut self.transport,
            stamp: &context.stamp,
            now: context.now,
            request: if goes_on { facts } else { A::Protocol::ending(facts) },
            moved: &mut self.send.moved,
            loss: &mut loss,
            is_upgraded: false,
            parts_come_fast: &mut context.parts_come_fast,
            ending: &mut self.send.ending,
        });
        if let Some(stage) = stage {
            context.observer.switch(call, stage);
        }
        if loss != Loss::Nothing {
            self.lose(index, loss, context);
        }
        self.store(context);
        result
    }

    /// Handles a write that has shown that the client of a call is gone, or that the response cannot be sent.
    #[cold]
    fn lose(&mut self, index: Index, loss: Loss, context: &mut EngineContext<A>) {
        self.end_body(index, Fault::Truncated.into());
        if self.is_multiplexed() && loss == Loss::Exchange {
            return self.cut_exchange(index, context);
        }
        self.transport.reset_on_drop();
        self.lifecycle = Lifecycle::Gone;
        self.input.note_drained();
        self.send.discard();
        for index in self.exchanges.indices() {
            self.exchanges.at(index).detach(crate::exchange::Cause::Left);
        }
    }

    /// Records how far the application got with a call. The connection has to be driven then.
    pub(crate) fn complete(&mut self, index: Index, progress: Progress<A::Response>, context: &mut EngineContext<A>) {
        let call = self.call(index);
        let is_multiplexed = self.is_multiplexed();
        let exchange = self.exchanges.at(index);
        let was_written = !exchange.is_expired() && !exchange.has_websocket();
        if let Some(in_flight) = &mut exchange.in_flight
            && was_written
        {
            in_flight.count_status(&mut context.statistics);
        }
        let State::Running(facts) = exchange.state else {
            debug_assert!(exchange.is_out(), "a ticket is for an exchange whose call is out");
            // Bytes that were read ahead of the application count as body memory until they are dropped.
            if self.is_multiplexed() {
                self.end_detached(index);
            } else {
                self.exchanges.remove(index);
                self.return_hijacked(matches!(progress, Progress::Cut));
            }
            context.observer.give_up(call);
            context.abandoned.extend(progress.into_response());
            return;
        };
        if matches!(progress, Progress::Done) && self.release_websocket(index, facts) {
            return context.observer.answered(call);
        }
        let exchange = self.exchanges.at(index);
        if let Some(in_flight) = &mut exchange.in_flight {
            in_flight.produced = 0;
        }
        let until = match progress {
            Progress::Yield(_) => Until::Turn,
            Progress::Listening(_) => Until::Message,
            _ => Until::Output,
        };
        match progress {
            Progress::Blocked(response) | Progress::Yield(response) | Progress::Listening(response) => {
                context.statistics.suspended += 1;
                context.observer.switch(call, if until == Until::Turn { Stage::Queue } else { Stage::Peer });
                exchange.state = State::Suspended(Box::new(Suspended { response, facts, until }));
            }
            Progress::Done => {
                context.observer.answered(call);
                // If the rest of a body has not been read, the beginning of the next request is unknown.
                let is_body_left = exchange.incoming.take().is_some_and(|incoming| !incoming.has_ended());
                if is_multiplexed {
                    return self.complete_exchange(index, is_body_left, facts, context);
                }
                exchange.body_memory = None;
                exchange.upgrade = None;
                exchange.state = State::Free;
                let goes_on = exchange.in_flight.take().is_some_and(|in_flight| in_flight.sender.keeps_alive());
                if !goes_on || is_body_left {
                    let may_be_sending = !A::Protocol::is_last(facts) || context.is_draining() || is_body_left;
                    self.lifecycle =
                        Lifecycle::Closing(if may_be_sending { Closing::Linger } else { Closing::Orderly });
                }
            }
            Progress::Cut => {
                context.observer.give_up(call);
                context.statistics.cut += 1;
                if is_multiplexed {
                    exchange.state = State::Finishing(facts);
                    return self.cut_exchange(index, context);
                }
                exchange.incoming = None;
                exchange.body_memory = None;
                exchange.state = State::Free;
                let was_websocket = exchange.upgrade.take().is_some_and(|mut upgrade| upgrade.websocket().is_some());
                let in_flight = exchange.in_flight.take();
                let needs_reset = was_websocket || in_flight.is_some_and(|in_flight| in_flight.sender.needs_reset());
                self.lifecycle = Lifecycle::Closing(if needs_reset { Closing::Reset } else { Closing::Linger });
            }
        }
    }

    /// Has a call wait in the middle until there is input, or the input ends.
    pub(crate) fn wait_for_input(
        &mut self,
        index: Index,
        waiter: A::Waiter,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let has_awaited = self.has_awaited_of_websocket(index, Awaited::INPUT);
        let exchange = self.exchanges.at(index);
        let has_input = || exchange.incoming.as_ref().is_none_or(|incoming| incoming.has_something());
        if has_awaited.unwrap_or_else(has_input) {
            return app.wake(waiter);
        }
        exchange.waiter = Some((Awaited::INPUT, waiter));
        self.set_deadlines(context);
    }

    /// Has a call wait in the middle until the client has taken all output, or is gone. The connection has to be driven
    /// then, because some of the output may not have been sent at all.
    pub(crate) fn wait_for_output(&mut self, index: Index, waiter: A::Waiter, app: &mut A) {
        let has_output = self.has_output() || self.exchanges.at(index).has_backlog();
        let is_over = self.has_awaited_of_websocket(index, Awaited::OUTPUT).unwrap_or(!has_output);
        if self.is_detached(index) || is_over {
            return app.wake(waiter);
        }
        self.exchanges.at(index).waiter = Some((Awaited::OUTPUT, waiter));
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
        let of_websocket = self.has_awaited_of_websocket(index, awaited);
        let exchange = self.exchanges.at(index);
        let has_input = exchange.incoming.as_ref().is_none_or(|incoming| incoming.has_something());
        let is_output_taken = !self.has_output() && !self.exchanges.at(index).has_backlog();
        let is_over = awaited.has(Awaited::INPUT) && has_input
            || awaited.has(Awaited::OUTPUT) && (is_output_taken || self.is_detached(index))
            || awaited.has(Awaited::DEPARTURE) && self.has_client_left(index);
        if of_websocket.unwrap_or(is_over) {
            app.wake(waiter);
            return of_websocket.is_none();
        }
        self.exchanges.at(index).waiter = Some((awaited, waiter));
        if of_websocket.is_some() {
            // The reading and the deadlines of a WebSocket do not depend on which call waits.
            return false;
        }
        self.set_deadlines(context);
        true
    }

    /// Wakes a call that waits until its client leaves, if it has.
    pub(crate) fn look_for_departure(&mut self, index: Index, app: &mut A) {
        let exchange = self.exchanges.at(index);
        if exchange.waiter.as_ref().is_some_and(|(awaited, _)| awaited.has(Awaited::DEPARTURE))
            && self.has_client_left(index)
        {
            self.exchanges.at(index).wake(Awaited::DEPARTURE, app);
        }
    }

    /// Wakes a call that is over, if it still waits in the middle, because there is nothing left to wait for.
    pub(crate) fn release(&mut self, index: Index, app: &mut A) {
        if let Some((_, waiter)) = self.exchanges.at(index).waiter.take() {
            app.wake(waiter);
        }
    }

    /// Removes the waiter of a call that was told to stop in another way.
    pub(crate) fn stop_waiting(&mut self, index: Index) {
        self.exchanges.at(index).waiter = None;
    }
}
