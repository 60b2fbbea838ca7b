//! Commands of which several may run at once: what `cron` and `listen` share.
//!
//! Each command runs in a task of its own, which keeps the reign until nothing of the command is
//! left. So those who asked for the command may drop it at any time: that kills the command, and
//! gives nothing back before it is gone.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Election, Tenure};
use tenure_core::Secret;
use tenure_core::sync::lock;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::environment;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::process::{
    CannotStart, End, GuardianHandle, Guardians, Notice, OnLoss, OnStuck, Policy, ReleaseNote,
    Running, Signal, StopBy, Supervisor, Wish, start_under,
};
use crate::signals::Signals;
use crate::store::StoreChoice;

/// The commands of one process, in one election.
pub(super) struct CommandSet {
    pub(super) election: Election,
    guardians: Guardians,
    on_loss: OnLoss,
    stop_by: StopBy,
    /// As it was given.
    url: Secret,
    out: Output,
    wish: watch::Sender<Wish>,
    tasks: Mutex<JoinSet<()>>,
}

/// One command.
pub(super) struct CommandSpec {
    /// What people know it by.
    pub(super) label: String,
    pub(super) argv: Vec<OsString>,
    /// What it finds in its environment, beside what all commands do.
    pub(super) envs: Vec<(&'static str, String)>,
    /// Its stdin, if not tenure's.
    pub(super) stdin: Option<OwnedFd>,
    pub(super) timeout: Option<Duration>,
}

/// Why a command did not run.
pub(super) enum NotRun {
    /// It can't be started.
    Cannot(CannotStart),
    /// Leadership was lost, or its guardian was.
    Lost,
}

impl CommandSet {
    /// With a guardian that stands by: it has to be there before the campaign. With a note it gives
    /// the lease back when this process is dead with all its commands.
    pub(super) fn new(
        election: &Election,
        (on_loss, stop_by): (OnLoss, StopBy),
        (choice, note): (&StoreChoice, Option<ReleaseNote>),
        out: &Output,
    ) -> Result<Arc<CommandSet>, Failure> {
        let guardians = Guardians::new(note);
        guardians.stand_by()?;
        Ok(Arc::new(CommandSet {
            election: election.clone(),
            guardians,
            on_loss,
            stop_by,
            url: choice.url.clone(),
            out: out.clone(),
            wish: watch::Sender::default(),
            tasks: Mutex::default(),
        }))
    }

    /// Runs a command under a reign, until nothing of it is left.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped the command is killed, and the reign is kept until
    /// nothing of it is left.
    pub(super) async fn run(
        self: &Arc<CommandSet>,
        reign: impl AsRef<Tenure> + Send + Sync + 'static,
        command: CommandSpec,
    ) -> Result<End, NotRun> {
        let (done, ended) = oneshot::channel();
        let set = Arc::clone(self);
        {
            let mut tasks = lock(&self.tasks);
            // What has ended is not kept.
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move { set.run_to_its_end(reign, command, done).await });
        }
        // Its task is gone only if the process is about to be.
        ended.await.unwrap_or(Ok(End::Stuck))
    }

    async fn run_to_its_end(
        &self,
        reign: impl AsRef<Tenure> + Send + Sync,
        command: CommandSpec,
        mut done: oneshot::Sender<Result<End, NotRun>>,
    ) {
        let CommandSpec { label, argv, envs, stdin, timeout } = command;
        let started = self.start(reign.as_ref(), &argv, envs, stdin);
        let (running, guardian) = match started {
            Ok(started) => started,
            Err(not_run) => return drop(done.send(Err(not_run))),
        };
        let command = Held { running, guardian, reign: Arc::new(reign) };
        let tell = |notice: Notice| {
            let sentence = format!("{label}: {notice}");
            match notice {
                Notice::Stuck { .. } => self.out.error(&sentence),
                _ => self.out.warn(&sentence),
            }
        };
        let supervisor = Supervisor {
            tenure: (*command.reign).as_ref(),
            election: &self.election,
            guardian: &command.guardian,
            wish: self.wish.subscribe(),
            policy: Policy {
                on_loss: self.on_loss,
                timeout,
                stuck: OnStuck::Wait,
                stop: self.stop_by,
            },
            tell: &tell,
        };
        let end = supervisor.until_gone(&command.running, done.closed()).await;
        // The end may be recorded under the reign, so who waits for it has it in hand too.
        let _dropped = done.send(Ok(end));
    }

    fn start(
        &self,
        tenure: &Tenure,
        argv: &[OsString],
        more: Vec<(&'static str, String)>,
        stdin: Option<OwnedFd>,
    ) -> Result<(Running, GuardianHandle), NotRun> {
        let cannot = |error: std::io::Error| NotRun::Cannot(error.into());
        let guardian = self.guardians.take().map_err(cannot)?;
        // One more than there are commands, for when this process is killed while none runs.
        self.guardians.stand_by().map_err(cannot)?;
        let mut envs = environment(tenure, &self.url);
        envs.extend(more);
        let timing = self.election.timing();
        let running = start_under(tenure, timing, &guardian, argv, envs, stdin);
        match running.map_err(NotRun::Cannot)? {
            Some(running) => Ok((running, guardian)),
            None => Err(NotRun::Lost),
        }
    }

    /// Ends: the commands are told, and `stopping` and what runs are waited for. A second signal
    /// kills the commands, and the third does not wait.
    pub(super) async fn wind_up(
        &self,
        signal: Signal,
        signals: &mut Signals,
        stopping: impl Future<Output = ()>,
    ) -> Exit {
        self.wish.send_modify(|wish| *wish = wish.after(signal));
        let ending = async {
            stopping.await;
            self.all_gone().await;
        };
        tokio::pin!(ending);
        tokio::select! {
            () = &mut ending => return Exit::DONE,
            again = signals.end() => self.wish.send_modify(|wish| *wish = wish.after(again)),
        }
        tokio::select! {
            () = &mut ending => {}
            _ = signals.end() => {}
        }
        Exit::by_signal(signal)
    }

    /// Waits until nothing runs.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, commands that run are killed.
    pub(super) async fn all_gone(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *lock(&self.tasks));
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }
}

/// A command and its reign, which is kept until nothing of the command is left, whatever becomes of
/// the task.
struct Held<R> {
    running: Running,
    guardian: GuardianHandle,
    reign: Arc<R>,
}

impl<R> Drop for Held<R> {
    fn drop(&mut self) {
        if !self.running.end() {
            // Somebody may still work under this term. It must not be given back.
            std::mem::forget(Arc::clone(&self.reign));
        }
    }
}
