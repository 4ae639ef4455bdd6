//! A call that misses its deadline: the client gets its answer now, and the engine drops the later output of the call.
//!
//! The engine cannot end the call itself. Its ticket stays valid and its exchange is kept, `Detached`, until it
//! returns. With a serial protocol the connection ends meanwhile, as after any last response; the slot stays taken.
//!
//! [`Connection::expire_call`] may run in the watchdog's thread, which does not hold the GIL. It drops nothing that the
//! application gave to the engine and calls no method of [`App`].

use super::{Closing, Connection, Lifecycle};
use crate::app::{App, Refusal, RequestOf};
use crate::coalescing::DeferredOutput;
use crate::config::LINGER_BYTES;
use crate::context::EngineContext;
use crate::exchange::{Cause, Detached, Index, State};
use crate::in_flight::Ending;
use crate::observe::Observer;
use crate::output::Output;
use crate::protocol::{Protocol, ResponseSender};
use crate::reply::{Loss, Reply};
use crate::statistics::Statistics;
use crate::transport::Transport;

/// The refusal sent to a client whose call has missed its deadline.
const MISSED: Refusal = Refusal::of_status(504);

/// The response that a client got when its call missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The page of `504 Gateway Timeout`; `body_bytes`: the length of its body.
    Answered {
        /// The length of the body in bytes, without framing.
        body_bytes: u64,
    },
    /// A part of the application's response, and the end of the exchange, so that the client sees that the rest is
    /// missing.
    Cut {
        /// The length of the body's part in bytes, without framing.
        body_bytes: u64,
    },
    /// The whole response of the application, which had been written before: only the call has not ended.
    Whole,
    /// Nothing: the client had left before.
    Left,
}

impl<A: App> Connection<A> {
    /// Records that the call is not expected to return.
    pub(crate) fn write_off(&mut self, index: Index) {
        if let State::Detached(Detached { cause: Cause::Expired { is_written_off }, .. }) =
            &mut self.exchanges.at(index).state
        {
            *is_written_off = true;
        }
    }

    /// Answers the client of a call that has missed its deadline. The connection has to be driven afterwards.
    pub(crate) fn expire_call(&mut self, index: Index, context: &mut EngineContext<A>) -> Expired {
        let expired = Cause::Expired { is_written_off: false };
        let facts = match &mut self.exchanges.at(index).state {
            State::Running(facts) => *facts,
            State::Detached(detached) => {
                detached.cause = expired;
                if let Some(in_flight) = &mut self.exchanges.at(index).in_flight {
                    in_flight.count_status(&mut context.statistics);
                }
                return Expired::Left;
            }
            _ => return Expired::Left,
        };
        context.observer.give_up(self.call(index));
        self.end_body(index, MISSED);
        self.exchanges.at(index).detach(expired);
        if self.is_multiplexed() {
            return self.expire_exchange(index, MISSED, facts, context);
        }
        let of_websocket = self.expire_message(context);
        let in_flight = self.exchanges.at(index).in_flight.as_mut();
        let (expired, closing) = match in_flight {
            _ if of_websocket.is_some() => {
                (Expired::Cut { body_bytes: of_websocket.unwrap_or_default() }, Closing::Linger)
            }
            None => {
                let page = self.compose_refusal(MISSED, facts, context);
                context.statistics.count_status(MISSED.status);
                (Expired::Answered { body_bytes: page.body_bytes() }, Closing::Linger)
            }
            Some(in_flight) => {
                in_flight.count_status(&mut context.statistics);
                let sender = &in_flight.sender;
                if sender.is_whole() {
                    (Expired::Whole, Closing::Linger)
                } else {
                    context.statistics.cut += 1;
                    let closing = if sender.needs_reset() { Closing::Reset } else { Closing::Linger };
                    (Expired::Cut { body_bytes: sender.body_bytes() }, closing)
                }
            }
        };
        self.lifecycle = Lifecycle::Closing(closing);
        if !self.has_output() && self.send_composed(&mut context.statistics) {
            // All output has been sent: signal the end to the client at once.
            if closing == Closing::Reset {
                self.transport.cut();
            } else {
                self.transport.end_output();
                self.lifecycle = Lifecycle::Linger(LINGER_BYTES);
                self.input.discard();
            }
        }
        self.set_deadlines(context);
        expired
    }

    /// Calls `write` with a `Reply` whose output is discarded.
    pub(super) fn reply_to_none<R>(
        &mut self,
        index: Index,
        facts: RequestOf<A>,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut Reply<'_, A>) -> R,
    ) -> R {
        let mut out = context.composer();
        let exchange = self.exchanges.at(index);
        let is_upgraded = exchange.has_websocket() || exchange.is_hijacked();
        let result = write(&mut Reply {
            slot: self.slot,
            out: &mut out,
            output: &mut Output::new(),
            deferred: &mut DeferredOutput::default(),
            // The output of the call must not change the protocol's state of the connection.
            protocol: &mut A::Protocol::default(),
            stream: exchange.stream,
            in_flight: &mut exchange.in_flight,
            backlog: &mut None,
            scratch: &mut Vec::new(),
            statistics: &mut Statistics::default(),
            transport: &mut self.transport,
            stamp: &context.stamp,
            now: context.now,
            request: A::Protocol::ending(facts),
            moved: &mut 0,
            loss: &mut Loss::Connection,
            is_upgraded,
            parts_come_fast: &mut false,
            ending: &mut Ending::default(),
        });
        out.clear();
        context.spare.push(out);
        result
    }
}
