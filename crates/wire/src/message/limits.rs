//! The limits on a message that can be configured.

/// Limits on one message, in bytes unless the name says otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The request line without its CRLF. 8190 is Apache's; gunicorn has 4094, nginx 8 KiB.
    pub request_line: usize,
    /// The number of field lines in one head, and in one trailer section. 100 is Apache's and gunicorn's.
    pub fields: usize,
    /// One field line without its CRLF. 8190 is Apache's and gunicorn's.
    pub field_line: usize,
    /// The whole head. 64 KiB equals the line limit of Python's `http.client` and is four times Node's head limit.
    pub head: usize,
    /// The decoded body.
    pub body: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_line: 8190, fields: 100, field_line: 8190, head: 65_536, body: 1 << 30 }
    }
}
