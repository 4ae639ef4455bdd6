//! The head of a response as the application gives it, checked, and the fields that the server adds.

use crate::grammar::{decimal, is_token, is_value, list};
use std::fmt;
use std::time::{Duration, SystemTime};

/// A rule that the application's response breaks. No byte of what broke the rule is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The body is longer than its Content-Length.
    BodyTooLong,
    /// The body is shorter than its Content-Length.
    BodyTooShort,
    /// Content-Length is not a number.
    ContentLengthInvalid,
    /// Two Content-Length fields.
    ContentLengthRepeated,
    /// A field that only the server may set, because it controls the connection (RFC 9110 section 7.6.1, PEP 3333).
    HopByHop,
    /// A field name that is not a token.
    NameInvalid,
    /// A reason phrase with a control character.
    ReasonInvalid,
    /// A status 1xx. Only the server sends interim responses.
    StatusInformational,
    /// The status is not three digits, a space and a reason phrase.
    StatusMalformed,
    /// A trailer that is allowed only in the head (RFC 9110 section 6.5.1).
    TrailerForbidden,
    /// A field value with a control character. CR and LF would start another field, or another response.
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
            Misuse::TrailerForbidden => {
                "this header is of no use behind the body: send it with the status (RFC 9110 section 6.5.1)"
            }
            Misuse::ValueInvalid => "a header value must not contain control characters such as CR, LF or NUL",
        })
    }
}

/// The checked status line and fields of a response. They are held back until the body begins, so that they can still
/// be replaced.
#[derive(Debug, Default)]
pub struct Draft {
    /// The head in the format of HTTP/1, the protocol used most: a line with `HTTP/1.1`, the status and the reason
    /// phrase, and a line for each field. Other protocols write [`status`](Self::status) and [`fields`](Self::fields)
    /// in their own format.
    pub(crate) bytes: Vec<u8>,
    status: u16,
    content_length: Option<u64>,
    pub(crate) has_date: bool,
    pub(crate) has_server: bool,
    pub(crate) has_transport_security: bool,
    /// True if the application asks to close the connection. Ignored by protocols that multiplex responses.
    pub(crate) close: bool,
    /// The value of `Trailer`, which may be empty; `None` if no trailers follow the body.
    pub(crate) trailer: Option<Vec<u8>>,
}

impl Clone for Draft {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.clone_from(self);
        clone
    }

    /// Allocates nothing if the buffers are large enough for `other`.
    fn clone_from(&mut self, other: &Self) {
        let Self { bytes, status, content_length, has_date, has_server, has_transport_security, close, trailer } =
            other;
        self.bytes.clone_from(bytes);
        self.trailer.clone_from(trailer);
        (self.status, self.content_length) = (*status, *content_length);
        (self.has_date, self.has_server, self.close) = (*has_date, *has_server, *close);
        self.has_transport_security = *has_transport_security;
    }
}

impl Draft {
    /// Removes the status and all fields.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.status = 0;
        self.content_length = None;
        self.has_date = false;
        self.has_server = false;
        self.has_transport_security = false;
        self.close = false;
        self.trailer = None;
    }

    /// Declares that trailers follow the body; the head may announce them with the field `Trailer`. Call this after
    /// `start`. If the client does not accept trailers, neither `Trailer` nor the trailers are written.
    pub fn expect_trailers(&mut self) {
        self.trailer = Some(Vec::new());
    }

    /// Returns true if there is no status yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.status == 0
    }

    /// Returns the length of the status line and the fields so far, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the status code; 0 if there is none yet.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the declared Content-Length; `None` if there is none.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Removes the declared Content-Length.
    pub(crate) fn forget_length(&mut self) {
        self.content_length = None;
    }

    /// Returns the names and values of the fields so far, without Content-Length, Connection and an announced Trailer.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.bytes.split(|&b| b == b'\n').skip(1).filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// Starts over with the status line of a response that the server generates itself.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start), if `status` is not the code of a final response.
    pub fn start_refusal(&mut self, status: u16) -> Result<(), Misuse> {
        self.start(format!("{status} {}", reason(status)).as_bytes())
    }

    /// Starts over with a status code and its registered reason phrase; other codes have an empty one (RFC 9112 section
    /// 4).
    ///
    /// # Errors
    /// [`Misuse::StatusMalformed`], [`Misuse::StatusInformational`].
    pub fn start_code(&mut self, status: u16) -> Result<(), Misuse> {
        match status {
            // The most frequent status.
            200 => self.start(b"200 OK"),
            100..=999 => self.start(format!("{status} {}", phrase(status).unwrap_or_default()).as_bytes()),
            _ => Err(Misuse::StatusMalformed),
        }
    }

    /// Starts over with status 101 for the access log. The new protocol writes the head of an upgrade itself.
    pub fn start_upgrade(&mut self) {
        self.clear();
        self.status = 101;
    }

    /// Starts over with a status such as `200 OK`.
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
        let digit = |byte: &u8| u16::from(byte - b'0');
        let code = digit(hundreds) * 100 + digit(tens) * 10 + digit(ones);
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

    /// Adds a field. `Connection` is a request to the server: it obeys `close`, and `keep-alive` is the default anyway.
    ///
    /// # Errors
    /// Any [`Misuse`] of a field. Then the draft must be started over. Only after [`Misuse::HopByHop`], the caller may
    /// also continue without the field.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Misuse> {
        if !is_token(name) {
            return Err(Misuse::NameInvalid);
        }
        if !is_value(value) {
            return Err(Misuse::ValueInvalid);
        }
        match name.len() {
            2 | 4 | 6..=8 | 10 | 14 | 16..=19 | 25 if !self.note(name, value)? => return Ok(()),
            _ => {}
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Evaluates a field that may concern the server. Returns true if the field is to be written as the application
    /// gave it.
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Misuse> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        // Most applications use this spelling, and an exact comparison is cheaper.
        if name == b"Content-Length" || is(b"content-length") {
            let length = decimal(value.trim_ascii()).ok_or(Misuse::ContentLengthInvalid)?;
            if self.content_length.replace(length).is_some() {
                return Err(Misuse::ContentLengthRepeated);
            }
            // The sender writes Content-Length, or omits it if the status does not allow it.
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
        if let Some(announced) = &mut self.trailer
            && (is(b"trailer") || is(b"trailers"))
        {
            if !announced.is_empty() {
                announced.extend_from_slice(b", ");
            }
            announced.extend_from_slice(value);
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
        self.has_transport_security |= is(b"strict-transport-security");
        Ok(true)
    }
}

/// The fields that are equal in all responses of one second.
#[derive(Debug)]
pub struct Stamp {
    /// `Date: …` with its CRLF.
    pub(crate) date: Vec<u8>,
    /// `Server: …` with its CRLF, or nothing.
    pub(crate) server: Vec<u8>,
    /// `Strict-Transport-Security: …` with its CRLF, or nothing.
    pub(crate) transport_security: Vec<u8>,
}

impl Stamp {
    /// Creates a stamp. `server` is the value of the field Server; if it is empty, the field is left out.
    ///
    /// # Errors
    /// [`Misuse::ValueInvalid`] if `server` is no field value.
    pub fn new(server: &str, unix_seconds: u64) -> Result<Self, Misuse> {
        if !is_value(server.as_bytes()) {
            return Err(Misuse::ValueInvalid);
        }
        let server = if server.is_empty() { Vec::new() } else { format!("Server: {server}\r\n").into_bytes() };
        let mut stamp = Self { date: Vec::new(), server, transport_security: Vec::new() };
        stamp.set_time(unix_seconds);
        Ok(stamp)
    }

    /// Adds Strict-Transport-Security: browsers then use only https for this host during `seconds` (RFC 6797). Call
    /// this only for the stamp of encrypted connections.
    pub fn demand_transport_security(&mut self, seconds: u64, with_subdomains: bool) {
        let more = if with_subdomains { "; includeSubDomains" } else { "" };
        self.transport_security = format!("Strict-Transport-Security: max-age={seconds}{more}\r\n").into_bytes();
    }

    /// Sets the Date (RFC 9110 section 6.6.1).
    pub fn set_time(&mut self, unix_seconds: u64) {
        let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_seconds));
        self.date = format!("Date: {date}\r\n").into_bytes();
    }
}

/// A complete response of the server itself: a refusal, an error, or a report on its own state.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The status code.
    pub status: u16,
    /// The value of Content-Type.
    pub content_type: &'a str,
    /// True if caches must not store it.
    pub is_fleeting: bool,
    /// Seconds after which trying again may help (RFC 9110 section 10.2.3).
    pub retry_after: Option<u64>,
    /// The body.
    pub body: &'a str,
}

impl<'a> Page<'a> {
    /// Returns the body of a page for people: the status and one sentence of explanation. The sentence must not repeat
    /// anything that the peer sent.
    #[must_use]
    pub fn text(status: u16, explanation: &str) -> String {
        format!("{status} {}\n{explanation}\n", reason(status))
    }

    /// Creates an error page. `text` is from [`text`](Self::text).
    #[must_use]
    pub fn error(status: u16, text: &'a str, retry_after: Option<u64>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", is_fleeting: false, retry_after, body: text }
    }

    /// Creates a report of the server about itself, as JSON that caches must not store.
    #[must_use]
    pub fn status_report(status: u16, json: &'a str, retry_after: Option<u64>) -> Self {
        Self { status, content_type: "application/json", is_fleeting: true, retry_after, body: json }
    }

    /// Returns the head of the response.
    #[must_use]
    pub fn draft(&self) -> Draft {
        let mut draft = Draft::default();
        let written = draft
            .start_refusal(self.status)
            .and_then(|()| draft.field(b"Content-Type", self.content_type.as_bytes()))
            .and_then(|()| if self.is_fleeting { draft.field(b"Cache-Control", b"no-store") } else { Ok(()) })
            .and_then(|()| draft.field(b"Content-Length", self.body.len().to_string().as_bytes()))
            .and_then(|()| match self.retry_after {
                Some(seconds) => draft.field(b"Retry-After", seconds.to_string().as_bytes()),
                None => Ok(()),
            });
        debug_assert_eq!(written, Ok(()), "the server's own head is well-formed");
        draft
    }
}

/// Returns the registered reason phrase of a status (RFC 9110 section 16.2.1); `None` for an unregistered status.
fn phrase(status: u16) -> Option<&'static str> {
    Some(match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a Teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => return None,
    })
}

/// Returns the reason phrase for a response that the server generates.
fn reason(status: u16) -> &'static str {
    phrase(status).unwrap_or("Error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_code_gets_its_registered_phrase_or_none() {
        let mut draft = Draft::default();
        for (status, line) in [(200, "200 OK"), (418, "418 I'm a Teapot"), (299, "299 "), (999, "999 ")] {
            assert_eq!(draft.start_code(status), Ok(()));
            assert_eq!((draft.status(), &draft.bytes[..]), (status, format!("HTTP/1.1 {line}\r\n").as_bytes()));
        }
        for status in [0, 99, 1000, u16::MAX] {
            assert_eq!(draft.start_code(status), Err(Misuse::StatusMalformed), "{status}");
        }
        assert_eq!(draft.start_code(100), Err(Misuse::StatusInformational));
        assert_eq!(draft.start_code(199), Err(Misuse::StatusInformational));
    }

    #[test]
    fn every_status_that_we_answer_with_has_its_phrase() {
        for fault in crate::message::Fault::ALL {
            assert_ne!(reason(fault.status()), "Error", "{fault:?}");
        }
    }
}
