//! The environ variables of an encrypted connection, with the names of Apache's `mod_ssl`.
//!
//! They are made once for each connection. Values are UTF-8, which WSGI passes as Latin-1 (PEP 3333, "Unicode Issues").

use crate::interface::Security;
use crate::object::Object;
use pyo3::prelude::*;
use std::ffi::CString;
use tls::{ClientCertificate, DistinguishedName, certificate_pem};

/// The variables of one connection and their values.
pub(super) struct EncryptionVariables(Vec<(Object, Object)>);

impl EncryptionVariables {
    /// Makes the variables of a connection. Returns `None` with an exception set if an allocation fails.
    pub(super) fn new(py: Python<'_>, security: &Security) -> Option<Self> {
        let verified = if security.client_certificates.is_empty() { "NONE" } else { "SUCCESS" };
        let resumed = if security.is_resumed { "Resumed" } else { "Initial" };
        let mut values = vec![
            ("SSL_PROTOCOL".to_owned(), security.version_name().to_owned()),
            ("SSL_CIPHER".to_owned(), security.cipher_name.to_owned()),
            ("SSL_SESSION_RESUMED".to_owned(), resumed.to_owned()),
            ("SSL_CLIENT_VERIFY".to_owned(), verified.to_owned()),
        ];
        values.extend(security.server_name.as_deref().map(|name| ("SSL_TLS_SNI".to_owned(), name.to_owned())));
        if let Some((own, issuers)) = security.client_certificates.split_first() {
            values.push(("SSL_CLIENT_CERT".to_owned(), certificate_pem(own)));
            let chain = issuers.iter().enumerate();
            values.extend(chain.map(|(at, issuer)| (format!("SSL_CLIENT_CERT_CHAIN_{at}"), certificate_pem(issuer))));
            if let Ok(certificate) = ClientCertificate::parse(own) {
                add_client(&mut values, &certificate);
            }
        }
        let mut variables = Vec::with_capacity(values.len());
        for (name, value) in values {
            let name = Object::interned(py, &CString::new(name).ok()?).map_err(|error| error.restore(py)).ok()?;
            variables.push((name, Object::latin1(py, value.as_bytes())?));
        }
        Some(Self(variables))
    }

    /// Sets the variables. Returns `None` with an exception set if an allocation fails.
    pub(super) fn set(&self, py: Python<'_>, environ: &Object) -> Option<()> {
        self.0.iter().try_for_each(|(name, value)| environ.set_item(py, name, value))
    }
}

/// Adds the variables of a client certificate, except the certificate itself.
fn add_client(values: &mut Vec<(String, String)>, certificate: &ClientCertificate) {
    let mut add = |name: String, value: String| values.push((format!("SSL_CLIENT_{name}"), value));
    add("M_VERSION".to_owned(), certificate.version().to_string());
    add("M_SERIAL".to_owned(), certificate.serial());
    add("V_START".to_owned(), certificate.begin());
    add("V_END".to_owned(), certificate.end());
    let mut add_name = |prefix: &str, name: DistinguishedName<'_>| {
        add(prefix.to_owned(), name.rfc2253());
        name.attributes().into_iter().for_each(|(kind, value)| add(format!("{prefix}_{kind}"), value));
    };
    add_name("S_DN", certificate.subject());
    add_name("I_DN", certificate.issuer());
    let (hosts, addresses) = certificate.alternative_names();
    for (kind, names) in [("DNS", hosts), ("Email", addresses)] {
        names.into_iter().enumerate().for_each(|(at, name)| add(format!("SAN_{kind}_{at}"), name));
    }
}
