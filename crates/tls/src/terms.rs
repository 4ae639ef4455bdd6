//! Conversion of the TLS settings to a configuration of rustls.

use crate::cipher_suites::choose_cipher_suites;
use crate::clients::ClientTerms;
use crate::identity::{CertificateFiles, Identity};
use crate::resolver::{CHALLENGE_PROTOCOL, Certificates};
use crate::source::Mistake;
use crate::tickets::{TicketSecrets, Tickets};
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::sync::Arc;

/// The lowest TLS version that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinimumVersion {
    /// TLS 1.2, the oldest secure version.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// The TLS settings, with the contents of the files that they name.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The certificates. The first one serves clients that request no server name, or an unknown one.
    pub certificates: Vec<CertificateFiles>,
    /// The lowest TLS version.
    pub minimum_version: MinimumVersion,
    /// The names of the allowed cipher suites, separated by colons; empty for all.
    pub cipher_suites: String,
    /// The names of the application protocols (ALPN, RFC 7301), in order of preference.
    pub protocols: Vec<Vec<u8>>,
    /// The settings for client certificates.
    pub clients: ClientTerms,
    /// The secrets of session tickets. Without any, no session is resumed.
    pub tickets: TicketSecrets,
}

/// A configuration of rustls, and the information for the log and `kirsch check`.
#[derive(Debug)]
pub struct Agreed {
    /// The configuration for new handshakes.
    pub config: ServerConfig,
    /// The certificates.
    pub identities: Vec<Identity>,
    /// Probable mistakes, each in one line.
    pub warnings: Vec<String>,
}

/// Returns the cryptographic provider that the crate is built with.
pub(crate) fn provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc")]
    return rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(not(feature = "aws-lc"))]
    return rustls::crypto::ring::default_provider();
}

impl Terms {
    /// Creates the configuration. `now` is the Unix time in seconds.
    ///
    /// # Errors
    /// All mistakes, at most one for each file.
    pub fn agree(&self, now: u64) -> Result<Agreed, Vec<Mistake>> {
        let mut provider = provider();
        let (mut identities, mut mistakes, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        match choose_cipher_suites(&self.cipher_suites, &provider.cipher_suites) {
            Ok((chosen, unknown)) => {
                provider.cipher_suites = chosen;
                if !unknown.is_empty() {
                    warnings.push(format!("--ciphers: {} is not supported, and left out", unknown.join(", ")));
                }
            }
            Err(Mistake(text)) => mistakes.push(Mistake(format!("--ciphers: {text}"))),
        }
        let provider = Arc::new(provider);
        for files in &self.certificates {
            match Identity::read(files, &provider, now) {
                Ok(identity) => identities.push(identity),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        let verifier = self.clients.verifier(&provider).map_err(|mistake| mistakes.push(mistake));
        let (true, Ok(verifier)) = (mistakes.is_empty(), verifier) else { return Err(mistakes) };
        let versions: &[&SupportedProtocolVersion] = match self.minimum_version {
            MinimumVersion::Tls12 => &[&TLS13, &TLS12],
            MinimumVersion::Tls13 => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| vec![Mistake(format!("--ciphers: {error}"))])?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let certificates = Certificates::new(&identities);
        let has_challenges = certificates.has_challenges();
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols.clone_from(&self.protocols);
        if has_challenges {
            config.alpn_protocols.push(CHALLENGE_PROTOCOL.to_vec());
        }
        // Sessions are stored only in tickets, which every process can read. Early data stays disabled (RFC 8470).
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::new(Tickets::new(&self.tickets, &self.clients.fingerprint()));
        warnings.extend(identities.iter().flat_map(|identity| identity.warnings.clone()));
        warnings.extend(self.clients.warnings(now));
        Ok(Agreed { config, identities, warnings })
    }
}
