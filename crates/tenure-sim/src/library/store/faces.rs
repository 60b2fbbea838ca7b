//! The faces of the store beside leases, over the same network.

use tenure::{Error, Name, Term};
use tenure_core::{
    Acknowledged, BoxFuture, ChannelBacklog, Channels, DeadLetter, Inbox, JobProgress, Ledger,
    LedgerStep, Limits, Marked, OnceMark, OnceRecord, OnceStep, Post, Posted, Steer, Taken, Tick,
    TickRecord, Transactions,
};

use super::Link;

impl Channels for Link {
    fn limits(&self) -> Limits {
        self.memory().limits()
    }

    fn notify<'a>(
        &'a self,
        election: &'a Name,
        channel: &'a str,
        payload: &'a str,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.carry(self.memory().notify(election, channel, payload)))
    }

    fn post<'a>(
        &'a self,
        election: &'a Name,
        posts: &'a [Post],
    ) -> BoxFuture<'a, Result<Vec<Posted>, Error>> {
        Box::pin(self.carry(self.memory().post(election, posts)))
    }

    fn listen<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channels: &'a [String],
    ) -> BoxFuture<'a, Result<Box<dyn Inbox>, Error>> {
        Box::pin(self.carry(self.memory().listen(election, term, channels)))
    }

    fn take<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        tries: u32,
    ) -> BoxFuture<'a, Result<Taken, Error>> {
        Box::pin(self.carry(self.memory().take(election, term, channel, tries)))
    }

    fn acknowledge<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        channel: &'a str,
        id: u64,
    ) -> BoxFuture<'a, Result<Acknowledged, Error>> {
        Box::pin(self.carry(self.memory().acknowledge(election, term, channel, id)))
    }

    fn backlog<'a>(
        &'a self,
        election: &'a Name,
    ) -> BoxFuture<'a, Result<Vec<ChannelBacklog>, Error>> {
        Box::pin(self.carry(self.memory().backlog(election)))
    }

    fn dead_letters<'a>(
        &'a self,
        election: &'a Name,
        channel: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, Error>> {
        Box::pin(self.carry(self.memory().dead_letters(election, channel, limit)))
    }

    fn replay<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.carry(self.memory().replay(election, ids)))
    }

    fn discard<'a>(
        &'a self,
        election: &'a Name,
        ids: &'a [u64],
    ) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(self.carry(self.memory().discard(election, ids)))
    }
}

impl Ledger for Link {
    fn transactions(&self) -> Transactions {
        if self.transactions { Transactions::Same } else { Transactions::None }
    }

    fn record<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        let claims = steps.iter().any(|step| matches!(step, LedgerStep::Claim { .. }));
        Box::pin(self.carry(async move {
            let marked = self.memory().record(election, term, steps).await;
            self.claimed(claims);
            marked
        }))
    }

    fn request<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        Box::pin(self.carry(self.memory().request(election, job)))
    }

    fn steer<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.carry(self.memory().steer(election, job, steer)))
    }

    fn open<'a>(
        &'a self,
        election: &'a Name,
        after: Option<&'a Tick>,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(self.carry(self.memory().open(election, after)))
    }

    fn latest<'a>(&'a self, election: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
        Box::pin(self.carry(self.memory().latest(election)))
    }

    fn history<'a>(
        &'a self,
        election: &'a Name,
        job: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
        Box::pin(self.carry(self.memory().history(election, job, limit)))
    }

    fn once<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        let claims = matches!(step, OnceStep::Claim { .. });
        Box::pin(self.carry(async move {
            let marked = self.memory().once(election, term, step).await;
            self.claimed(claims);
            marked
        }))
    }

    fn once_record<'a>(
        &'a self,
        election: &'a Name,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<OnceRecord>, Error>> {
        Box::pin(self.carry(self.memory().once_record(election, key)))
    }

    fn once_history<'a>(
        &'a self,
        election: &'a Name,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
        Box::pin(self.carry(self.memory().once_history(election, limit)))
    }
}
