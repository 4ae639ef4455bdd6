//! The data of a PROXY protocol header besides the client's address.

use core::net::SocketAddr;

/// Data about a connection from its PROXY protocol header. Text is valid UTF-8; whether its content is true depends on
/// the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The address to which the client connected.
    pub destination: Option<SocketAddr>,
    /// The application protocol that client and proxy negotiated (ALPN).
    pub alpn: Option<Box<[u8]>>,
    /// The host name that the client requested, such as the server name of TLS (SNI).
    pub authority: Option<Box<str>>,
    /// The identifier that the proxy gave to the connection: at most 128 bytes.
    pub unique_id: Option<Box<[u8]>>,
    /// The client's TLS connection; `None` if it used no TLS.
    pub tls: Option<TlsInfo>,
    /// The name of the network namespace.
    pub namespace: Option<Box<str>>,
    /// The fields of types 0xE0 to 0xEF in the order received. Proxy and application agree on their meaning.
    pub custom: Vec<(u8, Box<[u8]>)>,
}

/// The client's TLS connection with the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsInfo {
    /// The version of TLS, such as `TLSv1.3`.
    pub version: Option<Box<str>>,
    /// The cipher suite, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher: Option<Box<str>>,
    /// The common name of the client's certificate.
    pub common_name: Option<Box<str>>,
    /// True if the client presented a certificate, on this connection or an earlier one of the same TLS session.
    pub has_certificate: bool,
    /// True if the client presented a certificate and the proxy verified it.
    pub is_verified: bool,
}
