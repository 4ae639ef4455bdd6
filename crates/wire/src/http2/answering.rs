//! The state for writing responses, and the encoding of their heads.

use super::hpack::{Encoder, Indexing};
use super::settings::DEFAULT_WINDOW;
use crate::message::{Draft, FieldLines, Stamp};

/// The state for writing responses that the streams of a connection share.
#[derive(Debug)]
pub(super) struct Answering {
    encoder: Encoder,
    /// The number of bytes that the client accepts on all streams together.
    pub(super) window: i64,
    /// The number of bytes sent on all streams together.
    pub(super) sent: u64,
    name: Vec<u8>,
    /// The encoded head of the last response, and its source.
    repeated: Option<Box<RepeatedResponse>>,
}

/// An encoded header block that is reused for responses with the same head, as long as the encoder's table does not
/// change.
#[derive(Debug, Default)]
struct RepeatedResponse {
    /// The parts of the head, followed by the encoded block.
    bytes: Vec<u8>,
    source_length: usize,
    version: u64,
}

impl Default for Answering {
    fn default() -> Self {
        Self {
            encoder: Encoder::default(),
            window: i64::from(DEFAULT_WINDOW),
            sent: 0,
            name: Vec::new(),
            repeated: None,
        }
    }
}

impl Answering {
    /// Applies the table size that the client allows.
    pub(super) fn allow_table(&mut self, size: usize) {
        self.encoder.allow(size);
    }

    /// Releases memory that only saves work.
    pub(super) fn rest(&mut self) {
        self.name = Vec::new();
        self.repeated = None;
    }

    /// Appends the block of an interim response.
    pub(super) fn interim(&mut self, status: u16, fields: &FieldLines, out: &mut Vec<u8>) {
        self.begin(status, out);
        self.lines(&fields.bytes, out);
    }

    /// Appends the block of trailers.
    pub(super) fn trailers(&mut self, trailers: &FieldLines, out: &mut Vec<u8>) {
        self.encoder.begin(out);
        self.lines(&trailers.bytes, out);
    }

    /// Starts a block with a status.
    fn begin(&mut self, status: u16, out: &mut Vec<u8>) {
        self.encoder.begin(out);
        let mut digits = itoa::Buffer::new();
        self.encoder.field(b":status", digits.format(status).as_bytes(), Indexing::Incremental, out);
    }

    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.name.clear();
        self.name.extend(name.iter().map(u8::to_ascii_lowercase));
        // RFC 9113 section 8.2.1: no white space at either end of a value.
        let value = value.trim_ascii();
        self.encoder.field(&self.name, value, indexing(&self.name), out);
    }

    /// Encodes field lines in the format of HTTP/1.
    fn lines(&mut self, lines: &[u8], out: &mut Vec<u8>) {
        for line in lines.split(|&byte| byte == b'\n') {
            if let Some(colon) = memchr::memchr(b':', line) {
                self.field(&line[..colon], &line[colon + 1..], out);
            }
        }
    }

    /// Appends the header block of a response. `declared` is its Content-Length, `trailer` the value of the field
    /// Trailer.
    pub(super) fn head(
        &mut self,
        draft: &Draft,
        declared: Option<u64>,
        trailer: Option<&[u8]>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) {
        let mut length = itoa::Buffer::new();
        let length = declared.map_or("", |declared| length.format(declared));
        let date = if draft.has_date { &b""[..] } else { &stamp.date };
        let server = if draft.has_server { &b""[..] } else { &stamp.server };
        let security = if draft.has_transport_security { &b""[..] } else { &stamp.transport_security };
        let trailers = trailer.unwrap_or_default();
        let parts = [&draft.bytes[..], length.as_bytes(), b"\n", trailers, b"\n", date, server, security];
        if let Some(repeated) = &self.repeated
            && repeated.version == self.encoder.version()
            && !self.encoder.is_resizing()
        {
            let (source, block) = repeated.bytes.split_at(repeated.source_length);
            if is_joined(source, &parts) {
                return out.extend_from_slice(block);
            }
        }
        let (start, version) = (out.len(), self.encoder.version());
        self.begin(draft.status(), out);
        for (name, value) in draft.fields() {
            self.field(name, value, out);
        }
        if declared.is_some() {
            self.field(b"content-length", length.as_bytes(), out);
        }
        if let Some(names) = trailer.filter(|names| !names.is_empty()) {
            self.field(b"trailer", names, out);
        }
        self.lines(date, out);
        self.lines(server, out);
        self.lines(security, out);
        if self.encoder.version() == version {
            let repeated = self.repeated.get_or_insert_default();
            repeated.bytes.clear();
            for part in parts {
                repeated.bytes.extend_from_slice(part);
            }
            repeated.source_length = repeated.bytes.len();
            repeated.bytes.extend_from_slice(&out[start..]);
            repeated.version = version;
        }
    }
}

/// Returns true if `whole` equals the concatenation of `parts`.
fn is_joined(whole: &[u8], parts: &[&[u8]]) -> bool {
    let mut rest = whole;
    parts.iter().all(|part| {
        let Some((start, behind)) = rest.split_at_checked(part.len()) else { return false };
        rest = behind;
        start == *part
    }) && rest.is_empty()
}

/// Returns how a response field is encoded. A value that changes with each response or each second is not indexed: it
/// would fill the table and evict values that repeat. A secret that an attacker could guess byte by byte is never
/// indexed (RFC 7541 section 7.1).
fn indexing(name: &[u8]) -> Indexing {
    match name {
        b"set-cookie" | b"authorization" | b"proxy-authorization" | b"www-authenticate" => Indexing::Never,
        b"date" | b"content-length" | b"etag" | b"last-modified" | b"location" | b"content-range" | b"age"
        | b"expires" => Indexing::Without,
        _ => Indexing::Incremental,
    }
}
