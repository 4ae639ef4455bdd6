//! The formats of access log lines. Uses no Python.

use crate::text::{common_log_time, escaped, push_escaped, rfc3339};
use base64::Engine as _;
use engine::{Peer, Refusal};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tls::Security;
use wire::message::{Client, Draft, Field, PartialRequestLine, RequestHead, Version, find};

/// The combined format of Apache and gunicorn.
const COMBINED: &str = r#"%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s""#;
/// gunicorn's atoms, without those that carry a name, and two of Kirsch: `S`, the number of the stream, and `W`, the
/// close code of a WebSocket.
const ATOMS: [&str; 21] =
    ["h", "l", "u", "t", "r", "m", "U", "q", "H", "S", "s", "b", "B", "f", "a", "T", "L", "M", "D", "p", "W"];

/// The values that describe the encryption. The syntax is Apache's: `%({SSL_PROTOCOL}x)s`.
const ENCRYPTION: [&str; 5] = ["SSL_PROTOCOL", "SSL_CIPHER", "SSL_GROUP", "SSL_TLS_SNI", "SSL_SESSION_RESUMED"];

const REQUEST_ID_MAX: usize = 128;
/// The maximum number of bytes of a refused request's target that are logged.
const TARGET_MAX: usize = 1024;

/// The data of a request that are kept until its log line is written.
pub(crate) struct Entry {
    pub(super) begun: Instant,
    at: SystemTime,
    /// The client's address; `None` on a Unix socket.
    address: Option<IpAddr>,
    /// True if the client used https; `None` if the server cannot know.
    is_https: Option<bool>,
    /// The host that a trusted proxy names instead of the `Host` field.
    host: Option<Box<[u8]>>,
    method: Box<[u8]>,
    target: Box<[u8]>,
    path_end: usize,
    has_query: bool,
    version: Option<Version>,
    /// The stream number of a request over HTTP/2; `None` otherwise.
    stream: Option<u32>,
    block: Box<[u8]>,
    fields: Box<[Field]>,
    is_cgi: bool,
    /// The properties of the encrypted connection; `None` without TLS.
    security: Option<Arc<Security>>,
}

impl Entry {
    pub(crate) fn new(head: &RequestHead<'_>, peer: Peer, security: Option<&Arc<Security>>) -> Self {
        Self {
            security: security.cloned(),
            begun: Instant::now(),
            at: SystemTime::now(),
            address: address_of(head, peer),
            is_https: head.client.map(|client| client.is_https == Some(true)),
            host: head.client.and_then(|client| client.host.clone()),
            method: head.method.into(),
            target: head.target.raw.into(),
            path_end: head.target.raw.len() - head.target.query.map_or(0, |query| query.len() + 1),
            has_query: head.target.query.is_some(),
            version: Some(head.version),
            stream: head.stream,
            block: head.block.into(),
            fields: head.fields.into(),
            is_cgi: head.is_cgi,
        }
    }

    /// Creates the entry of a refused request, from the part of its request line that could be parsed.
    pub(crate) fn unread(
        peer: Peer,
        security: Option<&Arc<Security>>,
        client: Option<&Client>,
        line: Option<&PartialRequestLine<'_>>,
    ) -> Self {
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
            security: security.cloned(),
            address: address(client, peer),
            is_https: client.map(|client| client.is_https == Some(true)),
            host: None,
            method: method.into(),
            path_end: query.unwrap_or(target.len()),
            has_query: query.is_some(),
            target: target.into(),
            version: line.filter(|_| !is_cut).and_then(|line| line.version),
            stream: None,
            block: Box::default(),
            fields: Box::default(),
            is_cgi: false,
        }
    }

    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        find(&self.fields, &self.block, self.is_cgi, name)
    }

    fn protocol(&self) -> &'static str {
        match self.version {
            Some(Version::Http2) => "HTTP/2.0",
            Some(Version::Http11) => "HTTP/1.1",
            Some(Version::Http10) => "HTTP/1.0",
            None => "-",
        }
    }

    fn query(&self) -> &[u8] {
        if self.has_query { &self.target[self.path_end + 1..] } else { b"" }
    }

    /// Returns a value that describes the encryption, by the name of its variable in Apache's `mod_ssl`.
    fn encryption(&self, name: &str) -> Option<&str> {
        let security = self.security.as_ref()?;
        match name {
            "SSL_PROTOCOL" => Some(security.version_name()),
            "SSL_CIPHER" => Some(security.cipher_name),
            "SSL_GROUP" => security.group_name,
            "SSL_TLS_SNI" => security.server_name.as_deref(),
            "SSL_SESSION_RESUMED" => Some(if security.is_resumed { "Resumed" } else { "Initial" }),
            _ => None,
        }
    }

    /// Returns the user name of Basic credentials (RFC 7617).
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

/// Returns the client's address. For a request from a web server, that is `REMOTE_ADDR` (RFC 3875 section 4.1.8).
fn address_of(head: &RequestHead<'_>, peer: Peer) -> Option<IpAddr> {
    if head.is_cgi && head.client.is_none() {
        return std::str::from_utf8(head.variable(b"REMOTE_ADDR")?).ok()?.parse().ok();
    }
    address(head.client, peer)
}

/// Returns the client's address: the one that a trusted proxy names, or else the peer's.
fn address(client: Option<&Client>, peer: Peer) -> Option<IpAddr> {
    client.map_or_else(|| peer.address.map(|address| address.ip().to_canonical()), |client| client.address)
}

/// A piece of a compiled format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
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
    Stream,
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
    CloseCode,
    RequestField(String),
    ResponseField(String),
    Variable(String),
    Encryption(&'static str),
}

/// A compiled format of log lines.
#[derive(Debug)]
pub(super) enum Format {
    Text(Vec<Piece>),
    Json,
}

impl Format {
    /// Compiles the format `combined`, `json`, or one of gunicorn's atoms.
    ///
    /// # Errors
    /// The second half of a sentence that begins with the format and says why the format is invalid.
    pub(super) fn compile(format: &str) -> Result<Self, String> {
        match format {
            "json" => Ok(Self::Json),
            "combined" => compile(COMBINED).map(Self::Text),
            format => compile(format).map(Self::Text),
        }
    }
}

/// The response to a request, as it is logged.
pub(crate) struct LoggedResponse<'a> {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// The head that the application set; `None` if there is none.
    pub(crate) draft: Option<&'a Draft>,
    /// The close code of the WebSocket that replaced the response; `None` for a response.
    pub(crate) close_code: Option<u16>,
}

impl LoggedResponse<'_> {
    /// Returns the log data of a response that the server itself sent.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { status: refusal.status, body_bytes: 0, draft: None, close_code: None }
    }
}

/// The data of one access log line.
pub(super) struct Line<'a> {
    pub(super) entry: &'a Entry,
    pub(super) response: LoggedResponse<'a>,
    /// Returns a variable of the request's environ or scope by name.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The number of the call; `None` if the application was not called.
    pub(super) call: Option<u64>,
    pub(super) took: Duration,
}

/// The formatted time of a line, cached because all lines of one second share it.
#[derive(Debug)]
pub(super) struct LineTime {
    second: u64,
    text: String,
}

impl Default for LineTime {
    fn default() -> Self {
        Self { second: u64::MAX, text: String::new() }
    }
}

impl LineTime {
    pub(super) fn of(&mut self, entry: &Entry) -> &str {
        let second = entry.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second {
            self.second = second;
            self.text = common_log_time(entry.at);
        }
        &self.text
    }
}

/// Compiles a format of atoms. An error is the second half of a sentence that begins with the format.
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
            "x" => {
                let known = ENCRYPTION.into_iter().find(|known| *known == name);
                return known.map(Piece::Encryption).ok_or_else(|| {
                    let names = ENCRYPTION.join(", ");
                    format!("is no access log format: there is no value {{{name}}}x; the values of TLS are {names}")
                });
            }
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
        "S" => Piece::Stream,
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
        "W" => Piece::CloseCode,
        _ => {
            return Err(format!(
                "is no access log format: there is no atom %({name})s; the atoms are h l u t r m U q H S s b B f a T L \
                 M D p W and {{NAME}}i, {{NAME}}o, {{NAME}}e, {{NAME}}x"
            ));
        }
    })
}

impl Line<'_> {
    /// Appends the line in this format; `time` is the [`LineTime`] of its entry.
    pub(super) fn push(&self, format: &Format, time: &str, out: &mut String) {
        match format {
            Format::Text(pieces) => pieces.iter().for_each(|piece| self.push_piece(piece, time, out)),
            Format::Json => self.push_json(out),
        }
    }

    fn push_piece(&self, piece: &Piece, time: &str, out: &mut String) {
        let entry = self.entry;
        // Writing to a String cannot fail.
        let _ = match piece {
            Piece::Text(text) => out.write_str(text),
            Piece::Address => match entry.address {
                Some(address) => write!(out, "{address}"),
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
            Piece::Stream => match entry.stream {
                Some(stream) => write!(out, "{stream}"),
                None => out.write_str("-"),
            },
            Piece::Status => write!(out, "{}", self.response.status),
            Piece::BytesOrDash if self.response.body_bytes == 0 => out.write_str("-"),
            Piece::Bytes | Piece::BytesOrDash => write!(out, "{}", self.response.body_bytes),
            Piece::Referer => push_escaped(entry.field(b"referer"), out),
            Piece::Agent => push_escaped(entry.field(b"user-agent"), out),
            Piece::Seconds => write!(out, "{}", self.took.as_secs()),
            Piece::SecondsDecimal => write!(out, "{:.6}", self.took.as_secs_f64()),
            Piece::Milliseconds => write!(out, "{}", self.took.as_millis()),
            Piece::Microseconds => write!(out, "{}", self.took.as_micros()),
            Piece::CloseCode => match self.response.close_code {
                Some(code) => write!(out, "{code}"),
                None => out.write_str("-"),
            },
            Piece::Process => write!(out, "<{}>", std::process::id()),
            Piece::RequestField(name) => push_escaped(entry.field(name.as_bytes()), out),
            Piece::ResponseField(name) => push_escaped(self.response_field(name).as_deref(), out),
            Piece::Encryption(name) => push_escaped(entry.encryption(name).map(str::as_bytes), out),
            Piece::Variable(name) => push_escaped((self.variable)(name).as_deref().map(str::as_bytes), out),
        };
    }

    /// Returns the header fields that the application set, with names in lower case.
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

    /// Returns the request id that the client or a proxy sent, or else the number of the call, as in reports; `None` if
    /// there is neither.
    fn request_id(&self) -> Option<String> {
        let given = self.entry.field(b"x-request-id").filter(|given| is_request_id(given));
        let given = given.map(|given| String::from_utf8_lossy(given).into_owned());
        given.or_else(|| self.call.map(|call| call.to_string()))
    }

    /// Appends the line as a JSON object with fixed keys.
    fn push_json(&self, out: &mut String) {
        let entry = self.entry;
        let text = |bytes: &[u8]| serde_json::Value::from(String::from_utf8_lossy(bytes).into_owned());
        let optional = |bytes: Option<&[u8]>| bytes.map_or(serde_json::Value::Null, text);
        let since = entry.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut object = serde_json::json!({
            "time": rfc3339(entry.at, since),
            "remote_addr": entry.address.map(|address| address.to_string()),
            "remote_user": optional(entry.user().as_deref()),
            "method": text(&entry.method),
            "path": text(&entry.target[..entry.path_end]),
            "query": text(entry.query()),
            "protocol": entry.protocol(),
            "status": self.response.status,
            "response_bytes": self.response.body_bytes,
            "duration_us": u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX),
            "host": optional(entry.host.as_deref().or_else(|| entry.field(b"host"))),
            "referer": optional(entry.field(b"referer")),
            "user_agent": optional(entry.field(b"user-agent")),
            "pid": std::process::id(),
            "request_id": self.request_id(),
        });
        if let Some(code) = self.response.close_code {
            object["websocket_close_code"] = code.into();
        }
        if let Some(stream) = entry.stream {
            object["stream"] = stream.into();
        }
        if let Some(is_https) = entry.is_https {
            object["scheme"] = if is_https { "https" } else { "http" }.into();
        }
        let named = entry.field(b"traceparent").and_then(trace_id);
        let begun_here = if named.is_none() { (self.variable)("kirsch.traceparent") } else { None };
        if let Some(id) = named.or_else(|| begun_here.as_deref().and_then(|field| trace_id(field.as_bytes()))) {
            object["trace_id"] = id.into();
        }
        if entry.security.is_some() {
            let names = ["tls_version", "tls_cipher", "tls_group", "tls_server_name"];
            for (key, name) in names.into_iter().zip(ENCRYPTION) {
                object[key] = entry.encryption(name).into();
            }
            object["tls_resumed"] = (entry.encryption("SSL_SESSION_RESUMED") == Some("Resumed")).into();
        }
        for character in object.to_string().chars() {
            // These characters are legal in JSON, but a terminal obeys them or displays the line misleadingly.
            if matches!(character, '\u{7f}'..='\u{9f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            } else {
                out.push(character);
            }
        }
    }

    /// Returns gunicorn's atoms with their values. A record of `logging` has them as its attributes (`extra`).
    pub(super) fn atoms(&self, time: &str) -> Vec<(String, String)> {
        let mut atoms = Vec::new();
        for name in ATOMS {
            let mut value = String::new();
            if let Ok(piece) = piece(name) {
                self.push_piece(&piece, time, &mut value);
            }
            atoms.push((name.to_owned(), value));
        }
        for name in ENCRYPTION {
            atoms.push((
                format!("{{{name}}}x"),
                self.entry.encryption(name).map_or("-".to_owned(), |value| escaped(value.as_bytes())),
            ));
        }
        let Entry { fields, block, .. } = self.entry;
        atoms.extend(fields.iter().map(|field| {
            let name = String::from_utf8_lossy(field.name(block)).to_ascii_lowercase();
            (format!("{{{name}}}i"), escaped(field.value(block)))
        }));
        atoms.extend(self.response_fields().map(|(name, value)| (format!("{{{name}}}o"), escaped(&value))));
        atoms
    }
}

/// Returns true if the sender of a traceparent field samples the trace; `None` if the field is invalid.
pub(crate) fn samples_trace(field: &[u8]) -> Option<bool> {
    trace_id(field)?;
    let flags = std::str::from_utf8(field.get(53..55)?).ok()?;
    Some(u8::from_str_radix(flags, 16).ok()? & 1 == 1)
}

/// Returns the trace id of a traceparent field; `None` if the field is invalid (W3C Trace Context, section 3.2).
fn trace_id(field: &[u8]) -> Option<&str> {
    let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = field.splitn(5, |&byte| byte == b'-');
    let (version, id, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // A later version may have more parts.
    let is_known = version == b"00";
    let is_complete = [(version, 2), (id, 32), (parent, 16), (flags, 2)]
        .iter()
        .all(|(part, length)| part.len() == *length && is_hex(part));
    let is_valid = is_complete && version != b"ff" && !(is_known && parts.next().is_some());
    let is_zero = |part: &[u8]| part.iter().all(|&byte| byte == b'0');
    std::str::from_utf8(id).ok().filter(|_| is_valid && !is_zero(id) && !is_zero(parent))
}

/// Returns true if a request id from a client or proxy is short and has only harmless characters, so it may be logged.
pub(crate) fn is_request_id(given: &[u8]) -> bool {
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:/+=@".contains(&byte);
    !given.is_empty() && given.len() <= REQUEST_ID_MAX && given.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use wire::http1::Receiver;
    use wire::message::Limits;

    fn entry() -> Entry {
        let request = b"GET /a?q=1 HTTP/1.1\r\nHost: h\r\nUser-Agent: a \"b\"\r\nX-Request-ID: r-1\r\n\r\n";
        let (mut receiver, mut fields) = (Receiver::default(), Vec::new());
        let head = receiver.head(request, &mut fields, &Limits::default()).unwrap().unwrap();
        let peer = Peer { address: Some(SocketAddr::from(([127, 0, 0, 1], 5))), listener: 0 };
        let security = Security {
            version: 0x0304,
            cipher_suite: 0x1301,
            cipher_name: "TLS_AES_128_GCM_SHA256",
            group_name: Some("X25519"),
            server_name: Some("example.org".into()),
            client_certificates: Vec::new(),
            is_resumed: true,
        };
        let mut entry = Entry::new(&head.request, peer, Some(&Arc::new(security)));
        entry.at = UNIX_EPOCH + Duration::from_micros(1_784_808_000_123_456);
        // The grammar allows no such byte in a target, but the logged target of a refused request may have one.
        entry.target = (*b"/a\x1b?q=1").into();
        entry.path_end = 3;
        entry
    }

    fn line(format: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
        let entry = entry();
        let format = Format::compile(format).unwrap();
        let response = LoggedResponse { status: 200, body_bytes: 0, draft: None, close_code: None };
        let line = Line { entry: &entry, response, variable, call: Some(7), took: Duration::from_micros(1_500_250) };
        let (mut time, mut out) = (LineTime::default(), String::new());
        line.push(&format, time.of(&entry), &mut out);
        out
    }

    #[test]
    fn test_combined_line_has_the_form_that_tools_read() {
        assert_eq!(
            line("combined", &|_| None),
            r#"127.0.0.1 - - [23/Jul/2026:12:00:00 +0000] "GET /a\x1b?q=1 HTTP/1.1" 200 - "-" "a \"b\"""#
        );
    }

    #[test]
    fn test_atoms_show_parts_times_and_variables() {
        let variable = |name: &str| (name == "REMOTE_USER").then(|| "eve".to_owned());
        let format =
            "%(m)s %(U)s %(q)s %(B)s %(T)s %(L)s %(M)s %(D)s %({x-request-id}i)s %({REMOTE_USER}e)s %({X}e)s 1%%";
        assert_eq!(line(format, &variable), r"GET /a\x1b q=1 0 1 1.500250 1500 1500250 r-1 eve - 1%");
    }

    #[test]
    fn test_atoms_show_the_encryption() {
        let format =
            "%({SSL_PROTOCOL}x)s %({SSL_CIPHER}x)s %({SSL_GROUP}x)s %({SSL_TLS_SNI}x)s %({SSL_SESSION_RESUMED}x)s";
        assert_eq!(line(format, &|_| None), "TLSv1.3 TLS_AES_128_GCM_SHA256 X25519 example.org Resumed");
        let unknown = Format::compile("%({SSL_NOTHING}x)s").unwrap_err();
        assert!(unknown.contains("the values of TLS are SSL_PROTOCOL"), "{unknown}");
    }

    #[test]
    fn test_json_line_is_one_object_that_no_terminal_obeys() {
        let line = line("json", &|_| None);
        assert!(!line.contains('\u{1b}') && !line.contains('\n'));
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["time"], "2026-07-23T12:00:00.123456Z");
        assert_eq!(object["path"], "/a\u{1b}");
        assert_eq!(object["request_id"], "r-1");
        assert_eq!(object["duration_us"], 1_500_250);
        assert_eq!(object["tls_version"], "TLSv1.3");
        assert_eq!(object["tls_server_name"], "example.org");
        assert_eq!(object["tls_resumed"], true);
    }

    #[test]
    fn test_format_that_is_none_says_what_is_wrong() {
        let unknown = Format::compile("%(nothing)s").unwrap_err();
        assert!(unknown.contains("there is no atom %(nothing)s"), "{unknown}");
        let lonely = Format::compile("50% done").unwrap_err();
        assert!(lonely.contains("a percent sign is %%"), "{lonely}");
    }

    #[test]
    fn test_every_listed_atom_compiles() {
        for atom in ATOMS {
            assert!(piece(atom).is_ok(), "{atom}");
        }
    }

    #[test]
    fn test_trace_id_is_that_of_a_valid_field() {
        const ID: &str = "0af7651916cd43dd8448eb211c80319c";
        let field = |version: &str, id: &str, rest: &str| format!("{version}-{id}-b7ad6b7169203331-01{rest}");
        for valid in [field("00", ID, ""), field("01", ID, ""), field("cc", ID, "-more")] {
            assert_eq!(trace_id(valid.as_bytes()), Some(ID), "{valid}");
        }
        let zero = "0".repeat(32);
        for invalid in [
            String::new(),
            field("00", ID, "-more"),
            field("ff", ID, ""),
            field("0", ID, ""),
            field("00", &zero, ""),
            field("00", &ID.to_uppercase(), ""),
            field("00", &ID[1..], ""),
            format!("00-{ID}-0000000000000000-01"),
            format!("00-{ID}"),
        ] {
            assert_eq!(trace_id(invalid.as_bytes()), None, "{invalid}");
        }
    }

    #[test]
    fn test_request_id_is_plain_and_short() {
        assert!(is_request_id(b"a-1_2.3~:/+=@"));
        for given in [&b""[..], b"a b", b"a\nb", &[b'a'; REQUEST_ID_MAX + 1]] {
            assert!(!is_request_id(given));
        }
    }
}
