//! The configuration of a server: the attributes of a `kirsch.config.native.NativeConfig`, each taken by name.
//!
//! Python declares the settings and their defaults. Rust has no defaults: a missing setting is an error, and so is a
//! setting that nothing takes. A new setting of the engine needs one `take` where it is used.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// The settings that have not been taken yet.
pub(crate) struct NativeConfig<'py>(Bound<'py, PyDict>);

impl<'py> NativeConfig<'py> {
    /// Copies the attributes of `object`, so that later changes of it have no effect.
    ///     ///
    /// # Errors
    /// `TypeError` if the object has no `__dict__`.
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let attributes = object.getattr(intern!(object.py(), "__dict__")).ok();
        match attributes.as_ref().and_then(|attributes| attributes.cast::<PyDict>().ok()) {
            Some(attributes) => Ok(Self(attributes.copy()?)),
            None => Err(PyTypeError::new_err(format!("config must be a NativeConfig, and is {object:?}"))),
        }
    }

    /// Copies the items of `items`.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(crate) fn of(items: &Bound<'py, PyDict>) -> PyResult<Self> {
        Ok(Self(items.copy()?))
    }

    /// Removes and returns the setting `name`.
    ///     ///
    /// # Errors
    /// `TypeError` if the setting is missing; otherwise the exception of the conversion, with the name in its message.
    pub(crate) fn take<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        let Some(value) = self.0.get_item(name)? else {
            return Err(PyTypeError::new_err(format!("the configuration has no {name}")));
        };
        self.0.del_item(name)?;
        value.extract::<T>().map_err(Into::into).map_err(|error| named(self.0.py(), name, &error))
    }

    /// Removes the setting `name` and returns it as a limit in seconds; `None` for 0.
    ///     ///
    /// # Errors
    /// As [`take`](Self::take), and `ValueError` for a negative or infinite number or NaN.
    pub(crate) fn take_seconds(&self, name: &str) -> PyResult<Option<Duration>> {
        seconds(name, self.take(name)?)
    }

    /// Checks that all settings have been taken.
    ///     ///
    /// # Errors
    /// `TypeError` with the names of the remaining settings.
    pub(crate) fn finish(self) -> PyResult<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut names = self.0.keys().extract::<Vec<String>>()?;
        names.sort();
        let names = names.join(", ");
        Err(PyTypeError::new_err(format!("the native server does not read {names} of its configuration")))
    }
}

/// Returns a copy of a conversion error, with the name of the setting before its message.
fn named(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    let message = format!("{name}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(message)
    } else if error.is_instance_of::<PyOverflowError>(py) {
        PyOverflowError::new_err(message)
    } else {
        PyValueError::new_err(message)
    }
}

/// Converts a number of seconds into a limit; 0 becomes `None`.
///
/// # Errors
/// `ValueError` for a negative or infinite number or NaN.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Option<Duration>> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{name}: {seconds} seconds: {error}")))?;
    Ok((!duration.is_zero()).then_some(duration))
}
