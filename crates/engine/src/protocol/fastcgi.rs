//! FastCGI: many requests at a time, by the state machines of [`wire::fastcgi`].

use super::{Event, Reset, StreamId};
use wire::fastcgi::{self, ProtocolStatus, Receiver, RequestId};
use wire::http1::{Request, Sender};
use wire::message::{Draft, Fault, Limits, Version};

/// The application's side of a connection.
#[derive(Debug, Default)]
pub(super) struct FastCgi {
    receiver: Receiver,
    /// The connection ends with the next response: the web server cannot be told to begin no further request.
    is_draining: bool,
    /// The web server closes a connection of which anything follows `END_REQUEST`, as nginx does; not known before its first
    /// request.
    closes_at_excess: Option<bool>,
}

impl FastCgi {
    pub(super) fn open(&mut self, exchanges: usize) {
        self.receiver = Receiver::new(exchanges);
    }

    pub(super) fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        let (used, event) = self.receiver.next(input, limits)?;
        let event = match event {
            fastcgi::Event::More => Event::More,
            fastcgi::Event::Head { id, head } => {
                self.closes_at_excess.get_or_insert_with(|| {
                    head.variable(b"SERVER_SOFTWARE").is_some_and(|software| software.starts_with(b"nginx/"))
                });
                let request = Request { is_head: head.method == b"HEAD", ..request() };
                Event::Head { stream: id.serial, head, request, expects_continue: false }
            }
            fastcgi::Event::Data { id, bytes } => Event::Data { stream: id.serial, bytes, is_last: false },
            fastcgi::Event::End { id } => Event::End { stream: id.serial },
            fastcgi::Event::Abort { id } => Event::Reset { stream: id.serial },
            fastcgi::Event::Broken { id, fault } => Event::Broken { stream: id.serial, fault },
        };
        Ok((used, event))
    }

    pub(super) fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(super) fn forget(&mut self) {
        self.receiver.rest();
    }

    fn id(&self, stream: StreamId) -> Option<RequestId> {
        self.receiver.id(stream)
    }

    pub(super) fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        request: Request,
        length: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Sender {
        match self.id(stream) {
            Some(id) => fastcgi::begin(id, draft, request, length, out),
            // The web server has given it up: what is written goes nowhere.
            None => wire::cgi::begin(draft, request, length, wire::cgi::StatusLine::Cgi, &mut Vec::new()),
        }
    }

    pub(super) fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(id) = self.id(stream) {
            fastcgi::stdout(id, bytes, out);
        }
    }

    pub(super) fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        if let Some(id) = self.id(stream) {
            fastcgi::end_stdout(id, out);
            self.end(id, ProtocolStatus::RequestComplete, out);
        }
    }

    pub(super) fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        let Some(id) = self.id(stream) else { return };
        match reset {
            Reset::Complete => self.receiver.discard_body(stream),
            Reset::Refused => self.end(id, ProtocolStatus::Overloaded, out),
            // END_REQUEST would say that the response is whole. What web servers take for a cut is the end of the
            // connection without it; other requests of the connection come to their end before.
            Reset::Cut => {
                self.receiver.end();
                self.receiver.forget(stream);
            }
        }
    }

    fn end(&mut self, id: RequestId, status: ProtocolStatus, out: &mut Vec<u8>) {
        fastcgi::end_request(id, status, out);
        self.forget_stream(id.serial);
        // Otherwise the web server may send a request before it sees that the connection ends, and must not send it
        // again if it is a POST.
        if self.is_draining && self.closes_at_excess == Some(true) {
            fastcgi::excess(out);
        }
    }

    pub(super) fn forget_stream(&mut self, stream: StreamId) {
        if self.is_draining && self.id(stream).is_some() {
            self.receiver.end();
        }
        self.receiver.forget(stream);
    }

    pub(super) fn drain(&mut self) {
        self.is_draining = true;
    }

    pub(super) fn write_control(&mut self, out: &mut Vec<u8>) {
        self.receiver.take_answers(out);
    }
}

/// What the response to a request depends on of which nothing is known.
pub(super) fn request() -> Request {
    Request { version: Version::Http11, is_head: false, keep_alive: true }
}
