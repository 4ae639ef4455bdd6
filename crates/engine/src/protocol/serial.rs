//! The interface of protocols with one exchange at a time.

use super::{ResponseSender, ResponseTerms};
use wire::message::{Draft, Fault, Field, FieldLines, Limits, PartialRequestLine, RequestHead, Stamp};

/// The next event in the input. `'s` is the lifetime of references to the protocol's state, `'i` that of the input.
#[derive(Clone, Copy, Debug)]
pub enum Event<'s, 'i, T> {
    /// The input is incomplete: more bytes are needed.
    More,
    /// The head of a request.
    Head {
        /// The head of the request.
        head: RequestHead<'s>,
        /// The properties of the request that determine the form of its response.
        terms: T,
        /// True if the client sends the body only after the server has asked for it
        /// ([`SerialProtocol::tell_to_continue`]).
        expects_continue: bool,
    },
    /// A part of a request's body, never empty.
    Data {
        /// The bytes of the part, without framing.
        bytes: &'i [u8],
        /// True if this part is known to be the last one. No [`End`](Self::End) follows then.
        is_last: bool,
    },
    /// The end of a request's body. This event is not reported if the head says that there is no body.
    End,
}

/// A protocol that has one exchange at a time. It reads and writes the bytes of one connection.
pub trait SerialProtocol: Sized {
    /// The properties of a request that determine the form of its response.
    type Terms: ResponseTerms;
    /// The type that writes one response.
    type Sender: ResponseSender;

    /// Returns a new protocol of the same kind, which has read nothing.
    #[must_use]
    fn fresh(&self) -> Self;

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
    ) -> Result<(usize, Event<'s, 'i, Self::Terms>), Fault>;

    /// Checks that the peer's input may end here. `rest` are the bytes that belong to no complete message.
    ///
    /// # Errors
    /// Returns [`Fault::Truncated`] if the input ends in the middle of a message.
    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault>;

    /// Frees memory that is kept only for speed. Called when the connection has been idle for a while.
    fn forget(&mut self);

    /// Returns the terms of a refusal, for a request whose head is invalid or incomplete.
    fn unread_terms(&self) -> Self::Terms;

    /// Returns the part of the request line in `input` that could be parsed; `None` if nothing could be parsed. The access
    /// log shows that part.
    fn partial_line<'i>(&self, input: &'i [u8]) -> Option<PartialRequestLine<'i>>;

    /// Returns true if the request at the start of `input` seems to ask for `path`; `None` if `input` is too short to
    /// tell. Does not validate the request. A protocol that cannot tell returns false.
    fn glance(&self, input: &[u8], path: &[u8]) -> Option<bool>;

    /// Tells the client to send the body of its request.
    fn tell_to_continue(&mut self, out: &mut Vec<u8>);

    /// Writes an interim response 103 with `fields` before the head of a response (RFC 8297), if the client accepts
    /// one.
    fn write_early_hints(&mut self, fields: &FieldLines, terms: Self::Terms, out: &mut Vec<u8>) {
        let _ = (fields, terms, out);
    }

    /// Writes the head of a response. `length` is the length of the body, if it is known even though the application
    /// did not declare it.
    fn begin(
        &mut self,
        draft: &Draft,
        terms: Self::Terms,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Self::Sender;
}
