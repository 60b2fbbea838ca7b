//! The fleet with shells as candidates.

use tenure::BootClock;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// Each candidate runs this script, and then stays.
fn fleet<'a>(script: &'static str) -> Fleet<'a> {
    Fleet::new(Arc::new(BootClock), move |lane| {
        let mut command = Command::new("sh");
        command.env("LANE", lane.to_string()).args(["-c", script]);
        Ok(command)
    })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

const SAYS: &str = "echo '{\"boot_ns\":5,\"event\":\"elected\",\"term\":'$LANE'}'; \
                    echo nonsense; echo '{\"event\":\"late\"}'; exec sleep 60";

#[test]
fn events_are_told_and_other_lines_are_kept_apart() {
    let mut fleet = fleet(SAYS);
    let process = fleet.start(3).unwrap();
    let told = block_on(fleet.wait_for("it", LIMIT, |told| told.is("elected"))).unwrap();
    assert_eq!((told.process, told.lane, told.term), (process, 3, 3));
    assert_eq!((told.at, fleet.leader()), (Time::from_nanos(5), Some(&told)));
    while fleet.unread.len() < 2 {
        block_on(fleet.listen(Duration::from_millis(1))).unwrap();
    }
    assert_eq!(fleet.unread, ["nonsense", "{\"event\":\"late\"}"]);
}

#[test]
fn a_candidate_that_ends_by_itself_is_found_and_one_that_was_asked_to_is_not() {
    let mut fleet = fleet("[ $LANE = 0 ] || exec sleep 60");
    let asked = fleet.start(1).unwrap();
    fleet.dismiss(asked).unwrap();
    block_on(fleet.ended(asked, LIMIT)).unwrap();
    assert!(fleet.pid(asked).is_err());
    fleet.start(0).unwrap();
    let halt = block_on(fleet.wait("nothing", LIMIT, |_| None::<()>)).unwrap_err();
    assert_eq!(halt.to_string(), "candidate c1 ended by itself");
}

#[test]
fn what_does_not_come_in_time_is_found_too() {
    let mut fleet = fleet("exec sleep 60");
    let process = fleet.start(0).unwrap();
    let limit = Duration::from_millis(20);
    let halt = block_on(fleet.wait("a leader", limit, |_| None::<()>)).unwrap_err();
    assert_eq!(halt.to_string(), "a leader did not come within 20ms");
    let halt = block_on(fleet.ended(process, limit)).unwrap_err();
    assert_eq!(halt.to_string(), "a candidate did not end");
    fleet.kill(process).unwrap();
    assert!(fleet.killed.contains_key(&process));
}

/// Asks for the end at once.
struct AtOnce;

impl Interrupt for AtOnce {
    fn asked(&mut self) -> tenure_core::BoxFuture<'_, i32> {
        Box::pin(async { 2 })
    }
}

#[test]
fn a_wish_for_the_end_is_heard_before_anything_else() {
    let mut interrupt = AtOnce;
    let mut fleet = fleet(SAYS).with_interrupt(&mut interrupt);
    fleet.start(1).unwrap();
    let halt = block_on(fleet.listen(LIMIT)).unwrap_err();
    assert!(matches!(halt, Halt::Asked(2)), "{halt}");
}
