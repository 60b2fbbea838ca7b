//! Passwords appear in no output, whatever they are made of, and nothing else is hidden for them.

use std::time::Duration;

use crate::support::{Done, Place, finish, finish_within};

/// A piece of each password here, and of nothing else.
const PIECE: &str = "s3cret";

const HALF_A_SECOND: Duration = Duration::from_millis(500);

/// As people generate them, and forget to escape them.
const PASSWORDS: [&str; 12] = [
    "s3cret-plain-s3cret",
    "s3cret\"s3cret",
    "s3cret's3cret",
    "s3cret s3cret",
    "s3cret[s3cret]s3cret",
    "s3cret<s3cret>s3cret",
    "s3cret`s3cret\\s3cret",
    "s3cret%s3cret",
    "s3cret/s3cret?s3cret",
    "s3cret@s3cret#s3cret",
    "s3cret&s3cret=s3cret",
    "12/s3cret?s3cret=s3cret",
];

#[track_caller]
fn assert_kept(done: &Done, what: &[&str]) {
    assert!(!done.out.contains(PIECE) && !done.err.contains(PIECE), "{what:?}: {done:?}");
}

/// Every way of writing a URL with this password in it.
fn urls(password: &str) -> Vec<String> {
    vec![
        format!("postgres://user:{password}@127.0.0.1:1/db"),
        format!("postgres+advisory://user:{password}@127.0.0.1:1/db?schema=a"),
        format!("postgres://127.0.0.1:1/db?user=u&password={password}"),
        format!("redis://:{password}@127.0.0.1:1/0"),
        format!("redis+sentinel://127.0.0.1:1/main?sentinel_password={password}"),
        format!("redis+cluster://user:{password}@127.0.0.1:1"),
        format!("mysql://user:{password}@127.0.0.1:1/db"),
        format!("sqlite://user:{password}@host/x.db"),
        format!("sqlite:/nowhere/x.db?password={password}"),
        format!(":{password}@127.0.0.1"),
        format!("//user:{password}@127.0.0.1"),
    ]
}

#[test]
fn no_password_appears_in_an_answer_or_a_refusal() {
    let place = Place::new();
    for url in PASSWORDS.iter().flat_map(|password| urls(password)) {
        for args in
            [&["status", "-vvv"][..], &["doctor", "--json", "-vvv"], &["migrate", "--print"]]
        {
            assert_kept(&finish(place.command(args).env("TENURE_STORE", &url)), &[&url]);
        }
        let joined = format!("--stoer={url}");
        for args in [
            &["--store", &url, "status", "--ttl", "3s"][..],
            &[&joined, "status"],
            &[&url, "status"],
        ] {
            assert_kept(&finish(&mut place.command(args)), args);
        }
        // A URL where a name belongs; without a scheme it is a name.
        for args in [["status", &url], ["resign", &url], ["campaign", &url]] {
            if !url.starts_with([':', '/']) {
                let done = finish(&mut place.command(&args));
                assert_kept(&done, &args);
                assert!(done.code == 2 && done.err.contains("--store"), "{done:?}");
            }
        }
    }
}

#[test]
fn a_password_that_the_shell_took_apart_is_not_quoted() {
    let place = Place::new();
    for args in [
        &["--store", "postgres://user:12", "s3cret@host/db", "status"][..],
        &["--store", "postgres://user:s3cret", "s3cret", "s3cret@host/db", "status"],
        &["status", "--store", "postgres://host/db?password=s3cret", "--s3cret!"],
    ] {
        let done = finish(&mut place.command(args));
        assert_kept(&done, args);
        assert!(done.code != 0, "{done:?}");
    }
    // What can't be a part of one is told as ever.
    let done = finish(&mut place.command(&["--store", "redis://127.0.0.1:1/0", "stauts"]));
    assert!(done.err.contains("'stauts'") && done.err.contains("'status'"), "{done:?}");
}

#[test]
fn those_who_go_on_trying_keep_it_too() {
    let place = Place::new();
    for url in [
        "postgres://user:s3cret\"s3cret s3cret@127.0.0.1:1/db",
        "redis://:s3cret[s3cret]%22@127.0.0.1:1/0",
    ] {
        for args in [
            &["watch", "job", "-vvv"][..],
            &["campaign", "job", "--log-format", "json", "-vvv"],
            &["serve", "-e", "job", "--listen", "127.0.0.1:0", "-vvv"],
            &["drill", "--for", "1s", "-vvv"],
        ] {
            let mut command = place.command(args);
            let done = finish_within(HALF_A_SECOND, command.env("TENURE_STORE", url));
            assert_kept(&done, args);
        }
    }
}

#[test]
fn a_password_that_is_an_ordinary_word_changes_no_output() {
    let place = Place::new();
    let printed = |password: &str| {
        let url = format!("postgres://user:{password}@127.0.0.1:1/db");
        let done = finish(place.command(&["migrate", "--print"]).env("TENURE_STORE", url));
        assert_eq!(done.code, 0, "{done:?}");
        done.out
    };
    let plain = printed("hunter2");
    assert!(plain.contains("tenure") && !plain.contains("***"));
    for word in ["tenure", "leader_election", "SELECT"] {
        assert!(printed(word) == plain, "{word} was hidden from the SQL");
    }
    // What looks like a URL with a password, in data of the user's own.
    let metadata = r#"{"see": "https://me:mine@docs.example/a password=b"}"#;
    let script = "exec tenure_status";
    let status =
        format!("{} status job --json", place.command(&[]).get_program().to_str().unwrap());
    let script = script.replace("tenure_status", &status);
    let args = ["run", "job", "--metadata", metadata, "--", "sh", "-c", &script];
    let done = finish(&mut place.command(&args));
    assert!(done.out.contains("https://me:mine@docs.example/a password=b"), "{done:?}");
}
