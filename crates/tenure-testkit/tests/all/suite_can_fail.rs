//! A suite that cannot fail shows nothing. For every rule of the contract a store that breaks it
//! must fail the case named for it, and the store that breaks nothing must pass them all.

use tenure_testkit::conformance::{self, Ending};

use crate::model::{Break, ModelSubject};

#[tokio::test]
async fn a_store_that_keeps_the_contract_passes_everything() {
    let report = conformance::run(&ModelSubject::new(Break::Nothing)).await;
    report.assert_passed();
    assert_eq!(report.skipped().count(), 0, "{report}");
    let topics: Vec<&str> = conformance::topics().collect();
    assert!(report.results().iter().all(|result| topics.contains(&result.topic)));
    assert!(report.results().len() > 80, "{report}");
}

#[tokio::test]
async fn a_store_that_keeps_the_contract_passes_under_faults() {
    for seed in 0..50 {
        let subject = ModelSubject::new(Break::Nothing);
        conformance::run_under_faults(&subject, seed).await.assert_passed();
    }
}

#[tokio::test]
async fn every_broken_rule_is_caught_by_the_case_named_for_it() {
    let mut missed = Vec::new();
    for (broken, case) in EXPECTED {
        let report = conformance::run(&ModelSubject::new(*broken)).await;
        if !report.failed().any(|result| result.case == *case) {
            let failed: Vec<_> = report.failed().map(|result| &result.case).collect();
            missed.push(format!("{broken:?}: not caught by {case:?}, but by {failed:#?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test]
async fn broken_rules_that_matter_to_safety_show_under_faults() {
    let dangerous = [
        Break::GrantsWhatIsHeld,
        Break::HealsATermThatIsNotAbove,
        Break::ExpiresEarly,
        Break::RestartsTermsAtARelease,
        Break::LastHolderGetsItsTermBack,
        Break::ReleasesForAnyone,
        Break::LateReleaseVacatesANewerAcquire,
        Break::ReleasesAnyTerm,
    ];
    for broken in dangerous {
        let mut caught = false;
        for seed in 0..100 {
            let report = conformance::run_under_faults(&ModelSubject::new(broken), seed).await;
            caught |= report.failed().next().is_some();
            if caught {
                break;
            }
        }
        assert!(caught, "{broken:?} was not noticed in 100 runs");
    }
}

#[tokio::test]
async fn the_same_seed_fails_in_the_same_words() {
    let run = async || {
        let subject = ModelSubject::new(Break::GrantsWhatIsHeld);
        conformance::run_under_faults(&subject, 1).await
    };
    let (first, second) = (run().await, run().await);
    assert_eq!(first, second);
    assert!(first.to_string().contains("faults seed=1,lose_request="), "{first}");
}

#[tokio::test]
async fn a_single_topic_or_case_can_be_run() {
    let subject = ModelSubject::new(Break::Nothing);
    let renewals = conformance::run_matching(&subject, "renew").await;
    assert!(renewals.results().iter().any(|result| result.topic == "renew"));
    let one = conformance::run_matching(&subject, "a_floor_is_honoured").await;
    assert_eq!(one.results().len(), 1);
    assert_eq!(one.results()[0].ending, Ending::Passed);
}

#[tokio::test]
#[should_panic(expected = "FAILED  acquire: a floor is honoured")]
async fn a_failed_report_ends_the_test_and_says_which_case() {
    let subject = ModelSubject::new(Break::IgnoresTheFloor);
    conformance::run(&subject).await.assert_passed();
}

#[tokio::test]
#[should_panic(expected = "no case of the suite has this topic or name")]
async fn a_report_without_cases_does_not_pass() {
    let subject = ModelSubject::new(Break::Nothing);
    conformance::run_matching(&subject, "no such topic").await.assert_passed();
}

const EXPECTED: &[(Break, &str)] = &[
    (Break::GrantsWhatIsHeld, "a held election is refused and names its holder"),
    (Break::NamesNoHolder, "a held election is refused and names its holder"),
    (Break::IssuesANewTermInsteadOfHealing, "a lost reply is healed with the same term"),
    (Break::HealsATermThatIsNotAbove, "above the held term a new one is issued"),
    (Break::HealsWithoutExtending, "healing makes the lease last anew"),
    (Break::ForgetsAbove, "above a term that the store never saw the next one is higher"),
    (Break::IgnoresTheFloor, "a floor is honoured"),
    (Break::FloorLowersTheTerm, "a floor below the last term is ignored"),
    (Break::FloorChangesAHeldTerm, "a floor does not change a held term"),
    (Break::RefusedAcquireBurnsATerm, "a refused acquire changes nothing whatever it asks for"),
    (Break::ComparesLabelsOnly, "two incarnations of one label are two candidates"),
    (Break::RenewsAnyTerm, "a renewal of an older term changes nothing"),
    (Break::RenewsAnyTerm, "a renewal of a higher term changes nothing"),
    (Break::RenewsForAnyone, "a renewal by another candidate changes nothing"),
    (Break::RenewsWhatHasExpired, "an expired lease cannot be renewed even by its holder"),
    (Break::RenewalLosesMetadata, "a renewal keeps the metadata and the beginning"),
    (Break::RenewalDoesNotExtend, "a renewal makes the lease last anew"),
    (Break::RestartsTermsAtARelease, "a release vacates and keeps the term"),
    (Break::ReleasesAnyTerm, "a release of another term changes nothing"),
    (Break::ReleasesAnyTerm, "a late release of an older term changes nothing"),
    (Break::ReleasesForAnyone, "a release by another candidate changes nothing"),
    (Break::NeedsATermToRelease, "a release by incarnation alone vacates"),
    (
        Break::LateReleaseVacatesANewerAcquire,
        "a late release by incarnation alone spares a newer acquire",
    ),
    (Break::IgnoresSeq, "a delayed acquire after a release is refused"),
    (
        Break::ForgetsSeqAtAChangeOfHands,
        "a delayed acquire is refused though others reigned in between",
    ),
    (
        Break::ForgetsSeqOfARefusedRelease,
        "a delayed acquire is refused after a release that was refused",
    ),
    (
        Break::ForgetsSeqOfARefusedRelease,
        "a delayed acquire is refused after a release of the wrong term",
    ),
    (Break::LateReleaseLowersSeq, "a delayed acquire is refused though an older release came late"),
    (
        Break::ForgetsSeqAfterAMinute,
        "a delayed acquire is refused as long as releases are remembered",
    ),
    (Break::SharesSeqAmongElections, "a release concerns one candidate in one election"),
    (
        Break::ExpiresByTheCallersTtl,
        "the ttl of the holder decides and not a shorter one of the caller",
    ),
    (
        Break::ExpiresByTheCallersTtl,
        "the ttl of the holder decides and not a longer one of the caller",
    ),
    (Break::ExpiresEarly, "a lease never runs out before its ttl"),
    (Break::ExpiresEarly, "a renewed lease never runs out before its ttl"),
    (Break::NeverExpires, "an expired lease is vacant"),
    (Break::LastHolderGetsItsTermBack, "an expired lease is a new term for its last holder too"),
    (Break::HidesExpiry, "a takeover after expiry tells the ttl that ran out"),
    (Break::SpeaksOfExpiryAfterARelease, "a takeover after a release does not speak of expiry"),
    (Break::LosesTheAsk, "the holder learns of an ask with its next renewal"),
    (Break::TellsOfTheAskOnce, "the holder is told again because a reply may be lost"),
    (Break::KeepsTheAskForTheSuccessor, "an ask is forgotten after a release"),
    (Break::KeepsTheAskForTheSuccessor, "an ask is forgotten after expiry"),
    (Break::KeepsTheAskForTheSuccessor, "an ask is forgotten when the holder begins a new term"),
    (Break::AsksUnderAnyTerm, "an ask of a stale term is refused"),
    (Break::AskExtends, "an ask changes nothing else"),
    (Break::ReadsAsRefused, "a read is answered as seen"),
    (Break::ReadExtends, "a read changes nothing"),
    (Break::ForgetsTheLastTerm, "after a release the last term is shown"),
    (Break::RemainingStandsStill, "what remains shrinks with time"),
    (Break::TermsDieWithTheStore, "terms rise over a crash after a release"),
    (Break::TermsDieWithTheStore, "terms rise over a crash while held"),
    (Break::LeasesDieWithTheStore, "a lease outlives a restart of the store"),
    (Break::PassesTheLastTerm, "at the end of the range nothing more is granted"),
    (Break::AnswersInReverse, "a batch of a thousand is answered op by op in order"),
    (Break::AnswersOneTooFew, "a batch of a thousand is answered op by op in order"),
    (Break::UndoesABatchWithARefusal, "a refusal in a batch does not undo its neighbours"),
    (Break::FoldsCase, "names that look alike are different elections"),
    (Break::TrimsNames, "names that look alike are different elections"),
    (Break::CutsNames, "the longest name is kept whole"),
    (Break::DropsMetadata, "odd json is kept"),
    (Break::DropsMetadata, "four kib are kept"),
    (Break::KeepsMetadataForTheSuccessor, "metadata belongs to one term"),
    (Break::NeverHints, "a release is hinted to another handle"),
    (Break::NeverHints, "an ask is hinted to another handle"),
    (Break::EndsItsHints, "a release is hinted to another handle"),
    (Break::ChecksFirstAndWritesLater, "of fifty concurrent acquires exactly one is granted"),
    (Break::ChecksFirstAndWritesLater, "concurrent changes of hands never share a term"),
    (Break::ChecksFirstAndWritesLater, "overlapping batches in opposite order both end"),
    (Break::StaysBusyAfterADroppedCall, "a dropped call does not stop the store"),
    (Break::WritesHalfBeforeItWaits, "a dropped call leaves each op done or not"),
    (Break::Panics, "a held lease shows its holder and what remains"),
    (Break::ForgetsTermsToo, "an election that was forgotten keeps its term"),
    (Break::ForgetsWhatIsLed, "an election that was forgotten keeps its term"),
];
