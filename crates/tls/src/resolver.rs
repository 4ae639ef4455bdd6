//! Selection of the certificate for a handshake.

use crate::identity::Identity;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The ALPN protocol by which an authority requests a challenge's certificate (RFC 8737).
pub(crate) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificates of a listener, by server name.
///
/// A name may have several certificates with keys of different kinds. The client's preference of signature algorithms
/// decides: a client that prefers ML-DSA gets such a certificate, and an old client gets RSA.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    challenges: HashMap<String, Arc<CertifiedKey>>,
    /// The certificates for clients that request no name, or an unknown one: those for the names of the first
    /// certificate.
    default: Vec<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Creates the table for `identities`. The default is the first certificate that does not answer a challenge.
    pub(crate) fn new(identities: &[Identity]) -> Self {
        let mut all = Self::default();
        let mut first_names: Option<&[String]> = None;
        for identity in identities {
            if identity.is_challenge {
                let pairs = identity.names.iter().map(|name| (name.clone(), Arc::clone(&identity.certified)));
                all.challenges.extend(pairs);
                continue;
            }
            for name in &identity.names {
                all.by_name.entry(name.clone()).or_default().push(Arc::clone(&identity.certified));
            }
            // Another certificate for the same names belongs to the default too.
            if *first_names.get_or_insert(&identity.names) == identity.names {
                all.default.push(Arc::clone(&identity.certified));
            }
        }
        all
    }

    /// Returns the certificates for a server name in lower case.
    fn named(&self, name: &str) -> &[Arc<CertifiedKey>] {
        let exact = self.by_name.get(name);
        // A wildcard stands for exactly one label (RFC 9525 section 6.3).
        let wildcard = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
        exact.or_else(wildcard).unwrap_or(&self.default)
    }

    /// Returns the certificate for a client that accepts the signature algorithms `schemes`, in its order of
    /// preference. If the client accepts none of the certificates, it gets the first one; rustls then detects the
    /// mismatch and informs the client.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let candidates = match name {
            Some(name) => self.named(&name.to_ascii_lowercase()),
            None => &self.default,
        };
        let signs =
            |scheme: &SignatureScheme| candidates.iter().find(|each| each.key.choose_scheme(&[*scheme]).is_some());
        schemes.iter().find_map(signs).or(candidates.first()).cloned()
    }

    /// Returns the certificate of a challenge. To validate an IP address, the authority requests its name in
    /// `in-addr.arpa` or `ip6.arpa` (RFC 8738 section 6).
    fn challenge(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let name = name?.to_ascii_lowercase();
        let own_name = |(known, key): (&String, &Arc<CertifiedKey>)| {
            let address: IpAddr = known.parse().ok()?;
            (reverse_name(address) == name).then(|| Arc::clone(key))
        };
        self.challenges.get(&name).cloned().or_else(|| self.challenges.iter().find_map(own_name))
    }

    pub(crate) fn has_challenges(&self) -> bool {
        !self.challenges.is_empty()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut protocols = hello.alpn().into_iter().flatten();
        if protocols.next() == Some(CHALLENGE_PROTOCOL) && protocols.next().is_none() {
            return self.challenge(hello.server_name());
        }
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}

/// Returns the reverse DNS name of an address.
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let digits = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let labels: Vec<_> = digits.map(|digit| format!("{digit:x}")).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}
