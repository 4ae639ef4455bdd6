//! The server role's writing half: checks the application's response and writes it with its framing.

use super::grammar::{decimal, is_token, is_value, list};
use super::receive::Version;
use std::fmt;
use std::time::{Duration, SystemTime};

/// The interim response that lets a waiting peer send its body (RFC 9110 section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What the application did that no response may say. Nothing of it reaches the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// More body than Content-Length declared.
    BodyTooLong,
    /// Less body than Content-Length declared.
    BodyTooShort,
    /// Content-Length is not a number.
    ContentLengthInvalid,
    /// Two Content-Length fields.
    ContentLengthRepeated,
    /// A field that belongs to the connection, not to the application (RFC 9110 section 7.6.1, PEP 3333).
    HopByHop,
    /// A field name that is not a token.
    NameInvalid,
    /// A reason phrase with a control character.
    ReasonInvalid,
    /// 1xx: the server's to send.
    StatusInformational,
    /// Not three digits, a space and a reason phrase.
    StatusMalformed,
    /// A field value with a control character: CR and LF would begin another field, or another response.
    ValueInvalid,
}

impl fmt::Display for Misuse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Misuse::BodyTooLong => "the response body is longer than its Content-Length",
            Misuse::BodyTooShort => "the response body is shorter than its Content-Length",
            Misuse::ContentLengthInvalid => "Content-Length must be a decimal number",
            Misuse::ContentLengthRepeated => "Content-Length is given twice",
            Misuse::HopByHop => {
                "this header belongs to the connection, which is the server's: leave it out (PEP 3333, 'Other HTTP \
                 Features')"
            }
            Misuse::NameInvalid => "a header name must be a token: letters, digits and !#$%&'*+-.^_`|~",
            Misuse::ReasonInvalid => "the reason phrase must not contain control characters",
            Misuse::StatusInformational => "a final status is expected; the server sends 1xx itself",
            Misuse::StatusMalformed => "the status must be like '200 OK': three digits, a space and a reason",
            Misuse::ValueInvalid => "a header value must not contain control characters such as CR, LF or NUL",
        })
    }
}

/// A status line and fields, checked and ready to be written, kept back until the body begins so that
/// they can still be replaced.
#[derive(Debug, Default)]
pub struct Draft {
    bytes: Vec<u8>,
    status: u16,
    content_length: Option<u64>,
    has_date: bool,
    has_server: bool,
    close: bool,
}

impl Draft {
    /// Takes everything back.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.status = 0;
        self.content_length = None;
        self.has_date = false;
        self.has_server = false;
        self.close = false;
    }

    /// Whether there is no status yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.status == 0
    }

    /// The status code; 0 if there is none yet.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// What Content-Length was declared to be.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The field lines so far, for a log.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.bytes.split(|&b| b == b'\n').skip(1).filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// Begins anew with the status line of a response that the server makes by itself.
    ///
    /// # Errors
    /// As [`start`](Self::start), for a number that is no status.
    pub fn start_refusal(&mut self, status: u16) -> Result<(), Misuse> {
        self.start(format!("{status} {}", reason(status)).as_bytes())
    }

    /// Begins anew with a status such as `200 OK`.
    ///
    /// # Errors
    /// [`Misuse::StatusMalformed`], [`Misuse::StatusInformational`], [`Misuse::ReasonInvalid`].
    pub fn start(&mut self, status: &[u8]) -> Result<(), Misuse> {
        self.clear();
        let [hundreds @ b'0'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b' ', reason @ ..] = status else {
            return Err(Misuse::StatusMalformed);
        };
        if !is_value(reason) {
            return Err(Misuse::ReasonInvalid);
        }
        let code = [hundreds, tens, ones].iter().fold(0, |code, &&digit| code * 10 + u16::from(digit - b'0'));
        match code {
            0..100 => return Err(Misuse::StatusMalformed),
            100..200 => return Err(Misuse::StatusInformational),
            _ => self.status = code,
        }
        self.bytes.extend_from_slice(b"HTTP/1.1 ");
        self.bytes.extend_from_slice(status);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Adds a field. `Connection` is taken as a wish: `close` is fulfilled, `keep-alive` is the default anyway.
    ///
    /// # Errors
    /// Any [`Misuse`] of a field; the draft is then to be started anew.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Misuse> {
        if !is_token(name) {
            return Err(Misuse::NameInvalid);
        }
        if !is_value(value) {
            return Err(Misuse::ValueInvalid);
        }
        match name.len() {
            2 | 4 | 6..=8 | 10 | 14 | 16..=19 if !self.note(name, value)? => return Ok(()),
            _ => {}
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Looks at a field that could be of interest to the server; whether it is to be written as it is.
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Misuse> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"content-length") {
            let length = decimal(value.trim_ascii()).ok_or(Misuse::ContentLengthInvalid)?;
            if self.content_length.replace(length).is_some() {
                return Err(Misuse::ContentLengthRepeated);
            }
            // The sender writes it, or leaves it out where the status has none.
            return Ok(false);
        }
        if is(b"connection") {
            for wish in list(value) {
                if wish.eq_ignore_ascii_case(b"close") {
                    self.close = true;
                } else if !wish.eq_ignore_ascii_case(b"keep-alive") {
                    return Err(Misuse::HopByHop);
                }
            }
            return Ok(false);
        }
        let hop_by_hop: [&[u8]; 7] = [
            b"keep-alive",
            b"proxy-authenticate",
            b"proxy-authorization",
            b"te",
            b"trailer",
            b"transfer-encoding",
            b"upgrade",
        ];
        if hop_by_hop.iter().any(|known| is(known)) || is(b"trailers") {
            return Err(Misuse::HopByHop);
        }
        self.has_date |= is(b"date");
        self.has_server |= is(b"server");
        Ok(true)
    }
}

/// Properties of a request that determine the framing of its response.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The request's version.
    pub version: Version,
    /// Whether its method was HEAD: the response has no body, whatever its fields say.
    pub is_head: bool,
    /// Whether request and server allow to keep the connection open after this response.
    pub keep_alive: bool,
}

/// The fields that are the same for every response of a second.
#[derive(Debug)]
pub struct Stamp {
    /// `Date: …` with its CRLF.
    date: Vec<u8>,
    /// `Server: …` with its CRLF, or nothing.
    server: Vec<u8>,
}

impl Stamp {
    /// A stamp that names the server; an empty `server` leaves the field out.
    ///
    /// # Errors
    /// [`Misuse::ValueInvalid`] if `server` is no field value.
    pub fn new(server: &str, unix_seconds: u64) -> Result<Self, Misuse> {
        if !is_value(server.as_bytes()) {
            return Err(Misuse::ValueInvalid);
        }
        let server = if server.is_empty() { Vec::new() } else { format!("Server: {server}\r\n").into_bytes() };
        let mut stamp = Self { date: Vec::new(), server };
        stamp.set_time(unix_seconds);
        Ok(stamp)
    }

    /// Sets the Date (RFC 9110 section 6.6.1).
    pub fn set_time(&mut self, unix_seconds: u64) {
        let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_seconds));
        self.date = format!("Date: {date}\r\n").into_bytes();
    }
}

/// The framing of a body while it is written, and what is still missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Bytes still missing.
    Length(u64),
    Chunked,
    /// HTTP/1.0 without a length: the body ends with the connection.
    UntilClose,
    /// HEAD, 204, 205 and 304: nothing is written, whatever the application yields.
    None,
}

impl Body {
    #[inline]
    pub(super) fn open(&mut self, length: u64, out: &mut Vec<u8>) -> (u64, Result<(), Misuse>) {
        match self {
            Body::None => (0, Ok(())),
            Body::UntilClose => (length, Ok(())),
            Body::Length(left) if length > *left => (0, Err(Misuse::BodyTooLong)),
            Body::Length(left) => {
                *left -= length;
                (length, Ok(()))
            }
            // An empty chunk would end the body.
            Body::Chunked if length == 0 => (0, Ok(())),
            Body::Chunked => {
                push_hex(length, out);
                out.extend_from_slice(b"\r\n");
                (length, Ok(()))
            }
        }
    }

    #[inline]
    pub(super) fn close(self, admitted: u64, out: &mut Vec<u8>) {
        if self == Body::Chunked && admitted > 0 {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Writes one response's head and frames its body.
///
/// The order is [`begin`](Self::begin), then for each part [`open`](Self::open), the bytes that it admits, and
/// [`close`](Self::close), then [`finish`](Self::finish). If a response ends before `finish`, the connection must be
/// closed so that the peer sees the cut ([`needs_reset`](Self::needs_reset) says how).
#[derive(Debug)]
pub struct Sender {
    body: Body,
    keep_alive: bool,
    is_finished: bool,
    body_bytes: u64,
    /// Bytes admitted of a part that was longer than the rest of the declared length.
    rejected_bytes: u64,
}

impl Sender {
    /// Writes the head to `out`. `length` is that of the body, if it is known although the application did not declare
    /// it.
    pub fn begin(draft: &Draft, request: Request, length: Option<u64>, stamp: &Stamp, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&draft.bytes);
        // RFC 9110 sections 15.3.5, 15.4.5 and 9.3.2, RFC 9112 section 6.3: these have no body. 204 has no
        // Content-Length either; 304's and HEAD's say what GET would have got, so none is inferred for them. 205's
        // body is empty and says so (RFC 9110 section 15.3.6).
        let bodiless = has_no_body(draft.status, request);
        let declared = match draft.status {
            204 => None,
            205 => Some(0),
            _ => draft.content_length.or(length.filter(|_| !bodiless)),
        };
        if let Some(length) = declared {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        let body = match declared {
            _ if bodiless => Body::None,
            _ if draft.status == 205 => Body::None,
            Some(length) => Body::Length(length),
            None if request.version == Version::Http11 => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                Body::Chunked
            }
            None => Body::UntilClose,
        };
        if !draft.has_date {
            out.extend_from_slice(&stamp.date);
        }
        if !draft.has_server {
            out.extend_from_slice(&stamp.server);
        }
        let keep_alive = request.keep_alive && !draft.close && body != Body::UntilClose;
        match (keep_alive, request.version) {
            (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
            (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (true, Version::Http11) => {}
        }
        out.extend_from_slice(b"\r\n");
        Self { body, keep_alive, is_finished: false, body_bytes: 0, rejected_bytes: 0 }
    }

    /// Opens a part of `length` bytes: writes the framing before it and returns how many of its bytes may be sent.
    ///
    /// None may be sent if the response has no body. If the part would exceed the declared length, none may be sent
    /// either, and [`Misuse::BodyTooLong`] is returned beside the number. The response then lacks its end on the wire,
    /// and the peer sees that it was cut, unless the part before ended at the declared length.
    pub fn open(&mut self, length: u64, out: &mut Vec<u8>) -> (u64, Result<(), Misuse>) {
        if self.rejected_bytes > 0 {
            return (0, Err(Misuse::BodyTooLong));
        }
        let (admitted, verdict) = self.body.open(length, out);
        self.body_bytes += admitted;
        if verdict.is_err() {
            self.rejected_bytes = length;
        }
        (admitted, verdict)
    }

    /// Bytes that may still be written, if their number is known.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        if let Body::Length(left) = self.body { Some(left) } else { None }
    }

    /// Bytes that the application has offered as the body so far, including those not admitted.
    #[must_use]
    pub fn offered_bytes(&self) -> u64 {
        self.body_bytes + self.rejected_bytes
    }

    /// Body bytes admitted so far, without framing.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Closes the part that `open` admitted as `admitted` bytes.
    pub fn close(&self, admitted: u64, out: &mut Vec<u8>) {
        self.body.close(admitted, out);
    }

    /// Ends the response.
    ///
    /// # Errors
    /// [`Misuse::BodyTooShort`]: the peer waits for the rest, so the connection must be cut.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Misuse> {
        match self.body {
            Body::Length(0) | Body::None | Body::UntilClose => {}
            Body::Length(_) => return Err(Misuse::BodyTooShort),
            Body::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
        }
        self.is_finished = true;
        Ok(())
    }

    /// Whether the peer has a whole response if nothing more is written.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_finished || matches!(self.body, Body::Length(0) | Body::None)
    }

    /// Whether the connection is kept open after this response, as the head says.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Whether the response has no body on the wire: HEAD, 204, 205 and 304.
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.body == Body::None
    }

    /// Whether a cut is visible only as a reset: if the body ends with the connection, or if all declared bytes were
    /// written and there were more. An orderly end would look like the end of a whole response.
    #[must_use]
    pub fn needs_reset(&self) -> bool {
        self.body == Body::UntilClose || self.rejected_bytes > 0 && self.body == Body::Length(0)
    }
}

fn push_hex(number: u64, out: &mut Vec<u8>) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize]);
    }
}

/// Whether a response with this status has no body, whatever its fields say.
fn has_no_body(status: u16, request: Request) -> bool {
    request.is_head || matches!(status, 204 | 304)
}

/// Whether a body of `length` bytes is the one that `draft` declares, if it declares one.
///
/// # Errors
/// [`Misuse::BodyTooShort`], [`Misuse::BodyTooLong`].
pub fn check_length(draft: &Draft, request: Request, length: u64) -> Result<(), Misuse> {
    match draft.content_length() {
        Some(declared) if declared != length && draft.status != 205 && !has_no_body(draft.status, request) => {
            Err(if declared < length { Misuse::BodyTooLong } else { Misuse::BodyTooShort })
        }
        _ => Ok(()),
    }
}

/// Writes an error page in place of the application's response, which failed. The connection is kept open if the
/// request allows it.
pub fn fail(status: u16, explanation: &str, request: Request, stamp: &Stamp, out: &mut Vec<u8>) -> Sender {
    let page = format!("{status} {}\n{explanation}\n", reason(status));
    let fields: [(&[u8], &[u8]); 1] = [(b"Content-Type", b"text/plain; charset=utf-8")];
    say(status, &fields, None, page.as_bytes(), request, stamp, out)
}

/// Writes an error page for a refused request, with `status` and one sentence why, and closes the connection. The
/// sentence must not repeat anything that the peer sent. `retry_after`: seconds after which trying again may help (RFC
/// 9110 section 10.2.3).
pub fn refuse(
    status: u16,
    explanation: &str,
    retry_after: Option<u64>,
    is_head: bool,
    stamp: &Stamp,
    out: &mut Vec<u8>,
) -> Sender {
    let page = format!("{status} {}\n{explanation}\n", reason(status));
    let fields: [(&[u8], &[u8]); 1] = [(b"Content-Type", b"text/plain; charset=utf-8")];
    say(status, &fields, retry_after, page.as_bytes(), closing(is_head), stamp, out)
}

/// Writes a response with JSON about the server itself, which must not be cached, and closes the connection.
pub fn inform(
    status: u16,
    json: &str,
    retry_after: Option<u64>,
    is_head: bool,
    stamp: &Stamp,
    out: &mut Vec<u8>,
) -> Sender {
    let fields: [(&[u8], &[u8]); 2] = [(b"Content-Type", b"application/json"), (b"Cache-Control", b"no-store")];
    say(status, &fields, retry_after, json.as_bytes(), closing(is_head), stamp, out)
}

/// A request whose connection closes after the response.
fn closing(is_head: bool) -> Request {
    Request { version: Version::Http11, is_head, keep_alive: false }
}

fn say(
    status: u16,
    fields: &[(&[u8], &[u8])],
    retry_after: Option<u64>,
    body: &[u8],
    request: Request,
    stamp: &Stamp,
    out: &mut Vec<u8>,
) -> Sender {
    let mut draft = Draft::default();
    let written = draft
        .start_refusal(status)
        .and_then(|()| fields.iter().try_for_each(|(name, value)| draft.field(name, value)))
        .and_then(|()| draft.field(b"Content-Length", body.len().to_string().as_bytes()))
        .and_then(|()| match retry_after {
            Some(seconds) => draft.field(b"Retry-After", seconds.to_string().as_bytes()),
            None => Ok(()),
        });
    debug_assert_eq!(written, Ok(()), "the server's own head is well-formed");
    let mut sender = Sender::begin(&draft, request, None, stamp, out);
    if sender.open(body.len() as u64, out).0 > 0 {
        out.extend_from_slice(body);
    }
    sender
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_has_no_leading_zeros() {
        for (number, text) in
            [(0, "0"), (1, "1"), (15, "f"), (16, "10"), (5000, "1388"), (u64::MAX, "ffffffffffffffff")]
        {
            let mut out = Vec::new();
            push_hex(number, &mut out);
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn every_status_that_we_answer_with_has_its_phrase() {
        for fault in super::super::Fault::ALL {
            assert_ne!(reason(fault.status()), "Error", "{fault:?}");
        }
    }
}
