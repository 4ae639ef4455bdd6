//! Composing and sending the output of a connection.

use super::{Closing, Connection, Lifecycle};
use crate::app::App;
use crate::compose::Composer;
use crate::context::EngineContext;
use crate::observe::Observer;
use crate::protocol::Protocol;
use crate::reply;
use crate::stages::Stages;
use crate::statistics::Statistics;
use crate::transport::Transport;

impl<A: App> Connection<A> {
    /// Returns true if output waits that the peer has not taken.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.send.waiting.is_empty() || self.transport.has_unsent()
    }

    /// Returns the composer of this connection. None of its bytes has been sent.
    pub(super) fn out(&mut self, context: &mut EngineContext<A>) -> &mut Composer<A::Chunk> {
        let out = self.send.composer.get_or_insert_with(|| context.composer());
        // A tick has sent a part of the composed bytes: the rest is sent from `waiting`.
        if out.is_begun() {
            out.move_to(&mut self.send.waiting);
        }
        out
    }

    /// Returns the composer to the engine if it is empty.
    pub(super) fn store(&mut self, context: &mut EngineContext<A>) {
        if let Some(out) = self.send.composer.take_if(|out| out.is_empty()) {
            context.spare.push(out);
        }
    }

    /// Holds back the composed bytes, so that the next response is sent together with them.
    pub(super) fn defer(&mut self, context: &mut EngineContext<A>) {
        if let Some(out) = &mut self.send.composer
            && !out.is_empty()
        {
            reply::defer(out, &mut context.deferred, self.slot);
        }
    }

    /// Sends, at a tick, output that is held back and was not changed since the previous tick. Returns true if it is
    /// still held back. Drops nothing that belongs to the application.
    pub(crate) fn tick(&mut self, tick: u64, statistics: &mut Statistics, observer: &mut Option<Box<Stages>>) -> bool {
        let has_output = self.has_output();
        let Some(out) = &mut self.send.composer else { return false };
        match out.deferred {
            Some(at) if at < tick && !has_output && !out.failed && !out.is_sent() => {
                observer.send(self.slot);
                self.send_composed(statistics);
                let Some(out) = &self.send.composer else { return false };
                observer.sent(self.slot, out.is_sent());
                !out.failed && !out.is_sent()
            }
            Some(at) => at >= tick,
            None => false,
        }
    }

    /// Sends the composed bytes as far as the transport takes them, and drops nothing. Returns true if all have been
    /// sent.
    pub(super) fn send_composed(&mut self, statistics: &mut Statistics) -> bool {
        let Some(out) = &mut self.send.composer else { return true };
        if !out.failed && !out.is_sent() {
            let count = out.send(&mut self.transport, false).unwrap_or(0) as u64;
            statistics.bytes_out += count;
            self.send.moved += count;
        }
        !out.failed && out.is_sent() && !self.transport.has_unsent()
    }

    /// Sends the composed bytes. Returns false if the peer is gone.
    pub(super) fn flush(&mut self, context: &mut EngineContext<A>) -> bool {
        if self.is_multiplexed() && self.protocol.has_control() {
            self.write_control(context);
        }
        if context.observer.is_some() { self.flush_observed(context) } else { self.flush_now(context) }
    }

    #[cold]
    fn flush_observed(&mut self, context: &mut EngineContext<A>) -> bool {
        context.observer.send(self.slot);
        let flushed = self.flush_now(context);
        context.observer.sent(self.slot, !self.has_output());
        flushed
    }

    fn flush_now(&mut self, context: &mut EngineContext<A>) -> bool {
        let mut count = 0;
        let ends = self.ends_behind_output();
        let flushed = match &mut self.send.composer {
            Some(out) => reply::flush(out, &mut self.send.waiting, &mut self.transport, ends, &mut count),
            None => reply::flush_waiting(&mut self.send.waiting, &mut self.transport, &mut count),
        };
        context.statistics.bytes_out += count;
        self.send.moved += count;
        flushed.is_ok()
    }

    /// Returns true if the end of output directly follows the composed bytes. Over TCP both then leave in one packet.
    /// That is one packet less, and a client that has read the last byte knows that the connection has ended: it cannot
    /// send a further request on it in between.
    fn ends_behind_output(&self) -> bool {
        match self.lifecycle {
            Lifecycle::Open => self.is_multiplexed() && self.exchanges.is_empty() && self.may_end(),
            Lifecycle::Closing(Closing::Orderly | Closing::Linger) => true,
            Lifecycle::Closing(Closing::Reset)
            | Lifecycle::Linger(_)
            | Lifecycle::Hijacked { .. }
            | Lifecycle::Gone => false,
        }
    }

    /// Writes the answers of the protocol itself.
    fn write_control(&mut self, context: &mut EngineContext<A>) {
        let mut control = std::mem::take(&mut context.chunks);
        control.clear();
        self.protocol.write_control(&mut control);
        if !control.is_empty() {
            self.out(context).bytes.extend_from_slice(&control);
        }
        context.chunks = control;
    }
}
