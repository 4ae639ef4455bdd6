//! The writing side of FastCGI.

use super::record::{
    self, GET_VALUES_RESULT, HEADER, MOST, PADDING_LENGTH, ProtocolStatus, RequestId, STDERR, STDOUT, end,
};
use crate::cgi::{self, StatusLine};
use crate::http1::{Request, Sender};
use crate::message::Draft;

/// Writes the head of a response as the first record of STDOUT. `length` is the length of the body, if the caller knows
/// it; a declared Content-Length takes precedence.
pub fn begin(id: RequestId, draft: &Draft, request: Request, length: Option<u64>, out: &mut Vec<u8>) -> Sender {
    let start = out.len();
    record::write(STDOUT, id.number, b"", out);
    let sender = cgi::begin(draft, request, length, StatusLine::Cgi, out);
    let content = out.len() - start - HEADER;
    if let Ok(content) = u16::try_from(content) {
        out[start + 4..start + 6].copy_from_slice(&content.to_be_bytes());
    } else {
        let head = out.split_off(start + HEADER);
        out.truncate(start);
        stdout(id, &head, out);
    }
    sender
}

/// Writes a part of a response body. It must not be empty, because an empty record ends the body.
pub fn stdout(id: RequestId, bytes: &[u8], out: &mut Vec<u8>) {
    bytes.chunks(MOST).for_each(|part| record::write(STDOUT, id.number, part, out));
}

/// Writes the application's error output for a request, for the log of the web server. `text` must not be empty. This
/// is allowed at any time before [`end_request`]; the stream STDERR need not be ended (FastCGI specification, section
/// 6.2).
pub fn stderr(id: RequestId, text: &[u8], out: &mut Vec<u8>) {
    text.chunks(MOST).for_each(|part| record::write(STDERR, id.number, part, out));
}

/// Writes the end of STDOUT.
pub fn end_stdout(id: RequestId, out: &mut Vec<u8>) {
    record::write(STDOUT, id.number, b"", out);
}

/// Writes `END_REQUEST`. The peer may then reuse the number of the request.
pub fn end_request(id: RequestId, status: ProtocolStatus, out: &mut Vec<u8>) {
    end(id.number, status, out);
}

/// Writes the record of [`end_request`] for a connection that closes after it. The record announces a byte of padding
/// that is not sent: the end of the connection replaces it.
///
/// Apache has forwarded the whole response by then. It treats the request as finished only after it has read the
/// padding byte or the end of the connection, so it cannot send another request on the connection before that. It logs
/// the truncated record. If the connection is to continue nevertheless, a byte must be written first.
pub fn end_request_and_connection(id: RequestId, status: ProtocolStatus, out: &mut Vec<u8>) {
    let padding = out.len() + PADDING_LENGTH;
    end(id.number, status, out);
    out[padding] = 1;
}

/// Announces that the application accepts no more requests on this connection: repeats the response to `GET_VALUES`
/// with a limit of 0. HAProxy obeys such a record at any time. Requests that it has already sent must still be
/// answered.
pub fn take_no_more(out: &mut Vec<u8>) {
    let mut values = Vec::with_capacity(34);
    record::write_pair(record::MAX_REQS, b"0", &mut values);
    // Without FCGI_MPXS_CONNS=1, HAProxy assumes that the connection supports only one request at a time.
    record::write_pair(record::MPXS_CONNS, b"1", &mut values);
    record::write(GET_VALUES_RESULT, 0, &values, out);
}

/// Writes an empty management record. nginx does not reuse a connection on which bytes follow the end of a response, so
/// this makes it send no more requests here.
pub fn excess(out: &mut Vec<u8>) {
    record::write(GET_VALUES_RESULT, 0, b"", out);
}
