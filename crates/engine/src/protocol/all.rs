//! All protocols that Kirsch speaks, chosen by the listener of a connection.
//!
//! The serial ones are an enum that contains HTTP/1 itself and checks for it first: its connections cost one comparison
//! with a constant result. The others are behind a pointer, so that they do not make a connection of HTTP/1 larger. All
//! protocols write a response by the same [`Sender`], so that the distinction ends with the response's head.

use super::fastcgi::FastCgi;
use super::gateway::Gateway;
use super::{Event, Http1, Kind, ProtocolKind, Protocols, SerialProtocol};
use wire::cgi::Framing;
use wire::http1::{Request, Sender};
use wire::message::{Draft, Fault, Field, FieldLines, Limits, PartialRequestLine, Stamp};

/// The protocols that Kirsch speaks.
#[derive(Debug)]
pub struct AllProtocols;

impl Protocols for AllProtocols {
    type Terms = Request;
    type Sender = Sender;
    type Serial = AnySerial;
    type Multiplexed = FastCgi;

    fn of_kind(kind: ProtocolKind) -> Kind<AnySerial, FastCgi> {
        Kind::Serial(match kind {
            ProtocolKind::Http => AnySerial::Http(Http1::default()),
            ProtocolKind::Uwsgi => AnySerial::Gateway(Box::new(Gateway::new(Framing::Uwsgi))),
            ProtocolKind::Scgi => AnySerial::Gateway(Box::new(Gateway::new(Framing::Scgi))),
            ProtocolKind::FastCgi => return Kind::Multiplexed(FastCgi::default()),
        })
    }
}

/// One of the serial protocols.
#[derive(Debug)]
pub enum AnySerial {
    /// HTTP/1.
    Http(Http1),
    /// uwsgi or SCGI.
    Gateway(Box<Gateway>),
}

/// Calls the same method of whichever protocol it is.
macro_rules! of_either {
    ($self:expr, $protocol:ident => $call:expr) => {
        match $self {
            AnySerial::Http($protocol) => $call,
            AnySerial::Gateway($protocol) => $call,
        }
    };
}

impl SerialProtocol for AnySerial {
    type Terms = Request;
    type Sender = Sender;

    fn fresh(&self) -> Self {
        match self {
            Self::Http(http) => Self::Http(http.fresh()),
            Self::Gateway(gateway) => Self::Gateway(Box::new(gateway.fresh())),
        }
    }

    #[inline]
    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        fields: &'s mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        of_either!(self, protocol => protocol.next(input, fields, limits))
    }

    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        of_either!(self, protocol => protocol.end_of_input(rest))
    }

    fn forget(&mut self) {
        of_either!(self, protocol => protocol.forget());
    }

    fn unread_terms(&self) -> Request {
        of_either!(self, protocol => protocol.unread_terms())
    }

    fn partial_line<'i>(&self, input: &'i [u8]) -> Option<PartialRequestLine<'i>> {
        of_either!(self, protocol => protocol.partial_line(input))
    }

    fn glance(&self, input: &[u8], path: &[u8]) -> Option<bool> {
        of_either!(self, protocol => protocol.glance(input, path))
    }

    fn tell_to_continue(&mut self, out: &mut Vec<u8>) {
        of_either!(self, protocol => protocol.tell_to_continue(out));
    }

    fn write_early_hints(&mut self, fields: &FieldLines, terms: Request, out: &mut Vec<u8>) {
        of_either!(self, protocol => protocol.write_early_hints(fields, terms, out));
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
        of_either!(self, protocol => protocol.begin(draft, terms, length, stamp, out))
    }
}
