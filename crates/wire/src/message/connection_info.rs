//! The facts of a PROXY protocol header besides the client's address.

use core::net::SocketAddr;

/// Facts about a connection from its PROXY protocol header. Text is UTF-8, as the sender has checked or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The address that the client has connected to.
    pub destination: Option<SocketAddr>,
    /// The application protocol that client and proxy have agreed on (ALPN).
    pub alpn: Option<Box<[u8]>>,
    /// The host name that the client has named, as in TLS's SNI.
    pub authority: Option<Box<str>>,
    /// The proxy's name for the connection: at most 128 bytes.
    pub unique_id: Option<Box<[u8]>>,
    /// The client has used TLS.
    pub tls: Option<TlsInfo>,
    /// The name of the network namespace.
    pub namespace: Option<Box<str>>,
    /// The fields of types 0xE0 to 0xEF, whose meaning proxy and application agree on, in their order.
    pub custom: Vec<(u8, Box<[u8]>)>,
}

/// The facts of a client's TLS connection with the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsInfo {
    /// The version, such as `TLSv1.3`.
    pub version: Option<Box<str>>,
    /// The cipher suite, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher: Option<Box<str>>,
    /// The common name of the client's certificate.
    pub common_name: Option<Box<str>>,
    /// The client has presented a certificate, on this connection or on an earlier one of the same TLS session.
    pub has_certificate: bool,
    /// The certificate has been verified, if the client has presented one.
    pub is_verified: bool,
}
