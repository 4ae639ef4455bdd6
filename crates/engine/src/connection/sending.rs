//! The output of a connection: composing it, holding it back, and sending it.

use super::lifecycle::{Closing, Lifecycle, LinkState};
use crate::coalescing::DeferredOutput;
use crate::compose::Composer;
use crate::context::Scratch;
use crate::deadline::Millis;
use crate::exchange::Backlog;
use crate::in_flight::Ending;
use crate::observe::Observer;
use crate::output::Output;
use crate::protocol::{MultiplexedProtocol, StreamId};
use crate::reply;
use crate::stages::Stages;
use crate::statistics::Statistics;
use crate::transport::Transport;

/// The output of a connection, and how fast the peer reads it.
pub(super) struct Sending<C> {
    /// Composed output, which has not been sent; output that the transport did not accept is in `waiting`.
    composer: Option<Box<Composer<C>>>,
    waiting: Output<C>,
    /// The number of bytes sent since the last head.
    moved: u64,
    /// The time in milliseconds for which these bytes had to wait, without the current wait.
    waited: Millis,
    /// The way in which the last streamed response ended.
    ending: Ending,
}

/// The output of a connection, lent to the writer of a response.
pub(super) struct Lent<'a, C> {
    pub(super) composer: &'a mut Composer<C>,
    pub(super) waiting: &'a mut Output<C>,
    pub(super) moved: &'a mut u64,
    pub(super) ending: &'a mut Ending,
}

impl<C: AsRef<[u8]>> Sending<C> {
    pub(super) fn new() -> Self {
        Self { composer: None, waiting: Output::new(), moved: 0, waited: 0, ending: Ending::Unknown }
    }

    /// Returns true if there is output that the peer has not read.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns true if there is no output, composed or waiting.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.composer.is_none() && self.waiting.is_empty()
    }

    /// Returns true if sending has paused before its end, so that other connections are served.
    pub(super) fn is_paused(&self) -> bool {
        self.waiting.is_paused()
    }

    /// Returns true if a file that is being sent has become shorter.
    pub(super) fn has_file_shrunk(&self) -> bool {
        self.waiting.has_file_shrunk()
    }

    /// Returns true if there are composed bytes, and more may be composed before they are sent.
    #[inline]
    pub(super) fn has_room_beside_composed(&self) -> bool {
        self.composer.as_ref().is_some_and(|out| !out.is_full())
    }

    /// Returns true if there are so many composed bytes that they have to be sent now.
    pub(super) fn is_full(&self) -> bool {
        self.composer.as_ref().is_some_and(|out| out.is_full())
    }

    /// Returns true if composed bytes have not been sent.
    pub(super) fn has_composed(&self) -> bool {
        self.composer.as_ref().is_some_and(|out| !out.is_sent())
    }

    /// Returns the number of unsent bytes in memory.
    pub(super) fn backlog(&self) -> usize {
        let composed = self.composer.as_ref().map_or(0, |out| out.unsent());
        composed + self.waiting_bytes()
    }

    /// Returns the number of waiting bytes, without the composed ones.
    pub(super) fn waiting_bytes(&self) -> usize {
        usize::try_from(self.waiting.length()).unwrap_or(usize::MAX)
    }

    // ------------------------------------------------------------------------------------------------------- composing

    /// Returns the composer of this connection. None of its bytes has been sent.
    #[inline]
    pub(super) fn out(&mut self, scratch: &mut Scratch<C>) -> &mut Composer<C> {
        let out = self.composer.get_or_insert_with(|| scratch.composer());
        // A tick has sent a part of the composed bytes. The rest moves to `waiting`.
        if out.is_begun() {
            out.move_to(&mut self.waiting);
        }
        out
    }

    /// Returns the composed bytes, of which a part may have been sent.
    pub(super) fn raw_out(&mut self, scratch: &mut Scratch<C>) -> &mut Vec<u8> {
        &mut self.composer.get_or_insert_with(|| scratch.composer()).bytes
    }

    /// Moves all composed bytes to the waiting output, and returns it for appending.
    pub(super) fn waiting(&mut self) -> &mut Output<C> {
        if let Some(composer) = &mut self.composer {
            composer.move_to(&mut self.waiting);
        }
        &mut self.waiting
    }

    /// Lends the output to the writer of a response.
    #[inline]
    pub(super) fn lend(&mut self, scratch: &mut Scratch<C>) -> Lent<'_, C> {
        Lent {
            composer: self.composer.get_or_insert_with(|| scratch.composer()),
            waiting: &mut self.waiting,
            moved: &mut self.moved,
            ending: &mut self.ending,
        }
    }

    /// Returns the composer to the engine if it is empty.
    #[inline]
    pub(super) fn store(&mut self, scratch: &mut Scratch<C>) {
        if let Some(out) = self.composer.take_if(|out| out.is_empty()) {
            scratch.composers.push(out);
        }
    }

    /// Discards the composed bytes, and returns the composer to the engine.
    pub(super) fn drop_composed(&mut self, scratch: &mut Scratch<C>) {
        if let Some(mut out) = self.composer.take() {
            out.clear();
            scratch.composers.push(out);
        }
    }

    /// Drops all output.
    pub(super) fn discard(&mut self) {
        if let Some(composer) = &mut self.composer {
            composer.clear();
        }
        self.waiting.clear();
    }

    /// Holds the composed bytes back, to send them together with the next response.
    #[inline]
    pub(super) fn defer(&mut self, deferred: &mut DeferredOutput, slot: usize) {
        if let Some(out) = &mut self.composer
            && !out.is_empty()
        {
            reply::defer(out, deferred, slot);
        }
    }

    // --------------------------------------------------------------------------------------------------------- sending

    /// Sends held-back output that has not changed since the previous tick. Returns true if output is still held back.
    /// Drops no object of the application.
    pub(super) fn tick<T: Transport>(
        &mut self,
        transport: &mut T,
        (slot, tick): (usize, u64),
        statistics: &mut Statistics,
        observer: &mut Option<Box<Stages>>,
    ) -> bool {
        let has_output = self.is_waiting() || transport.has_unsent();
        let Some(out) = &mut self.composer else { return false };
        match out.deferred {
            Some(at) if at < tick && !has_output && !out.failed && !out.is_sent() => {
                observer.send(slot);
                self.send_composed(transport, statistics);
                let Some(out) = &self.composer else { return false };
                observer.sent(slot, out.is_sent());
                !out.failed && !out.is_sent()
            }
            Some(at) => at >= tick,
            None => false,
        }
    }

    /// Sends as many of the composed bytes as the transport accepts, and drops nothing. Returns true if all have been
    /// sent.
    pub(super) fn send_composed<T: Transport>(&mut self, transport: &mut T, statistics: &mut Statistics) -> bool {
        let Some(out) = &mut self.composer else { return true };
        if !out.failed && !out.is_sent() {
            let count = out.send(transport, false).unwrap_or(0) as u64;
            statistics.bytes_out += count;
            self.moved += count;
        }
        !out.failed && out.is_sent() && !transport.has_unsent()
    }

    /// Sends as much output as the transport accepts. `ends`: the end of output follows directly. Returns false if the
    /// peer is gone.
    #[inline]
    pub(super) fn flush<T: Transport>(&mut self, transport: &mut T, ends: bool, statistics: &mut Statistics) -> bool {
        let mut count = 0;
        let flushed = match &mut self.composer {
            Some(out) => reply::flush(out, &mut self.waiting, transport, ends, &mut count),
            None => reply::flush_waiting(&mut self.waiting, transport, &mut count),
        };
        statistics.bytes_out += count;
        self.moved += count;
        flushed.is_ok()
    }

    /// Sends a large part of the response on a stream ([`Backlog::send_large`]). Returns true if it has done so.
    pub(super) fn send_large<P: MultiplexedProtocol, T: Transport>(
        &mut self,
        backlog: &mut Backlog<C>,
        (protocol, stream): (&mut P, StreamId),
        transport: &mut T,
        scratch: &mut Scratch<C>,
        statistics: &mut Statistics,
    ) -> bool {
        let Lent { composer, waiting, moved, .. } = self.lend(scratch);
        let Some(count) = backlog.send_large(protocol, stream, composer, waiting, transport) else { return false };
        statistics.bytes_out += count;
        *moved += count;
        true
    }

    // ------------------------------------------------------------------------------------------------------- measuring

    /// Begins to measure how fast the peer reads the output, because a request has arrived.
    #[inline]
    pub(super) fn begin_measuring(&mut self) {
        self.moved = 0;
        self.waited = 0;
    }

    /// Records that output has waited for `passed` milliseconds.
    pub(super) fn note_waited(&mut self, passed: Millis) {
        self.waited += passed;
    }

    /// Returns the number of bytes sent since the last head, and the time in milliseconds for which they had to wait
    /// before the current wait.
    pub(super) fn measured(&self) -> (u64, Millis) {
        (self.moved, self.waited)
    }
}

/// Returns true if the end of output directly follows the composed bytes on a connection in this state. Over TCP both
/// are then sent in one packet. This saves a packet, and a client that has read the last byte also knows that the
/// connection has ended, so it cannot send another request in between.
#[inline]
pub(super) fn ends_behind_output(lifecycle: &Lifecycle) -> bool {
    matches!(lifecycle.state(), LinkState::Closing(Closing::Orderly | Closing::Linger))
}
