//! Python classes and functions that obtain certificates from an authority, or make them locally.

use acme::{Account, AcmeError, Confinement, ExternalAccount, Http, Order, Renewal, Request, Response, make};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

create_exception!(
    kirsch._native,
    AcmeFailure,
    PyException,
    "The authority has refused something, or cannot be reached. The arguments are one line, and the kind of the problem."
);

/// An account at a certificate authority. Its methods block while the Python function `send` sends requests.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct AcmeAccount(Account);

/// An order of a certificate.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct AcmeOrder(Mutex<Order>);

/// Sends HTTP requests through a Python function.
struct Sender(Py<PyAny>);

impl Http for Sender {
    fn send(&self, request: &Request) -> Result<Response, String> {
        Python::attach(|py| {
            let Request { method, url, fields, body } = request.clone();
            let answer = self.0.call1(py, (method, url, fields, PyBytes::new(py, &body)));
            let answer = answer.and_then(|answer| answer.extract::<(u16, Vec<(String, String)>, Vec<u8>)>(py));
            let (status, fields, body) = answer.map_err(|error| error.value(py).to_string())?;
            Ok(Response { status, fields, body })
        })
    }
}

#[pymethods]
impl AcmeAccount {
    /// Registers a new account at the authority with this directory URL. Returns it with the text for
    /// [`restore`](Self::restore).
    #[staticmethod]
    #[pyo3(signature = (send, directory, contacts, external, /))]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn register(
        send: Py<PyAny>,
        directory: &str,
        contacts: Vec<String>,
        external: Option<(String, Vec<u8>)>,
    ) -> PyResult<(Self, String)> {
        let contacts: Vec<_> = contacts.iter().map(|contact| &contact[..]).collect();
        let external = external.map(|(identifier, key)| ExternalAccount { identifier, key });
        let made = Account::register(Arc::new(Sender(send)), directory, &contacts, external.as_ref());
        let (account, text) = made.map_err(failure)?;
        Ok((Self(account), text))
    }

    /// Restores an account from the text that `register` returned.
    #[staticmethod]
    #[pyo3(signature = (send, text, /))]
    fn restore(send: Py<PyAny>, text: &str) -> PyResult<Self> {
        Account::restore(Arc::new(Sender(send)), text).map(Self).map_err(failure)
    }

    #[getter]
    fn url(&self) -> &str {
        self.0.url()
    }

    #[getter]
    fn thumbprint(&self) -> &str {
        self.0.thumbprint()
    }

    fn profiles(&self) -> Vec<String> {
        self.0.profiles()
    }

    /// Returns the renewal window of a certificate (begin and end, seconds since the epoch), the seconds after which to
    /// ask again, and a URL that explains the window.
    #[pyo3(signature = (chain, /))]
    fn renewal(&self, chain: &[u8]) -> PyResult<(f64, f64, f64, Option<String>)> {
        let Renewal { window: (begin, end), ask_after, explanation } = self.0.renewal(chain).map_err(failure)?;
        Ok((seconds(begin), seconds(end), ask_after.as_secs_f64(), explanation))
    }

    /// Orders a certificate for a name.
    #[pyo3(signature = (name, profile, replaces, /))]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn order(&self, name: &str, profile: Option<String>, replaces: Option<Vec<u8>>) -> PyResult<AcmeOrder> {
        let order = self.0.order(name, profile.as_deref(), replaces.as_deref()).map_err(failure)?;
        Ok(AcmeOrder(Mutex::new(order)))
    }

    /// Returns an existing order by its URL.
    #[pyo3(signature = (url, /))]
    fn resume(&self, url: &str) -> PyResult<AcmeOrder> {
        Ok(AcmeOrder(Mutex::new(self.0.resume(url).map_err(failure)?)))
    }
}

impl AcmeOrder {
    fn order(&self) -> MutexGuard<'_, Order> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl AcmeOrder {
    #[getter]
    fn url(&self) -> String {
        self.order().url().to_owned()
    }

    /// Returns kind, token and key authorization of each challenge, of which one must be answered.
    fn challenges(&self) -> PyResult<Vec<(String, String, String)>> {
        let found = self.order().challenges().map_err(failure)?;
        Ok(found.into_iter().map(|one| (one.kind, one.token, one.key_authorization)).collect())
    }

    /// Tells the authority that the answer to the challenge of this kind is in place.
    #[pyo3(signature = (kind, /))]
    fn answer(&self, kind: &str) -> PyResult<()> {
        self.order().answer(kind).map_err(failure)
    }

    fn refresh(&self) -> PyResult<&'static str> {
        self.order().refresh().map_err(failure)
    }

    /// Returns text and kind of the error that made the order invalid.
    fn failure(&self) -> PyResult<(String, String)> {
        let AcmeError { kind, text } = self.order().failure().map_err(failure)?;
        Ok((text, kind))
    }

    /// Sends the certificate signing request.
    #[pyo3(signature = (request, /))]
    fn finalize(&self, request: &[u8]) -> PyResult<()> {
        self.order().finalize(request).map_err(failure)
    }

    fn certificate(&self) -> PyResult<Option<String>> {
        self.order().certificate().map_err(failure)
    }
}

/// Makes a private key (PEM) and a certificate signing request (DER) for a name.
pub(crate) fn make_request(name: &str) -> PyResult<(String, Vec<u8>)> {
    make::request(name).map_err(failure)
}

/// Makes the key and the certificate (PEM) that answer a challenge of TLS-ALPN-01 (RFC 8737).
pub(crate) fn make_challenge(name: &str, key_authorization: &str) -> PyResult<(String, String)> {
    make::challenge(name, key_authorization, SystemTime::now()).map_err(failure)
}

/// Makes the key and the certificate (PEM) of a certificate authority for development.
pub(crate) fn make_authority() -> PyResult<(String, String)> {
    make::authority(SystemTime::now()).map_err(failure)
}

/// Makes a key and a certificate (PEM) for these names, issued by such an authority.
pub(crate) fn issue_certificate(authority_key: &str, names: &[String]) -> PyResult<(String, String)> {
    make::issue(authority_key, names, SystemTime::now()).map_err(failure)
}

/// Permanently restricts this process: it may write only at and below `writable`, and read only there and at and below
/// `readable`. Returns `full`, `partial` if the kernel supports fewer restrictions, or `none`. See `_native.pyi`.
pub(crate) fn confine(writable: &str, readable: &[String]) -> PyResult<&'static str> {
    Ok(match acme::confine(writable, readable).map_err(failure)? {
        Confinement::Full => "full",
        Confinement::Partial => "partial",
        Confinement::None => "none",
    })
}

fn failure(error: AcmeError) -> PyErr {
    AcmeFailure::new_err((error.text, error.kind))
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
