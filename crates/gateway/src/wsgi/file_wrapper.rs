//! `wsgi.file_wrapper` (PEP 3333, "Optional Platform-Specific File Handling").

use crate::descriptor;
use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;

/// An iterator over the blocks of a file-like object. If possible, the server sends the file with sendfile(2) instead.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct FileWrapper {
    file: Py<PyAny>,
    block_size: usize,
}

#[pymethods]
impl FileWrapper {
    #[new]
    #[pyo3(signature = (file, block_size = 8192))]
    fn new(file: Py<PyAny>, block_size: usize) -> Self {
        Self { file, block_size: block_size.max(1) }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let block = self.file.bind(py).call_method1(intern!(py, "read"), (self.block_size,))?;
        let is_end = block.cast::<PyBytes>().map_or_else(|_| Ok(false), |bytes| bytes.is_empty())?;
        if is_end { Err(PyStopIteration::new_err(())) } else { Ok(block) }
    }

    /// Closes the file, if it has `close`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.file.bind(py).getattr_opt(intern!(py, "close"))? {
            Some(close) => close.call0().map(drop),
            None => Ok(()),
        }
    }
}

impl FileWrapper {
    /// Returns the file from its current position to its end: a new descriptor, the offset, and the number of remaining
    /// bytes. Returns `None` if the object must be read instead, because it is not a regular file.
    pub(crate) fn regular_file(&self, py: Python<'_>) -> Option<(File, u64, u64)> {
        let object = self.file.bind(py);
        // Objects that expose the descriptor of another file (gzip files, decrypting wrappers) return other data than
        // the file contains. Only these classes are known not to.
        let io = py.import(intern!(py, "io")).ok()?;
        let kind = object.get_type();
        let is_plain = ["BufferedReader", "BufferedRandom", "FileIO"]
            .iter()
            .any(|name| io.getattr(*name).is_ok_and(|plain| plain.is(&kind)));
        if !is_plain {
            return None;
        }
        // Errors are ignored here: if they are faults, reading the file reports them. The descriptor is duplicated
        // last, because `tell` releases the GIL, and another thread may close the file meanwhile.
        let offset: u64 = object.call_method0(intern!(py, "tell")).ok()?.extract().ok()?;
        let file = descriptor::duplicate(object).ok()?;
        let metadata = file.metadata().ok()?;
        metadata.is_file().then(|| (file, offset, metadata.len().saturating_sub(offset)))
    }
}
