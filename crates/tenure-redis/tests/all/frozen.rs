//! A process that leads is frozen while its server restarts without data and settles.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::Election;
use tenure_core::{Term, Time};
use tenure_redis::{RedisConfig, Settle};
use tokio::time::timeout;

use crate::common::{Server, ms, now, wait};

const TTL: Duration = Duration::from_millis(1_500);
const PATIENCE: Duration = Duration::from_secs(60);

fn election(url: &str, label: &str) -> tenure::ElectionBuilder {
    let config = RedisConfig::from_url(url).unwrap().with_settle(Settle::For(TTL));
    Election::builder("jobs", Arc::new(config.open().unwrap())).label(label).ttl(TTL)
}

/// Not a test: what the frozen process runs. It notes every instant at which it trusts itself.
#[needs(redis)]
#[test]
fn needs_redis_a_process_that_is_frozen() {
    let Ok(url) = std::env::var("TENURE_TEST_URL") else { return };
    let diary = std::env::var("TENURE_TEST_DIARY").unwrap();
    let mut diary = OpenOptions::new().create(true).append(true).open(diary).unwrap();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().build().unwrap().block_on(async {
        let election = election(&url, "frozen").start().await.unwrap();
        let reign = election.campaign().await.unwrap();
        for count in 0_u64.. {
            let instant = now();
            let line = if reign.is_current() { "leads" } else { "lost" };
            diary.write_all(format!("{line} {}\n", instant.as_nanos()).as_bytes()).unwrap();
            if count == 0 {
                // From now on it may be stopped, and its diary be read.
                println!("\nleads {}", reign.term());
            }
            wait(ms(1)).await;
        }
    });
}

/// The process. It is killed by its process id when dropped.
struct Frozen {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Frozen {
    fn start(url: &str, diary: &Path) -> Frozen {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture"]);
        command.arg("frozen::needs_redis_a_process_that_is_frozen");
        command.env("TENURE_TEST_URL", url).env("TENURE_TEST_DIARY", diary);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Frozen { child, output }
    }

    /// Waits until it leads.
    fn term(&mut self) -> Term {
        for line in (&mut self.output).lines().map_while(Result::ok) {
            if let Some(term) = line.strip_prefix("leads ") {
                return Term::new(term.parse().unwrap()).unwrap();
            }
        }
        panic!("it never led");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What it noted: the last instant at which it trusted itself, and whether it lost that since.
fn read(diary: &Path) -> (Time, bool) {
    let text = std::fs::read_to_string(diary).unwrap();
    let whole = &text[..text.rfind('\n').unwrap()];
    let trusted = whole.lines().filter_map(|line| line.strip_prefix("leads ")).next_back();
    let last = Time::from_nanos(trusted.unwrap().parse().unwrap());
    (last, whole.lines().next_back().is_some_and(|line| line.starts_with("lost")))
}

#[needs(redis)]
#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_frozen_process_and_its_successor_never_trust_themselves_at_once() {
    let mut server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let diary = directory.path().join("diary");
    for thaw_early in [false, true] {
        let mut frozen = Frozen::start(&server.url(), &diary);
        let old = frozen.term();
        frozen.signal(Signal::STOP);
        let cut = now();
        server.restart();
        let b = election(&server.url(), "b").start().await.unwrap();
        if thaw_early {
            // In the middle of settling: it still trusts itself, and may.
            wait(TTL / 3).await;
            frozen.signal(Signal::CONT);
        }
        let reign = timeout(PATIENCE, b.campaign()).await.expect("somebody leads").unwrap();
        let led = now();
        assert!(reign.term() > old, "R1: {} after {old}", reign.term());
        assert!(led - cut >= TTL - ms(100), "R2: settling was skipped: {:?}", led - cut);
        frozen.signal(Signal::CONT);
        let mut seen = read(&diary);
        for _ in 0..2_000 {
            if seen.1 {
                break;
            }
            wait(ms(10)).await;
            seen = read(&diary);
        }
        let (last, lost) = seen;
        assert!(lost, "it finds out");
        assert!(last < led, "I1: it trusted itself {:?} after its successor led", last - led);
        drop(frozen);
        reign.resign().await.unwrap();
        b.stop().await.unwrap();
        std::fs::remove_file(&diary).unwrap();
    }
}
