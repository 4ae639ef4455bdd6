//! The writing half.

use super::record::{
    self, GET_VALUES_RESULT, HEADER, MOST, PADDING_LENGTH, ProtocolStatus, RequestId, STDERR, STDOUT, end,
};
use crate::cgi::{self, StatusLine};
use crate::http1::{Request, Sender};
use crate::message::Draft;

/// Writes the head of a response as the first record of STDOUT. `length` is that of the body, if it is known although
/// the application did not declare it.
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

/// Writes a part of a response's body, which is not empty: an empty record would end it.
pub fn stdout(id: RequestId, bytes: &[u8], out: &mut Vec<u8>) {
    bytes.chunks(MOST).for_each(|part| record::write(STDOUT, id.number, part, out));
}

/// Writes what the application reports of a request, which is not empty, for the web server's log. It may stand
/// anywhere before [`end_request`]; a stream of errors that has begun need not be ended (FastCGI specification, section
/// 6.2).
pub fn stderr(id: RequestId, text: &[u8], out: &mut Vec<u8>) {
    text.chunks(MOST).for_each(|part| record::write(STDERR, id.number, part, out));
}

/// Ends STDOUT.
pub fn end_stdout(id: RequestId, out: &mut Vec<u8>) {
    record::write(STDOUT, id.number, b"", out);
}

/// Writes that a request is over. Its number may be used again.
pub fn end_request(id: RequestId, status: ProtocolStatus, out: &mut Vec<u8>) {
    end(id.number, status, out);
}

/// Writes the record of [`end_request`] for a connection that ends after it: the record announces a byte of padding,
/// and the end of the connection takes its place.
///
/// Apache has forwarded the whole response by then. It treats the request as finished only after it has read the
/// padding byte or the end of the connection, so it cannot send another request on the connection before that. It logs
/// the truncated record. If the connection is to continue nevertheless, a byte must be written first.
pub fn end_request_and_connection(id: RequestId, status: ProtocolStatus, out: &mut Vec<u8>) {
    let padding = out.len() + PADDING_LENGTH;
    end(id.number, status, out);
    out[padding] = 1;
}

/// Writes that the application takes no further requests on this connection: the answer to `GET_VALUES` once more, with
/// a limit of none. HAProxy obeys such an answer whenever it comes; requests that it has sent by then are to be
/// answered.
pub fn take_no_more(out: &mut Vec<u8>) {
    let mut values = Vec::with_capacity(34);
    record::write_pair(record::MAX_REQS, b"0", &mut values);
    // Without it HAProxy would take one request at a time for the limit.
    record::write_pair(record::MPXS_CONNS, b"1", &mut values);
    record::write(GET_VALUES_RESULT, 0, &values, out);
}

/// Writes a management record that says nothing. nginx does not keep a connection of which anything follows the end of
/// a response, so this tells it to send no further request here.
pub fn excess(out: &mut Vec<u8>) {
    record::write(GET_VALUES_RESULT, 0, b"", out);
}
