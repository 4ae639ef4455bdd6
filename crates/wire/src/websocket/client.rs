//! The client side of the opening handshake (RFC 6455 sections 4.1 and 4.2.2), for the load generator and for tests.

use super::extension::{self, Deflate};
use super::handshake::{accept_key, is_key, line};
use crate::grammar::{is_token, is_value, list, target_end};
use std::fmt;

/// The opening request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The request target.
    pub target: &'a str,
    /// The field Host.
    pub host: &'a str,
    /// The key: 16 random bytes in base64.
    pub key: &'a str,
    /// The subprotocols in order of preference.
    pub subprotocols: &'a [&'a str],
    /// True if permessage-deflate is offered.
    pub deflate: bool,
}

/// The reason why a response does not open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// The status is not 101.
    NotSwitched(u16),
    /// `Upgrade: websocket` is missing.
    UpgradeMissing,
    /// `Connection: Upgrade` is missing.
    ConnectionMissing,
    /// Sec-WebSocket-Accept is missing, or does not match the key.
    AcceptWrong,
    /// A subprotocol that was not offered.
    SubprotocolNotOffered,
    /// Extensions that were not offered, or parameters that contradict the offer.
    ExtensionNotOffered,
}

impl fmt::Display for AnswerFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerFault::NotSwitched(status) => write!(out, "the handshake was answered with status {status}"),
            AnswerFault::UpgradeMissing => out.write_str("the answer does not say Upgrade: websocket"),
            AnswerFault::ConnectionMissing => out.write_str("the answer does not say Connection: Upgrade"),
            AnswerFault::AcceptWrong => out.write_str("Sec-WebSocket-Accept is not that of the key"),
            AnswerFault::SubprotocolNotOffered => out.write_str("the server chose a subprotocol that was not offered"),
            AnswerFault::ExtensionNotOffered => out.write_str("the server chose extensions that were not offered"),
        }
    }
}

impl std::error::Error for AnswerFault {}

/// The negotiated settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The compression of messages; `None` if there is none.
    pub deflate: Option<Deflate>,
    /// The subprotocol, if the server chose one.
    pub subprotocol: Option<String>,
}

impl Offer<'_> {
    /// Appends the request to `out`. Returns false and appends nothing if target, host, key or a subprotocol is
    /// malformed.
    #[must_use]
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        let is_target = !self.target.is_empty() && target_end(self.target.as_bytes(), 0) == self.target.len();
        let are_tokens = self.subprotocols.iter().all(|name| is_token(name.as_bytes()));
        if !(is_target && is_value(self.host.as_bytes()) && is_key(self.key.as_bytes()) && are_tokens) {
            return false;
        }
        out.extend_from_slice(b"GET ");
        out.extend_from_slice(self.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        line(b"Host", self.host.as_bytes(), out);
        out.extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n");
        line(b"Sec-WebSocket-Key", self.key.as_bytes(), out);
        if !self.subprotocols.is_empty() {
            line(b"Sec-WebSocket-Protocol", self.subprotocols.join(", ").as_bytes(), out);
        }
        if self.deflate {
            line(b"Sec-WebSocket-Extensions", extension::OFFER.as_bytes(), out);
        }
        out.extend_from_slice(b"\r\n");
        true
    }

    /// Checks the head of the response. Returns the negotiated settings.
    ///
    /// # Errors
    /// The first rule that the response breaks.
    pub fn judge(&self, status: u16, fields: &[(&[u8], &[u8])]) -> Result<Answer, AnswerFault> {
        if status != 101 {
            return Err(AnswerFault::NotSwitched(status));
        }
        let values = |name: &'static [u8]| {
            fields.iter().filter(move |field| field.0.eq_ignore_ascii_case(name)).map(|field| field.1)
        };
        let lists = |name, member: &[u8]| values(name).flat_map(list).any(|each| each.eq_ignore_ascii_case(member));
        if !lists(b"upgrade", b"websocket") {
            return Err(AnswerFault::UpgradeMissing);
        }
        if !lists(b"connection", b"upgrade") {
            return Err(AnswerFault::ConnectionMissing);
        }
        if !values(b"sec-websocket-accept").eq([accept_key(self.key.as_bytes()).as_bytes()]) {
            return Err(AnswerFault::AcceptWrong);
        }
        let mut chosen = values(b"sec-websocket-protocol");
        let subprotocol = chosen.next();
        let is_offered =
            subprotocol.is_none_or(|chosen| self.subprotocols.iter().any(|name| name.as_bytes() == chosen));
        if !is_offered || chosen.next().is_some() {
            return Err(AnswerFault::SubprotocolNotOffered);
        }
        let mut extensions = Vec::new();
        for value in values(b"sec-websocket-extensions") {
            extension::read(value, &mut extensions).ok_or(AnswerFault::ExtensionNotOffered)?;
        }
        let deflate = extension::agreed(&extensions);
        if !extensions.is_empty() && (deflate.is_none() || !self.deflate) {
            return Err(AnswerFault::ExtensionNotOffered);
        }
        let subprotocol = subprotocol.map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Answer { deflate, subprotocol })
    }
}
