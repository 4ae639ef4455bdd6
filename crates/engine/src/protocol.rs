//! Protocols, which convert received bytes to exchanges and responses to bytes.
//!
//! A protocol does no input or output. It converts received bytes to [`Event`]s, each of which names its exchange, and
//! it converts heads and bodies to bytes. There are two kinds of protocols:
//!
//! * A *serial* protocol, such as HTTP/1, has one exchange at a time. The engine reads the next request when the
//!   previous response is complete, and the bytes of a response are contiguous on the connection. A delay of one
//!   exchange delays the connection, and cutting a response ends the connection.
//! * A *multiplexed* protocol, such as HTTP/2 or FastCGI, has many exchanges at a time. The engine reads the connection
//!   while they are under way. Each part of a response is a separate frame, and the client announces for each exchange
//!   how many bytes it accepts ([`Protocol::window`]). Bytes beyond that wait in the exchange and delay no other
//!   exchange. Each side can end one exchange early ([`Event::Reset`], [`Protocol::reset`]).
//!
//! The protocol is a type parameter of the engine, so that no call of it is indirect. [`AnyProtocol`] is one of several
//! protocols, chosen by the listener of the connection ([`ProtocolKind`]).

mod any;
mod fastcgi;
mod gateway;
mod http1;

pub use any::AnyProtocol;
pub use http1::Http1;

use std::fmt::Debug;
use wire::message::{Draft, Fault, Field, FieldLines, Limits, Misuse, PartialRequestLine, RequestHead, Stamp};

/// The number that the protocol gives to an exchange on its connection.
pub type StreamId = u32;

/// The protocol of a listener's connections.
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

/// The next event in the input. `'s` lasts as long as the protocol's state is unchanged, `'i` as long as the input.
#[derive(Clone, Copy, Debug)]
pub enum Event<'s, 'i, R> {
    /// The input is incomplete: more bytes are needed.
    More,
    /// Bytes that concern only the protocol. More events may follow them.
    Nothing,
    /// A request.
    Head {
        /// The exchange of the request. No other exchange with this number is under way.
        stream: StreamId,
        /// The head of the request.
        head: RequestHead<'s>,
        /// The properties of the request that the response depends on.
        request: R,
        /// True if the client sends the body only after the server has asked for it ([`Protocol::tell_to_continue`]).
        expects_continue: bool,
    },
    /// A part of a request's body, never empty.
    Data {
        /// The exchange of the request, which may have ended already.
        stream: StreamId,
        /// The bytes of the part, without framing.
        bytes: &'i [u8],
        /// True if this part is known to be the last one. Then no [`End`](Self::End) follows.
        is_last: bool,
    },
    /// The end of a request's body. This event is not reported if the head says that there is no body.
    End {
        /// The exchange.
        stream: StreamId,
    },
    /// The client has reset an exchange. Multiplexed protocols only.
    Reset {
        /// The exchange.
        stream: StreamId,
    },
    /// The client accepts more bytes of a response than before. Multiplexed protocols only.
    Credit {
        /// The exchange.
        stream: StreamId,
    },
    /// A request breaks a rule, and the connection goes on. Multiplexed protocols only.
    Broken {
        /// The exchange of the request, whose head may or may not have been reported.
        stream: StreamId,
        /// The rule that the request breaks.
        fault: Fault,
    },
}

/// A protocol: reads and writes the bytes of one connection.
pub trait Protocol: Default {
    /// True if a connection may have many exchanges at a time.
    const MULTIPLEXED: bool;

    /// The properties of a request that its response depends on.
    type Request: Copy + Debug;

    /// The type that writes one response.
    type Sender: ResponseSender;

    /// Returns the protocol for a connection of a listener of this kind. A type with only one protocol ignores the
    /// kind.
    #[must_use]
    fn of_kind(kind: ProtocolKind) -> Self {
        let _ = kind;
        Self::default()
    }

    /// Returns a new protocol of the same kind, which has read nothing.
    #[must_use]
    fn fresh(&self) -> Self {
        Self::default()
    }

    /// Returns true if this connection may have many exchanges at a time. Always false if
    /// [`MULTIPLEXED`](Self::MULTIPLEXED) is false.
    #[inline]
    fn is_multiplexed(&self) -> bool {
        Self::MULTIPLEXED
    }

    /// Returns true if the server tells the client of a multiplexed connection how much of each request's body it may
    /// send ([`consumed`](Self::consumed)). Otherwise a body that the application does not read blocks the connection.
    fn has_windows(&self) -> bool {
        true
    }

    /// Returns true if the client of a multiplexed connection repeats a refused request ([`Reset::Refused`]). Otherwise
    /// it gets a response that says that the server is busy.
    fn can_refuse(&self) -> bool {
        true
    }

    /// Returns true if the server can tell the client of a multiplexed connection that no further exchange may begin
    /// ([`drain`](Self::drain)). Otherwise an idle connection stays open for as long as one of HTTP/1.
    fn announces_end(&self) -> bool {
        true
    }

    /// Returns true if the engine has to close a multiplexed connection when no exchange is under way.
    /// `may_have_arrived`: some of the client's bytes are unread. Requests among them have to be answered if the
    /// connection is reliable.
    fn is_ending(&self, may_have_arrived: bool) -> bool {
        let _ = may_have_arrived;
        false
    }

    /// Returns true if the client of such a connection may still be sending bytes that the server will not read.
    fn is_unread(&self) -> bool {
        false
    }

    /// Returns true if the only request under way on a multiplexed connection is its last and has been read as a whole.
    /// Then further bytes of the client do not matter, so the engine need not watch the connection before the answer.
    fn has_read_all(&self) -> bool {
        false
    }

    /// Returns true if a multiplexed connection has read a part of a head.
    fn is_in_head(&self) -> bool {
        false
    }

    /// Returns the event at the start of `input` and the number of bytes that it uses. `fields` is scratch memory.
    ///
    /// After [`Event::More`] the caller must pass the input again with more bytes, from the first unused byte on.
    ///
    /// # Errors
    /// Returns the rule that the peer broke. The connection cannot be read any further.
    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        fields: &'s mut Vec<Field>,
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Self::Request>), Fault>;

    /// Checks that the peer's input may end here. `rest` are the bytes that no message has used.
    ///
    /// # Errors
    /// Returns [`Fault::Truncated`] if the input ends in the middle of a message.
    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault>;

    /// Frees the memory that is kept only for speed. Called when the connection has been idle for a while.
    fn forget(&mut self);

    /// Returns the properties that the answer depends on if the request's head is invalid or incomplete.
    fn unread_request(&self) -> Self::Request;

    /// Returns the readable part of such a request's first line, for a log.
    fn partial_line<'i>(&self, input: &'i [u8]) -> Option<PartialRequestLine<'i>>;

    /// Returns true if the request at the start of `input` seems to ask for `path`; `None` if there are too few bytes
    /// to tell. This does not validate the request. A protocol that cannot tell returns false.
    fn glance(&self, input: &[u8], path: &[u8]) -> Option<bool>;

    /// Returns true if the client or this server ends the connection after this exchange. Always false for multiplexed
    /// connections.
    fn is_last(request: Self::Request) -> bool;

    /// Returns true if the client opened the connection only for this request, as far as its head shows.
    fn serves_one(&self, request: Self::Request) -> bool {
        Self::is_last(request)
    }

    /// Returns the same request, but with a response that is the last one of its connection.
    #[must_use]
    fn ending(request: Self::Request) -> Self::Request;

    /// Returns the same request, for an error page of the server that closes the connection.
    fn refusing(request: Self::Request) -> Self::Request;

    /// Tells the client to send the body of its request.
    fn tell_to_continue(&mut self, stream: StreamId, out: &mut Vec<u8>);

    /// Writes an interim response 103 with `fields` before the head of a response (RFC 8297), if the client can read
    /// one.
    fn write_early_hints(&mut self, stream: StreamId, fields: &FieldLines, request: Self::Request, out: &mut Vec<u8>) {
        let _ = (stream, fields, request, out);
    }

    /// Writes the head of a response. `length` is the length of the body, if it is known although the application did
    /// not declare it.
    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        request: Self::Request,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Self::Sender;

    /// Checks that a body of `length` bytes has the length that `draft` declares, if it declares one.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`], [`Misuse::BodyTooLong`].
    fn check_length(draft: &Draft, request: Self::Request, length: u64) -> Result<(), Misuse>;

    /// Returns the number of bytes of a response's body that the client accepts now. Further bytes wait for
    /// [`Event::Credit`].
    fn window(&self, stream: StreamId) -> usize {
        let _ = stream;
        usize::MAX
    }

    /// Writes a part of a response's body, which fits into the window. Multiplexed protocols only.
    fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        let _ = (stream, bytes, out);
    }

    /// Writes the error output of a request, which is not empty, besides its response, if the client accepts it
    /// ([`RequestHead::takes_errors`]). `is_begun`: the head of the response has been written. A protocol may keep the
    /// text until then. Multiplexed protocols only.
    fn write_errors(&mut self, stream: StreamId, text: &[u8], is_begun: bool, out: &mut Vec<u8>) {
        let _ = (stream, text, is_begun, out);
    }

    /// Tells the client that a response is complete. Multiplexed protocols only.
    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let _ = (stream, out);
    }

    /// Tells the client that the server has ended an exchange early, for the reason `reset`. Multiplexed protocols
    /// only.
    fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        let _ = (stream, reset, out);
    }

    /// Removes the state of an exchange that has ended or was reset by either side. Multiplexed protocols only.
    fn forget_stream(&mut self, stream: StreamId) {
        let _ = stream;
    }

    /// Lets the client send `bytes` more bytes of a request's body, because the application has read as many or the
    /// engine has discarded them. Multiplexed protocols only.
    fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        let _ = (stream, bytes, out);
    }

    /// Tells the client, if the protocol can, that it must not begin further exchanges on this connection. Multiplexed
    /// protocols only.
    fn drain(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Begins the connection, on which `exchanges` exchanges may be under way at a time. A multiplexed protocol tells
    /// this to its client.
    fn open(&mut self, exchanges: usize) {
        let _ = exchanges;
    }

    /// Keeps the connection open after the last response that its client gets, because a call has not returned.
    /// Multiplexed protocols only.
    fn stay(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Returns true if [`write_control`](Self::write_control) may have something to write.
    fn has_control(&self) -> bool {
        true
    }

    /// Returns true if the engine must call [`write_control`](Self::write_control) before it reads more, because so
    /// much output waits there.
    fn must_write_control(&self) -> bool {
        false
    }

    /// Writes messages of the protocol itself, such as acknowledgements of received frames. Multiplexed protocols only.
    fn write_control(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// The reason why the server ends an exchange early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The application has not begun to handle the request, so the client may repeat it.
    Refused,
    /// The response is complete, and the server does not need the rest of the request.
    Complete,
    /// The response is incomplete.
    Cut,
}

/// The writer of one response: frames its body and enforces the length that its head declares.
///
/// For each part the caller calls [`open`](Self::open), writes as many bytes as it admits, and calls
/// [`close`](Self::close). After the last part it calls [`finish`](Self::finish). In a multiplexed protocol these
/// methods write nothing: [`Protocol::frame`] writes the bytes.
pub trait ResponseSender: Debug {
    /// Opens a part of `length` bytes. Returns how many of them are admitted: none if the response has no body, and
    /// none, with an error, if the body would be longer than declared.
    fn open(&mut self, length: u64, out: &mut Vec<u8>) -> (u64, Result<(), Misuse>);

    /// Closes the part of which `admitted` bytes were admitted.
    fn close(&self, admitted: u64, out: &mut Vec<u8>);

    /// Ends the response.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`] if the peer still waits for the rest of the body.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Misuse>;

    /// Ends the response with trailers, or without them if the client accepts none.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn finish_with(&mut self, trailers: &FieldLines, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let _ = trailers;
        self.finish(out)
    }

    /// Returns the number of bytes that may still be written, if it is known.
    fn room(&self) -> Option<u64>;

    /// Returns the number of body bytes that the application has written so far, including those that were not
    /// admitted.
    fn offered_bytes(&self) -> u64;

    /// Returns the number of body bytes admitted so far, without framing.
    fn body_bytes(&self) -> u64;

    /// Returns true if the peer gets a complete response if nothing more is written.
    fn is_whole(&self) -> bool;

    /// Returns true if the connection stays open after the response.
    fn keeps_alive(&self) -> bool;

    /// Returns true if the response has no body on the wire.
    fn is_bodiless(&self) -> bool;

    /// Returns true if the peer can detect a cut only by a reset of the connection.
    fn needs_reset(&self) -> bool;
}
