//! The GIL in types: what may be done only by a thread that is attached to the interpreter.
//!
//! PyO3's `Python<'py>` shows that a thread is attached, and [`Python::detach`] takes no closure that could use one.
//! [`Object`](crate::object::Object) and [`Guarded`](crate::guarded::Guarded) ask for it. [`WithGil`] takes it through
//! the engine, which knows no Python but hands a `&mut` of its application on.
//!
//! On a free-threaded interpreter there is no lock, and several threads are attached at a time. Nothing here says that
//! there is one only.

use pyo3::Python;
use std::marker::PhantomData;
use std::ptr;

/// A value that a thread has borrowed while it is attached. It exists only behind a reference, whose lifetime is within
/// that of the token it was made from, and it cannot be sent to another thread or into [`Python::detach`].
#[repr(transparent)]
pub(crate) struct WithGil<T> {
    value: T,
    /// Neither `Send` nor `Sync`: see above.
    _bound: PhantomData<*mut ()>,
}

impl<T> WithGil<T> {
    /// Borrows `value`, by a thread that is attached.
    pub(crate) fn new<'a>(value: &'a mut T, _py: Python<'a>) -> &'a mut Self {
        // SAFETY: the type is transparent, so both references mean the same; the one that is given is borrowed for as
        // long as the other lives.
        unsafe { &mut *ptr::from_mut(value).cast::<Self>() }
    }

    /// The token, and the value.
    pub(crate) fn parts(&mut self) -> (Python<'_>, &mut T) {
        // SAFETY: a reference to this is made by `new`, which was given a token, and lives no longer than that. The
        // thread is detached meanwhile only in closures that are `Send`, which this is not.
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
