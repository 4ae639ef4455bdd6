//! The GIL in the type system: operations that only a thread attached to the interpreter may do.
//!
//! PyO3's `Python<'py>` proves that a thread is attached, and [`Python::detach`] accepts no closure that holds one.
//! [`Object`](crate::object::Object) and [`Guarded`](crate::guarded::Guarded) require it. [`WithGil`] passes the proof
//! through the engine, which knows no Python but passes a `&mut` of its application to callbacks.
//!
//! On a free-threaded interpreter there is no lock, and several threads are attached at the same time. Nothing here
//! assumes that only one is.

use pyo3::Python;
use std::marker::PhantomData;
use std::ptr;

/// A value that a thread has borrowed while it is attached. It exists only behind a reference whose lifetime is within
/// that of the token, and it can be sent neither to another thread nor into [`Python::detach`].
#[repr(transparent)]
pub(crate) struct WithGil<T> {
    value: T,
    /// Makes the type neither `Send` nor `Sync`.
    _bound: PhantomData<*mut ()>,
}

impl<T> WithGil<T> {
    /// Borrows `value`; the token proves that the thread is attached.
    pub(crate) fn new<'a>(value: &'a mut T, _py: Python<'a>) -> &'a mut Self {
        // SAFETY: the type is transparent, so both references have the same meaning; the given one is borrowed as long
        // as the result lives.
        unsafe { &mut *ptr::from_mut(value).cast::<Self>() }
    }

    /// Returns the token and the value.
    pub(crate) fn parts(&mut self) -> (Python<'_>, &mut T) {
        // SAFETY: only `new` makes a reference to this type. It required a token, which outlives the reference. The
        // thread is detached only in closures that are `Send`, which this type is not.
        (unsafe { Python::assume_attached() }, &mut self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attach;
    use pyo3::prelude::*;

    #[test]
    fn test_value_is_reached_together_with_the_token() {
        let mut values = vec![1, 2];
        let length = attach(|py| {
            let (py, values) = WithGil::new(&mut values, py).parts();
            values.push(3);
            values.as_slice().into_pyobject(py).unwrap().len().unwrap()
        });
        assert_eq!((length, values), (3, vec![1, 2, 3]));
    }
}
