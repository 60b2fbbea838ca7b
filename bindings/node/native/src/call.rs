//! Calls from Rust to JavaScript: handlers of messages, jobs, the work of `once`.
//!
//! Nothing of JavaScript runs on a thread of tenure. A call is queued, the event loop that serves
//! it takes it out, and says how it ended. Until then it is work that goes on, and if Rust gives it
//! up, the loop is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::Either4;
use napi_derive::napi;
use tenure::core::BoxFuture;
use tenure::{Error, Message, OnceRun, Reason};
use tenure_cron::{Outcome, Run};
use tokio::sync::{mpsc, oneshot, watch};

use crate::environment::{Ends, Membership};
use crate::error::raise;
use crate::op::Op;
use crate::values;

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
    Notice(Message),
    Post(Message),
    Job(Run),
    /// With the number of the call of `once` that it is made for.
    Once(OnceRun, u32),
}

/// A call that waits to be taken.
pub(crate) struct Waiting {
    what: What,
    reply: oneshot::Sender<Ended>,
    /// Open while somebody waits for the answer.
    awaited: watch::Receiver<()>,
}

/// One call that JavaScript is to make.
#[napi]
pub struct Call {
    kind: &'static str,
    awaited: watch::Receiver<()>,
    open: Arc<Open>,
}

/// Until it has ended.
struct Open {
    _membership: Membership,
    // A std mutex: only the thread of the environment locks it, and for a look.
    inside: Mutex<Option<(What, oneshot::Sender<Ended>)>>,
}

impl Open {
    fn inside(&self) -> MutexGuard<'_, Option<(What, oneshot::Sender<Ended>)>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends for Open {
    fn end(&self) {
        let inside = self.inside().take();
        drop(inside);
    }
}

/// Where calls wait to be taken.
#[derive(Clone)]
pub(crate) struct Calls {
    sender: mpsc::UnboundedSender<Waiting>,
    receiver: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Waiting>>>,
}

impl Calls {
    pub(crate) fn new() -> Calls {
        let (sender, receiver) = mpsc::unbounded_channel();
        Calls { sender, receiver: Arc::new(tokio::sync::Mutex::new(receiver)) }
    }

    /// The next call; `false` once nobody can call any more.
    pub(crate) fn next(&self) -> napi::Result<Op> {
        let receiver = self.receiver.clone();
        let next = async move { Ok(receiver.lock().await.recv().await) };
        Op::new(next, |waiting| match waiting {
            Some(waiting) => Call::new(waiting).map(Either4::D),
            None => Ok(Either4::A(false)),
        })
    }

    /// Nobody takes calls any more, and those who wait are told so.
    pub(crate) fn close(&self) {
        if let Ok(mut receiver) = self.receiver.try_lock() {
            receiver.close();
            while receiver.try_recv().is_ok() {}
        }
    }

    /// Has JavaScript make a call, and waits for its end. Dropping the future gives it up.
    pub(crate) fn call(&self, what: What) -> impl Future<Output = Ended> + Send + use<> {
        let (reply, ended) = oneshot::channel();
        let (waits, awaited) = watch::channel(());
        // If nobody takes it, its reply is dropped, and that is an answer.
        let _nobody_there = self.sender.send(Waiting { what, reply, awaited });
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
                // Past the panic hook, which would print it: the error event tells of it.
                std::panic::resume_unwind(Box::new(reason));
            }
        }
    }
}

impl Call {
    fn new(waiting: Waiting) -> Result<Call, Error> {
        let Waiting { what, reply, awaited } = waiting;
        let kind = match &what {
            What::Notice(_) => "notice",
            What::Post(_) => "post",
            What::Job(_) => "job",
            What::Once(..) => "once",
        };
        let inside = Mutex::new(Some((what, reply)));
        let open = Membership::enter(|_membership| Open { _membership, inside })?;
        Ok(Call { kind, awaited, open })
    }
}

#[napi]
impl Call {
    /// What is to be called.
    #[napi(getter)]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// With what: JSON text.
    #[napi]
    pub fn argument(&self) -> Option<String> {
        let inside = self.open.inside();
        let described = match &inside.as_ref()?.0 {
            What::Notice(message) | What::Post(message) => values::message(message),
            What::Job(run) => values::run(run),
            What::Once(run, ticket) => values::once(run, *ticket),
        };
        Some(described.to_string())
    }

    /// May it still finish what it started?
    #[napi]
    pub fn is_current(&self) -> bool {
        match self.open.inside().as_ref().map(|(what, _)| what) {
            Some(What::Notice(message) | What::Post(message)) => message.is_current(),
            Some(What::Job(run)) => run.is_current(),
            Some(What::Once(run, _)) => run.is_current(),
            None => false,
        }
    }

    /// Ends with the reason when it is told to stop; with `false` when nobody waits for it now.
    #[napi]
    pub fn told_to_stop(&self) -> napi::Result<Op> {
        let mut awaited = self.awaited.clone();
        let given_up = async move { while awaited.changed().await.is_ok() {} };
        let lost: BoxFuture<'static, Reason> = match self.open.inside().as_ref() {
            Some((What::Notice(message) | What::Post(message), _)) => {
                let message = message.clone();
                Box::pin(async move { message.lost().await })
            }
            Some((What::Job(run), _)) => {
                let run = run.clone();
                Box::pin(async move { run.lost().await })
            }
            Some((What::Once(run, _), _)) => {
                let run = run.clone();
                Box::pin(async move { run.lost().await })
            }
            None => {
                let message = "this call has ended";
                return Err(raise(&Error::new(tenure::ErrorKind::Stopped, message)));
            }
        };
        let told = async move {
            tokio::select! {
                biased;
                () = given_up => Ok(None),
                reason = lost => Ok(Some(reason)),
            }
        };
        Op::new(told, |reason| {
            Ok(reason.map_or(Either4::A(false), |reason| Either4::B(reason.as_str().to_owned())))
        })
    }

    /// Says how it ended: `failed` has what it said, `lost` that it stopped because it had to.
    #[napi]
    pub fn end(&self, failed: Option<String>, lost: bool) {
        let Some((what, reply)) = self.open.inside().take() else { return };
        drop(what);
        let _given_up = reply.send(match failed {
            Some(reason) => Ended::Failed(reason),
            None if lost => Ended::Lost,
            None => Ended::Ok,
        });
    }
}
