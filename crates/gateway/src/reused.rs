//! Dicts that are used again: what the application was given of a request, where no code can tell it from a new one.
//!
//! That is so if nothing else refers to the dict, or to what belongs to one request alone in it, and each of its
//! entries is the very object that it was made with, in its place. Anything else is freed at once, with what the
//! application has left in it. Without the GIL another thread may refer to an object at any time, so none is used
//! again.
//!
//! A dict that comes back untouched is [watched](crate::watched) from then on. As long as no watched dict has changed,
//! its entries need not be compared.

use crate::guarded::Guarded;
use crate::object::Object;
use crate::watched::{changes, watch};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An application that has changed so many dicts in a row is not expected to leave one untouched.
const MISSES: u8 = 4;

/// The maximum number of dicts in this process that wait to be used again. With more connections than that, most of
/// them are idle, and their dicts would take memory for nothing.
const SPARES: usize = 1024;

/// Takes back the dicts of equal requests.
pub(crate) struct Reused {
    /// A dict with the entries of a new one, in their order.
    model: Object,
    /// The entries with other values than those of the model.
    own: Box<[(Object, Own)]>,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    spare: Option<Spare>,
    /// The watched dict that was lent last.
    lent: Option<Lent>,
    /// The number of consecutive dicts that were changed or kept by the application.
    misses: u8,
}

/// A dict that is ready to be used again.
struct Spare {
    dict: Object,
    is_watched: bool,
    place: SparePlace,
}

/// One of the [`SPARES`].
struct SparePlace;

static TAKEN_PLACES: AtomicUsize = AtomicUsize::new(0);

impl SparePlace {
    /// Takes a place; `None` if none is left.
    fn take() -> Option<Self> {
        let taken = TAKEN_PLACES.fetch_add(1, Ordering::Relaxed);
        let place = Self;
        // One too many is given back at once.
        (taken < SPARES).then_some(place)
    }
}

impl Drop for SparePlace {
    fn drop(&mut self) {
        TAKEN_PLACES.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Lent {
    /// The address of the dict.
    dict: *mut PyObject,
    /// The number of changes of all watched dicts when it was lent.
    changes: u64,
}

// SAFETY: the address is compared only.
unsafe impl Send for Lent {}

/// The value of an entry that is each request's own.
pub(crate) enum Own {
    /// The server sets it before each call. Afterwards it is this object again.
    Set(Object),
    /// A list of the request's own, with the items of this one, which cannot change.
    List(Object),
    /// A dict of its own, with these entries.
    Dict(Arc<[(Object, Object)]>),
    /// A dict of its own, in which these keys have one empty dict together.
    Names(Arc<[Object]>),
}

impl Reused {
    pub(crate) fn new(model: Object, own: impl IntoIterator<Item = (Object, Own)>) -> Self {
        Self { model, own: own.into_iter().collect(), state: Guarded::new(State::default()) }
    }

    /// Returns a dict to be used again, if there is one.
    pub(crate) fn take(&self, py: Python<'_>) -> Option<Object> {
        self.state.with(py, |state| {
            let Spare { dict, is_watched, place } = state.spare.take()?;
            drop(place);
            state.lent = is_watched.then(|| Lent { dict: dict.as_ptr(), changes: changes(py) });
            Some(dict)
        })
    }

    /// Takes back a dict of a call that is over. That may run code of the application's.
    #[inline(never)]
    pub(crate) fn take_back(&self, py: Python<'_>, dict: Object) {
        let (lent, has_another, misses) = self.state.with(py, |state| {
            let lent = state.lent.take_if(|lent| lent.dict == dict.as_ptr());
            (lent, state.lent.is_some() || state.spare.is_some(), state.misses)
        });
        if lent.is_none() && has_another {
            // Requests that are served together, such as pipelined ones, have one dict that comes again.
            return dict.release(py);
        }
        let is_unchanged = lent.as_ref().is_some_and(|lent| lent.changes == changes(py));
        if misses >= MISSES || !self.is_untouched(py, &dict, is_unchanged) {
            self.state.with(py, |state| state.misses = misses.saturating_add(1));
            return dict.release(py);
        }
        let Some(place) = SparePlace::take() else { return dict.release(py) };
        let is_watched = lent.is_some() || self.watch(py, &dict);
        for (key, own) in &self.own {
            if let Own::Set(value) = own
                && dict.set_item(py, key, value).is_none()
            {
                // Memory is short.
                drop(PyErr::take(py));
                return dict.release(py);
            }
        }
        let surplus = self.state.with(py, |state| {
            state.misses = 0;
            state.spare.replace(Spare { dict, is_watched, place })
        });
        drop(surplus);
    }

    /// Returns true if `dict` is indistinguishable from a new dict, so that it can be reused. `is_unchanged`: no item
    /// was set in it, or in one of its nested dicts.
    fn is_untouched(&self, py: Python<'_>, dict: &Object, is_unchanged: bool) -> bool {
        if dict.reference_count(py) != 1 {
            return false;
        }
        if is_unchanged {
            return self.own.iter().all(|(key, own)| own.is_alone(py, dict, key));
        }
        let mut position = 0;
        self.model.has_entries(py, dict.dict_size(py).cast_unsigned(), |_, name, expected| {
            dict.has_next_entry(py, &mut position, name, |value| match self.own.iter().find(|(key, _)| key.is(name)) {
                Some((_, own)) => own.is_met(py, value),
                None => value.is(expected),
            })
        })
    }

    /// Watches a dict, and those of its own.
    fn watch(&self, py: Python<'_>, dict: &Object) -> bool {
        watch(py, dict) && self.own.iter().all(|(key, own)| own.watch(py, dict, key))
    }
}

impl Own {
    /// Returns true if only `dict` refers to its value of `key`, and the items of a list are those of a new one.
    fn is_alone(&self, py: Python<'_>, dict: &Object, key: &Object) -> bool {
        if let Self::Set(_) = self {
            return true;
        }
        dict.has_value(py, key, |value| {
            value.reference_count(py) == 1
                && match self {
                    Self::Set(_) | Self::Dict(_) => true,
                    Self::List(expected) => value.is_list_like(py, expected),
                    Self::Names(names) => {
                        value.has_value(py, &names[0], |empty| empty.reference_count(py) == names.len().cast_signed())
                    }
                }
        })
    }

    /// Watches the dicts in the value that `dict` has for `key`. Returns false if that is not possible.
    fn watch(&self, py: Python<'_>, dict: &Object, key: &Object) -> bool {
        match self {
            Self::Set(_) | Self::List(_) => true,
            Self::Dict(_) => dict.has_value(py, key, |value| watch(py, value)),
            Self::Names(names) => dict.has_value(py, key, |value| {
                watch(py, value) && value.has_value(py, &names[0], |empty| watch(py, empty))
            }),
        }
    }

    /// Returns true if `value` is that of a new dict.
    fn is_met(&self, py: Python<'_>, value: &Object) -> bool {
        match self {
            Self::Set(_) => true,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_places_are_bounded_and_given_back() {
        let mut places: Vec<SparePlace> = std::iter::from_fn(SparePlace::take).collect();
        assert_eq!(places.len(), SPARES);
        assert!(SparePlace::take().is_none());
        places.pop();
        assert!(SparePlace::take().is_some());
    }
}
