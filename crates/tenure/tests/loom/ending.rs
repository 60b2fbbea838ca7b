//! The driver that steps down, and the alarm that notices the end of trust.

use loom::sync::{Arc, Mutex};
use loom::thread;
use tenure_core::Reason;

use crate::phase::{Phase, Phases};

struct Locked(Mutex<Phase>);

impl Phases for Locked {
    fn change<R>(&self, change: impl FnOnce(&mut Phase) -> R) -> R {
        change(&mut self.0.lock().unwrap())
    }
}

/// Each step is made by one of them, and the end gives the reason of the step-down, if there was
/// one before it.
#[test]
fn the_end_gives_the_reason_of_the_step_down() {
    loom::model(|| {
        let phase = Arc::new(Locked(Mutex::new(Phase::Leading)));
        let alarm = {
            let phase = phase.clone();
            thread::spawn(move || phase.advance_to_end())
        };
        let drained = phase.advance(Phase::Draining(Reason::Asked));
        let ended = phase.advance(Phase::Over(Reason::Asked));
        let by_alarm = alarm.join().unwrap();
        assert!(ended != by_alarm, "one of the two ends it");
        let reason = if drained { Reason::Asked } else { Reason::NotRenewed };
        assert_eq!(*phase.0.lock().unwrap(), Phase::Over(reason));
        assert!(!phase.advance(Phase::Draining(Reason::Asked)), "it does not go back");
    });
}
