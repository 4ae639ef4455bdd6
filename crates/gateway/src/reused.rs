//! Request dicts (environs and scopes) that are reused, if no code can distinguish them from new ones.
//!
//! A dict is reused only if nothing else refers to it or to its values that belong to one request, and if each entry
//! still has the same key and value objects as a new dict. Any other dict is freed at once, with the values that the
//! application left in it. Without a GIL no dict is reused, because another thread may take a reference at any time.
//!
//! A dict that was returned unchanged is [watched](crate::watched) from then on. As long as no watched dict has
//! changed, its entries need not be compared.

use crate::guarded::Guarded;
use crate::object::Object;
use crate::watched::{changes, watch};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// After so many consecutive changed dicts, the application is assumed to change all of them.
const MISSES: u8 = 4;

/// The maximum number of spare dicts in this process. If there are more connections, most of them are idle, and their
/// spare dicts would only take memory.
const SPARES: usize = 1024;

/// A pool of one dict for requests whose dicts are alike, such as those of one connection.
pub(crate) struct Reused {
    /// A copy of a new dict, which has the same entries in the same order.
    model: Object,
    /// The entries whose values belong to one request.
    own: Box<[(Object, Own)]>,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    spare: Option<Spare>,
    /// The watched dict that the pool lent last.
    lent: Option<Lent>,
    /// The number of consecutive dicts that the application changed or kept.
    misses: u8,
}

/// A dict that is ready for reuse.
struct Spare {
    dict: Object,
    is_watched: bool,
    place: SparePlace,
}

/// One of the [`SPARES`] places for spare dicts.
struct SparePlace;

static TAKEN_PLACES: AtomicUsize = AtomicUsize::new(0);

impl SparePlace {
    /// Takes a place; `None` if all are taken.
    fn take() -> Option<Self> {
        let taken = TAKEN_PLACES.fetch_add(1, Ordering::Relaxed);
        let place = Self;
        // If this was one too many, the drop of `place` gives it back at once.
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
    /// The number of changes of all watched dicts when the dict was lent.
    changes: u64,
}

// SAFETY: the address is only compared.
unsafe impl Send for Lent {}

/// The way to check the value of an entry that belongs to one request.
pub(crate) enum Own {
    /// The server sets the value before each call. After the call it sets this object again.
    Set(Object),
    /// The value is a list that belongs to the request, with the same items as this list, which never changes.
    List(Object),
    /// The value is a dict that belongs to the request, with these entries.
    Dict(Arc<[(Object, Object)]>),
    /// The value is a dict that belongs to the request, in which all these keys have the same empty dict as value.
    Names(Arc<[Object]>),
}

impl Reused {
    pub(crate) fn new(model: Object, own: impl IntoIterator<Item = (Object, Own)>) -> Self {
        Self { model, own: own.into_iter().collect(), state: Guarded::new(State::default()) }
    }

    /// Removes and returns the spare dict; `None` if there is none.
    pub(crate) fn take(&self, py: Python<'_>) -> Option<Object> {
        self.state.with(py, |state| {
            let Spare { dict, is_watched, place } = state.spare.take()?;
            drop(place);
            state.lent = is_watched.then(|| Lent { dict: dict.as_ptr(), changes: changes(py) });
            Some(dict)
        })
    }

    /// Takes back the dict of a call that has ended, and keeps it if it can be reused. This may run application code.
    #[inline(never)]
    pub(crate) fn take_back(&self, py: Python<'_>, dict: Object) {
        let (lent, has_another, misses) = self.state.with(py, |state| {
            let lent = state.lent.take_if(|lent| lent.dict == dict.as_ptr());
            (lent, state.lent.is_some() || state.spare.is_some(), state.misses)
        });
        if lent.is_none() && has_another {
            // Requests that are served concurrently, such as pipelined ones, share one spare dict; the others are
            // freed.
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
                // An allocation failed.
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

    /// Returns true if `dict` is indistinguishable from a new dict. `is_unchanged`: no item was set in it or in one of
    /// its nested dicts since it was lent.
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

    /// Starts to watch a dict and its nested dicts. Returns false if that is not possible.
    fn watch(&self, py: Python<'_>, dict: &Object) -> bool {
        watch(py, dict) && self.own.iter().all(|(key, own)| own.watch(py, dict, key))
    }
}

impl Own {
    /// Returns true if only `dict` refers to its value of `key`, and a list has the items of a new one.
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

    /// Starts to watch the dicts in the value that `dict` has for `key`. Returns false if that is not possible.
    fn watch(&self, py: Python<'_>, dict: &Object, key: &Object) -> bool {
        match self {
            Self::Set(_) | Self::List(_) => true,
            Self::Dict(_) => dict.has_value(py, key, |value| watch(py, value)),
            Self::Names(names) => dict.has_value(py, key, |value| {
                watch(py, value) && value.has_value(py, &names[0], |empty| watch(py, empty))
            }),
        }
    }

    /// Returns true if `value` is indistinguishable from the value in a new dict.
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
