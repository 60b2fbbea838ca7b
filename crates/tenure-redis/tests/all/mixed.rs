//! A fleet of processes, half of which know nothing but three plain commands. They are killed and
//! told to go a hundred times; at no instant do two of them believe that they lead.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::Election;
use tenure_core::Time;
use tenure_redis::{RedisConfig, Settle};

use crate::common::{self, Server, ms, now};

const KEY: &str = "leader:jobs";
const TTL: Duration = Duration::from_millis(400);
const ROUNDS: usize = 100;

const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    return redis.call('DEL', KEYS[1]) else return 0 end";

/// What a process of the fleet notes while it believes that it leads.
struct Diary(File);

impl Diary {
    fn open(path: &Path) -> Diary {
        Diary(OpenOptions::new().create(true).append(true).open(path).unwrap())
    }

    fn begin(&mut self) {
        self.0.write_all(b"reign\n").unwrap();
    }

    /// Notes the instant if `believes` after it.
    fn note(&mut self, believes: impl FnOnce() -> bool) -> bool {
        let instant = now();
        let still = believes();
        if still {
            self.0.write_all(format!("{}\n", instant.as_nanos()).as_bytes()).unwrap();
        }
        still
    }
}

/// Not a test: what the processes of the fleet run.
#[needs(redis)]
#[test]
fn needs_redis_a_process_of_the_mixed_fleet() {
    let Ok(role) = std::env::var("TENURE_TEST_ROLE") else { return };
    let told_to_go = Arc::new(AtomicBool::new(false));
    let go = told_to_go.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        go.store(true, Ordering::SeqCst);
    });
    let variable = |name: &str| std::env::var(name).unwrap();
    let port: u16 = variable("TENURE_TEST_PORT").parse().unwrap();
    let mut diary = Diary::open(Path::new(&variable("TENURE_TEST_DIARY")));
    let id = variable("TENURE_TEST_ID");
    match role.as_str() {
        "plain" => plain_member(port, &id, &mut diary, &told_to_go),
        _ => tenure_member(port, &id, &mut diary, &told_to_go),
    }
}

/// The old design, done as well as it can be: it counts from the sending, and stops in time.
fn plain_member(port: u16, id: &str, diary: &mut Diary, told_to_go: &AtomicBool) {
    let run = |words: &[&str]| common::command(port, words).unwrap_or_default();
    let ttl = TTL.as_millis().to_string();
    while !told_to_go.load(Ordering::SeqCst) {
        let mut sent = now();
        if run(&["SET", KEY, id, "NX", "PX", &ttl]) != "+OK" {
            std::thread::sleep(TTL / 20); // tidy: sleep because the old design polls
            continue;
        }
        diary.begin();
        while diary.note(|| now() < sent + (TTL - ms(20))) && !told_to_go.load(Ordering::SeqCst) {
            let again = now();
            if again - sent > TTL / 3 {
                if run(&["EVAL", RENEW, "1", KEY, id, &ttl]) != ":1" {
                    break;
                }
                sent = again;
            }
            std::thread::sleep(ms(1)); // tidy: sleep because work takes time
        }
        run(&["EVAL", RELEASE, "1", KEY, id]);
    }
}

#[tokio::main]
async fn tenure_member(port: u16, id: &str, diary: &mut Diary, told_to_go: &AtomicBool) {
    let url = format!("redis://127.0.0.1:{port}");
    let config = RedisConfig::from_url(&url).unwrap().with_settle(Settle::Off);
    let store = Arc::new(config.open().unwrap());
    let election = Election::builder(KEY, store).label(id).ttl(TTL).start().await.unwrap();
    while !told_to_go.load(Ordering::SeqCst) {
        let campaign = tokio::time::timeout(ms(20), election.campaign());
        let Ok(Ok(reign)) = campaign.await else { continue };
        diary.begin();
        while diary.note(|| reign.is_current()) && !told_to_go.load(Ordering::SeqCst) {
            common::wait(ms(1)).await;
        }
        let _outcome = reign.resign().await;
    }
    let _outcome = election.stop().await;
}

/// One process of the fleet. It is killed by its process id when dropped.
struct Member {
    id: String,
    role: &'static str,
    child: Child,
}

impl Member {
    fn start(role: &'static str, number: usize, port: u16, home: &Path) -> Member {
        let id = format!("{role}-{number}");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "mixed::needs_redis_a_process_of_the_mixed_fleet"]);
        command.env("TENURE_TEST_ROLE", role).env("TENURE_TEST_ID", &id);
        command.env("TENURE_TEST_PORT", port.to_string());
        command.env("TENURE_TEST_DIARY", home.join(&id));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Member { id, role, child: command.spawn().unwrap() }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Tells it to go, and waits until it has.
    fn send_away(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

#[needs(redis)]
#[test]
fn needs_redis_a_mixed_fleet_has_one_leader_at_any_time() {
    let server = Server::start();
    let home = tempfile::tempdir().unwrap();
    let mut count = 0;
    let mut next = |role| {
        count += 1;
        Member::start(role, count, server.port, home.path())
    };
    let mut fleet: Vec<Member> = ["plain", "tenure", "plain", "tenure"].map(&mut next).into();
    for round in 0..ROUNDS {
        let leader = wait_for_leader(&server, &fleet);
        match round % 2 {
            0 => fleet[leader].kill(),
            _ => fleet[leader].send_away(),
        }
        fleet[leader] = next(fleet[leader].role);
    }
    drop(fleet);
    let reigns = reigns_apart(home.path());
    let of = |role: &str| {
        reigns.iter().filter(|(_, _, path)| path.to_string_lossy().contains(role)).count()
    };
    let (plain, tenure) = (of("plain-"), of("tenure-"));
    println!("{} reigns in {ROUNDS} rounds: {plain} plain, {tenure} tenure", reigns.len());
    // Some are killed between the grant and the first line of their diary.
    assert!(reigns.len() >= ROUNDS * 9 / 10, "{}", reigns.len());
    assert!(plain >= 10 && tenure >= 10, "{plain} and {tenure}");
}

/// R6: somebody deletes the key time and again, just before the leader is killed or told to go, or
/// while it leads on.
#[needs(redis)]
#[test]
fn needs_redis_a_fleet_whose_key_is_deleted_has_one_leader_at_any_time() {
    let server = Server::start();
    let home = tempfile::tempdir().unwrap();
    let mut count = 0;
    let mut next = || {
        count += 1;
        Member::start("tenure", count, server.port, home.path())
    };
    let mut fleet: Vec<Member> = (0..4).map(|_| next()).collect();
    let mut deleted = 0;
    for round in 0..ROUNDS {
        let leader = wait_for_leader(&server, &fleet);
        deleted += usize::from(server.run(&["DEL", KEY]) == ":1");
        // Everybody looks again at once.
        server.run(&["PUBLISH", "tenure:hints:0", KEY]);
        match round % 4 {
            0 => fleet[leader].kill(),
            1 => fleet[leader].send_away(),
            _ => continue,
        }
        fleet[leader] = next();
    }
    drop(fleet);
    let reigns = reigns_apart(home.path());
    println!("{} reigns, {deleted} keys deleted", reigns.len());
    assert!(deleted >= ROUNDS * 9 / 10 && reigns.len() >= ROUNDS / 4, "{deleted}, {reigns:?}");
}

/// All that was noted, in order, once it is sure that no two reigns overlap.
fn reigns_apart(home: &Path) -> Vec<(Time, Time, PathBuf)> {
    let mut reigns: Vec<(Time, Time, PathBuf)> = Vec::new();
    for entry in home.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let diary = std::fs::read_to_string(&path).unwrap();
        for reign in diary.split("reign\n").skip(1) {
            // The last line may have been cut off by a kill.
            let whole = &reign[..reign.rfind('\n').map_or(0, |end| end + 1)];
            let instants: Vec<u64> = whole.lines().map(|line| line.parse().unwrap()).collect();
            if let (Some(first), Some(last)) = (instants.first(), instants.last()) {
                reigns.push((Time::from_nanos(*first), Time::from_nanos(*last), path.clone()));
            }
        }
    }
    reigns.sort_unstable();
    for pair in reigns.windows(2) {
        assert!(pair[0].1 < pair[1].0, "I1: both at once: {pair:?}");
    }
    reigns
}

/// The place in the fleet of whoever holds the key.
fn wait_for_leader(server: &Server, fleet: &[Member]) -> usize {
    for _ in 0..2_000 {
        let holder = server.run(&["EVAL", "return redis.call('GET', KEYS[1]) or ''", "1", KEY]);
        let is_it = |member: &Member| holder.split('#').next() == Some(&member.id);
        if let Some(place) = fleet.iter().position(is_it) {
            return place;
        }
        std::thread::sleep(ms(5)); // tidy: sleep because other processes have to act
    }
    panic!("nobody leads");
}
