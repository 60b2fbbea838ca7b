//! Messages between real processes: sent, listened to, and handled over kills.

mod kills;
mod resignations;

use std::io::Write as _;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{self, eventually};
use crate::servers;
use crate::support::{Place, Process, finish};

/// Starts to listen, and returns once it leads.
fn listener(place: &Place, args: &[&str]) -> Process {
    let mut listener = place.spawn(&[&["listen"], args].concat());
    listener.line("leading as term");
    listener
}

fn message(listener: &mut Process, part: &str) -> Value {
    let line = listener.line(part);
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn waiting(place: &Place) -> u64 {
    let backlog = &place.status("shop")["backlog"];
    backlog.as_array().unwrap().iter().map(|one| one["waiting"].as_u64().unwrap()).sum()
}

#[test]
fn a_notice_is_printed_by_the_leader_and_lost_without_one() {
    let place = Place::new();
    let lost = place.run(&["notify", "shop", "refresh"]);
    assert_eq!(lost.code, 0, "{lost:?}");
    assert!(lost.err.contains("nobody leads shop now"), "{lost:?}");
    let mut listener = listener(&place, &["shop", "refresh"]);
    let sent = place.run(&["notify", "shop", "refresh", "{\"table\":\n \"it's \\\"x\\\"\"}"]);
    assert_eq!((sent.code, &*sent.err), (0, ""));
    let heard = message(&mut listener, "\"event\":\"message\"");
    assert_eq!(heard["payload"], json!({"table": "it's \"x\""}));
    assert_eq!((&heard["channel"], &heard["key"]), (&json!("refresh"), &Value::Null));
    let sent = place.run(&["notify", "shop", "refresh", "--json"]);
    let sent: Value = serde_json::from_str(&sent.out).unwrap();
    assert_eq!((&sent["event"], &sent["led"]), (&json!("notified"), &json!(true)));
    assert_eq!(message(&mut listener, "\"event\":\"message\"")["payload"], json!({}));
}

#[test]
fn a_post_waits_for_a_leader_and_its_key_counts_once() {
    let place = Place::new();
    let posted = place.run(&["post", "shop", "orders", "7", "--key", "k", "--json"]);
    let posted: Value = serde_json::from_str(&posted.out).unwrap();
    assert_eq!((&posted["event"], &posted["new"]), (&json!("posted"), &json!(true)));
    let again = place.run(&["post", "shop", "orders", "8", "--key", "k"]);
    assert!(again.err.contains("the key k is known"), "{again:?}");
    assert_eq!(waiting(&place), 1);
    let status = place.run(&["status", "shop"]);
    assert!(status.out.contains("shop: posts that wait in orders: 1"), "{status:?}");
    let mut listener = listener(&place, &["shop", "orders"]);
    let heard = message(&mut listener, "\"event\":\"message\"");
    assert_eq!((&heard["payload"], &heard["attempt"]), (&json!(7), &json!(1)));
    assert_eq!((&heard["key"], &heard["id"]), (&json!("k"), &posted["id"]));
    eventually("the acknowledgement", || (waiting(&place) == 0).then_some(()));
    listener.signal(Signal::TERM);
    assert_eq!(listener.code(), 0);
}

#[test]
fn lines_are_posts_in_their_order_and_a_bad_one_is_named() {
    let place = Place::new();
    let post = |text: &str| {
        let mut command = place.command(&["post", "shop", "orders", "--lines", "--key", "file"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let bad = post("1\n2\nthree\n");
    assert_eq!(bad.status.code(), Some(2));
    let says = String::from_utf8(bad.stderr).unwrap();
    assert!(says.contains("line 3: ") && says.contains("not JSON"), "{says}");
    let bad = post("1\n\nthree\n");
    let says = String::from_utf8(bad.stderr).unwrap();
    assert!(says.contains("line 3: "), "an empty line is a line: {says}");
    assert!(post("1\n\n2\n{\"n\": 3}\n").status.success());
    assert!(post("1\n2\n{\"n\": 3}\n").status.success(), "again, with the same keys");
    assert_eq!(waiting(&place), 3);
    let mut listener = listener(&place, &["shop", "orders"]);
    for (key, payload) in [("file-1", json!(1)), ("file-2", json!(2)), ("file-3", json!({"n": 3}))]
    {
        assert_eq!(message(&mut listener, key)["payload"], payload);
    }
}

#[test]
fn a_command_gets_the_payload_on_stdin_and_its_code_decides() {
    let place = Place::new();
    let script = "payload=$(cat); \
        echo \"got $payload on $TENURE_CHANNEL as $TENURE_KEY try $TENURE_ATTEMPT of \
        $TENURE_ELECTION term $TENURE_TERM by $TENURE_CANDIDATE\"; test \"$payload\" != '\"bad\"'";
    let options = ["--tries", "2", "--id", "till", "--", "sh", "-c", script];
    let args = [&["shop", "orders", "pings"], &options[..]].concat();
    let mut listener = listener(&place, &args);
    place.run(&["post", "shop", "orders", "\"bad\"", "--key", "1"]);
    place.run(&["post", "shop", "orders", "\"good\"", "--key", "2"]);
    listener.line("got \"bad\" on orders as 1 try 1 of shop term 1 by till");
    listener.line("the command ended with 1 on orders");
    listener.line("got \"bad\" on orders as 1 try 2 of shop term 1");
    listener.line("got \"good\" on orders as 2 try 1 of shop term 1");
    place.run(&["notify", "shop", "pings", "1"]);
    listener.line("got 1 on pings as  try 1");
    let dead = place.run(&["dead-letters", "shop", "--json"]);
    let dead: Value = serde_json::from_str(&dead.out).unwrap();
    assert_eq!((&dead["key"], &dead["deliveries"]), (&json!("1"), &json!(2)));
    assert_eq!(place.status("shop")["backlog"][0]["dead"], json!(1));
    let replayed = place.run(&["dead-letters", "shop", "--channel", "orders", "--replay"]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
    listener.line("got \"bad\" on orders as 1 try 1");
    let id = eventually("its second death", || {
        let dead = place.run(&["dead-letters", "shop", "--json"]);
        serde_json::from_str::<Value>(&dead.out).ok().map(|dead| dead["id"].to_string())
    });
    assert_eq!(place.run(&["dead-letters", "shop", &id, "--discard"]).code, 0);
    let none = place.run(&["dead-letters", "shop"]);
    assert_eq!(none.code, 1, "{none:?}");
}

#[test]
fn a_slow_channel_does_not_keep_another_waiting() {
    let place = Place::new();
    let gate = place.path("gate");
    let script = format!(
        "echo \"begun on $TENURE_CHANNEL\"; \
         if test $TENURE_CHANNEL = slow; then while ! test -e {gate}; do sleep 0.05; done; fi; \
         echo \"ended on $TENURE_CHANNEL\""
    );
    let mut listener = listener(&place, &["shop", "slow", "swift", "--", "sh", "-c", &script]);
    place.run(&["post", "shop", "slow", "1"]);
    listener.line("begun on slow");
    place.run(&["post", "shop", "swift", "1"]);
    place.run(&["notify", "shop", "swift", "2"]);
    listener.line("ended on swift");
    listener.line("ended on swift");
    std::fs::write(&gate, "").unwrap();
    listener.line("ended on slow");
    eventually("the acknowledgements", || (waiting(&place) == 0).then_some(()));
}

#[test]
fn what_a_killed_listener_was_at_comes_again_and_its_command_is_gone_by_then() {
    let place = Place::new();
    let script = "echo \"begun $$ try $TENURE_ATTEMPT\"; \
        if test \"$TENURE_ATTEMPT\" = 1; then sleep 1000; fi; echo done";
    let args = ["shop", "orders", "--", "sh", "-c", script];
    let mut first = listener(&place, &args);
    let mut second = place.spawn(&[&["listen"], &args[..]].concat());
    place.run(&["post", "shop", "orders", "1", "--key", "k"]);
    let line = first.line("begun");
    let pid: u32 = line.split(' ').nth(1).unwrap().parse().unwrap();
    let command = common::Watched::new(pid);
    first.signal(Signal::KILL);
    second.line("leading as term 2");
    assert!(!command.is_alive(), "the command of the last leader is gone before the next leads");
    second.line("try 2");
    second.line("done");
    eventually("the acknowledgement", || (waiting(&place) == 0).then_some(()));
}

#[test]
fn a_command_that_takes_too_long_is_killed_and_its_post_comes_again() {
    let place = Place::new();
    let script = "echo \"begun $$ try $TENURE_ATTEMPT\"; \
        if test \"$TENURE_ATTEMPT\" = 1; then sleep 1000; fi; echo done";
    let args = ["shop", "orders", "--timeout", "100ms", "--", "sh", "-c", script];
    let mut listener = listener(&place, &args);
    place.run(&["post", "shop", "orders", "1", "--key", "k"]);
    let line = listener.line("begun");
    let command = common::Watched::new(line.split(' ').nth(1).unwrap().parse().unwrap());
    listener.line("the command on orders took longer than 100ms and was killed");
    assert!(!command.is_alive(), "it is gone before its post comes again");
    listener.line("try 2");
    listener.line("done");
    eventually("the acknowledgement", || (waiting(&place) == 0).then_some(()));
}

#[test]
fn a_command_that_takes_too_long_is_told_before_it_is_killed() {
    let place = Place::new();
    let script = "trap 'echo @told; exit 1' TERM; echo @begun; while :; do sleep 0.02; done";
    let args = ["shop", "orders", "--timeout", "500ms", "--", "sh", "-c", script];
    let mut listener = listener(&place, &args);
    place.run(&["post", "shop", "orders", "1"]);
    listener.line("@begun");
    listener.line("@told");
    listener.line("the command on orders took longer than 500ms and was killed");
}

#[test]
fn what_is_being_handled_may_finish_after_a_signal_and_a_second_one_kills_it() {
    let place = Place::new();
    let gate = place.path("gate");
    let script = format!(
        "trap '' TERM; echo \"@begun $$\"; while ! test -e {gate}; do sleep 0.02; done; echo @done"
    );
    for (impatient, code) in [(false, 0), (true, 128 + 15)] {
        place.run(&["post", "shop", "orders", "1"]);
        let args = ["listen", "shop", "orders", "--json", "--ttl", "60s", "--", "sh", "-c"];
        let mut listener = place.spawn(&[&args[..], &[&script]].concat());
        let command = common::Watched::new(listener.number("@begun"));
        listener.signal(Signal::TERM);
        listener.event("draining");
        let began = common::now();
        if impatient {
            listener.signal(Signal::TERM);
        } else {
            std::fs::write(&gate, "").unwrap();
            listener.line("@done");
        }
        assert_eq!(listener.code(), code, "{:#?}", listener.seen());
        // Nobody waited for the drain, which is ten seconds.
        assert!((common::now() - began).as_secs() < 8);
        assert!(!command.is_alive());
        assert_eq!(place.run(&["status", "shop"]).code, 1, "the lease was given back");
        assert_eq!(waiting(&place), u64::from(impatient));
        let _none_after_the_last = std::fs::remove_file(&gate);
    }
}

#[test]
fn a_listener_says_that_the_guardian_of_a_command_was_killed() {
    let place = Place::new();
    let script = "echo @main $$; test $TENURE_ATTEMPT = 2 || sleep 99";
    let mut listener = listener(&place, &["shop", "orders", "--", "sh", "-c", script]);
    place.run(&["post", "shop", "orders", "1"]);
    let main = rustix::process::Pid::from_raw(listener.number("@main") as i32);
    let guardian = rustix::process::getpgid(main).unwrap();
    rustix::process::kill_process(guardian, Signal::KILL).unwrap();
    listener.line("orders: the guardian was killed, so the command is ended");
    listener.number("@main");
    eventually("the acknowledgement", || (waiting(&place) == 0).then_some(()));
}

/// On SQLite the guardian would give it back, and hide that nobody else did.
#[needs(redis)]
#[test]
fn needs_redis_a_signal_while_it_starts_gives_the_lease_back() {
    let redis = servers::redis();
    let place = Place::new();
    for round in 0..20 {
        let name = format!("shop-{round}");
        let mut command = place.command(&["listen", &name, "orders", "--ttl", "60s"]);
        let url = format!("{}?settle=off", redis.url());
        let mut listener = Process::new(command.env("TENURE_STORE", url));
        let exists = format!("EXISTS {name}");
        eventually("its lease", || redis.ask(&exists).filter(|there| there == ":1"));
        listener.signal(Signal::TERM);
        assert_eq!(listener.code(), 0);
        assert_eq!(redis.ask(&exists).unwrap(), ":0", "round {round}: it has kept the lease");
    }
}

#[test]
fn a_command_that_can_not_be_executed_ends_it_and_spoils_no_post() {
    let place = Place::new();
    let mut listener = listener(&place, &["shop", "orders", "--", "./no-such-command"]);
    place.run(&["post", "shop", "orders", "1"]);
    listener.line("not found");
    assert_eq!(listener.code(), 127);
    assert_eq!(waiting(&place), 1, "it is not dead");
}

#[test]
fn bad_input_is_refused_with_a_sentence_and_nothing_is_sent_or_started() {
    let place = Place::new();
    let (long, huge) = ("x".repeat(256), format!("\"{}\"", "x".repeat(65_536)));
    for (args, says) in [
        (&["notify", "shop", "c", "refresh"][..], "not JSON"),
        (&["notify", "shop", "c", "{"], "not JSON"),
        (&["notify", "shop", "", "1"], "the name of a channel is empty"),
        (&["notify", "shop", &long, "1"], "has 256 bytes, and sqlite takes at most 255"),
        (&["notify", "", "c", "1"], "the name of an election is empty"),
        (&["notify", "shop", "c", &huge], "at most 65536; post it instead"),
        (&["post", "shop", "c", "{'a': 1}"], "not JSON"),
        (&["post", "shop", "c", "1", "--key", ""], "the key of a post is empty"),
        (&["post", "shop", "c", "1", "--key", &long], "at most 255"),
        (&["listen", "shop", ""], "the name of a channel is empty"),
        (&["listen", "shop", "c", "--tries", "0"], "at least 1"),
        (&["listen", "shop", "c", "--timeout", "0s"], "--timeout"),
        (&["listen", "shop", "c", "--timeout", "5"], "--timeout"),
        (&["listen", "shop"], "required"),
    ] {
        let done = place.run(args);
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains(says), "{args:?}: {done:?}");
    }
    assert_eq!(waiting(&place), 0);
}

#[needs(postgres)]
#[test]
fn needs_postgres_bad_input_names_the_limits_of_postgres() {
    let server = servers::Postgres::connect();
    let place = Place::new();
    let (long, huge) = ("x".repeat(64), format!("\"{}\"", "x".repeat(7_998)));
    for (args, says) in [
        (&["notify", "shop", &long, "1"][..], "has 64 bytes, and postgres takes at most 63"),
        (&["listen", "shop", &long], "has 64 bytes, and postgres takes at most 63"),
        (&["post", "shop", &long, "1"], "has 64 bytes, and postgres takes at most 63"),
        (
            &["notify", "shop", "c", &huge],
            "has 8000 bytes, and a notice on postgres carries at \
            most 7999; post it instead",
        ),
    ] {
        let done = finish(place.command(args).env("TENURE_STORE", &server.url));
        assert_eq!(done.code, 2, "{args:?}: {done:?}");
        assert!(done.err.contains(says), "{args:?}: {done:?}");
    }
}
