//! Certificates with their keys, and the check that they belong together.

use crate::description::{Description, Parsed, kind_of_key};
use crate::pem;
use crate::source::{Mistake, Source};
use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SigningKey};
use std::fmt;
use std::sync::Arc;

/// The supported kinds of keys, for messages.
const SUPPORTED: &str = "RSA with 2048 to 8192 bits, EC P-256, P-384 or P-521, Ed25519, ML-DSA";

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The certificate, followed by the certificates of its issuers.
    pub chain: Source,
    /// The private key. It is the same file as `chain` if that contains both.
    pub key: Source,
    /// The password of the key, if it is encrypted.
    pub password: Option<Vec<u8>>,
    /// The server names for which the certificate is used. If empty, the names in the certificate are used.
    pub names: Vec<String>,
    /// True if the certificate serves only to answer a TLS-ALPN-01 challenge (RFC 8737).
    pub is_challenge: bool,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Identity {
    /// The path of the certificate file.
    pub path: String,
    /// The description of the certificate.
    pub description: Description,
    /// The server names for which the certificate is used, in lower case.
    pub names: Vec<String>,
    /// Probable mistakes that do not prevent the use of the certificate, each in one line.
    pub warnings: Vec<String>,
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) is_challenge: bool,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("path", &self.path).field("names", &self.names).finish_non_exhaustive()
    }
}

impl Identity {
    /// Returns true if the certificate serves only to answer a TLS-ALPN-01 challenge.
    #[must_use]
    pub fn is_challenge(&self) -> bool {
        self.is_challenge
    }

    /// Reads a certificate and its key. `now` is the Unix time in seconds.
    ///
    /// # Errors
    /// If they cannot be used together.
    pub fn read(files: &CertificateFiles, provider: &CryptoProvider, now: u64) -> Result<Self, Mistake> {
        let CertificateFiles { chain, key, .. } = files;
        let certificates = pem::certificates(chain)?;
        let parse = |(index, der)| {
            let damaged = |error| chain.mistake(format_args!("certificate {} is damaged: {error}", index + 1));
            Parsed::new(der).map_err(damaged)
        };
        let parsed = certificates.iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>()?;
        let signing_key = load_key(files, provider)?;
        check_pair(chain, key, &parsed, &*signing_key)?;
        let description = parsed[0].describe();
        let names = if files.names.is_empty() { &description.names } else { &files.names };
        Ok(Self {
            path: chain.path.clone(),
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            warnings: if files.is_challenge { Vec::new() } else { warnings(chain, &parsed, &description, now) },
            description,
            certified: Arc::new(CertifiedKey::new(certificates, signing_key)),
            is_challenge: files.is_challenge,
        })
    }
}

fn load_key(files: &CertificateFiles, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, Mistake> {
    let der = pem::private_key(&files.key, files.password.as_deref())?;
    provider.key_provider.load_private_key(der).map_err(|_| {
        files.key.mistake(format_args!(
            "keys of this kind cannot be used ({SUPPORTED} can); openssl pkey -in {} -noout -text shows its kind",
            files.key.path
        ))
    })
}

/// Checks that the key belongs to the first certificate. Without this check, each handshake would fail.
fn check_pair(chain: &Source, key: &Source, parsed: &[Parsed], signing_key: &dyn SigningKey) -> Result<(), Mistake> {
    let Some(public) = signing_key.public_key() else { return Ok(()) };
    let Some(position) = parsed.iter().position(|each| each.has_key(&public)) else {
        return Err(key.mistake(format_args!(
            "the key ({}) is not that of the certificate {} ({}); openssl pkey -in {} -pubout and openssl x509 -in \
             {1} -noout -pubkey have to print the same",
            kind_of_key(&public),
            chain.path,
            parsed[0].key_kind(),
            key.path
        )));
    };
    if position > 0 {
        return Err(chain.mistake(format_args!(
            "the order is wrong: the certificate of the key ({}) is number {} and has to be the first; write it anew: \
             cat CERTIFICATE ISSUERS > {}",
            parsed[position].subject(),
            position + 1,
            chain.path
        )));
    }
    Ok(())
}

fn warnings(chain: &Source, parsed: &[Parsed], description: &Description, now: u64) -> Vec<String> {
    let leaf = &parsed[0];
    let mut found = Vec::new();
    if now >= description.not_after {
        found.push(format!("it expired at {}; renew it (certbot renew, or whatever has made it)", leaf.not_after()));
    } else if now < description.not_before {
        let from = leaf.not_before();
        found.push(format!("it is not valid before {from}; wait, or correct the clock of this machine (timedatectl)"));
    }
    if description.names.is_empty() {
        found.push(
            "it names no host (subjectAltName), and clients accept none without; have it issued again".to_owned(),
        );
    }
    if !leaf.is_for_servers() {
        found.push("it is not for servers (extendedKeyUsage), and clients refuse it; have it issued again".to_owned());
    }
    for (index, pair) in parsed.windows(2).enumerate() {
        if !pair[0].is_issued_by(&pair[1]) {
            found.push(format!(
                "the order is wrong: certificate {} ({}) has not issued certificate {} ({}); write the certificate \
                 first, then its issuer, then that one's",
                index + 2,
                pair[1].subject(),
                index + 1,
                pair[0].subject()
            ));
            break;
        }
    }
    found.into_iter().map(|text| format!("{}: {text}", chain.path)).collect()
}
