//! Receiving the body of a request: as a whole before the application is called, or as the application reads it.

use super::Connection;
use crate::app::{App, Refusal, Report};
use crate::context::EngineContext;
use crate::exchange::{Awaited, Index, Input, Receiving, State};
use crate::meter;
use crate::protocol::{Event, Protocol};
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use wire::message::{BodyLength, Fault};

/// The reason for reading the received bytes no further.
enum Stop {
    More,
    End,
    Fault(Fault),
}

impl<A: App> Connection<A> {
    /// Reads the received part of the body of the only exchange; at its end the request is ready. Returns the bytes
    /// used.
    ///
    /// Chunks that arrived together are kept together: a body may arrive in chunks of one byte, and each would
    /// otherwise be a write to its file.
    pub(super) fn body(
        &mut self,
        input: &[u8],
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<(Index, A::Request)>) {
        let mut chunks = std::mem::take(&mut context.chunks);
        chunks.clear();
        // A part that is contiguous in the input is not copied twice.
        let mut only: &[u8] = &[];
        let (mut used, mut steps) = (0, 0);
        let stop = loop {
            steps += 1;
            match self.protocol.next(&input[used..], &mut context.fields, &context.config.limits) {
                Ok((count, event)) => {
                    used += count;
                    match event {
                        Event::Data { bytes, is_last, .. } => {
                            if only.is_empty() && chunks.is_empty() {
                                only = bytes;
                            } else {
                                chunks.extend_from_slice(std::mem::take(&mut only));
                                chunks.extend_from_slice(bytes);
                            }
                            if is_last {
                                break Stop::End;
                            }
                        }
                        Event::End { .. } => break Stop::End,
                        _ => break Stop::More,
                    }
                }
                Err(fault) => break Stop::Fault(fault),
            }
        };
        context.meter.charge(meter::CHUNK * steps);
        let kept = match stop {
            Stop::Fault(_) => Ok(()),
            Stop::More | Stop::End => self.keep(0, if only.is_empty() { &chunks } else { only }, context),
        };
        context.chunks = chunks;
        if let Err(error) = kept {
            self.spool_failed(0, error, context, app);
            return (input.len(), None);
        }
        match stop {
            Stop::More => (used, None),
            Stop::End => (used, self.body_ended(0, context, app)),
            Stop::Fault(fault) => {
                self.refuse_request(0, fault.into(), context, app);
                (input.len(), None)
            }
        }
    }

    /// Keeps a part of a body.
    pub(super) fn keep(&mut self, index: Index, bytes: &[u8], context: &mut EngineContext<A>) -> io::Result<()> {
        let State::Receiving(receiving) = &mut self.exchanges.at(index).state else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        receiving.spool.push(bytes, context.config.body_memory)?;
        if receiving.spool.is_in_file() {
            context.meter.charge(meter::WRITE);
        }
        Ok(())
    }

    pub(super) fn body_ended(
        &mut self,
        index: Index,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Option<(Index, A::Request)> {
        let exchange = self.exchanges.at(index);
        let State::Receiving(receiving) = std::mem::replace(&mut exchange.state, State::Free) else { return None };
        let Receiving { mut request, facts, spool } = *receiving;
        match spool.finish() {
            Ok((body, reserved)) => {
                exchange.body_memory = Some(reserved);
                self.hand_over(index, &mut request, body, context, app);
                Some((index, self.ready(index, request, facts)))
            }
            Err(error) => {
                let memory = &context.config.body_memory_total;
                let receiving = Receiving::new(request, facts, BodyLength::None, memory);
                exchange.state = State::Receiving(Box::new(receiving));
                self.spool_failed(index, error, context, app);
                None
            }
        }
    }

    pub(super) fn spool_failed(&mut self, index: Index, error: io::Error, context: &mut EngineContext<A>, app: &mut A) {
        let status = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => 507,
            // No descriptor is left for a file; other users of descriptors will close theirs.
            _ if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => 503,
            _ => 500,
        };
        app.report(Report::SpoolFailed(error));
        self.refuse_request(index, Refusal::of_status(status), context, app);
    }

    /// Takes a part of the body of the only exchange, whose request is being answered.
    pub(super) fn take_in(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> usize {
        let exchange = &mut self.exchanges.first;
        let Some(incoming) = &mut exchange.incoming else { return 0 };
        let (fields, limits) = (&mut context.fields, &context.config.limits);
        let used = incoming.take(&mut self.protocol, input, fields, limits, &mut context.meter);
        if incoming.has_something() {
            exchange.wake(Awaited::INPUT, app);
        }
        used
    }

    /// Ends the body that a call reads, because the rest will not arrive, and wakes the call.
    pub(super) fn break_body(&mut self, index: Index, refusal: Refusal, app: &mut A) {
        self.end_body(index, refusal);
        self.exchanges.at(index).wake(Awaited::INPUT, app);
    }

    /// Ends the body of an exchange, because the rest will not arrive, without waking a call.
    pub(super) fn end_body(&mut self, index: Index, refusal: Refusal) {
        if let Some(incoming) = &mut self.exchanges.at(index).incoming {
            incoming.end(refusal);
        }
    }

    /// Reads the part of a body that has arrived. Afterwards there may be room for more: the connection has to be
    /// driven.
    pub(crate) fn read(&mut self, index: Index, buffer: &mut [u8], context: &mut EngineContext<A>) -> Input {
        let exchange = self.exchanges.at(index);
        let Some(incoming) = &mut exchange.incoming else { return Input::End };
        if incoming.take_expectation() && exchange.in_flight.is_none() {
            let stream = exchange.stream;
            self.tell_to_continue(stream, context);
        }
        let is_multiplexed = self.is_multiplexed();
        let exchange = self.exchanges.at(index);
        let input = exchange.incoming.as_mut().map_or(Input::End, |incoming| incoming.read(buffer));
        if is_multiplexed && let Input::Bytes(count) = input {
            let stream = exchange.stream;
            self.grant(stream, count, context);
        }
        input
    }
}
