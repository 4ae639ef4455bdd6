//! Protocols, which convert received bytes to events and responses to bytes.
//!
//! A protocol does no input or output. There are two kinds of protocols, each with its own trait:
//!
//! * A [*serial*](SerialProtocol) protocol, such as HTTP/1, has one exchange at a time. The engine reads the next
//!   request when the previous response is complete, and the bytes of a response are contiguous on the connection. A
//!   delay of one exchange delays the connection, and cutting a response ends the connection.
//! * A [*multiplexed*](MultiplexedProtocol) protocol, such as HTTP/2 or FastCGI, has many exchanges at a time. The
//!   engine reads the connection while they are under way. Each part of a response is a separate frame, and the client
//!   announces for each exchange how many bytes it accepts ([`MultiplexedProtocol::window`]). Bytes beyond that wait in
//!   the exchange and delay no other exchange. Each side can end one exchange early ([`StreamEvent::Reset`],
//!   [`MultiplexedProtocol::reset`]).
//!
//! An application names the protocols of its connections by one type ([`Protocols`]). It is a type parameter of the
//! engine, so that no call of a protocol is indirect. [`AllProtocols`] has all protocols that Kirsch supports. The
//! protocol is chosen once for each connection, when its transport is ready ([`Protocols::choose`]); from then on the
//! connection has a session of the matching kind.

mod all;
mod fastcgi;
mod gateway;
mod http1;
mod http2;
mod multiplexed;
mod only;
mod serial;

pub use all::{AllProtocols, AnyMultiplexed, choose_http};
pub use http1::Http1;
pub use http2::Http2;
pub use multiplexed::{MultiplexedProtocol, Reset, StreamEvent, StreamId};
pub use only::{OnlyMultiplexed, OnlySerial};
pub use serial::{Event, SerialProtocol};

use std::fmt::Debug;
use wire::message::{Draft, FieldLines, Misuse};

/// The ALPN name of HTTP/1.1 (RFC 7301 section 6).
const ALPN_HTTP1: &str = "http/1.1";
/// The ALPN name of HTTP/2 (RFC 9113 section 3.2).
const ALPN_HTTP2: &str = "h2";

/// The protocol of a listener's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtocolKind {
    /// HTTP/1, or HTTP/2 for clients that choose it ([`choose_http`]).
    #[default]
    Http,
    /// Only HTTP/1.
    Http1,
    /// Only HTTP/2.
    Http2,
    /// FastCGI, from a web server.
    FastCgi,
    /// uwsgi, from a web server.
    Uwsgi,
    /// SCGI, from a web server.
    Scgi,
}

impl ProtocolKind {
    /// All protocols of listeners, with their names.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Http, "http"),
        (Self::Http1, "http1"),
        (Self::Http2, "http2"),
        (Self::FastCgi, "fastcgi"),
        (Self::Uwsgi, "uwsgi"),
        (Self::Scgi, "scgi"),
    ];

    /// Returns the protocol with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, other)| *other == name).map(|(kind, _)| *kind)
    }

    /// Returns the names that the server accepts in a TLS handshake (ALPN, RFC 7301), the preferred one first. The
    /// protocols of web servers have none.
    #[must_use]
    pub fn alpn(self) -> &'static [&'static str] {
        match self {
            Self::Http => &[ALPN_HTTP2, ALPN_HTTP1],
            Self::Http1 => &[ALPN_HTTP1],
            Self::Http2 => &[ALPN_HTTP2],
            Self::FastCgi | Self::Uwsgi | Self::Scgi => &[],
        }
    }

    /// Returns true if the peers of such a listener are web servers, which name the client of each request.
    #[must_use]
    pub fn is_for_web_servers(self) -> bool {
        matches!(self, Self::FastCgi | Self::Uwsgi | Self::Scgi)
    }
}

/// The protocols that the connections of an engine may have.
pub trait Protocols {
    /// The properties of a request that determine the form of its response.
    type Terms: ResponseTerms;
    /// The type that writes one response.
    type Sender: ResponseSender;
    /// A type for all protocols with one exchange at a time.
    type Serial: SerialProtocol<Terms = Self::Terms, Sender = Self::Sender>;
    /// A type for all protocols with many exchanges at a time.
    type Multiplexed: MultiplexedProtocol<Terms = Self::Terms, Sender = Self::Sender>;

    /// Returns a new protocol of this kind, for a connection on which nothing has been read.
    fn of_kind(kind: ProtocolKind) -> Kind<Self::Serial, Self::Multiplexed>;

    /// Returns the protocol of a connection to a listener of the kind `listener`. `first` are the first bytes that have
    /// arrived on the connection. Returns `None` if more bytes are needed.
    fn choose(listener: ProtocolKind, negotiation: Negotiation<'_>, first: &[u8]) -> Option<ProtocolKind> {
        let _ = (negotiation, first);
        Some(listener)
    }
}

/// The encryption of a connection whose protocol has to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Negotiation<'a> {
    /// The bytes are not encrypted.
    Clear,
    /// The connection is encrypted, and the handshake has ended.
    Encrypted {
        /// The protocol name that the handshake has negotiated (ALPN, RFC 7301); `None` for none.
        agreed: Option<&'a [u8]>,
    },
}

/// A protocol of one of the two kinds.
#[derive(Debug)]
pub enum Kind<S, M> {
    /// One exchange at a time.
    Serial(S),
    /// Many exchanges at a time.
    Multiplexed(M),
}

/// The properties of a request that determine the form of its response.
pub trait ResponseTerms: Copy + Debug {
    /// Returns true if the connection ends after this exchange, because the client or this server wants it. Always
    /// false for multiplexed connections.
    fn is_last(self) -> bool;

    /// Returns true if the client can detect the end of a body without Content-Length although the connection stays
    /// open.
    fn delimits_body(self) -> bool;

    /// Returns the same terms for a response that is the last one of its connection.
    #[must_use]
    fn ending(self) -> Self;

    /// Returns the same terms for an error page of the server that closes the connection.
    #[must_use]
    fn refusing(self) -> Self;

    /// Checks that a body of `length` bytes has the length that `draft` declares, if it declares one.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`], [`Misuse::BodyTooLong`].
    fn check_length(self, draft: &Draft, length: u64) -> Result<(), Misuse>;
}

/// The writer of one response, which frames its body and enforces the length that its head declares.
///
/// For each part the caller calls [`open`](Self::open), writes as many bytes as `open` admits, and calls
/// [`close`](Self::close). After the last part it calls [`finish`](Self::finish). In a multiplexed protocol these
/// methods write nothing: [`MultiplexedProtocol::frame`] writes the bytes.
pub trait ResponseSender: Debug {
    /// Begins a part of `length` bytes. Returns how many of them are admitted: 0 if the response has no body; 0 and an
    /// error if the body would be longer than declared.
    fn open(&mut self, length: u64, out: &mut Vec<u8>) -> (u64, Result<(), Misuse>);

    /// Ends a part of which `admitted` bytes were admitted.
    fn close(&self, admitted: u64, out: &mut Vec<u8>);

    /// Ends the response.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`] if the peer still waits for the rest of the body.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Misuse>;

    /// Ends the response with trailers, or without them if the client accepts none.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    fn finish_with(&mut self, trailers: &FieldLines, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let _ = trailers;
        self.finish(out)
    }

    /// Returns the number of bytes that may still be written; `None` if it is unknown.
    fn room(&self) -> Option<u64>;

    /// Returns the number of body bytes that the application has written so far, including bytes that were not
    /// admitted.
    fn offered_bytes(&self) -> u64;

    /// Returns the number of body bytes admitted so far, without framing.
    fn body_bytes(&self) -> u64;

    /// Returns true if the response is complete for the peer even if nothing more is written.
    fn is_whole(&self) -> bool;

    /// Returns true if the connection stays open after the response.
    fn keeps_alive(&self) -> bool;

    /// Returns true if the response is sent without a body.
    fn is_bodiless(&self) -> bool;

    /// Returns true if only a reset of the connection shows the peer that the response was cut.
    fn needs_reset(&self) -> bool;
}
