//! `wsgi.errors` of a request whose web server accepts error text of the application (FastCGI's STDERR).
//!
//! All text is written to the log that is the `wsgi.errors` of other requests; each line is also sent to the web
//! server, with the response or before it. The amount for the web server is limited, so that an application that
//! reports much neither delays its response nor fills memory; the log gets all of it.

use super::start_response::{StartResponseRef, WsgiHandles};
use crate::object::Object;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of bytes that a web server gets for one request.
const MOST: usize = 64 << 10;
/// The last line that the web server gets if a request reports more.
const REST: &[u8] = b"kirsch: the rest is in the log of Kirsch alone\n";
/// The length at which a line without an end is sent in part.
const PARTIAL: usize = 8 << 10;

/// The `wsgi.errors` object. Its methods are those that PEP 3333 requires; other attributes are those of the log.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct RequestErrors {
    log: Py<PyAny>,
    /// The owner of the exchange.
    start_response: StartResponseRef,
    text: Mutex<Text>,
}

/// The text of a request that is still to be sent to the web server.
struct Text {
    /// The incomplete last line.
    partial: Vec<u8>,
    /// The number of bytes that the web server may still get.
    left: usize,
}

impl Text {
    fn new() -> Self {
        Self { partial: Vec::new(), left: MOST }
    }

    /// Resets the state for another request.
    fn renew(&mut self) {
        self.partial.clear();
        self.partial.shrink_to(PARTIAL);
        self.left = MOST;
    }

    /// Appends text, and returns the lines that are complete now.
    fn take(&mut self, part: &[u8]) -> Vec<u8> {
        if self.left == 0 {
            return Vec::new();
        }
        self.partial.extend_from_slice(part);
        let complete = match memchr::memrchr(b'\n', &self.partial) {
            _ if self.partial.len() > PARTIAL => self.partial.len(),
            Some(end) => end + 1,
            None => 0,
        };
        let rest = self.partial.split_off(complete);
        let lines = std::mem::replace(&mut self.partial, rest);
        self.admit(lines)
    }

    /// Returns the incomplete line, with a line feed.
    fn flush(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.partial);
        if !line.is_empty() {
            line.push(b'\n');
        }
        self.admit(line)
    }

    fn admit(&mut self, mut lines: Vec<u8>) -> Vec<u8> {
        if lines.len() <= self.left {
            self.left -= lines.len();
        } else {
            lines.truncate(self.left);
            if lines.last().is_some_and(|&last| last != b'\n') {
                lines.push(b'\n');
            }
            lines.extend_from_slice(REST);
            self.left = 0;
            self.partial = Vec::new();
        }
        lines
    }
}

impl RequestErrors {
    /// Returns the `wsgi.errors` of a call's handles. Its text is also written to `log`.
    ///
    /// # Errors
    /// `MemoryError`.
    pub(super) fn of<'a>(py: Python<'_>, handles: &'a WsgiHandles, log: &Object) -> PyResult<&'a Object> {
        if let Some(errors) = handles.errors().get() {
            // The object belonged to an earlier request, and nothing else refers to it.
            if let Ok(errors) = errors.bind(py).cast::<Self>() {
                errors.get().text().renew();
            }
            return Ok(errors);
        }
        let log = log.bind(py).clone().unbind();
        let errors = Self { log, start_response: handles.keep(py), text: Mutex::new(Text::new()) };
        let errors = Py::new(py, errors)?.into_any().into();
        Ok(handles.errors().get_or_init(|| errors))
    }

    /// Locks the text. While the lock is held, no Python code may run and nothing may panic.
    fn text(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, py: Python<'_>, lines: &[u8]) {
        if !lines.is_empty() {
            self.start_response.exchange().write_errors(py, lines);
        }
    }
}

#[pymethods]
impl RequestErrors {
    fn write<'py>(&self, py: Python<'py>, text: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let written = self.log.bind(py).call_method1(intern!(py, "write"), (text,))?;
        if let Ok(text) = text.cast::<PyString>() {
            let lines = if let Ok(text) = text.to_str() {
                self.text().take(text.as_bytes())
            } else {
                // The text has surrogates.
                let bytes = text.call_method1(intern!(py, "encode"), ("utf-8", "backslashreplace"))?;
                let bytes = bytes.cast_into::<PyBytes>()?;
                self.text().take(bytes.as_bytes())
            };
            self.pass_on(py, &lines);
        }
        Ok(written)
    }

    fn writelines(&self, py: Python<'_>, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        lines.try_iter()?.try_for_each(|line| self.write(py, &line?).map(drop))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let lines = self.text().flush();
        self.pass_on(py, &lines);
        self.log.bind(py).call_method0(intern!(py, "flush")).map(drop)
    }

    /// Flushes. The log stays open, because all requests share it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.flush(py)
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.log.bind(py).getattr(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_text_is_passed_on_in_whole_lines() {
        let mut text = Text::new();
        assert_eq!(text.take(b"one"), b"");
        assert_eq!(text.take(b" line\nand\nano"), b"one line\nand\n");
        assert_eq!(text.flush(), b"ano\n");
        assert_eq!(text.flush(), b"");
    }

    #[test]
    fn test_line_without_an_end_is_passed_on_in_parts() {
        let mut text = Text::new();
        assert_eq!(text.take(&[b'x'; PARTIAL]), b"");
        assert_eq!(text.take(b"y").len(), PARTIAL + 1);
    }

    #[test]
    fn test_text_of_one_request_is_bounded() {
        let mut text = Text::new();
        let mut received = Vec::new();
        for _ in 0..MOST {
            received.extend(text.take(b"a line\n"));
        }
        received.extend(text.take(b"a part"));
        received.extend(text.flush());
        assert!(received.ends_with(REST));
        assert!(received.len() <= MOST + 1 + REST.len());
        assert_eq!(received.windows(REST.len()).filter(|part| part == &REST).count(), 1);
        assert!(text.partial.is_empty());
    }
}
