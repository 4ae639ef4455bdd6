//! Error messages about wrong values that an application has sent.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Returns the `TypeError` for an object of another type than `rule` says.
pub(super) fn wrong_type(object: &Bound<'_, PyAny>, rule: &str) -> PyErr {
    let kind = object.get_type();
    let kind = kind.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{rule}, not {kind}: {}", shown(object)))
}

/// Returns the beginning of a value as text, at most 80 characters.
pub(super) fn shown(object: &Bound<'_, PyAny>) -> String {
    object.repr().map_or_else(|_| String::new(), |shown| shown.to_string_lossy().chars().take(80).collect())
}
