//! What the file goes through: a reboot, a stuck process, a torn write, a stranger's hand.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    CandidateId, ErrorKind, Name, Op, Reply, Sight, Store as _, StoreExt as _, Term, Time,
};
use tenure_testkit::ManualClock;
use toy_store::ToyStore;

const TTL: Duration = Duration::from_secs(30);

struct Place {
    directory: tempfile::TempDir,
    clock: ManualClock,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap(), clock: ManualClock::new() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("leases.json")
    }

    fn open(&self, boot: &str) -> ToyStore {
        ToyStore::open_on(&self.path(), Arc::new(self.clock.clone()), boot).unwrap()
    }
}

fn acquire(label: &str) -> Op {
    Op::Acquire {
        election: name(),
        candidate: CandidateId::new(label, 7).unwrap(),
        seq: 1,
        above: None,
        floor: None,
        ttl: TTL,
        metadata: None,
    }
}

fn name() -> Name {
    Name::new("invoices").unwrap()
}

#[track_caller]
fn term(reply: Reply) -> Option<Term> {
    match reply {
        Reply::Granted(grant) => Some(grant.term),
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
fn refused(reply: Reply) -> Sight {
    match reply {
        Reply::Refused(sight) => sight,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn after_a_reboot_a_lease_lasts_its_ttl_once_more() {
    let place = Place::new();
    place.clock.set(Time::from_nanos(1_000_000_000_000));
    assert_eq!(term(place.open("one").apply_one(&acquire("a")).await), Term::new(1));
    // The clock of the new boot starts anew.
    let place = Place { clock: ManualClock::new(), ..place };
    let store = place.open("two");
    let lease = refused(store.apply_one(&acquire("b")).await).lease.unwrap();
    assert_eq!((lease.remaining, lease.holder.label()), (TTL, "a"));
    place.clock.advance(TTL - Duration::from_nanos(1));
    let lease = refused(store.apply_one(&acquire("b")).await).lease.unwrap();
    assert_eq!(lease.remaining, Duration::from_nanos(1));
    place.clock.advance(Duration::from_nanos(1));
    assert_eq!(term(store.apply_one(&acquire("b")).await), Term::new(2));
}

#[tokio::test]
async fn while_another_process_holds_the_lock_nobody_knows() {
    let place = Place::new();
    let store = place.open("one");
    let stuck = File::open(place.directory.path()).unwrap();
    stuck.lock().unwrap();
    let error = store.read(&name()).await.unwrap_err();
    assert!(error.is_retryable() && error.message().contains("is it stopped?"), "{error}");
    drop(stuck);
    assert_eq!(store.read(&name()).await.unwrap(), Sight::default());
}

#[tokio::test]
async fn what_a_killed_writer_left_is_no_harm() {
    let place = Place::new();
    fs::write(place.directory.path().join("leases.json.new"), "{\"boot\": \"on").unwrap();
    assert_eq!(term(place.open("one").apply_one(&acquire("a")).await), Term::new(1));
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_left_alone() {
    for text in ["", "hello", "{\"boot\":\"b\",\"elections\":{\"e\":{\"last_term\":0}}}"] {
        let place = Place::new();
        fs::write(place.path(), text).unwrap();
        match place.open("one").apply_one(&acquire("a")).await {
            Reply::Unknown(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::read_to_string(place.path()).unwrap(), text);
    }
}

#[tokio::test]
async fn the_file_is_private_and_keeps_the_mode_that_its_owner_chose() {
    let place = Place::new();
    let mode = || fs::metadata(place.path()).unwrap().permissions().mode() & 0o777;
    let store = place.open("one");
    term(store.apply_one(&acquire("a")).await);
    assert_eq!(mode(), 0o600);
    assert!(store.checkup().unwrap().examine(TTL).await.findings.is_empty());
    fs::set_permissions(place.path(), Permissions::from_mode(0o640)).unwrap();
    term(store.apply_one(&acquire("a")).await);
    assert_eq!(mode(), 0o640);
    assert_eq!(store.checkup().unwrap().examine(TTL).await.findings.len(), 1);
}

#[tokio::test]
async fn reading_writes_nothing_and_makes_no_election() {
    let place = Place::new();
    let store = place.open("one");
    store.read(&name()).await.unwrap();
    assert_eq!(store.ask(&name(), None).await.unwrap(), Err(Sight::default()));
    assert_eq!(store.elections().unwrap().list().await.unwrap(), []);
    term(store.apply_one(&acquire("a")).await);
    assert_eq!(store.elections().unwrap().list().await.unwrap(), [name()]);
}
