//! Starting, answering, ending, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::instance::{Instance, TOKEN};
use crate::common::eventually;
use crate::support::{Place, Process, finish};
use tenure_testbed::http;

#[test]
fn it_takes_part_and_answers_and_hands_over_when_it_is_told_to_end() {
    let place = Place::new();
    let mut first = Instance::start(&place, "web-1", &["-e", "job", "--ttl", "3s"]);
    first.leads();
    let second = Instance::start(&place, "web-2", &["-e", "job", "--ttl", "3s"]);
    eventually("the follower names the leader", || {
        let answer = second.get("/leader");
        (answer.status == 503 && answer.json()["label"] == "web-1").then_some(())
    });
    first.process.signal(Signal::TERM);
    second.leads();
    assert_eq!(second.get("/leader").json()["term"], 2);
    assert_eq!(first.process.code(), 0);
    let history = second.get("/elections/job").json()["history"].clone();
    assert_eq!((&history[0]["label"], &history[1]["label"]), (&"web-2".into(), &"web-1".into()));
}

#[test]
fn a_term_signal_answers_503_first_and_gives_the_lease_back_after() {
    let place = Place::new();
    let more = ["-e", "job", "--ttl", "6s", "--grace", "1500ms"];
    let mut instance = Instance::start(&place, "web-1", &more);
    instance.leads();
    instance.process.signal(Signal::TERM);
    eventually("503", || (instance.get("/leader").status == 503).then_some(()));
    assert_eq!(place.status("job")["label"], "web-1", "the lease is still held");
    assert_eq!(instance.get("/leader").json()["is_leader"], true, "and it says so");
    assert_eq!(instance.get("/readyz").status, 503);
    assert_eq!(instance.process.code(), 0);
    assert_eq!(place.status("job")["label"], Value::Null, "now it is given back");
}

#[test]
fn metrics_are_there_for_the_elections_of_a_class() {
    let place = Place::new();
    let more = ["-e", "billing:a", "-e", "billing:b", "--ttl", "3s", "--metrics-per-election"];
    let instance = Instance::start(&place, "web-1", &more);
    let text = eventually("both are led", || {
        let text = instance.get("/metrics").body;
        let led = text.lines().filter(|line| line.starts_with("leader_is_leader{"));
        (led.filter(|line| line.ends_with(" 1")).count() == 2).then_some(text)
    });
    for line in [
        "leader_acquired_total{key_class=\"billing\",election=\"billing:a\"} 1",
        "leader_is_leader{key_class=\"billing\",election=\"billing:b\"} 1",
        "# TYPE leader_trust_seconds gauge",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    eventually("a renewal was measured", || {
        let text = instance.get("/metrics").body;
        text.contains("leader_renewal_duration_seconds_bucket").then_some(())
    });
}

#[test]
fn without_elections_it_watches_all_that_the_store_knows() {
    let place = Place::new();
    assert_eq!(place.run(&["run", "one", "--", "true"]).code, 0);
    assert_eq!(place.run(&["run", "two", "--", "true"]).code, 0);
    let instance = Instance::start(&place, "watcher", &[]);
    // It answers before it has read the list.
    eventually("it watches both", || {
        let elections = instance.get("/elections").json()["elections"].clone();
        let names: Vec<&str> =
            elections.as_array().unwrap().iter().map(|e| e["election"].as_str().unwrap()).collect();
        (names == ["one", "two"]).then_some(())
    });
    assert_eq!(instance.get("/leader/one").status, 503, "it takes no part");
}

#[test]
fn without_elections_it_sees_those_that_begin_later() {
    let place = Place::new();
    let instance = Instance::start(&place, "watcher", &[]);
    assert_eq!(instance.get("/elections").json()["elections"], serde_json::json!([]));
    // It answers before it has read the list: until then it can't know.
    eventually("there is none", || (instance.get("/leader/late").status == 404).then_some(()));
    let args = ["run", "late", "--id", "worker", "--ttl", "6s", "--", "sleep", "99"];
    let mut late = place.spawn(&args);
    eventually("it is seen", || {
        let answer = instance.get("/leader/late");
        (answer.status == 503 && answer.json()["label"] == "worker").then_some(())
    });
    let ttl_ms = &instance.get("/elections/late").json()["ttl_ms"];
    assert_eq!(*ttl_ms, 6000, "of the lease, not of whoever looks");
    late.signal(Signal::TERM);
    late.code();
    eventually("its end is seen", || {
        (instance.get("/leader/late").json()["label"] == Value::Null).then_some(())
    });
    // As an operator who forgets it would.
    let file = rusqlite::Connection::open(place.path("tenure.db")).unwrap();
    file.execute("DELETE FROM lease", []).unwrap();
    eventually("it is gone", || (instance.get("/leader/late").status == 404).then_some(()));
}

#[test]
fn it_is_said_once_that_the_store_is_away() {
    let place = Place::new();
    let names: Vec<String> = (0..20).map(|number| format!("job-{number}")).collect();
    let more: Vec<&str> = names.iter().flat_map(|name| ["-e", name.as_str()]).collect();
    let store = "redis://127.0.0.1:1/0";
    let mut instance = Instance::start_on(&place, store, "web-1", &more);
    eventually("all were asked about", || (instance.get("/readyz").status == 200).then_some(()));
    instance.process.signal(Signal::TERM);
    let said =
        instance.process.rest().iter().filter(|line| line.contains("the store can't be used"));
    assert_eq!(said.count(), 1);
}

#[test]
fn it_answers_while_the_store_is_away_at_its_start() {
    // Nobody listens on the port, and never will. The file is new, and somebody has it locked.
    let place = Place::new();
    let file = rusqlite::Connection::open(place.path("tenure.db")).unwrap();
    file.execute_batch("BEGIN EXCLUSIVE").unwrap();
    for (store, args) in [
        ("redis://127.0.0.1:1/0".to_owned(), &[][..]),
        ("redis://127.0.0.1:1/0".to_owned(), &["-e", "job"]),
        ("postgres://x@127.0.0.1:1/x".to_owned(), &[]),
        (place.url(), &[]),
        (place.url(), &["-e", "job"]),
    ] {
        let mut instance = Instance::start_on(&place, &store, "watcher", args);
        let what = format!("{store} {args:?}");
        assert_eq!(instance.get("/healthz").status, 200, "{what}");
        for path in ["/leader", "/leader/job"] {
            assert_eq!(instance.get(path).status, 503, "{what} {path}");
        }
        let waiting = &instance.get("/elections").json()["waiting"];
        assert!(!args.is_empty() || *waiting == true, "{what}");
        assert!(*waiting == false || instance.get("/readyz").status == 503, "{what}");
        instance.process.signal(Signal::TERM);
        assert_eq!(instance.process.code(), 0, "{what}: it was still trying");
    }
    let watcher = Instance::start(&place, "watcher", &[]);
    let candidate = Instance::start(&place, "web-1", &["-e", "job"]);
    for instance in [&watcher, &candidate] {
        assert_eq!(instance.get("/leader/job").status, 503);
        assert_eq!(instance.get("/elections").json()["waiting"], true);
    }
    file.execute_batch("COMMIT").unwrap();
    eventually("it leads", || (candidate.get("/leader/job").status == 200).then_some(()));
    eventually("that is seen", || {
        (watcher.get("/leader/job").json()["label"] == "web-1").then_some(())
    });
    assert_eq!(watcher.get("/leader/other").status, 404);
}

#[test]
fn a_unix_socket_needs_no_token_and_is_for_its_owner_alone() {
    let place = Place::new();
    let path = PathBuf::from(place.path("t.sock"));
    let url = format!("unix:{}", path.display());
    let mut process =
        Process::new(&mut place.command(&["serve", "-e", "job", "--ttl", "3s", "--listen", &url]));
    process.line("listening on unix:");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    eventually("it leads", || {
        (http::over_unix(&path, "GET", "/leader").unwrap().status == 200).then_some(())
    });
    let answer = http::over_unix(&path, "POST", "/elections/job/resign").unwrap();
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &"resigned".into()));
    process.signal(Signal::TERM);
    assert_eq!(process.code(), 0);
    assert!(!path.exists(), "it is cleaned up");
}

#[test]
fn health_is_answered_by_a_process_with_few_descriptors() {
    let place = Place::new();
    for (command, says) in [
        ("serve -e job --listen 127.0.0.1:0", "listening on http://"),
        ("run job --observe 127.0.0.1:0 -- sleep 99", "metrics and health at http://"),
    ] {
        let script = format!("ulimit -n 200; exec \"$0\" {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(crate::common::tenure()).env("TENURE_STORE", place.url());
        let mut process = Process::new(&mut shell);
        let line = process.line(says);
        let at: std::net::SocketAddr = line.rsplit("http://").next().unwrap().parse().unwrap();
        let mut idle = Vec::new();
        while idle.len() < 250 {
            idle.push(std::net::TcpStream::connect(at).unwrap());
        }
        assert_eq!(http::get(at, "/healthz").unwrap().status, 200, "{command}");
        idle[0].set_nonblocking(true).unwrap();
        let first = idle[0].peek(&mut [0]).map_err(|error| error.kind());
        assert_eq!(first, Err(std::io::ErrorKind::WouldBlock), "the idle ones are still there");
        drop(idle);
        process.signal(Signal::TERM);
        process.code();
    }
}

#[test]
fn a_hup_reads_the_token_file_again() {
    let place = Place::new();
    let file = place.path("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let args = ["serve", "-e", "job", "--listen", "127.0.0.1:0", "--token-file", &file];
    let mut process = Process::new(&mut place.command(&args));
    let line = process.line("listening on http://");
    let at = line.rsplit("http://").next().unwrap().trim().parse().unwrap();
    let try_token = |token: &str| {
        let header = format!("authorization: Bearer {token}\r\n");
        http::request(at, "POST", "/elections/nope/resign", &header, "").unwrap().status
    };
    assert_eq!((try_token(TOKEN), try_token("another-secret-0123")), (404, 401));
    fs::write(&file, "another-secret-0123").unwrap();
    process.signal(Signal::HUP);
    process.line("the token was read again");
    assert_eq!((try_token(TOKEN), try_token("another-secret-0123")), (401, 404));
    fs::write(&file, "short").unwrap();
    process.signal(Signal::HUP);
    let line = process.line("the token stays as it was");
    assert!(!line.contains("short\""), "{line}");
    assert_eq!(try_token("another-secret-0123"), 404);
}

#[test]
fn what_can_not_be_served_is_refused_with_a_sentence() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let world = place.path("world");
    fs::write(&world, TOKEN).unwrap();
    fs::set_permissions(&world, fs::Permissions::from_mode(0o644)).unwrap();
    let gone = place.path("no/such/dir.sock");
    for (args, says) in [
        (&["--listen", &taken][..], "is in use by another program"),
        (&["--listen", "0.0.0.0:0"], "give it a token by --token-file or TENURE_TOKEN"),
        (&["--listen", "7070"], "--listen: \"7070\" is no address to listen on"),
        (&["--listen", "unix:x.sock"], "has no whole path"),
        (&["--listen", &format!("unix:{gone}")], "is in a directory that does not exist"),
        (&["--token-file", &world], "chmod it to 0600"),
        (&["--token-file", &gone], "can't be read"),
        (&["--grace", "5"], "--grace: \"5\" has no unit"),
        (&["-e", ""], "the name of an election is empty"),
        (&["--token", "secret-secret-secret"], "unexpected argument '--token'"),
    ] {
        let all: Vec<&str> = ["serve"].iter().chain(args).copied().collect();
        let done = finish(&mut place.command(&all));
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains(says), "{args:?}: {done:?}");
        assert!(!done.err.contains("panicked"), "{done:?}");
    }
    let done = finish(place.command(&["serve"]).env("TENURE_TOKEN", "too short"));
    assert!(done.code == 2 && done.err.contains("TENURE_TOKEN: the token has 9 bytes"), "{done:?}");
    assert!(!std::path::Path::new(&place.path("tenure.db")).exists(), "nothing was created");
}

#[test]
fn messages_are_json_if_wished() {
    let place = Place::new();
    let more = ["-e", "job", "--ttl", "3s", "--log-format", "json", "-v"];
    let mut instance = Instance::start(&place, "web-1", &more);
    instance.leads();
    instance.process.signal(Signal::TERM);
    let lines = instance.process.rest().to_vec();
    assert!(lines.iter().any(|line| line.contains("listening on")));
    for line in &lines {
        let json: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(json["level"].is_string() && json["fields"].is_object(), "{line}");
    }
}

/// As Docker and Kubernetes hand secrets to a container.
#[needs(root)]
#[test]
fn needs_root_a_mounted_secret_is_a_token_file() {
    let place = Place::new();
    let token = place.path("token");
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o444)).unwrap();
    let tenure = crate::common::tenure().display();
    let serve = format!("exec {tenure} serve -e job --listen 127.0.0.1:0 --token-file {token}");
    let refused = finish(place.command(&[]).args(["serve", "-e", "job", "--token-file", &token]));
    assert_eq!(refused.code, 2, "{refused:?}");
    let dir = place.path("");
    let script = format!("mount --bind -o ro {dir} {dir} && {serve}");
    let mut command = Command::new("unshare");
    let store = Place::new();
    command.args(["--mount", "sh", "-c", &script]).env("TENURE_STORE", store.url());
    let mut process = Process::new(&mut command);
    process.line("listening on");
    process.signal(Signal::TERM);
    assert_eq!(process.code(), 0);
}

/// `/leader/..` is `/` to most clients.
#[test]
fn elections_that_no_url_can_name_are_refused() {
    let place = Place::new();
    for name in [".", ".."] {
        for flag in ["--election", "--observe"] {
            let done = place.run(&["serve", flag, name, "--listen", "127.0.0.1:0"]);
            assert_eq!(done.code, 2, "{done:?}");
            assert!(done.err.contains("can't be asked for over HTTP"), "{done:?}");
        }
    }
    place.run(&["run", "..", "--", "true"]);
    let mut process = place.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    process.line("can't be asked for over HTTP");
    process.line("listening on");
    process.signal(Signal::TERM);
    assert_eq!(process.code(), 0);
}
