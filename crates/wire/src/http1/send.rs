//! The server role's writing half: writes heads, and bodies with their framing.

use crate::message::{Draft, FieldLines, Misuse, Page, Stamp, Version};

/// The answer to a request in clear on a port that expects TLS. It is the last one of the connection.
pub const TLS_EXPECTED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 52\r\nConnection: close\r\n\r\nThis port expects TLS: use https:// in the address.\n";

/// The interim response that lets a waiting peer send its body (RFC 9110 section 15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Writes an interim response with `fields`, such as `Link` (RFC 8297). Only a peer of HTTP/1.1 may get one
/// (RFC 9110 section 15.2).
pub fn write_early_hints(fields: &FieldLines, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n");
    out.extend_from_slice(&fields.bytes);
    out.extend_from_slice(b"\r\n");
}

/// Properties of a request that determine the framing of its response.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The request's version.
    pub version: Version,
    /// True if its method was HEAD: the response has no body, whatever its fields say.
    pub is_head: bool,
    /// True if request and server allow to keep the connection open after this response.
    pub keep_alive: bool,
    /// True if the peer takes trailers behind the body.
    pub takes_trailers: bool,
}

/// The framing of a body while it is written, and what is still missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Bytes still missing.
    Length(u64),
    Chunked,
    /// The same, with trailers behind it, and so many bytes still missing if the application has declared a length.
    Trailed(Option<u64>),
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
        let trailer = draft.trailer.as_deref().filter(|_| takes_trailers(draft, request));
        // Trailers need chunks, and a message has one framing (RFC 9112 section 6.1).
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

    /// Writes Content-Length to `out`, if there is one, for a body without framing of its own: the protocol that
    /// carries it delimits it.
    pub(crate) fn unframed(draft: &Draft, request: Request, length: Option<u64>, out: &mut Vec<u8>) -> Self {
        let (sender, declared) = Self::of_stream(draft, request, length);
        write_length(declared, out);
        sender
    }

    /// Returns a sender for a body that its protocol delimits and whose head it writes, and the Content-Length that the
    /// head has, if any.
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

    /// Returns the number of bytes that may still be written, if it is known.
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
            Body::Trailed(None | Some(0)) => return self.finish_with(&FieldLines::default(), out),
            Body::Length(_) | Body::Trailed(_) => return Err(Misuse::BodyTooShort),
            Body::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
        }
        self.is_finished = true;
        Ok(())
    }

    /// Ends the response with trailers, which are left out where its peer takes none.
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

    /// Returns true if the peer has a whole response if nothing more is written.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_finished || matches!(self.body, Body::Length(0) | Body::None)
    }

    /// Returns true if the connection is kept open after this response, as the head says.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Returns true if the response has no body on the wire: HEAD, 204, 205 and 304.
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.body == Body::None
    }

    /// Returns true if a cut is visible only as a reset: if the body ends with the connection, or if all declared bytes
    /// were written and there were more. An orderly end would look like the end of a whole response.
    #[must_use]
    pub fn needs_reset(&self) -> bool {
        self.body == Body::UntilClose || self.rejected_bytes > 0 && self.body == Body::Length(0)
    }
}

/// Writes the length that a response declares. Returns it, and whether the response has no body whatever it says.
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

/// Returns the length that a response declares, and whether the response has no body whatever it says.
///
/// RFC 9110 sections 15.3.5, 15.4.5 and 9.3.2, RFC 9112 section 6.3: HEAD, 204 and 304 have no body. 204 has no
/// Content-Length either; 304's and HEAD's say what GET would have got, so none is inferred for them. 205's body is
/// empty and says so (RFC 9110 section 15.3.6).
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

/// Returns true if trailers can follow the body of a response, and its peer takes them.
fn takes_trailers(draft: &Draft, request: Request) -> bool {
    request.takes_trailers
        && request.version == Version::Http11
        && draft.status() != 205
        && !has_no_body(draft.status(), request)
}

/// Returns true if a response with this status has no body, whatever its fields say.
fn has_no_body(status: u16, request: Request) -> bool {
    request.is_head || matches!(status, 204 | 304)
}

/// Returns whether a body of `length` bytes is the one that `draft` declares, if it declares one.
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

/// Writes a whole response of the server's own.
pub fn write_page(page: &Page<'_>, request: Request, stamp: &Stamp, out: &mut Vec<u8>) -> Sender {
    let mut sender = Sender::begin(&page.draft(), request, None, stamp, out);
    if sender.open(page.body.len() as u64, out).0 > 0 {
        out.extend_from_slice(page.body.as_bytes());
    }
    sender
}

/// Returns a request whose connection ends with its answer, as after a request that could not be read. `is_head`: its
/// method is HEAD.
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
