//! What handles ask of the driver.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Error, Name, Op, Reply, Settings, Term};
use tokio::sync::{mpsc, oneshot};

use crate::channels::Order;
use crate::relay::Notice;
use crate::shared::Shared;
use crate::slot::{Done, Promises};

/// One wish.
pub(crate) enum Command {
    Add(Box<NewSlot>),
    Start {
        id: u64,
        done: Done,
    },
    Observe {
        id: u64,
        done: Done,
    },
    Stop {
        id: u64,
        done: Done,
    },
    Resign {
        id: u64,
        term: Option<Term>,
        done: Option<Done>,
    },
    /// Somebody waits to lead, since the election had been stopped so often.
    Enter {
        id: u64,
        stops: u64,
    },
    Exit {
        id: u64,
        stops: u64,
    },
    TenureEnded {
        id: u64,
        term: Term,
    },
    WorkEnded {
        id: u64,
        term: Term,
    },
    /// The callbacks have ended; whether `on_lost` has returned.
    RelayDone {
        id: u64,
        term: Term,
        returned: bool,
    },
    /// Everybody who was told "you lead" in this reign is done.
    Done {
        id: u64,
        term: Term,
    },
    Listening {
        id: u64,
        term: Term,
        done: Result<(), Error>,
    },
    Remove {
        id: u64,
    },
    /// The last handle of the candidate is gone. Relays and handlers may still have things to say.
    Retire,
    Sync {
        done: oneshot::Sender<()>,
    },
    Apply {
        op: Op,
        timeout: Duration,
        done: oneshot::Sender<Reply>,
    },
}

impl Command {
    /// The election that it is about.
    pub(crate) fn election(&self) -> Option<u64> {
        match self {
            Command::Start { id, .. }
            | Command::Observe { id, .. }
            | Command::Stop { id, .. }
            | Command::Resign { id, .. }
            | Command::Enter { id, .. }
            | Command::Exit { id, .. }
            | Command::TenureEnded { id, .. }
            | Command::WorkEnded { id, .. }
            | Command::RelayDone { id, .. }
            | Command::Done { id, .. }
            | Command::Listening { id, .. }
            | Command::Remove { id } => Some(*id),
            Command::Add(_) | Command::Retire | Command::Sync { .. } | Command::Apply { .. } => {
                None
            }
        }
    }
}

pub(crate) struct NewSlot {
    pub(crate) id: u64,
    pub(crate) settings: Settings,
    pub(crate) shared: Arc<Shared>,
    pub(crate) relay: Option<mpsc::Sender<Notice>>,
    pub(crate) callbacks: Promises,
    pub(crate) dispatcher: Option<mpsc::UnboundedSender<Order>>,
}

pub(crate) type Commands = mpsc::UnboundedSender<Command>;
pub(crate) type WeakCommands = mpsc::WeakUnboundedSender<Command>;

/// The names for which there are handles, so that one candidate enters each election once.
pub(crate) type Names = Arc<Mutex<HashSet<Name>>>;
