//! The bounds on a message that a configuration can change.

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
