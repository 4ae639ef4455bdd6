//! The head of a response that a web server forwards (RFC 3875 section 6).

use crate::http1::{Request, Sender};
use crate::message::Draft;

/// The form of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusLine {
    /// `Status: 200 OK` (RFC 3875 section 6.3.3).
    Cgi,
    /// `HTTP/1.1 200 OK`, which the uwsgi modules of web servers read.
    Http,
}

/// Writes the head of a response to `out`. `length` is that of the body, if it is known although the application did
/// not declare it. The web server adds Date, Server and whatever belongs to its own connection. The body has no
/// framing: its end is what the protocol says is the end.
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
