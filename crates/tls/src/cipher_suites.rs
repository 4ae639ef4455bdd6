//! The names of cipher suites, in OpenSSL's spelling and IANA's.

use crate::source::Mistake;
use rustls::{CipherSuite, SupportedCipherSuite};

/// The cipher suites of TLS 1.2 by OpenSSL's names. Those of TLS 1.3 have IANA's names there too.
const OPENSSL_NAMES: [(&str, CipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Returns those of the `supported` suites that `names` allows, in the order of `names`, and the names that are none of
/// them. `names` is a list with colons, commas or spaces, as OpenSSL has it; an empty one allows all.
///
/// As with OpenSSL, a list without a suite of one version of TLS leaves those of that version as they are.
///
/// # Errors
/// If no name is known.
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

/// Returns IANA's name. rustls writes those of TLS 1.3 with a 13 behind TLS.
pub(crate) fn name_of(suite: SupportedCipherSuite) -> &'static str {
    match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or_default(),
    }
}
