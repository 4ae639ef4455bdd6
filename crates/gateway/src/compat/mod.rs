//! Parts of the C API that interpreters have differently: CPython's own, from PyO3, and PyPy's, under the same names.
//!
//! Everything that depends on which of the two this is built for is in this module.

#[cfg(PyPy)]
mod pypy;
#[cfg(PyPy)]
pub(crate) use pypy::*;

#[cfg(not(PyPy))]
mod cpython;
#[cfg(not(PyPy))]
pub(crate) use cpython::*;

/// False if the reference count of an object does not tell whether code of the application's can reach it: without a
/// GIL another thread may move a reference meanwhile, and PyPy finds garbage by other means.
pub(crate) const COUNTS_REFERENCES: bool = cfg!(not(any(Py_GIL_DISABLED, PyPy)));

/// False if code in C can run in another context only by way of its method `run`, as on PyPy.
pub(crate) const ENTERS_CONTEXTS: bool = cfg!(not(PyPy));
