//! Counters of handshakes by result.

use crate::security::Security;
use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// The family and the name of each handshake counter. The families are:
///
/// * `full` and `resumed`: successful handshakes, by TLS version;
/// * `failed`: failed handshakes, by reason;
/// * `cipher` and `group`: successful handshakes, by cipher suite and by key exchange group. The group is `none` for a
///   resumed session of TLS 1.2, which has no key exchange.
pub const HANDSHAKE_COUNTERS: [(&str, &str); 34] = [
    ("full", "TLSv1.2"),
    ("full", "TLSv1.3"),
    ("resumed", "TLSv1.2"),
    ("resumed", "TLSv1.3"),
    ("failed", "abandoned"),
    ("failed", "alert"),
    ("failed", "certificate_refused"),
    ("failed", "client_certificate"),
    ("failed", "no_certificate"),
    ("failed", "no_common_cipher"),
    ("failed", "no_common_protocol"),
    ("failed", "no_common_version"),
    ("failed", "not_tls"),
    ("failed", "other"),
    ("failed", "plain_http"),
    ("cipher", "TLS_AES_128_GCM_SHA256"),
    ("cipher", "TLS_AES_256_GCM_SHA384"),
    ("cipher", "TLS_CHACHA20_POLY1305_SHA256"),
    ("cipher", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("cipher", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("cipher", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("cipher", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("cipher", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("cipher", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("cipher", "other"),
    ("group", "X25519MLKEM768"),
    ("group", "secp256r1MLKEM768"),
    ("group", "MLKEM768"),
    ("group", "MLKEM1024"),
    ("group", "X25519"),
    ("group", "secp256r1"),
    ("group", "secp384r1"),
    ("group", "none"),
    ("group", "other"),
];

/// The reason why a handshake failed: one of the names in [`HANDSHAKE_COUNTERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The client closed the connection, or missed the deadline.
    Abandoned,
    /// The client sent an alert that does not concern the server's certificate.
    Alert,
    /// The client does not accept the server's certificate.
    CertificateRefused,
    /// The client presented no certificate although one is required, or an invalid one.
    ClientCertificate,
    /// The server has no certificate for the requested name.
    NoCertificate,
    /// Client and server have no cipher suite, group or signature algorithm in common.
    NoCommonCipher,
    /// Client and server have no application protocol in common (ALPN).
    NoCommonProtocol,
    /// Client and server have no TLS version in common.
    NoCommonVersion,
    /// The client does not speak TLS.
    NotTls,
    /// Another error, such as a broken rule of the protocol.
    Other,
    /// The client speaks HTTP without TLS.
    PlainHttp,
}

impl FailureKind {
    fn name(self) -> &'static str {
        match self {
            Self::Abandoned => "abandoned",
            Self::Alert => "alert",
            Self::CertificateRefused => "certificate_refused",
            Self::ClientCertificate => "client_certificate",
            Self::NoCertificate => "no_certificate",
            Self::NoCommonCipher => "no_common_cipher",
            Self::NoCommonProtocol => "no_common_protocol",
            Self::NoCommonVersion => "no_common_version",
            Self::NotTls => "not_tls",
            Self::Other => "other",
            Self::PlainHttp => "plain_http",
        }
    }
}

/// The values of [`HANDSHAKE_COUNTERS`] in the same order.
pub type HandshakeCounts = [u64; HANDSHAKE_COUNTERS.len()];

/// The handshake counters that the sessions of an acceptor share.
#[derive(Debug)]
pub(crate) struct Counters {
    values: [AtomicU64; HANDSHAKE_COUNTERS.len()],
    /// The number of counted handshakes.
    total: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self { values: array::from_fn(|_| AtomicU64::new(0)), total: AtomicU64::new(0) }
    }
}

impl Counters {
    /// Counts a successful handshake.
    pub(crate) fn count(&self, security: &Security) {
        self.add(if security.is_resumed { "resumed" } else { "full" }, security.version_name());
        self.add("cipher", security.cipher_name);
        self.add("group", security.group_name.unwrap_or("none"));
        self.total.fetch_add(1, Ordering::Release);
    }

    /// Counts a failed handshake.
    pub(crate) fn count_failure(&self, kind: FailureKind) {
        self.add("failed", kind.name());
        self.total.fetch_add(1, Ordering::Release);
    }

    /// Increments a counter, or `other` of the family if the name is unknown. Compared with a handshake, the cost of
    /// the linear search is negligible.
    fn add(&self, family: &str, name: &str) {
        let place = |name| HANDSHAKE_COUNTERS.iter().position(|counter| *counter == (family, name));
        if let Some(index) = place(name).or_else(|| place("other")) {
            self.values[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of handshakes so far, successful or not.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Acquire)
    }

    /// Returns the values of the counters.
    pub(crate) fn counts(&self) -> HandshakeCounts {
        array::from_fn(|index| self.values[index].load(Ordering::Relaxed))
    }
}
