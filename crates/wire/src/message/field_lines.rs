//! Field lines that the application sends outside the head of its response: trailers, and the fields of early hints.

use super::draft::Misuse;
use crate::grammar::{is_token, is_value};

/// Fields that are forbidden in trailers (RFC 9110 section 6.5.1). They control framing, routing, authentication or the
/// interpretation of the content, and a recipient has finished these steps before it reads the trailers.
const NO_TRAILERS: [&[u8]; 20] = [
    b"age",
    b"authorization",
    b"cache-control",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-range",
    b"content-type",
    b"date",
    b"expires",
    b"host",
    b"keep-alive",
    b"location",
    b"retry-after",
    b"set-cookie",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"www-authenticate",
];

/// Checked field lines, ready to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldLines {
    /// The lines in the format of HTTP/1.
    pub(crate) bytes: Vec<u8>,
}

impl FieldLines {
    /// Adds a field.
    ///
    /// # Errors
    /// [`Misuse::NameInvalid`], [`Misuse::ValueInvalid`].
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Misuse> {
        if !is_token(name) {
            return Err(Misuse::NameInvalid);
        }
        if !is_value(value) {
            return Err(Misuse::ValueInvalid);
        }
        for bytes in [name, b": ", value, b"\r\n"] {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Adds a trailer field.
    ///
    /// # Errors
    /// As [`field`](Self::field); [`Misuse::TrailerForbidden`].
    pub fn trailer(&mut self, name: &[u8], value: &[u8]) -> Result<(), Misuse> {
        if NO_TRAILERS.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden)) {
            return Err(Misuse::TrailerForbidden);
        }
        self.field(name, value)
    }

    /// Appends the lines of `others`.
    pub fn extend(&mut self, others: &Self) {
        self.bytes.extend_from_slice(&others.bytes);
    }

    /// Returns true if there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
