//! A Python interpreter for tests.

use pyo3::Python;

/// Calls `act` while attached to an interpreter. The first test starts the interpreter, and it is never finalized.
pub(crate) fn attach<R>(act: impl FnOnce(Python<'_>) -> R) -> R {
    Python::initialize();
    Python::attach(act)
}
