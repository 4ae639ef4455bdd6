//! The state of the writing half, and how heads are encoded.

use super::hpack::{Encoder, Indexing};
use super::settings::DEFAULT_WINDOW;
use crate::message::{Draft, FieldLines, Stamp};

/// The state of the writing half that streams share.
#[derive(Debug)]
pub(super) struct Answering {
    encoder: Encoder,
    /// The bytes that the client takes on all streams together.
    pub(super) window: i64,
    /// The number of bytes sent on all streams together.
    pub(super) sent: u64,
    /// The block that has been encoded last.
    pub(super) block: Vec<u8>,
    name: Vec<u8>,
    /// The block of the last response, and what it was made of.
    repeated: Option<Box<RepeatedResponse>>,
}

/// An encoded block, for responses whose heads are the same. It counts while the encoder's table is unchanged.
#[derive(Debug, Default)]
struct RepeatedResponse {
    source: Vec<u8>,
    block: Vec<u8>,
    version: u64,
}

impl Default for Answering {
    fn default() -> Self {
        Self {
            encoder: Encoder::default(),
            window: i64::from(DEFAULT_WINDOW),
            sent: 0,
            block: Vec::new(),
            name: Vec::new(),
            repeated: None,
        }
    }
}

impl Answering {
    /// Takes the size of the table that the client allows.
    pub(super) fn allow_table(&mut self, size: usize) {
        self.encoder.allow(size);
    }

    /// Gives the memory back that is kept only for speed.
    pub(super) fn rest(&mut self) {
        self.block = Vec::new();
        self.name = Vec::new();
        self.repeated = None;
    }

    /// Encodes an interim response.
    pub(super) fn interim(&mut self, status: u16, fields: &FieldLines) {
        self.begin(status);
        self.lines(&fields.bytes);
    }

    /// Encodes trailers.
    pub(super) fn trailers(&mut self, trailers: &FieldLines) {
        self.block.clear();
        self.encoder.begin(&mut self.block);
        self.lines(&trailers.bytes);
    }

    /// Begins a block with a status.
    fn begin(&mut self, status: u16) {
        self.block.clear();
        self.encoder.begin(&mut self.block);
        let digits = itoa::Buffer::new().format(status).to_owned();
        self.encoder.field(b":status", digits.as_bytes(), Indexing::Incremental, &mut self.block);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.name.clear();
        self.name.extend(name.iter().map(u8::to_ascii_lowercase));
        // Section 8.2.1: no white space at either end.
        let value = value.trim_ascii();
        self.encoder.field(&self.name, value, indexing(&self.name), &mut self.block);
    }

    /// Writes the lines of a block of HTTP/1.
    fn lines(&mut self, lines: &[u8]) {
        for line in lines.split(|&byte| byte == b'\n') {
            if let Some(colon) = memchr::memchr(b':', line) {
                self.field(&line[..colon], &line[colon + 1..]);
            }
        }
    }

    /// Encodes the head of a response. `declared` is its Content-Length, `trailer` the announcement of trailers.
    pub(super) fn head(&mut self, draft: &Draft, declared: Option<u64>, trailer: Option<&[u8]>, stamp: &Stamp) {
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
            && is_joined(&repeated.source, &parts)
        {
            self.block.clear();
            self.block.extend_from_slice(&repeated.block);
            return;
        }
        let version = self.encoder.version();
        self.begin(draft.status());
        for (name, value) in draft.fields() {
            self.field(name, value);
        }
        if declared.is_some() {
            self.field(b"content-length", length.as_bytes());
        }
        if let Some(names) = trailer.filter(|names| !names.is_empty()) {
            self.field(b"trailer", names);
        }
        self.lines(date);
        self.lines(server);
        self.lines(security);
        if self.encoder.version() == version {
            let repeated = self.repeated.get_or_insert_default();
            repeated.source.clear();
            for part in parts {
                repeated.source.extend_from_slice(part);
            }
            repeated.block.clone_from(&self.block);
            repeated.version = version;
        }
    }
}

/// Returns true if `whole` is all of `parts`, one after the other.
fn is_joined(whole: &[u8], parts: &[&[u8]]) -> bool {
    let mut rest = whole;
    parts.iter().all(|part| {
        let Some((start, behind)) = rest.split_at_checked(part.len()) else { return false };
        rest = behind;
        start == *part
    }) && rest.is_empty()
}

/// Returns the way in which a field of a response is written. A value that changes with each response would only evict
/// what repeats; a secret that an attacker could guess byte by byte is never indexed (RFC 7541 section 7.1).
fn indexing(name: &[u8]) -> Indexing {
    match name {
        b"set-cookie" | b"authorization" | b"proxy-authorization" | b"www-authenticate" => Indexing::Never,
        b"content-length" | b"etag" | b"last-modified" | b"location" | b"content-range" | b"age" | b"expires" => {
            Indexing::Without
        }
        _ => Indexing::Incremental,
    }
}
