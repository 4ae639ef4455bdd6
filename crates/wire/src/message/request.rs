//! The head of a request.

use super::client::Client;
use super::field::Field;
use super::target::Target;

/// The minor version decides about persistence and framing; HTTP/1.2 and later minors count as 1.1
/// (RFC 9110 section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

/// The length of a request's body, as its head declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    None,
    /// So many bytes, which may be 0.
    Known(u64),
    /// That shows when it ends.
    Unknown,
}

impl BodyLength {
    /// Returns true if the body has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, BodyLength::None | BodyLength::Known(0))
    }
}

/// One request's head, borrowed from what its protocol has read.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The number of the stream on its connection, if the protocol has streams (HTTP/2).
    pub stream: Option<u32>,
    /// The method, a token.
    pub method: &'a [u8],
    /// The request target.
    pub target: Target<'a>,
    /// The version.
    pub version: Version,
    /// The field lines with the blank line behind them; what [`Field`]s are read from.
    pub block: &'a [u8],
    /// The field lines in order.
    pub fields: &'a [Field],
    /// The length of the body.
    pub body: BodyLength,
    /// The fields are CGI variables (RFC 3875 section 4.1): those of the request's fields are called `HTTP_USER_AGENT`
    /// instead of `User-Agent`, and others such as `REMOTE_ADDR` are among them.
    pub is_cgi: bool,
    /// The request is an extended CONNECT that asks for a WebSocket (RFC 8441).
    pub is_websocket: bool,
    /// True if the request is of https by what it says itself (`:scheme` of HTTP/2), which counts only if its peer is
    /// trusted ([`crate::forwarded`]); `None` if it says nothing.
    pub is_https: Option<bool>,
    /// The peer takes what the application reports of this request, besides its response (FastCGI's STDERR).
    pub takes_errors: bool,
    /// Set if the block has the same field names in the same order as the one for which `retained` was set last: the
    /// places in [`fields`](Self::fields) of those whose values differ, in ascending order. All other lines are the
    /// same byte for byte. Not set together with `retained`.
    pub changed: Option<&'a [u16]>,
    /// The reader keeps this block to compare the next one with. An application that builds something from a block
    /// should keep it now, with [`kept`](Self::kept), because [`changed`](Self::changed) of later heads refers to it.
    pub retained: bool,
    /// The number of blocks that the reader has kept on this connection. [`changed`](Self::changed) refers to the last
    /// of them, so a caller that has built something from an earlier one must not use it.
    pub kept: u32,
    /// The client, if a proxy names it ([`crate::forwarded`], [`crate::proxy`]); `None`: the peer of the socket. A
    /// reader leaves it `None`, unless the protocol itself names the client.
    pub client: Option<&'a Client>,
}

impl<'a> RequestHead<'a> {
    /// Returns true if the block is byte for byte the one for which `retained` was set last.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.changed.is_some_and(<[u16]>::is_empty)
    }

    /// Returns the value of the first field called `name`, which must be given in lower case.
    #[must_use]
    pub fn field(&self, name: &[u8]) -> Option<&'a [u8]> {
        find(self.fields, self.block, self.is_cgi, name)
    }
}

impl<'a> RequestHead<'a> {
    /// Returns the value of the last CGI variable called `name`; `None` if the fields are no CGI variables, or there is
    /// no such variable.
    #[must_use]
    pub fn variable(&self, name: &[u8]) -> Option<&'a [u8]> {
        let last = self.fields.iter().rfind(|field| field.name(self.block) == name);
        last.filter(|_| self.is_cgi).map(|field| field.value(self.block))
    }
}

/// Returns the value of the first field called `name`, in lower case, among `fields` of `block`, which are CGI
/// variables or not.
#[must_use]
pub fn find<'a>(fields: &[Field], block: &'a [u8], is_cgi: bool, name: &[u8]) -> Option<&'a [u8]> {
    let is_named = |field: &&Field| if is_cgi { field.is_variable_of(block, name) } else { field.is(block, name) };
    fields.iter().find(is_named).map(|field| field.value(block))
}

/// The readable part of a request line, for a log: the head may be malformed or incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialRequestLine<'a> {
    /// The method, a token.
    pub method: &'a [u8],
    /// The target as far as it is here, and as its characters are those of a target.
    pub target: &'a [u8],
    /// The target goes on behind that.
    pub is_cut: bool,
    /// The version, if it is one that is spoken here.
    pub version: Option<Version>,
}
