//! One of several protocols, as configured for the listener of a connection.
//!
//! The enum contains HTTP/1 itself and checks for it first: its connections cost one comparison with a constant result.
//! The other protocols are behind a pointer, so that they do not make a connection of HTTP/1 larger. All protocols
//! write a response by the same [`Sender`], so that the distinction ends with the response's head.

use super::fastcgi::{self, FastCgi};
use super::gateway::{self, Gateway};
use super::{Event, Http1, Protocol, ProtocolKind, Reset, StreamId};
use wire::cgi::Framing;
use wire::http1::{Request, Sender};
use wire::message::{Draft, Fault, Field, FieldLines, Limits, Misuse, PartialRequestLine, Stamp};

/// The protocol of a connection; see the module.
#[derive(Debug)]
pub struct AnyProtocol(Any);

#[derive(Debug)]
enum Any {
    Http(Http1),
    FastCgi(Box<FastCgi>),
    Gateway(Box<Gateway>),
}

impl Default for AnyProtocol {
    fn default() -> Self {
        Self(Any::Http(Http1::default()))
    }
}

impl Protocol for AnyProtocol {
    const MULTIPLEXED: bool = true;
    type Request = Request;
    type Sender = Sender;

    fn of_kind(kind: ProtocolKind) -> Self {
        Self(match kind {
            ProtocolKind::Http => Any::Http(Http1::default()),
            ProtocolKind::FastCgi => Any::FastCgi(Box::default()),
            ProtocolKind::Uwsgi => Any::Gateway(Box::new(Gateway::new(Framing::Uwsgi))),
            ProtocolKind::Scgi => Any::Gateway(Box::new(Gateway::new(Framing::Scgi))),
        })
    }

    fn fresh(&self) -> Self {
        Self::of_kind(match &self.0 {
            Any::Http(_) => ProtocolKind::Http,
            Any::FastCgi(_) => ProtocolKind::FastCgi,
            Any::Gateway(gateway) => match gateway.framing() {
                Framing::Uwsgi => ProtocolKind::Uwsgi,
                Framing::Scgi => ProtocolKind::Scgi,
            },
        })
    }

    #[inline]
    fn is_multiplexed(&self) -> bool {
        matches!(self.0, Any::FastCgi(_))
    }

    fn has_windows(&self) -> bool {
        false
    }

    fn can_refuse(&self) -> bool {
        false
    }

    fn announces_end(&self) -> bool {
        false
    }

    fn is_ending(&self, may_have_arrived: bool) -> bool {
        if let Any::FastCgi(fastcgi) = &self.0 { fastcgi.is_ending(may_have_arrived) } else { false }
    }

    fn is_unread(&self) -> bool {
        if let Any::FastCgi(fastcgi) = &self.0 { fastcgi.is_unread() } else { false }
    }

    fn has_read_all(&self) -> bool {
        if let Any::FastCgi(fastcgi) = &self.0 { fastcgi.receiver().has_read_all() } else { false }
    }

    fn is_in_head(&self) -> bool {
        if let Any::FastCgi(fastcgi) = &self.0 { fastcgi.receiver().is_in_head() } else { false }
    }

    #[inline]
    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        fields: &'s mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        match &mut self.0 {
            Any::Http(http) => http.next(input, fields, limits),
            Any::FastCgi(fastcgi) => fastcgi.next(input, limits),
            Any::Gateway(gateway) => gateway.next(input, fields, limits),
        }
    }

    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        match &self.0 {
            Any::Http(http) => http.end_of_input(rest),
            Any::FastCgi(fastcgi) => fastcgi.receiver().end_of_input(),
            Any::Gateway(gateway) => gateway.end_of_input(rest),
        }
    }

    fn forget(&mut self) {
        match &mut self.0 {
            Any::Http(http) => http.forget(),
            Any::FastCgi(fastcgi) => fastcgi.forget(),
            Any::Gateway(_) => {}
        }
    }

    fn unread_request(&self) -> Request {
        match &self.0 {
            Any::Http(http) => http.unread_request(),
            Any::FastCgi(_) => fastcgi::request(),
            Any::Gateway(_) => gateway::request(),
        }
    }

    fn partial_line<'i>(&self, input: &'i [u8]) -> Option<PartialRequestLine<'i>> {
        if let Any::Http(http) = &self.0 { http.partial_line(input) } else { None }
    }

    fn glance(&self, input: &[u8], path: &[u8]) -> Option<bool> {
        // In protocols whose variables may come in any order, the first bytes do not show the path.
        if let Any::Http(http) = &self.0 { http.glance(input, path) } else { Some(false) }
    }

    #[inline]
    fn is_last(request: Request) -> bool {
        Http1::is_last(request)
    }

    #[inline]
    fn serves_one(&self, request: Request) -> bool {
        if let Any::FastCgi(fastcgi) = &self.0 { fastcgi.has_last() } else { Self::is_last(request) }
    }

    #[inline]
    fn ending(request: Request) -> Request {
        Http1::ending(request)
    }

    fn refusing(request: Request) -> Request {
        Http1::refusing(request)
    }

    fn tell_to_continue(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        // A web server informs its clients itself.
        if let Any::Http(http) = &mut self.0 {
            http.tell_to_continue(stream, out);
        }
    }

    fn write_early_hints(&mut self, stream: StreamId, fields: &FieldLines, request: Request, out: &mut Vec<u8>) {
        if let Any::Http(http) = &mut self.0 {
            http.write_early_hints(stream, fields, request, out);
        }
    }

    #[inline]
    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        request: Request,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Sender {
        match &mut self.0 {
            Any::Http(http) => http.begin(stream, draft, request, length, stamp, out),
            Any::FastCgi(fastcgi) => fastcgi.begin(stream, draft, request, length, out),
            Any::Gateway(gateway) => gateway.begin(draft, request, length, out),
        }
    }

    fn check_length(draft: &Draft, request: Request, length: u64) -> Result<(), Misuse> {
        Http1::check_length(draft, request, length)
    }

    fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.frame(stream, bytes, out);
        }
    }

    fn write_errors(&mut self, stream: StreamId, text: &[u8], is_begun: bool, out: &mut Vec<u8>) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.write_errors(stream, text, is_begun, out);
        }
    }

    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.end_response(stream, out);
        }
    }

    fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.reset(stream, reset, out);
        }
    }

    fn forget_stream(&mut self, stream: StreamId) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.forget_stream(stream);
        }
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.drain(out);
        }
    }

    fn open(&mut self, exchanges: usize) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.open(exchanges);
        }
    }

    fn stay(&mut self, out: &mut Vec<u8>) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.pad(out);
        }
    }

    fn has_control(&self) -> bool {
        if let Any::FastCgi(fastcgi) = &self.0 { fastcgi.receiver().has_answers() } else { false }
    }

    fn must_write_control(&self) -> bool {
        if let Any::FastCgi(fastcgi) = &self.0 { fastcgi.receiver().has_many_answers() } else { false }
    }

    fn write_control(&mut self, out: &mut Vec<u8>) {
        if let Any::FastCgi(fastcgi) = &mut self.0 {
            fastcgi.write_control(out);
        }
    }
}
