//! uwsgi and SCGI, with one request on a connection, based on the state machines of [`wire::cgi`].

use super::{Event, SerialProtocol};
use wire::cgi::{self, Framing, Receiver, StatusLine};
use wire::http1::{self, Request, Sender};
use wire::message::{Draft, Fault, Field, Limits, PartialRequestLine, Stamp, Version};

/// The application's side of a uwsgi or SCGI connection.
#[derive(Debug)]
pub struct Gateway {
    receiver: Receiver,
}

impl Gateway {
    pub(super) fn new(framing: Framing) -> Self {
        Self { receiver: Receiver::new(framing) }
    }
}

impl SerialProtocol for Gateway {
    type Terms = Request;
    type Sender = Sender;

    fn fresh(&self) -> Self {
        Self::new(self.receiver.framing())
    }

    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        fields: &'s mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        if self.receiver.is_in_body() {
            let (bytes, is_last) = self.receiver.body(input);
            let event = if bytes.is_empty() { Event::More } else { Event::Data { bytes, is_last } };
            return Ok((bytes.len(), event));
        }
        let Some((used, head)) = self.receiver.head(input, fields, limits)? else { return Ok((0, Event::More)) };
        let terms = Request { is_head: head.method == b"HEAD", ..http1::close_after(false) };
        Ok((used, Event::Head { head, terms, expects_continue: false }))
    }

    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        self.receiver.end_of_input(rest)
    }

    fn forget(&mut self) {}

    fn unread_terms(&self) -> Request {
        Request { version: Version::Http11, is_head: false, keep_alive: false, takes_trailers: false }
    }

    fn partial_line<'i>(&self, _input: &'i [u8]) -> Option<PartialRequestLine<'i>> {
        None
    }

    /// Returns false: variables may come in any order, so the first bytes do not show the path.
    fn glance(&self, _input: &[u8], _path: &[u8]) -> Option<bool> {
        Some(false)
    }

    /// Writes nothing: the web server itself sends 100 (Continue) to its client.
    fn tell_to_continue(&mut self, _out: &mut Vec<u8>) {}

    fn begin(
        &mut self,
        draft: &Draft,
        terms: Request,
        length: Option<u64>,
        _stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Sender {
        let line = match self.receiver.framing() {
            Framing::Uwsgi => StatusLine::Http,
            Framing::Scgi => StatusLine::Cgi,
        };
        cgi::begin(draft, terms, length, line, out)
    }
}
