//! A response that the application produces part by part: the iterable that it has returned.

use super::file_wrapper::FileWrapper;
use crate::interface::ResponseBody;
use crate::object::{Chunk, Object};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use std::fs::File;

/// An iterable under way.
pub(crate) struct Iterable {
    returned: Object,
    /// `None` once the iterable has ended, and before it is started.
    iterator: Option<Object>,
    /// It is a [`FileWrapper`], which ends where the response's declared length does (PEP 3333).
    is_file: bool,
}

impl Iterable {
    /// Makes a body of the object that the application has returned.
    pub(super) fn new(py: Python<'_>, returned: Object) -> Self {
        let is_file = returned.bind(py).is_exact_instance_of::<FileWrapper>();
        Self { returned, iterator: None, is_file }
    }
}

impl ResponseBody for Iterable {
    /// Takes the iterator. An application may call `start_response` in `__iter__` or in the first `__next__`.
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
