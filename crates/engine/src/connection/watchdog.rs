//! The work for a connection that does not involve the application: answering health checks, and refusing requests that
//! wait while no thread polls the engine. It neither touches nor drops values of the application.

use super::schedule::Schedule;
use super::{BUSY, Closing, Connection, History, Lifecycle};
use crate::app::{App, Refusal, RequestOf};
use crate::config::{GLANCE, LINGER_BYTES};
use crate::context::EngineContext;
use crate::exchange::State;
use crate::health::Health;
use crate::observe::Observer;
use crate::protocol::{Event, Protocol};
use crate::responder::Responder;
use crate::transport::{Received, Transport};

/// The maximum number of steps in servicing a connection once: each step reads at most [`GLANCE`] bytes.
const STEPS: usize = 16;

/// The outcome of servicing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serviced {
    /// The client has more to send, or has still to take its answer.
    Stays,
    /// The input is for the application.
    Waits,
    /// The connection is over.
    Over,
}

/// The kind of request on a connection that is being serviced.
enum Asked<R> {
    /// The input does not show the kind of request yet.
    Unclear,
    /// A request that a responder answers. `is_last`: the client has also asked for the end of the connection, and has
    /// sent nothing more.
    Responder {
        facts: R,
        is_last: bool,
    },
    Application,
}

impl<A: App> Connection<A> {
    /// Answers a connection that has asked for nothing yet, if it asks for the server's health. Other requests stay in
    /// the input, unchanged.
    pub(crate) fn service_pending(
        &mut self,
        health: Health,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
    ) -> Serviced {
        debug_assert!(self.history == History::New, "there is nothing of the application's");
        let serviced = self.service(health, context, buffer);
        // The thread that drives the connection next begins with the input kept here.
        self.input.is_exhausted = serviced != Serviced::Waits;
        if serviced == Serviced::Over {
            self.send.discard();
            if self.app.is_some() {
                // It may be a while until the transport is dropped.
                self.transport.end_output();
            }
        } else {
            self.set_deadlines(context);
        }
        self.store(context);
        serviced
    }

    fn service(&mut self, health: Health, context: &mut EngineContext<A>, buffer: &mut [u8]) -> Serviced {
        for _ in 0..STEPS {
            if !self.flush(context) {
                return Serviced::Over;
            }
            if self.has_output() {
                return Serviced::Stays;
            }
            match self.lifecycle {
                Lifecycle::Open if !self.input.is_empty() && self.awaits_proxy_header() => {
                    match self.take_stored_proxy_header(context) {
                        Ok(true) => continue,
                        Ok(false) => {}
                        // The thread that polls the engine next ends it, and can say why in the log.
                        Err(_) => return Serviced::Waits,
                    }
                }
                Lifecycle::Open if !self.input.is_empty() => match self.asked(context) {
                    Asked::Unclear => {}
                    Asked::Responder { .. } if self.is_multiplexed() => {
                        if !self.answer_first_exchange(health, context) {
                            return Serviced::Waits;
                        }
                        continue;
                    }
                    Asked::Responder { facts, is_last } => {
                        self.answer_health_check(0, health, facts, context);
                        self.lifecycle = Lifecycle::Closing(if is_last { Closing::Orderly } else { Closing::Linger });
                        continue;
                    }
                    Asked::Application => return Serviced::Waits,
                },
                Lifecycle::Closing(Closing::Linger) => {
                    self.transport.end_output();
                    self.lifecycle = Lifecycle::Linger(LINGER_BYTES);
                }
                _ => {}
            }
            // The first bytes show the kind of request: input for the application is not read further.
            let room = buffer.len().min(GLANCE);
            let count = match self.transport.receive(&mut buffer[..room]) {
                // A thread that can log the refusal refuses a head that ends early.
                Ok(Received::End) if !self.input.is_empty() => return Serviced::Waits,
                Ok(Received::End) | Err(_) => return Serviced::Over,
                Ok(Received::Bytes { count, .. }) => count,
                Ok(Received::WouldBlock) if matches!(self.lifecycle, Lifecycle::Closing(_)) => return Serviced::Over,
                Ok(Received::WouldBlock) => return Serviced::Stays,
            };
            context.statistics.bytes_in += count as u64;
            match &mut self.lifecycle {
                Lifecycle::Open => self.input.bytes.extend_from_slice(&buffer[..count]),
                Lifecycle::Linger(left) if *left > count as u64 => *left -= count as u64,
                Lifecycle::Linger(_) | Lifecycle::Hijacked { .. } | Lifecycle::Gone => {
                    self.transport.reset_on_drop();
                    return Serviced::Over;
                }
                // The client has sent more after all: closing now could destroy its answer.
                lifecycle @ Lifecycle::Closing(_) => *lifecycle = Lifecycle::Closing(Closing::Linger),
            }
        }
        Serviced::Stays
    }

    /// Answers waiting requests with 503, while no thread can poll the engine. Returns true if the connection has to be
    /// driven, and adds the requests that must be reported to the application to `orphans`.
    pub(crate) fn refuse_waiting(
        &mut self,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
        orphans: &mut Vec<(A::Request, Refusal)>,
    ) -> bool {
        if self.has_output() || self.send.composer.as_ref().is_some_and(|out| !out.is_sent()) {
            // The answer before this request has not been sent.
            return false;
        }
        if self.lifecycle != Lifecycle::Open {
            return false;
        }
        if self.is_multiplexed() {
            return self.refuse_waiting_exchanges(context, buffer, orphans);
        }
        let facts = match &self.exchanges.first.state {
            State::Free => match self.awaited_head(context, buffer) {
                Some(facts) => facts,
                // The poller does not report input again that was read here.
                None => return !self.input.is_empty(),
            },
            State::Receiving(_) | State::Queued(_) => match self.take_request(0, context) {
                Some((request, facts)) => {
                    orphans.push((request, BUSY));
                    facts
                }
                None => return false,
            },
            _ => return false,
        };
        self.schedule = Schedule::OnEvent;
        self.compose_refusal(BUSY, facts, context);
        context.observer.give_up(self.call(0));
        self.end_with_refusal(BUSY.status, context);
        if self.send_composed(&mut context.statistics) {
            self.transport.end_output();
        }
        self.set_deadlines(context);
        true
    }

    /// Receives the input that has arrived, up to the length that a head may have.
    pub(super) fn receive_unread(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8]) {
        while self.input.bytes.len() < context.config.limits.head {
            match self.transport.receive(buffer) {
                Ok(Received::Bytes { count, .. }) => {
                    context.statistics.bytes_in += count as u64;
                    self.input.bytes.extend_from_slice(&buffer[..count]);
                    self.input.is_exhausted = false;
                }
                // The thread that polls the engine next finds the error.
                Ok(Received::End | Received::WouldBlock) | Err(_) => break,
            }
        }
    }

    /// Reads until a head is complete. Returns the properties of the request on which its response depends.
    fn awaited_head(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8]) -> Option<RequestOf<A>> {
        self.receive_unread(context, buffer);
        if self.awaits_proxy_header() && !matches!(self.take_stored_proxy_header(context), Ok(true)) {
            return None;
        }
        // The head is parsed with a separate protocol, so that the thread that polls the engine next reads it
        // unchanged.
        let mut protocol = self.protocol.fresh();
        match protocol.next(self.input.unused(), &mut context.fields, &context.config.limits) {
            Ok((_, Event::Head { request, .. })) => Some(request),
            _ => None,
        }
    }

    /// Returns the kind of request in the unused input, which is parsed with a separate protocol.
    fn asked(&self, context: &mut EngineContext<A>) -> Asked<RequestOf<A>> {
        let input = self.input.unused();
        // The first bytes of a frame need not show the path of the request.
        let may_be_answered = if self.is_multiplexed() { Some(true) } else { context.glance(&self.protocol, input) };
        match may_be_answered {
            None => return Asked::Unclear,
            Some(false) => return Asked::Application,
            Some(true) => {}
        }
        let mut protocol = self.protocol.fresh();
        protocol.open(context.config.exchanges);
        let EngineContext { fields, config, responder, .. } = context;
        let mut used = 0;
        loop {
            match protocol.next(&input[used..], fields, &config.limits) {
                Ok((_, Event::More)) => return Asked::Unclear,
                Ok((count, Event::Head { head, request: facts, .. })) if responder.answers(&head) => {
                    let is_last = A::Protocol::is_last(facts) && used + count == input.len();
                    return Asked::Responder { facts, is_last };
                }
                // Frames that concern the protocol alone, or no existing exchange, may come first.
                Ok((count @ 1.., Event::Nothing | Event::Credit { .. } | Event::Reset { .. }))
                    if self.is_multiplexed() =>
                {
                    used += count;
                }
                _ => return Asked::Application,
            }
        }
    }
}
