//! All protocols that Kirsch supports. The listener of a connection determines the choice.
//!
//! The serial ones are an enum that contains HTTP/1 itself and checks for it first, so that HTTP/1 costs one
//! well-predicted branch. The others are behind a pointer, so that they do not make a connection of HTTP/1 larger. All
//! protocols write a response with the same [`Sender`], so that they differ only in the response's head.

use super::fastcgi::FastCgi;
use super::gateway::Gateway;
use super::http2::Http2;
use super::{
    ALPN_HTTP2, Event, Http1, Kind, MultiplexedProtocol, Negotiation, ProtocolKind, Protocols, Reset, SerialProtocol,
    StreamEvent, StreamId,
};
use crate::deadline::Millis;
use wire::cgi::Framing;
use wire::http1::{Request, Sender};
use wire::http2::{HeadScratch, PREFACE};
use wire::message::{Draft, Fault, Field, FieldLines, Limits, PartialRequestLine, Stamp};

/// The protocols that Kirsch supports.
#[derive(Debug)]
pub struct AllProtocols;

impl Protocols for AllProtocols {
    type Terms = Request;
    type Sender = Sender;
    type Serial = AnySerial;
    type Multiplexed = AnyMultiplexed;

    fn of_kind(kind: ProtocolKind) -> Kind<AnySerial, AnyMultiplexed> {
        Kind::Serial(match kind {
            ProtocolKind::Http | ProtocolKind::Http1 => AnySerial::Http(Http1::default()),
            ProtocolKind::Uwsgi => AnySerial::Gateway(Box::new(Gateway::new(Framing::Uwsgi))),
            ProtocolKind::Scgi => AnySerial::Gateway(Box::new(Gateway::new(Framing::Scgi))),
            ProtocolKind::FastCgi => return Kind::Multiplexed(AnyMultiplexed::FastCgi(Box::default())),
            ProtocolKind::Http2 => return Kind::Multiplexed(AnyMultiplexed::Http2(Box::default())),
        })
    }

    fn choose(listener: ProtocolKind, negotiation: Negotiation<'_>, first: &[u8]) -> Option<ProtocolKind> {
        if listener == ProtocolKind::Http { choose_http(negotiation, first) } else { Some(listener) }
    }
}

/// Returns the protocol that a client of an HTTP listener has chosen: with TLS by the name negotiated in the handshake
/// (ALPN), without TLS by the `first` bytes (RFC 9113 section 3.3); `None` if more bytes are needed. A TLS client that
/// names no protocol speaks HTTP/1.
#[must_use]
pub fn choose_http(negotiation: Negotiation<'_>, first: &[u8]) -> Option<ProtocolKind> {
    let is_clear = negotiation == Negotiation::Clear;
    if is_clear && first.len() < PREFACE.len() && PREFACE.starts_with(first) {
        return None;
    }
    let has_agreed = negotiation == Negotiation::Encrypted { agreed: Some(ALPN_HTTP2.as_bytes()) };
    let is_http2 = has_agreed || is_clear && first.starts_with(PREFACE);
    Some(if is_http2 { ProtocolKind::Http2 } else { ProtocolKind::Http })
}

/// One of the multiplexed protocols.
#[derive(Debug)]
pub enum AnyMultiplexed {
    /// FastCGI.
    FastCgi(Box<FastCgi>),
    /// HTTP/2.
    Http2(Box<Http2>),
}

/// Calls a method on the protocol in an [`AnyMultiplexed`].
macro_rules! of_any {
    ($self:expr, $protocol:ident => $call:expr) => {
        match $self {
            AnyMultiplexed::FastCgi($protocol) => $call,
            AnyMultiplexed::Http2($protocol) => $call,
        }
    };
}

/// Defines methods that call the same method of the protocol in an [`AnyMultiplexed`].
macro_rules! passed_on {
    ($(fn $name:ident(& $self:ident $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&$self $(, $argument: $type)*) -> $result {
            of_any!($self, protocol => protocol.$name($($argument),*))
        })*
    };
    ($(fn $name:ident(&mut $self:ident $(, $argument:ident: $type:ty)*);)*) => {
        $(fn $name(&mut $self $(, $argument: $type)*) {
            of_any!($self, protocol => protocol.$name($($argument),*));
        })*
    };
}

impl MultiplexedProtocol for AnyMultiplexed {
    type Terms = Request;
    type Sender = Sender;

    fn fresh(&self) -> Self {
        match self {
            Self::FastCgi(protocol) => Self::FastCgi(Box::new(protocol.fresh())),
            Self::Http2(protocol) => Self::Http2(Box::new(protocol.fresh())),
        }
    }

    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        scratch: &'s mut HeadScratch,
        limits: &Limits,
    ) -> Result<(usize, StreamEvent<'s, 'i, Request>), Fault> {
        of_any!(self, protocol => protocol.next(input, scratch, limits))
    }

    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        terms: Request,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Sender {
        of_any!(self, protocol => protocol.begin(stream, draft, terms, length, stamp, out))
    }

    fn partial_line<'s>(&self, scratch: &'s HeadScratch) -> Option<PartialRequestLine<'s>> {
        of_any!(self, protocol => protocol.partial_line(scratch))
    }

    fn begin_frame(&mut self, stream: StreamId, length: usize, out: &mut Vec<u8>) -> bool {
        of_any!(self, protocol => protocol.begin_frame(stream, length, out))
    }

    fn leave(&mut self, out: &mut Vec<u8>) -> bool {
        of_any!(self, protocol => protocol.leave(out))
    }

    passed_on! {
        fn unread_terms(&self) -> Request;
        fn serves_one(&self) -> bool;
        fn has_windows(&self) -> bool;
        fn is_of_web_server(&self) -> bool;
        fn can_refuse(&self) -> bool;
        fn announces_end(&self) -> bool;
        fn is_end_agreed(&self) -> bool;
        fn answers_violations(&self) -> bool;
        fn is_ending(&self, may_have_arrived: bool) -> bool;
        fn is_unread(&self) -> bool;
        fn has_read_all(&self) -> bool;
        fn is_in_head(&self) -> bool;
        fn window(&self, stream: StreamId) -> usize;
        fn sent_meanwhile(&self, stream: StreamId) -> Option<u64>;
        fn is_full_of_bodies(&self) -> bool;
        fn rank(&self, stream: StreamId) -> u64;
        fn has_control(&self) -> bool;
        fn must_write_control(&self) -> bool;
    }

    passed_on! {
        fn open(&mut self, exchanges: usize, limits: &Limits);
        fn take_websockets(&mut self);
        fn accept_websocket(&mut self, stream: StreamId);
        fn set_time(&mut self, now: Millis);
        fn forget(&mut self);
        fn tell_to_continue(&mut self, stream: StreamId, out: &mut Vec<u8>);
        fn write_early_hints(&mut self, stream: StreamId, fields: &FieldLines, terms: Request, out: &mut Vec<u8>);
        fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>);
        fn write_errors(&mut self, stream: StreamId, text: &[u8], is_begun: bool, out: &mut Vec<u8>);
        fn keep_trailers(&mut self, stream: StreamId, trailers: &FieldLines);
        fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>);
        fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>);
        fn forget_stream(&mut self, stream: StreamId);
        fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>);
        fn drain(&mut self, out: &mut Vec<u8>);
        fn stay(&mut self, out: &mut Vec<u8>);
        fn write_control(&mut self, out: &mut Vec<u8>);
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

/// Calls a method on the protocol in an [`AnySerial`].
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
