//! A response's way out, as the application sees it.

use crate::app::App;
use crate::compose::Composer;
use crate::courier::{Courier, Loan};
use crate::net::Moved;
use crate::output::Output;
use crate::statistics::Statistics;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::http1::{self, Draft, Misuse, Request, Sender, Stamp};

/// Bytes that one response may produce in a turn while the peer keeps up; then others get theirs.
const SHARE: u64 = 256 << 10;

/// Output that waits beyond this is moved to a file.
const OVERFULL: u64 = 1 << 20;

/// Where one response is written: [`begin`](Self::begin), parts, [`finish`](Self::finish); or
/// [`refuse`](Self::refuse) instead of all three.
///
/// Parts are collected and leave together when the application returns, or at [`flush`](Self::flush). An application
/// whose next part may take time to make flushes first (PEP 3333: no block may be delayed).
pub struct Reply<'a, A: App> {
    pub(crate) out: &'a mut Composer<A::Chunk>,
    pub(crate) output: &'a mut Output<A::Chunk>,
    pub(crate) courier: &'a mut Courier<A::Chunk>,
    pub(crate) begun: &'a mut Option<Begun>,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) stamp: &'a Stamp,
    pub(crate) request: Request,
    pub(crate) stopping: &'a AtomicBool,
    pub(crate) produced: u64,
    pub(crate) gone: bool,
    /// `out` is lent to the courier.
    pub(crate) lent: bool,
    /// The last response whose parts could tell came without a pause.
    pub(crate) parts_come_fast: &'a mut bool,
}

/// A response whose head has been written.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) sender: Sender,
    pace: Pace,
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

impl Begun {
    fn new(sender: Sender, pace: Pace) -> Self {
        Self { sender, pace }
    }
}

impl<A: App> Reply<'_, A> {
    /// Whether the head has been written, so that the status can no longer change.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Writes the head. `length` is the body's where it is known though the application did not declare it.
    pub fn begin(&mut self, draft: &Draft, length: Option<u64>) {
        debug_assert!(self.begun.is_none(), "a response has one head");
        self.recall();
        let keep_alive = self.request.keep_alive && !self.stopping.load(Ordering::Relaxed);
        let request = Request { keep_alive, ..self.request };
        let sender = Sender::begin(draft, request, length, self.stamp, &mut self.out.bytes);
        let pace = if *self.parts_come_fast { Pace::Fast } else { Pace::First };
        *self.begun = Some(Begun::new(sender, pace));
    }

    /// Writes a part of the body.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`], when as much as was declared has been written.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write(&mut self, chunk: A::Chunk) -> Result<(), Misuse> {
        self.recall();
        let sender = &mut self.begun.as_mut().expect("the head comes first").sender;
        let length = chunk.as_ref().len();
        let (admitted, verdict) = sender.open(length as u64, &mut self.out.bytes);
        self.produced += admitted;
        // What is admitted is at most the chunk's length, which is a usize.
        self.out.push(chunk, usize::try_from(admitted).unwrap_or(length));
        sender.close(admitted, &mut self.out.bytes);
        if self.out.is_full() {
            self.flush();
        }
        verdict
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
        let sender = &mut self.begun.as_mut().expect("the head comes first").sender;
        let (admitted, verdict) = sender.open(length, &mut self.out.bytes);
        self.produced += admitted;
        self.out.move_to(0, self.output);
        self.output.push_file(file, offset, admitted);
        sender.close(admitted, &mut self.out.bytes);
        verdict
    }

    /// Ends the response.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`]: return [`Progress::Cut`](crate::Progress::Cut) then.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn finish(&mut self) -> Result<(), Misuse> {
        self.recall();
        self.begun.as_mut().expect("the head comes first").sender.finish(&mut self.out.bytes)
    }

    /// Answers with a page of the server's own and ends the response and the connection. If the head has been
    /// written already it does nothing and returns false.
    pub fn refuse(&mut self, status: u16, explanation: &str) -> bool {
        if self.is_begun() {
            return false;
        }
        self.recall();
        let is_head = self.request.is_head;
        let sender = http1::refuse(status, explanation, is_head, self.stamp, &mut self.out.bytes);
        *self.begun = Some(Begun::new(sender, Pace::First));
        true
    }

    /// Sends what has been written so far, as much as the peer takes.
    pub fn flush(&mut self) {
        self.recall();
        if self.gone {
            self.out.clear();
        } else {
            let sent = flush(self.out, self.output, self.socket);
            self.note_sent(&sent);
        }
    }

    /// Sends what has been written so far before the application goes on to produce more: at once where parts come
    /// slowly, or could; otherwise together with what comes next, or after a tick even though the application is still
    /// busy. An application that may take its time calls this, or [`flush`](Self::flush), first.
    pub fn send_soon(&mut self) {
        let pace = self.begun.as_ref().map_or(Pace::Slow, |begun| begun.pace);
        if pace == Pace::Fast && !self.lent && !self.gone && self.output.is_empty() {
            if self.out.is_empty() {
                return;
            }
            if self.courier.lend(self.out, self.socket).is_ok() {
                self.lent = true;
                *self.parts_come_fast = true;
                return;
            }
        }
        self.flush();
        if let Some(begun) = self.begun
            && begun.pace == Pace::First
        {
            begun.pace = Pace::Fast;
        }
    }

    /// Takes back what the courier may have sent meanwhile.
    pub(crate) fn recall(&mut self) {
        if !std::mem::take(&mut self.lent) {
            return;
        }
        match self.courier.recall(self.out) {
            Loan::Untouched => return,
            Loan::Sent(count) => {
                self.statistics.bytes_out += count as u64;
                if count == self.out.length() {
                    self.out.clear();
                } else {
                    self.out.move_to(count, self.output);
                }
            }
            Loan::Failed => self.gone = true,
        }
        *self.parts_come_fast = false;
        if let Some(begun) = self.begun {
            begun.pace = Pace::Slow;
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
        if self.gone || self.output.length() <= OVERFULL { Ok(()) } else { self.output.spill() }
    }

    /// Body bytes of the response so far, without framing.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.begun.as_ref().map_or(0, |begun| begun.sender.body_bytes())
    }

    /// Whether the peer has left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether the response has had its share of this turn and should let others go on.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.produced >= SHARE
    }

    /// Whether the response has no body on the wire, whatever the application produces.
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.sender.is_bodiless())
    }

    fn note_sent(&mut self, sent: &io::Result<u64>) {
        match sent {
            Ok(count) => self.statistics.bytes_out += count,
            Err(_) => self.gone = true,
        }
    }
}

/// Sends what waits and then what is composed; what the socket does not take waits. Returns the bytes sent.
pub(crate) fn flush<C: AsRef<[u8]>>(
    out: &mut Composer<C>,
    output: &mut Output<C>,
    socket: BorrowedFd<'_>,
) -> io::Result<u64> {
    if !output.is_empty() {
        out.move_to(0, output);
        return output.flush(socket);
    }
    if out.is_empty() {
        return Ok(0);
    }
    let sent = match out.send(0, socket)? {
        Moved::Bytes(count) => count,
        Moved::WouldBlock => 0,
    };
    if sent == out.length() {
        out.clear();
    } else {
        out.move_to(sent, output);
    }
    Ok(sent as u64)
}
