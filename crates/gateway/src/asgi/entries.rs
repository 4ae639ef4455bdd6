//! Reads the entries of messages that an application sends. These are small dicts, most with the entries that the
//! specification names, in the same order, and with the same interned strings as keys. Walking such a dict once takes
//! less than half the time of one look-up for each entry.

use crate::object::walk_dict;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Returns the entries with these interned names; `None` for a missing one. If the message has any other key, looks up
/// each name.
///
/// # Errors
/// The exception that a comparison with one of the application's keys raises.
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
        // A key at another address may still be equal to one of the names.
        place.is_some()
    });
    if !is_known {
        for (name, found) in names.into_iter().zip(&mut found) {
            *found = message.get_item(name)?;
        }
    }
    Ok(found)
}

/// Returns the entry with this interned name, which is usually the first entry.
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
