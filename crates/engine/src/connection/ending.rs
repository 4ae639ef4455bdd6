//! The end of a connection and of its exchanges.

use super::{Closing, Connection, Lifecycle, NextAction};
use crate::app::App;
use crate::context::EngineContext;
use crate::exchange::{Awaited, Cause, Exchange, Index, State, Until};
use crate::transport::Transport;
use wire::message::Fault;

impl<A: App> Connection<A> {
    /// Ends the connection because the peer is gone, or must see that something is missing because a file could not be
    /// sent. The connection is over once its running calls have returned.
    pub(super) fn abort(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if let Some(action) = self.abort_hijacked(context, app) {
            return action;
        }
        self.lose_websocket();
        self.transport.reset_on_drop();
        if !self.has_calls() {
            return NextAction::Close;
        }
        self.transport.cut();
        self.leave(context, app)
    }

    /// Ends the connection, because nothing more is to be sent to the peer. The connection is over once its running
    /// calls have returned.
    pub(super) fn end_connection(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if !self.has_calls() {
            return NextAction::Close;
        }
        if self.lifecycle == Lifecycle::Closing(Closing::Reset) {
            self.transport.cut();
        }
        self.leave(context, app)
    }

    /// Keeps the connection for its running calls, without its peer.
    pub(super) fn leave(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        self.lifecycle = Lifecycle::Gone;
        self.input.note_drained();
        self.send.discard();
        if !self.has_calls() {
            return NextAction::Close;
        }
        self.release_exchanges(true, context, app);
        NextAction::Wait
    }

    /// Gives up all exchanges that have no running call, and, if `has_left`, tells running calls that their client has
    /// gone.
    pub(super) fn release_exchanges(&mut self, has_left: bool, context: &mut EngineContext<A>, app: &mut A) {
        if !self.is_multiplexed() {
            return self.release_exchange(0, has_left, context, app);
        }
        for index in self.exchanges.indices() {
            self.release_exchange(index, has_left, context, app);
        }
    }

    /// Gives up one exchange, or tells its call that the client has gone, as `release_exchanges` does for all.
    pub(super) fn release_exchange(
        &mut self,
        index: Index,
        has_left: bool,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let exchange = self.exchanges.at(index);
        if exchange.is_out() {
            if has_left {
                exchange.detach(Cause::Left);
            }
            self.break_body(index, Fault::Truncated.into(), app);
            let exchange = self.exchanges.at(index);
            if let Some(backlog) = &mut exchange.backlog {
                backlog.stop();
            }
            exchange.wake(Awaited::OUTPUT.or(Awaited::DEPARTURE), app);
            return;
        }
        match std::mem::replace(&mut exchange.state, State::Free) {
            State::Receiving(receiving) => app.abandon_request(receiving.request, None),
            State::Queued(queued) => {
                context.queued -= 1;
                app.abandon_request(queued.request, None);
            }
            State::Suspended(suspended) => {
                context.statistics.suspended -= 1;
                context.queued -= usize::from(suspended.until == Until::Thread);
                context.abandoned.push(suspended.response);
                if let Some((_, waiter)) = exchange.waiter.take() {
                    app.wake(waiter);
                }
            }
            State::Free | State::Finishing(_) | State::Running(_) | State::Detached(_) => {}
        }
        self.exchanges.remove(index);
    }

    /// Cuts all exchanges under way. The slot stays if a call is running.
    pub(crate) fn cut(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        let only_lingers = matches!(self.lifecycle, Lifecycle::Linger(_)) && !self.has_calls();
        if !self.is_between_requests() && !only_lingers {
            let is_ended = self.lifecycle == Lifecycle::Gone || self.exchanges.any(Exchange::is_expired);
            if !is_ended {
                context.statistics.cut += 1;
            }
            let action = self.abort(context, app);
            if let NextAction::Close = action {
                self.finish(context, app);
            }
            return action;
        }
        NextAction::Close
    }

    /// Gives up the exchanges of a connection that is over.
    pub(super) fn finish(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if let Some(mut out) = self.send.composer.take() {
            out.clear();
            context.spare.push(out);
        }
        self.transport.end_held_output();
        self.lifecycle = Lifecycle::Gone;
        if !self.exchanges.is_empty() {
            self.release_exchanges(true, context, app);
        }
    }

    /// Gives up a connection after a panic in the engine's code that drives it. Returns true if the slot has to be kept
    /// because a call is running.
    pub(crate) fn give_up(&mut self, context: &mut EngineContext<A>, app: &mut A) -> bool {
        if self.has_calls() {
            self.abort(context, app);
            return true;
        }
        self.transport.reset_on_drop();
        // The application learns of the other exchanges on the connection, which had no part in the panic.
        self.finish(context, app);
        false
    }
}
