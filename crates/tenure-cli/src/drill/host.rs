//! The command as the host of a drill.

use std::cell::Cell;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenure::{BootClock, Clock, Error, Store, Time};
use tenure_core::{BoxFuture, Secret};
use tenure_drill::{Assignment, Host, Interrupt, Progress};

use super::candidate::{Brief, CANDIDATE};
use crate::output::Output;
use crate::signals::Signals;
use crate::store::StoreChoice;

/// How often to tell of progress where lines stay.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Starts this binary as candidates, and shows how far the drill is: by one line that changes on a
/// terminal, else by one now and then.
pub(crate) struct CommandHost<'a> {
    out: &'a Output,
    redraws: bool,
    said: Cell<Option<Time>>,
}

impl CommandHost<'_> {
    pub(crate) fn new(out: &Output) -> CommandHost<'_> {
        let redraws = io::stderr().is_terminal() && out.is_for_people();
        CommandHost { out, redraws, said: Cell::new(None) }
    }
}

impl Host for CommandHost<'_> {
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(BootClock)
    }

    fn open(&self, url: &Secret) -> Result<Arc<dyn Store>, Error> {
        let store = StoreChoice::new(Some(url));
        let store = store.map_err(|failure| Error::config(failure.error.to_string()))?;
        Ok(store.open()?.store)
    }

    fn candidate(&self, part: &Assignment<'_>) -> io::Result<Command> {
        let brief = Brief {
            election: part.election.clone(),
            ttl: part.ttl,
            directory: part.directory.to_owned(),
        };
        let mut command = Command::new(own_binary()?);
        command.args([CANDIDATE, part.label, &brief.to_json().to_string()]);
        // Not as an argument: there may be a password in it.
        command.env("TENURE_STORE", part.url.expose());
        Ok(command)
    }

    fn say(&self, sentence: &str) {
        self.out.say(sentence);
    }

    fn warn(&self, sentence: &str) {
        self.out.warn(sentence);
    }

    fn progress(&self, progress: &Progress) {
        let (now, said) = (BootClock::time(), self.said.get());
        let is_due = said.is_none_or(|said| now >= said + SAY_EVERY);
        if self.redraws && said.is_some() {
            self.out.say_over(&progress.to_string());
        } else if self.redraws || is_due {
            self.out.say(&progress.to_string());
        } else {
            return;
        }
        self.said.set(Some(now));
    }
}

impl Interrupt for Signals {
    fn asked(&mut self) -> BoxFuture<'_, i32> {
        Box::pin(async { self.end().await.as_raw() })
    }
}

/// The binary that runs now, even if its file has been replaced meanwhile.
fn own_binary() -> io::Result<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Ok(own) } else { std::env::current_exe() }
}
