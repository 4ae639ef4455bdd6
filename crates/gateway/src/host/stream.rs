//! Responses that the application produces part by part. This code runs unlocked; only writing a part locks the engine
//! briefly.

use super::app::WARNING;
use super::exchange::ExchangeState;
use super::job::{Failure, InFlight, Mismatch, Resumable, Stream};
use super::slices::encode_most;
use super::threads::Host;
use crate::clock;
use crate::interface::{Interface, ResponseBody};
use crate::object::Chunk;
use engine::{Progress, Stage, Ticket};
use pyo3::prelude::*;
use wire::message::Misuse;

/// The number of empty blocks that a response body may yield before other calls run. An empty block means that there
/// are no data yet.
const EMPTY_PER_POLL: usize = 64;

/// The function that wraps a suspended response for the engine: [`Progress::Blocked`] or [`Progress::Yield`].
type Suspension<I> = fn(Resumable<I>) -> Progress<Resumable<I>>;

/// The reason why the server stops requesting parts of a response body.
enum Pumped {
    /// The client has not read the last part yet.
    Blocked,
    /// The response has used its share of time; other calls run first.
    Due,
    /// The response has begun, and the body has ended or the rest is not needed. The misuse is one for which
    /// [`Exchange::write`](crate::interface::Exchange::write) raised an exception in the application.
    Ended(Option<Misuse>),
    /// The body is longer than its Content-Length.
    TooLong(Mismatch),
    /// The client has left.
    Gone,
}

impl<I: Interface> Stream<I> {
    /// Begins a response that the application produces part by part.
    pub(super) fn start(call: InFlight<I>, body: I::Body, worker: Option<usize>, host: &Host<I>, py: Python<'_>) {
        call.switch_stage(host, py, Stage::App);
        let stream = Box::new(Self { call, body, body_bytes: 0, first: None, worker });
        let Err(mut stream) = stream.send_file(host, py) else { return };
        match host.origin.come_back(py, stream.body.start(py)) {
            Ok(()) => stream.pump(host, py),
            Err(error) => {
                let Self { call, body, .. } = *stream;
                // Only the first error is reported.
                drop(body.close(py));
                call.fail(host, py, Failure::Raised(error));
            }
        }
    }

    /// Continues a stream that the engine held.
    pub(super) fn go_on(self: Box<Self>, host: &Host<I>, py: Python<'_>, ticket: Ticket) {
        self.resume(host, py, Some(ticket));
        self.pump(host, py);
    }

    /// Ends a stream that the engine held and whose connection is gone.
    pub(super) fn give_up(self, host: &Host<I>, py: Python<'_>) {
        self.resume(host, py, None);
        self.abandon(host, py);
    }

    /// Resumes the stream's call. Its time counts only from now on, because the stream may have waited for its thread.
    fn resume(&self, host: &Host<I>, py: Python<'_>, ticket: Option<Ticket>) {
        let call = &self.call;
        let resumed = host.with(py, |state| {
            state.calls.resume(call.key(), ticket.is_none(), clock::now().monotonic);
            call.exchange().with(py, |exchange| {
                exchange.ticket = ticket;
                if let Some(ticket) = &exchange.ticket {
                    state.engine.switch_stage(ticket, Stage::App);
                }
            });
        });
        debug_assert!(resumed.is_ok(), "a call does not run while the engine is locked");
    }

    /// Requests parts of a stream and sends them, as long as the client reads.
    pub(super) fn pump(mut self: Box<Self>, host: &Host<I>, py: Python<'_>) {
        loop {
            match self.pump_some(host, py) {
                Ok(Pumped::Blocked) if self.worker.is_some() => return self.suspend(host, py, Progress::Blocked),
                // In a greenlet of the hosting loop: block it until the client has read.
                Ok(Pumped::Blocked) => {
                    if let Err(error) = host.wait_for_output(py, self.call.exchange()) {
                        return self.break_off(host, py, Failure::Raised(error));
                    }
                }
                Ok(Pumped::Due) => return self.suspend(host, py, Progress::Yield),
                Ok(Pumped::Gone) => return self.abandon_running(host, py),
                Ok(Pumped::Ended(misuse)) => return self.complete(host, py, misuse),
                Ok(Pumped::TooLong(mismatch)) => return self.break_off(host, py, Failure::Mismatched(mismatch)),
                Err(error) => return self.break_off(host, py, Failure::Raised(error)),
            }
        }
    }

    /// Sends parts until the client is slow, other calls are due, or the body ends. No part is held back until the next
    /// one (PEP 3333, "Buffering and Streaming"): `Reply::send_soon` sends the first part at once, and a later one
    /// within a tick.
    ///
    /// # Errors
    /// The exception that the application raised, or one for an invalid response of the application.
    fn pump_some(&mut self, host: &Host<I>, py: Python<'_>) -> PyResult<Pumped> {
        let mut empty = 0;
        while let Some(chunk) = self.next_part(host, py)? {
            if chunk.as_ref().is_empty() {
                empty += 1;
                if empty == EMPTY_PER_POLL {
                    return Ok(Pumped::Due);
                }
                continue;
            }
            let ends_at_length = self.body.ends_at_length();
            let chunk = if ends_at_length {
                // These are blocks of a file, which are short and need no encoding in slices.
                chunk
            } else {
                match encode_most(host, py, self.call.exchange(), chunk, false)? {
                    Ok(chunk) => chunk,
                    Err(mismatch) => return Ok(Pumped::TooLong(mismatch)),
                }
            };
            let (stop, body_bytes) = self.call.write_part(host, py, |reply, draft| {
                if !reply.is_begun() {
                    if draft.is_empty() {
                        return Err(I::unstarted());
                    }
                    reply.begin(draft, None);
                }
                let is_whole = if ends_at_length {
                    reply.write_fitting(chunk)
                } else if let Err(misuse) = reply.write(chunk) {
                    return Ok((Some(Pumped::TooLong(Mismatch::of(misuse, draft, reply.offered_bytes()))), 0));
                } else {
                    false
                };
                reply.send_soon();
                let stop = if is_whole || reply.is_bodiless() {
                    // The response has no body (HEAD, 204, 304). The rest of the iterable is not requested, because it
                    // could be endless.
                    Some(Pumped::Ended(None))
                } else if reply.is_gone() {
                    Some(Pumped::Gone)
                } else if reply.is_full() {
                    Some(Pumped::Blocked)
                } else if reply.is_due() {
                    Some(Pumped::Due)
                } else {
                    None
                };
                Ok((stop, reply.body_bytes()))
            })??;
            self.body_bytes = body_bytes;
            if let Some(stop) = stop {
                return Ok(stop);
            }
        }
        let exchange = self.call.exchange();
        if !exchange.with(py, |exchange| exchange.begun) {
            self.call.write_part(host, py, |reply, draft| {
                if reply.is_begun() {
                    return Ok(());
                }
                if draft.is_empty() {
                    return Err(I::unstarted());
                }
                // The iterable yielded no parts, so the length of the body is 0.
                reply.begin(draft, Some(0));
                Ok(())
            })??;
        }
        Ok(Pumped::Ended(exchange.with(py, |exchange| exchange.misuse.take())))
    }

    fn next_part(&mut self, host: &Host<I>, py: Python<'_>) -> PyResult<Option<Chunk>> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => host.origin.come_back(py, self.body.next(py)),
        }
    }

    /// Gives the stream to the engine until it can continue.
    fn suspend(self: Box<Self>, host: &Host<I>, py: Python<'_>, how: Suspension<I>) {
        let suspended = host.with(py, |state| {
            let ticket = self.call.exchange().with(py, |exchange| exchange.ticket.take());
            let Some(ticket) = ticket else { unreachable!("the call has not ended") };
            let now = clock::now();
            state.calls.suspend(self.call.key(), now.monotonic);
            state.complete(py, ticket, how(Resumable::Stream(self)), now);
        });
        debug_assert!(suspended.is_ok(), "a call does not run while the engine is locked");
    }

    /// Sends a regular file without reading it in Python. Returns the stream if it cannot be sent in this way.
    fn send_file(self: Box<Self>, host: &Host<I>, py: Python<'_>) -> Result<(), Box<Stream<I>>> {
        let fits = |exchange: &mut ExchangeState| !exchange.draft.is_empty() && !exchange.begun;
        if !self.call.exchange().with(py, fits) {
            return Err(self);
        }
        let Some((file, offset, left)) = self.body.regular_file(py) else { return Err(self) };
        let written = self.call.write_part(host, py, |reply, draft| {
            if reply.is_begun() || draft.is_empty() {
                // Another thread has changed the response in between.
                return Err(I::unstarted());
            }
            // A file that is longer than the declared length is cut there (PEP 3333).
            let length = draft.content_length().map_or(left, |declared| declared.min(left));
            if let Err(misuse @ Misuse::BodyTooShort) = reply.check_length(draft, left) {
                return Ok(Some(Mismatch::of(misuse, draft, left)));
            }
            reply.begin_file(draft, Some(left));
            let written = reply.write_file(file, offset, length);
            debug_assert!(written.is_ok(), "the length is at most what was declared");
            Ok(None)
        });
        match written.and_then(|written| written) {
            Ok(None) => self.complete(host, py, None),
            Ok(Some(mismatch)) => self.break_off(host, py, Failure::Mismatched(mismatch)),
            Err(error) => self.break_off(host, py, Failure::Raised(error)),
        }
        Ok(())
    }

    /// Ends the response of a stream after the last part.
    fn complete(self, host: &Host<I>, py: Python<'_>, misuse_in_write: Option<Misuse>) {
        // Send the end of the response before the application's `close`, which may be slow.
        let finished = self.call.write_last(host, py, |reply, draft| {
            let finished = reply.finish();
            if finished.is_ok() {
                reply.flush();
            }
            let misuse = finished.err();
            let mismatch = misuse.or(misuse_in_write).map(|misuse| Mismatch::of(misuse, draft, reply.offered_bytes()));
            (misuse.is_some(), mismatch)
        });
        let call = self.close(host, py);
        match finished {
            Ok((false, None)) => call.end(host, py, Progress::Done),
            // `write` raised an exception for this misuse in the application, which ignored it. `write` has sent none
            // of the excess bytes.
            Ok((false, Some(mismatch))) => {
                call.report_mismatch(host, py, mismatch, "");
                call.end(host, py, Progress::Done);
            }
            Ok((true, mismatch)) => {
                call.fail(host, py, Failure::Mismatched(mismatch.unwrap_or(Mismatch::UNKNOWN)));
            }
            Err(error) => call.fail(host, py, Failure::Raised(error)),
        }
    }

    /// Ends a stream because the application failed to produce the body.
    fn break_off(self, host: &Host<I>, py: Python<'_>, failure: Failure) {
        let call = self.close(host, py);
        call.fail(host, py, failure);
    }

    /// Ends a stream whose client has left, or whose application accepted a WebSocket while it produced a part.
    fn abandon_running(self, host: &Host<I>, py: Python<'_>) {
        let call = self.close(host, py);
        if call.exchange().is_websocket(py) {
            let subject = call.subject(py);
            let message = format!(
                "the application accepted the WebSocket on {subject} while a part of its response was read; it is closed \
                 with 1011"
            );
            host.reports.log(py, WARNING, &message, None);
            call.close_failed(host, py);
            return call.end(host, py, Progress::Done);
        }
        call.end(host, py, Progress::Cut);
    }

    /// Ends a suspended stream whose connection is gone.
    fn abandon(self, host: &Host<I>, py: Python<'_>) {
        let body_bytes = self.body_bytes;
        let mut call = self.close(host, py);
        call.close_input(host, py);
        let ended = host.with(py, |state| {
            call.exchange().with(py, ExchangeState::take_ticket_for_good);
            state.end_call(py, &call, body_bytes)
        });
        if let Ok(ended) = ended {
            host.interface.return_handles(py, call.release(py, ended));
        }
    }

    /// Closes a stream's body. An exception that the application raises in its `close` is only reported.
    pub(super) fn close(self, host: &Host<I>, py: Python<'_>) -> InFlight<I> {
        let Self { call, body, .. } = self;
        if let Err(error) = host.origin.come_back(py, body.close(py)) {
            call.report_raised(host, py, "while its response was closed, on", error);
        }
        call
    }
}
