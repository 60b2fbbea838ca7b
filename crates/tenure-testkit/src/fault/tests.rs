use std::future::Future;
use std::pin::pin;
use std::task::Waker;

use tenure_core::sync::lock;
use tenure_core::{CandidateId, Grant, NoHints, StoreInfo, Term};

use super::*;

/// Grants everything and writes down what it was asked.
#[derive(Default)]
struct Diary(Mutex<Vec<Op>>);

impl Store for Diary {
    fn apply<'a>(&'a self, ops: &'a [Op]) -> BoxFuture<'a, Vec<Reply>> {
        lock(&self.0).extend_from_slice(ops);
        Box::pin(async { ops.iter().map(|_| Reply::Granted(Grant::new(Term::FIRST))).collect() })
    }

    fn hints(&self) -> Box<dyn Hints> {
        Box::new(NoHints)
    }

    fn info(&self) -> StoreInfo {
        StoreInfo::new("diary", "")
    }

    tenure_core::lacks!(channels, ledger, elections, witness, checkup, migrate);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(value) = polled {
            return value;
        }
    }
}

fn release(number: u64) -> Op {
    Op::Release {
        election: Name::new(format!("e{}", number % 3)).unwrap(),
        candidate: CandidateId::new("a", 1).unwrap(),
        term: None,
        seq: number,
    }
}

/// Sends 200 ops alone and returns what arrived, what was answered, and the counts.
fn run(faults: Faults) -> (Vec<Op>, Vec<bool>, Counts) {
    let store = FaultStore::new(Arc::new(Diary::default()), faults);
    let answered = (0..200)
        .map(|number| {
            let op = [release(number)];
            let replies = block_on(store.apply(&op));
            assert_eq!(replies.len(), 1);
            matches!(replies[0], Reply::Granted(_))
        })
        .collect();
    let arrived = lock(&store.inner.0).clone();
    (arrived, answered, store.counts())
}

#[test]
fn the_same_seed_and_the_same_calls_give_the_same_faults() {
    assert_eq!(run(Faults::mixed(5)), run(Faults::mixed(5)));
    assert_ne!(run(Faults::mixed(5)), run(Faults::mixed(6)));
}

#[test]
fn each_fault_does_what_it_says() {
    let none = Faults::none(1);
    let (arrived, answered, _) = run(none);
    assert_eq!((arrived.len(), answered.iter().all(|granted| *granted)), (200, true));

    let (arrived, answered, counts) = run(Faults { lose_request: 1.0, ..none });
    assert_eq!((arrived.len(), counts.lost_requests), (0, 200));
    assert!(answered.iter().all(|granted| !granted));

    let (arrived, answered, counts) = run(Faults { lose_reply: 1.0, ..none });
    assert_eq!((arrived.len(), counts.lost_replies), (200, 200));
    assert!(answered.iter().all(|granted| !granted));

    let (arrived, answered, counts) = run(Faults { repeat: 1.0, ..none });
    assert_eq!((arrived.len(), counts.repeats), (400, 200));
    assert!(answered.iter().all(|granted| *granted));
    assert!(arrived.chunks(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn late_ops_and_echoes_arrive_out_of_order_during_later_calls() {
    let seqs = |ops: &[Op]| -> Vec<u64> {
        ops.iter().map(|op| if let Op::Release { seq, .. } = op { *seq } else { 0 }).collect()
    };
    let (arrived, answered, _) = run(Faults { late: 0.5, ..Faults::none(3) });
    assert!(answered.contains(&true) && answered.contains(&false));
    assert!(!seqs(&arrived).is_sorted());

    let (arrived, answered, counts) = run(Faults { echo: 1.0, ..Faults::none(3) });
    assert!(answered.iter().all(|granted| *granted));
    assert_eq!(counts.echoes, 200);
    assert!(arrived.len() > 200 && !seqs(&arrived).is_sorted());
}

#[test]
fn once_calm_it_only_forwards_and_the_late_ones_can_be_fetched() {
    let store =
        FaultStore::new(Arc::new(Diary::default()), Faults { late: 1.0, ..Faults::none(3) });
    let op = [release(1)];
    assert!(matches!(block_on(store.apply(&op))[..], [Reply::Unknown(_)]));
    store.calm();
    assert!(matches!(block_on(store.apply(&op))[..], [Reply::Granted(_)]));
    assert_eq!(lock(&store.inner.0).len(), 1);
    block_on(store.deliver_late());
    assert_eq!(lock(&store.inner.0).len(), 2);
}

#[test]
fn a_batch_is_answered_in_order_whatever_happens_to_its_ops() {
    let store = FaultStore::new(Arc::new(Diary::default()), Faults::mixed(9));
    let ops: Vec<Op> = (0..100).map(release).collect();
    let replies = block_on(store.apply(&ops));
    assert_eq!(replies.len(), 100);
    let counts = store.counts();
    let unknown = replies.iter().filter(|reply| matches!(reply, Reply::Unknown(_))).count();
    assert_eq!(unknown as u64, counts.lost_requests + counts.lost_replies + counts.late);
    assert!(unknown > 0, "{counts}");
}

#[test]
fn hints_are_made_up_but_never_without_end() {
    let store =
        FaultStore::new(Arc::new(Diary::default()), Faults { extra_hint: 1.0, ..Faults::none(3) });
    let mut hints = store.hints();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(hints.poll_next(&mut cx), Poll::Ready(Some(Hint::Any))));
    assert!(matches!(hints.poll_next(&mut cx), Poll::Ready(None)));
    assert_eq!(store.counts().extra_hints, 1);
}

#[test]
fn faults_that_make_no_sense_are_refused() {
    for bad in ["", "lose_reply", "lose_reply=2", "lose_reply=x", "gremlins=0.5", "seed=-1"] {
        assert!(bad.parse::<Faults>().is_err(), "{bad:?}");
    }
}
