//! Field lines that the application gives beside the head of its response: trailers, and those of early hints.

use super::draft::Misuse;
use crate::grammar::{is_token, is_value};

/// Fields that no trailer section has (RFC 9110 section 6.5.1): they say where a message ends, where it goes, who may
/// send it, or how its content is read, and a recipient has acted on them before it gets to the trailers.
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

/// Field lines, checked and ready to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldLines {
    /// As HTTP/1 writes them.
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

    /// Adds a field of a trailer section.
    ///
    /// # Errors
    /// As [`field`](Self::field); [`Misuse::TrailerForbidden`].
    pub fn trailer(&mut self, name: &[u8], value: &[u8]) -> Result<(), Misuse> {
        if NO_TRAILERS.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden)) {
            return Err(Misuse::TrailerForbidden);
        }
        self.field(name, value)
    }

    /// Adds other ones behind these.
    pub fn extend(&mut self, others: &Self) {
        self.bytes.extend_from_slice(&others.bytes);
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
