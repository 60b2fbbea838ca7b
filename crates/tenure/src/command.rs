//! What handles ask of the driver.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Error, Name, Op, Reply, Settings, Term};
use tokio::sync::{mpsc, oneshot};

use crate::channels::Order;
use crate::relay::Notice;
use crate::shared::Shared;
use crate::slot::Done;

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
    RelayDone {
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
    Sync {
        done: oneshot::Sender<()>,
    },
    Apply {
        op: Op,
        timeout: Duration,
        done: oneshot::Sender<Reply>,
    },
}

pub(crate) struct NewSlot {
    pub(crate) id: u64,
    pub(crate) settings: Settings,
    pub(crate) shared: Arc<Shared>,
    pub(crate) relay: Option<mpsc::Sender<Notice>>,
    pub(crate) office: Option<mpsc::UnboundedSender<Order>>,
}

pub(crate) type Commands = mpsc::UnboundedSender<Command>;
pub(crate) type WeakCommands = mpsc::WeakUnboundedSender<Command>;

/// The names that a driver carries, so that one candidate enters each election once.
pub(crate) type Names = Arc<Mutex<HashSet<Name>>>;
