//! Limits that only HTTP/1 needs. The others are in [`Limits`](crate::message::Limits).

/// The length of a method. Methods are short words; the longest registered one, `UPDATEREDIRECTREF`, has 17 letters.
pub(super) const METHOD: usize = 32;
/// A chunk-size line with its extensions, without its CRLF. No widely used client sends extensions.
pub(super) const CHUNK_LINE: usize = 4096;
/// The sum of all chunk extensions of one body. It has its own limit: otherwise a body of one-byte chunks with long
/// extensions would cost many times the bytes and the work that the body limit allows (CVE-2023-39326).
pub(super) const CHUNK_OVERHEAD: usize = 65_536;
/// The trailer section of one body, with its blank line.
pub(super) const TRAILERS: usize = 8192;
/// The number of empty lines before a request line. RFC 9112 section 2.2 asks servers to ignore at least one.
pub(super) const EMPTY_LINES: usize = 2;
/// The status line without its CRLF. The limit equals that of a request line, because a reason phrase is free text.
pub(super) const STATUS_LINE: usize = 8190;
/// The number of interim responses before a final one. One 100 and one 103 are usual; a 102 may be repeated every few
/// seconds while the request is processed (RFC 2518 section 10.1). Go's client allowed 5 for a long time.
pub(super) const INTERIMS: usize = 64;
