//! Everything that a peer can make grow has its bound here.

/// Bounds on one message, in bytes unless the name says otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The request line without its CRLF. 8190 is Apache's; gunicorn has 4094, nginx 8 KiB.
    pub request_line: usize,
    /// Field lines of one head, and of one trailer section. 100 is Apache's and gunicorn's.
    pub fields: usize,
    /// One field line without its CRLF. 8190 is Apache's and gunicorn's.
    pub field_line: usize,
    /// The whole head. 64 KiB is Python's `http.client` times one, Node's 16 KiB times four.
    pub head: usize,
    /// The decoded body.
    pub body: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_line: 8190, fields: 100, field_line: 8190, head: 65_536, body: 1 << 30 }
    }
}

/// Methods are short words; the longest registered one, `UPDATEREDIRECTREF`, has 17 letters.
pub(super) const METHOD: usize = 32;
/// A chunk-size line with its extensions, without its CRLF; nothing that people use sends extensions at all.
pub(super) const CHUNK_LINE: usize = 4096;
/// All chunk extensions of one body: bounded apart from the data, or a body of one-byte chunks with long extensions
/// would make the peer's bytes and our work many times what the body limit says (CVE-2023-39326).
pub(super) const CHUNK_OVERHEAD: usize = 65_536;
/// The trailer section of one body, with its blank line.
pub(super) const TRAILERS: usize = 8192;
/// Empty lines before a request line: RFC 9112 section 2.2 asks to ignore at least one.
pub(super) const EMPTY_LINES: usize = 2;
/// The status line without its CRLF: as generous as for a request line, because a reason phrase is free text.
pub(super) const STATUS_LINE: usize = 8190;
/// Interim responses before a final one. One 100 and one 103 are usual; a 102 may be repeated every few seconds for as
/// long as the request takes (RFC 2518 section 10.1). Go's client long took 5.
pub(super) const INTERIMS: usize = 64;
