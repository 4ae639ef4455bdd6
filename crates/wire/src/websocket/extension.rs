//! Sec-WebSocket-Extensions (RFC 6455 section 9.1) and the parameters of permessage-deflate (RFC 7692 section 7.1).

use super::deflate::{WINDOW_BITS_LEAST, WINDOW_BITS_MOST};
use crate::grammar::{is_space, is_token, token_end};
use std::borrow::Cow;
use std::fmt::Write as _;

const NAME: &[u8] = b"permessage-deflate";

/// An extension in an offer or in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extension<'a> {
    name: &'a [u8],
    parameters: Vec<Parameter<'a>>,
}

type Parameter<'a> = (&'a [u8], Option<Cow<'a, [u8]>>);

/// Appends the extensions in one field value to `found`. Returns `None` if the value is malformed.
pub(super) fn read<'a>(value: &'a [u8], found: &mut Vec<Extension<'a>>) -> Option<()> {
    let mut rest = Text { bytes: value, at: 0 };
    loop {
        rest.skip_space();
        match rest.peek() {
            None => return Some(()),
            // Empty members of a list are skipped (RFC 9110 section 5.6.1.2).
            Some(b',') => rest.at += 1,
            Some(_) => {
                found.push(rest.extension()?);
                rest.skip_space();
                if !matches!(rest.peek(), None | Some(b',')) {
                    return None;
                }
            }
        }
    }
}

struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_here = self.peek() == Some(byte);
        self.at += usize::from(is_here);
        self.skip_space();
        is_here
    }

    fn token(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.at = token_end(self.bytes, start);
        (self.at > start).then(|| &self.bytes[start..self.at])
    }

    fn extension(&mut self) -> Option<Extension<'a>> {
        let mut extension = Extension { name: self.token()?, parameters: Vec::new() };
        while self.takes(b';') {
            let name = self.token()?;
            let value = if self.takes(b'=') { Some(self.value()?) } else { None };
            extension.parameters.push((name, value));
        }
        Some(extension)
    }

    /// Reads a token, or a quoted string whose content is a token.
    fn value(&mut self) -> Option<Cow<'a, [u8]>> {
        if self.peek() != Some(b'"') {
            return self.token().map(Cow::Borrowed);
        }
        self.at += 1;
        let mut value = Vec::new();
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    value.push(self.peek()?);
                }
                byte => value.push(byte),
            }
            self.at += 1;
        }
        self.at += 1;
        is_token(&value).then_some(Cow::Owned(value))
    }
}

/// The parameters of permessage-deflate that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateSettings {
    /// The largest compression window in bits, 9 to 15. Connections share the compressors, so a large window costs no
    /// memory per connection.
    pub window_bits: u8,
    /// The window in bits, 9 to 15, within which the client's messages may refer to earlier ones. Each such connection
    /// stores as many bytes as its window. `None`: messages of the client must not refer to earlier ones.
    pub client_context_bits: Option<u8>,
}

impl Default for DeflateSettings {
    fn default() -> Self {
        Self { window_bits: WINDOW_BITS_MOST, client_context_bits: None }
    }
}

/// The negotiated parameters (RFC 7692 section 7.1) that concern this side.
///
/// Messages of this side never refer to earlier ones; a server announces this to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// The compression window in bits, 9 to 15; `None` if messages are not compressed.
    pub(super) send_bits: Option<u8>,
    /// The window in bits within which the peer's messages may refer to earlier ones; `None` if they must not.
    pub(super) context_bits: Option<u8>,
}

/// The parameters of an offer or a response. Each occurs at most once and has a valid value.
#[derive(Clone, Copy, Debug, Default)]
struct Parameters {
    server_no_context: bool,
    client_no_context: bool,
    server_bits: Option<u8>,
    client_bits: Option<ClientBits>,
}

/// The parameter `client_max_window_bits`.
#[derive(Clone, Copy, Debug)]
enum ClientBits {
    /// The parameter without a value, which is allowed only in an offer.
    Any,
    AtMost(u8),
}

impl Parameters {
    /// Reads the parameters of permessage-deflate. Returns `None` for another extension, and if a parameter is unknown,
    /// invalid or repeated.
    fn read(extension: &Extension<'_>) -> Option<Self> {
        if !extension.name.eq_ignore_ascii_case(NAME) {
            return None;
        }
        let mut parameters = Self::default();
        for (name, value) in &extension.parameters {
            let is_repeated = match (&name.to_ascii_lowercase()[..], value) {
                (b"server_no_context_takeover", None) => std::mem::replace(&mut parameters.server_no_context, true),
                (b"client_no_context_takeover", None) => std::mem::replace(&mut parameters.client_no_context, true),
                (b"server_max_window_bits", Some(value)) => parameters.server_bits.replace(bits(value)?).is_some(),
                (b"client_max_window_bits", value) => {
                    let limit = match value {
                        Some(value) => ClientBits::AtMost(bits(value)?),
                        None => ClientBits::Any,
                    };
                    parameters.client_bits.replace(limit).is_some()
                }
                _ => return None,
            };
            if is_repeated {
                return None;
            }
        }
        Some(parameters)
    }
}

/// Reads a number from 8 to 15 without leading zeros (RFC 7692 section 7.1.2).
fn bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// Chooses the first offer that can be accepted. Returns the negotiated parameters, and the extension for the response.
///
/// Declining an offer is not an error (RFC 7692 section 7).
pub(super) fn choose(offers: &[Extension<'_>], settings: DeflateSettings) -> Option<(Deflate, String)> {
    offers.iter().filter_map(Parameters::read).find_map(|offer| accept(offer, settings))
}

fn accept(offer: Parameters, settings: DeflateSettings) -> Option<(Deflate, String)> {
    let most = settings.window_bits.clamp(WINDOW_BITS_LEAST, WINDOW_BITS_MOST);
    let send_bits = offer.server_bits.map_or(most, |bits| bits.min(most));
    // zlib cannot compress with a window of 8 bits.
    if offer.server_bits.is_some_and(|bits| bits < WINDOW_BITS_LEAST) {
        return None;
    }
    let mut answer = String::from("permessage-deflate; server_no_context_takeover");
    if offer.server_bits.is_some() {
        // Writing to a string does not fail.
        let _ = write!(answer, "; server_max_window_bits={send_bits}");
    }
    let kept = settings.client_context_bits.filter(|_| !offer.client_no_context);
    let context_bits = kept.and_then(|most| {
        let most = most.clamp(WINDOW_BITS_LEAST, WINDOW_BITS_MOST);
        match offer.client_bits {
            Some(ClientBits::Any) => Some(most),
            Some(ClientBits::AtMost(offered)) => Some(offered.min(most)),
            // The client does not accept a limit, so it may use the largest window.
            None => (most == WINDOW_BITS_MOST).then_some(most),
        }
    });
    match context_bits {
        None => answer.push_str("; client_no_context_takeover"),
        Some(bits) if offer.client_bits.is_some() => {
            let _ = write!(answer, "; client_max_window_bits={bits}");
        }
        Some(_) => {}
    }
    Some((Deflate { send_bits: Some(send_bits), context_bits }, answer))
}

/// The offer of this crate's client. The server may limit both windows.
pub(super) const OFFER: &str = "permessage-deflate; client_max_window_bits";

/// Returns the parameters with which a server accepts [`OFFER`]; `None` if its response is invalid.
pub(super) fn agreed(answer: &[Extension<'_>]) -> Option<Deflate> {
    let [extension] = answer else { return None };
    let parameters = Parameters::read(extension)?;
    let send_bits = match parameters.client_bits {
        None => Some(WINDOW_BITS_MOST),
        Some(ClientBits::Any) => return None,
        Some(ClientBits::AtMost(bits)) => Some(bits).filter(|&bits| bits >= WINDOW_BITS_LEAST),
    };
    let window = parameters.server_bits.unwrap_or(WINDOW_BITS_MOST);
    Some(Deflate { send_bits, context_bits: (!parameters.server_no_context).then_some(window) })
}
