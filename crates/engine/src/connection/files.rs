//! The bodies of responses that the engine makes by itself, mostly from files, and their costs.

use crate::app::{App, Report};
use crate::context::EngineContext;
use crate::meter;
use crate::output::Output;
use crate::responder::{Answer, Body, Source};
use wire::files::ByteRange;

impl<A: App> EngineContext<A> {
    /// Counts a response that the engine makes by itself. Reports a failure to read its file.
    pub(super) fn note_file(&mut self, answer: &Answer, app: &mut A) {
        if let Some(failure) = self.responders.files.as_mut().and_then(|files| files.take_failure()) {
            app.report(Report::StaticFileFailed(failure));
        }
        self.meter.charge(meter::FILE);
        self.statistics.static_files += u64::from(answer.is_of_file);
        self.statistics.count_status(answer.draft().status());
    }
}

impl Answer {
    /// Returns the length in bytes of the response body for a GET request.
    pub(super) fn body_bytes(&self) -> u64 {
        match &self.body {
            Body::Text(text) => text.len() as u64,
            Body::Whole(_) | Body::Part(..) | Body::Parts(..) => self.draft().content_length().unwrap_or(0),
        }
    }

    /// Returns true if the body is in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        match &self.body {
            Body::Text(_) => true,
            Body::Whole(source) | Body::Part(source, _) | Body::Parts(source, _) => source.bytes().is_ok(),
        }
    }
}

/// Appends a body that is in memory to `out`.
pub(super) fn copy_body(body: &Body, out: &mut Vec<u8>) {
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

/// Appends a body to the unsent output.
pub(super) fn push_body<C: AsRef<[u8]>>(body: &Body, output: &mut Output<C>) {
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
