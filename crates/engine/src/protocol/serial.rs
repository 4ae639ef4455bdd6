//! Protocols with one exchange at a time.

use super::{ResponseSender, ResponseTerms};
use wire::message::{Draft, Fault, Field, FieldLines, Limits, PartialRequestLine, RequestHead, Stamp};

/// The next event in the input. `'s` lasts as long as the protocol's state is unchanged, `'i` as long as the input.
#[derive(Clone, Copy, Debug)]
pub enum Event<'s, 'i, T> {
    /// The input is incomplete: more bytes are needed.
    More,
    /// A request.
    Head {
        /// The head of the request.
        head: RequestHead<'s>,
        /// The properties of the request that the response depends on.
        terms: T,
        /// True if the client sends the body only after the server has asked for it
        /// ([`SerialProtocol::tell_to_continue`]).
        expects_continue: bool,
    },
    /// A part of a request's body, never empty.
    Data {
        /// The bytes of the part, without framing.
        bytes: &'i [u8],
        /// True if this part is known to be the last one. Then no [`End`](Self::End) follows.
        is_last: bool,
    },
    /// The end of a request's body. This event is not reported if the head says that there is no body.
    End,
}

/// A protocol that has one exchange at a time: reads and writes the bytes of one connection.
pub trait SerialProtocol: Sized {
    /// The properties of a request that its response depends on.
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

    /// Checks that the peer's input may end here. `rest` are the bytes that no message has used.
    ///
    /// # Errors
    /// Returns [`Fault::Truncated`] if the input ends in the middle of a message.
    fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault>;

    /// Frees the memory that is kept only for speed. Called when the connection has been idle for a while.
    fn forget(&mut self);

    /// Returns the properties that the answer depends on if the request's head is invalid or incomplete.
    fn unread_terms(&self) -> Self::Terms;

    /// Returns the readable part of such a request's first line, for a log.
    fn partial_line<'i>(&self, input: &'i [u8]) -> Option<PartialRequestLine<'i>>;

    /// Returns true if the request at the start of `input` seems to ask for `path`; `None` if there are too few bytes
    /// to tell. This does not validate the request. A protocol that cannot tell returns false.
    fn glance(&self, input: &[u8], path: &[u8]) -> Option<bool>;

    /// Tells the client to send the body of its request.
    fn tell_to_continue(&mut self, out: &mut Vec<u8>);

    /// Writes an interim response 103 with `fields` before the head of a response (RFC 8297), if the client can read
    /// one.
    fn write_early_hints(&mut self, fields: &FieldLines, terms: Self::Terms, out: &mut Vec<u8>) {
        let _ = (fields, terms, out);
    }

    /// Writes the head of a response. `length` is the length of the body, if it is known although the application did
    /// not declare it.
    fn begin(
        &mut self,
        draft: &Draft,
        terms: Self::Terms,
        length: Option<u64>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Self::Sender;
}
