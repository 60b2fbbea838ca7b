//! Calls from Rust to Python: callbacks, handlers of messages, jobs.
//!
//! Nothing of Python runs on a thread of tenure. A call is queued, the event loop that serves it
//! takes it out, and says how it ended. Until then it is work that goes on, and if Rust gives it
//! up, the loop is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tenure::core::BoxFuture;
use tenure::{Error, Message, OnceRun, Reason, Term};
use tenure_cron::{Outcome, Run};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::exception;
use crate::op::Op;

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Ok,
    Failed(String),
    /// It was told that leadership is over, and stopped for that.
    Lost,
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Outcome {
        match ended {
            Ended::Ok => Outcome::Ok,
            Ended::Failed(reason) => Outcome::Failed { code: 1, reason },
            Ended::Lost => Outcome::Lost,
        }
    }
}

/// What is called, and with what.
pub(crate) enum What {
    Elected(Term),
    Lost(Term),
    Change(Option<Term>),
    Error(Error),
    Notice(Message),
    Post(Message),
    Job(Run),
    /// With the number of the call of `once` that it is made for.
    Once(OnceRun, u64),
}

impl What {
    fn kind(&self) -> &'static str {
        match self {
            What::Elected(_) => "on_elected",
            What::Lost(_) => "on_lost",
            What::Change(_) => "on_change",
            What::Error(_) => "on_error",
            What::Notice(_) => "notice",
            What::Post(_) => "post",
            What::Job(_) => "job",
            What::Once(..) => "once",
        }
    }
}

/// One call that Python is to make.
#[pyclass(frozen, module = "tenure._native")]
pub(crate) struct Call {
    kind: &'static str,
    /// Until it has ended: it may hold a reign, and an exception may hold the frame that holds us.
    // Locked only while attached to the interpreter, and for a look.
    what: Mutex<Option<What>>,
    reply: Mutex<Option<oneshot::Sender<Ended>>>,
    /// Open while somebody waits for the answer.
    awaited: watch::Receiver<()>,
}

/// Where calls wait to be taken.
pub(crate) struct Calls {
    sender: mpsc::UnboundedSender<Call>,
    receiver: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Call>>>,
}

impl Calls {
    pub(crate) fn new() -> Calls {
        let (sender, receiver) = mpsc::unbounded_channel();
        Calls { sender, receiver: Arc::new(tokio::sync::Mutex::new(receiver)) }
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller(self.sender.clone())
    }

    /// The next call; `None` once nobody can call any more.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Op> {
        let receiver = self.receiver.clone();
        let next = async move { Ok(receiver.lock().await.recv().await) };
        Op::new(py, next, |py, call| match call {
            Some(call) => Ok(Py::new(py, call)?.into_any()),
            None => Ok(py.None()),
        })
    }
}

/// Makes calls.
#[derive(Clone)]
pub(crate) struct Caller(mpsc::UnboundedSender<Call>);

impl Caller {
    /// Has Python make a call, and waits for its end. Dropping the future gives it up.
    pub(crate) fn call(&self, what: What) -> impl Future<Output = Ended> + Send + use<> {
        let (reply, ended) = oneshot::channel();
        let (waits, awaited) = watch::channel(());
        let (kind, what) = (what.kind(), Mutex::new(Some(what)));
        let call = Call { kind, what, reply: Mutex::new(Some(reply)), awaited };
        // If nobody takes it, its reply is dropped, and that is an answer.
        let _nobody_there = self.0.send(call);
        async move {
            let _waits = waits;
            let gone = || Ended::Failed("the event loop that served it is gone".to_owned());
            ended.await.unwrap_or_else(|_| gone())
        }
    }

    /// The same for a callback, whose failure tenure knows as a panic.
    pub(crate) fn callback(&self, what: What) -> impl Future<Output = ()> + Send + use<> {
        let call = self.call(what);
        async move {
            if let Ended::Failed(reason) = call.await {
                // Past the panic hook, which would print it: it is logged as an exception.
                std::panic::resume_unwind(Box::new(reason));
            }
        }
    }
}

#[pymethods]
impl Call {
    /// What is to be called.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    /// With what.
    #[getter]
    fn argument(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let what = self.what();
        let Some(what) = &*what else { return Ok(py.None()) };
        match what {
            What::Elected(term) | What::Lost(term) => number(py, Some(*term)),
            What::Change(term) => number(py, *term),
            What::Error(error) => Ok(exception(py, error)?.unbind()),
            What::Notice(message) | What::Post(message) => describe_message(py, message),
            What::Job(run) => describe_run(py, run),
            What::Once(run, ticket) => describe_once(py, run, *ticket),
        }
    }

    /// May it still finish what it started?
    fn is_current(&self) -> bool {
        match &*self.what() {
            Some(What::Notice(message) | What::Post(message)) => message.is_current(),
            Some(What::Job(run)) => run.is_current(),
            Some(What::Once(run, _)) => run.is_current(),
            Some(_) => true,
            None => false,
        }
    }

    /// Ends with the reason when it is told to stop; with `None` when nobody waits for it any more.
    fn told_to_stop(&self, py: Python<'_>) -> PyResult<Op> {
        let mut awaited = self.awaited.clone();
        let given_up = async move { while awaited.changed().await.is_ok() {} };
        let lost: BoxFuture<'static, Reason> = match &*self.what() {
            Some(What::Notice(message) | What::Post(message)) => {
                let message = message.clone();
                Box::pin(async move { message.lost().await })
            }
            Some(What::Job(run)) => {
                let run = run.clone();
                Box::pin(async move { run.lost().await })
            }
            Some(What::Once(run, _)) => {
                let run = run.clone();
                Box::pin(async move { run.lost().await })
            }
            _ => Box::pin(std::future::pending()),
        };
        let told = async move {
            tokio::select! {
                biased;
                () = given_up => Ok(None),
                reason = lost => Ok(Some(reason.as_str())),
            }
        };
        Op::new(py, told, |py, reason| Ok(reason.into_pyobject(py)?.into_any().unbind()))
    }

    /// Says how it ended: `failed` has what it said, `lost` that it stopped because it had to.
    #[pyo3(signature = (failed=None, lost=false))]
    fn end(&self, failed: Option<String>, lost: bool) {
        let what = self.what().take();
        drop(what);
        let reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = match failed {
            Some(reason) => Ended::Failed(reason),
            None if lost => Ended::Lost,
            None => Ended::Ok,
        };
        if let Some(reply) = reply {
            let _given_up = reply.send(ended);
        }
    }
}

impl Call {
    fn what(&self) -> MutexGuard<'_, Option<What>> {
        self.what.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(py: Python<'_>, term: Option<Term>) -> PyResult<Py<PyAny>> {
    Ok(term.map(Term::get).into_pyobject(py)?.into_any().unbind())
}

fn describe_message(py: Python<'_>, message: &Message) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("channel", &message.channel)?;
    dict.set_item("payload", &message.payload)?;
    dict.set_item("term", message.term.get())?;
    dict.set_item("attempt", message.attempt)?;
    dict.set_item("id", message.id)?;
    dict.set_item("key", message.key.as_deref())?;
    Ok(dict.into_any().unbind())
}

fn describe_run(py: Python<'_>, run: &Run) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("job", run.job())?;
    dict.set_item("scheduled_unix_ms", run.scheduled_unix_ms())?;
    dict.set_item("attempt", run.attempt())?;
    dict.set_item("manual", run.is_manual())?;
    dict.set_item("term", run.term().get())?;
    Ok(dict.into_any().unbind())
}

fn describe_once(py: Python<'_>, run: &OnceRun, ticket: u64) -> PyResult<Py<PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item("ticket", ticket)?;
    dict.set_item("key", run.key())?;
    dict.set_item("attempt", run.attempt())?;
    dict.set_item("term", run.term().get())?;
    Ok(dict.into_any().unbind())
}
