//! An election that is over can be forgotten; one that somebody leads can't.

use std::time::Duration;

use tenure_core::{CandidateId, Forgotten, Name, Op, Reply, Store as _, StoreExt as _};
use tenure_sqlite::SqliteStore;

#[tokio::test]
async fn an_election_is_forgotten_once_nobody_leads_it_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("x.db")).unwrap();
    let candidate = CandidateId::new("me", 1).unwrap();
    let (over, other) = (Name::new("over").unwrap(), Name::new("other").unwrap());
    for election in [&over, &other] {
        let acquire = Op::Acquire {
            election: election.clone(),
            candidate: candidate.clone(),
            seq: 1,
            above: None,
            floor: None,
            ttl: Duration::from_secs(30),
            metadata: None,
        };
        assert!(matches!(store.apply(&[acquire]).await[0], Reply::Granted(_)));
    }

    assert_eq!(store.forget(&over).await.unwrap(), Forgotten::Led);
    assert!(store.read(&over).await.unwrap().lease.is_some(), "nothing was changed");

    let release = Op::Release { election: over.clone(), candidate, term: None, seq: 1 };
    assert!(matches!(store.apply(&[release]).await[0], Reply::Granted(_)));
    assert_eq!(store.forget(&over).await.unwrap(), Forgotten::Done);
    assert_eq!(store.elections().await.unwrap(), std::slice::from_ref(&other));
    assert!(store.read(&over).await.unwrap().last_term.is_some(), "terms go on above it (I2)");
    assert!(store.read(&other).await.unwrap().lease.is_some());
    assert_eq!(store.forget(&over).await.unwrap(), Forgotten::NotKnown);
}
