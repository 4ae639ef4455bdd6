//! A response's way out, as the application sees it.

use crate::app::App;
use crate::config::{COPY_AT_MOST, WRITE_BUFFER};
use crate::net;
use crate::output::Output;
use crate::statistics::Statistics;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use wire::http1::{self, Draft, Misuse, Request, Sender, Stamp};

/// Bytes that one response may produce in a turn while the peer keeps up; then others get theirs.
const SHARE: u64 = 256 << 10;

/// Output that waits beyond this makes those wait who cannot be suspended.
const OVERFULL: u64 = 1 << 20;

/// Waits for a peer to take more of what waits for it, without holding anything of its connection.
#[derive(Clone, Copy, Debug)]
pub struct Waiter<'a> {
    socket: BorrowedFd<'a>,
    timeout: Option<Duration>,
}

impl Waiter<'_> {
    /// Blocks until the peer's socket takes output; false if the write timeout has passed before.
    #[must_use]
    pub fn wait(&self) -> bool {
        net::wait_writable(self.socket, self.timeout)
    }
}

/// Where one response is written: [`begin`](Self::begin), parts, [`finish`](Self::finish); or
/// [`refuse`](Self::refuse) instead of all three.
///
/// Parts are collected and leave together when the application returns, or at [`flush`](Self::flush). An application
/// whose next part may take time to make flushes first (PEP 3333: no block may be delayed).
pub struct Reply<'a, A: App> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) output: &'a mut Output<A::Chunk>,
    pub(crate) sender: &'a mut Option<Sender>,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) stamp: &'a Stamp,
    pub(crate) request: Request,
    pub(crate) write_timeout: Option<Duration>,
    pub(crate) produced: u64,
    pub(crate) gone: bool,
}

impl<A: App> Reply<'_, A> {
    /// Whether the head has been written, so that the status can no longer change.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.sender.is_some()
    }

    /// Writes the head. `length` is the body's where it is known though the application did not declare it.
    pub fn begin(&mut self, draft: &Draft, length: Option<u64>) {
        debug_assert!(self.sender.is_none(), "a response has one head");
        *self.sender = Some(Sender::begin(draft, self.request, length, self.stamp, self.out));
    }

    /// Writes a part of the body.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`], when as much as was declared has been written.
    ///
    /// # Panics
    /// If the head has not been written.
    pub fn write(&mut self, chunk: A::Chunk) -> Result<(), Misuse> {
        let sender = self.sender.as_mut().expect("the head comes first");
        let length = chunk.as_ref().len();
        let (admitted, verdict) = sender.open(length as u64, self.out);
        self.produced += admitted;
        // What is admitted is at most the chunk's length, which is a usize.
        let end = usize::try_from(admitted).unwrap_or(length);
        if end <= COPY_AT_MOST {
            self.out.extend_from_slice(&chunk.as_ref()[..end]);
        } else {
            let sent = self.output.send_chunk(self.out, chunk, end, self.socket);
            self.note_sent(sent);
        }
        if let Some(sender) = self.sender.as_ref() {
            sender.close(admitted, self.out);
        }
        if self.out.len() > WRITE_BUFFER {
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
        let sender = self.sender.as_mut().expect("the head comes first");
        let (admitted, verdict) = sender.open(length, self.out);
        self.produced += admitted;
        self.output.push_file(self.out, file, offset, admitted);
        sender.close(admitted, self.out);
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
        self.sender.as_mut().expect("the head comes first").finish(self.out)
    }

    /// Answers with a page of the server's own and ends the response and the connection. If the head has been
    /// written already it does nothing and returns false.
    pub fn refuse(&mut self, status: u16, explanation: &str) -> bool {
        if self.is_begun() {
            return false;
        }
        let is_head = self.request.is_head;
        *self.sender = Some(http1::refuse(status, explanation, is_head, self.stamp, self.out));
        true
    }

    /// Sends what has been written so far, as much as the peer takes.
    pub fn flush(&mut self) {
        if self.gone {
            self.out.clear();
            return;
        }
        let sent = self.output.flush(self.out, self.socket);
        self.note_sent(sent);
    }

    /// Whether the peer has not taken all that was flushed: what is produced now piles up here.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.output.is_empty()
    }

    /// Whether more waits for the peer than any single part explains: whoever cannot stop to produce should wait.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        !self.gone && self.output.length() > OVERFULL
    }

    /// Something to wait with until the peer takes more.
    #[must_use]
    pub fn waiter(&self) -> Waiter<'_> {
        Waiter { socket: self.socket, timeout: self.write_timeout }
    }

    /// Body bytes of the response so far, without framing.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.sender.as_ref().map_or(0, Sender::body_bytes)
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
        self.sender.as_ref().is_some_and(Sender::is_bodiless)
    }

    fn note_sent(&mut self, sent: io::Result<u64>) {
        match sent {
            Ok(count) => self.statistics.bytes_out += count,
            Err(_) => self.gone = true,
        }
    }
}
