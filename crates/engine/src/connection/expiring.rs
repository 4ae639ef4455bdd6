//! A call that misses its deadline: the client gets its answer now, and what the call writes later is dropped.
//!
//! The call itself cannot be ended here. Its ticket stays valid and its slot stays taken until it comes back, so the
//! connection goes to [`Phase::Expired`] and ends in that phase as others end in `Closing` and `Linger`:
//!
//! ```text
//!   Running ──deadline──▶ Expired: send what is composed ─▶ end output ─▶ linger ─▶ gone ── put back ─▶ removed
//!                             └───────────────────────── put back ─▶ Closing, Linger
//! ```
//!
//! [`Connection::expire_call`] may run in the watchdog's thread, which does not hold the GIL. It drops nothing that the
//! application gave to the engine and calls no method of [`App`].

use super::{Closing, Connection, EngineContext, Phase};
use crate::app::{App, Refusal};
use crate::coalescing::DeferredOutput;
use crate::config::LINGER_BYTES;
use crate::net::Socket;
use crate::output::Output;
use crate::reply::{Ending, Reply};
use crate::statistics::Statistics;
use wire::http1::Request;

/// What a client gets whose call has missed its deadline.
const MISSED: Refusal = Refusal { status: 504, fault: None };

/// What the client of a call got when the call missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The page of `504 Gateway Timeout`; `body_bytes`: the length of its body.
    Answered {
        /// Without framing.
        body_bytes: u64,
    },
    /// A part of the application's response, and the end of the connection, so that it sees that the rest is missing.
    Cut {
        /// Of the part, without framing.
        body_bytes: u64,
    },
    /// The whole response of the application, which had been written before: only the call has not ended.
    Whole,
    /// Nothing: the client had left before.
    Left,
}

/// A connection in [`Phase::Expired`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Expiring {
    pub(super) facts: Request,
    /// How the connection is closed when all output has been sent.
    closing: Closing,
    /// The output has been ended. The client may still send this many bytes, which are discarded.
    linger: Option<u64>,
    /// The call is not expected to come back: the server's end does not wait for it.
    is_written_off: bool,
}

impl<A: App> Connection<A> {
    /// Whether the call that is out for it has missed its deadline.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self.phase, Phase::Expired(_))
    }

    /// Whether nothing is left of it but a call that is not expected to come back.
    pub(crate) fn is_written_off(&self) -> bool {
        self.gone && matches!(self.phase, Phase::Expired(Expiring { is_written_off: true, .. }))
    }

    /// The call is not expected to come back.
    pub(crate) fn write_off(&mut self) {
        if let Phase::Expired(expiring) = &mut self.phase {
            expiring.is_written_off = true;
        }
    }

    /// Answers the client of a call that has missed its deadline. The connection has to be driven afterwards.
    pub(crate) fn expire_call(&mut self, context: &mut EngineContext<A>) -> Expired {
        let Phase::Running(facts) = self.phase else { return Expired::Left };
        if let Some(stages) = &mut context.stages {
            stages.give_up(self.slot);
        }
        self.end_incoming(MISSED);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.count_status(&mut context.statistics);
        }
        let (expired, closing) = match &self.in_flight {
            _ if self.gone => (Expired::Left, Closing::Linger),
            None => {
                let out = self.out.get_or_insert_with(|| context.composer());
                let page = context.config.refuse(MISSED, facts.is_head, &context.stamp, &mut out.bytes);
                context.statistics.count_status(MISSED.status);
                (Expired::Answered { body_bytes: page.body_bytes() }, Closing::Linger)
            }
            Some(in_flight) if in_flight.sender.is_whole() => (Expired::Whole, Closing::Linger),
            Some(in_flight) => {
                context.statistics.cut += 1;
                let closing = if in_flight.sender.needs_reset() { Closing::Reset } else { Closing::Linger };
                (Expired::Cut { body_bytes: in_flight.sender.body_bytes() }, closing)
            }
        };
        self.phase = Phase::Expired(Expiring { facts, closing, linger: None, is_written_off: false });
        if !self.gone && self.output.is_empty() && self.send_composed(&mut context.statistics) {
            self.close_expired();
        }
        self.set_deadline(context);
        expired
    }

    /// Sends what is composed as far as the socket takes it, and drops nothing. Returns whether all of it has been sent.
    pub(super) fn send_composed(&mut self, statistics: &mut Statistics) -> bool {
        let Some(out) = &mut self.out else { return true };
        if !out.failed && !out.is_sent() {
            let count = out.send(&self.socket).unwrap_or(0) as u64;
            statistics.bytes_out += count;
            self.moved += count;
        }
        !out.failed && out.is_sent()
    }

    /// All output has been sent: the client is told that this is the end.
    fn end_expired_output(&mut self) {
        if let Phase::Expired(expiring) = &mut self.phase
            && expiring.closing != Closing::Reset
            && expiring.linger.is_none()
        {
            expiring.linger = Some(LINGER_BYTES);
            self.socket.end_output();
        }
    }

    /// Goes on with the end of the connection after all output was sent. Returns whether input has to be discarded.
    pub(super) fn close_expired(&mut self) -> bool {
        let Phase::Expired(expiring) = &self.phase else { return false };
        if self.gone {
            return false;
        }
        if expiring.closing == Closing::Reset {
            self.socket.cut();
            self.let_expired_go();
            return false;
        }
        self.end_expired_output();
        if self.ended {
            self.let_expired_go();
            return false;
        }
        self.drop_input();
        self.exhausted = true;
        true
    }

    /// Discards input of a client that has its answer.
    pub(super) fn discard_expired(&mut self, count: u64) {
        if let Phase::Expired(Expiring { linger: Some(left), closing, .. }) = &mut self.phase {
            *left = left.saturating_sub(count);
            if *left == 0 {
                *closing = Closing::Reset;
            }
        }
    }

    /// Whether the client of an expired call is waited for to close its side.
    pub(super) fn is_expired_lingering(&self) -> bool {
        matches!(self.phase, Phase::Expired(Expiring { linger: Some(_), .. }))
    }

    /// The client needs nothing more. The socket stays open until the call comes back, because its slot does.
    pub(super) fn let_expired_go(&mut self) {
        self.gone = true;
        self.readable = false;
    }

    /// How the connection goes on once the call has come back.
    pub(super) fn expired_phase(&self) -> Option<Phase<A>> {
        let Phase::Expired(Expiring { closing, linger, .. }) = &self.phase else { return None };
        Some(match linger {
            // The client closes, or has closed, in its own time: nothing of its answer must be destroyed now.
            _ if self.gone && *closing != Closing::Reset && self.output.is_empty() => Phase::Closing(Closing::Orderly),
            _ if self.gone => Phase::Closing(Closing::Reset),
            Some(left) if *closing != Closing::Reset => Phase::Linger(*left),
            _ => Phase::Closing(*closing),
        })
    }

    /// Lends what a response is written with that goes nowhere.
    pub(super) fn reply_to_nobody<R>(
        &mut self,
        facts: Request,
        context: &mut EngineContext<A>,
        write: impl FnOnce(&mut Reply<'_, A>) -> R,
    ) -> R {
        let mut out = context.composer();
        let result = write(&mut Reply {
            slot: self.slot,
            out: &mut out,
            output: &mut Output::new(),
            deferred: &mut DeferredOutput::default(),
            in_flight: &mut self.in_flight,
            statistics: &mut Statistics::default(),
            socket: &self.socket,
            stamp: &context.stamp,
            now: context.now,
            request: Request { keep_alive: false, ..facts },
            moved: &mut 0,
            gone: &mut true,
            parts_come_fast: &mut false,
            ending: &mut Ending::default(),
        });
        out.clear();
        context.spare.push(out);
        result
    }
}
