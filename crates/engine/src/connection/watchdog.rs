//! Health checks: how one is found and answered, by whoever turns the engine and, for connections that the application
//! has not had to do with yet, by a thread that has nothing to do with it.

use super::{Closing, Connection, EngineContext, Phase};
use crate::app::{App, Refusal};
use crate::config::{Config, GLANCE, LINGER_BYTES};
use crate::health::Health;
use crate::net::{Moved, Socket};
use wire::http1::{self, Head, Receiver};

/// Steps that are taken at a time for a connection that is looked at: each reads [`GLANCE`] bytes at most.
const STEPS: usize = 16;

/// What becomes of a connection that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serviced {
    /// It has more to say, or has still to take its answer.
    Stays,
    /// What has come is for somebody else.
    Waits,
    /// It is over.
    Over,
}

/// What a stranger asks for.
enum Asked {
    /// That cannot be told yet.
    Unclear,
    /// `is_last`: it has asked for the end of the connection too, and sent nothing more.
    Health {
        is_head: bool,
        is_last: bool,
    },
    Else,
}

impl Config {
    /// Whether it asks for the server's health.
    pub(super) fn is_health_check(&self, head: &Head<'_>) -> bool {
        let path = self.health_path.as_bytes();
        !path.is_empty() && head.target.path == path && matches!(head.method, b"GET" | b"HEAD")
    }
}

impl<A: App> EngineContext<A> {
    /// Whether the request that `input` begins with may be a health check, as far as that can be told.
    pub(super) fn glance(&self, input: &[u8]) -> Option<bool> {
        match self.config.health_path.as_bytes() {
            [] => Some(false),
            path => http1::glance(input, path),
        }
    }

    /// How the server is while it is turned.
    pub(super) fn health(&self) -> Health {
        if self.draining {
            Health::Draining
        } else if !self.may_call && (self.queued > 0 || self.is_full) {
            Health::Saturated
        } else {
            Health::Alive
        }
    }
}

impl<A: App> Connection<A> {
    /// Answers a health check and ends the connection, so that the next check comes on a new one: only those can be
    /// answered while nobody turns the engine. `is_last`: the peer has asked for the end, and sent nothing more.
    pub(super) fn answer_health_check(
        &mut self,
        health: Health,
        is_head: bool,
        is_last: bool,
        context: &mut EngineContext<A>,
    ) {
        let crate::Statistics { running, connections, .. } = context.statistics;
        let json = format!(
            "{{\"status\":\"{}\",\"running\":{running},\"queued\":{},\"connections\":{connections}}}\n",
            health.name(),
            context.queued,
        );
        let retry_after = (health.status() == 503).then_some(1);
        let out = self.out(context);
        http1::inform(health.status(), &json, retry_after, is_head, &context.stamp, &mut out.bytes);
        context.statistics.health_checks += 1;
        if let Some(stages) = &mut context.stages {
            stages.give_up(self.slot);
        }
        self.drop_input();
        self.exhausted = true;
        self.phase = Phase::Closing(if is_last { Closing::Orderly } else { Closing::Linger });
    }

    /// Looks whether a connection that has asked for nothing yet asks for the server's health, and answers. What else it
    /// asks for stays here as it came.
    ///
    /// Nothing of the application's is touched, if it knows the connection at all.
    pub(crate) fn service_pending(
        &mut self,
        health: Health,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
    ) -> Serviced {
        debug_assert!(!self.served, "there is nothing of the application's");
        let serviced_at = self.service(health, context, buffer);
        // Whoever drives it next begins with what lies here.
        self.exhausted = serviced_at != Serviced::Waits;
        if serviced_at == Serviced::Over {
            self.discard_output();
            if self.app.is_some() {
                // It may be a while until somebody drops the socket.
                self.socket.end_output();
            }
        } else {
            self.set_deadline(context);
        }
        self.store(context);
        serviced_at
    }

    fn service(&mut self, health: Health, context: &mut EngineContext<A>, buffer: &mut [u8]) -> Serviced {
        for _ in 0..STEPS {
            if !self.flush(context) {
                return Serviced::Over;
            }
            if !self.output.is_empty() {
                return Serviced::Stays;
            }
            match &self.phase {
                Phase::Head if self.has_input() => match self.asked(context) {
                    Asked::Unclear => {}
                    Asked::Health { is_head, is_last } => {
                        self.answer_health_check(health, is_head, is_last, context);
                        continue;
                    }
                    Asked::Else => return Serviced::Waits,
                },
                Phase::Closing(Closing::Linger) => {
                    self.socket.end_output();
                    self.phase = Phase::Linger(LINGER_BYTES);
                }
                _ => {}
            }
            // The first bytes tell: what is not for us is not taken in.
            let room = buffer.len().min(GLANCE);
            let count = match self.socket.receive(&mut buffer[..room]) {
                // A head that ends early is refused by somebody who can say so in the log.
                Ok(Moved::Bytes(0)) if self.has_input() => return Serviced::Waits,
                Ok(Moved::Bytes(0)) | Err(_) => return Serviced::Over,
                Ok(Moved::Bytes(count)) => count,
                Ok(Moved::WouldBlock) if matches!(self.phase, Phase::Closing(_)) => return Serviced::Over,
                Ok(Moved::WouldBlock) => return Serviced::Stays,
            };
            context.statistics.bytes_in += count as u64;
            match &mut self.phase {
                Phase::Head => self.input.extend_from_slice(&buffer[..count]),
                Phase::Linger(left) if *left > count as u64 => *left -= count as u64,
                Phase::Linger(_) => {
                    self.socket.reset_on_drop();
                    return Serviced::Over;
                }
                // It has said more after all: closing now could destroy its answer.
                phase => *phase = Phase::Closing(Closing::Linger),
            }
        }
        Serviced::Stays
    }

    /// Answers a request that waits with 503, while nobody can turn the engine. Returns whether the connection has to be
    /// driven, and the request that the application has to be told of.
    ///
    /// Nothing of the application's is touched or dropped.
    pub(crate) fn refuse_waiting(
        &mut self,
        context: &mut EngineContext<A>,
        buffer: &mut [u8],
    ) -> (bool, Option<(A::Request, Refusal)>) {
        const REFUSAL: Refusal = Refusal { status: 503, fault: None };
        if !self.output.is_empty() || self.out.as_ref().is_some_and(|out| !out.is_sent()) {
            // The answer before this request has not been sent.
            return (false, None);
        }
        let (is_head, orphan) = match &self.phase {
            Phase::Head => match self.awaited_head(context, buffer) {
                Some(is_head) => (is_head, None),
                // What was read here makes the socket ready for nobody again.
                None => return (self.has_input(), None),
            },
            Phase::Body(_) | Phase::Queued(_) => match self.take_request(context) {
                Some((request, facts)) => (facts.is_head, Some((request, REFUSAL))),
                None => return (false, None),
            },
            _ => return (false, None),
        };
        self.awaits_room = false;
        let out = self.out.get_or_insert_with(|| context.composer());
        context.config.refuse(REFUSAL, is_head, &context.stamp, &mut out.bytes);
        self.refused(503, context);
        if self.send_composed(&mut context.statistics) {
            self.socket.end_output();
        }
        self.set_deadline(context);
        (true, orphan)
    }

    /// Reads until a head is here as a whole; whether its method is HEAD.
    fn awaited_head(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8]) -> Option<bool> {
        while self.input.len() < context.config.limits.head {
            match self.socket.receive(buffer) {
                Ok(Moved::Bytes(count @ 1..)) => {
                    context.statistics.bytes_in += count as u64;
                    self.input.extend_from_slice(&buffer[..count]);
                    self.exhausted = false;
                }
                // Whoever turns the engine next finds out what is wrong.
                Ok(Moved::Bytes(_) | Moved::WouldBlock) | Err(_) => break,
            }
        }
        let mut receiver = Receiver::default();
        match receiver.head(&self.input[self.input_used..], &mut context.fields, &context.config.limits) {
            Ok(Some(head)) => Some(head.method == b"HEAD"),
            Ok(None) | Err(_) => None,
        }
    }

    /// What is asked for by what lies here. It is read with a receiver of its own, so that whoever turns the engine next
    /// reads it as it came.
    fn asked(&self, context: &mut EngineContext<A>) -> Asked {
        let input = &self.input[self.input_used..];
        match context.glance(input) {
            None => return Asked::Unclear,
            Some(false) => return Asked::Else,
            Some(true) => {}
        }
        let mut receiver = Receiver::default();
        match receiver.head(input, &mut context.fields, &context.config.limits) {
            Ok(None) => Asked::Unclear,
            Ok(Some(head)) if context.config.is_health_check(&head) => {
                let is_last = !head.keep_alive && head.length == input.len();
                Asked::Health { is_head: head.method == b"HEAD", is_last }
            }
            Ok(Some(_)) | Err(_) => Asked::Else,
        }
    }
}
