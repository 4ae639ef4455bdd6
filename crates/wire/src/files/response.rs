//! The heads of responses that contain files, redirect, or report errors.

use super::codings::Coding;
use super::conditions::Validators;
use super::ranges::ByteRange;
use crate::message::{Draft, Misuse, Page};
use std::time::{Duration, SystemTime};

/// A file to send, with one content coding.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// The validators of the encoded file.
    pub validators: Validators<'a>,
    /// The length of the encoded file in bytes.
    pub length: u64,
    /// The media type of the unencoded content.
    pub media_type: &'a str,
    /// The content coding.
    pub coding: Coding,
    /// True if the file is also available with another content coding.
    pub varies: bool,
    /// The value of Cache-Control; empty to omit the field.
    pub cache_control: &'a str,
}

/// The methods allowed for files.
const METHODS: &[u8] = b"GET, HEAD, OPTIONS";

impl Representation<'_> {
    /// Returns the head of a 200 with the whole file.
    #[must_use]
    pub fn whole(&self) -> Draft {
        let mut draft = self.begin(200);
        self.add_content(&mut draft, self.media_type.as_bytes(), self.length);
        add(&mut draft, b"Accept-Ranges", b"bytes");
        draft
    }

    /// Returns the head of a 206 with one part of the file.
    #[must_use]
    pub fn part(&self, range: ByteRange) -> Draft {
        let mut draft = self.begin(206);
        self.add_content(&mut draft, self.media_type.as_bytes(), range.len());
        add(&mut draft, b"Content-Range", self.content_range(range).as_bytes());
        draft
    }

    /// Returns the head of a 206 with several parts, for the body described by `multipart`.
    #[must_use]
    pub fn parts(&self, multipart: &Multipart) -> Draft {
        let mut draft = self.begin(206);
        let media_type = format!("multipart/byteranges; boundary={}", multipart.boundary);
        self.add_content(&mut draft, media_type.as_bytes(), multipart.length());
        draft
    }

    /// Returns a 304, with the fields that a cache updates (RFC 9110 section 15.4.5).
    #[must_use]
    pub fn not_modified(&self) -> Draft {
        self.begin(304)
    }

    /// Returns a 412: a precondition failed.
    #[must_use]
    pub fn failed(&self) -> (Draft, String) {
        text_response(412, "The file is not the one that the request means.")
    }

    /// Returns a 416: no byte of the requested ranges exists.
    #[must_use]
    pub fn unsatisfiable(&self) -> (Draft, String) {
        let (mut draft, body) = text_response(416, "The file has no bytes in this range.");
        add(&mut draft, b"Content-Range", format!("bytes */{}", self.length).as_bytes());
        (draft, body)
    }

    /// Returns a draft with the status line and the fields that are common to 200, 206 and 304.
    fn begin(&self, status: u16) -> Draft {
        let mut draft = start(status);
        add(&mut draft, b"ETag", self.validators.etag);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(self.validators.modified.min(LAST_DATE));
        add(&mut draft, b"Last-Modified", httpdate::fmt_http_date(modified).as_bytes());
        if !self.cache_control.is_empty() {
            add(&mut draft, b"Cache-Control", self.cache_control.as_bytes());
        }
        if self.varies {
            add(&mut draft, b"Vary", b"Accept-Encoding");
        }
        draft
    }

    fn add_content(&self, draft: &mut Draft, media_type: &[u8], length: u64) {
        add(draft, b"Content-Type", media_type);
        add(draft, b"X-Content-Type-Options", b"nosniff");
        if self.coding != Coding::Identity {
            add(draft, b"Content-Encoding", self.coding.token().as_bytes());
        }
        add(draft, b"Content-Length", length.to_string().as_bytes());
    }

    fn content_range(&self, range: ByteRange) -> String {
        format!("bytes {}-{}/{}", range.first, range.last, self.length)
    }
}

/// 9999-12-31 23:59:59, the latest date that HTTP can express.
const LAST_DATE: u64 = 253_402_300_799;

/// The delimiters and the heads of the parts in a multipart body of byte ranges (RFC 9110 section 14.6).
#[derive(Debug)]
pub struct Multipart {
    boundary: String,
    parts: Vec<(String, ByteRange)>,
    end: String,
}

impl Multipart {
    /// Creates the parts of `representation` for `ranges`. `boundary` must be an unpredictable number, so that nobody
    /// can create a file that contains it.
    #[must_use]
    pub fn new(representation: &Representation<'_>, ranges: &[ByteRange], boundary: u128) -> Self {
        let boundary = format!("{boundary:032x}");
        let part = |&range: &ByteRange| {
            let (media_type, content_range) = (representation.media_type, representation.content_range(range));
            let head =
                format!("\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {content_range}\r\n\r\n");
            (head, range)
        };
        let parts = ranges.iter().map(part).collect();
        Self { parts, end: format!("\r\n--{boundary}--\r\n"), boundary }
    }

    /// Returns the parts. Each comes with the delimiter and the fields to send before it.
    pub fn parts(&self) -> impl Iterator<Item = (&[u8], ByteRange)> {
        self.parts.iter().map(|(head, range)| (head.as_bytes(), *range))
    }

    /// Returns the delimiter to send after the last part.
    #[must_use]
    pub fn end(&self) -> &[u8] {
        self.end.as_bytes()
    }

    /// Returns the length of the whole body.
    fn length(&self) -> u64 {
        let parts: u64 = self.parts.iter().map(|(head, range)| head.len() as u64 + range.len()).sum();
        parts + self.end.len() as u64
    }
}

/// Returns the response to a method other than GET and HEAD: a list of the allowed methods, with status 204 for OPTIONS
/// and 405 for the others.
#[must_use]
pub fn method_response(method: &[u8]) -> (Draft, String) {
    let (mut draft, body) =
        if method == b"OPTIONS" { (start(204), String::new()) } else { text_response(405, "Files can only be read.") };
    add(&mut draft, b"Allow", METHODS);
    (draft, body)
}

/// Returns a 301 to `path`, which must begin with exactly one slash and have no control characters.
#[must_use]
pub fn redirect(path: &[u8], query: Option<&[u8]>) -> (Draft, String) {
    let (mut draft, body) = text_response(301, "The directory has a slash at its end.");
    let mut location = path.to_vec();
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    add(&mut draft, b"Location", &location);
    (draft, body)
}

/// Returns a plain text response for people. `explanation` must not repeat anything that the client sent.
#[must_use]
pub fn text_response(status: u16, explanation: &str) -> (Draft, String) {
    let body = Page::text(status, explanation);
    let mut draft = start(status);
    add(&mut draft, b"Content-Type", b"text/plain; charset=utf-8");
    add(&mut draft, b"X-Content-Type-Options", b"nosniff");
    add(&mut draft, b"Content-Length", body.len().to_string().as_bytes());
    (draft, body)
}

fn start(status: u16) -> Draft {
    let mut draft = Draft::default();
    checked(draft.start_refusal(status));
    draft
}

fn add(draft: &mut Draft, name: &[u8], value: &[u8]) {
    checked(draft.field(name, value));
}

fn checked(written: Result<(), Misuse>) {
    debug_assert_eq!(written, Ok(()), "the server's own head is well-formed");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{Sender, close_after};
    use crate::message::Stamp;

    const FILE: Representation<'static> = Representation {
        validators: Validators { etag: b"\"1\"", modified: 784_111_777 },
        length: 1000,
        media_type: "text/css; charset=utf-8",
        coding: Coding::Gzip,
        varies: true,
        cache_control: "max-age=60",
    };

    fn text(draft: &Draft) -> String {
        let mut out = Vec::new();
        let _ = Sender::begin(draft, close_after(false), None, &Stamp::new("", 784_111_777).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_whole_file_has_all_fields() {
        assert_eq!(
            text(&FILE.whole()),
            "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60\r\n\
             Vary: Accept-Encoding\r\nContent-Type: text/css; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Encoding: gzip\r\nAccept-Ranges: bytes\r\nContent-Length: 1000\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn not_modified_has_what_a_cache_updates_and_no_length() {
        assert_eq!(
            text(&FILE.not_modified()),
            "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Cache-Control: max-age=60\r\nVary: Accept-Encoding\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_multipart_body_is_as_long_as_it_says() {
        let ranges = [ByteRange { first: 0, last: 9 }, ByteRange { first: 990, last: 999 }];
        let multipart = Multipart::new(&FILE, &ranges, 0xabc);
        let mut body = Vec::new();
        for (before, range) in multipart.parts() {
            body.extend_from_slice(before);
            body.resize(body.len() + usize::try_from(range.len()).unwrap(), b'x');
        }
        body.extend_from_slice(multipart.end());
        let head = text(&FILE.parts(&multipart));
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(head.contains("boundary=00000000000000000000000000000abc\r\n"), "{head}");
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with("\r\n--00000000000000000000000000000abc\r\nContent-Type: text/css"), "{body}");
        assert!(body.contains("Content-Range: bytes 990-999/1000\r\n\r\nxxxxxxxxxx\r\n--"), "{body}");
    }

    #[test]
    fn what_is_no_file_says_why() {
        assert!(text(&method_response(b"POST").0).contains("Allow: GET, HEAD, OPTIONS\r\n"));
        assert!(text(&method_response(b"OPTIONS").0).starts_with("HTTP/1.1 204 No Content\r\nAllow:"));
        assert!(text(&FILE.unsatisfiable().0).contains("Content-Range: bytes */1000\r\n"));
        assert!(text(&redirect(b"/a/", Some(b"b=c")).0).contains("Location: /a/?b=c\r\n"));
    }
}
