//! A response's way out, as the application sees it.

use crate::app::App;
use crate::coalescing::DeferredOutput;
use crate::compose::{Composer, Mark};
use crate::deadline::Millis;
use crate::net::{Net, Socket};
use crate::output::Output;
use crate::statistics::Statistics;
use std::fs::File;
use std::io;
use wire::http1::{self, Draft, Misuse, Request, Sender, Stamp};

/// Bytes that one response may produce while the peer keeps up; then others get their turn.
const SHARE: u64 = 256 << 10;

/// A part that comes this much later than the one before did not come within a tick, however coarse the clock is.
const SLOW: Millis = 10;

/// What comes so soon after a part comes within a tick.
const SOON: Millis = 1;

/// Output that waits beyond this is moved to a file.
const OVERFULL: u64 = 1 << 20;

/// Where one response is written: [`begin`](Self::begin), parts, [`finish`](Self::finish); or
/// [`refuse`](Self::refuse) instead of all three. They need not be written through one `Reply`: the engine lends one
/// for as long as [`Engine::reply`](crate::Engine::reply) runs, which must not be while the application works.
///
/// Parts are collected and leave together when the response is given back, or at [`flush`](Self::flush). An application
/// whose next part may take time to make flushes first (PEP 3333: no block may be delayed).
pub struct Reply<'a, A: App> {
    pub(crate) slot: usize,
    pub(crate) out: &'a mut Composer<A::Chunk>,
    pub(crate) output: &'a mut Output<A::Chunk>,
    pub(crate) deferred: &'a mut DeferredOutput,
    pub(crate) in_flight: &'a mut Option<InFlight>,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) socket: &'a <A::Net as Net>::Socket,
    pub(crate) stamp: &'a Stamp,
    pub(crate) now: Millis,
    pub(crate) request: Request,
    /// Bytes sent for this response's connection.
    pub(crate) moved: &'a mut u64,
    pub(crate) gone: &'a mut bool,
    /// The last response whose parts could tell came without a pause.
    pub(crate) parts_come_fast: &'a mut bool,
    /// How the response before this one ended, on the same connection.
    pub(crate) ending: &'a mut Ending,
}

/// A response whose head has been written.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) sender: Sender,
    pace: Pace,
    /// Parts that were to be sent before the application goes on.
    parts: u32,
    /// When the last of them was there, as coarsely as the engine's time is.
    part_at: Millis,
    /// Body bytes since the others had their turn.
    pub(crate) produced: u64,
    /// Where the response begins in what is composed, if nothing else waited to be sent; and what had been sent before.
    start: Option<(Mark, u64)>,
    /// Its status, until that is counted.
    status: Option<u16>,
}

/// How soon after each other an application's parts come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// The first part has not left: it leaves at once, for whoever waits to see something. Where the response before
    /// was fast throughout, this one is taken to be fast from its first part on.
    First,
    /// So far each came within a tick of the one before, so they are collected.
    Fast,
    /// One has kept others waiting: each leaves at once.
    Slow,
}

/// How a response in parts ended. The next one on the connection is taken to be alike: the part that was the last one
/// waits for the end, which then leaves with it, or for a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// None has ended yet, or not soon after a part.
    #[default]
    Unknown,
    /// Soon after the part with this number.
    BehindPart(u32),
    /// That was wrong once: a tick has sent the part.
    Unpredictable,
}

impl InFlight {
    fn new(sender: Sender, pace: Pace, start: Option<(Mark, u64)>, status: u16) -> Self {
        Self { sender, pace, parts: 0, part_at: 0, produced: 0, start, status: Some(status) }
    }

    /// Counts the status: it can no longer change.
    pub(crate) fn count_status(&mut self, statistics: &mut Statistics) {
        if let Some(status) = self.status.take() {
            statistics.count_status(status);
        }
    }
}

impl<A: App> Reply<'_, A> {
    /// Whether the head has been written, so that the status can no longer change.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Writes the head. `length` is the body's where it is known though the application did not declare it.
    pub fn begin(&mut self, draft: &Draft, length: Option<u64>) {
        debug_assert!(self.in_flight.is_none(), "a response has one head");
        self.recall();
        let start = self.output.is_empty().then(|| (self.out.mark(), *self.moved));
        let sender = Sender::begin(draft, self.request, length, self.stamp, &mut self.out.bytes);
        let pace = if *self.parts_come_fast { Pace::Fast } else { Pace::First };
        *self.in_flight = Some(InFlight::new(sender, pace, start, draft.status()));
    }

    /// Whether a body of `length` bytes is the one that `draft` declares, if it declares one.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`], [`Misuse::BodyTooShort`].
    pub fn check_length(&self, draft: &Draft, length: u64) -> Result<(), Misuse> {
        http1::check_length(draft, self.request, length)
    }

    /// Takes back a response of which only the head is here, and nothing has been sent; whether that was so. A part of a
    /// body counts as sent, because a tick may send it at any time.
    fn unsay(&mut self) -> bool {
        let Some(InFlight { start: Some((mark, moved)), sender, .. }) = &*self.in_flight else { return false };
        let (mark, moved, body_bytes) = (*mark, *moved, sender.body_bytes());
        if body_bytes > 0 || moved != *self.moved || self.out.is_begun() || !self.output.is_empty() || *self.gone {
            return false;
        }
        self.out.rewind(mark);
        *self.in_flight = None;
        true
    }

    /// Writes a part of the body.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`], when there is more than was declared; nothing of the part has been written then.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write(&mut self, chunk: A::Chunk) -> Result<(), Misuse> {
        self.recall();
        // The part before this one is still here: they come faster than ticks.
        *self.parts_come_fast |= self.out.deferred.is_some();
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        let length = chunk.as_ref().len();
        let (admitted, verdict) = in_flight.sender.open(length as u64, &mut self.out.bytes);
        in_flight.produced += admitted;
        // What is admitted is at most the chunk's length, which is a usize.
        self.out.push(chunk, usize::try_from(admitted).unwrap_or(length));
        in_flight.sender.close(admitted, &mut self.out.bytes);
        if self.out.is_full() {
            self.flush();
        }
        verdict
    }

    /// Writes as much of a part of the body as fits into the declared length, for a body that ends there (PEP 3333, file
    /// wrappers). Returns whether the body is whole.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write_fitting(&mut self, chunk: A::Chunk) -> bool {
        self.recall();
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        let length = chunk.as_ref().len();
        let room = in_flight.sender.room().unwrap_or(u64::MAX).min(length as u64);
        let (admitted, _) = in_flight.sender.open(room, &mut self.out.bytes);
        in_flight.produced += admitted;
        self.out.push(chunk, usize::try_from(admitted).unwrap_or(length));
        in_flight.sender.close(admitted, &mut self.out.bytes);
        let is_whole = in_flight.sender.room() == Some(0);
        if self.out.is_full() {
            self.flush();
        }
        is_whole
    }

    /// Sends `length` bytes of `file` from `offset` as a part of the body, without reading them here.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write_file(&mut self, file: File, offset: u64, length: u64) -> Result<(), Misuse> {
        self.recall();
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        let (admitted, verdict) = in_flight.sender.open(length, &mut self.out.bytes);
        in_flight.produced += admitted;
        self.out.move_to(self.output);
        self.output.push_file(file, offset, admitted);
        in_flight.sender.close(admitted, &mut self.out.bytes);
        verdict
    }

    /// Ends the response.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`]: give it back with [`Progress::Cut`](crate::Progress::Cut) then.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn finish(&mut self) -> Result<(), Misuse> {
        self.recall();
        let in_flight = self.in_flight.as_mut().expect("the head comes first");
        if in_flight.parts > 0 && *self.ending != Ending::Unpredictable {
            let is_soon = self.now.saturating_sub(in_flight.part_at) <= SOON;
            *self.ending = if is_soon { Ending::BehindPart(in_flight.parts) } else { Ending::Unknown };
        }
        in_flight.sender.finish(&mut self.out.bytes)
    }

    /// Answers with a page of the server's own and ends the response and the connection. If something of the response
    /// has been sent already it does nothing and returns false.
    pub fn refuse(&mut self, status: u16, explanation: &str) -> bool {
        self.replace(status, |request, stamp, out| {
            http1::refuse(status, explanation, None, request.is_head, stamp, out)
        })
    }

    /// The same for a response that the application has failed to give. The connection goes on if its client wants that,
    /// and the request has been read as a whole.
    pub fn fail(&mut self, status: u16, explanation: &str) -> bool {
        self.replace(status, |request, stamp, out| http1::fail(status, explanation, request, stamp, out))
    }

    fn replace(&mut self, status: u16, write: impl FnOnce(Request, &Stamp, &mut Vec<u8>) -> Sender) -> bool {
        self.recall();
        if self.is_begun() && !self.unsay() {
            return false;
        }
        let sender = write(self.request, self.stamp, &mut self.out.bytes);
        *self.in_flight = Some(InFlight::new(sender, Pace::First, None, status));
        true
    }

    /// Sends what has been written so far, as much as the peer takes.
    pub fn flush(&mut self) {
        self.recall();
        if *self.gone {
            self.out.clear();
            return;
        }
        if let Some(in_flight) = self.in_flight {
            in_flight.count_status(self.statistics);
        }
        let mut count = 0;
        *self.gone = flush(self.out, self.output, self.socket, &mut count).is_err();
        self.statistics.bytes_out += count;
        *self.moved += count;
    }

    /// Sends what has been written so far before the application goes on to produce more: at once where parts come
    /// slowly, or could; otherwise, and where this may be the last part, together with what comes next, or at the next
    /// tick although the application is still busy. An application that may take its time calls this, or
    /// [`flush`](Self::flush), first.
    pub fn send_soon(&mut self) {
        let now = self.now;
        let may_wait = self.in_flight.as_mut().is_some_and(|in_flight| {
            let took = now.saturating_sub(std::mem::replace(&mut in_flight.part_at, now));
            if in_flight.pace == Pace::Fast && took > SLOW && took < now {
                in_flight.pace = Pace::Slow;
            }
            in_flight.parts = in_flight.parts.saturating_add(1);
            in_flight.pace == Pace::Fast || *self.ending == Ending::BehindPart(in_flight.parts)
        });
        if may_wait && !*self.gone && self.output.is_empty() && !self.out.is_begun() {
            if !self.out.is_empty() {
                defer(self.out, self.deferred, self.slot);
            }
            return;
        }
        self.flush();
        if let Some(in_flight) = self.in_flight
            && in_flight.pace == Pace::First
        {
            in_flight.pace = Pace::Fast;
        }
    }

    /// Takes note of what a tick has sent.
    fn recall(&mut self) {
        if !self.out.is_begun() {
            return;
        }
        *self.gone |= self.out.failed;
        self.out.move_to(self.output);
        *self.parts_come_fast = false;
        if let Some(in_flight) = self.in_flight {
            if *self.ending == Ending::BehindPart(in_flight.parts) {
                *self.ending = Ending::Unpredictable;
            }
            in_flight.pace = Pace::Slow;
        }
    }

    /// Whether the peer has not taken all that was flushed: what is produced now piles up here.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.output.is_empty()
    }

    /// For whoever cannot stop to produce although the peer does not read: what piles up is kept in a file.
    ///
    /// # Errors
    /// If it cannot be kept; the response should be broken off then.
    pub fn relieve(&mut self) -> io::Result<()> {
        if *self.gone || self.output.length() <= OVERFULL { Ok(()) } else { self.output.spill() }
    }

    /// Body bytes of the response so far, without framing.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.in_flight.as_ref().map_or(0, |in_flight| in_flight.sender.body_bytes())
    }

    /// What the application has offered as the body of the response so far, also what was too much.
    #[must_use]
    pub fn offered_bytes(&self) -> u64 {
        self.in_flight.as_ref().map_or(0, |in_flight| in_flight.sender.offered_bytes())
    }

    /// Whether the peer has left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        *self.gone
    }

    /// Whether the response has had its share and should let others go on.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| in_flight.produced >= SHARE)
    }

    /// Whether the response has no body on the wire, whatever the application produces.
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| in_flight.sender.is_bodiless())
    }
}

/// Holds back what is composed for the connection in `slot`, until more is, or somebody sends it, or the tick after
/// the next.
pub(crate) fn defer<C>(out: &mut Composer<C>, deferred: &mut DeferredOutput, slot: usize) {
    if out.deferred.replace(deferred.tick).is_none() {
        deferred.slots.push(slot);
    }
}

/// Sends what waits and then what is composed; what the socket does not take waits. Adds the bytes
/// sent to `moved`, if it fails too.
pub(crate) fn flush<C: AsRef<[u8]>>(
    out: &mut Composer<C>,
    output: &mut Output<C>,
    socket: &impl Socket,
    moved: &mut u64,
) -> io::Result<()> {
    if !output.is_empty() {
        out.move_to(output);
        return output.flush(socket, moved);
    }
    if out.is_empty() {
        return Ok(());
    }
    if !out.is_sent() {
        *moved += out.send(socket)? as u64;
    }
    if out.is_sent() {
        out.clear();
    } else {
        out.move_to(output);
    }
    Ok(())
}
