//! The server side of the opening handshake (RFC 6455 section 4.2, RFC 8441 section 5).

use super::extension::{self, Deflate, DeflateSettings, Extension};
use super::fault::WebSocketRefusal;
use crate::grammar::{is_token, is_value, list};
use crate::message::{BodyLength, Draft, Page, RequestHead, Stamp, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1_smol::Sha1;
use std::fmt;

/// The constant that is hashed together with the client's key (RFC 6455 section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The protocol that carries a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// HTTP/1.1: GET with Upgrade, and a key (RFC 6455).
    Http1,
    /// HTTP/2 or HTTP/3: CONNECT with `:protocol = websocket`, which the protocol has checked. It has no key (RFC
    /// 8441).
    Connect,
}

/// Returns true if a request asks for WebSocket. Then it must be read by [`Opening::read`], and refused if that fails.
/// Always false for HTTP/1.0, whose Upgrade must be ignored (RFC 9110 section 7.8).
#[must_use]
pub fn wants_websocket(head: &RequestHead<'_>) -> bool {
    head.is_websocket || wants_upgrade(head)
}

fn wants_upgrade(head: &RequestHead<'_>) -> bool {
    !head.is_cgi
        && head.version != Version::Http10
        && values(head, b"upgrade").flat_map(list).any(|name| name.eq_ignore_ascii_case(b"websocket"))
}

/// A client's opening handshake, borrowed from the head of its request.
#[derive(Clone, Debug)]
pub struct Opening<'a> {
    /// The client's key; `None` if the carrier has none.
    key: Option<&'a [u8]>,
    subprotocols: Vec<&'a str>,
    extensions: Vec<Extension<'a>>,
}

/// The negotiated settings, and the response fields that declare them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The compression of messages; `None` if there is none.
    pub deflate: Option<Deflate>,
    /// The response fields of the handshake. Names are in lower case, as in HTTP/2. HTTP/1.1 also needs `connection`
    /// and `upgrade`.
    pub fields: Vec<(&'static str, String)>,
}

/// A rule that the application's acceptance breaks. No byte of it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptMisuse {
    /// A subprotocol that the client does not offer.
    SubprotocolNotOffered,
    /// A field that belongs to the handshake or to the connection.
    FieldReserved,
    /// A field name that is not a token.
    NameInvalid,
    /// A field value with a control character.
    ValueInvalid,
}

impl fmt::Display for AcceptMisuse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            AcceptMisuse::SubprotocolNotOffered => {
                "the subprotocol must be one of those that the client offers, or None"
            }
            AcceptMisuse::FieldReserved => {
                "this header belongs to the handshake or the connection, which are the server's: leave it out, and give \
                 the subprotocol as such"
            }
            AcceptMisuse::NameInvalid => "a header name must be a token: letters, digits and !#$%&'*+-.^_`|~",
            AcceptMisuse::ValueInvalid => "a header value must not contain control characters such as CR, LF or NUL",
        })
    }
}

impl std::error::Error for AcceptMisuse {}

impl<'a> Opening<'a> {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// The first rule that the request breaks. The response to it is [`WebSocketRefusal::draft`].
    pub fn read(head: &RequestHead<'a>, carrier: Carrier) -> Result<Self, WebSocketRefusal> {
        let key = match carrier {
            Carrier::Http1 => Some(check_http1(head)?),
            Carrier::Connect if head.method == b"CONNECT" => None,
            Carrier::Connect => return Err(WebSocketRefusal::MethodNotAllowed),
        };
        match only(head, b"sec-websocket-version", WebSocketRefusal::VersionRepeated)? {
            Some(b"13") => {}
            _ => return Err(WebSocketRefusal::VersionUnsupported),
        }
        let mut subprotocols = Vec::new();
        for name in values(head, b"sec-websocket-protocol").flat_map(list) {
            let text = str::from_utf8(name).ok().filter(|_| is_token(name));
            let text = text.filter(|text| !subprotocols.contains(text));
            subprotocols.push(text.ok_or(WebSocketRefusal::SubprotocolsMalformed)?);
        }
        let mut extensions = Vec::new();
        for value in values(head, b"sec-websocket-extensions") {
            extension::read(value, &mut extensions).ok_or(WebSocketRefusal::ExtensionsMalformed)?;
        }
        Ok(Self { key, subprotocols, extensions })
    }

    /// Returns the subprotocols that the client offers, in its order of preference.
    #[must_use]
    pub fn subprotocols(&self) -> &[&'a str] {
        &self.subprotocols
    }

    /// Returns a copy that can be accepted later, when the application has decided. `deflate` is as in
    /// [`agree`](Self::agree).
    #[must_use]
    pub fn keep(&self, deflate: Option<DeflateSettings>) -> PendingOpening {
        let agreement = self.agree(None, deflate).unwrap_or_else(|_| unreachable!("no subprotocol is offered always"));
        PendingOpening { agreement, subprotocols: self.subprotocols.iter().map(|&name| name.into()).collect() }
    }

    /// Accepts the handshake. `deflate` is `None` if messages must not be compressed.
    ///
    /// # Errors
    /// [`AcceptMisuse::SubprotocolNotOffered`].
    pub fn agree(
        &self,
        subprotocol: Option<&str>,
        deflate: Option<DeflateSettings>,
    ) -> Result<Agreement, AcceptMisuse> {
        let mut agreement = Agreement { deflate: None, fields: Vec::with_capacity(3) };
        if let Some(key) = self.key {
            agreement.fields.push(("sec-websocket-accept", accept_key(key)));
        }
        if let Some(name) = subprotocol {
            if !self.subprotocols.contains(&name) {
                return Err(AcceptMisuse::SubprotocolNotOffered);
            }
            agreement.fields.push(("sec-websocket-protocol", name.to_owned()));
        }
        if let Some((deflate, answer)) = deflate.and_then(|settings| extension::choose(&self.extensions, settings)) {
            agreement.deflate = Some(deflate);
            agreement.fields.push(("sec-websocket-extensions", answer));
        }
        Ok(agreement)
    }
}

/// A client's opening handshake, independent of the head that contained it.
#[derive(Clone, Debug)]
pub struct PendingOpening {
    /// The settings without a subprotocol.
    agreement: Agreement,
    subprotocols: Box<[Box<str>]>,
}

impl PendingOpening {
    /// Accepts the handshake like [`Opening::agree`].
    ///
    /// # Errors
    /// [`AcceptMisuse::SubprotocolNotOffered`].
    pub fn agree(&self, subprotocol: Option<&str>) -> Result<Agreement, AcceptMisuse> {
        let mut agreement = self.agreement.clone();
        if let Some(name) = subprotocol {
            if !self.subprotocols.iter().any(|offered| **offered == *name) {
                return Err(AcceptMisuse::SubprotocolNotOffered);
            }
            agreement.fields.push(("sec-websocket-protocol", name.to_owned()));
        }
        Ok(agreement)
    }
}

impl Agreement {
    /// Appends the head of the HTTP/1.1 response to `out`, with the application's `fields`. Frames may follow
    /// immediately.
    ///
    /// # Errors
    /// The [`AcceptMisuse`] of a field; nothing is appended then.
    pub fn write<'f>(
        &self,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Result<(), AcceptMisuse> {
        let start = out.len();
        out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
        for (name, value) in &self.fields {
            let name = match *name {
                "sec-websocket-accept" => "Sec-WebSocket-Accept",
                "sec-websocket-protocol" => "Sec-WebSocket-Protocol",
                _ => "Sec-WebSocket-Extensions",
            };
            line(name.as_bytes(), value.as_bytes(), out);
        }
        let (mut has_date, mut has_server, mut has_transport_security) = (false, false, false);
        for (name, value) in fields {
            if let Err(misuse) = check_field(name, value) {
                out.truncate(start);
                return Err(misuse);
            }
            has_date |= name.eq_ignore_ascii_case(b"date");
            has_server |= name.eq_ignore_ascii_case(b"server");
            has_transport_security |= name.eq_ignore_ascii_case(b"strict-transport-security");
            line(name, value, out);
        }
        if !has_date {
            out.extend_from_slice(&stamp.date);
        }
        if !has_server {
            out.extend_from_slice(&stamp.server);
        }
        if !has_transport_security {
            out.extend_from_slice(&stamp.transport_security);
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

impl Agreement {
    /// Returns the head of the HTTP/2 response, with the application's `fields` (RFC 8441 section 5).
    ///
    /// # Errors
    /// The [`AcceptMisuse`] of a field.
    pub fn draft<'f>(&self, fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>) -> Result<Draft, AcceptMisuse> {
        let mut draft = Draft::default();
        draft.start_code(200).map_err(|_| AcceptMisuse::FieldReserved)?;
        for (name, value) in &self.fields {
            draft.field(name.as_bytes(), value.as_bytes()).map_err(|_| AcceptMisuse::FieldReserved)?;
        }
        for (name, value) in fields {
            check_field(name, value)?;
            draft.field(name, value).map_err(|_| AcceptMisuse::FieldReserved)?;
        }
        Ok(draft)
    }
}

impl WebSocketRefusal {
    /// Returns the head of the error response. Its body is [`text`](Self::text).
    #[must_use]
    pub fn draft(self, text: &str) -> Draft {
        let mut draft = Page::error(self.status(), text, None).draft();
        // A draft accepts neither Upgrade nor Connection as a field, because they belong to the server. Connection must
        // list Upgrade (RFC 9110 section 7.8).
        let lines: &[u8] = match self {
            // The response lists the supported version (RFC 6455 section 4.4).
            WebSocketRefusal::VersionUnsupported => {
                b"Sec-WebSocket-Version: 13\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            }
            WebSocketRefusal::UpgradeMissing => b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
            WebSocketRefusal::MethodNotAllowed => b"Allow: GET\r\n",
            _ => b"",
        };
        draft.bytes.extend_from_slice(lines);
        draft
    }

    /// Returns the body of the error response.
    #[must_use]
    pub fn text(self) -> String {
        Page::text(self.status(), self.explanation())
    }
}

/// Returns the value of Sec-WebSocket-Accept (RFC 6455 section 4.2.2).
pub(super) fn accept_key(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.digest().bytes())
}

/// Checks the rules for HTTP/1 (RFC 6455 section 4.2.1). Returns the key.
fn check_http1<'a>(head: &RequestHead<'a>) -> Result<&'a [u8], WebSocketRefusal> {
    if head.method != b"GET" {
        return Err(WebSocketRefusal::MethodNotAllowed);
    }
    if head.version == Version::Http10 {
        return Err(WebSocketRefusal::VersionOfHttpTooOld);
    }
    if !wants_upgrade(head) {
        return Err(WebSocketRefusal::UpgradeMissing);
    }
    if !values(head, b"connection").flat_map(list).any(|name| name.eq_ignore_ascii_case(b"upgrade")) {
        return Err(WebSocketRefusal::ConnectionMissing);
    }
    if !matches!(head.body, BodyLength::None | BodyLength::Known(0)) {
        return Err(WebSocketRefusal::BodyPresent);
    }
    let key = only(head, b"sec-websocket-key", WebSocketRefusal::KeyRepeated)?.ok_or(WebSocketRefusal::KeyMissing)?;
    if is_key(key) { Ok(key) } else { Err(WebSocketRefusal::KeyInvalid) }
}

/// Returns true if `key` is 16 bytes in base64. The unused bits of the last letter may have any value.
pub(super) fn is_key(key: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    matches!(key, [letters @ .., b'=', b'='] if letters.len() == 22 && letters.iter().all(is_letter))
}

fn values<'a>(head: &RequestHead<'a>, name: &'static [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let (block, fields) = (head.block, head.fields);
    fields.iter().filter(move |field| field.is(block, name)).map(move |field| field.value(block))
}

/// Returns the value of the field `name`; the error `repeated` if it occurs more than once.
fn only<'a>(
    head: &RequestHead<'a>,
    name: &'static [u8],
    repeated: WebSocketRefusal,
) -> Result<Option<&'a [u8]>, WebSocketRefusal> {
    let mut values = values(head, name);
    let first = values.next();
    if values.next().is_some() { Err(repeated) } else { Ok(first) }
}

/// Checks a field that the application adds to the response.
fn check_field(name: &[u8], value: &[u8]) -> Result<(), AcceptMisuse> {
    const RESERVED: [&[u8]; 5] = [b"connection", b"content-length", b"keep-alive", b"transfer-encoding", b"upgrade"];
    if !is_token(name) {
        return Err(AcceptMisuse::NameInvalid);
    }
    if !is_value(value) {
        return Err(AcceptMisuse::ValueInvalid);
    }
    let is_ours = name.get(..14).is_some_and(|start| start.eq_ignore_ascii_case(b"sec-websocket-"));
    if is_ours || RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        return Err(AcceptMisuse::FieldReserved);
    }
    Ok(())
}

pub(super) fn line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}
