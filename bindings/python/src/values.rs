//! From the words of tenure to values of Python: plain ones, which typed Python wraps.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tenure::{Event, Leader, Term};

use crate::error::exception;

/// A leader as a dict.
pub(crate) fn leader(py: Python<'_>, leader: &Leader) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("id", leader.holder.as_str())?;
    dict.set_item("label", leader.holder.label())?;
    dict.set_item("term", leader.term.map(Term::get))?;
    dict.set_item("remaining", leader.remaining.as_secs_f64())?;
    dict.set_item("since_unix_ms", leader.since_unix_ms)?;
    dict.set_item("metadata", leader.metadata.as_ref().map(|metadata| metadata.as_str()))?;
    Ok(dict.into_any().unbind())
}

/// A leader, or `None`.
pub(crate) fn maybe_leader(py: Python<'_>, who: Option<&Leader>) -> PyResult<Py<PyAny>> {
    match who {
        Some(who) => leader(py, who),
        None => Ok(py.None()),
    }
}

/// An event: its name, and what there is to know of it.
pub(crate) fn event(py: Python<'_>, event: &Event) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    match event {
        Event::Elected { term } => dict.set_item("term", term.get())?,
        Event::ListenFailed { term, error } | Event::RenewalFailed { term, error } => {
            dict.set_item("term", term.get())?;
            dict.set_item("error", exception(py, error)?)?;
        }
        Event::Draining { term, reason, left } => {
            dict.set_item("term", term.get())?;
            dict.set_item("reason", reason.as_str())?;
            dict.set_item("left", left.as_secs_f64())?;
        }
        Event::SteppedDown { term, reason } => {
            dict.set_item("term", term.get())?;
            dict.set_item("reason", reason.as_str())?;
        }
        Event::LeaderChanged { leader } => {
            dict.set_item("leader", maybe_leader(py, leader.as_ref())?)?;
        }
        Event::StoreLost { error } => dict.set_item("error", exception(py, error)?)?,
        Event::Settling { left } => dict.set_item("left", left.as_secs_f64())?,
        Event::StoreClockStepped { by, ahead } => {
            dict.set_item("by", by.as_secs_f64())?;
            dict.set_item("ahead", ahead)?;
        }
        Event::DuplicateLabel { holder } => dict.set_item("holder", holder.as_str())?,
        Event::TermFell { granted, least } => {
            dict.set_item("granted", granted.get())?;
            dict.set_item("least", least.get())?;
        }
        Event::Missed { count } => dict.set_item("count", count)?,
        _ => {}
    }
    Ok((event.name(), dict).into_pyobject(py)?.into_any().unbind())
}
