//! The client role: writes requests, reads responses.
//!
//! # How a response is read
//!
//! The end of a response cannot be found from its bytes alone. Its framing depends on the request (a response to HEAD
//! has no body, whatever its fields say), on its status (1xx, 204 and 304 have no body either), on its fields, and if
//! none of these decides, on the end of the connection. The reader follows the order of RFC 9112 section 6.3:
//!
//! ```text
//!   HEAD, 1xx, 204, 304 ──▶ Body::None        Transfer-Encoding: chunked ──▶ Body::Chunked
//!   Content-Length: n   ──▶ Body::Length(n)   neither                    ──▶ Body::UntilClose
//! ```
//!
//! So for each head the caller passes whether the method was HEAD, and keeps its pipelined requests in order. It also
//! reports the end of the connection, which completes a response that lasts until the close and truncates any other.
//!
//! A request has one final response and may have interim ones (1xx) before it. An interim response is read as a head
//! with [`Reply::is_interim`] set and no body; the final one follows and is read in the same way.
//!
//! # Errors
//!
//! As in the server role, with the sides exchanged: a [`ServerFault`] is an error of the peer, a [`ClientMisuse`] is an
//! error of the caller who writes the request. Rules that both roles share have one variant, [`ServerFault::Message`]
//! or [`ClientMisuse::Message`].
//!
//! Reading a response allocates no memory: the heads borrow from the input, and the caller owns the table of fields.
//! The caller also owns the buffer that a request is written to.

use super::block::{Own, Progress};
use super::body::{BodyReader, BodyStep, FORBIDDEN_TRAILERS};
use super::limits;
use super::send;
use super::version::version;
use crate::grammar::{is_token, is_value, line_feed, list, target_end, value_end};
use crate::message::{BodyLength, Fault, Field, Limits, Misuse, Target, Version, is_host};
use std::fmt;

// ------------------------------------------------------------------------------------------------------- responses

macro_rules! server_faults {
    ($($(#[$doc:meta])* $name:ident $explanation:literal,)*) => {
        /// A rule that a server broke. There is one variant for each rule that only responses have, and one for all
        /// rules that requests have too.
        ///
        /// After a fault the connection cannot be read any further, because the start of the next response is not
        /// known.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ServerFault {
            /// A rule that requests and responses share. The status of the [`Fault`] has no meaning here.
            Message(Fault),
            $($(#[$doc])* $name,)*
        }

        impl ServerFault {
            /// All variants except [`Message`](Self::Message), so that a test can demand that each of them occurs.
            pub const ALL: &[ServerFault] = &[$(ServerFault::$name,)*];

            /// Returns an explanation for the user in one sentence. It never repeats what the server sent.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self {
                    // The shared sentence speaks of a request; these fit a response.
                    ServerFault::Message(Fault::Truncated) => "The response ended early.",
                    ServerFault::Message(Fault::BodyTooLarge | Fault::ChunkSizeTooLarge) => {
                        "The body is larger than this client accepts."
                    }
                    ServerFault::Message(fault) => fault.explanation(),
                    $(ServerFault::$name => $explanation,)*
                }
            }

            /// Returns the variant's name; for [`Message`](Self::Message) the name of the shared rule.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    ServerFault::Message(fault) => fault.name(),
                    $(ServerFault::$name => stringify!($name),)*
                }
            }
        }
    };
}

server_faults! {
    /// More interim responses than any known server sends.
    InterimsTooMany "There are too many interim responses.",
    /// A control character in a reason phrase (RFC 9112 section 4).
    ReasonInvalid "The reason phrase has a character that is not allowed.",
    /// The status is not three digits, or is below 100 (RFC 9110 section 15).
    StatusInvalid "The status code is not a number from 100 to 999.",
    /// The parts of the status line are not separated by one space each. The space before an empty reason is required
    /// too (RFC 9112 section 4).
    StatusLineMalformed "The status line is malformed.",
    /// The status line is longer than its limit.
    StatusLineTooLong "The status line is too long.",
    /// Status 101, although no request asks for another protocol (RFC 9110 section 7.8).
    SwitchUnasked "The server switches to a protocol that was not asked for.",
    /// The version is not HTTP/ DIGIT . DIGIT (RFC 9112 section 2.3).
    VersionMalformed "The HTTP version is malformed.",
    /// The major version is not 1.
    VersionUnsupported "The server answers in an HTTP version that was not asked for.",
}

impl From<Fault> for ServerFault {
    fn from(fault: Fault) -> Self {
        Self::Message(fault)
    }
}

impl fmt::Display for ServerFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.explanation())
    }
}

impl std::error::Error for ServerFault {}

/// The framing of a response's body (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The response has no body, whatever its fields say.
    None,
    /// The value of Content-Length, which may be 0.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
    /// The body ends when the connection closes.
    UntilClose,
}

/// The head of one response, borrowed from the input and the caller's table of fields.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The version.
    pub version: Version,
    /// The status code, 100 to 999. A code from 600 on must be treated as 5xx (RFC 9110 section 15).
    pub status: u16,
    /// The reason phrase, which may be empty and has no meaning.
    pub reason: &'a [u8],
    /// The field lines with the blank line that ends them; [`Field`]s are positions in it.
    pub block: &'a [u8],
    /// The field lines in order.
    pub fields: &'a [Field],
    /// The framing of the body.
    pub body: Body,
    /// The value of Content-Length, also for responses without a body: for HEAD and 304 it is the length of the body
    /// that GET would have received.
    pub content_length: Option<u64>,
    /// True if the server keeps this connection open (RFC 9112 section 9.3). Irrelevant after a request with
    /// `Connection: close`.
    pub keep_alive: bool,
    /// True if the status is 1xx: the final response to the same request follows.
    pub is_interim: bool,
    /// The length of the head in the input, in bytes.
    pub length: usize,
}

impl<'a> Reply<'a> {
    /// Returns the value of the first field called `name`, which must be given in lower case.
    #[must_use]
    pub fn field(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.fields.iter().find(|field| field.is(self.block, name)).map(|field| field.value(self.block))
    }
}

/// A reader of the responses of one connection. The calls follow the order *head, body until its end, head, …*.
///
/// It stores no input: the caller keeps the unused bytes and passes them again, followed by new ones. It must not be
/// called again after a [`ServerFault`].
#[derive(Debug, Default)]
pub struct Receiver {
    body: BodyReader,
    progress: Progress<ReplyFacts>,
    /// The number of interim responses since the last final one.
    interims: usize,
}

/// The facts that only responses have. The reader needs none.
#[derive(Clone, Copy, Debug, Default)]
struct ReplyFacts;

impl Own for ReplyFacts {
    fn learn(&mut self, _name: &[u8], _value: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
}

impl Receiver {
    /// Reads a head from the front of `input`. Returns `None` if it is incomplete. `answers_head` is true if the
    /// request's method was HEAD.
    ///
    /// `input` must begin with the bytes of the last call, if that returned `None`. `fields` is scratch space.
    ///
    /// # Errors
    /// The rule that the server broke, at the latest when the line that breaks it is complete.
    pub fn head<'a>(
        &mut self,
        input: &'a [u8],
        answers_head: bool,
        fields: &'a mut Vec<Field>,
        limits: &Limits,
    ) -> Result<Option<Reply<'a>>, ServerFault> {
        if !self.progress.is_fresh() && !self.progress.advance(input, limits::STATUS_LINE, limits)? {
            return Ok(None);
        }
        let Some(line) = status_line(input)? else {
            self.progress.wait_for_first_line(input);
            return Ok(None);
        };
        let Some((facts, block_length)) = self.progress.scan(input, line.length, fields, limits)? else {
            return Ok(None);
        };
        facts.check(line.version)?;
        let is_interim = line.status < 200;
        if is_interim {
            if line.status == 101 {
                return Err(ServerFault::SwitchUnasked);
            }
            if self.interims == limits::INTERIMS {
                return Err(ServerFault::InterimsTooMany);
            }
        }
        let body = match facts.content_length {
            _ if answers_head || is_interim || matches!(line.status, 204 | 304) => Body::None,
            _ if facts.chunked => Body::Chunked,
            Some(length) if length > limits.body => return Err(Fault::BodyTooLarge.into()),
            Some(length) => Body::Length(length),
            None => Body::UntilClose,
        };
        match body {
            Body::None => self.body.begin(BodyLength::None),
            Body::Length(length) => self.body.begin(BodyLength::Known(length)),
            Body::Chunked => self.body.begin(BodyLength::Unknown),
            Body::UntilClose => self.body.begin_until_close(),
        }
        self.interims = if is_interim { self.interims + 1 } else { 0 };
        self.progress.reset();
        Ok(Some(Reply {
            version: line.version,
            status: line.status,
            reason: line.reason,
            block: &input[line.length..line.length + block_length],
            fields,
            body,
            content_length: facts.content_length,
            keep_alive: is_interim || (body != Body::UntilClose && facts.keeps_alive(line.version)),
            is_interim,
            length: line.length + block_length,
        }))
    }

    /// Takes the next step through the body of the last head. Returns the number of bytes used of `input`, and their
    /// meaning. The caller repeats this until [`BodyStep::End`]; [`BodyStep::More`] asks for more input, or for its
    /// end.
    ///
    /// # Errors
    /// The rule that the server broke.
    pub fn body<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(usize, BodyStep<'a>), ServerFault> {
        Ok(self.body.step(input, limits)?)
    }

    /// Handles the end of the input. `rest` is the bytes that belong to no complete response. A body that lasts until
    /// the close is complete then, and its next step is [`BodyStep::End`]. Only the caller knows whether a response is
    /// missing.
    ///
    /// # Errors
    /// [`Fault::Truncated`] within a response. A response begins with its first interim response.
    pub fn end_of_input(&mut self, rest: &[u8]) -> Result<(), ServerFault> {
        let whole = self.body.end_of_input() && self.interims == 0 && rest.is_empty();
        if whole { Ok(()) } else { Err(Fault::Truncated.into()) }
    }
}

struct StatusLine<'a> {
    version: Version,
    status: u16,
    reason: &'a [u8],
    length: usize,
}

/// Reads HTTP-version SP status-code SP [ reason-phrase ] CRLF (RFC 9112 section 4). Returns `None` if it is
/// incomplete.
fn status_line(input: &[u8]) -> Result<Option<StatusLine<'_>>, ServerFault> {
    /// The length of the part before the reason phrase: `HTTP/1.1 200 `.
    const START: usize = 13;
    /// The maximum length of a status line with its CRLF.
    const LONGEST: usize = limits::STATUS_LINE + 2;

    let bounded = &input[..input.len().min(LONGEST)];
    let Some(start) = bounded.first_chunk::<START>() else {
        // A line that ends before that is too short for a status line.
        return if line_feed(bounded).is_some() { Err(ServerFault::StatusLineMalformed) } else { Ok(None) };
    };
    let usual = match *start {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', b' ', a, b, c, b' '] => status_code([a, b, c]),
        _ => None,
    };
    let (version, status) = match usual {
        Some(status) => (Version::Http11, status),
        None => unusual_start(start)?,
    };
    let stop = value_end(bounded, START);
    match (bounded.get(stop), bounded.get(stop + 1)) {
        (Some(b'\r'), Some(b'\n')) => {
            Ok(Some(StatusLine { version, status, reason: &bounded[START..stop], length: stop + 2 }))
        }
        (Some(b'\r'), None) | (None, _) if bounded.len() == LONGEST => Err(ServerFault::StatusLineTooLong),
        (Some(b'\r'), None) | (None, _) => Ok(None),
        (Some(b'\r'), Some(_)) => Err(Fault::BareCarriageReturn.into()),
        (Some(b'\n'), _) => Err(Fault::BareLineFeed.into()),
        (Some(_), _) => Err(ServerFault::ReasonInvalid),
    }
}

/// Reads the start of a status line that is not the usual `HTTP/1.1` with a valid status. Returns its version and
/// status, or its fault.
fn unusual_start(start: &[u8; 13]) -> Result<(Version, u16), ServerFault> {
    if line_feed(start).is_some() {
        return Err(ServerFault::StatusLineMalformed);
    }
    let version = version(&start[..8]).map_err(|fault| match fault {
        Fault::VersionUnsupported => ServerFault::VersionUnsupported,
        _ => ServerFault::VersionMalformed,
    })?;
    match start[8..] {
        [b' ', a, b, c, b' '] => Ok((version, status_code([a, b, c]).ok_or(ServerFault::StatusInvalid)?)),
        _ => Err(ServerFault::StatusLineMalformed),
    }
}

/// Reads status-code = 3DIGIT (RFC 9112 section 4), 100 to 999.
fn status_code(digits: [u8; 3]) -> Option<u16> {
    let [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] = digits else { return None };
    Some(digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0')))
}

// -------------------------------------------------------------------------------------------------------- requests

/// A rule that the caller's request breaks. No byte of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMisuse {
    /// A rule for a field or the length of a body, which requests and responses share.
    Message(Misuse),
    /// A chunked body in HTTP/1.0, which has no chunks: the length must be known.
    ChunkedOnHttp10,
    /// The method CONNECT, which is not supported.
    Connect,
    /// Content-Length or Transfer-Encoding. The sender writes them from [`Content`].
    FramingField,
    /// A Host that is not uri-host [":" port] (RFC 9110 section 7.2).
    HostInvalid,
    /// An HTTP/1.1 request without Host (RFC 9112 section 3.2).
    HostMissing,
    /// Two Host fields.
    HostRepeated,
    /// A method that is not a token.
    MethodInvalid,
    /// A target that is neither a path, nor an absolute http(s) URI, nor the `*` of OPTIONS, or that contains an
    /// invalid character.
    TargetInvalid,
    /// A trailer that would change framing or routing if it were obeyed (RFC 9110 section 6.5.1).
    TrailerForbidden,
    /// A trailer after a body that is not chunked.
    TrailerWithoutChunks,
}

impl ClientMisuse {
    /// All variants except [`Message`](Self::Message), so that a test can demand that each of them occurs.
    pub const ALL: &[ClientMisuse] = &[
        ClientMisuse::ChunkedOnHttp10,
        ClientMisuse::Connect,
        ClientMisuse::FramingField,
        ClientMisuse::HostInvalid,
        ClientMisuse::HostMissing,
        ClientMisuse::HostRepeated,
        ClientMisuse::MethodInvalid,
        ClientMisuse::TargetInvalid,
        ClientMisuse::TrailerForbidden,
        ClientMisuse::TrailerWithoutChunks,
    ];
}

impl From<Misuse> for ClientMisuse {
    fn from(misuse: Misuse) -> Self {
        Self::Message(misuse)
    }
}

impl fmt::Display for ClientMisuse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ClientMisuse::Message(Misuse::BodyTooLong) => "the request body is longer than its Content-Length",
            ClientMisuse::Message(Misuse::BodyTooShort) => "the request body is shorter than its Content-Length",
            ClientMisuse::Message(Misuse::HopByHop) => "this header belongs to the connection: leave it out",
            ClientMisuse::Message(misuse) => return misuse.fmt(out),
            ClientMisuse::ChunkedOnHttp10 => "HTTP/1.0 has no chunks: give the body's length",
            ClientMisuse::Connect => "CONNECT opens a tunnel, which is not supported",
            ClientMisuse::FramingField => "Content-Length and Transfer-Encoding follow from the body: leave them out",
            ClientMisuse::HostInvalid => "Host must be a host name with an optional port",
            ClientMisuse::HostMissing => "an HTTP/1.1 request needs a Host header",
            ClientMisuse::HostRepeated => "Host is given twice",
            ClientMisuse::MethodInvalid => "the method must be a token: letters, digits and !#$%&'*+-.^_`|~",
            ClientMisuse::TargetInvalid => "the target must be a path, an http or https URI, or the * of OPTIONS",
            ClientMisuse::TrailerForbidden => "a trailer must not say how the message is framed or routed",
            ClientMisuse::TrailerWithoutChunks => "only a chunked body has trailers",
        })
    }
}

impl std::error::Error for ClientMisuse {}

/// The framing of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No body and no field that describes one. A method that usually has a body should use `Length(0)` instead (RFC
    /// 9110 section 8.6).
    None,
    /// A body with this number of bytes.
    Length(u64),
    /// A body whose length is unknown until its end. HTTP/1.1 only.
    Chunked,
}

/// A checked request line and fields, which can be written any number of times.
#[derive(Clone, Debug)]
pub struct Draft {
    bytes: Vec<u8>,
    version: Version,
    has_host: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl Draft {
    /// Begins a request.
    ///
    /// # Errors
    /// [`ClientMisuse::MethodInvalid`], [`ClientMisuse::Connect`], [`ClientMisuse::TargetInvalid`].
    pub fn new(method: &[u8], target: &[u8], version: Version) -> Result<Self, ClientMisuse> {
        if !is_token(method) {
            return Err(ClientMisuse::MethodInvalid);
        }
        if method == b"CONNECT" {
            return Err(ClientMisuse::Connect);
        }
        if target_end(target, 0) != target.len() || Target::read(target, method).is_err() {
            return Err(ClientMisuse::TargetInvalid);
        }
        let version_text: &[u8] = match version {
            Version::Http10 => b" HTTP/1.0\r\n",
            Version::Http11 | Version::Http2 => b" HTTP/1.1\r\n",
        };
        Ok(Self {
            bytes: [method, b" ", target, version_text].concat(),
            version,
            has_host: false,
            close: false,
            keep_alive: false,
            expects_continue: false,
        })
    }

    /// Adds a field. `Connection: close` or `keep-alive` determines the field Connection that the sender writes. Like
    /// browsers, it writes `keep-alive` in HTTP/1.1 too.
    ///
    /// # Errors
    /// [`Misuse::NameInvalid`], [`Misuse::ValueInvalid`] and [`Misuse::HopByHop`] as a [`ClientMisuse::Message`];
    /// [`ClientMisuse::HostInvalid`], [`ClientMisuse::HostRepeated`], [`ClientMisuse::FramingField`]. The draft is
    /// unchanged then.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), ClientMisuse> {
        check_field(name, value)?;
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"host") {
            if self.has_host {
                return Err(ClientMisuse::HostRepeated);
            }
            if !is_host(value.trim_ascii()) {
                return Err(ClientMisuse::HostInvalid);
            }
            self.has_host = true;
        } else if is(b"content-length") || is(b"transfer-encoding") {
            return Err(ClientMisuse::FramingField);
        } else if is(b"connection") {
            let known = |wish: &[u8]| wish.eq_ignore_ascii_case(b"close") || wish.eq_ignore_ascii_case(b"keep-alive");
            if !list(value).all(known) {
                return Err(Misuse::HopByHop.into());
            }
            self.close |= list(value).any(|wish| wish.eq_ignore_ascii_case(b"close"));
            self.keep_alive |= list(value).any(|wish| wish.eq_ignore_ascii_case(b"keep-alive"));
            return Ok(());
        } else if is(b"keep-alive") || is(b"te") || is(b"upgrade") {
            return Err(Misuse::HopByHop.into());
        } else if is(b"expect") {
            self.expects_continue |= list(value).any(|member| member.eq_ignore_ascii_case(b"100-continue"));
        }
        push_field(name, value, &mut self.bytes);
        Ok(())
    }

    /// Returns true if the sender of the body should first wait for an interim response or for some time (RFC 9110
    /// section 10.1.1). Always false for HTTP/1.0, which has no such mechanism.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.expects_continue && self.version == Version::Http11
    }

    /// Returns true if the connection may be kept open after this request, if the server agrees.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        !self.close && (self.version == Version::Http11 || self.keep_alive)
    }
}

/// Writes one request's head and frames its body.
///
/// Call [`begin`](Self::begin) first; for each part [`open`](Self::open), send the bytes of the part, and
/// [`close`](Self::close); at last [`finish`](Self::finish).
#[derive(Debug)]
pub struct Sender {
    body: send::Body,
}

impl Sender {
    /// Writes the head to `out`.
    ///
    /// # Errors
    /// [`ClientMisuse::HostMissing`], [`ClientMisuse::ChunkedOnHttp10`]; nothing is written then.
    pub fn begin(draft: &Draft, content: Content, out: &mut Vec<u8>) -> Result<Self, ClientMisuse> {
        if draft.version == Version::Http11 && !draft.has_host {
            return Err(ClientMisuse::HostMissing);
        }
        if draft.version == Version::Http10 && content == Content::Chunked {
            return Err(ClientMisuse::ChunkedOnHttp10);
        }
        out.extend_from_slice(&draft.bytes);
        let body = match content {
            Content::None => send::Body::None,
            Content::Length(length) => {
                out.extend_from_slice(b"Content-Length: ");
                out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                out.extend_from_slice(b"\r\n");
                send::Body::Length(length)
            }
            Content::Chunked => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                send::Body::Chunked
            }
        };
        match (draft.version, draft.keeps_alive()) {
            (Version::Http11 | Version::Http2, false) => out.extend_from_slice(b"Connection: close\r\n"),
            // The traditional spelling: some servers recognise no other (cheroot 11).
            (Version::Http10, true) => out.extend_from_slice(b"Connection: Keep-Alive\r\n"),
            (Version::Http11, true) if draft.keep_alive => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (Version::Http11 | Version::Http2, true) | (Version::Http10, _) => {}
        }
        out.extend_from_slice(b"\r\n");
        Ok(Self { body })
    }

    /// Opens a part of `length` bytes: writes the framing before it. The caller must send these bytes next. Writes
    /// nothing for an empty part.
    ///
    /// # Errors
    /// [`Misuse::BodyTooLong`], also if there is no body. No byte of the part may be sent then.
    pub fn open(&mut self, length: u64, out: &mut Vec<u8>) -> Result<(), ClientMisuse> {
        let most = match self.body {
            send::Body::None => 0,
            send::Body::Length(left) => left,
            send::Body::Chunked | send::Body::Trailed(_) | send::Body::UntilClose => u64::MAX,
        };
        if length > most {
            return Err(Misuse::BodyTooLong.into());
        }
        self.body.open(length, out).1.map_err(ClientMisuse::from)
    }

    /// Writes the framing after the last opened part, of `length` bytes.
    pub fn close(&self, length: u64, out: &mut Vec<u8>) {
        self.body.close(length, out);
    }

    /// Ends the request, with `trailers` after a chunked body.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`], [`Misuse::NameInvalid`] and [`Misuse::ValueInvalid`] as a [`ClientMisuse::Message`];
    /// [`ClientMisuse::TrailerForbidden`], [`ClientMisuse::TrailerWithoutChunks`]. Nothing is written then, and the
    /// request is incomplete.
    pub fn finish(self, trailers: &[(&[u8], &[u8])], out: &mut Vec<u8>) -> Result<(), ClientMisuse> {
        if matches!(self.body, send::Body::Length(1..)) {
            return Err(Misuse::BodyTooShort.into());
        }
        if self.body != send::Body::Chunked {
            return if trailers.is_empty() { Ok(()) } else { Err(ClientMisuse::TrailerWithoutChunks) };
        }
        for (name, value) in trailers {
            check_field(name, value)?;
            if FORBIDDEN_TRAILERS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                return Err(ClientMisuse::TrailerForbidden);
            }
        }
        out.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            push_field(name, value, out);
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

fn check_field(name: &[u8], value: &[u8]) -> Result<(), Misuse> {
    if !is_token(name) {
        Err(Misuse::NameInvalid)
    } else if !is_value(value) {
        Err(Misuse::ValueInvalid)
    } else {
        Ok(())
    }
}

fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
