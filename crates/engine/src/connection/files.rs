//! Sends the responses of the file responder.

use super::{Closing, Connection, Lifecycle};
use crate::app::{App, Report, RequestOf};
use crate::context::EngineContext;
use crate::exchange::{Backlog, State};
use crate::meter;
use crate::observe::Observer;
use crate::output::Output;
use crate::protocol::{Protocol, ResponseSender, StreamId};
use crate::responder::{Answer, Body, Source};
use wire::files::ByteRange;

impl<A: App> Connection<A> {
    /// Sends the response to the request that was read last. The engine does not read the request's body, if there is
    /// one: a connection of a serial protocol then ends with the response.
    pub(super) fn send_file(
        &mut self,
        stream: StreamId,
        facts: RequestOf<A>,
        answer: &Answer,
        has_body: bool,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) {
        if let Some(failure) = context.files.as_mut().and_then(|files| files.take_failure()) {
            app.report(Report::StaticFileFailed(failure));
        }
        context.meter.charge(meter::FILE);
        let call = self.next_call();
        self.note_begin(facts, context);
        context.statistics.static_files += 1;
        context.statistics.count_status(answer.draft().status());
        let ends = context.is_draining() || has_body;
        let facts = if ends && !self.is_multiplexed() { A::Protocol::ending(facts) } else { facts };
        let mut out = std::mem::take(&mut self.out(context).bytes);
        let mut sender = self.protocol.begin(stream, answer.draft(), facts, None, &context.stamp, &mut out);
        let length = answer.body_bytes();
        let has_content = sender.open(length, &mut out).0 > 0;
        let keeps_alive = sender.keeps_alive();
        let written = sender.finish(&mut out);
        debug_assert_eq!(written, Ok(()), "a response with a file is as long as it says");
        if self.is_multiplexed() {
            self.out(context).bytes = out;
            let mut backlog = Backlog::new();
            if has_content {
                push_body(&answer.body, &mut backlog.output);
            }
            backlog.finish();
            let index = self.exchanges.insert(stream, context.now);
            let exchange = self.exchanges.at(index);
            exchange.state = State::Finishing(facts);
            exchange.backlog = Some(Box::new(backlog));
            context.observer.give_up(call);
            return self.pump(index, context);
        }
        if has_content && answer.is_in_memory() {
            let before = out.len();
            copy_body(&answer.body, &mut out);
            context.meter.charge((out.len() - before) as u64);
            self.out(context).bytes = out;
        } else {
            self.out(context).bytes = out;
            if has_content && let Some(composer) = &mut self.send.composer {
                composer.move_to(&mut self.send.waiting);
                push_body(&answer.body, &mut self.send.waiting);
            }
        }
        context.observer.give_up(call);
        if !keeps_alive {
            let may_be_sending = !A::Protocol::is_last(facts) || ends;
            self.lifecycle = Lifecycle::Closing(if may_be_sending { Closing::Linger } else { Closing::Orderly });
        }
    }
}

impl Answer {
    /// Returns the length in bytes of the body that a GET request gets.
    pub(super) fn body_bytes(&self) -> u64 {
        match &self.body {
            Body::Text(text) => text.len() as u64,
            Body::Whole(_) | Body::Part(..) | Body::Parts(..) => self.draft().content_length().unwrap_or(0),
        }
    }

    fn is_in_memory(&self) -> bool {
        match &self.body {
            Body::Text(_) => true,
            Body::Whole(source) | Body::Part(source, _) | Body::Parts(source, _) => source.bytes().is_ok(),
        }
    }
}

/// Writes a body that is in memory.
fn copy_body(body: &Body, out: &mut Vec<u8>) {
    match body {
        Body::Text(text) => out.extend_from_slice(text.as_bytes()),
        Body::Whole(source) => out.extend_from_slice(source.bytes().unwrap_or_default()),
        Body::Part(source, range) => out.extend_from_slice(part(source.bytes().unwrap_or_default(), *range)),
        Body::Parts(source, multipart) => {
            for (before, range) in multipart.parts() {
                out.extend_from_slice(before);
                out.extend_from_slice(part(source.bytes().unwrap_or_default(), range));
            }
            out.extend_from_slice(multipart.end());
        }
    }
}

/// Appends a body to the output that waits to be sent.
fn push_body<C: AsRef<[u8]>>(body: &Body, output: &mut Output<C>) {
    let push = |output: &mut Output<C>, source: &Source, range: Option<ByteRange>| match source.bytes() {
        Ok(bytes) => output.push_bytes(range.map_or(bytes, |range| part(bytes, range))),
        Err((file, length)) => {
            let (first, length) = range.map_or((0, length), |range| (range.first, range.len()));
            output.push_file(file.clone(), first, length);
        }
    };
    match body {
        Body::Text(text) => output.push_bytes(text.as_bytes()),
        Body::Whole(source) => push(output, source, None),
        Body::Part(source, range) => push(output, source, Some(*range)),
        Body::Parts(source, multipart) => {
            for (before, range) in multipart.parts() {
                output.push_bytes(before);
                push(output, source, Some(range));
            }
            output.push_bytes(multipart.end());
        }
    }
}

/// Returns the bytes of a range, which must be within `bytes`.
fn part(bytes: &[u8], range: ByteRange) -> &[u8] {
    let at = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
    bytes.get(at(range.first)..=at(range.last)).unwrap_or_default()
}
