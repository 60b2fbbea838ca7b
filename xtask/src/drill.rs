//! `cargo xtask drill`: measures how long nobody leads, on every store, and writes it down.
//!
//! Drills of the command itself, in a release build, on servers of our own. A drill in which a
//! promise was broken gives no numbers.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::{commit, machine};
use crate::cargo;
use crate::process::Group;
use crate::servers::postgres::Postgres;
use crate::servers::redis::Redis;

/// Where the numbers go, and between which lines.
const PAGE: &str = "docs/failover.md";
const BEGIN: &str = "<!-- measured: `cargo xtask drill` writes this part -->";
const END: &str = "<!-- end of what was measured -->";

/// The picture on that page, and how long a drill it shows.
const PICTURE: &str = "docs/failover.svg";
const PICTURE_FOR: &str = "60s";

/// Measures for so long on each store.
pub(crate) fn run(args: &[String]) -> Result<bool> {
    let time = match args {
        [] => "5m",
        [flag, time] if flag == "--for" => time,
        _ => bail!("`drill` takes `--for DURATION`, five minutes on each store unless given"),
    };
    let dir = cargo::root().join("target/drill");
    fs::create_dir_all(&dir)?;
    // They end with this function.
    let (postgres, redis) = (Postgres::start()?, Redis::start_restartable()?);
    let file = dir.join(format!("{}.db", std::process::id()));
    let advisory = postgres.url().replacen("postgres://", "postgres+advisory://", 1);
    let (crash, restart) = (postgres.crash_command()?, redis.restart_command()?);
    let stores = [
        ("SQLite", "sqlite", format!("sqlite:{}", file.display()), None),
        ("Postgres lease", "postgres", postgres.url(), Some(&crash)),
        ("Postgres advisory", "advisory", advisory, Some(&crash)),
        ("Redis", "redis", redis.url(), Some(&restart)),
    ];
    let mut text = String::new();
    for (title, name, url, restart) in &stores {
        println!("{title}: {time}");
        let result = drill(&dir.join(name), url, time, *restart)?;
        write_store(&mut text, title, time, &result)?;
    }
    let picture = dir.join("picture");
    drill(&picture, &postgres.url(), PICTURE_FOR, None)?;
    fs::copy(picture.join("timeline.svg"), cargo::root().join(PICTURE))?;
    let _no_longer_needed = fs::remove_file(&file);
    let page = cargo::root().join(PAGE);
    let before = fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
    fs::write(&page, replaced(&before, &text)?)?;
    println!("{PAGE} and {PICTURE} are written; the reports are in target/drill");
    Ok(true)
}

/// One drill; the object that it ended with. The store is restarted if there is a command for it.
fn drill(report: &Path, url: &str, time: &str, restart: Option<&String>) -> Result<Value> {
    fs::create_dir_all(report)?;
    let answer = report.join("result.json");
    let mut command = cargo::command();
    command.args(["run", "--release", "--locked", "--quiet", "--package", "tenure-cli", "--"]);
    command.args(["drill", "--json", "--seed", "1", "--for", time, "--report"]).arg(report);
    if let Some(restart) = restart {
        command.args(["--restart-cmd", restart]);
    }
    command.env("TENURE_STORE", url).stdout(File::create(&answer)?);
    let passed = Group::spawn(&mut command)?.wait(|_| ())?.success();
    let text = fs::read_to_string(&answer)?;
    if !passed {
        bail!("the drill did not pass: {text}");
    }
    serde_json::from_str(&text).context("the drill did not answer with an object")
}

/// What one store came to.
fn write_store(text: &mut String, title: &str, time: &str, result: &Value) -> Result<()> {
    if text.is_empty() {
        let day = cargo::text(result, "at").and_then(|at| at.get(..10)).unwrap_or("some day");
        writeln!(
            text,
            "Measured on {day} with a release build of commit {}, on\n{}.\n`cargo xtask drill` \
             measures anew and writes this part.\n",
            commit(),
            machine()
        )?;
    }
    let number = |key: &str| result.get(key).and_then(Value::as_u64).unwrap_or(0);
    let longest = result.get("overlap_max_ms").and_then(Value::as_f64);
    let overlaps = match longest {
        Some(longest) => format!("{} overlaps of at most {}", number("overlaps"), shown(longest)),
        None => format!("{} overlaps", number("overlaps")),
    };
    let lost = match number("writes_lost") {
        0 => String::new(),
        lost => format!("\n{lost} of the kept ones were lost by restarts."),
    };
    writeln!(
        text,
        "### {title}\n\n`tenure drill --for {time} --seed 1`: {} candidates, ttl {} s. {} faults, \
         {overlaps},\n{} terms that only rose, {} writes kept, {} stale ones stopped.{lost}\n\n\
         | fault | rounds | gap p50 | p99 | max |\n|---|---|---|---|---|",
        number("candidates"),
        number("ttl_ms") / 1000,
        number("rounds"),
        number("terms"),
        number("writes"),
        number("stale_writes_stopped"),
    )?;
    let faults = result.get("faults").and_then(Value::as_array).context("no faults")?;
    for fault in faults {
        let gap = |key: &str| fault.get(key).and_then(Value::as_f64).map_or("-".into(), shown);
        writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            cargo::text(fault, "fault").unwrap_or_default(),
            fault.get("rounds").and_then(Value::as_u64).unwrap_or(0),
            gap("gap_p50_ms"),
            gap("gap_p99_ms"),
            gap("gap_max_ms"),
        )?;
    }
    text.push('\n');
    Ok(())
}

/// Milliseconds with three digits or so.
fn shown(millis: f64) -> String {
    match millis {
        _ if millis < 10.0 => format!("{millis:.1} ms"),
        _ if millis < 1000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

/// The page with other numbers on it.
fn replaced(page: &str, text: &str) -> Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(head, rest)| {
        let (_, tail) = rest.split_once(END)?;
        Some((head, tail))
    });
    let (head, tail) = parts.with_context(|| format!("{PAGE} has lost the lines around them"))?;
    Ok(format!("{head}{BEGIN}\n\n{text}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_measured_part_of_the_page_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = replaced(&page, "new\n").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}\n\nnew\n{END}\nafter\n"));
        assert_eq!(replaced(&new, "new\n").unwrap(), new);
        assert!(replaced("nothing", "new").is_err());
        let real = fs::read_to_string(cargo::root().join(PAGE)).unwrap();
        assert!(replaced(&real, "new\n").is_ok());
    }

    #[test]
    fn a_store_is_a_heading_a_sentence_and_a_table() {
        let result = serde_json::json!({
            "at": "2026-11-16T01:02:03Z", "candidates": 5, "ttl_ms": 3000, "rounds": 2,
            "overlaps": 1, "overlap_max_ms": 12.3, "terms": 3, "writes": 4,
            "stale_writes_stopped": 1,
            "faults": [
                {"fault": "kill", "rounds": 1, "gap_p50_ms": 3.12, "gap_p99_ms": 45.2,
                 "gap_max_ms": 2516.0},
                {"fault": "reset", "rounds": 1, "gap_p50_ms": null},
            ],
        });
        let mut text = String::new();
        write_store(&mut text, "Redis", "5m", &result).unwrap();
        assert!(text.starts_with("Measured on 2026-11-16 with a release build of commit "));
        assert!(text.contains("1 overlaps of at most 12 ms"), "{text}");
        assert!(text.contains("| kill | 1 | 3.1 ms | 45 ms | 2.52 s |\n| reset | 1 | - | - | - |"));
    }
}
