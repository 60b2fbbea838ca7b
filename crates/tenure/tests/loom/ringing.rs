//! The driver that rings, and the listener that answers when it is woken.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::bell::Bell;

/// A bell, and the wake of its listener: one that is not taken yet is kept, as tokio's `Notify`
/// does.
struct Rig {
    bell: Bell,
    woken: AtomicBool,
}

impl Rig {
    fn new() -> Arc<Rig> {
        Arc::new(Rig { bell: Bell::new(), woken: AtomicBool::new(false) })
    }

    /// What the driver and the announcer do.
    fn ring(&self, now: u64) {
        if self.bell.ring(now) {
            self.woken.swap(true, Ordering::AcqRel);
        }
    }

    /// What the listener does whenever it is polled; says whether it answered.
    fn poll(&self) -> bool {
        let woken = self.woken.swap(false, Ordering::AcqRel);
        if woken {
            self.bell.answer();
        }
        woken
    }
}

/// No bell is lost: once the listener is polled after the last one, all are answered.
#[test]
fn a_listener_that_is_awake_leaves_no_bell_unanswered() {
    loom::model(|| {
        let rig = Rig::new();
        let listener = {
            let rig = rig.clone();
            thread::spawn(move || {
                rig.poll();
                rig.poll();
            })
        };
        rig.ring(10);
        rig.ring(20);
        listener.join().unwrap();
        rig.poll();
        assert_eq!(rig.bell.rung_at(), None, "rung without a wake");
    });
}

/// Silence counts from the first bell that was not answered, whatever comes after it.
#[test]
fn silence_counts_from_the_first_bell_that_was_not_answered() {
    loom::model(|| {
        let rig = Rig::new();
        let listener = {
            let rig = rig.clone();
            thread::spawn(move || rig.poll())
        };
        rig.ring(0);
        rig.ring(20);
        let answered = listener.join().unwrap();
        match rig.bell.rung_at() {
            Some(at) if !answered => assert_eq!(at, 1, "from the first of the two"),
            Some(at) => {
                assert_eq!((at, rig.poll()), (20, true), "the second is to be answered yet")
            }
            None => assert!(answered, "nobody answered, and it is forgotten"),
        }
    });
}
