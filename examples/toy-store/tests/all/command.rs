//! The command of tenure on a store that it has never heard of.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A directory with a store in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("leases.json")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toy"));
        command.args(args).env("TENURE_STORE", format!("toy:{}", self.file().display()));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs it, and reads the one line of JSON that it prints.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

/// A command that stays. Dropping it ends it.
struct Running {
    child: Child,
    /// What it says, stdout and stderr alike.
    lines: std::io::Lines<BufReader<std::io::PipeReader>>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        Running { child, lines: BufReader::new(reader).lines() }
    }

    /// Waits for a line with this in it.
    #[track_caller]
    fn line(&mut self, part: &str) -> String {
        let mut said = Vec::new();
        for line in self.lines.by_ref().map(Result::unwrap) {
            if line.contains(part) {
                return line;
            }
            said.push(line);
        }
        panic!("it never said {part:?}: {said:#?}");
    }

    fn end(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn run_elects_and_status_names_the_leader() {
    let place = Place::new();
    let shell = "echo working as term $TENURE_TERM; exec sleep 60";
    let mut first = Running::start(
        place.command(&["run", "invoices", "--id", "web-1", "--", "sh", "-c", shell]),
    );
    first.line("working as term 1");
    let status = place.json(&["status", "invoices", "--json"]);
    assert_eq!((&status["election"], &status["term"]), (&"invoices".into(), &1.into()), "{status}");
    assert!(status.to_string().contains("web-1"), "{status}");
    let second = place.run(&["run", "invoices", "--no-wait", "--", "true"]);
    assert!(!second.status.success(), "another leads: {second:?}");
    first.end();
    let again = place.run(&["run", "invoices", "--", "sh", "-c", "echo term $TENURE_TERM"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "term 2\n", "{again:?}");
}

#[test]
fn serve_answers_whether_it_leads() {
    let place = Place::new();
    // A 200 is relied on for the drain, which a short ttl makes short.
    let args = ["serve", "-e", "invoices", "--id", "web-1", "--ttl", "3s"];
    let mut sidecar =
        Running::start(place.command(&[&args[..], &["--listen", "127.0.0.1:0"]].concat()));
    let line = sidecar.line("listening on http://");
    let at = line.rsplit("http://").next().unwrap().trim().to_owned();
    sidecar.line("leading as term 1");
    let mut stream = TcpStream::connect(&at).unwrap();
    write!(stream, "GET /leader HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("web-1"), "{answer}");
    assert_eq!(sidecar.end(), Some(0));
}

#[test]
fn doctor_prints_what_the_store_promises_and_what_is_wrong_with_it() {
    let place = Place::new();
    assert!(place.run(&["run", "invoices", "--", "true"]).status.success());
    let output = place.run(&["doctor"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !told.contains("others may open"), "{told}");
    assert!(told.contains("mode 0600") && told.contains("after a reboot each lease"), "{told}");
    fs::set_permissions(place.file(), Permissions::from_mode(0o644)).unwrap();
    let output = place.run(&["doctor"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("others may open") && told.contains("chmod it to 0600"), "{told}");
    assert!(!output.status.success(), "a finding about safety is a failure");
}

#[test]
fn a_drill_passes_and_leaves_the_store_as_it_was() {
    let place = Place::new();
    let flags = ["--candidates", "3", "--rounds", "6", "--ttl", "1s", "--seed", "7", "--json"];
    let report = place.json(&[&["drill"], &flags[..]].concat());
    assert_eq!((&report["passed"], &report["overlaps"]), (&true.into(), &0.into()), "{report:#}");
    assert_eq!(report["rounds"], 6);
    assert!(report["terms"].as_u64().unwrap() > 6, "each fault has its successor: {report:#}");
    assert!(report["stale_writes_stopped"].as_u64().unwrap() > 0, "by the fence: {report:#}");
    assert!(!place.file().exists(), "there was none before");
}

#[test]
fn what_the_store_lacks_is_said_in_a_sentence() {
    let place = Place::new();
    let none = place.command(&["status"]).env_remove("TENURE_STORE").output().unwrap();
    let told = String::from_utf8_lossy(&none.stderr);
    assert!(told.contains("this build has no default store; name one"), "{told}");
    let other = place.command(&["status"]).env("TENURE_STORE", "tot:x").output().unwrap();
    let told = String::from_utf8_lossy(&other.stderr);
    assert!(told.contains("known are toy:PATH"), "{told}");
    let post = place.run(&["post", "invoices", "jobs", "{}"]);
    let told = String::from_utf8_lossy(&post.stderr);
    assert!(told.contains("the store toy carries no messages"), "{told}");
    let gone = ["run", "invoices", "--store", "toy:/nowhere/leases.json", "--", "true"];
    let told = String::from_utf8_lossy(&place.run(&gone).stderr).into_owned();
    assert!(told.contains("there is no directory /nowhere; create it"), "{told}");
}
