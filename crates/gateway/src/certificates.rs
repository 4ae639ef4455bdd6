//! The certificates of encrypted listeners, for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use tls::Acceptor;

/// The certificates of a listener. Replacing them takes effect for handshakes that begin afterwards.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct Certificates {
    acceptor: Arc<Acceptor>,
}

impl Certificates {
    /// Returns the acceptor of listeners with these certificates.
    pub(crate) fn acceptor(&self) -> Arc<Acceptor> {
        Arc::clone(&self.acceptor)
    }
}

#[pymethods]
impl Certificates {
    /// `Certificates(certificate, key)`: the chain and the private key as PEM.
    #[new]
    fn new(certificate: &[u8], key: &[u8]) -> PyResult<Self> {
        let acceptor = Acceptor::of_pem(certificate, key).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { acceptor: Arc::new(acceptor) })
    }

    /// Returns the numbers of handshakes so far, by their result: `full`, `resumed`, `failed` and `plain`.
    fn handshakes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.acceptor.counts();
        let numbers = PyDict::new(py);
        for (name, number) in
            [("full", counts.full), ("resumed", counts.resumed), ("failed", counts.failed), ("plain", counts.plain)]
        {
            numbers.set_item(name, number)?;
        }
        Ok(numbers)
    }
}
