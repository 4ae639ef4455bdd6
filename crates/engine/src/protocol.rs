//! How the bytes of a connection become exchanges, and how responses become bytes.
//!
//! A protocol does no input or output. Of received bytes it makes [`Event`]s, each of which says which exchange it
//! belongs to; of heads and bodies it makes bytes. There are two kinds:
//!
//! * A *serial* protocol, such as HTTP/1, has one exchange at a time. The next request is read when the response before
//!   it is complete, and the bytes of a response follow each other on the connection. What holds up one exchange holds
//!   up the connection, and a response that is cut ends it.
//! * A *multiplexed* protocol, such as HTTP/2 or FastCGI, has many. The connection is read while they are under way. Each
//!   part of a response is a frame of its own, and the client says of each exchange how much it takes
//!   ([`Protocol::window`]): what it does not take yet waits with the exchange and holds up no other. Each side can end
//!   one exchange early ([`Event::Reset`], [`Protocol::reset`]).
//!
//! The engine knows its protocol as a type, so that no call of it is indirect. [`AnyProtocol`] is one of several, as the
//! listener of its connection says ([`ProtocolKind`]).

mod any;
mod fastcgi;
mod gateway;
mod http1;

pub use any::AnyProtocol;
pub use http1::Http1;

use std::fmt::Debug;
use wire::message::{Draft, Fault, Field, FieldLines, Limits, Misuse, PartialRequestLine, RequestHead, Stamp};

/// Names an exchange on its connection, as the protocol numbers them.
pub type StreamId = u32;

/// What the connections of a listener speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtocolKind {
    /// HTTP/1.
    #[default]
    Http,
    /// FastCGI, from a web server.
    FastCgi,
    /// uwsgi, from a web server.
    Uwsgi,
    /// SCGI, from a web server.
    Scgi,
}

/// What is next in the input. `'s`: as long as the protocol's state stays as it is; `'i`: as the input does.
#[derive(Clone, Copy, Debug)]
pub enum Event<'s, 'i, R> {
    /// What is here is not enough to tell.
    More,
    /// Bytes that concern the protocol alone. There may be more behind them.
    Nothing,
    /// A request.
    Head {
        /// Its exchange. No other one of this number is under way.
        stream: StreamId,
        /// Its head.
        head: RequestHead<'s>,
        /// What its response depends on.
        request: R,
        /// The client waits to be told that the body is wanted ([`Protocol::tell_to_continue`]).
        expects_continue: bool,
    },
    /// A part of a request's body, never empty.
    Data {
        /// Its exchange, which need not be under way any more.
        stream: StreamId,
        /// Without framing.
        bytes: &'i [u8],
        /// It is known to be the last one: no [`End`](Self::End) follows.
        is_last: bool,
    },
    /// The end of a request's body. There is none for a request whose head says that it has no body.
    End {
        /// Its exchange.
        stream: StreamId,
    },
    /// The client has given up an exchange. Multiplexed protocols only.
    Reset {
        /// Its exchange.
        stream: StreamId,
    },
    /// The client takes more of a response than before. Multiplexed protocols only.
    Credit {
        /// Its exchange.
        stream: StreamId,
    },
    /// A request breaks a rule, and the connection goes on. Multiplexed protocols only.
    Broken {
        /// Its exchange, whose head has been reported or not.
        stream: StreamId,
        /// The rule.
        fault: Fault,
    },
}

/// Reads and writes the bytes of one connection.
pub trait Protocol: Default {
    /// Whether a connection may have many exchanges at a time.
    const MULTIPLEXED: bool;

    /// What a response depends on in its request.
    type Request: Copy + Debug;

    /// Writes one response.
    type Sender: ResponseSender;

    /// The protocol of a connection of a listener of this kind. A type that speaks one protocol alone speaks it there.
    #[must_use]
    fn of_kind(kind: ProtocolKind) -> Self {
        let _ = kind;
        Self::default()
    }

    /// Another one of the same kind, which has read nothing.
    #[must_use]
    fn fresh(&self) -> Self {
        Self::default()
    }

    /// Whether this connection has many exchanges at a time. Never where [`MULTIPLEXED`](Self::MULTIPLEXED) is false.
    #[inline]
    fn is_multiplexed(&self) -> bool {
        Self::MULTIPLEXED
    }

    /// Whether the client of a multiplexed connection is told how much of each request's body it may send
    /// ([`consumed`](Self::consumed)). Where it is not, a body that is not taken holds up the connection.
    fn has_windows(&self) -> bool {
        true
    }

    /// Whether the client of a multiplexed connection sends a request again that is refused ([`Reset::Refused`]). Where it
    /// does not, it gets a response that says that the server is busy.
    fn can_refuse(&self) -> bool {
        true
    }

    /// Whether the client of a multiplexed connection is told that no further exchange is begun ([`drain`](Self::drain)).
    /// Where it cannot be told, an idle connection stays open for as long as one of HTTP/1 does.
    fn announces_end(&self) -> bool {
        true
    }

    /// Whether a multiplexed connection is to be closed when no exchange is under way. `may_have_arrived`: the client's
    /// bytes have not all been read, and requests among them are to be answered if the connection can be relied on.
    fn is_ending(&self, may_have_arrived: bool) -> bool {
        let _ = may_have_arrived;
        false
    }

    /// Whether the client of such a connection may still be sending what will not be read.
    fn is_unread(&self) -> bool {
        false
    }

    /// Whether a multiplexed connection has one request under way, which is its last and has been read as a whole. Nothing
    /// that its client could still send matters then, so the connection need not be watched before it is answered.
    fn has_read_all(&self) -> bool {
        false
    }

    /// Whether a multiplexed connection has taken in a part of a head.
    fn is_in_head(&self) -> bool {
        false
    }

    /// What `input` begins with, and how many of its bytes that takes. `fields` is scratch.
    ///
    /// After [`Event::More`] the input must be offered again with more behind it, from the first byte that was not taken.
    ///
    /// # Errors
    /// The rule that the peer broke. The connection cannot be read any further.
    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        fields: &'s mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Self::Request>), Fault>;

    /// Judges the end of the peer's bytes, `rest` being what no message has used.
    ///
    /// # Errors
    /// [`Fault::Truncated`] in the middle of a message.
    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault>;

    /// Gives back what is kept only for speed: the connection has been idle for a while.
    fn forget(&mut self);

    /// What the answer to a request depends on whose head could not be read, or is not whole.
    fn unread_request(&self) -> Self::Request;

    /// What can be read of such a request, for a log.
    fn partial_line<'i>(&self, input: &'i [u8]) -> Option<PartialRequestLine<'i>>;

    /// Whether the request that `input` begins with asks for `path`, as far as its first bytes tell: `None` if these are
    /// too few. Nothing is judged by it. A protocol that cannot tell says that it does not.
    fn glance(&self, input: &[u8], path: &[u8]) -> Option<bool>;

    /// Whether the client, or this server, ends the connection behind this exchange. Never where there are many.
    fn is_last(request: Self::Request) -> bool;

    /// Whether the client opened the connection for this request alone, as far as its head tells.
    fn serves_one(&self, request: Self::Request) -> bool {
        Self::is_last(request)
    }

    /// The same request, whose response is the last one of its connection.
    #[must_use]
    fn ending(request: Self::Request) -> Self::Request;

    /// What a page of the server's own depends on that closes its connection.
    fn refusing(request: Self::Request) -> Self::Request;

    /// Tells the client that the body of its request is wanted.
    fn tell_to_continue(&mut self, stream: StreamId, out: &mut Vec<u8>);

    /// Writes an interim response 103 with `fields` before the head of a response (RFC 8297), where the client of the
    /// request can read one.
    fn write_early_hints(&mut self, stream: StreamId, fields: &FieldLines, request: Self::Request, out: &mut Vec<u8>) {
        let _ = (stream, fields, request, out);
    }

    /// Writes the head of a response. `length` is the body's, if it is known though the application did not declare it.
    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        request: Self::Request,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Self::Sender;

    /// Whether a body of `length` bytes is the one that `draft` declares, if it declares one.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`], [`Misuse::BodyTooLong`].
    fn check_length(draft: &Draft, request: Self::Request, length: u64) -> Result<(), Misuse>;

    /// How many bytes of a response's body the client takes now. What is beyond waits for [`Event::Credit`].
    fn window(&self, stream: StreamId) -> usize {
        let _ = stream;
        usize::MAX
    }

    /// Writes a part of a response's body, which fits into the window. Multiplexed protocols only.
    fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        let _ = (stream, bytes, out);
    }

    /// Writes what the application reports of a request, which is not empty, beside its response, where the client takes
    /// that ([`RequestHead::takes_errors`]). Where the response `is_begun` its head has been written; a protocol may keep
    /// the text until then. Multiplexed protocols only.
    fn write_errors(&mut self, stream: StreamId, text: &[u8], is_begun: bool, out: &mut Vec<u8>) {
        let _ = (stream, text, is_begun, out);
    }

    /// Writes that a response is complete. Multiplexed protocols only.
    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let _ = (stream, out);
    }

    /// Writes that an exchange has ended early; why, if the client broke a rule. Multiplexed protocols only.
    fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        let _ = (stream, reset, out);
    }

    /// An exchange is over: it has ended as a whole, or was reset by either side. Multiplexed protocols only.
    fn forget_stream(&mut self, stream: StreamId) {
        let _ = stream;
    }

    /// The application has read so many bytes of a request's body, or the engine has discarded them: the client may send
    /// as many again. Multiplexed protocols only.
    fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        let _ = (stream, bytes, out);
    }

    /// No further exchange is to be begun on this connection: writes that, where it can be said. Multiplexed protocols
    /// only.
    fn drain(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// The connection begins, and may have so many exchanges under way: a multiplexed protocol tells its client.
    fn open(&mut self, exchanges: usize) {
        let _ = exchanges;
    }

    /// The connection stays although the last response on it has been written that its client gets: a call is still out.
    /// Multiplexed protocols only.
    fn stay(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Whether [`write_control`](Self::write_control) may have something to write.
    fn has_control(&self) -> bool {
        true
    }

    /// Whether so much is to be written by [`write_control`](Self::write_control) that nothing more is read before.
    fn must_write_control(&self) -> bool {
        false
    }

    /// Writes what the protocol has to say by itself, such as an acknowledgement of what was read. Multiplexed protocols
    /// only.
    fn write_control(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// Why the server ends an exchange early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The application has not begun with the request: it may be sent again.
    Refused,
    /// The response is whole, and the rest of the request is not wanted.
    Complete,
    /// The response lacks its end.
    Cut,
}

/// Frames the body of one response and holds the application to what its head declares.
///
/// For each part there is [`open`](Self::open), then as many bytes as it admits, then [`close`](Self::close); and
/// [`finish`](Self::finish) behind the last one. In a multiplexed protocol none of them writes anything: the bytes leave
/// by [`Protocol::frame`].
pub trait ResponseSender: Debug {
    /// Opens a part of `length` bytes, and returns how many of them are admitted: none where there is no body, and where
    /// it would be longer than declared, which is said beside.
    fn open(&mut self, length: u64, out: &mut Vec<u8>) -> (u64, Result<(), Misuse>);

    /// Closes the part that was admitted as `admitted` bytes.
    fn close(&self, admitted: u64, out: &mut Vec<u8>);

    /// Ends the response.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`]: the peer still waits for the rest.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Misuse>;

    /// Ends the response with trailers, which are left out where the client takes none.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn finish_with(&mut self, trailers: &FieldLines, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let _ = trailers;
        self.finish(out)
    }

    /// Bytes that may still be written, where their number is known.
    fn room(&self) -> Option<u64>;

    /// What the application has offered as the body so far, also what was not admitted.
    fn offered_bytes(&self) -> u64;

    /// Body bytes admitted so far, without framing.
    fn body_bytes(&self) -> u64;

    /// Whether the peer gets a whole response if nothing more is written.
    fn is_whole(&self) -> bool;

    /// Whether the connection goes on behind the response.
    fn keeps_alive(&self) -> bool;

    /// Whether the response has no body on the wire.
    fn is_bodiless(&self) -> bool;

    /// Whether a cut shows only as a reset of the connection.
    fn needs_reset(&self) -> bool;
}
