//! The choice of the certificate for a handshake.

use crate::identity::Identity;
use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The protocol name with which an authority asks for a challenge's certificate (RFC 8737).
pub(crate) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificates of a listener, by the names of servers.
///
/// A name may have several, with keys of different kinds. The client's order of signature algorithms decides: a client
/// that offers ML-DSA first gets such a certificate, and an old one RSA.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    challenges: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that ask for no name, or for an unknown one: those of the first certificate's names.
    default: Vec<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Returns those of `identities`. The first one that is no challenge is the default.
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
            // A second key of the same names belongs to the default too.
            if *first_names.get_or_insert(&identity.names) == identity.names {
                all.default.push(Arc::clone(&identity.certified));
            }
        }
        all
    }

    /// Returns the certificates for a server name, in lower case.
    fn named(&self, name: &str) -> &[Arc<CertifiedKey>] {
        let exact = self.by_name.get(name);
        // A star stands for exactly one label (RFC 9525 section 6.3).
        let wildcard = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
        exact.or_else(wildcard).unwrap_or(&self.default)
    }

    /// Returns the certificate for a client that verifies signatures of `schemes`, in its order. If it verifies none of
    /// the certificates, or supports no cipher suite, it gets the first: rustls finds that out, and tells the client.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let candidates = match name {
            Some(name) => self.named(&name.to_ascii_lowercase()),
            None => &self.default,
        };
        let signs =
            |scheme: &SignatureScheme| candidates.iter().find(|each| each.key.choose_scheme(&[*scheme]).is_some());
        schemes.iter().find_map(signs).or(candidates.first()).cloned()
    }

    /// Returns the certificate of a challenge. For an address the client asks for the name in `in-addr.arpa` or
    /// `ip6.arpa` (RFC 8738 section 6).
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

/// Returns the name of an address in the domain name system.
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
