//! Calls that return an incomplete response, or that wait while they run, on sessions of both kinds.

use super::link::Link;
use super::step::NextAction;
use crate::app::{App, CallId, Progress};
use crate::context::EngineContext;
use crate::exchange::{Awaited, Cause, Exchange, Until};
use crate::observe::{Observer, Stage};
use crate::transport::Transport;

/// The way in which a call ended that returned no incomplete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    Cut,
}

/// Stores the response that a call has returned, if it is incomplete. Otherwise returns how the call ended.
pub(super) fn keep_incomplete<A: App>(
    exchange: &mut Exchange<A>,
    progress: Progress<A::Response>,
    call: CallId,
    context: &mut EngineContext<A>,
) -> Option<Ended> {
    if let Some(in_flight) = &mut exchange.in_flight {
        in_flight.produced = 0;
    }
    let (response, until) = match progress {
        Progress::Done => return Some(Ended::Done),
        Progress::Cut => return Some(Ended::Cut),
        Progress::Blocked(response) => (response, Until::Output),
        Progress::Yield(response) => (response, Until::Turn),
        Progress::Listening(response) => (response, Until::Message),
    };
    context.statistics.suspended += 1;
    context.observer.switch(call, if until == Until::Turn { Stage::Queue } else { Stage::Peer });
    exchange.state.suspend(response, until);
    None
}

/// Resumes a suspended response.
pub(super) fn resume<A: App>(
    exchange: &mut Exchange<A>,
    call: CallId,
    context: &mut EngineContext<A>,
) -> NextAction<A> {
    let Some(response) = exchange.state.resume() else { return NextAction::Wait };
    context.statistics.suspended -= 1;
    context.observer.switch(call, Stage::Queue);
    NextAction::Resume(call.exchange, response)
}

/// Returns true if the client of a call is known to have left.
pub(super) fn has_client_left<A: App>(exchange: &Exchange<A>, link: &Link<A>) -> bool {
    let is_detached = exchange.cause().is_some_and(|cause| cause != Cause::Hijacked);
    is_detached || link.input.has_ended() || link.transport.has_peer_left()
}

/// Wakes a call that waits until its client leaves, if the client has left.
#[inline]
pub(super) fn look_for_departure<A: App>(exchange: &mut Exchange<A>, link: &Link<A>, app: &mut A) {
    if exchange.waits_for(Awaited::DEPARTURE) && has_client_left(exchange, link) {
        exchange.wake(Awaited::DEPARTURE, app);
    }
}
