//! Client certificates: whether they are requested, and which are accepted.

use crate::description::Parsed;
use crate::pem;
use crate::source::{Mistake, Source};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use std::sync::Arc;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

/// Whether the server requests client certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// No certificate is requested.
    #[default]
    None,
    /// A certificate is requested. Clients without one are served; clients with an invalid one are rejected.
    Optional,
    /// A certificate is required. Clients without one are rejected.
    Required,
}

/// The settings for client certificates.
#[derive(Clone, Debug, Default)]
pub struct ClientTerms {
    /// Whether certificates are requested.
    pub certificates: ClientCertificates,
    /// The authorities whose certificates are accepted.
    pub authorities: Vec<Source>,
    /// The revocation lists of these authorities. If there are any, a certificate whose issuer has no list is rejected.
    pub revocation_lists: Vec<Source>,
}

impl ClientTerms {
    /// Returns the verifier of client certificates; `None` if no certificate is requested.
    pub(crate) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, Mistake> {
        if self.certificates == ClientCertificates::None {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        for source in &self.authorities {
            for (index, certificate) in pem::certificates(source)?.into_iter().enumerate() {
                roots.add(certificate).map_err(|error| {
                    source.mistake(format_args!("certificate {} cannot be that of an authority: {error}", index + 1))
                })?;
            }
        }
        if roots.is_empty() {
            let text = "certificates of clients are asked for, and no authority is named; give --ca-certs FILE";
            return Err(Mistake(text.to_owned()));
        }
        let mut lists = Vec::new();
        for source in &self.revocation_lists {
            lists.extend(pem::revocation_lists(source)?);
        }
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).with_crls(lists);
        if self.certificates == ClientCertificates::Optional {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map(Some).map_err(|error| self.explain(&error))
    }

    /// Explains why no verifier could be made. Only revocation lists can be the cause.
    fn explain(&self, error: &VerifierBuilderError) -> Mistake {
        let damaged = |source: &&Source| match pem::revocation_lists(source) {
            Ok(lists) => {
                lists.iter().any(|list| CertificateList::<x509_cert::certificate::Rfc5280>::from_der(list).is_err())
            }
            Err(_) => true,
        };
        let text = format!("this is no certificate revocation list that can be used: {error}");
        match self.revocation_lists.iter().find(damaged).or(self.revocation_lists.first()) {
            Some(source) => source.mistake(text),
            None => Mistake(text),
        }
    }

    /// Returns probable mistakes as of the time `now` (Unix time in seconds), each in one line.
    pub(crate) fn warnings(&self, now: u64) -> Vec<String> {
        let mut found = Vec::new();
        for source in &self.revocation_lists {
            for list in pem::revocation_lists(source).unwrap_or_default() {
                let Ok(list) = CertificateList::<x509_cert::certificate::Rfc5280>::from_der(&list) else { continue };
                let due = list.tbs_cert_list.next_update;
                if let Some(due) = due.filter(|due| due.to_unix_duration().as_secs() <= now) {
                    found.push(format!(
                        "{}: the revocation list was to be replaced by {due}, and is still used; fetch a new one",
                        source.path
                    ));
                }
            }
        }
        for source in &self.authorities {
            for certificate in pem::certificates(source).unwrap_or_default() {
                let Ok(parsed) = Parsed::new(&certificate) else { continue };
                let until = parsed.not_after();
                if until.to_unix_duration().as_secs() <= now {
                    found.push(format!("{}: the authority {} expired at {until}", source.path, parsed.subject()));
                }
            }
        }
        found
    }

    /// Returns bytes that differ if the settings differ.
    pub(crate) fn fingerprint(&self) -> Vec<u8> {
        let mut all = vec![self.certificates as u8];
        for (sources, mark) in [(&self.authorities, b'a'), (&self.revocation_lists, b'r')] {
            for source in sources {
                all.push(mark);
                all.extend((source.content.len() as u64).to_be_bytes());
                all.extend(&source.content);
            }
        }
        all
    }
}
