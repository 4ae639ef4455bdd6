//! Records and name-value pairs (FastCGI specification, sections 3.3 and 3.4).

use crate::message::Fault;
use crate::other_protocols;

pub(super) const VERSION: u8 = 1;
/// The length of a record's header in bytes.
pub(super) const HEADER: usize = 8;
/// The offset of the padding length in a header.
pub(super) const PADDING_LENGTH: usize = 6;
/// The maximum length of a record's content in bytes.
pub(super) const MOST: usize = 0xffff;

pub(super) const BEGIN_REQUEST: u8 = 1;
pub(super) const ABORT_REQUEST: u8 = 2;
pub(super) const END_REQUEST: u8 = 3;
pub(super) const PARAMS: u8 = 4;
pub(super) const STDIN: u8 = 5;
pub(super) const STDOUT: u8 = 6;
pub(super) const STDERR: u8 = 7;
pub(super) const GET_VALUES: u8 = 9;
pub(super) const GET_VALUES_RESULT: u8 = 10;
pub(super) const UNKNOWN_TYPE: u8 = 11;

/// The only role that this crate supports.
pub(super) const RESPONDER: u16 = 1;
/// A flag of `BEGIN_REQUEST`: the web server, not the application, closes the connection.
pub(super) const KEEP_CONN: u8 = 1;

/// Names of values (FastCGI specification, section 4.1).
pub(super) const MAX_CONNS: &[u8] = b"FCGI_MAX_CONNS";
pub(super) const MAX_REQS: &[u8] = b"FCGI_MAX_REQS";
pub(super) const MPXS_CONNS: &[u8] = b"FCGI_MPXS_CONNS";

/// The identifier of a request: its number in the protocol, which the peer reuses, and a serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The serial number: the position in the order in which the connection's requests began. 0 is not used.
    pub serial: u32,
    pub(super) number: u16,
}

/// The reason why a request has ended (`protocolStatus` of `END_REQUEST`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// The request has been answered.
    RequestComplete = 0,
    /// There are too many requests; this one was not started.
    Overloaded = 2,
    /// The request asks for another role than responder.
    UnknownRole = 3,
}

/// The fields of a record's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) id: u16,
    pub(super) content: usize,
    pub(super) padding: usize,
}

impl Header {
    pub(super) fn read(bytes: [u8; HEADER]) -> Result<Self, Fault> {
        let [version, kind, id1, id0, length1, length0, padding, _reserved] = bytes;
        if version != VERSION {
            return Err(other_protocols::on_gateway(&bytes).unwrap_or(Fault::RecordMalformed));
        }
        let number = |high, low| u16::from_be_bytes([high, low]);
        Ok(Self { kind, id: number(id1, id0), content: number(length1, length0).into(), padding: padding.into() })
    }
}

/// Writes a record. `content` must fit one record.
pub(super) fn write(kind: u8, id: u16, content: &[u8], out: &mut Vec<u8>) {
    let [length1, length0] = u16::try_from(content.len()).expect("content fits into a record").to_be_bytes();
    let [id1, id0] = id.to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id1, id0, length1, length0, 0, 0]);
    out.extend_from_slice(content);
}

/// A name, its value, and the bytes after them.
type Pair<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Returns the next pair of a block, and the bytes after it; `None` at the end of the block.
pub(super) fn pair(block: &[u8]) -> Result<Option<Pair<'_>>, Fault> {
    if block.is_empty() {
        return Ok(None);
    }
    let (name, rest) = length(block).ok_or(Fault::VariablesMalformed)?;
    let (value, rest) = length(rest).ok_or(Fault::VariablesMalformed)?;
    let (name, rest) = rest.split_at_checked(name).ok_or(Fault::VariablesMalformed)?;
    let (value, rest) = rest.split_at_checked(value).ok_or(Fault::VariablesMalformed)?;
    Ok(Some((name, value, rest)))
}

/// Writes a pair. Name and value must be shorter than 128 bytes.
pub(super) fn write_pair(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let length = |part: &[u8]| u8::try_from(part.len()).expect("a length of one byte");
    out.extend_from_slice(&[length(name), length(value)]);
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Reads a length: one byte, or four with the highest bit set.
fn length(block: &[u8]) -> Option<(usize, &[u8])> {
    match block {
        [short @ 0..=127, rest @ ..] => Some((usize::from(*short), rest)),
        [a, b, c, d, rest @ ..] => {
            Some((usize::try_from(u32::from_be_bytes([a & 0x7f, *b, *c, *d])).unwrap_or(usize::MAX), rest))
        }
        _ => None,
    }
}

/// Writes `END_REQUEST` for a request number.
pub(super) fn end(number: u16, status: ProtocolStatus, out: &mut Vec<u8>) {
    // The application status is the exit code of a process, which a request does not have.
    write(END_REQUEST, number, &[0, 0, 0, 0, status as u8, 0, 0, 0], out);
}
