//! A request's body that is received as a whole before the application is called.

use super::{Connection, EngineContext, Phase};
use crate::app::{App, Refusal, Report};
use crate::memory::BodyMemory;
use crate::meter;
use crate::spool::Spool;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use wire::http1::{BodyStep, Fault, Framing, Request};

/// A request whose body is not here yet.
pub(super) struct Receiving<A: App> {
    pub(super) request: A::Request,
    pub(super) facts: Request,
    pub(super) spool: Spool,
}

impl<A: App> Receiving<A> {
    pub(super) fn new(request: A::Request, facts: Request, framing: Framing, memory: &BodyMemory) -> Self {
        let expected = if let Framing::Length(length) = framing { Some(length) } else { None };
        Self { request, facts, spool: Spool::new(memory.reservation(), expected) }
    }
}

/// Why the bytes that are here were read no further.
enum Stop {
    More,
    End,
    Fault(Fault),
}

impl<A: App> Connection<A> {
    /// Reads what is here of a body; at its end the request is ready. Returns the bytes used.
    ///
    /// Chunks that came together are kept together: a body may come in chunks of one byte, and each would otherwise be
    /// a write to its file.
    pub(super) fn body(
        &mut self,
        input: &[u8],
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> (usize, Option<A::Request>) {
        let mut chunks = std::mem::take(&mut context.chunks);
        chunks.clear();
        // What lies in the input in one piece is not copied twice.
        let mut only: &[u8] = &[];
        let (mut used, mut steps) = (0, 0);
        let stop = loop {
            steps += 1;
            match self.receiver.body(&input[used..], &context.config.limits) {
                Ok((count, step)) => {
                    used += count;
                    match step {
                        BodyStep::Data(data) if only.is_empty() && chunks.is_empty() => only = data,
                        BodyStep::Data(data) => {
                            chunks.extend_from_slice(std::mem::take(&mut only));
                            chunks.extend_from_slice(data);
                        }
                        // WSGI has no place for trailers; they are checked and dropped.
                        BodyStep::Trailer { .. } => {}
                        BodyStep::More => break Stop::More,
                        BodyStep::End => break Stop::End,
                    }
                }
                Err(fault) => break Stop::Fault(fault),
            }
        };
        context.meter.charge(meter::CHUNK * steps);
        let kept = match stop {
            Stop::Fault(_) => Ok(()),
            Stop::More | Stop::End => self.keep(if only.is_empty() { &chunks } else { only }, context),
        };
        context.chunks = chunks;
        if let Err(error) = kept {
            self.spool_failed(error, context, app);
            return (input.len(), None);
        }
        match stop {
            Stop::More => (used, None),
            Stop::End => (used, self.body_ended(context, app)),
            Stop::Fault(fault) => {
                self.refuse_request(fault.into(), context, app);
                (input.len(), None)
            }
        }
    }

    /// Keeps a part of a body.
    pub(super) fn keep(&mut self, data: &[u8], context: &mut EngineContext<A>) -> io::Result<()> {
        let Phase::Body(receiving) = &mut self.phase else { return Ok(()) };
        if data.is_empty() {
            return Ok(());
        }
        receiving.spool.push(data, context.config.body_memory)?;
        if receiving.spool.is_in_file() {
            context.meter.charge(meter::WRITE);
        }
        Ok(())
    }

    fn body_ended(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<A::Request> {
        let Phase::Body(receiving) = std::mem::replace(&mut self.phase, Phase::Head) else { return None };
        let Receiving { mut request, facts, spool } = *receiving;
        match spool.finish() {
            Ok((body, reserved)) => {
                self.body_memory = Some(reserved);
                self.hand_over(&mut request, body, context.stages.as_deref_mut(), app);
                Some(self.ready(request, facts))
            }
            Err(error) => {
                let memory = &context.config.body_memory_total;
                self.phase = Phase::Body(Box::new(Receiving::new(request, facts, Framing::None, memory)));
                self.spool_failed(error, context, app);
                None
            }
        }
    }

    pub(super) fn spool_failed(&mut self, error: io::Error, context: &mut EngineContext<A>, app: &mut A) {
        let status = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => 507,
            // No descriptor is left for a file: others will give theirs back.
            _ if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => 503,
            _ => 500,
        };
        app.report(Report::SpoolFailed(error));
        self.refuse_request(Refusal { status, fault: None }, context, app);
    }
}
