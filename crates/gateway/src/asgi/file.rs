//! The files of the messages `http.response.pathsend` and `http.response.zerocopysend`.

use super::complaint::{shown, wrong_type};
use crate::descriptor;
use crate::interface::Part;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Opens the file of a message `http.response.pathsend`, and returns it as the whole body.
///
/// # Errors
/// `TypeError` or `ValueError` for an invalid message; the `OSError` of opening the file.
pub(super) fn of_path(py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Part> {
    let Some(path) = message.get_item(intern!(py, "path"))? else {
        return Err(PyValueError::new_err("http.response.pathsend has no 'path', such as '/srv/files/report.pdf'"));
    };
    let Ok(text) = path.cast::<PyString>() else {
        return Err(wrong_type(
            &path,
            "the path of http.response.pathsend must be a str such as '/srv/files/report.pdf'",
        ));
    };
    // The conversion to file-system bytes also handles the surrogates that Python uses for bytes that are not UTF-8.
    let name: PathBuf = text.extract()?;
    if !name.is_absolute() {
        return Err(PyValueError::new_err(format!(
            "the path of http.response.pathsend must be absolute, such as os.path.abspath(path): {}",
            shown(&path)
        )));
    }
    // The path may name something that blocks, such as a pipe without a writer. So it is opened in non-blocking mode,
    // and checked below.
    let opened = py.detach(|| -> io::Result<(File, Metadata)> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(&name)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    });
    let (file, metadata) = opened.map_err(|error| os_error(&error, &path))?;
    if metadata.is_dir() {
        return Err(os_error(&io::Error::from_raw_os_error(libc::EISDIR), &path));
    }
    if !metadata.is_file() {
        return Err(PyValueError::new_err(format!(
            "the path of http.response.pathsend must be that of a regular file; read what is there, and send \
             http.response.body: {}",
            Path::display(&name)
        )));
    }
    Ok(Part::File { file, offset: 0, length: metadata.len(), is_whole: true })
}

/// Returns the part of a file that a message `http.response.zerocopysend` names. Without an offset the part begins at
/// the file's current position, which then moves to the end of the part.
///
/// # Errors
/// `TypeError` or `ValueError` for an invalid message; the `OSError` that the file raises.
pub(super) fn of_descriptor(py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<Part> {
    let Some(object) = message.get_item(intern!(py, "file"))? else {
        return Err(PyValueError::new_err("http.response.zerocopysend has no 'file', such as open(path, 'rb')"));
    };
    let is_text = py.import(intern!(py, "io"))?.getattr(intern!(py, "TextIOBase"))?;
    let is_file = object.extract::<i32>().is_ok() || object.hasattr(intern!(py, "fileno"))?;
    if !is_file || object.is_instance(&is_text)? || object.is_instance_of::<PyBool>() {
        return Err(wrong_type(
            &object,
            "the file of http.response.zerocopysend must be a file with a descriptor, such as open(path, 'rb')",
        ));
    }
    let number = |name: &str, least: u64| match message.get_item(name)?.filter(|value| !value.is_none()) {
        None => Ok(None),
        Some(value) => match value.extract::<u64>() {
            Ok(number) if !value.is_instance_of::<PyBool>() && i64::try_from(number).is_ok() => Ok(Some(number)),
            _ => Err(wrong_type(
                &value,
                &format!("the {name} of http.response.zerocopysend must be an int of at least {least}"),
            )),
        },
    };
    let (offset, count) = (number("offset", 0)?, number("count", 0)?);
    let stands_at: Option<u64> = match offset {
        None if object.hasattr(intern!(py, "tell"))? => Some(object.call_method0(intern!(py, "tell"))?.extract()?),
        _ => None,
    };
    let mut file = match descriptor::duplicate(&object) {
        Ok(file) => file,
        // A file object without a descriptor, such as io.BytesIO, raises this exception.
        Err(error) if error.is_instance(py, &py.import("io")?.getattr("UnsupportedOperation")?) => {
            return Err(wrong_type(
                &object,
                "the file of http.response.zerocopysend must have a descriptor; send the content of others with \
                 http.response.body",
            ));
        }
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(PyValueError::new_err(format!(
            "the file of http.response.zerocopysend must be a regular file; read others, and send http.response.body: {}",
            shown(&object)
        )));
    }
    let start = match (offset, stands_at) {
        (Some(offset), _) | (None, Some(offset)) => offset,
        (None, None) => file.stream_position()?,
    };
    let left = metadata.len().saturating_sub(start);
    let length = count.map_or(left, |count| count.min(left));
    match (offset, stands_at) {
        (Some(_), _) => {}
        (None, Some(_)) => drop(object.call_method1(intern!(py, "seek"), (start + length,))?),
        // Both descriptors share one position.
        (None, None) => drop(file.seek(SeekFrom::Start(start + length))?),
    }
    Ok(Part::File { file, offset: start, length, is_whole: false })
}

/// Converts `error` into the `OSError` subclass for its number, with the file's name.
fn os_error(error: &io::Error, path: &Bound<'_, PyAny>) -> PyErr {
    let Some(code) = error.raw_os_error() else {
        // The path contains a NUL.
        return PyValueError::new_err(format!("the path of http.response.pathsend is none: {error}: {}", shown(path)));
    };
    let text = path.py().import("os").and_then(|os| os.call_method1("strerror", (code,))).map(Bound::unbind);
    match text {
        Ok(text) => PyOSError::new_err((code, text, path.clone().unbind())),
        Err(error) => error,
    }
}
