//! Dicts that are used again: what the application was given of a request, where no code can tell it from a new one.
//!
//! That is so if nothing else refers to the dict, or to what belongs to one request alone in it, and each of its
//! entries is the very object that it was made with, in its place. Anything else is freed at once, with what the
//! application has left in it. Without the GIL another thread may refer to an object at any time, so none is used
//! again.

use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::prelude::*;
use std::sync::Arc;

/// Takes back the dicts of equal requests.
pub(crate) struct Reused {
    /// The entries of a dict when it is made, in this order.
    entries: Box<[(Object, Expected)]>,
    spare: Guarded<Option<Object>>,
}

/// The condition of an entry.
pub(crate) enum Expected {
    /// This object, which cannot change.
    Value(Object),
    /// A list of the request's own, with the items of this one, which cannot change.
    List(Object),
    /// A dict of its own, with these entries.
    Dict(Arc<[(Object, Object)]>),
    /// A dict of its own, in which these keys have one empty dict together.
    Names(Arc<[Object]>),
}

impl Reused {
    pub(crate) fn new(entries: impl Iterator<Item = (Object, Expected)>) -> Self {
        Self { entries: entries.collect(), spare: Guarded::new(None) }
    }

    /// A dict to be used again, if there is one.
    pub(crate) fn take(&self, py: Python<'_>) -> Option<Object> {
        self.spare.with(py, Option::take)
    }

    /// A call is over, and releases what it was given. That may run code of the application's.
    pub(crate) fn take_back(&self, py: Python<'_>, dict: Object) {
        if !self.is_untouched(py, &dict) {
            return dict.release(py);
        }
        let surplus = self.spare.with(py, |spare| spare.replace(dict));
        drop(surplus);
    }

    /// Returns true if no code can tell `dict` from a new one.
    fn is_untouched(&self, py: Python<'_>, dict: &Object) -> bool {
        dict.reference_count(py) == 1
            && dict.has_entries(py, self.entries.len(), |place, key, value| {
                let (name, expected) = &self.entries[place];
                key.is(name) && expected.is_met(py, value)
            })
    }
}

impl Expected {
    fn is_met(&self, py: Python<'_>, value: &Object) -> bool {
        match self {
            Self::Value(expected) => value.is(expected),
            _ if value.reference_count(py) != 1 => false,
            Self::List(expected) => value.is_list_like(py, expected),
            Self::Dict(items) => value.has_entries(py, items.len(), |place, key, value| {
                let (name, expected) = &items[place];
                key.is(name) && value.is(expected)
            }),
            Self::Names(names) => {
                let mut first = None;
                value.has_entries(py, names.len(), |place, key, value| {
                    key.is(&names[place])
                        && *first.get_or_insert(value.as_ptr()) == value.as_ptr()
                        && (place > 0
                            || value.reference_count(py) == names.len().cast_signed()
                                && value.has_entries(py, 0, |_, _, _| false))
                })
            }
        }
    }
}
