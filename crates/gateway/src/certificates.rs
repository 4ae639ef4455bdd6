//! The Python class for the certificates of encrypted listeners.

use crate::config::NativeConfig;
use engine::EdgeNames;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tls::{
    Acceptor, Agreed, CertificateFiles, ClientCertificates, ClientTerms, HANDSHAKE_COUNTERS, Identity, MinimumVersion,
    SECRET, Source, Terms, TicketSecrets,
};

/// The certificates of a server's listeners. A replacement takes effect for handshakes that begin after it.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct Certificates {
    acceptor: Arc<Acceptor>,
    edge_names: Arc<EdgeNames>,
    report: Mutex<Report>,
}

/// The certificates in use, and the probable mistakes in their settings.
struct Report {
    identities: Vec<Identity>,
    warnings: Vec<String>,
}

impl Certificates {
    /// Returns the names that have certificates. The engine needs them when it answers certificate authorities, and when
    /// it redirects clients from http to https.
    pub(crate) fn edge_names(&self) -> Arc<EdgeNames> {
        Arc::clone(&self.edge_names)
    }

    /// Returns the acceptor for listeners with these certificates.
    pub(crate) fn acceptor(&self) -> Arc<Acceptor> {
        Arc::clone(&self.acceptor)
    }
}

#[pymethods]
impl Certificates {
    /// Implements `Certificates(terms)`, which `_native.pyi` documents.
    #[new]
    fn new(terms: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (Agreed { config, identities, warnings }, edge) = agree(terms)?;
        let edge_names = Arc::new(EdgeNames::default());
        edge.set(&edge_names, &identities);
        let report = Mutex::new(Report { identities, warnings });
        Ok(Self { acceptor: Arc::new(Acceptor::new(config)), edge_names, report })
    }

    /// Replaces the terms. If the new terms have a mistake, raises an exception and keeps the current ones.
    fn replace(&self, terms: &Bound<'_, PyDict>) -> PyResult<()> {
        let (Agreed { config, identities, warnings }, edge) = agree(terms)?;
        edge.set(&self.edge_names, &identities);
        self.acceptor.replace(config);
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Report { identities, warnings };
        Ok(())
    }

    /// Returns a description of each certificate in use, without those that answer ACME challenges.
    fn certificates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let described = report.identities.iter().filter(|identity| !identity.is_challenge());
        PyList::new(py, described.map(|identity| describe(py, identity)).collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the probable mistakes in the terms, one line for each.
    fn warnings(&self) -> Vec<String> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).warnings.clone()
    }

    /// Returns the numbers of handshakes so far, as a dict from (family, name) to number.
    fn handshakes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let numbers = PyDict::new(py);
        for (counter, number) in HANDSHAKE_COUNTERS.into_iter().zip(self.acceptor.counts()) {
            numbers.set_item(counter, number)?;
        }
        Ok(numbers)
    }
}

/// The terms for the engine's own responses to certificate authorities and to clients without https.
struct EdgeTerms {
    awaited_names: Vec<String>,
    challenge_thumbprint: Option<String>,
}

impl EdgeTerms {
    /// Sets the names for which clients are redirected to https: those of the certificates, and those that await one.
    fn set(self, names: &EdgeNames, identities: &[Identity]) {
        let certified = identities.iter().filter(|identity| !identity.is_challenge());
        let mut hosts: Vec<String> = certified.flat_map(|identity| identity.names.clone()).collect();
        hosts.extend(self.awaited_names);
        names.replace(hosts, self.challenge_thumbprint);
    }
}

fn describe<'py>(py: Python<'py>, identity: &Identity) -> PyResult<Bound<'py, PyDict>> {
    let description = &identity.description;
    let described = PyDict::new(py);
    described.set_item("path", &identity.path)?;
    described.set_item("names", &identity.names)?;
    described.set_item("subject", &description.subject)?;
    described.set_item("issuer", &description.issuer)?;
    described.set_item("serial", &description.serial)?;
    described.set_item("key", &description.key)?;
    described.set_item("not_before", description.not_before)?;
    described.set_item("not_after", description.not_after)?;
    Ok(described)
}

/// Converts the terms into a configuration and a report.
///
/// # Errors
/// `ValueError` with a line for each mistake of the user; `TypeError` for incomplete terms.
fn agree(given: &Bound<'_, PyDict>) -> PyResult<(Agreed, EdgeTerms)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (terms, edge) = terms(given)?;
    let agreed = terms.agree(now).map_err(|mistakes| {
        let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        PyValueError::new_err(lines.join("\n"))
    })?;
    Ok((agreed, edge))
}

fn terms(given: &Bound<'_, PyDict>) -> PyResult<(Terms, EdgeTerms)> {
    let given = NativeConfig::of(given)?;
    let terms = Terms {
        certificates: given
            .take::<Vec<Bound<'_, PyDict>>>("certificates")?
            .iter()
            .map(files)
            .collect::<PyResult<_>>()?,
        minimum_version: match &*given.take::<String>("minimum_version")? {
            "1.2" => MinimumVersion::Tls12,
            "1.3" => MinimumVersion::Tls13,
            other => return Err(unknown("minimum_version", other)),
        },
        cipher_suites: given.take("cipher_suites")?,
        protocols: given.take::<Vec<String>>("protocols")?.into_iter().map(String::into_bytes).collect(),
        clients: ClientTerms {
            certificates: match &*given.take::<String>("client_certificates")? {
                "none" => ClientCertificates::None,
                "optional" => ClientCertificates::Optional,
                "required" => ClientCertificates::Required,
                other => return Err(unknown("client_certificates", other)),
            },
            authorities: sources(&given, "authorities")?,
            revocation_lists: sources(&given, "revocation_lists")?,
        },
        tickets: TicketSecrets(given.take::<Vec<[u8; SECRET]>>("ticket_secrets")?),
    };
    let edge = EdgeTerms {
        awaited_names: given.take("awaited_names")?,
        challenge_thumbprint: given.take("challenge_thumbprint")?,
    };
    given.finish()?;
    Ok((terms, edge))
}

fn files(given: &Bound<'_, PyDict>) -> PyResult<CertificateFiles> {
    let given = NativeConfig::of(given)?;
    let files = CertificateFiles {
        chain: source(given.take("chain")?),
        key: source(given.take("key")?),
        password: given.take("password")?,
        names: given.take("names")?,
        is_challenge: given.take("is_challenge")?,
    };
    given.finish()?;
    Ok(files)
}

fn sources(given: &NativeConfig<'_>, name: &str) -> PyResult<Vec<Source>> {
    Ok(given.take::<Vec<(String, Vec<u8>)>>(name)?.into_iter().map(source).collect())
}

fn source((path, content): (String, Vec<u8>)) -> Source {
    Source { path, content }
}

fn unknown(name: &str, word: impl Display) -> PyErr {
    PyValueError::new_err(format!("{name}: {word} is not known"))
}
