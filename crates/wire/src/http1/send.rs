//! The writing side of the server: heads, and bodies with their framing.

use crate::message::{Draft, FieldLines, Misuse, Page, Stamp, Version};

/// The response to an unencrypted request on a port that expects TLS. The connection closes after it.
pub const TLS_EXPECTED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 52\r\nConnection: close\r\n\r\nThis port expects TLS: use https:// in the address.\n";

/// The interim response that asks a waiting peer to send its body (RFC 9110 section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Writes an interim response with `fields`, such as `Link` (RFC 8297). It must not be sent to a peer of HTTP/1.0 (RFC
/// 9110 section 15.2).
pub fn write_early_hints(fields: &FieldLines, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n");
    out.extend_from_slice(&fields.bytes);
    out.extend_from_slice(b"\r\n");
}

/// Properties of a request that determine the framing of its response.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The version of the request.
    pub version: Version,
    /// True if the method was HEAD: the response has no body, whatever its fields say.
    pub is_head: bool,
    /// True if client and server allow the connection to stay open after this response.
    pub keep_alive: bool,
    /// True if the peer accepts trailers after the body.
    pub takes_trailers: bool,
}

/// The framing of a body that is being written, and the number of bytes that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// The number of bytes still missing.
    Length(u64),
    Chunked,
    /// Chunks, with trailers after them. Holds the number of bytes still missing if the application declared a length.
    Trailed(Option<u64>),
    /// A body without a length for HTTP/1.0: it ends when the connection closes.
    UntilClose,
    /// No body (HEAD, 204, 205 and 304): nothing is written, whatever the application yields.
    None,
}

impl Body {
    #[inline]
    pub(super) fn open(&mut self, length: u64, out: &mut Vec<u8>) -> (u64, Result<(), Misuse>) {
        match self {
            Body::None => (0, Ok(())),
            Body::UntilClose => (length, Ok(())),
            Body::Length(left) | Body::Trailed(Some(left)) if length > *left => (0, Err(Misuse::BodyTooLong)),
            Body::Length(left) => {
                *left -= length;
                (length, Ok(()))
            }
            // An empty chunk would end the body.
            Body::Chunked | Body::Trailed(_) if length == 0 => (0, Ok(())),
            Body::Chunked | Body::Trailed(_) => {
                if let Body::Trailed(Some(left)) = self {
                    *left -= length;
                }
                push_hex(length, out);
                out.extend_from_slice(b"\r\n");
                (length, Ok(()))
            }
        }
    }

    #[inline]
    pub(super) fn close(self, admitted: u64, out: &mut Vec<u8>) {
        if matches!(self, Body::Chunked | Body::Trailed(_)) && admitted > 0 {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Writes one response's head and frames its body.
///
/// Call [`begin`](Self::begin) first; for each part [`open`](Self::open), send the bytes that it admits, and
/// [`close`](Self::close); at last [`finish`](Self::finish). If a response ends before `finish`, the connection must be
/// closed, so that the peer sees that it was cut ([`needs_reset`](Self::needs_reset) tells how to close it).
#[derive(Debug)]
pub struct Sender {
    body: Body,
    keep_alive: bool,
    is_finished: bool,
    body_bytes: u64,
    /// The length of a part that exceeded the declared length.
    rejected_bytes: u64,
}

impl Sender {
    /// Writes the head to `out`. `length` is the length of the body, if the caller knows it; a declared Content-Length
    /// takes precedence.
    pub fn begin(draft: &Draft, request: Request, length: Option<u64>, stamp: &Stamp, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&draft.bytes);
        let trailer = draft.trailer.as_deref().filter(|_| takes_trailers(draft, request));
        // Trailers need the chunked coding, and a message has only one framing (RFC 9112 section 6.1).
        let (declared, bodiless) =
            if trailer.is_some() { (draft.content_length(), false) } else { declare(draft, request, length, out) };
        let body = match declared {
            _ if bodiless => Body::None,
            _ if draft.status() == 205 => Body::None,
            _ if trailer.is_some() => Body::Trailed(declared),
            Some(length) => Body::Length(length),
            None if request.version == Version::Http11 => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                Body::Chunked
            }
            None => Body::UntilClose,
        };
        if let Some(names) = trailer {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            if !names.is_empty() {
                for bytes in [b"Trailer: ", names, b"\r\n"] {
                    out.extend_from_slice(bytes);
                }
            }
        }
        if !draft.has_date {
            out.extend_from_slice(&stamp.date);
        }
        if !draft.has_server {
            out.extend_from_slice(&stamp.server);
        }
        if !draft.has_transport_security {
            out.extend_from_slice(&stamp.transport_security);
        }
        let keep_alive = request.keep_alive && !draft.close && body != Body::UntilClose;
        match (keep_alive, request.version) {
            (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
            (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (true, Version::Http11 | Version::Http2) => {}
        }
        out.extend_from_slice(b"\r\n");
        Self { body, keep_alive, is_finished: false, body_bytes: 0, rejected_bytes: 0 }
    }

    /// Returns a sender for a body that the carrying protocol delimits. Writes Content-Length to `out`, if there is
    /// one.
    pub(crate) fn unframed(draft: &Draft, request: Request, length: Option<u64>, out: &mut Vec<u8>) -> Self {
        let (sender, declared) = Self::of_stream(draft, request, length);
        write_length(declared, out);
        sender
    }

    /// Returns a sender for a body that the carrying protocol delimits, and the Content-Length that the caller has to
    /// put into the head, if any.
    pub(crate) fn of_stream(draft: &Draft, request: Request, length: Option<u64>) -> (Self, Option<u64>) {
        let (declared, bodiless) = declared(draft, request, length);
        let body = match declared {
            _ if bodiless || draft.status() == 205 => Body::None,
            Some(length) => Body::Length(length),
            None => Body::UntilClose,
        };
        let sender =
            Self { body, keep_alive: request.keep_alive, is_finished: false, body_bytes: 0, rejected_bytes: 0 };
        (sender, declared)
    }

    /// Opens a part of `length` bytes: writes the framing before it and returns how many of its bytes may be sent.
    ///
    /// Nothing may be sent if the response has no body, or if the part would exceed the declared length; in this case
    /// [`Misuse::BodyTooLong`] is returned too. Then the end of the response is missing on the wire and the peer sees
    /// that it was cut, unless the earlier parts had reached the declared length.
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

    /// Returns the number of body bytes that may still be written; `None` if no Content-Length limits them.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        if let Body::Length(left) = self.body { Some(left) } else { None }
    }

    /// Returns the number of body bytes that the application has offered so far, including those not admitted.
    #[must_use]
    pub fn offered_bytes(&self) -> u64 {
        self.body_bytes + self.rejected_bytes
    }

    /// Returns the number of body bytes admitted so far, without framing.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Writes the framing after a part. `admitted` is the result of `open`.
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
            Body::Trailed(None | Some(0)) => return self.finish_with(&FieldLines::default(), out),
            Body::Length(_) | Body::Trailed(_) => return Err(Misuse::BodyTooShort),
            Body::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
        }
        self.is_finished = true;
        Ok(())
    }

    /// Ends the response with trailers. They are left out if the peer does not accept them.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_with(&mut self, trailers: &FieldLines, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let Body::Trailed(None | Some(0)) = self.body else { return self.finish(out) };
        for bytes in [b"0\r\n", &trailers.bytes[..], b"\r\n"] {
            out.extend_from_slice(bytes);
        }
        self.is_finished = true;
        Ok(())
    }

    /// Returns true if the response is complete for the peer when nothing more is written.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_finished || matches!(self.body, Body::Length(0) | Body::None)
    }

    /// Returns true if the head announced that the connection stays open after this response.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Returns true if the response has no body on the wire: HEAD, 204, 205 and 304.
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.body == Body::None
    }

    /// Returns true if only a reset of the connection shows the peer that the response was cut. That is so if the body
    /// ends with the connection, or if all declared bytes were written and the application had more. An orderly close
    /// would look like a complete response.
    #[must_use]
    pub fn needs_reset(&self) -> bool {
        self.body == Body::UntilClose || self.rejected_bytes > 0 && self.body == Body::Length(0)
    }
}

/// Writes Content-Length, if any. Returns the length, and true if the response has no body whatever its fields say.
#[inline]
fn declare(draft: &Draft, request: Request, length: Option<u64>, out: &mut Vec<u8>) -> (Option<u64>, bool) {
    let (declared, bodiless) = declared(draft, request, length);
    write_length(declared, out);
    (declared, bodiless)
}

#[inline]
fn write_length(declared: Option<u64>, out: &mut Vec<u8>) {
    if let Some(length) = declared {
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the length that a response declares, and true if the response has no body whatever its fields say.
///
/// Responses to HEAD, 204 and 304 have no body. 204 has no Content-Length either; that of 304 and HEAD is the length
/// that GET would have got, so it is not inferred for them. 205 has an empty body and declares it (RFC 9110 sections
/// 9.3.2, 15.3.5, 15.3.6 and 15.4.5, RFC 9112 section 6.3).
#[inline]
fn declared(draft: &Draft, request: Request, length: Option<u64>) -> (Option<u64>, bool) {
    let bodiless = has_no_body(draft.status(), request);
    let declared = match draft.status() {
        204 => None,
        205 => Some(0),
        _ => draft.content_length().or(length.filter(|_| !bodiless)),
    };
    (declared, bodiless)
}

fn push_hex(number: u64, out: &mut Vec<u8>) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize]);
    }
}

/// Returns true if the response can have trailers and the peer accepts them.
fn takes_trailers(draft: &Draft, request: Request) -> bool {
    request.takes_trailers
        && request.version == Version::Http11
        && draft.status() != 205
        && !has_no_body(draft.status(), request)
}

/// Returns true if a response has no body, whatever its fields say.
fn has_no_body(status: u16, request: Request) -> bool {
    request.is_head || matches!(status, 204 | 304)
}

/// Checks that `length` is the length that `draft` declares, if it declares one and the response can have a body.
///
/// # Errors
/// [`Misuse::BodyTooShort`], [`Misuse::BodyTooLong`].
pub fn check_length(draft: &Draft, request: Request, length: u64) -> Result<(), Misuse> {
    match draft.content_length() {
        Some(declared) if declared != length && draft.status() != 205 && !has_no_body(draft.status(), request) => {
            Err(if declared < length { Misuse::BodyTooLong } else { Misuse::BodyTooShort })
        }
        _ => Ok(()),
    }
}

/// Writes a complete response of the server itself.
pub fn write_page(page: &Page<'_>, request: Request, stamp: &Stamp, out: &mut Vec<u8>) -> Sender {
    let mut sender = Sender::begin(&page.draft(), request, None, stamp, out);
    if sender.open(page.body.len() as u64, out).0 > 0 {
        out.extend_from_slice(page.body.as_bytes());
    }
    sender
}

/// Returns a placeholder for a request that could not be read, or after whose response the connection closes.
/// `is_head`: the method was HEAD, so the response has no body.
#[must_use]
pub fn close_after(is_head: bool) -> Request {
    Request { version: Version::Http11, is_head, keep_alive: false, takes_trailers: false }
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
}
