//! Error messages about invalid values that an application has sent.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Returns a `TypeError` that quotes `rule` and the type and value of `object`.
pub(super) fn wrong_type(object: &Bound<'_, PyAny>, rule: &str) -> PyErr {
    let kind = object.get_type();
    let kind = kind.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{rule}, not {kind}: {}", shown(object)))
}

/// Returns at most the first 80 characters of a value's `repr`.
pub(super) fn shown(object: &Bound<'_, PyAny>) -> String {
    object.repr().map_or_else(|_| String::new(), |shown| shown.to_string_lossy().chars().take(80).collect())
}
