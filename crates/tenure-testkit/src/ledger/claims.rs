//! A tick is claimed at most once for each attempt.

use std::sync::{Arc, Mutex};

use tenure_core::sync::lock;
use tenure_core::{BoxFuture, LEDGER_STEPS_MAX, LedgerStep, Marked, Tick, TickEnd, TickState};

use super::user::{LedgerUser, done, is, ledger, tick};
use crate::conformance::arena::{Arena, Stop, Verdict, ensure};

super::cases![
    a_tick_is_claimed_once,
    a_lost_answer_to_a_claim_is_healed_until_it_has_started,
    a_former_term_s_claim_is_not_taken,
    a_former_term_s_claim_is_taken_again_if_asked_for,
    a_finished_tick_is_never_claimed_again,
    the_same_instant_of_another_job_or_election_is_another_tick,
    a_batch_is_answered_in_order,
    many_at_once_get_one_claim_each,
    names_of_jobs_are_data,
];

async fn a_tick_is_claimed_once(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    is("a new tick", user.claim(&tick(1)).await?, done(1))?;
    user.stands(&tick(1), TickState::Claimed, 1).await?;
    is("its start", user.start(&tick(1), 1).await?, done(1))?;
    user.stands(&tick(1), TickState::Started, 1).await?;
    is("a started tick", user.claim(&tick(1)).await?, Marked::Refused)?;
    is("a started tick again", user.claim_again(&tick(1)).await?, Marked::Refused)
}

async fn a_lost_answer_to_a_claim_is_healed_until_it_has_started(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    for _ in 0..3 {
        is("the same claim", user.claim(&tick(1)).await?, done(1))?;
    }
    for _ in 0..3 {
        is("the same start", user.start(&tick(1), 1).await?, done(1))?;
    }
    is("a claim after the start", user.claim(&tick(1)).await?, Marked::Refused)
}

async fn a_former_term_s_claim_is_not_taken(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim(&tick(1)).await?;
    one.claim(&tick(2)).await?;
    one.start(&tick(2), 1).await?;
    let two = one.succeeded(arena, "b").await?;
    is("a claimed tick", two.claim(&tick(1)).await?, Marked::Refused)?;
    is("a started tick", two.claim(&tick(2)).await?, Marked::Refused)?;
    is("its start", two.start(&tick(1), 1).await?, Marked::Refused)?;
    is("its end", two.end(&tick(2), 1, TickEnd::Ok).await?, Marked::Refused)?;
    two.stands(&tick(2), TickState::Started, 1).await
}

async fn a_former_term_s_claim_is_taken_again_if_asked_for(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    one.claim(&tick(1)).await?;
    one.claim(&tick(2)).await?;
    one.start(&tick(2), 1).await?;
    let two = one.succeeded(arena, "b").await?;
    is("a claimed tick", two.claim_again(&tick(1)).await?, done(2))?;
    is("a started tick", two.claim_again(&tick(2)).await?, done(2))?;
    two.stands(&tick(2), TickState::Claimed, 2).await?;
    is("the same again", two.claim_again(&tick(2)).await?, done(2))?;
    is("the first attempt", two.start(&tick(2), 1).await?, Marked::Refused)?;
    is("the second attempt", two.start(&tick(2), 2).await?, done(2))?;
    is("its end", two.end(&tick(2), 2, TickEnd::Ok).await?, done(2))?;
    two.stands(&tick(2), TickState::Finished(TickEnd::Ok), 2).await
}

async fn a_finished_tick_is_never_claimed_again(arena: &Arena<'_>) -> Verdict {
    let one = LedgerUser::elected(arena, "a").await?;
    for (second, end) in [(1, TickEnd::Ok), (2, TickEnd::Failed(3)), (3, TickEnd::TimedOut)] {
        one.claim(&tick(second)).await?;
        one.start(&tick(second), 1).await?;
        one.end(&tick(second), 1, end).await?;
    }
    one.skip(&tick(4), tick(4).scheduled_unix_ms, 1).await?;
    one.claim(&tick(5)).await?;
    let two = one.succeeded(arena, "b").await?;
    two.abandon(&tick(5)).await?;
    for second in 1..=5 {
        is("an ended tick", two.claim(&tick(second)).await?, Marked::Refused)?;
        is("an ended tick again", two.claim_again(&tick(second)).await?, Marked::Refused)?;
    }
    Ok(())
}

async fn the_same_instant_of_another_job_or_election_is_another_tick(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    is("the first", user.claim(&tick(1)).await?, done(1))?;
    let other_job = Tick::new("other job", tick(1).scheduled_unix_ms);
    is("another job", user.claim(&other_job).await?, done(1))?;
    let elsewhere = arena.player("a")?.within(&arena.other_election("second")?);
    let elsewhere = LedgerUser::of(elsewhere).await?;
    is("another election", elsewhere.claim(&tick(1)).await?, done(1))
}

async fn a_batch_is_answered_in_order(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    user.claim(&tick(2)).await?;
    user.start(&tick(2), 1).await?;
    let claim = |second| LedgerStep::Claim { tick: tick(second), again: false };
    let end = LedgerStep::End { tick: tick(2), attempt: 1, end: TickEnd::Ok };
    let wrong = LedgerStep::End { tick: tick(3), attempt: 1, end: TickEnd::Ok };
    let marks = user.record(&[claim(1), end, wrong, claim(4)]).await?;
    ensure!(
        marks == [done(1), done(1), Marked::Refused, done(1)],
        "four steps were answered {marks:?}"
    );
    let marks = user.record(&[claim(6), claim(2), claim(1), claim(5)]).await?;
    ensure!(
        marks == [done(1), Marked::Refused, done(1), done(1)],
        "a new, an ended, a claimed and a new tick were answered {marks:?}"
    );
    ensure!(user.record(&[]).await?.is_empty(), "no steps have no answers");
    let many: Vec<LedgerStep> = (100..100 + LEDGER_STEPS_MAX as i64).map(claim).collect();
    let marks = user.record(&many).await?;
    ensure!(marks.iter().all(|mark| *mark == done(1)), "a full batch was not claimed");
    let marks = user.record(&many).await?;
    ensure!(marks.iter().all(|mark| *mark == done(1)), "a full batch was not healed");
    Ok(())
}

/// Ten handles, one term: as if a leader's calls were repeated and reordered.
async fn many_at_once_get_one_claim_each(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let began: Arc<Mutex<Vec<i64>>> = Arc::default();
    let mut work: Vec<BoxFuture<'static, ()>> = Vec::new();
    for _ in 0..10 {
        let store = arena.another_handle().await?;
        let (began, election, term) = (began.clone(), user.election().clone(), user.term);
        work.push(Box::pin(async move {
            for second in 0..20 {
                let Ok(ledger) = ledger(&store) else { return };
                // Healed for all of them; but it ends once.
                let steps = [
                    LedgerStep::Claim { tick: tick(second), again: true },
                    LedgerStep::Skip {
                        tick: Tick::new("other", second),
                        through_unix_ms: second,
                        count: 1,
                    },
                ];
                if ledger.record(&election, term, &steps).await.is_ok() {
                    lock(&began).push(second);
                }
            }
        }));
    }
    arena.subject.run_together(work).await;
    ensure!(lock(&began).len() == 200, "some calls failed: {}", lock(&began).len());
    for second in 0..20 {
        user.stands(&tick(second), TickState::Claimed, 1).await?;
    }
    Ok(())
}

async fn names_of_jobs_are_data(arena: &Arena<'_>) -> Verdict {
    let user = LedgerUser::elected(arena, "a").await?;
    let names = ["'; DROP TABLE x; --", "日本 \"q\"", "{a}", "a:b", "a|b", " ", "%_*?[x]", "\\"];
    for name in names {
        let tick = Tick::new(name, 5);
        is(name, user.claim(&tick).await?, done(1))?;
    }
    let latest = ledger(&arena.store)?.latest(user.election()).await?;
    for name in names {
        let found = latest.iter().filter(|progress| progress.job == name).count();
        if found != 1 {
            return Err(Stop::Failed(format!("the job {name:?} was found {found} times")));
        }
    }
    Ok(())
}
