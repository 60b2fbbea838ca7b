//! From an error of tenure to an exception of the package.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tenure::{Error, ErrorKind};

/// The exception for an error; made in Python, where the classes are.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match exception(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// The exception as a value.
pub(crate) fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("tenure._errors")?.getattr("_make")?.unbind())
    })?;
    let parts = (kind(error), error.to_string(), error.is_retryable(), error.store());
    make.bind(py).call1(parts)
}

fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Config => "config",
        ErrorKind::Denied => "denied",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Stopped => "stopped",
        ErrorKind::Crashed => "crashed",
        ErrorKind::Forked => "forked",
        _ => "unavailable",
    }
}
