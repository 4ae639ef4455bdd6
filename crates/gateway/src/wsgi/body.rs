//! Response bodies that the server requests part by part from the iterable that the application returned.

use super::file_wrapper::FileWrapper;
use crate::interface::ResponseBody;
use crate::object::{Chunk, Object};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use std::fs::File;

/// The iterable that the application returned, and the iteration over it.
pub(crate) struct Iterable {
    returned: Object,
    /// The iterator; `None` before the start and after the end of the iteration.
    iterator: Option<Object>,
    /// True for a [`FileWrapper`], whose body is truncated to the declared length of the response (PEP 3333).
    is_file: bool,
}

impl Iterable {
    /// Creates a body from the object that the application returned.
    pub(super) fn new(py: Python<'_>, returned: Object) -> Self {
        let is_file = returned.bind(py).is_exact_instance_of::<FileWrapper>();
        Self { returned, iterator: None, is_file }
    }
}

impl ResponseBody for Iterable {
    /// Gets the iterator. An application may call `start_response` in `__iter__` or in the first `__next__`.
    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: the iterable is live and the thread attached.
        let iterator = unsafe { Object::from_new_or_error(py, ffi::PyObject_GetIter(self.returned.as_ptr())) };
        self.iterator = Some(iterator?);
        Ok(())
    }

    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Chunk>> {
        let Some(iterator) = &self.iterator else { return Ok(None) };
        // SAFETY: the iterator is live and the thread attached.
        let item = unsafe { Object::from_new(ffi::PyIter_Next(iterator.as_ptr())) };
        if let Some(item) = item {
            return Chunk::of(py, item).map(Some);
        }
        self.iterator = None;
        PyErr::take(py).map_or(Ok(None), Err)
    }

    fn ends_at_length(&self) -> bool {
        self.is_file
    }

    fn regular_file(&self, py: Python<'_>) -> Option<(File, u64, u64)> {
        if !self.is_file {
            return None;
        }
        let returned = self.returned.bind(py);
        returned.cast::<FileWrapper>().ok()?.get().regular_file(py)
    }

    fn close(self, py: Python<'_>) -> PyResult<()> {
        match self.returned.bind(py).getattr_opt(intern!(py, "close")) {
            Ok(Some(close)) => close.call0().map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
