//! The messages of an HTTP response, and helper functions for all messages.

use super::call::{HttpCall, ResponseProgress};
use super::complaint::{shown, wrong_type};
use super::concurrency::EventLoop as _;
use super::entries::entries;
use super::file;
use crate::interface::{End, Part, Sent, StartRefusal};
use crate::object::{Chunk, Object};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyList, PyMemoryView, PyString, PyTuple};
use wire::message::{Draft, FieldLines, Misuse};

/// Sends a message of a response. Returns true if the application must wait until the client has read output.
pub(super) fn send(py: Python<'_>, call: &Py<HttpCall>, kind: &str, message: &Bound<'_, PyDict>) -> PyResult<bool> {
    let this = call.get();
    let response = this.response(py);
    match (kind, response) {
        ("http.response.start", ResponseProgress::Unstarted) => start(py, call, message).map(|()| false),
        ("http.response.body", ResponseProgress::Started | ResponseProgress::InBody) => body(py, this, message),
        ("http.response.pathsend", ResponseProgress::Started) => {
            let file = file::of_path(py, message)?;
            send_part(py, this, Some(file), false)
        }
        ("http.response.zerocopysend", ResponseProgress::Started | ResponseProgress::InBody) => {
            let has_more = is_true(message.get_item(intern!(py, "more_body"))?.as_ref())?;
            let file = file::of_descriptor(py, message)?;
            send_part(py, this, Some(file), has_more)
        }
        ("http.response.trailers", ResponseProgress::Trailing) => trailers(py, this, message).map(|()| false),
        // The specification allows hints after the start. Before the start they are more useful, because the
        // application need not know the status yet.
        (
            "http.response.early_hint",
            ResponseProgress::Unstarted | ResponseProgress::Started | ResponseProgress::InBody,
        ) => early_hint(py, this, message).map(|()| false),
        _ => Err(misplaced(kind, response, this.expects_trailers(py))),
    }
}

/// Returns the exception for a message that must not be sent at this point.
fn misplaced(kind: &str, response: ResponseProgress, expects_trailers: bool) -> PyErr {
    const KINDS: [&str; 6] = [
        "http.response.start",
        "http.response.body",
        "http.response.trailers",
        "http.response.pathsend",
        "http.response.zerocopysend",
        "http.response.early_hint",
    ];
    if !KINDS.contains(&kind) {
        return PyRuntimeError::new_err(format!(
            "{} cannot be sent here: this is an http scope, which takes {}",
            kind.chars().take(80).collect::<String>(),
            KINDS.join(", ")
        ));
    }
    PyRuntimeError::new_err(match (kind, response) {
        (_, ResponseProgress::Unstarted) => {
            format!("{kind} was sent before http.response.start: send the status and the headers first")
        }
        ("http.response.trailers", _) if !expects_trailers => {
            format!("{kind} was not announced: send 'trailers': True in http.response.start")
        }
        (_, ResponseProgress::Finished) => format!(
            "{kind} was sent after the response was complete: send more_body=True in each http.response.body but the last"
        ),
        (_, ResponseProgress::Trailing) => format!(
            "{kind} was sent after the body was complete: send http.response.trailers, as http.response.start has announced"
        ),
        ("http.response.trailers", _) => {
            format!("{kind} was sent before the body was complete: send more_body=False first")
        }
        ("http.response.pathsend", _) => {
            format!(
                "{kind} was sent after a part of the body: the file is the whole body; send http.response.zerocopysend"
            )
        }
        _ => format!("{kind} was sent twice: a response has one status; send http.response.body"),
    })
}

/// Returns true if an entry of a message exists and is truthy.
fn is_true(entry: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    entry.map_or(Ok(false), |value| value.is_truthy())
}

pub(super) fn start(py: Python<'_>, call: &Py<HttpCall>, message: &Bound<'_, PyDict>) -> PyResult<()> {
    let this = call.get();
    let exchange = this.exchange();
    let names = [intern!(py, "type"), intern!(py, "status"), intern!(py, "headers"), intern!(py, "trailers")];
    let [_, status, headers, trailers] = entries(message, names)?;
    if let (Some(status), Some(headers), None) = (&status, &headers, &trailers) {
        // SAFETY: both objects are live.
        let known = unsafe { exchange.start_known(py, status.as_ptr(), headers.as_ptr(), || ()) };
        if known.is_none() {
            draft(py, this, Some(status), Some(headers), false)?;
            // SAFETY: as above. If application code has run since the head was made, it belongs to objects that
            // `keep_head` refuses.
            unsafe { exchange.keep_head(py, status.as_ptr(), headers.as_ptr()) };
        }
    } else {
        let has_trailers = is_true(trailers.as_ref())?;
        draft(py, this, status.as_ref(), headers.as_ref(), has_trailers)?;
        if has_trailers {
            this.expect_trailers(py);
        }
    }
    this.set_response(py, ResponseProgress::Started);
    // The head is sent with the first part of the body, or when the application awaits something.
    if !this.is_first_step(py) {
        let event_loop = this.shared.event_loop()?;
        if event_loop.is_here() {
            HttpCall::hold_head(call, py);
        } else {
            exchange.send_head(py);
        }
    }
    Ok(())
}

/// Makes the response head from a message.
fn draft(
    py: Python<'_>,
    call: &HttpCall,
    status: Option<&Bound<'_, PyAny>>,
    headers: Option<&Bound<'_, PyAny>>,
    has_trailers: bool,
) -> PyResult<()> {
    // The draft is filled outside of the exchange's guard, because reading headers may run application code.
    let taken = call.exchange().take_draft(py, false);
    let (mut draft, refusal) = taken.map_or_else(|refusal| (Draft::default(), Some(refusal)), |draft| (draft, None));
    fill(py, &mut draft, status, headers, has_trailers)?;
    match refusal.map_or_else(|| call.exchange().store_draft(py, false, draft, || ()), Err) {
        Ok(()) => Ok(()),
        Err(StartRefusal::Over) => Err(disconnected(py, call)),
        Err(StartRefusal::Begun | StartRefusal::Again) => {
            Err(misplaced("http.response.start", ResponseProgress::Started, false))
        }
    }
}

fn fill(
    py: Python<'_>,
    draft: &mut Draft,
    status: Option<&Bound<'_, PyAny>>,
    headers: Option<&Bound<'_, PyAny>>,
    has_trailers: bool,
) -> PyResult<()> {
    let Some(status) = status else {
        return Err(PyValueError::new_err("http.response.start has no 'status', such as 200"));
    };
    let code = match status.extract::<i64>() {
        Ok(code) if !status.is_instance_of::<PyBool>() => u16::try_from(code).unwrap_or(u16::MAX),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => u16::MAX,
        _ => return Err(wrong_type(status, "the status must be an int such as 200")),
    };
    let started = draft.start_code(code);
    started.map_err(|misuse| match misuse {
        Misuse::StatusInformational => PyValueError::new_err(format!(
            "the status is {}: a final status is expected, from 200 on; hints are sent with http.response.early_hint",
            shown(status)
        )),
        _ => PyValueError::new_err(format!("the status is {}: it must be from 200 to 999", shown(status))),
    })?;
    if has_trailers {
        draft.expect_trailers();
    }
    let Some(headers) = headers else { return Ok(()) };
    each_header(headers, |name, value| match draft.field(name, value) {
        // "The server must ignore" Transfer-Encoding (ASGI, HTTP, Response Start), and no other server rejects the
        // other hop-by-hop fields: an application that forwards the response of another server may include Keep-Alive
        // and Upgrade, which do not apply to this connection (RFC 9110 section 7.6.1).
        Err(Misuse::HopByHop) => Ok(()),
        added => added,
    })
}

/// Calls `add` with the name and the value of each header.
pub(super) fn each_header(
    headers: &Bound<'_, PyAny>,
    mut add: impl FnMut(&[u8], &[u8]) -> Result<(), Misuse>,
) -> PyResult<()> {
    // The usual case, which needs no iterator.
    if let Ok(headers) = headers.cast_exact::<PyList>() {
        return headers.iter().try_for_each(|header| add_header(&header, &mut add));
    }
    for header in headers.try_iter().map_err(|_| wrong_type(headers, HEADERS))? {
        add_header(&header?, &mut add)?;
    }
    Ok(())
}

fn add_header(header: &Bound<'_, PyAny>, add: &mut impl FnMut(&[u8], &[u8]) -> Result<(), Misuse>) -> PyResult<()> {
    if let Ok(pair) = header.cast_exact::<PyTuple>()
        && let [name, value] = pair.as_slice()
        && let (Ok(name), Ok(value)) = (name.cast_exact::<PyBytes>(), value.cast_exact::<PyBytes>())
    {
        return add(name.as_bytes(), value.as_bytes()).map_err(|misuse| refused(header, misuse));
    }
    let (name, value) = pair(header)?;
    let name = bytes(&name, "a header name", "b'content-type'")?;
    let value = bytes(&value, "a header value", "b'text/html'")?;
    add(name.as_bytes(), value.as_bytes()).map_err(|misuse| refused(header, misuse))
}

/// Adds trailers. Ends the response after the last ones.
fn trailers(py: Python<'_>, call: &HttpCall, message: &Bound<'_, PyDict>) -> PyResult<()> {
    let mut fields = FieldLines::default();
    if let Some(headers) = message.get_item(intern!(py, "headers"))? {
        each_header(&headers, |name, value| fields.trailer(name, value))?;
    }
    let has_more = is_true(message.get_item(intern!(py, "more_trailers"))?.as_ref())?;
    let fields = call.add_trailers(py, |trailers| {
        trailers.extend(&fields);
        if has_more { None } else { Some(std::mem::take(trailers)) }
    });
    let Some(fields) = fields else { return Ok(()) };
    match call.exchange().send(py, None, End::Trailers(&fields))? {
        Sent::Done | Sent::Full => {
            call.set_response(py, ResponseProgress::Finished);
            Ok(())
        }
        Sent::Gone | Sent::Over => Err(disconnected(py, call)),
    }
}

fn early_hint(py: Python<'_>, call: &HttpCall, message: &Bound<'_, PyDict>) -> PyResult<()> {
    let Some(links) = message.get_item(intern!(py, "links"))? else {
        return Err(PyValueError::new_err(
            "http.response.early_hint has no 'links', such as [b'</a.css>; rel=preload']",
        ));
    };
    if links.is_instance_of::<PyBytes>() || links.is_instance_of::<PyString>() {
        return Err(wrong_type(&links, LINKS));
    }
    let mut fields = FieldLines::default();
    for link in links.try_iter().map_err(|_| wrong_type(&links, LINKS))? {
        let link = link?;
        let value = bytes(&link, "a link", "b'</a.css>; rel=preload; as=style'")?;
        fields.field(b"Link", value.as_bytes()).map_err(|misuse| refused(&link, misuse))?;
    }
    if fields.is_empty() {
        return Ok(());
    }
    match call.exchange().send_early_hints(py, &fields)? {
        Sent::Done | Sent::Full => Ok(()),
        Sent::Gone | Sent::Over => Err(disconnected(py, call)),
    }
}

const LINKS: &str =
    "the links of http.response.early_hint must be an iterable of bytes such as [b'</a.css>; rel=preload; as=style']";

const HEADERS: &str = "the headers must be an iterable of (name, value) pairs of bytes";

/// Returns the name and the value of a header.
fn pair<'py>(header: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    if let Ok(header) = header.cast::<PyTuple>()
        && header.len() == 2
    {
        return Ok((header.get_item(0)?, header.get_item(1)?));
    }
    if let Ok(header) = header.cast::<PyList>()
        && header.len() == 2
    {
        return Ok((header.get_item(0)?, header.get_item(1)?));
    }
    Err(wrong_type(header, "each header must be a (name, value) pair such as (b'content-type', b'text/html')"))
}

fn bytes<'py>(object: &Bound<'py, PyAny>, what: &str, example: &str) -> PyResult<Bound<'py, PyBytes>> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => Err(wrong_type(object, &format!("{what} must be bytes such as {example}"))),
    }
}

fn refused(header: &Bound<'_, PyAny>, misuse: Misuse) -> PyErr {
    PyValueError::new_err(format!("{misuse}: {}", shown(header)))
}

pub(super) fn body(py: Python<'_>, call: &HttpCall, message: &Bound<'_, PyDict>) -> PyResult<bool> {
    let names = [intern!(py, "type"), intern!(py, "body"), intern!(py, "more_body")];
    let [_, part, more] = entries(message, names)?;
    let part = match part {
        None => None,
        Some(part) => Some(chunk(py, part, "the body of http.response.body must be bytes such as b'hello'")?),
    };
    let has_more = is_true(more.as_ref())?;
    let part = part.filter(|part| !part.as_ref().is_empty());
    send_part(py, call, part.map(Part::Chunk), has_more)
}

/// Sends a part of the body. Returns true if the application must wait until the client has read output.
fn send_part(py: Python<'_>, call: &HttpCall, part: Option<Part>, has_more: bool) -> PyResult<bool> {
    let has_trailers = call.expects_trailers(py);
    let end = if has_more || has_trailers { End::NotYet } else { End::Here };
    match call.exchange().send(py, part, end)? {
        sent @ (Sent::Done | Sent::Full) => {
            call.set_response(
                py,
                match (has_more, has_trailers) {
                    (true, _) => ResponseProgress::InBody,
                    (false, true) => ResponseProgress::Trailing,
                    (false, false) => ResponseProgress::Finished,
                },
            );
            // After the end of a response there is no reason to wait.
            Ok(has_more && sent == Sent::Full)
        }
        Sent::Gone | Sent::Over => Err(disconnected(py, call)),
    }
}

/// Returns the bytes that the application sends. `rule` begins the error message for other types.
pub(super) fn chunk(py: Python<'_>, part: Bound<'_, PyAny>, rule: &str) -> PyResult<Chunk> {
    if part.is_instance_of::<PyBytes>() {
        return Chunk::of(py, part.unbind().into());
    }
    if part.is_instance_of::<PyByteArray>() || part.is_instance_of::<PyMemoryView>() {
        let copy = py.get_type::<PyBytes>().call1((part,))?;
        return Chunk::of(py, Object::from(copy.unbind()));
    }
    Err(wrong_type(&part, rule))
}

/// Returns the exception that `send` raises if the client has left or the request has been answered already (since
/// version 2.4 of the specification).
pub(super) fn disconnected(py: Python<'_>, call: &HttpCall) -> PyErr {
    let made = call.shared.disconnected(py, "the client has left, or the response was ended at its deadline");
    made.map_or_else(|error| error, PyErr::from_value)
}
