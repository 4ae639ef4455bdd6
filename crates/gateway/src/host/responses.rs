//! The operations on responses and request bodies that exchanges request. They run with the engine locked.
//!
//! Each operation takes the ticket from its exchange, or reports that the response has ended. So it never reaches the
//! connection of another response.

use super::calls::Ended;
use super::exchange::{End, Exchange, Part, Received, Sent};
use super::job::Mismatch;
use super::shared::Waiter;
use super::state::EngineState;
use crate::access_log::LoggedResponse;
use crate::clock;
use crate::gil::WithGil;
use crate::interface::Interface;
use engine::{Awaited, Input, Progress, Stage, Ticket};
use pyo3::prelude::*;
use wire::message::{FieldLines, Misuse};

/// The event for which a thread or a greenlet waits inside a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocking {
    /// Bytes of the request body arrive. The waiting time counts towards the call's deadline.
    Input,
    /// The client reads output. The waiting time does not count.
    Output,
}

impl<I: Interface> EngineState<I> {
    /// See [`ExchangeHost::send`](super::exchange::ExchangeHost::send).
    pub(super) fn send(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        mut part: Option<Part>,
        end: End<'_>,
    ) -> Result<Sent, Mismatch> {
        let is_last = !matches!(end, End::NotYet);
        let (sent, body_bytes) = exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return Ok((Sent::Over, 0)) };
            if self.engine.is_gone(ticket) {
                return Ok((Sent::Gone, 0));
            }
            let draft = &exchange.draft;
            let length = length_of(&mut part, draft.content_length());
            let (sent, is_begun) = self.engine.reply(ticket, |reply| {
                let mut write = || {
                    if !reply.is_begun() {
                        if is_last {
                            reply.check_length(draft, length).map_err(|misuse| Mismatch::of(misuse, draft, length))?;
                        }
                        match part {
                            // The engine sends a file without reading it into memory.
                            Some(Part::File { .. }) => reply.begin_file(draft, is_last.then_some(length)),
                            _ => reply.begin(draft, is_last.then_some(length)),
                        }
                    }
                    let mismatch = |misuse: Misuse, offered: u64| Mismatch::of(misuse, draft, offered);
                    let written = match part.take() {
                        None => Ok(()),
                        Some(Part::Chunk(chunk)) => reply.write(chunk),
                        Some(Part::File { file, offset, length, .. }) => reply.write_file(file, offset, length),
                    };
                    written.map_err(|misuse| mismatch(misuse, reply.offered_bytes()))?;
                    let ended = match end {
                        End::NotYet => {
                            reply.send_soon();
                            Ok(())
                        }
                        End::Here => reply.finish(),
                        End::Trailers(trailers) => reply.finish_with(trailers),
                    };
                    ended.map_err(|misuse| mismatch(misuse, reply.offered_bytes()))?;
                    let sent = match () {
                        () if reply.is_gone() => Sent::Gone,
                        () if reply.is_full() => Sent::Full,
                        () => Sent::Done,
                    };
                    Ok((sent, reply.body_bytes()))
                };
                let sent = write();
                (sent, reply.is_begun())
            });
            exchange.begun |= is_begun;
            exchange.finished |= is_last && sent.is_ok();
            sent
        })?;
        if is_last && matches!(sent, Sent::Done | Sent::Full) {
            self.complete_answered(py, exchange, body_bytes);
        }
        Ok(sent)
    }

    /// See [`ExchangeHost::send_early_hints`](super::exchange::ExchangeHost::send_early_hints).
    pub(super) fn send_early_hints(&mut self, py: Python<'_>, exchange: &Exchange, fields: &FieldLines) -> Sent {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return Sent::Over };
            if self.engine.is_gone(ticket) {
                return Sent::Gone;
            }
            self.engine.reply(ticket, |reply| {
                reply.send_early_hints(fields);
                if reply.is_gone() { Sent::Gone } else { Sent::Done }
            })
        })
    }

    /// See [`ExchangeHost::write_errors`](super::exchange::ExchangeHost::write_errors).
    pub(super) fn write_errors(&mut self, py: Python<'_>, exchange: &Exchange, text: &[u8]) {
        exchange.with(py, |exchange| {
            if let Some(ticket) = &exchange.ticket {
                self.engine.reply(ticket, |reply| reply.write_errors(text));
            }
        });
    }

    /// Completes the response of a call that has written all of it and is still running.
    fn complete_answered(&mut self, py: Python<'_>, exchange: &Exchange, body_bytes: u64) {
        let (ticket, key) = exchange.with(py, |state| (state.take_ticket_for_good(), state.key));
        let Some(ticket) = ticket else { unreachable!("it was there") };
        if let Some(stopwatch) = &mut self.app.stopwatch {
            stopwatch.end(key);
        }
        let (number, entry, request) = self.calls.answer(py, key);
        if let (Some(log), Some(entry)) = (&mut self.app.access_log, entry) {
            // Writing a line calls Python, and the exchange must not be in use then. So the draft is moved out until
            // the line is written.
            let draft = exchange.with(py, |state| std::mem::take(&mut state.draft));
            let response = LoggedResponse { status: draft.status(), body_bytes, draft: Some(&draft), close_code: None };
            log.write(py, &entry, response, Some(&request), Some(number));
        }
        request.release(py);
        self.complete(py, ticket, Progress::Done, clock::now());
    }

    /// See [`ExchangeHost::send_head`](super::exchange::ExchangeHost::send_head).
    pub(super) fn send_head(&mut self, py: Python<'_>, exchange: &Exchange) {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return };
            if exchange.begun || exchange.draft.is_empty() || self.engine.is_gone(ticket) {
                return;
            }
            let draft = &exchange.draft;
            self.engine.reply(ticket, |reply| {
                if !reply.is_begun() {
                    reply.begin(draft, None);
                    reply.flush();
                }
            });
            exchange.begun = true;
        });
    }

    /// See [`ExchangeHost::receive`](super::exchange::ExchangeHost::receive).
    pub(super) fn receive(&mut self, py: Python<'_>, exchange: &Exchange, buffer: &mut [u8]) -> Received {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return Received::Left };
            match self.engine.read(ticket, buffer, clock::now(), WithGil::new(&mut self.app, py)) {
                Input::Bytes(count) => Received::Bytes(count),
                Input::Pending => Received::Pending,
                Input::Broken(_) if self.engine.is_gone(ticket) => Received::Left,
                Input::Broken(_) => Received::Broken,
                Input::End => Received::End,
            }
        })
    }

    /// See [`ExchangeHost::wake_when`](super::exchange::ExchangeHost::wake_when).
    pub(super) fn wake_when(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        awaited: Awaited,
        waiter: Py<PyAny>,
    ) -> bool {
        exchange.with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { return false };
            let (now, app) = (self.clock.now(), WithGil::new(&mut self.app, py));
            self.engine.wait_for_any(ticket, awaited, Waiter::Hosted(waiter), now, app);
            // The time for which a slow client delays the response does not count towards the call's deadline.
            if awaited.has(Awaited::OUTPUT) {
                self.calls.begin_wait(exchange.key, false, now.monotonic);
            } else {
                self.calls.end_wait(exchange.key, now.monotonic);
            }
            true
        })
    }

    /// Registers `waiter` to be woken when `what` happens. Returns the key of the call and the previous stage of its
    /// request; `None` if the response has ended or is suspended, which only a thread that the application started can
    /// observe.
    pub(super) fn begin_wait(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        what: Blocking,
        waiter: Waiter,
    ) -> Option<(usize, Option<Stage>)> {
        let now = clock::now();
        exchange.with(py, |exchange| {
            let ticket = exchange.ticket.as_ref()?;
            let counts = what == Blocking::Input;
            let stage = self.engine.switch_stage(ticket, Stage::Peer);
            self.note_wait(true, counts);
            self.calls.begin_wait(exchange.key, counts, now.monotonic);
            let app = WithGil::new(&mut self.app, py);
            match what {
                Blocking::Input => self.engine.wait_for_input(ticket, waiter, now, app),
                Blocking::Output => self.engine.wait_for_output(ticket, waiter, now, app),
            }
            Some((exchange.key, stage))
        })
    }

    /// Ends a wait that [`begin_wait`](Self::begin_wait) began. Returns true if the call was interrupted meanwhile.
    pub(super) fn end_wait(
        &mut self,
        py: Python<'_>,
        exchange: &Exchange,
        what: Blocking,
        (key, stage): (usize, Option<Stage>),
    ) -> bool {
        let counts = what == Blocking::Input;
        self.note_wait(false, counts);
        exchange.with(py, |exchange| {
            if let Some(ticket) = &exchange.ticket {
                self.engine.stop_waiting(ticket);
                if let Some(stage) = stage {
                    self.engine.switch_stage(ticket, stage);
                }
            }
            // If a thread of the application has waited, the call may have ended meanwhile, and its key may belong to
            // another call.
            if exchange.is_over() {
                return false;
            }
            self.calls.end_wait(key, clock::now().monotonic);
            self.calls.is_interrupted(key)
        })
    }

    /// Cuts off a call that cannot end by itself. `key` is the key of the call, if it has begun. Returns the objects
    /// that the call held; the caller must drop them while the engine is unlocked.
    pub(super) fn cut_off(&mut self, py: Python<'_>, ticket: Ticket, key: Option<usize>) -> Option<Ended> {
        self.engine.fail(ticket, clock::now(), WithGil::new(&mut self.app, py));
        key.map(|key| self.end(key))
    }
}

/// Returns the length of a part in bytes. First shortens a file that is the whole body to the declared length.
fn length_of(part: &mut Option<Part>, declared: Option<u64>) -> u64 {
    match part {
        None => 0,
        Some(Part::Chunk(chunk)) => chunk.as_ref().len() as u64,
        Some(Part::File { length, is_whole, .. }) => {
            if *is_whole {
                *length = declared.map_or(*length, |declared| declared.min(*length));
            }
            *length
        }
    }
}
