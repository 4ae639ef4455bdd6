//! uwsgi and SCGI: one request on a connection, by the state machines of [`wire::cgi`].

use super::{Event, StreamId};
use wire::cgi::{self, Framing, Receiver, StatusLine};
use wire::http1::{self, Request, Sender};
use wire::message::{Draft, Fault, Field, Limits, Version};

/// The only exchange.
const STREAM: StreamId = 0;

/// The application's side of a connection.
#[derive(Debug)]
pub(super) struct Gateway {
    receiver: Receiver,
}

impl Gateway {
    pub(super) fn new(framing: Framing) -> Self {
        Self { receiver: Receiver::new(framing) }
    }

    pub(super) fn framing(&self) -> Framing {
        self.receiver.framing()
    }

    pub(super) fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        fields: &'s mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        if self.receiver.is_in_body() {
            let (bytes, is_last) = self.receiver.body(input);
            let event = if bytes.is_empty() { Event::More } else { Event::Data { stream: STREAM, bytes, is_last } };
            return Ok((bytes.len(), event));
        }
        let Some((used, head)) = self.receiver.head(input, fields, limits)? else { return Ok((0, Event::More)) };
        let request = Request { is_head: head.method == b"HEAD", ..http1::close_after(false) };
        Ok((used, Event::Head { stream: STREAM, head, request, expects_continue: false }))
    }

    pub(super) fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        self.receiver.end_of_input(rest)
    }

    pub(super) fn begin(&self, draft: &Draft, request: Request, length: Option<u64>, out: &mut Vec<u8>) -> Sender {
        let line = match self.receiver.framing() {
            Framing::Uwsgi => StatusLine::Http,
            Framing::Scgi => StatusLine::Cgi,
        };
        cgi::begin(draft, request, length, line, out)
    }
}

/// Returns the properties on which a response depends, for a request of which nothing is known.
pub(super) fn request() -> Request {
    Request { version: Version::Http11, is_head: false, keep_alive: false, takes_trailers: false }
}
