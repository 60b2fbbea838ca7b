//! A leader that writes into the ledger, in few words.

use std::sync::Arc;

use tenure_core::{
    Ledger, LedgerExt as _, LedgerStep, Marked, Name, Reply, Store, Term, Tick, TickEnd,
    TickRecord, TickState,
};

use crate::conformance::arena::{Arena, Player, Stop, Verdict, ensure, granted, skip};

/// Who leads the case's election, and writes.
pub(super) struct LedgerUser {
    pub(super) player: Player,
    pub(super) term: Term,
}

/// The ledger of a store; the case is skipped without.
pub(super) fn ledger(store: &Arc<dyn Store>) -> Result<&dyn Ledger, Stop> {
    match store.ledger() {
        Some(ledger) => Ok(ledger),
        None => skip("the store keeps no ledger"),
    }
}

impl LedgerUser {
    /// Takes the case's election.
    pub(super) async fn elected(arena: &Arena<'_>, label: &str) -> Result<LedgerUser, Stop> {
        ledger(&arena.store)?;
        LedgerUser::of(arena.player(label)?).await
    }

    pub(super) async fn of(player: Player) -> Result<LedgerUser, Stop> {
        let term = player.takes().await?.term;
        Ok(LedgerUser { player, term })
    }

    /// Gives the lease back, and has somebody else take it.
    pub(super) async fn succeeded(
        &self,
        arena: &Arena<'_>,
        label: &str,
    ) -> Result<LedgerUser, Stop> {
        granted("the release", self.player.release(Some(self.term)).await)?;
        LedgerUser::elected(arena, label).await
    }

    pub(super) fn election(&self) -> &Name {
        &self.player.election
    }

    pub(super) async fn record(&self, steps: &[LedgerStep]) -> Result<Vec<Marked>, Stop> {
        let ledger = ledger(&self.player.store)?;
        let marks = ledger.record_steps(self.election(), self.term, steps).await?;
        ensure!(
            marks.len() == steps.len(),
            "{} steps were answered with {} marks",
            steps.len(),
            marks.len()
        );
        Ok(marks)
    }

    pub(super) async fn step(&self, step: LedgerStep) -> Result<Marked, Stop> {
        let marks = self.record(std::slice::from_ref(&step)).await?;
        marks.first().copied().ok_or_else(|| Stop::Failed("no mark".to_owned()))
    }

    pub(super) async fn claim(&self, tick: &Tick) -> Result<Marked, Stop> {
        self.step(LedgerStep::Claim { tick: tick.clone(), again: false }).await
    }

    pub(super) async fn claim_again(&self, tick: &Tick) -> Result<Marked, Stop> {
        self.step(LedgerStep::Claim { tick: tick.clone(), again: true }).await
    }

    pub(super) async fn start(&self, tick: &Tick, attempt: u32) -> Result<Marked, Stop> {
        self.step(LedgerStep::Start { tick: tick.clone(), attempt }).await
    }

    pub(super) async fn end(
        &self,
        tick: &Tick,
        attempt: u32,
        end: TickEnd,
    ) -> Result<Marked, Stop> {
        self.step(LedgerStep::End { tick: tick.clone(), attempt, end }).await
    }

    pub(super) async fn abandon(&self, tick: &Tick) -> Result<Marked, Stop> {
        self.step(LedgerStep::Abandon { tick: tick.clone() }).await
    }

    pub(super) async fn skip(
        &self,
        tick: &Tick,
        through_unix_ms: i64,
        count: u64,
    ) -> Result<Marked, Stop> {
        self.step(LedgerStep::Skip { tick: tick.clone(), through_unix_ms, count }).await
    }

    /// The record of a tick, if there is one.
    pub(super) async fn find(&self, tick: &Tick) -> Result<Option<TickRecord>, Stop> {
        let ledger = ledger(&self.player.store)?;
        let all = ledger.history(self.election(), Some(&tick.job), 10_000).await?;
        let found: Vec<TickRecord> = all.into_iter().filter(|it| it.tick == *tick).collect();
        ensure!(found.len() <= 1, "a tick has {} records", found.len());
        Ok(found.into_iter().next())
    }

    /// Fails unless the tick stands so.
    pub(super) async fn stands(&self, tick: &Tick, state: TickState, attempt: u32) -> Verdict {
        match self.find(tick).await? {
            Some(record) if record.state == state && record.attempt == attempt => Ok(()),
            found => Err(Stop::Failed(format!(
                "{tick:?} ought to be {state:?}, attempt {attempt}, but there is {found:?}"
            ))),
        }
    }

    /// Waits until the lease has run out, without giving it back.
    pub(super) async fn expired(&self, arena: &Arena<'_>) {
        arena.expire(self.player.ttl).await;
    }

    pub(super) async fn renewed(&self) -> Reply {
        self.player.renew(self.term).await
    }
}

/// Ticks of one job, a second apart.
pub(super) fn tick(second: i64) -> Tick {
    Tick::new("job", 1_700_000_000_000 + second * 1_000)
}

/// The mark that a step must get.
pub(super) fn is(what: &str, marked: Marked, wanted: Marked) -> Verdict {
    ensure!(marked == wanted, "{what} was answered {marked:?} instead of {wanted:?}");
    Ok(())
}

pub(super) const fn done(attempt: u32) -> Marked {
    Marked::Done { attempt }
}
