//! The interface of protocols with many exchanges at a time.

use super::{ResponseSender, ResponseTerms};
use crate::deadline::Millis;
use wire::http2::HeadScratch;
use wire::message::{Draft, Fault, FieldLines, Limits, PartialRequestLine, RequestHead, Stamp};

/// The number by which the protocol identifies an exchange on its connection.
pub type StreamId = u32;

/// The next event in the input. `'s` is the lifetime of references to the protocol's state, `'i` that of the input.
#[derive(Clone, Copy, Debug)]
pub enum StreamEvent<'s, 'i, T> {
    /// The input is incomplete: more bytes are needed.
    More,
    /// Bytes that concern only the protocol. More events may follow.
    Nothing,
    /// The head of a request.
    Head {
        /// The exchange of the request. No other exchange under way has this number.
        stream: StreamId,
        /// The head of the request.
        head: RequestHead<'s>,
        /// The properties of the request that determine the form of its response.
        terms: T,
    },
    /// A part of a request's body, never empty.
    Data {
        /// The exchange of the request, which may have already ended.
        stream: StreamId,
        /// The bytes of the part, without framing.
        bytes: &'i [u8],
        /// True if this part is known to be the last one. No [`End`](Self::End) follows then.
        is_last: bool,
    },
    /// The end of a request's body. This event is not reported if the head says that there is no body.
    End {
        /// The exchange.
        stream: StreamId,
    },
    /// The client has reset an exchange.
    Reset {
        /// The exchange.
        stream: StreamId,
    },
    /// The client has enlarged the window of a response.
    Credit {
        /// The exchange.
        stream: StreamId,
    },
    /// A request breaks a rule, but the connection continues.
    Broken {
        /// The exchange of the request, whose head may or may not have been reported.
        stream: StreamId,
        /// The rule that the request breaks.
        fault: Fault,
    },
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

/// A protocol that has many exchanges at a time. It reads and writes the bytes of one connection.
pub trait MultiplexedProtocol: Sized {
    /// The properties of a request that determine the form of its response.
    type Terms: ResponseTerms;
    /// The type that writes one response.
    type Sender: ResponseSender;

    /// Returns a new protocol of the same kind, which has read nothing.
    #[must_use]
    fn fresh(&self) -> Self;

    /// Begins the connection, with at most `exchanges` exchanges at a time. A protocol that can tell its client of this
    /// maximum, and of its `limits`, does so.
    fn open(&mut self, exchanges: usize, limits: &Limits);

    /// Passes the time to the protocol, which may limit how often something happens.
    fn set_time(&mut self, now: Millis) {
        let _ = now;
    }

    /// Returns the event at the start of `input` and the number of bytes that it uses. `scratch` may be shared by
    /// connections.
    ///
    /// After [`StreamEvent::More`] the caller must pass the input again with more bytes, from the first unused byte on.
    ///
    /// # Errors
    /// Returns the rule that the peer broke. The connection cannot be read any further.
    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        scratch: &'s mut HeadScratch,
        limits: &Limits,
    ) -> Result<(usize, StreamEvent<'s, 'i, Self::Terms>), Fault>;

    /// Frees memory that is kept only for speed. Called when the connection has been idle for a while.
    fn forget(&mut self);

    /// Returns the terms of a refusal, for a request whose head is invalid or incomplete.
    fn unread_terms(&self) -> Self::Terms;

    /// Returns the part that could be parsed of the request line in the head that was read last; `None` if nothing could
    /// be parsed. The access log shows that part.
    fn partial_line<'s>(&self, scratch: &'s HeadScratch) -> Option<PartialRequestLine<'s>> {
        let _ = scratch;
        None
    }

    /// Returns true if the head of the last request shows that the client opened the connection for that request only.
    fn serves_one(&self) -> bool {
        false
    }

    /// Returns true if the client may send only as much of each request's body as the server allows
    /// ([`consumed`](Self::consumed)). Otherwise a body that the application does not read blocks the connection.
    fn has_windows(&self) -> bool {
        true
    }

    /// Allows clients to ask for WebSockets, if the protocol can carry them. Called before [`open`](Self::open).
    fn take_websockets(&mut self) {}

    /// Records that the application accepts the WebSocket that a request asks for. The head of the response follows.
    fn accept_websocket(&mut self, stream: StreamId) {
        let _ = stream;
    }

    /// Returns true if the peer is a web server, which passes on the requests of many clients.
    fn is_of_web_server(&self) -> bool {
        false
    }

    /// Returns true if the client repeats a refused request ([`Reset::Refused`]). Otherwise the client receives a
    /// response that says that the server is busy.
    fn can_refuse(&self) -> bool {
        true
    }

    /// Returns true if the server can tell the client that no further exchange may begin ([`drain`](Self::drain)).
    /// Otherwise an idle connection stays open as long as an HTTP/1 connection.
    fn announces_end(&self) -> bool {
        true
    }

    /// Tells the client that the connection ends now. No exchange is under way. Returns false if the protocol cannot do
    /// so.
    fn leave(&mut self, out: &mut Vec<u8>) -> bool {
        let _ = out;
        false
    }

    /// Returns true if the client knows of the end that [`drain`](Self::drain) has announced, so that no further
    /// request can be on its way.
    fn is_end_agreed(&self) -> bool {
        true
    }

    /// Returns true if the protocol tells its client that it broke a rule of the connection, and ignores further input.
    /// Exchanges under way are then completed as far as possible, and [`is_ending`](Self::is_ending) returns true.
    fn answers_violations(&self) -> bool {
        false
    }

    /// Returns true if the engine has to close the connection when no exchange is under way. `may_have_arrived`: some
    /// bytes from the client are unread. They may contain requests, which must be answered on a reliable connection.
    fn is_ending(&self, may_have_arrived: bool) -> bool {
        let _ = may_have_arrived;
        false
    }

    /// Returns true if the client of an ending connection may still be sending bytes, which the server will not read.
    fn is_unread(&self) -> bool {
        false
    }

    /// Returns true if the only request under way on the connection is its last one and has been read completely.
    /// Further bytes from the client do not matter then, so the engine need not watch the connection before the
    /// response.
    fn has_read_all(&self) -> bool {
        false
    }

    /// Returns true if a part of a head has been read.
    fn is_in_head(&self) -> bool {
        false
    }

    /// Tells the client to send the body of its request, if the client waits for that.
    fn tell_to_continue(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let _ = (stream, out);
    }

    /// Writes an interim response 103 with `fields` before the head of a response (RFC 8297), if the client accepts
    /// one.
    fn write_early_hints(&mut self, stream: StreamId, fields: &FieldLines, terms: Self::Terms, out: &mut Vec<u8>) {
        let _ = (stream, fields, terms, out);
    }

    /// Writes the head of a response. `length` is the length of the body, if it is known even though the application
    /// did not declare it.
    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        terms: Self::Terms,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Self::Sender;

    /// Returns the number of bytes of a response's body that the client accepts now. Further bytes wait for
    /// [`StreamEvent::Credit`].
    fn window(&self, stream: StreamId) -> usize {
        let _ = stream;
        usize::MAX
    }

    /// If a response waits although its own window has room, because other responses use the window of the connection:
    /// returns the number of bytes of all responses sent so far. Otherwise returns `None`.
    fn sent_meanwhile(&self, stream: StreamId) -> Option<u64> {
        let _ = stream;
        None
    }

    /// Returns true if the client can send no body, because the application has not read earlier bodies.
    fn is_full_of_bodies(&self) -> bool {
        false
    }

    /// Returns the rank of a response. Responses are sent in the order of their ranks, the lowest first.
    fn rank(&self, stream: StreamId) -> u64 {
        let _ = stream;
        0
    }

    /// Writes a part of a response's body, which must fit into the window.
    fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>);

    /// Writes only the head of a frame with `length` bytes of a response's body, at most
    /// [`FRAME`](crate::config::FRAME), which must fit into the window. The caller sends the bytes directly behind the
    /// head. Returns false and writes nothing if the protocol cannot do so.
    fn begin_frame(&mut self, stream: StreamId, length: usize, out: &mut Vec<u8>) -> bool {
        let _ = (stream, length, out);
        false
    }

    /// Writes error output of a request, separate from its response, if the client accepts it
    /// ([`RequestHead::takes_errors`]). `text` is not empty. `is_begun`: the head of the response has been written; a
    /// protocol may hold the text back until then.
    fn write_errors(&mut self, stream: StreamId, text: &[u8], is_begun: bool, out: &mut Vec<u8>) {
        let _ = (stream, text, is_begun, out);
    }

    /// Stores the trailers that [`end_response`](Self::end_response) sends, if the client accepts them.
    fn keep_trailers(&mut self, stream: StreamId, trailers: &FieldLines) {
        let _ = (stream, trailers);
    }

    /// Tells the client that a response is complete.
    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>);

    /// Tells the client that the server has ended an exchange early. `reset` is the reason.
    fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>);

    /// Removes the state of an exchange that has ended or was reset by either side.
    fn forget_stream(&mut self, stream: StreamId);

    /// Allows the client to send `bytes` more bytes of a request's body, because the application has read as many or
    /// the engine has discarded them.
    fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        let _ = (stream, bytes, out);
    }

    /// Tells the client that it must not begin further exchanges on this connection, if the protocol can do so.
    fn drain(&mut self, out: &mut Vec<u8>);

    /// Keeps the connection open after its last response, because a call has not returned.
    fn stay(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Returns true if [`write_control`](Self::write_control) may have something to write.
    fn has_control(&self) -> bool {
        true
    }

    /// Returns true if so much output waits in the protocol that the engine must call
    /// [`write_control`](Self::write_control) before it reads more.
    fn must_write_control(&self) -> bool {
        false
    }

    /// Writes messages of the protocol itself, such as acknowledgements of received frames.
    fn write_control(&mut self, out: &mut Vec<u8>);
}
