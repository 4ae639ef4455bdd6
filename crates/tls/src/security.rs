//! The result of a handshake: the client's identity, and the parameters of the encryption.

use crate::cipher_suites::name_of;
use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use std::sync::Arc;

/// The result of a handshake.
#[derive(Clone, Debug)]
pub struct Security {
    /// The TLS version as encoded in the protocol: 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
    pub version: u16,
    /// The number of the cipher suite (IANA's registry).
    pub cipher_suite: u16,
    /// The name of the cipher suite (IANA's registry).
    pub cipher_name: &'static str,
    /// The name of the key exchange group, such as `X25519MLKEM768`; `None` if the session was resumed without a key
    /// exchange.
    pub group_name: Option<&'static str>,
    /// The server name that the client requested (SNI, RFC 6066 section 3), in lower case.
    pub server_name: Option<Arc<str>>,
    /// The client's certificate chain in DER, its own certificate first; empty if it presented none.
    pub client_certificates: Vec<CertificateDer<'static>>,
    /// True if an earlier session was resumed. Then the certificates are those of that session.
    pub is_resumed: bool,
}

impl Security {
    /// Returns the result of a completed handshake.
    pub(crate) fn of(state: &CommonState, server_name: Option<Arc<str>>) -> Self {
        let suite = state.negotiated_cipher_suite();
        Self {
            version: state.protocol_version().map_or(0, |version: ProtocolVersion| version.into()),
            cipher_suite: suite.map_or(0, |suite: SupportedCipherSuite| suite.suite().into()),
            cipher_name: suite.map_or("", name_of),
            group_name: state.negotiated_key_exchange_group().and_then(|group| group.name().as_str()),
            server_name,
            client_certificates: state.peer_certificates().map(<[_]>::to_vec).unwrap_or_default(),
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Returns the name of the version, as Python's `ssl.SSLSocket.version` does.
    #[must_use]
    pub fn version_name(&self) -> &'static str {
        match self.version {
            0x0303 => "TLSv1.2",
            0x0304 => "TLSv1.3",
            _ => "unknown",
        }
    }
}
