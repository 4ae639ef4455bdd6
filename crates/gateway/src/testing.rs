//! An interpreter for tests.

use pyo3::Python;

/// Does something attached to an interpreter, which the first test starts and no test ends.
pub(crate) fn attach<R>(act: impl FnOnce(Python<'_>) -> R) -> R {
    Python::initialize();
    Python::attach(act)
}
