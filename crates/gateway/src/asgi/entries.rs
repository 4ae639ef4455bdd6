//! The entries of the messages that an application sends: small dicts, most with the entries that the specification
//! names, in its order, and with keys that are the same interned strings as the names here. Walking through such a dict
//! costs less than half of a look-up for each entry.

use crate::object::walk_dict;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Returns the entries with these names, each if it exists. `names` are interned. If the message has any other key,
/// each name is looked up.
///
/// # Errors
/// The exception that comparing a key of the application raises.
pub(super) fn entries<'py, const N: usize>(
    message: &Bound<'py, PyDict>,
    names: [&Bound<'py, PyString>; N],
) -> PyResult<[Option<Bound<'py, PyAny>>; N]> {
    let py = message.py();
    let mut found = [const { None }; N];
    let is_known = walk_dict(message, |key, value| {
        let place = names.iter().position(|name| name.as_ptr() == key.as_ptr());
        if let Some(place) = place {
            found[place] = Some(value.bind(py));
        }
        // Another key may still be equal to one of the names.
        place.is_some()
    });
    if !is_known {
        for (name, found) in names.into_iter().zip(&mut found) {
            *found = message.get_item(name)?;
        }
    }
    Ok(found)
}

/// Returns the entry with this name, which is interned. Most often it is the first one.
///
/// # Errors
/// As [`entries`].
pub(super) fn first_entry<'py>(
    message: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut found = None;
    walk_dict(message, |key, value| {
        found = (key.as_ptr() == name.as_ptr()).then(|| value.bind(message.py()));
        false
    });
    if found.is_none() { message.get_item(name) } else { Ok(found) }
}
