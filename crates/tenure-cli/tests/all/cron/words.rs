//! What `tenure cron` says and refuses, and how it is ended and told to read again.

use std::fs;

use rustix::process::{Pid, Signal, getpgid, kill_process};

use crate::common::{Watched, eventually, now};
use crate::servers;
use crate::support::{Place, Process};

#[test]
fn the_next_instants_come_with_their_zone() {
    let from = "2026-03-28T00:00:00";
    let args = ["cron", "next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", from, "-n", "3"];
    let done = Place::new().run(&args);
    assert_eq!(done.code, 0, "{done:?}");
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(
        lines,
        [
            "2026-03-28T02:30:00+01:00[Europe/Berlin]",
            "2026-03-29T03:00:00+02:00[Europe/Berlin]",
            "2026-03-30T02:30:00+02:00[Europe/Berlin]",
        ]
    );
}

#[test]
fn bad_input_is_refused_before_anything_starts() {
    let place = Place::new();
    let file = place.path("jobs.toml");
    fs::write(&file, "[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = [\"true\"]\nx = 1\n")
        .unwrap();
    let at = "2026-03-29T02:30:00";
    for (args, says) in [
        (&["cron", "j", "61 * * * *", "--", "true"][..], "field 1 (minute) is \"61\""),
        (&["cron", "j", "0 0 30 2 *", "--", "true"], "never comes due"),
        (&["cron", "j", "@daily", "--tz", "Europe/Berln", "--", "true"], "Europe/Berlin"),
        (&["cron", "j", "@daily", "--missed", "all", "--", "true"], "--missed: missed is \"all\""),
        (&["cron", "j", "@daily", "--timeout", "5", "--", "true"], "--timeout: \"5\" has no unit"),
        (&["cron", "j", "@daily", "--timeout", "0s", "--", "true"], "--timeout: \"0s\" is no time"),
        (&["cron", "j", "@daily", "--missed", "run-all(0)", "--", "true"], "catch up with 1 to"),
        (&["cron", "", "@daily", "--", "true"], "the name of a job is empty"),
        (&["cron", "--file", &file], "jobs.toml:5:1: unknown field `x`"),
        (&["cron", "--file", "/nowhere.toml"], "can't be read"),
        (&["cron", "next", "* * *"], "it has 3 fields"),
        (&["cron", "next", "@daily", "--tz", "Europe/Berlin", "--from", at], "does not exist"),
    ] {
        let done = place.run(args);
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains(says), "{args:?}: {done:?}");
    }
    assert!(!fs::exists(place.path("tenure.db")).unwrap(), "a store was made for nothing");
    let done = place.run(&["cron", "history"]);
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{done:?}");
}

#[test]
fn jobs_of_a_file_run_together_and_are_read_again_on_hup() {
    let place = Place::new();
    let (file, ran) = (place.path("jobs.toml"), place.path("ran"));
    let job = |name: &str| {
        format!(
            "[[job]]\nname = \"{name}\"\nschedule = \"* * * * * *\"\noverlap = \"allow\"\n\
             command = \"echo $TENURE_JOB $TENURE_ELECTION >> {ran}; sleep 0.3\"\n"
        )
    };
    fs::write(&file, job("one") + &job("two")).unwrap();
    let mut cron = place.spawn(&["cron", "--file", &file, "--ttl", "3s"]);
    let seen = |line: &str| {
        let text = fs::read_to_string(&ran).unwrap_or_default();
        text.lines().any(|there| there == line).then_some(())
    };
    eventually("both jobs", || seen("one cron").and(seen("two cron")));
    fs::write(&file, "[[job]]\nname = 3\n").unwrap();
    cron.signal(Signal::HUP);
    cron.line("the jobs stay as they were");
    fs::write(&file, "election = \"other\"\n".to_owned() + &job("three")).unwrap();
    cron.signal(Signal::HUP);
    cron.line("again: 1 jobs");
    cron.line("names the election \"other\" now; the jobs stay in \"cron\"");
    eventually("the new job", || seen("three cron"));
    let done = place.run(&["cron", "trigger", "three"]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = place.run(&["cron", "trigger", "one", "--timeout", "200ms"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.err.contains("nobody began one within 200ms; it stays asked for"), "{done:?}");
    cron.line("is open, and this instance has no such job");
    cron.signal(Signal::TERM);
    assert_eq!(cron.code(), 0);
    let done = place.run(&["cron", "history", "three"]);
    assert!(done.out.contains("(asked for)"), "{done:?}");
}

#[test]
fn a_job_is_tried_again_paused_shown_as_such_and_resumed() {
    let place = Place::new();
    let ran = place.path("ran");
    let line = format!("echo $TENURE_ATTEMPT >> {ran}; test $TENURE_ATTEMPT = 2");
    let args = ["cron", "j", "* * * * * *", "--ttl", "3s", "--retries", "1", "--backoff", "100ms"];
    let mut cron = place.spawn(&[&args[..], &["--", "sh", "-c", &line]].concat());
    cron.line("it is tried again in 100ms");
    let text = || fs::read_to_string(&ran).unwrap_or_default();
    eventually("the second attempt", || text().lines().any(|line| line == "2").then_some(()));
    let unknown = place.run(&["cron", "pause", "jay", "--election", "j"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.err.contains("no leader of j has had a job jay yet"), "{unknown:?}");
    let paused = place.run(&["cron", "pause", "j"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    let status = place.run(&["cron", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert!(status["paused_at"].is_string() && status["job"] == "j", "{status}");
    cron.line("left out j of");
    cron.line("left out j of");
    let before = text();
    cron.line("left out j of");
    assert_eq!(text(), before, "it ran in a pause");
    for (verb, says) in [("resume", "goes on"), ("from-now", "counts from now on")] {
        let done = place.run(&["cron", verb, "j"]);
        assert!(done.code == 0 && done.err.contains(says), "{done:?}");
    }
    eventually("it goes on", || (text().len() > before.len() + 2).then_some(()));
    let status = place.run(&["cron", "status", "j"]);
    assert!(status.out.contains("* * * * * * UTC"), "{status:?}");
    cron.signal(Signal::TERM);
    assert_eq!(cron.code(), 0);
}

#[test]
fn a_command_that_takes_too_long_is_ended_and_a_failed_one_told_with_its_code() {
    let place = Place::new();
    let hangs = ["cron", "hangs", "* * * * * *", "--ttl", "3s", "--timeout", "300ms", "--"];
    let mut cron = place.spawn(&[&hangs[..], &["sleep", "60"]].concat());
    cron.line("timed out");
    cron.signal(Signal::TERM);
    assert_eq!(cron.code(), 0);
    let fails = ["cron", "fails", "* * * * * *", "--ttl", "3s", "--"];
    let mut cron = place.spawn(&[&fails[..], &["sh", "-c", "exit 7"]].concat());
    cron.line("failed (7)");
    cron.signal(Signal::TERM);
    assert_eq!(cron.code(), 0);
    let done = place.run(&["cron", "history", "--json"]);
    assert!(done.out.contains("\"state\":\"timed_out\""), "{done:?}");
    assert!(done.out.contains("\"code\":7"), "{done:?}");
}

#[test]
fn a_command_that_is_stopped_or_loses_its_guardian_is_told_of() {
    let place = Place::new();
    let every = ["cron", "nap", "* * * * * *", "--ttl", "3s", "--overlap", "skip", "--"];
    let script = "echo @main $$; kill -STOP $$; echo @on; sleep 99";
    let mut cron = place.spawn(&[&every[..], &["sh", "-c", script]].concat());
    let main = Pid::from_raw(cron.number("@main") as i32).unwrap();
    cron.line("nap: the command was stopped (SIGSTOP)");
    kill_process(main, Signal::CONT).unwrap();
    cron.line("@on");
    kill_process(getpgid(Some(main)).unwrap(), Signal::KILL).unwrap();
    cron.line("nap: the guardian was killed, so the command is ended");
    cron.line("failed (137)");
}

/// On SQLite the guardian would give it back, and hide that nobody else did.
#[needs(redis)]
#[test]
fn needs_redis_a_second_signal_kills_the_commands_and_gives_the_lease_back() {
    let redis = servers::redis();
    let script = "trap 'echo @deaf' TERM; echo @main $$; while :; do sleep 0.02; done";
    let args = ["cron", "job", "* * * * * *", "--ttl", "60s", "--", "sh", "-c", script];
    let mut command = Place::new().command(&args);
    let mut cron = Process::new(command.env("TENURE_STORE", format!("{}?settle=off", redis.url())));
    let command = Watched::new(cron.number("@main"));
    cron.signal(Signal::TERM);
    cron.line("@deaf");
    assert_eq!(redis.ask("EXISTS job").unwrap(), ":1");
    let began = now();
    cron.signal(Signal::TERM);
    assert_eq!(cron.code(), 128 + 15);
    assert!((now() - began).as_secs() < 5, "the drain is ten seconds");
    assert!(!command.is_alive());
    assert_eq!(redis.ask("EXISTS job").unwrap(), ":0", "it has kept the lease");
}
