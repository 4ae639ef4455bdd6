//! The bounds on what HTTP/1 alone has; the others are in [`Limits`](crate::message::Limits).

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
