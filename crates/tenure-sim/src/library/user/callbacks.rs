//! Callbacks that work, block, hang and panic. Their order is a promise (I6).

use std::sync::{Arc, Mutex, OnceLock, Weak};

use tenure::{Election, ElectionBuilder, Term};
use tenure_core::sync::lock;

use super::Proc;
use crate::library::judge::Stay;
use crate::library::tail::ready;

/// The election that callbacks belong to, once there is one.
#[derive(Clone, Default)]
pub(crate) struct Own(Arc<OnceLock<Weak<Election>>>);

impl Own {
    /// It is there as long as what this returns is.
    pub(crate) fn is(self, election: &Election) -> Option<Arc<Election>> {
        let election = Arc::new(election.clone());
        self.0.set(Arc::downgrade(&election)).is_ok().then_some(election)
    }
}

/// What the callbacks of one election were told.
#[derive(Default)]
struct Told {
    leading: Option<Term>,
    last: Option<Term>,
    /// From `on_elected` until `on_lost` has returned.
    stay: Option<Stay>,
}

#[derive(Clone)]
struct Diary {
    proc: Arc<Proc>,
    election: String,
    told: Arc<Mutex<Told>>,
    own: Own,
}

/// Gives an election callbacks. With `on_lost` the whole reign is registered work.
pub(crate) fn add(
    proc: &Arc<Proc>,
    election: &str,
    builder: ElectionBuilder,
    with_lost: bool,
    own: &Own,
) -> ElectionBuilder {
    let (proc, election) = (proc.clone(), election.to_owned());
    let diary = Diary { proc, election, told: Arc::default(), own: own.clone() };
    let (elected, changed) = (diary.clone(), diary.clone());
    let builder = builder.on_elected(move |term| {
        elected.elected(term, with_lost);
        elected.clone().reign(term, with_lost)
    });
    if !with_lost {
        return builder;
    }
    let proc = changed.proc.clone();
    builder
        .on_lost(move |term| {
            diary.lost(term);
            diary.clone().wind_up(term)
        })
        .on_error(move |_error| {
            if proc.is_hostile(6) {
                proc.panic();
            }
        })
}

impl Diary {
    fn elected(&self, term: Term, with_lost: bool) {
        self.proc.sim.judge().book().seen.callbacks += 1;
        self.proc.sim.note(|| format!("{} on_elected {term}", self.proc.label));
        let stay = with_lost.then(|| self.proc.stay(&self.election, term, true));
        let mut told = lock(&self.told);
        let (leading, last) = (told.leading, told.last);
        told.leading = Some(term);
        told.last = Some(term);
        let _no_other = std::mem::replace(&mut told.stay, stay);
        drop(told);
        if (with_lost && leading.is_some()) || last >= Some(term) {
            let what = format!("on_elected tells {term} after {last:?}, and {leading:?} is led");
            self.proc.broken("order", what);
        }
        if self.proc.is_hostile(12) {
            self.block();
        }
        if self.proc.is_hostile(16) {
            self.proc.panic();
        }
        if with_lost && let Some(election) = self.calls_back() {
            // Begun and dropped at once, as by a callback that can't wait.
            let _begun = ready(self.call(&election, term));
        }
    }

    /// The election itself, if it is to be called now.
    fn calls_back(&self) -> Option<Arc<Election>> {
        let election = self.own.0.get().filter(|_| self.proc.more.calls_back)?.upgrade()?;
        self.proc.is_hostile(3).then_some(election)
    }

    /// Everything that a handle can be asked for, from inside of a callback.
    async fn call(&self, election: &Election, term: Term) {
        self.proc.sim.judge().book().seen.from_callbacks += 1;
        match self.proc.pick(7) {
            0 => drop(election.start().await),
            1 => drop(election.stop().await),
            2 => drop(election.resign().await),
            3 => drop(election.observe().await),
            4 => drop(election.done(term)),
            5 => drop(election.campaign().await),
            _ => drop(election.ask_to_resign(None).await),
        }
    }

    /// The future of `on_elected`: dropped at the loss.
    async fn reign(self, term: Term, with_lost: bool) {
        for _ in 0..self.proc.pick(30) {
            self.proc.nap().await;
            let leading = lock(&self.told).leading;
            if with_lost && leading != Some(term) {
                let what = format!("on_elected of {term} goes on after the loss was told");
                self.proc.broken("order", what);
                return;
            }
            if self.proc.is_hostile(40) {
                self.block();
            }
            if with_lost && let Some(election) = self.calls_back() {
                self.call(&election, term).await;
            }
        }
    }

    fn block(&self) {
        let stay = lock(&self.told).stay.take();
        match &stay {
            Some(stay) => stay.block(self.proc.span(self.proc.timing.ttl * 3)),
            None => self.proc.sim.block(self.proc.span(self.proc.timing.ttl)),
        }
        let mut told = lock(&self.told);
        if told.stay.is_none() {
            told.stay = stay;
        }
    }

    fn lost(&self, term: Term) {
        self.proc.sim.judge().book().seen.callbacks += 1;
        self.proc.sim.note(|| format!("{} on_lost {term}", self.proc.label));
        let leading = std::mem::take(&mut lock(&self.told).leading);
        if leading != Some(term) {
            self.proc.broken("order", format!("on_lost tells {term}, and {leading:?} was led"));
        }
        if self.proc.is_hostile(16) {
            drop(lock(&self.told).stay.take());
            let judge = self.proc.sim.judge();
            judge.must_run_out(&self.proc.label, &self.election, term.get());
            self.proc.panic();
        }
    }

    /// The future of `on_lost`: what it returns ends the reign.
    fn wind_up(self, term: Term) -> impl Future<Output = ()> + Send {
        let mut leaving = Leaving { diary: self.clone(), term, returned: false };
        async move {
            if let Some(election) = self.calls_back() {
                self.call(&election, term).await;
            }
            if self.proc.is_hostile(6) {
                self.proc.sleep(self.proc.timing.drain + self.proc.timing.ttl * 2).await;
            } else if self.proc.one_in(2) {
                self.proc.sleep(self.proc.span(self.proc.timing.drain / 2)).await;
            }
            leaving.has_returned();
        }
    }
}

/// Whether `on_lost` returns, or is dropped before.
struct Leaving {
    diary: Diary,
    term: Term,
    returned: bool,
}

impl Leaving {
    fn has_returned(&mut self) {
        self.returned = true;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Diary { proc, election, told, .. } = &self.diary;
        drop(lock(told).stay.take());
        if !self.returned {
            proc.sim.judge().must_run_out(&proc.label, election, self.term.get());
        }
    }
}
