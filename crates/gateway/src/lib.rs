//! The gateway between the engine and Python: the only crate that knows the interpreter. It builds the module
//! `kirsch._native`, whose Python face is described in `python/kirsch/_native.pyi`.
//!
//! Ordinary PyO3 is used where a connection or a server begins and ends. What happens for every request is written
//! against the C API ([`object`], [`wsgi`]), because there the price of one call shows.

mod access_log;
mod calls;
mod object;
mod server;
mod site;
mod wsgi;

use pyo3::prelude::*;

/// The native engine and WSGI gateway of Kirsch.
///
/// On a free-threaded interpreter importing it turns the lock on: `start_response` and `write` rely on it while an
/// application calls them from threads of its own.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::calls::Call;
    #[pymodule_export]
    use crate::server::{Exchange, Server};
    #[pymodule_export]
    use crate::wsgi::file_wrapper::FileWrapper;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
