//! A killed tenure is succeeded as soon as all its work is dead, on every store whose leases a
//! witness may give back (D1, D3); and whatever happens to the witness, no two work at once.
//!
//! The work forks, orphans itself, leaves its session and ignores TERM. Each piece of it writes the
//! term that it works for into one file, and the checker knows nothing but that file.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use serde_json::Value;
use tenure::core::{Op, Reply, StoreExt as _};
use tenure::{CandidateId, Name};
use tenure_testbed::redis::RedisServer;

use crate::common::{Watched, eventually, now, processes};
use crate::support::{Place, Process, finish};

/// Longer than any test waits: who is succeeded within a test did not wait for it.
const LONG: &str = "60s";

/// One piece of work.
const WORK: &str = r#"
trap '' TERM
echo "@$1 $$"
while :; do echo "$TENURE_TERM" >>"$NOTES"; sleep 0.05; done
"#;

/// A command with its pieces, each harder to find than the one before.
const COMMAND: &str = r#"
trap '' TERM
echo "@begins"
(sh "$WORK" forked &)
(setsid sh "$WORK" alone &)
(setsid sh -c 'sh "$WORK" orphan & exit' &)
exec sh "$WORK" main
"#;

const PIECES: [&str; 4] = ["@forked", "@alone", "@orphan", "@main"];

/// A store, the work and its notes.
pub(crate) struct Ground {
    pub(crate) place: Place,
    pub(crate) url: String,
    _server: Option<RedisServer>,
}

impl Ground {
    fn new(url: Option<String>, server: Option<RedisServer>) -> Ground {
        let place = Place::new();
        fs::write(place.path("work.sh"), WORK).unwrap();
        fs::write(place.path("command.sh"), COMMAND).unwrap();
        Ground { url: url.unwrap_or_else(|| place.url()), place, _server: server }
    }

    pub(crate) fn sqlite() -> Ground {
        Ground::new(None, None)
    }

    pub(crate) fn redis() -> Ground {
        let server = RedisServer::start();
        // It is new, and knows that it has forgotten nothing.
        Ground::new(Some(format!("{}?settle=off", server.url())), Some(server))
    }

    pub(crate) fn postgres() -> Ground {
        let server = tenure_testbed::postgres::server();
        let ground = Ground::new(None, None);
        let schema = format!("witness_{}_{}", std::process::id(), now().as_nanos());
        let ground = Ground { url: format!("{server}?schema={schema}"), ..ground };
        assert_eq!(finish(&mut ground.command(&["migrate"])).code, 0);
        ground
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("TENURE_STORE", &self.url);
        command.env("WORK", self.place.path("work.sh")).env("NOTES", self.place.path("notes"));
        command
    }

    fn spawn(&self, args: &[&str]) -> Process {
        Process::new(&mut self.command(args))
    }

    /// An instance that runs the command.
    fn run(&self, id: &str, flags: &[&str]) -> Process {
        let script = self.place.path("command.sh");
        let named = ["run", "job", "--id", id];
        self.spawn(&[&named[..], flags, &["--", "sh", &script]].concat())
    }

    pub(crate) fn status(&self) -> Value {
        let done = finish(&mut self.command(&["status", "--json", "job"]));
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }

    /// The terms that were worked for, in the order of the work.
    fn worked_for(&self) -> Vec<u64> {
        let notes = fs::read_to_string(self.place.path("notes")).unwrap_or_default();
        notes.lines().map(|term| term.parse().unwrap()).collect()
    }

    /// How often somebody worked for a term when a later one had begun.
    pub(crate) fn overlaps(&self) -> usize {
        let mut latest = 0;
        let late = |term: &u64| {
            latest = latest.max(*term);
            *term < latest
        };
        self.worked_for().iter().copied().filter(late).count()
    }

    /// Waits until the successor of these terms has worked for a while.
    pub(crate) fn works_after(&self, old: u64) {
        eventually("work for the next term", || {
            (self.worked_for().iter().filter(|term| **term > old).count() > 20).then_some(())
        });
    }
}

/// All pieces of the work of a leader.
fn pieces(leader: &mut Process) -> Vec<Watched> {
    PIECES.map(|piece| Watched::new(leader.number(piece))).into()
}

fn alive(pieces: &[Watched]) -> Vec<u32> {
    pieces.iter().filter(|piece| piece.is_alive()).map(|piece| piece.pid).collect()
}

/// The witness of a tenure that runs one command.
fn witness(of: &Process) -> Watched {
    child_of(of.pid())
}

fn child_of(parent: u32) -> Watched {
    let found = processes().into_iter().find(|stat| stat.parent == parent);
    Watched::new(found.expect("tenure has a guardian").pid)
}

pub(crate) fn signal(process: &Watched, signal: Signal) {
    kill_process(Pid::from_raw(process.pid as i32).unwrap(), signal).unwrap();
}

/// Leads, and another follows.
fn two(ground: &Ground, flags: &[&str]) -> (Process, Process, Vec<Watched>) {
    let mut leader = ground.run("a", flags);
    let work = pieces(&mut leader);
    let mut next = ground.run("b", flags);
    match flags.contains(&"--json") {
        true => drop(next.event("leader_changed")),
        false => drop(next.line("following: a leads")),
    }
    (leader, next, work)
}

/// kill -9 of the electing process alone.
fn a_killed_elector_is_succeeded_at_once(ground: &Ground) {
    let (leader, mut next, work) = two(ground, &["--ttl", LONG]);
    let lease = ground.status();
    leader.signal(Signal::KILL);
    next.line("@begins");
    let took_ms = (now().as_nanos() - lease["boot_ns"].as_u64().unwrap()) / 1_000_000;
    assert_eq!(alive(&work), Vec::<u32>::new(), "they work on beside their successor");
    assert!(took_ms < lease["remaining_ms"].as_u64().unwrap(), "{took_ms} ms, {lease}");
    ground.works_after(lease["term"].as_u64().unwrap());
    assert_eq!(ground.overlaps(), 0);
}

#[test]
fn a_killed_elector_is_succeeded_at_once_on_sqlite() {
    a_killed_elector_is_succeeded_at_once(&Ground::sqlite());
}

#[needs(redis)]
#[test]
fn needs_redis_a_killed_elector_is_succeeded_at_once() {
    a_killed_elector_is_succeeded_at_once(&Ground::redis());
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_killed_elector_is_succeeded_at_once() {
    a_killed_elector_is_succeeded_at_once(&Ground::postgres());
}

/// The same where several commands may run: the last of their guardians gives the lease back.
fn a_killed_cron_or_listener_is_succeeded_at_once(ground: &Ground) {
    let script = ground.place.path("command.sh");
    for (name, of_which, begin) in [
        ("cron", "0 0 1 1 *", &["cron", "trigger", "cron"][..]),
        ("listen", "channel", &["post", "listen", "channel"]),
    ] {
        let start = |id: &str| {
            let args = [name, name, of_which, "--id", id, "--ttl", LONG, "--", "sh", &script];
            ground.spawn(&args)
        };
        let mut leader = start("a");
        leader.line("leading as term");
        let mut begin = ground.spawn(begin);
        let work = pieces(&mut leader);
        let mut next = start("b");
        next.line("following: a leads");
        leader.signal(Signal::KILL);
        next.line("leading as term");
        assert_eq!(alive(&work), Vec::<u32>::new(), "{name}: they work on");
        begin.signal(Signal::KILL);
        begin.code();
    }
    assert_eq!(ground.overlaps(), 0);
}

#[needs(redis)]
#[test]
fn needs_redis_a_killed_cron_or_listener_is_succeeded_at_once() {
    a_killed_cron_or_listener_is_succeeded_at_once(&Ground::redis());
}

#[needs(postgres)]
#[test]
fn needs_postgres_a_killed_cron_or_listener_is_succeeded_at_once() {
    a_killed_cron_or_listener_is_succeeded_at_once(&Ground::postgres());
}

/// An elector that was killed, and its witness that is stopped and stays so.
///
/// The kernel wakes a group with stopped processes when it is orphaned: when nobody of its session
/// is above it any more. So somebody of this session adopts it: this test binary, started again.
struct Orphaned {
    _above: Process,
    witness: Watched,
    work: Vec<Watched>,
    next: Process,
    lease: Value,
}

impl Orphaned {
    fn new(ground: &Ground) -> Orphaned {
        let script = ground.place.path("command.sh");
        let run = ["run", "job", "--id", "a", "--ttl", LONG, "--", "sh", &script];
        let tenure = ground.command(&run);
        let words = std::iter::once(tenure.get_program()).chain(tenure.get_args());
        let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
        let mut above = Command::new(std::env::current_exe().unwrap());
        above.args(["--exact", "witness::adopts_what_is_left_behind", "--nocapture"]);
        above.envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?))));
        above.env(ADOPT, serde_json::to_string(&words).unwrap()).stdin(Stdio::null());
        let mut above = Process::new(&mut above);
        let elector = Killed(Watched::new(above.number("@tenure")));
        let work = pieces(&mut above);
        let mut next = ground.run("b", &["--ttl", LONG]);
        next.line("following: a leads");
        let (witness, lease) = (child_of(elector.0.pid), ground.status());
        signal(&witness, Signal::STOP);
        eventually("the witness to stand still", || {
            let stat = processes().into_iter().find(|stat| stat.pid == witness.pid)?;
            (stat.state == "T").then_some(())
        });
        signal(&elector.0, Signal::KILL);
        elector.0.ends();
        Orphaned { _above: above, witness, work, next, lease }
    }

    fn term(&self) -> u64 {
        self.lease["term"].as_u64().unwrap()
    }
}

/// A process that is killed at the latest when this is dropped.
struct Killed(Watched);

impl Drop for Killed {
    fn drop(&mut self) {
        if self.0.is_alive() {
            signal(&self.0, Signal::KILL);
        }
    }
}

const ADOPT: &str = "WITNESS_ADOPTS";

/// Starts what its variable says, and reaps what comes; without that, a test that does nothing.
#[test]
fn adopts_what_is_left_behind() {
    let Ok(words) = std::env::var(ADOPT) else { return };
    let words: Vec<String> = serde_json::from_str(&words).unwrap();
    set_child_subreaper(Some(getpid())).unwrap();
    let mut tenure = Command::new(&words[0]).args(&words[1..]).spawn().unwrap();
    println!("\n@tenure {}", tenure.id());
    while wait(WaitOptions::empty()).is_ok() {}
    let _reaped = tenure.wait();
}

/// Nothing is given back before the proof, however long that takes.
fn a_frozen_witness_gives_nothing_back(ground: &Ground) {
    let mut scene = Orphaned::new(ground);
    let (lease, later) = (&scene.lease, ground.status());
    assert_eq!((&later["leader"], &later["term"]), (&lease["leader"], &lease["term"]));
    signal(&scene.witness, Signal::CONT);
    scene.next.line("@begins");
    assert_eq!(alive(&scene.work), Vec::<u32>::new());
    scene.witness.ends();
    ground.works_after(scene.term());
    assert_eq!(ground.overlaps(), 0);
}

#[test]
fn a_frozen_witness_gives_nothing_back_on_sqlite() {
    a_frozen_witness_gives_nothing_back(&Ground::sqlite());
}

#[needs(redis)]
#[test]
fn needs_redis_a_frozen_witness_gives_nothing_back() {
    a_frozen_witness_gives_nothing_back(&Ground::redis());
}

/// Without its witness, a tenure ends the work itself before it gives the lease back.
fn a_tenure_without_its_witness_proves_it_itself(ground: &Ground, fault: Signal) {
    let (leader, mut next, work) = two(ground, &["--ttl", LONG]);
    let lease = ground.status();
    signal(&witness(&leader), fault);
    leader.signal(Signal::TERM);
    next.line("@begins");
    assert_eq!(alive(&work), Vec::<u32>::new());
    ground.works_after(lease["term"].as_u64().unwrap());
    assert_eq!(ground.overlaps(), 0);
}

#[needs(redis)]
#[test]
fn needs_redis_a_tenure_whose_witness_was_killed_proves_it_itself() {
    a_tenure_without_its_witness_proves_it_itself(&Ground::redis(), Signal::KILL);
}

#[needs(redis)]
#[test]
fn needs_redis_a_tenure_whose_witness_is_frozen_proves_it_itself() {
    a_tenure_without_its_witness_proves_it_itself(&Ground::redis(), Signal::STOP);
}

/// What a witness can't reach runs out, and the witness ends.
#[needs(redis)]
#[test]
fn needs_redis_a_witness_that_is_cut_off_leaves_the_lease_to_run_out() {
    let ground = Ground::redis();
    let (leader, mut next, work) = two(&ground, &["--ttl", "4s"]);
    let (witness, lease) = (witness(&leader), ground.status());
    let server = ground._server.as_ref().unwrap();
    server.signal(Signal::STOP);
    leader.signal(Signal::KILL);
    work.iter().for_each(Watched::ends);
    witness.ends();
    server.signal(Signal::CONT);
    next.line("@begins");
    ground.works_after(lease["term"].as_u64().unwrap());
    assert_eq!(ground.overlaps(), 0);
}

/// The control: a lease that is given back before the work is dead is noticed by the checker.
#[test]
fn a_lease_that_is_given_back_too_early_is_noticed() {
    let ground = Ground::sqlite();
    let mut scene = Orphaned::new(&ground);
    release_for(&ground, scene.lease["leader"].as_str().unwrap());
    scene.next.line("@begins");
    ground.works_after(scene.term());
    signal(&scene.witness, Signal::CONT);
    scene.witness.ends();
    assert!(ground.overlaps() > 0, "the checker sees nothing");
}

/// What a witness sends, from here.
fn release_for(ground: &Ground, candidate: &str) {
    let (label, incarnation) = candidate.rsplit_once('#').unwrap();
    let incarnation = u128::from_str_radix(incarnation, 16).unwrap();
    let release = Op::Release {
        election: Name::new("job").unwrap(),
        candidate: CandidateId::new(label, incarnation).unwrap(),
        term: None,
        seq: u64::MAX,
    };
    let store = tenure::open(&ground.url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reply = runtime.block_on(store.apply_one(&release));
    assert!(matches!(reply, Reply::Granted(_)), "{reply:?}");
}

/// D4: what the dead have sent to a server may need some time.
#[test]
fn a_lease_is_kept_for_as_long_as_it_lingers() {
    let ground = Ground::sqlite();
    let (leader, mut next, work) = two(&ground, &["--ttl", "3s", "--linger", "1m", "--json"]);
    let witness = witness(&leader);
    leader.signal(Signal::STOP);
    let lease = ground.status();
    leader.signal(Signal::KILL);
    let elected = next.event("elected");
    let remaining_ns = lease["remaining_ms"].as_u64().unwrap() * 1_000_000;
    // The status was read a moment before it was stamped.
    let least = lease["boot_ns"].as_u64().unwrap() + remaining_ns - 200_000_000;
    assert!(elected["boot_ns"].as_u64().unwrap() >= least, "{lease} but {elected}");
    assert_eq!(alive(&work), Vec::<u32>::new());
    assert!(witness.is_alive(), "it lingers");
    signal(&witness, Signal::KILL);
}

/// The URL comes over a socket: everybody can read arguments, and some the environment. And nobody
/// waits for a pipe of the dead because a witness has it.
#[test]
fn a_witness_has_no_secret_to_show_and_nothing_inherited() {
    let ground = Ground::sqlite();
    let fifo = ground.place.path("fifo");
    let script = format!(
        "exec 3<>{fifo}; exec \"$0\" run job --id a --ttl {LONG} --linger 1m --store {url} -- \
         sh {command}",
        url = ground.url,
        command = ground.place.path("command.sh"),
    );
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut shell = ground.command(&[]);
    let program = shell.get_program().to_owned();
    let mut start = Command::new("sh");
    start.args(["-c", &script]).arg(program).env_remove("TENURE_STORE");
    start.env("WORK", ground.place.path("work.sh")).env("NOTES", ground.place.path("notes"));
    start.stdin(Stdio::null());
    shell.env_clear();
    let mut leader = Process::new(&mut start);
    let work = pieces(&mut leader);
    let witness = witness(&leader);
    for file in ["cmdline", "environ"] {
        let bytes = fs::read(format!("/proc/{}/{file}", witness.pid)).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(&ground.url), "{file}");
    }
    leader.signal(Signal::KILL);
    work.iter().for_each(Watched::ends);
    eventually("the witness to have closed what it inherited", || {
        let open = fs::read_dir(format!("/proc/{}/fd", witness.pid)).ok()?;
        let links = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        (!links.into_iter().any(|link| link.ends_with("fifo"))).then_some(())
    });
    assert!(witness.is_alive(), "it lingers");
    signal(&witness, Signal::KILL);
}
