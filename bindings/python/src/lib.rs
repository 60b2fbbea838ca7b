//! The native part of the Python package `tenure`: a small surface, with everything pleasant in
//! typed Python over it.
//!
//! What goes on in Rust is an `Op`: a future that the event loop of the caller polls, on
//! its own thread. What wakes it writes to a file descriptor that the loop waits for. So no
//! thread of tenure ever touches the interpreter, and a loop that is blocked answers no bell.

mod call;
mod candidate;
mod cron;
mod election;
mod error;
mod log;
mod meter;
mod op;
mod port;
mod process;
mod reign;
mod values;

/// The module `tenure._native`.
///
/// It says that it needs the GIL: a free-threaded interpreter turns it on when it imports this.
/// Some locks rely on it at a fork, and no such build was tested.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    use pyo3::exceptions::PyImportError;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::candidate::Candidate;
    #[pymodule_export]
    use crate::cron::{Cron, next_ticks};
    #[pymodule_export]
    use crate::election::{Election, Events};
    #[pymodule_export]
    use crate::log::{Log, take_logs};
    #[pymodule_export]
    use crate::meter::metrics_snapshot;
    #[pymodule_export]
    use crate::op::Op;
    #[pymodule_export]
    use crate::port::Port;
    #[pymodule_export]
    use crate::process::stop_all;
    #[pymodule_export]
    use crate::reign::{Reign, Work};

    /// Refuses sub-interpreters: threads, forks and the end of the process are known to one
    /// interpreter only. PyO3 refuses the second one that imports this, whichever that is.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let _attached = module.py();
        // SAFETY: both are called while attached to an interpreter, which is then the current one,
        // and neither stores anything.
        let id =
            unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
        if id == 0 {
            return Ok(());
        }
        let message = "tenure does not support subinterpreters; use the main one, or processes";
        Err(PyImportError::new_err(message))
    }
}
