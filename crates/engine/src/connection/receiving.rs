//! Receiving the input of a connection: the engine serves as much of it as it can, and keeps the rest.

use super::{Closing, Connection, Lifecycle, NextAction, Step};
use crate::app::App;
use crate::config::GLANCE;
use crate::context::EngineContext;
use crate::exchange::State;
use crate::observe::Observer;
use crate::protocol::Protocol;
use crate::responder::Responder;
use crate::transport::{Received, Transport};
use wire::message::Fault;

impl<A: App> Connection<A> {
    /// Receives input, and serves it.
    pub(super) fn receive_some(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        let mut buffer = buffer;
        if !self.is_multiplexed()
            && let (State::Running(_), Some(incoming)) = (&self.exchanges.first.state, &self.exchanges.first.incoming)
        {
            let room = incoming.room(&context.config.body_memory_total).min(buffer.len());
            if room == 0 {
                return Step::Stop(NextAction::Wait);
            }
            buffer = &mut buffer[..room];
        }
        if !self.is_multiplexed() && context.is_full && self.is_between_exchanges() {
            if context.responder.path().is_none() {
                return Step::Stop(NextAction::AwaitRoom);
            }
            // The next request may be one that a responder answers, even though the queue is full.
            buffer = &mut buffer[..GLANCE];
        }
        let received = if context.observer.is_some() {
            self.receive_observed(buffer, context)
        } else {
            self.transport.receive(buffer)
        };
        match received {
            Ok(Received::Bytes { count, is_drained }) => {
                context.statistics.bytes_in += count as u64;
                context.meter.charge(count as u64);
                if is_drained {
                    self.input.note_drained();
                }
                self.serve_received(&buffer[..count], context, app)
            }
            Ok(Received::WouldBlock) => {
                self.input.note_drained();
                // The received bytes may have been for the transport alone, and may require an answer.
                let goes_on = self.transport.has_unsent() || self.is_to_end();
                if goes_on { Step::Next } else { Step::Stop(NextAction::Wait) }
            }
            Ok(Received::End) => self.end_of_input(context, app),
            Err(_) => Step::Stop(self.abort(context, app)),
        }
    }

    #[cold]
    pub(super) fn receive_observed(
        &mut self,
        buffer: &mut [u8],
        context: &mut EngineContext<A>,
    ) -> std::io::Result<Received> {
        if !self.is_receiving() {
            return self.transport.receive(buffer);
        }
        let call = self.receiving_call();
        context.observer.receive(call);
        let received = self.transport.receive(buffer);
        context.observer.received(call, matches!(received, Ok(Received::Bytes { .. })));
        received
    }

    /// Serves the kept input.
    pub(super) fn serve_stored(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        let input = std::mem::take(&mut self.input.bytes);
        let (used, step) = self.serve(&input[self.input.used..], context, app);
        self.input.used += used;
        let left = input.len() - self.input.used;
        if left > 0 && left < input.capacity() / 4 {
            // A small part of a large buffer is left, and it may take long until the rest arrives.
            self.input.bytes = input[std::mem::take(&mut self.input.used)..].to_vec();
        } else if left > 0 {
            self.input.bytes = input;
        } else {
            self.input.used = 0;
        }
        step
    }

    /// Serves the received bytes, after the input that was left over.
    pub(super) fn serve_received(&mut self, received: &[u8], context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        if !self.input.is_empty() {
            self.input.bytes.drain(..std::mem::take(&mut self.input.used));
            self.input.bytes.extend_from_slice(received);
            return self.serve_stored(context, app);
        }
        let (used, step) = self.serve(received, context, app);
        self.input.used = 0;
        if used < received.len() {
            self.input.bytes.clear();
            self.input.bytes.extend_from_slice(&received[used..]);
        } else if self.input.bytes.capacity() > 0 {
            self.input.bytes = Vec::new();
        }
        step
    }

    /// Serves the requests in `input` as far as they have arrived, until one is ready to be answered. Returns the
    /// number of bytes of `input` used.
    pub(super) fn serve(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> (usize, Step<A>) {
        let mut used = 0;
        self.input.is_exhausted = false;
        // Output that the peer does not take ends the loop with input left, and so does the end of the turn: a request
        // for a static file takes a few bytes, and costs a thousand times as much as its bytes.
        while !self.has_output() && !context.meter.is_turn_over() {
            let rest = &input[used..];
            if rest.is_empty() {
                self.input.is_exhausted = true;
                break;
            }
            if self.is_multiplexed() && self.is_held_up(context) {
                break;
            }
            if self.lifecycle != Lifecycle::Open {
                self.discard_received(rest.len() as u64);
                used = input.len();
                break;
            }
            if self.awaits_proxy_header() {
                let count = self.read_proxy_header(rest, context, app);
                if count == 0 {
                    self.input.is_exhausted = true;
                    break;
                }
                used += count;
                continue;
            }
            if !self.is_multiplexed() && context.is_full && self.is_between_exchanges() {
                match context.glance(&self.protocol, rest) {
                    Some(true) => {}
                    Some(false) => return (used, Step::Stop(NextAction::AwaitRoom)),
                    None => {
                        self.input.is_exhausted = true;
                        break;
                    }
                }
            }
            let (count, ready) = if self.is_multiplexed() || self.exchanges.first.is_free() {
                let (count, ready) = self.message(rest, context, app);
                if count == 0 && ready.is_none() {
                    self.input.is_exhausted = true;
                    break;
                }
                (count, ready)
            } else if self.exchanges.first.is_receiving() {
                let (count, ready) = self.body(rest, context, app);
                if self.exchanges.first.is_receiving() {
                    self.input.is_exhausted = true;
                    used += count;
                    break;
                }
                (count, ready)
            } else {
                if let State::Running(_) = self.exchanges.first.state {
                    used += self.take_in(rest, context, app);
                    // The remaining input is either kept for later or too short to be parsed.
                    self.input.is_exhausted = self.exchanges.first.wants_body() || used == input.len();
                }
                break;
            };
            used += count;
            if let Some((exchange, request)) = ready {
                return (used, Step::Stop(NextAction::Call(exchange, request)));
            }
            let is_full = self.send.composer.as_ref().is_some_and(|out| out.is_full());
            if is_full || self.protocol.must_write_control() {
                break;
            }
        }
        (used, Step::Next)
    }

    /// Discards input that arrived after the last request, without reading it as another request. Records its arrival.
    pub(super) fn discard_received(&mut self, count: u64) {
        match &mut self.lifecycle {
            Lifecycle::Closing(closing @ Closing::Orderly) => *closing = Closing::Linger,
            Lifecycle::Linger(left) => {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    self.lifecycle = Lifecycle::Closing(Closing::Reset);
                }
            }
            Lifecycle::Open | Lifecycle::Closing(_) | Lifecycle::Hijacked { .. } | Lifecycle::Gone => {}
        }
    }

    /// Handles the end of input: the peer has closed its side.
    pub(super) fn end_of_input(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        self.input.end();
        if self.is_receiving() {
            context.observer.give_up(self.receiving_call());
        }
        if self.lifecycle != Lifecycle::Open {
            return Step::Stop(self.end_connection(context, app));
        }
        if self.awaits_proxy_header() {
            self.end_without_proxy_header(context, app);
            return Step::Stop(NextAction::Close);
        }
        if self.is_multiplexed() {
            // The peer can no longer announce how much output it takes.
            return Step::Stop(if self.exchanges.is_empty() { NextAction::Close } else { self.abort(context, app) });
        }
        match &self.exchanges.first.state {
            State::Free if self.protocol.end_of_input(self.input.unused()).is_ok() => {
                return Step::Stop(NextAction::Close);
            }
            State::Free => self.refuse_stored(Fault::Truncated.into(), context, app),
            State::Receiving(_) => self.refuse_request(0, Fault::Truncated.into(), context, app),
            State::Running(_) => self.break_body(0, Fault::Truncated.into(), app),
            _ => return Step::Stop(NextAction::Close),
        }
        Step::Next
    }
}

impl<A: App> EngineContext<A> {
    /// Returns true if the request at the beginning of `input` may be for a responder; `None` if that cannot be told
    /// yet.
    pub(super) fn glance(&self, protocol: &A::Protocol, input: &[u8]) -> Option<bool> {
        self.responder.path().map_or(Some(false), |path| protocol.glance(input, path))
    }
}
