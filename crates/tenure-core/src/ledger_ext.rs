//! What users of a ledger call: the checks that are the same for every store, then the store.

use crate::{
    BoxFuture, Error, LEDGER_STEPS_MAX, Ledger, LedgerStep, Marked, Name, OnceMark, OnceStep,
    Steer, Term, Tick, check_job_name, check_once_key,
};

/// What users of a ledger enjoy on top of the contract: calls that check what they are given before
/// they ask the store.
///
/// # Cancel safety
/// As for the calls of [`Ledger`] that they make.
pub trait LedgerExt: Ledger {
    /// Carries out the steps of the leader of this term. No steps have no answers, and the store is
    /// not asked.
    ///
    /// # Errors
    /// `Config` if there are more than [`LEDGER_STEPS_MAX`]; nothing is done then. Else what kept
    /// the store from answering.
    fn record_steps<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        steps: &'a [LedgerStep],
    ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
        Box::pin(async move {
            if steps.is_empty() {
                return Ok(Vec::new());
            }
            if steps.len() > LEDGER_STEPS_MAX {
                return Err(Error::config(format!(
                    "{} steps are too many for one call, at most {LEDGER_STEPS_MAX} are taken",
                    steps.len()
                )));
            }
            self.record(election, term, steps).await
        })
    }

    /// Asks for a job to run now.
    ///
    /// # Errors
    /// `Config` if there can't be a job of this name. Else what kept the store from noting it.
    fn request_job<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
    ) -> BoxFuture<'a, Result<Tick, Error>> {
        Box::pin(async move {
            check_job_name(job)?;
            self.request(election, job).await
        })
    }

    /// Changes what becomes of a job; tells whether the ledger knows it.
    ///
    /// # Errors
    /// `Config` if there can't be a job of this name. Else what kept the store from noting it.
    fn steer_job<'a>(
        &'a self,
        election: &'a Name,
        job: &'a str,
        steer: Steer,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            check_job_name(job)?;
            self.steer(election, job, steer).await
        })
    }

    /// Carries out a step about a key, of the leader of this term.
    ///
    /// # Errors
    /// `Config` if there can't be such a key. Else what kept the store from answering.
    fn once_step<'a>(
        &'a self,
        election: &'a Name,
        term: Term,
        step: &'a OnceStep,
    ) -> BoxFuture<'a, Result<OnceMark, Error>> {
        Box::pin(async move {
            check_once_key(step.key())?;
            self.once(election, term, step).await
        })
    }
}

impl<L: Ledger + ?Sized> LedgerExt for L {}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::{ErrorKind, JobProgress, OnceEnd, OnceRecord, TickRecord, Transactions};

    /// Does whatever it is asked, and counts.
    #[derive(Default)]
    struct Obedient(AtomicUsize);

    impl Obedient {
        fn answer<T: Send + 'static>(&self, answer: T) -> BoxFuture<'_, Result<T, Error>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Ok(answer)))
        }

        fn asked(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Ledger for Obedient {
        fn transactions(&self) -> Transactions {
            Transactions::None
        }

        fn record<'a>(
            &'a self,
            _: &'a Name,
            _: Term,
            steps: &'a [LedgerStep],
        ) -> BoxFuture<'a, Result<Vec<Marked>, Error>> {
            self.answer(vec![Marked::Refused; steps.len()])
        }

        fn request<'a>(&'a self, _: &'a Name, job: &'a str) -> BoxFuture<'a, Result<Tick, Error>> {
            self.answer(Tick::new(job, 0))
        }

        fn steer<'a>(
            &'a self,
            _: &'a Name,
            _: &'a str,
            _: Steer,
        ) -> BoxFuture<'a, Result<bool, Error>> {
            self.answer(true)
        }

        fn open<'a>(
            &'a self,
            _: &'a Name,
            _: Option<&'a Tick>,
        ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
            self.answer(Vec::new())
        }

        fn latest<'a>(&'a self, _: &'a Name) -> BoxFuture<'a, Result<Vec<JobProgress>, Error>> {
            self.answer(Vec::new())
        }

        fn history<'a>(
            &'a self,
            _: &'a Name,
            _: Option<&'a str>,
            _: usize,
        ) -> BoxFuture<'a, Result<Vec<TickRecord>, Error>> {
            self.answer(Vec::new())
        }

        fn once<'a>(
            &'a self,
            _: &'a Name,
            _: Term,
            _: &'a OnceStep,
        ) -> BoxFuture<'a, Result<OnceMark, Error>> {
            self.answer(OnceMark::Refused)
        }

        fn once_record<'a>(
            &'a self,
            _: &'a Name,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Option<OnceRecord>, Error>> {
            self.answer(None)
        }

        fn once_history<'a>(
            &'a self,
            _: &'a Name,
            _: usize,
        ) -> BoxFuture<'a, Result<Vec<OnceRecord>, Error>> {
            self.answer(Vec::new())
        }
    }

    fn now<T>(call: BoxFuture<'_, T>) -> T {
        match pin!(call).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn refused<T>(call: BoxFuture<'_, Result<T, Error>>, says: &str) {
        let error = now(call).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(says), "{error}");
    }

    #[test]
    fn what_is_too_much_or_no_name_never_reaches_a_store() {
        let (ledger, name) = (Obedient::default(), Name::new("e").unwrap());
        let term = Term::new(1).unwrap();
        let steps: Vec<LedgerStep> = (0..=LEDGER_STEPS_MAX as i64)
            .map(|at| LedgerStep::Abandon { tick: Tick::new("j", at) })
            .collect();
        refused(ledger.record_steps(&name, term, &steps), "1001 steps are too many");
        for odd in ["", "a\nb", &*"x".repeat(256)] {
            refused(ledger.request_job(&name, odd), "");
            refused(ledger.steer_job(&name, odd, Steer::Pause), "");
            let claim = OnceStep::Claim { key: odd.to_owned(), run: 1, tries: 1 };
            refused(ledger.once_step(&name, term, &claim), "");
            let end = OnceStep::End { key: odd.to_owned(), attempt: 1, end: OnceEnd::Ok };
            refused(ledger.once_step(&name, term, &end), "");
        }
        assert!(now(ledger.record_steps(&name, term, &[])).unwrap().is_empty());
        assert_eq!(ledger.asked(), 0, "the store was asked");
        let most = &steps[..LEDGER_STEPS_MAX];
        assert_eq!(now(ledger.record_steps(&name, term, most)).unwrap().len(), LEDGER_STEPS_MAX);
        assert_eq!(now(ledger.request_job(&name, "j")).unwrap(), Tick::new("j", 0));
        let claim = OnceStep::Claim { key: "k".to_owned(), run: 1, tries: 1 };
        assert_eq!(now(ledger.once_step(&name, term, &claim)).unwrap(), OnceMark::Refused);
        assert_eq!(ledger.asked(), 3);
    }
}
