//! Recognizes the exceptions by which an application says that its client has left, or that its greenlet or Task was
//! cancelled. Also makes the exceptions for broken request bodies. Classes of other packages are recognized by their
//! names, because these packages may not be loaded.

use engine::Refusal;
use pyo3::exceptions::{PyBaseException, PyConnectionResetError, PyOSError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use wire::message::Fault;

/// Returns true if a call ended as is usual after its client has left: without an exception, or with one that only says
/// so.
pub(super) fn says_no_more(py: Python<'_>, result: &PyResult<()>) -> bool {
    result.as_ref().err().is_none_or(|error| says_client_left(error.value(py)))
}

/// Returns true if an exception says only that the client has left. Such exceptions are `kirsch.ClientDisconnected`,
/// similar ones of frameworks (`ClientDisconnect` and `WebSocketDisconnect` of Starlette, `WebSocketDisconnected` of
/// Falcon, and others with "Disconnect" in their names), a cancellation, and a group of these. They have no common base
/// class.
pub(super) fn says_client_left(error: &Bound<'_, PyBaseException>) -> bool {
    if has_class(error, |name| name == "BaseExceptionGroup")
        && let Ok(parts) =
            error.getattr("exceptions").and_then(|parts| parts.extract::<Vec<Bound<'_, PyBaseException>>>())
    {
        return parts.iter().all(says_client_left);
    }
    has_class(error, |name| name.contains("Disconnect") || is_name_of_cancellation(name))
}

/// Returns true if `error` is the exception that cancels a task: `CancelledError` of asyncio, `Cancelled` of trio.
pub(super) fn is_cancellation(py: Python<'_>, error: &PyErr) -> bool {
    has_class(error.value(py), is_name_of_cancellation)
}

fn is_name_of_cancellation(name: &str) -> bool {
    matches!(name, "CancelledError" | "Cancelled")
}

/// Returns true if `error` is `GreenletExit`, which ends a greenlet without a traceback.
pub(super) fn is_greenlet_exit(py: Python<'_>, error: &PyErr) -> bool {
    has_class(error.value(py), |name| name == "GreenletExit")
}

/// Returns true if `is_meant` accepts the name of one of the exception's classes, including base classes. Compares
/// names, because the package that defines the class may not be loaded.
fn has_class(error: &Bound<'_, PyBaseException>, is_meant: impl Fn(&str) -> bool) -> bool {
    let mut classes = error.get_type().mro().into_iter();
    classes.any(|class| {
        class.cast::<PyType>().is_ok_and(|class| class.name().is_ok_and(|name| is_meant(&name.to_string_lossy())))
    })
}

/// Returns the exception that a read raises when the rest of the request body cannot be read.
pub(super) fn broken_body(refusal: Refusal) -> PyErr {
    match refusal.fault() {
        Some(Fault::Truncated) => {
            PyConnectionResetError::new_err("the client left before its request body was complete")
        }
        Some(fault) => PyOSError::new_err(format!("the request body is broken: {}", fault.explanation())),
        None if refusal.status == 504 => PyTimeoutError::new_err("the request has missed its deadline"),
        None => PyTimeoutError::new_err("the request body took too long to arrive"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attach;
    use pyo3::types::PyDict;

    /// Returns the exception that the Python code `code` creates.
    fn made(py: Python<'_>, code: &std::ffi::CStr) -> PyErr {
        let names = PyDict::new(py);
        py.run(
            c"import asyncio\nclass WebSocketDisconnected(Exception): pass\nclass GreenletExit(BaseException): pass",
            Some(&names),
            None,
        )
        .unwrap();
        PyErr::from_value(py.eval(code, Some(&names), None).unwrap())
    }

    #[test]
    fn test_exceptions_that_say_only_that_the_client_left_are_known_by_their_names() {
        attach(|py| {
            for code in [c"WebSocketDisconnected()", c"asyncio.CancelledError()"] {
                assert!(says_client_left(made(py, code).value(py)), "{code:?}");
                assert!(says_no_more(py, &Err(made(py, code))), "{code:?}");
            }
            assert!(says_no_more(py, &Ok(())));
            assert!(!says_no_more(py, &Err(made(py, c"ValueError('Disconnect')"))));
        });
    }

    #[test]
    fn test_cancellations_and_ends_of_greenlets_are_told_apart() {
        attach(|py| {
            let (cancelled, left) = (made(py, c"asyncio.CancelledError()"), made(py, c"GreenletExit()"));
            assert_eq!((is_cancellation(py, &cancelled), is_greenlet_exit(py, &cancelled)), (true, false));
            assert_eq!((is_cancellation(py, &left), is_greenlet_exit(py, &left)), (false, true));
        });
    }
}
