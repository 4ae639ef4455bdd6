//! ACME accounts.

use crate::error::AcmeError;
use crate::http_client::{Client, Http, complete};
use crate::order::Order;
use instant_acme::{AccountCredentials, CertificateIdentifier, ExternalAccountKey, Identifier, NewAccount, NewOrder};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use x509_cert::Certificate;
use x509_cert::der::DecodePem;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

/// An account at an ACME authority.
pub struct Account(instant_acme::Account);

/// Credentials that tie an ACME account to an account that the authority already has, for example by contract (RFC 8555
/// section 7.3.4).
#[derive(Clone)]
pub struct ExternalAccount {
    /// The identifier of the key.
    pub identifier: String,
    /// The key, decoded.
    pub key: Vec<u8>,
}

/// The period in which the authority wants a certificate to be replaced (RFC 9773 section 4.2).
#[derive(Clone, Debug, PartialEq)]
pub struct Renewal {
    /// The start and the end of the period.
    pub window: (SystemTime, SystemTime),
    /// The time after which the caller should ask the authority again.
    pub ask_after: Duration,
    /// The URL of a page that explains the period.
    pub explanation: Option<String>,
}

impl Account {
    /// Registers an account at the authority with the URL `directory`. The caller has agreed to its terms of service.
    /// Returns the account, and a text that contains its private key, for [`restore`](Self::restore).
    ///
    /// # Errors
    /// The reason that the authority gives, or why it could not be reached.
    pub fn register(
        http: Arc<dyn Http>,
        directory: &str,
        contacts: &[&str],
        external: Option<&ExternalAccount>,
    ) -> Result<(Self, String), AcmeError> {
        let external = external.map(|one| ExternalAccountKey::new(one.identifier.clone(), &one.key));
        let account = NewAccount { contact: contacts, terms_of_service_agreed: true, only_return_existing: false };
        let builder = instant_acme::Account::builder_with_http(Box::new(Client(http)));
        let (account, credentials) = complete(builder.create(&account, directory.to_owned(), external.as_ref()))?;
        let text = serde_json::to_string(&credentials).map_err(AcmeError::new)?;
        Ok((Self(account), text))
    }

    /// Restores an account from the text that [`register`](Self::register) returned. Requests the authority's
    /// directory.
    ///
    /// # Errors
    /// If the text does not describe an account, or the authority does not respond.
    pub fn restore(http: Arc<dyn Http>, text: &str) -> Result<Self, AcmeError> {
        let credentials: AccountCredentials =
            serde_json::from_str(text).map_err(|error| AcmeError::new(format_args!("it has no account: {error}")))?;
        let builder = instant_acme::Account::builder_with_http(Box::new(Client(http)));
        Ok(Self(complete(builder.from_credentials(credentials))?))
    }

    /// Returns the URL of the account.
    pub fn url(&self) -> &str {
        self.0.id()
    }

    /// Returns the thumbprint of the account's key (RFC 8555 section 8.1). It is a part of the response to each
    /// challenge.
    pub fn thumbprint(&self) -> &str {
        self.0.key_thumbprint()
    }

    /// Returns the names of the certificate profiles that the authority offers.
    pub fn profiles(&self) -> Vec<String> {
        self.0.profiles().map(|profile| profile.name.to_owned()).collect()
    }

    /// Asks the authority when a certificate should be replaced. `chain` is in PEM.
    ///
    /// # Errors
    /// [`AcmeError`], also if the authority does not support renewal information.
    pub fn renewal(&self, chain: &[u8]) -> Result<Renewal, AcmeError> {
        let (info, ask_after) = complete(self.0.renewal_info(&identifier(chain)?))?;
        let window = (info.suggested_window.start.into(), info.suggested_window.end.into());
        Ok(Renewal { window, ask_after, explanation: info.explanation_url })
    }

    /// Orders a certificate for a host name or an IP address. `replaces` is the previous certificate in PEM, if this
    /// authority issued it.
    ///
    /// # Errors
    /// The reason that the authority gives.
    pub fn order(&self, name: &str, profile: Option<&str>, replaces: Option<&[u8]>) -> Result<Order, AcmeError> {
        let address = name.parse().map(Identifier::Ip);
        let identifiers = [address.unwrap_or_else(|_| Identifier::Dns(name.to_owned()))];
        let mut order = NewOrder::new(&identifiers);
        if let Some(profile) = profile {
            order = order.profile(profile);
        }
        if let Some(chain) = replaces {
            order = order.replaces(identifier(chain)?);
        }
        Ok(Order::new(complete(self.0.new_order(&order))?, self.thumbprint()))
    }

    /// Returns an existing order by its URL.
    ///
    /// # Errors
    /// [`AcmeError`], also if the authority no longer has the order.
    pub fn resume(&self, url: &str) -> Result<Order, AcmeError> {
        Ok(Order::new(complete(self.0.order(url.to_owned()))?, self.thumbprint()))
    }
}

/// Returns the identifier of a certificate in requests to its authority (RFC 9773 section 4.1).
fn identifier(chain: &[u8]) -> Result<CertificateIdentifier<'static>, AcmeError> {
    let damaged = |error| AcmeError::new(format_args!("the certificate is damaged: {error}"));
    let leaf = first_certificate(chain).ok_or_else(|| AcmeError::new("there is no certificate"))?;
    let certificate = Certificate::from_pem(leaf).map_err(damaged)?;
    let certificate = certificate.tbs_certificate();
    let found = certificate.get_extension::<AuthorityKeyIdentifier>().map_err(damaged)?;
    let key = found.and_then(|(_, extension)| extension.key_identifier);
    let key = key.ok_or_else(|| AcmeError::new("the certificate does not name the key of its issuer"))?;
    let serial = certificate.serial_number().as_bytes();
    Ok(CertificateIdentifier::new(key.as_bytes().into(), serial.into()).into_owned())
}

/// Returns the first certificate of a PEM file, which may begin with a key.
fn first_certificate(chain: &[u8]) -> Option<&[u8]> {
    const END: &[u8] = b"-----END CERTIFICATE-----";
    let find = |what: &[u8]| chain.windows(what.len()).position(|window| window == what);
    let (begin, end) = (find(b"-----BEGIN CERTIFICATE-----")?, find(END)? + END.len());
    chain.get(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, Issuer, KeyIdMethod, KeyPair, SerialNumber};

    #[test]
    fn a_certificate_is_identified_by_the_key_of_its_issuer_and_its_serial_number() {
        let issuer_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        // The identifiers of the example in RFC 9773 section 4.1. In DER, a zero byte precedes the second one.
        let key_identifier = b"\x69\x88\x5b\x6b\x87\x46\x40\x41\xe1\xb3\x7b\x84\x7b\xa0\xae\x2c\xde\x01\xc8\xd4";
        params.key_identifier_method = KeyIdMethod::PreSpecified(key_identifier.to_vec());
        let issuer = Issuer::new(params, issuer_key);
        let mut params = CertificateParams::new(["example.com".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from_slice(b"\x87\x65\x43\x21"));
        params.use_authority_key_identifier_extension = true;
        let made = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().pem();
        let expected = "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE";
        assert_eq!(identifier(made.as_bytes()).unwrap().to_string(), expected);
        let behind_a_key = format!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{made}");
        assert_eq!(identifier(behind_a_key.as_bytes()).unwrap().to_string(), expected);
    }

    #[test]
    fn a_file_without_a_certificate_has_no_identifier() {
        assert_eq!(identifier(b"nothing").unwrap_err().text, "there is no certificate");
    }
}
