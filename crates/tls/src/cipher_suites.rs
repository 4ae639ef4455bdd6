//! Names of cipher suites, in the spelling of OpenSSL and of IANA.

use crate::source::Mistake;
use rustls::{CipherSuite, SupportedCipherSuite};

/// OpenSSL's names of the TLS 1.2 cipher suites. OpenSSL uses IANA's names for those of TLS 1.3.
const OPENSSL_NAMES: [(&str, CipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Returns the `supported` suites that `names` allows, in the order of `names`, and the unknown names. `names` is an
/// OpenSSL cipher list, separated by colons, commas or spaces; an empty list allows all suites.
///
/// As in OpenSSL, a list without any suite of a TLS version does not restrict that version.
///
/// # Errors
/// If all names are unknown.
pub fn choose_cipher_suites(
    names: &str,
    supported: &[SupportedCipherSuite],
) -> Result<(Vec<SupportedCipherSuite>, Vec<String>), Mistake> {
    let (mut chosen, mut unknown) = (Vec::new(), Vec::new());
    for name in names.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        match supported.iter().find(|suite| is_called(**suite, name)) {
            Some(suite) if chosen.contains(suite) => {}
            Some(suite) => chosen.push(*suite),
            None => unknown.push(name.to_owned()),
        }
    }
    if chosen.is_empty() && !unknown.is_empty() {
        let known: Vec<_> = supported.iter().map(|suite| name_of(*suite)).collect();
        return Err(Mistake(format!(
            "{names:?} names no cipher suite that there is; write some of {}, with colons between them",
            known.join(", ")
        )));
    }
    for is_tls13 in [false, true] {
        let is_of_version = |suite: &SupportedCipherSuite| suite.tls13().is_some() == is_tls13;
        if !chosen.iter().any(is_of_version) {
            chosen.extend(supported.iter().copied().filter(is_of_version));
        }
    }
    Ok((chosen, unknown))
}

fn is_called(suite: SupportedCipherSuite, name: &str) -> bool {
    let openssl =
        OPENSSL_NAMES.iter().any(|(known, number)| *number == suite.suite() && known.eq_ignore_ascii_case(name));
    openssl || name_of(suite).eq_ignore_ascii_case(name)
}

/// Returns IANA's name. In rustls, the names for TLS 1.3 begin with TLS13.
pub(crate) fn name_of(suite: SupportedCipherSuite) -> &'static str {
    match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or_default(),
    }
}
