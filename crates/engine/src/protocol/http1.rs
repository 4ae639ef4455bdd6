//! HTTP/1, with one exchange at a time, based on the state machines of [`wire::http1`].

use super::{Event, ResponseSender, ResponseTerms, SerialProtocol};
use wire::http1::{self, BodyStep, CONTINUE, Receiver, Request, Sender};
use wire::message::{Draft, Fault, Field, FieldLines, Limits, Misuse, PartialRequestLine, Stamp, Version};

/// The server's side of an HTTP/1.0 or HTTP/1.1 connection.
#[derive(Debug, Default)]
pub struct Http1 {
    receiver: Receiver,
    /// True if a head has been read, and its body has not ended.
    in_body: bool,
}

impl SerialProtocol for Http1 {
    type Terms = Request;
    type Sender = Sender;

    fn fresh(&self) -> Self {
        Self::default()
    }

    #[inline]
    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        fields: &'s mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        if self.in_body {
            return self.body(input, limits);
        }
        let Some(head) = self.receiver.head(input, fields, limits)? else { return Ok((0, Event::More)) };
        self.in_body = !head.request.body.is_empty();
        let is_head = head.request.method == b"HEAD";
        let terms = Request {
            version: head.request.version,
            is_head,
            keep_alive: head.keep_alive,
            takes_trailers: head.takes_trailers,
        };
        let (head, length, expects_continue) = (head.request, head.length, head.expects_continue);
        Ok((length, Event::Head { head, terms, expects_continue }))
    }

    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        self.receiver.end_of_input(rest)
    }

    fn forget(&mut self) {
        self.receiver.forget();
    }

    fn unread_terms(&self) -> Request {
        http1::close_after(self.receiver.is_head())
    }

    fn partial_line<'i>(&self, input: &'i [u8]) -> Option<PartialRequestLine<'i>> {
        http1::partial_request_line(input)
    }

    fn glance(&self, input: &[u8], path: &[u8]) -> Option<bool> {
        http1::glance(input, path)
    }

    fn tell_to_continue(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(CONTINUE);
    }

    fn write_early_hints(&mut self, fields: &FieldLines, terms: Request, out: &mut Vec<u8>) {
        if terms.version == Version::Http11 {
            http1::write_early_hints(fields, out);
        }
    }

    #[inline]
    fn begin(
        &mut self,
        draft: &Draft,
        terms: Request,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Sender {
        Sender::begin(draft, terms, length, stamp, out)
    }
}

impl Http1 {
    fn body<'s, 'i>(&mut self, input: &'i [u8], limits: &Limits) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        let mut used = 0;
        loop {
            let (count, step) = self.receiver.body(&input[used..], limits)?;
            used += count;
            let event = match step {
                BodyStep::Data(bytes) => {
                    let is_last = self.receiver.is_body_over();
                    self.in_body = !is_last;
                    Event::Data { bytes, is_last }
                }
                // The application interface has no request trailers, so they are checked and dropped.
                BodyStep::Trailer { .. } => continue,
                BodyStep::More => Event::More,
                BodyStep::End => {
                    self.in_body = false;
                    Event::End
                }
            };
            return Ok((used, event));
        }
    }
}

impl ResponseTerms for Request {
    #[inline]
    fn is_last(self) -> bool {
        !self.keep_alive
    }

    fn delimits_body(self) -> bool {
        self.version != Version::Http10
    }

    #[inline]
    fn ending(self) -> Self {
        Self { keep_alive: false, ..self }
    }

    fn refusing(self) -> Self {
        http1::close_after(self.is_head)
    }

    fn check_length(self, draft: &Draft, length: u64) -> Result<(), Misuse> {
        http1::check_length(draft, self, length)
    }
}

impl ResponseSender for Sender {
    #[inline]
    fn open(&mut self, length: u64, out: &mut Vec<u8>) -> (u64, Result<(), Misuse>) {
        Sender::open(self, length, out)
    }

    #[inline]
    fn close(&self, admitted: u64, out: &mut Vec<u8>) {
        Sender::close(self, admitted, out);
    }

    #[inline]
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Misuse> {
        Sender::finish(self, out)
    }

    fn finish_with(&mut self, trailers: &FieldLines, out: &mut Vec<u8>) -> Result<(), Misuse> {
        Sender::finish_with(self, trailers, out)
    }

    fn room(&self) -> Option<u64> {
        Sender::room(self)
    }

    fn offered_bytes(&self) -> u64 {
        Sender::offered_bytes(self)
    }

    fn body_bytes(&self) -> u64 {
        Sender::body_bytes(self)
    }

    fn is_whole(&self) -> bool {
        Sender::is_whole(self)
    }

    fn keeps_alive(&self) -> bool {
        Sender::keeps_alive(self)
    }

    fn is_bodiless(&self) -> bool {
        Sender::is_bodiless(self)
    }

    fn needs_reset(&self) -> bool {
        Sender::needs_reset(self)
    }
}
