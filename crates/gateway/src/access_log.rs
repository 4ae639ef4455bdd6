//! The access log: one line a request, written without the interpreter's help.
//!
//! A format is compiled once into pieces. Lines collect in a buffer that goes to the writer thread ([`log_writer`]) when
//! the engine is about to wait, or when it is full. By choice lines go to a Python callable instead (`logging`), which
//! costs what `logging` costs.
//!
//! [`log_writer`]: crate::log_writer

use crate::log_writer::Log;
use crate::object::Object;
use base64::Engine as _;
use engine::{Peer, Refusal};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use std::borrow::Cow;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::http1::{Draft, Field, Head, PartialRequestLine, Version};

/// Apache's and gunicorn's combined format.
const COMBINED: &str = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#;
/// Collected lines go to the writer beyond this.
const BUFFER: usize = 64 << 10;

const REQUEST_ID_MAX: usize = 128;
/// Of the target of a request that was refused no more is shown.
const TARGET_MAX: usize = 1024;

/// What is remembered of a request until its line is written.
pub(crate) struct Entry {
    begun: Instant,
    at: SystemTime,
    peer: Peer,
    method: Box<[u8]>,
    target: Box<[u8]>,
    path_end: usize,
    has_query: bool,
    version: Option<Version>,
    block: Box<[u8]>,
    fields: Box<[Field]>,
}

impl Entry {
    pub(crate) fn new(head: &Head<'_>, peer: Peer) -> Self {
        Self {
            begun: Instant::now(),
            at: SystemTime::now(),
            peer,
            method: head.method.into(),
            target: head.target.raw.into(),
            path_end: head.target.raw.len() - head.target.query.map_or(0, |query| query.len() + 1),
            has_query: head.target.query.is_some(),
            version: Some(head.version),
            block: head.block.into(),
            fields: head.fields.into(),
        }
    }

    /// Of what never became a request, with what could be read of its request line.
    pub(crate) fn unread(peer: Peer, line: Option<&PartialRequestLine<'_>>) -> Self {
        let (method, mut target) = line.map_or((&b""[..], Vec::new()), |line| (line.method, line.target.to_vec()));
        let is_cut = line.is_some_and(|line| line.is_cut) || target.len() > TARGET_MAX;
        if is_cut {
            target.truncate(TARGET_MAX);
            target.extend_from_slice(b"...");
        }
        let query = target.iter().position(|&byte| byte == b'?');
        Self {
            begun: Instant::now(),
            at: SystemTime::now(),
            peer,
            method: method.into(),
            path_end: query.unwrap_or(target.len()),
            has_query: query.is_some(),
            target: target.into(),
            version: line.filter(|_| !is_cut).and_then(|line| line.version),
            block: Box::default(),
            fields: Box::default(),
        }
    }

    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.is(&self.block, name)).map(|field| field.value(&self.block))
    }

    fn protocol(&self) -> &'static str {
        match self.version {
            Some(Version::Http11) => "HTTP/1.1",
            Some(Version::Http10) => "HTTP/1.0",
            None => "-",
        }
    }

    fn query(&self) -> &[u8] {
        if self.has_query { &self.target[self.path_end + 1..] } else { b"" }
    }

    /// The user of Basic credentials (RFC 7617).
    fn user(&self) -> Option<Vec<u8>> {
        let value = self.field(b"authorization")?;
        let (scheme, credentials) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(credentials.trim_ascii()).ok()?;
        let colon = decoded.iter().position(|&b| b == b':')?;
        Some(decoded[..colon].to_vec())
    }
}

/// One piece of a compiled format.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Address,
    Dash,
    User,
    Time,
    RequestLine,
    Method,
    Path,
    Query,
    Protocol,
    Status,
    BytesOrDash,
    Bytes,
    Referer,
    Agent,
    Seconds,
    SecondsDecimal,
    Milliseconds,
    Microseconds,
    Process,
    RequestField(String),
    ResponseField(String),
    Variable(String),
}

/// What became of a request.
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// What the application said; `None` if it did not come to that.
    pub(crate) draft: Option<&'a Draft>,
}

impl Response<'_> {
    /// The server has answered by itself.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { status: refusal.status, body_bytes: 0, draft: None }
    }
}

/// What an access log line is made of.
struct Line<'a> {
    entry: &'a Entry,
    response: Response<'a>,
    environ: Option<&'a Object>,
    /// The number of the call, if it came to one.
    call: Option<u64>,
    took: Duration,
}

enum Shape {
    Text(Vec<Piece>),
    Json,
}

enum Sink {
    Log(Arc<Log>),
    Logger(Py<PyAny>),
}

/// Lines that a logger has still to be given, each with its atoms.
pub(crate) struct LoggerLines {
    pub(crate) logger: Py<PyAny>,
    pub(crate) lines: Vec<(String, Py<PyAny>)>,
}

/// Writes access log lines.
pub(crate) struct AccessLog {
    shape: Shape,
    sink: Sink,
    buffer: Vec<u8>,
    /// Lines that the logger has still to be given, with their atoms.
    pending: Vec<(String, Py<PyAny>)>,
    line: String,
    /// The time of a line is the same for all of a second.
    second: u64,
    time: String,
}

impl AccessLog {
    /// Writes to `log` or to `logger`, in the format `combined`, `json` or of gunicorn's atoms; none if there is neither.
    ///
    /// # Errors
    /// `ValueError` for an unknown atom.
    pub(crate) fn new(log: Option<Arc<Log>>, format: &str, logger: Option<Py<PyAny>>) -> PyResult<Option<Self>> {
        let sink = match (logger, log) {
            (Some(logger), _) => Sink::Logger(logger),
            (None, Some(log)) => Sink::Log(log),
            (None, None) => return Ok(None),
        };
        let shape = match format {
            "json" => Shape::Json,
            "combined" => Shape::Text(compile_named(COMBINED)?),
            format => Shape::Text(compile_named(format)?),
        };
        Ok(Some(Self {
            shape,
            sink,
            buffer: Vec::new(),
            pending: Vec::new(),
            line: String::new(),
            second: u64::MAX,
            time: String::new(),
        }))
    }

    /// Opens the path again, after a rotation. The old file stays in use if that fails.
    ///
    /// # Errors
    /// `OSError` if it cannot be opened.
    pub(crate) fn reopen(&mut self) -> PyResult<()> {
        self.flush();
        match &self.sink {
            Sink::Log(log) => log.reopen(),
            Sink::Logger(_) => Ok(()),
        }
    }

    /// Hands what has collected to the writer.
    pub(crate) fn flush(&mut self) {
        if let Sink::Log(log) = &self.sink
            && !self.buffer.is_empty()
        {
            log.append(&self.buffer, Duration::ZERO);
            self.buffer.clear();
        }
    }

    /// What there is to tell of lines that were dropped.
    pub(crate) fn take_notices(&self, is_last: bool) -> Vec<String> {
        match &self.sink {
            Sink::Log(log) => log.take_notices(is_last),
            Sink::Logger(_) => Vec::new(),
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Lines for the logger, which may be called only while nothing is locked.
    pub(crate) fn take_pending(&mut self, py: Python<'_>) -> Option<LoggerLines> {
        match &self.sink {
            Sink::Logger(logger) if !self.pending.is_empty() => {
                Some(LoggerLines { logger: logger.clone_ref(py), lines: std::mem::take(&mut self.pending) })
            }
            _ => None,
        }
    }

    /// Takes a line in.
    pub(crate) fn write<'a>(
        &mut self,
        py: Python<'_>,
        entry: &'a Entry,
        response: Response<'a>,
        environ: Option<&'a Object>,
        call: Option<u64>,
    ) {
        self.set_time(entry.at);
        let line = Line { entry, response, environ, call, took: entry.begun.elapsed() };
        self.line.clear();
        match &self.shape {
            Shape::Text(pieces) => {
                for piece in pieces {
                    line.push(py, piece, &self.time, &mut self.line);
                }
            }
            Shape::Json => line.push_json(&mut self.line),
        }
        if let Sink::Logger(_) = &self.sink {
            match line.atoms(py, &self.time) {
                Ok(atoms) => self.pending.push((self.line.clone(), atoms.into_any().unbind())),
                Err(error) => error.write_unraisable(py, None),
            }
            return;
        }
        self.buffer.extend_from_slice(self.line.as_bytes());
        self.buffer.push(b'\n');
        if self.buffer.len() > BUFFER {
            self.flush();
        }
    }

    fn set_time(&mut self, at: SystemTime) {
        let second = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second {
            self.second = second;
            self.time = common_log_time(at);
        }
    }
}

/// `[20/Nov/2026:19:00:00 +0000]`, from the date that HTTP writes: `Fri, 20 Nov 2026 19:00:00 GMT`.
fn common_log_time(at: SystemTime) -> String {
    let date = httpdate::fmt_http_date(at);
    format!("[{}/{}/{}:{} +0000]", &date[5..7], &date[8..11], &date[12..16], &date[17..25])
}

/// Refuses a format that a log could not be written in.
///
/// # Errors
/// `ValueError` as [`AccessLog::new`] raises it.
pub(crate) fn check_format(format: &str) -> PyResult<()> {
    match format {
        "json" | "combined" => Ok(()),
        format => compile(format).map(drop).map_err(PyValueError::new_err),
    }
}

/// As [`compile`], with an error that names the argument of the server's constructor.
fn compile_named(format: &str) -> PyResult<Vec<Piece>> {
    compile(format).map_err(|message| PyValueError::new_err(format!("access_log_format: {format:?} {message}")))
}

/// The pieces of a format of atoms. An error is the end of a sentence that begins with the format.
fn compile(format: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        let (text, from) = rest.split_at(percent);
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        if let Some(after) = from.strip_prefix("%%") {
            pieces.push(Piece::Text("%".to_owned()));
            rest = after;
            continue;
        }
        let atom = from.strip_prefix("%(").and_then(|atom| atom.split_once(")s"));
        let Some((name, after)) = atom else {
            let shown: String = from.chars().take(12).collect();
            return Err(format!(
                "is no access log format: {shown:?} is not an atom; an atom looks like %(h)s, and a percent sign is %%"
            ));
        };
        pieces.push(piece(name)?);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

fn piece(name: &str) -> Result<Piece, String> {
    if let Some((name, kind)) = name.strip_prefix('{').and_then(|name| name.split_once('}')) {
        match kind {
            "i" => return Ok(Piece::RequestField(name.to_ascii_lowercase())),
            "o" => return Ok(Piece::ResponseField(name.to_ascii_lowercase())),
            "e" => return Ok(Piece::Variable(name.to_owned())),
            _ => {}
        }
    }
    Ok(match name {
        "h" => Piece::Address,
        "l" => Piece::Dash,
        "u" => Piece::User,
        "t" => Piece::Time,
        "r" => Piece::RequestLine,
        "m" => Piece::Method,
        "U" => Piece::Path,
        "q" => Piece::Query,
        "H" => Piece::Protocol,
        "s" => Piece::Status,
        "b" => Piece::BytesOrDash,
        "B" => Piece::Bytes,
        "f" => Piece::Referer,
        "a" => Piece::Agent,
        "T" => Piece::Seconds,
        "L" => Piece::SecondsDecimal,
        "M" => Piece::Milliseconds,
        "D" => Piece::Microseconds,
        "p" => Piece::Process,
        _ => {
            return Err(format!(
                "is no access log format: there is no atom %({name})s; the atoms are h l u t r m U q H s b B f a T L M \
                 D p and {{NAME}}i, {{NAME}}o, {{NAME}}e"
            ));
        }
    })
}

impl Line<'_> {
    fn push(&self, py: Python<'_>, piece: &Piece, time: &str, out: &mut String) {
        let entry = self.entry;
        // Writing to a String cannot fail.
        let _ = match piece {
            Piece::Text(text) => out.write_str(text),
            Piece::Address => match entry.peer.address {
                Some(address) => write!(out, "{}", address.ip().to_canonical()),
                None => out.write_str("-"),
            },
            Piece::Dash => out.write_str("-"),
            Piece::User => push_escaped(entry.user().as_deref(), out),
            Piece::Time => out.write_str(time),
            Piece::RequestLine => match entry.version {
                None if entry.method.is_empty() => out.write_str("-"),
                version => {
                    let _ = push_escaped(Some(&entry.method), out);
                    out.push(' ');
                    let _ = push_escaped(Some(&entry.target), out);
                    match version {
                        Some(_) => write!(out, " {}", entry.protocol()),
                        None => Ok(()),
                    }
                }
            },
            Piece::Method => push_escaped(Some(&entry.method).filter(|method| !method.is_empty()).map(|m| &**m), out),
            Piece::Path => push_escaped(Some(&entry.target[..entry.path_end]), out),
            Piece::Query => push_escaped(Some(entry.query()), out),
            Piece::Protocol => out.write_str(entry.protocol()),
            Piece::Status => write!(out, "{}", self.response.status),
            Piece::BytesOrDash if self.response.body_bytes == 0 => out.write_str("-"),
            Piece::Bytes | Piece::BytesOrDash => write!(out, "{}", self.response.body_bytes),
            Piece::Referer => push_escaped(entry.field(b"referer"), out),
            Piece::Agent => push_escaped(entry.field(b"user-agent"), out),
            Piece::Seconds => write!(out, "{}", self.took.as_secs()),
            Piece::SecondsDecimal => write!(out, "{:.6}", self.took.as_secs_f64()),
            Piece::Milliseconds => write!(out, "{}", self.took.as_millis()),
            Piece::Microseconds => write!(out, "{}", self.took.as_micros()),
            Piece::Process => write!(out, "<{}>", std::process::id()),
            Piece::RequestField(name) => push_escaped(entry.field(name.as_bytes()), out),
            Piece::ResponseField(name) => push_escaped(self.response_field(name).as_deref(), out),
            Piece::Variable(name) => {
                let value = self.environ.and_then(|environ| variable(py, environ, name));
                push_escaped(value.as_deref().map(str::as_bytes), out)
            }
        };
    }

    /// Fields that the application set, by their names in lower case.
    fn response_fields(&self) -> impl Iterator<Item = (String, Cow<'_, [u8]>)> {
        let length = self.response.draft.and_then(Draft::content_length);
        let length = length.map(|length| ("content-length".to_owned(), Cow::from(length.to_string().into_bytes())));
        let fields = self.response.draft.into_iter().flat_map(Draft::fields);
        let fields = fields.map(|(name, value)| (String::from_utf8_lossy(name).to_ascii_lowercase(), value.into()));
        fields.chain(length)
    }

    fn response_field(&self, wanted: &str) -> Option<Cow<'_, [u8]>> {
        self.response_fields().find(|(name, _)| name == wanted).map(|(_, value)| value)
    }

    /// What the client or a proxy has called the request, or else the number of the call, as in reports; `None` for what
    /// the application was not called for.
    fn request_id(&self) -> Option<String> {
        let given = self.entry.field(b"x-request-id").filter(|given| is_request_id(given));
        let given = given.map(|given| String::from_utf8_lossy(given).into_owned());
        given.or_else(|| self.call.map(|call| call.to_string()))
    }

    /// One object with fixed keys.
    fn push_json(&self, out: &mut String) {
        let entry = self.entry;
        let text = |bytes: &[u8]| serde_json::Value::from(String::from_utf8_lossy(bytes).into_owned());
        let optional = |bytes: Option<&[u8]>| bytes.map_or(serde_json::Value::Null, text);
        let since = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let object = serde_json::json!({
            "time": rfc3339(entry.at, since),
            "remote_addr": entry.peer.address.map(|address| address.ip().to_canonical().to_string()),
            "remote_user": optional(entry.user().as_deref()),
            "method": text(&entry.method),
            "path": text(&entry.target[..entry.path_end]),
            "query": text(entry.query()),
            "protocol": entry.protocol(),
            "status": self.response.status,
            "response_bytes": self.response.body_bytes,
            "duration_us": u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX),
            "host": optional(entry.field(b"host")),
            "referer": optional(entry.field(b"referer")),
            "user_agent": optional(entry.field(b"user-agent")),
            "pid": std::process::id(),
            "request_id": self.request_id(),
        });
        for character in object.to_string().chars() {
            // Legal in JSON, but a terminal obeys them, or shows a line as something else than it is.
            if matches!(character, '\u{7f}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            } else {
                out.push(character);
            }
        }
    }

    /// gunicorn's atoms, for `logging`'s `extra`.
    fn atoms<'py>(&self, py: Python<'py>, time: &str) -> PyResult<Bound<'py, PyDict>> {
        let atoms = PyDict::new(py);
        for name in ["h", "l", "u", "t", "r", "m", "U", "q", "H", "s", "b", "B", "f", "a", "T", "L", "M", "D", "p"] {
            let mut value = String::new();
            self.push(py, &piece(name).map_err(PyValueError::new_err)?, time, &mut value);
            atoms.set_item(name, value)?;
        }
        for field in &entry_fields(self.entry) {
            atoms.set_item(format!("{{{}}}i", field.0), &field.1)?;
        }
        for (name, value) in self.response_fields() {
            atoms.set_item(format!("{{{name}}}o"), escaped(&value))?;
        }
        Ok(atoms)
    }
}

fn entry_fields(entry: &Entry) -> Vec<(String, String)> {
    let fields = entry.fields.iter();
    fields
        .map(|field| {
            let name = String::from_utf8_lossy(field.name(&entry.block)).to_ascii_lowercase();
            (name, escaped(field.value(&entry.block)))
        })
        .collect()
}

/// Whether a request id that somebody else has made is short and plain: then it can do no harm in a log.
pub(crate) fn is_request_id(given: &[u8]) -> bool {
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/+=@".contains(&byte);
    !given.is_empty() && given.len() <= REQUEST_ID_MAX && given.iter().all(is_plain)
}

/// A variable of an environ as text, if it is there.
pub(crate) fn variable(py: Python<'_>, environ: &Object, name: &str) -> Option<String> {
    environ.bind(py).get_item(name).ok().as_ref().map(text)
}

/// A variable as text. The engine is locked, so nothing of the application's may run: what is neither a text nor a number
/// is told by the name of its class.
fn text(value: &Bound<'_, PyAny>) -> String {
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_string_lossy().into_owned();
    }
    let is_plain = value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>();
    if is_plain {
        return value.to_string();
    }
    // SAFETY: the object is live and keeps its type; a type's name is a C string that lives as long as the type.
    let name = unsafe { CStr::from_ptr((*ffi::Py_TYPE(value.as_ptr())).tp_name) };
    format!("<{}>", name.to_string_lossy())
}

/// `2026-11-20T19:00:00.123456Z`, put together from the date that HTTP writes.
pub(crate) fn rfc3339(at: SystemTime, since: Duration) -> String {
    let date = httpdate::fmt_http_date(at);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == &date[8..11]).map_or(0, |index| index + 1);
    format!("{}-{month:02}-{}T{}.{:06}Z", &date[12..16], &date[5..7], &date[17..25], since.subsec_micros())
}

/// [`push_escaped`] into a string of its own.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    let _ = push_escaped(Some(bytes), &mut out);
    out
}

/// Text of a peer, such that it can neither end its quotes nor its line, nor speak to a terminal: Apache's escapes.
/// What is not there is `-`.
fn push_escaped(bytes: Option<&[u8]>, out: &mut String) -> std::fmt::Result {
    let Some(bytes) = bytes else { return out.write_str("-") };
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b'\t' => out.push_str("\\t"),
            0x20..0x7f => out.push(char::from(byte)),
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}
