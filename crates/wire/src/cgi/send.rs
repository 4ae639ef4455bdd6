//! The head of a response that a web server forwards (RFC 3875 section 6).

use crate::http1::{Request, Sender};
use crate::message::Draft;

/// The format of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusLine {
    /// `Status: 200 OK` (RFC 3875 section 6.3.3).
    Cgi,
    /// `HTTP/1.1 200 OK`, the format that web servers expect from uwsgi.
    Http,
}

/// Writes the head of a response to `out`. `length` is the length of the body, if the caller knows it; a declared
/// Content-Length takes precedence. The web server adds Date, Server and the fields of its own connection. The body has
/// no framing: the carrying protocol marks its end.
pub fn begin(draft: &Draft, request: Request, length: Option<u64>, line: StatusLine, out: &mut Vec<u8>) -> Sender {
    let head = match line {
        StatusLine::Http => &draft.bytes[..],
        StatusLine::Cgi => {
            out.extend_from_slice(b"Status:");
            draft.bytes.strip_prefix(b"HTTP/1.1").unwrap_or(&draft.bytes)
        }
    };
    out.extend_from_slice(head);
    let sender = Sender::unframed(draft, request, length, out);
    out.extend_from_slice(b"\r\n");
    sender
}
