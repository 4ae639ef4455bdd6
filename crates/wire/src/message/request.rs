//! The head of a request.

use super::client::Client;
use super::field::Field;
use super::target::Target;

/// The HTTP version of a request. It determines persistence and framing. HTTP/1.2 and later minor versions count as
/// HTTP/1.1 (RFC 9110 section 2.5).
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
    /// The request has no body.
    None,
    /// The number of bytes, which may be 0.
    Known(u64),
    /// The length is unknown: the framing marks the end of the body.
    Unknown,
}

impl BodyLength {
    /// Returns true if the body has no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        matches!(self, BodyLength::None | BodyLength::Known(0))
    }
}

/// The head of one request, borrowed from the reader of its protocol.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The identifier of the stream, if the protocol has streams (HTTP/2).
    pub stream: Option<u32>,
    /// The method, a token.
    pub method: &'a [u8],
    /// The request target.
    pub target: Target<'a>,
    /// The version.
    pub version: Version,
    /// The field lines with the blank line that ends them. [`Field`]s are positions in it.
    pub block: &'a [u8],
    /// The field lines in order.
    pub fields: &'a [Field],
    /// The length of the body.
    pub body: BodyLength,
    /// True if the fields are CGI variables (RFC 3875 section 4.1). Then a request field is called `HTTP_USER_AGENT`
    /// instead of `User-Agent`, and the fields include other variables such as `REMOTE_ADDR`.
    pub is_cgi: bool,
    /// True if the request is an extended CONNECT that asks for a WebSocket (RFC 8441).
    pub is_websocket: bool,
    /// True if the request claims the scheme https (`:scheme` of HTTP/2); `None` if it gives no scheme. The claim is
    /// used only if the peer is trusted ([`crate::forwarded`]).
    pub is_https: Option<bool>,
    /// True if the peer accepts the application's error output for this request beside the response (FastCGI's STDERR).
    pub takes_errors: bool,
    /// The indices in [`fields`](Self::fields), ascending, of the lines that differ from the kept block: the last block
    /// for which `retained` was set. The names and their order are equal, and all other lines are equal byte for byte.
    /// `None` if the block cannot be compared in this way, or if `retained` is set.
    pub changed: Option<&'a [u16]>,
    /// True if the reader keeps this block to compare later ones with it. If the application caches something made from
    /// a block, it should cache it now, together with [`kept`](Self::kept), because [`changed`](Self::changed) of later
    /// heads refers to this block.
    pub retained: bool,
    /// The number of blocks that the reader has kept on this connection. [`changed`](Self::changed) refers to the last
    /// of them, so anything that was cached for an earlier block must not be used.
    pub kept: u32,
    /// The client, if a proxy reports one ([`crate::forwarded`], [`crate::proxy`]); `None` if the client is the peer of
    /// the socket. Readers set it only if the protocol itself transmits the client.
    pub client: Option<&'a Client>,
}

impl<'a> RequestHead<'a> {
    /// Returns true if the block equals, byte for byte, the last one for which `retained` was set.
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
    /// Returns the value of the last CGI variable called `name`; `None` if there is none, or if the fields are not CGI
    /// variables.
    #[must_use]
    pub fn variable(&self, name: &[u8]) -> Option<&'a [u8]> {
        let last = self.fields.iter().rfind(|field| field.name(self.block) == name);
        last.filter(|_| self.is_cgi).map(|field| field.value(self.block))
    }
}

/// Returns the value of the first of `fields` called `name`, which must be in lower case. `is_cgi` tells that the
/// fields are CGI variables.
#[must_use]
pub fn find<'a>(fields: &[Field], block: &'a [u8], is_cgi: bool, name: &[u8]) -> Option<&'a [u8]> {
    let is_named = |field: &&Field| if is_cgi { field.is_variable_of(block, name) } else { field.is(block, name) };
    fields.iter().find(is_named).map(|field| field.value(block))
}

/// The part of a request line that could be read, for a log entry. The head may be malformed or incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialRequestLine<'a> {
    /// The method, a token.
    pub method: &'a [u8],
    /// The target, up to the end of the input or the first character that is not allowed in a target.
    pub target: &'a [u8],
    /// True if the target is longer than `target`.
    pub is_cut: bool,
    /// The version, if it is a supported one.
    pub version: Option<Version>,
}
