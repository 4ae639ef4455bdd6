//! C API functions that differ between interpreters, under the same names: CPython's, from PyO3, and PyPy's.
//!
//! All code that depends on the interpreter for which this crate is built is in this module.

#[cfg(PyPy)]
mod pypy;
#[cfg(PyPy)]
pub(crate) use pypy::*;

#[cfg(not(PyPy))]
mod cpython;
#[cfg(not(PyPy))]
pub(crate) use cpython::*;

/// True if the reference count of an object shows whether application code can reach it. False without a GIL, where
/// another thread may take a reference meanwhile, and on PyPy, which does not count references.
pub(crate) const COUNTS_REFERENCES: bool = cfg!(not(any(Py_GIL_DISABLED, PyPy)));

/// True if C code can enter a `contextvars` context. On PyPy only the context's method `run` can.
pub(crate) const ENTERS_CONTEXTS: bool = cfg!(not(PyPy));
