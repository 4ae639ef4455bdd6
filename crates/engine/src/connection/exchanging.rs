//! The methods that sessions of both kinds, serial and multiplexed, have.

use super::link::Link;
use super::opening::OpeningStep;
use super::step::{BUSY, Expired, NextAction, SLOW, Serviced, Step};
use crate::app::{App, CallId, Progress, Refusal, TermsOf};
use crate::config::Config;
use crate::context::{EngineContext, Time};
use crate::deadline::{Millis, Sweep, Wait};
use crate::exchange::{Awaited, Cause, Exchange, Index, Input};
use crate::health::Health;
use crate::observe::Observer;
use crate::reply::Reply;
use crate::transport::{Received, Transport};
use std::io::ErrorKind;
use wire::message::Fault;

/// A session of either kind.
pub(super) trait Exchanging<A: App> {
    // ------------------------------------------------------------------------------------------------------- exchanges

    /// Returns the exchange at `index`; `None` if a multiplexed session has no exchange there.
    fn exchange(&self, index: Index) -> Option<&Exchange<A>>;

    /// Returns the exchange at `index`, which must be under way.
    fn exchange_mut(&mut self, index: Index) -> &mut Exchange<A>;

    /// Returns true if no exchange is under way.
    fn is_empty(&self) -> bool;

    /// Returns true if `is` returns true for at least one exchange that is under way.
    fn any(&self, is: impl FnMut(&Exchange<A>) -> bool) -> bool;

    /// Returns true if the application runs a call for any of the exchanges.
    fn has_calls(&self) -> bool {
        self.any(Exchange::is_out)
    }

    /// Returns the exchange to whose head or body the next bytes belong, if one is being received.
    fn receiving(&self) -> Option<Index>;

    /// Returns true if a body is being received, so that the connection may need much work.
    fn is_receiving_body(&self) -> bool;

    /// Returns true if a part of a head has been read and is no longer in the link's input.
    fn is_in_head(&self) -> bool;

    /// Removes and returns a request for which the application has not been called. Its exchange becomes free.
    fn take_request(&mut self, index: Index, context: &mut EngineContext<A>) -> Option<(A::Request, TermsOf<A>)> {
        self.exchange_mut(index).take_request(&mut context.load)
    }

    /// Writes the response to a refused request, whose exchange is already free.
    fn answer_refused(
        &mut self,
        index: Index,
        refusal: Refusal,
        terms: TermsOf<A>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    );

    /// Refuses a request that the application will not receive, because its body did not arrive correctly or it waited
    /// too long.
    fn refuse_request(
        &mut self,
        index: Index,
        refusal: Refusal,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        let Some((request, terms)) = self.take_request(index, context) else { return };
        app.abandon_request(request, Some(refusal));
        context.observer.give_up(link.call(index));
        self.answer_refused(index, refusal, terms, link, context);
    }

    // ----------------------------------------------------------------------------------------------------------- steps

    /// Runs one step: sends output, then continues a response, serves stored input, or receives.
    fn step(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A>;

    /// Serves the first message in `rest`, the unused part of the input, or a part of it. Returns the number of bytes
    /// used. The connection must be open, and `rest` not empty.
    fn serve_one(
        &mut self,
        rest: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Served<A>);

    /// Serves the requests that have arrived in `input`, until one is ready for the application. Returns the number of
    /// bytes of `input` used.
    fn serve(
        &mut self,
        input: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Step<A>) {
        let mut used = 0;
        link.input.set_exhausted(false);
        // Output that the peer has not read ends the loop with input left, and so does the end of the turn: a request
        // for a static file has few bytes, but costs a thousand times more than reading them.
        while !link.has_output() && !context.meter.is_turn_over() {
            let rest = &input[used..];
            if rest.is_empty() {
                link.input.set_exhausted(true);
                break;
            }
            if !link.lifecycle.is_open() {
                link.lifecycle.discard(rest.len() as u64);
                used = input.len();
                break;
            }
            if link.is_opening() {
                match link.open(rest, context, app) {
                    OpeningStep::Ready => {}
                    OpeningStep::Used(count) => {
                        used += count;
                        continue;
                    }
                    OpeningStep::NeedsMore => {
                        link.input.set_exhausted(true);
                        break;
                    }
                    OpeningStep::Other(kind) => return (used, Step::Become(kind)),
                }
            }
            let (count, served) = self.serve_one(rest, link, context, app);
            used += count;
            match served {
                Served::Stop(action) => return (used, Step::Stop(action)),
                Served::GoOn if !link.sending.is_full() => {}
                Served::GoOn | Served::Later => break,
                Served::NeedsMore => {
                    link.input.set_exhausted(true);
                    break;
                }
            }
        }
        (used, Step::Next)
    }

    /// Handles the end of input: the peer has closed its side of an open connection.
    fn end_of_input(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Step<A>;

    /// Returns true if the link has to be closed although no input has arrived.
    fn is_to_end(&self, link: &Link<A>) -> bool;

    /// Sends the output of the link, and of the protocol itself, at once (see [`Link::flush`]). Returns false if the peer
    /// is gone.
    fn flush(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>) -> bool;

    /// Serves the stored input.
    fn serve_stored(&mut self, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        let input = link.input.take();
        let (used, step) = self.serve(input.unused(), link, context, app);
        link.input.put_back(input, used);
        step
    }

    /// Serves received bytes, after the stored input.
    fn serve_received(
        &mut self,
        received: &[u8],
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Step<A> {
        if !link.input.is_empty() {
            link.input.append(received);
            return self.serve_stored(link, context, app);
        }
        let (used, step) = self.serve(received, link, context, app);
        link.input.keep_rest(&received[used..]);
        step
    }

    /// Receives into `buffer`, at most as many bytes as there is room for, and serves them.
    #[inline]
    fn receive_some(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        app: &mut A,
    ) -> Step<A> {
        self.receive(link, context, buffer, app)
    }

    /// Serves stored input that has not been parsed, or else receives more.
    #[inline]
    fn read_on(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        app: &mut A,
    ) -> Step<A> {
        if link.input.has_unseen() {
            return self.serve_stored(link, context, app);
        }
        if !link.input.is_readable() {
            return Step::Stop(NextAction::Wait);
        }
        self.receive_some(link, context, buffer, app)
    }

    /// Receives input into `buffer`, and serves it.
    fn receive(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        app: &mut A,
    ) -> Step<A> {
        let slot = link.slot();
        let is_open = link.lifecycle.is_open();
        let receiving = || self.receiving().filter(|_| is_open).map(|exchange| CallId { slot, exchange });
        match link.receive(buffer, receiving, context) {
            Ok(Received::Bytes { count, .. }) => self.serve_received(&buffer[..count], link, context, app),
            Ok(Received::WouldBlock) => {
                // The received bytes may have been for the transport only, and may require that it sends something.
                let goes_on = link.transport.has_unsent() || self.is_to_end(link);
                if goes_on { Step::Next } else { Step::Stop(NextAction::Wait) }
            }
            Ok(Received::End) if !link.lifecycle.is_open() => Step::End,
            Ok(Received::End) if link.awaits_proxy_header() => {
                link.end_without_proxy_header(context, app);
                Step::Stop(NextAction::Close)
            }
            Ok(Received::End) => self.end_of_input(link, context, app),
            Err(error) if error.kind() == ErrorKind::InvalidData && is_open && !self.has_calls() => {
                link.fail(&error, context, app);
                Step::Next
            }
            Err(_) => Step::Abort,
        }
    }

    // ----------------------------------------------------------------------------------------------------------- calls

    /// Calls `write` with a `Reply`, through which it writes the response.
    fn reply<R>(
        &mut self,
        index: Index,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut Reply<'_, A>) -> R,
    ) -> R;

    /// Records the result of a call. The caller has to drive the connection afterwards.
    fn complete(
        &mut self,
        index: Index,
        progress: Progress<A::Response>,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
    );

    /// Reads into `buffer` from the part of a body that has arrived. This may make room for more, so the caller has to
    /// drive the connection afterwards.
    fn read(&mut self, index: Index, buffer: &mut [u8], link: &mut Link<A>, context: &mut EngineContext<A>) -> Input;

    /// Answers the client of a running call that has missed its deadline. Drops no object that the application gave to
    /// the engine, and calls no method of [`App`].
    fn expire_call(&mut self, index: Index, link: &mut Link<A>, context: &mut EngineContext<A>) -> Expired;

    // ------------------------------------------------------------------------------------------------------- deadlines

    /// Returns the wait of an open connection that has no output.
    fn awaits(&self, link: &Link<A>) -> Wait;

    /// Returns the time at which the connection's WebSocket has to act; `Millis::MAX` if it has none.
    fn websocket_deadline(&mut self, config: &Config, now: Millis) -> Millis;

    /// Sets the deadlines of the exchanges' waits. `is_blocked`: the connection waits for something that has to happen
    /// first.
    fn set_deadlines(&mut self, is_blocked: bool, config: &Config, time: &mut Time);

    /// Tells `sweep` the earliest time at which it has to check the exchanges again.
    fn note_deadlines(&self, sweep: &mut Sweep);

    /// Returns true if the client has missed the deadline of any exchange. `delay` is the time for which the check is
    /// late.
    fn is_late(&mut self, delay: Millis, now: Millis) -> bool;

    /// Handles a missed deadline of the connection's wait while the connection is open. Called only for waits that the
    /// session determines.
    fn expire(&mut self, wait: Wait, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A) -> Step<A>;

    /// Handles a missed deadline of an exchange that waits for its body or for a thread. Returns the wait.
    fn expire_exchange(
        &mut self,
        index: Index,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Wait {
        let exchange = self.exchange_mut(index);
        exchange.timer.deadline = Millis::MAX;
        let wait = exchange.timer.wait;
        match wait {
            Wait::Body => {
                context.statistics.timeouts += 1;
                if exchange.is_out() {
                    exchange.break_body(SLOW, app);
                } else {
                    self.refuse_request(index, SLOW, link, context, app);
                }
            }
            Wait::Queue => {
                context.statistics.queue_timeouts += 1;
                self.refuse_request(index, BUSY, link, context, app);
            }
            _ => {}
        }
        wait
    }

    /// Handles the missed deadlines of exchanges.
    fn expire_exchanges(&mut self, now: Millis, link: &mut Link<A>, context: &mut EngineContext<A>, app: &mut A);

    /// Frees the memory that is kept only for speed.
    fn forget(&mut self);

    // ------------------------------------------------------------------------------------------------------------- end

    /// Gives up all exchanges without a running call. If `has_left`, tells running calls that their client has gone.
    fn release(&mut self, has_left: bool, context: &mut EngineContext<A>, app: &mut A);

    /// Detaches all running calls, and discards their output; `cause` is the reason.
    fn detach(&mut self, cause: Cause);

    // -------------------------------------------------------------------------------------------------------- watchdog

    /// Answers the request in the stored input of a new connection, if it is a health check. Returns
    /// [`Service::Answered`] if the session has answered, [`Service::Unclear`] if the input does not yet show the kind
    /// of request, and [`Service::Done`] in all other cases.
    fn service(&mut self, health: Health, link: &mut Link<A>, context: &mut EngineContext<A>) -> Service;

    /// Answers waiting requests with 503, while no thread can poll the engine. Adds the requests that must be reported
    /// to the application to `orphans`. Returns true if the caller has to drive the connection.
    fn refuse_waiting(
        &mut self,
        link: &mut Link<A>,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        orphans: &mut Vec<(A::Request, Refusal)>,
    ) -> bool;
}

/// The outcome of serving one message, or one part of it.
pub(super) enum Served<A: App> {
    /// The rest of the input may be served.
    GoOn,
    /// The rest of the input is kept until the connection is driven again.
    Later,
    /// The rest of the input is too short to be parsed.
    NeedsMore,
    /// A request is ready, or the connection cannot continue now.
    Stop(NextAction<A>),
}

/// The result of checking the request in the input of a new connection for a health check, while no thread polls the
/// engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// The input does not show the kind of request yet.
    Unclear,
    /// The request has been answered.
    Answered,
    /// Nothing more can be done for the connection without the application.
    Done(Serviced),
}

/// Gives up an exchange that has no running call, or ends the body that its call reads. If `has_left`, tells the call
/// that its client has gone. Returns true if the exchange is free afterwards.
pub(super) fn release_exchange<A: App>(
    exchange: &mut Exchange<A>,
    has_left: bool,
    context: &mut EngineContext<A>,
    app: &mut A,
) -> bool {
    if !exchange.is_out() {
        exchange.give_up(context, app);
        return true;
    }
    if has_left {
        exchange.state.detach(Cause::Left);
    }
    exchange.break_body(Fault::Truncated.into(), app);
    if let Some(backlog) = &mut exchange.backlog {
        backlog.stop();
    }
    exchange.wake(Awaited::OUTPUT.or(Awaited::DEPARTURE), app);
    false
}
