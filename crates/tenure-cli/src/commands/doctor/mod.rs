//! `tenure doctor`: what the store promises, how quick it is, and what is wrong with the set-up.

mod finding;
mod grace;
mod timing;

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tenure::{Error, Name, StoreInfo};
use tenure_core::{CheckupReport as Report, Expiry, Finding, Level, parse_duration, show_duration};

use self::timing::RoundTrips;
use super::in_time;
use crate::exit::{Exit, Failure};
use crate::output::{Fields, Output, printable};
use crate::store::StoreChoice;

/// Tell what the store promises, and what is wrong with the set-up before it hurts
///
/// Asks the store, and changes nothing in it. Prints what it promises and what it does not, how
/// long a round trip takes against the ttl, and findings: what, why it matters, what to do. Exit
/// code 1 if one of them endangers safety.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The ttl that leases here are going to have
    #[arg(
        long,
        value_name = "DURATION",
        env = "TENURE_TTL",
        hide_env_values = true,
        default_value = "30s"
    )]
    ttl: String,

    /// The drain that leases here are going to have [default: ttl/6]
    #[arg(long, value_name = "DURATION", env = "TENURE_DRAIN", hide_env_values = true)]
    drain: Option<String>,

    /// How many round trips are measured
    #[arg(long, value_name = "N", default_value_t = 100)]
    samples: usize,
}

const EXAMPLES: &str = "\
Examples:
  tenure doctor
  tenure doctor --store redis://127.0.0.1/0 --ttl 3s
  tenure doctor --json | jq '.findings[] | select(.level == \"safety\")'";

/// What `doctor` is to do.
pub(crate) struct DoctorOptions {
    ttl: Duration,
    drain: Duration,
    samples: usize,
}

impl TryFrom<DoctorArgs> for DoctorOptions {
    type Error = Failure;

    fn try_from(args: DoctorArgs) -> Result<DoctorOptions, Failure> {
        let ttl = parse_duration(&args.ttl).map_err(|e| Failure::from(e).about("--ttl"))?;
        let mut timing = tenure::Timing::new(ttl);
        if let Some(drain) = &args.drain {
            timing.drain = parse_duration(drain).map_err(|e| Failure::from(e).about("--drain"))?;
        }
        timing.check()?;
        if args.samples == 0 || args.samples > 100_000 {
            return Err(Failure::usage("--samples must be a number from 1 to 100000"));
        }
        Ok(DoctorOptions { ttl, drain: timing.drain, samples: args.samples })
    }
}

/// What the object of `--json` is called.
const EVENT: &str = "doctor";

/// Looks, and tells.
pub(crate) async fn run(
    options: &DoctorOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    if choice.is_missing() {
        return Ok(missing(choice, out));
    }
    let opened = match choice.open() {
        Ok(opened) => opened,
        Err(error) => return Ok(unusable(choice, &error, out)),
    };
    let info = opened.store.info();
    // First of all, because it says in one sentence what keeps everything else from working.
    let mut report = match opened.store.checkup() {
        Some(checkup) => in_time(checkup.examine(options.ttl)).await?,
        None => Report::new(),
    };
    let name = Name::new("tenure:doctor")?;
    let trips = RoundTrips::measure(&*opened.store, &name, options.samples).await;
    match &trips {
        Ok(trips) => trips.judge(options.ttl, &info, &mut report),
        // The checkup may have said it already.
        Err(error) if report.findings.iter().any(|known| known.what.contains(error.message())) => {}
        Err(error) => report.find(Finding::unusable("the store", error)),
    }
    judge_info(&info, &mut report);
    grace::judge(options.drain, &mut report);
    report.findings.sort_by_key(|finding| finding.level);
    tell(options, &info, trips.as_ref().ok(), &report, out);
    let endangered = report.findings.iter().any(|finding| finding.level == Level::Safety);
    Ok(if endangered { Exit::NEGATIVE } else { Exit::DONE })
}

/// A store that nobody has used has nothing to examine, and is not created for being asked.
fn missing(choice: &StoreChoice, out: &Output) -> Exit {
    let url = choice.address();
    let sentence = "there is no such file yet; the first one to take part creates it";
    if out.json {
        let (exists, findings) = (("exists", json!(false)), ("findings", json!([])));
        out.general_object(EVENT, vec![("store", json!(url)), exists, findings]);
    } else {
        out.data(&format!("{url}: {sentence}"));
    }
    Exit::DONE
}

/// A store that can't even be opened, on a file system that several hosts may share for example.
fn unusable(choice: &StoreChoice, error: &Error, out: &Output) -> Exit {
    let url = choice.address();
    let finding = Finding::unusable("the store", error);
    if out.json {
        let findings = json!([finding::json(&finding)]);
        let (exists, findings) = (("exists", json!(true)), ("findings", findings));
        out.general_object(EVENT, vec![("store", json!(url)), exists, findings]);
    } else {
        let mut lines = vec![url, "1 finding".to_owned()];
        lines.extend(finding::lines(&finding));
        let lines: Vec<String> = lines.iter().map(|line| printable(line)).collect();
        out.data(&lines.join("\n"));
    }
    Exit::NEGATIVE
}

fn judge_info(info: &StoreInfo, report: &mut Report) {
    if !info.durable_terms {
        report.find(
            Finding::new(Level::Advice, "terms may not survive a crash of the store")
                .because("a term that is issued twice lets a stale write pass the fence")
                .so("use a store whose terms are durable, or read above how this one keeps them"),
        );
    }
    if info.fencing.is_none() {
        report.find(
            Finding::new(Level::Advice, "this store has no fence of its own")
                .because("no lease can stop a paused process from acting late; a fence can")
                .so("keep a high-water mark of the term beside your data and refuse lower ones"),
        );
    }
}

fn tell(
    options: &DoctorOptions,
    info: &StoreInfo,
    trips: Option<&RoundTrips>,
    report: &Report,
    out: &Output,
) {
    if out.json {
        out.general_object(EVENT, fields(options, info, trips, report));
        return;
    }
    let mut lines = vec![format!("{} at {}", info.kind, info.address)];
    let mut put = |name: &str, value: String| lines.push(format!("  {name:<18} {value}"));
    for (name, value) in &report.facts {
        put(name, value.clone());
    }
    put("expiry", expiry(info.expiry).to_owned());
    put("durable terms", yes(info.durable_terms));
    put("survives restart", yes(info.survives_restart));
    put("sees death", yes(info.sees_death));
    put("witness", yes(info.witness));
    put("hints", yes(info.hints));
    put("batch limit", info.batch_limit.to_string());
    put("shortest ttl", show_duration(info.min_ttl));
    put("fence", info.fencing.unwrap_or("none").to_owned());
    put("messages", yes(info.channels));
    put("cron ledger", yes(info.ledger));
    if let Some(trips) = trips {
        put("round trip", trips.line(options.ttl));
    }
    if !info.residual.is_empty() {
        lines.push("not promised".to_owned());
        lines.extend(info.residual.iter().map(|sentence| format!("  - {sentence}")));
    }
    lines.push(match report.findings.len() {
        0 => "no findings".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    });
    lines.extend(report.findings.iter().flat_map(finding::lines));
    let lines: Vec<String> = lines.iter().map(|line| printable(line)).collect();
    out.data(&lines.join("\n"));
}

fn fields(
    options: &DoctorOptions,
    info: &StoreInfo,
    trips: Option<&RoundTrips>,
    report: &Report,
) -> Fields {
    let facts: serde_json::Map<String, Value> =
        report.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let guarantees = json!({
        "expiry": expiry(info.expiry),
        "durable_terms": info.durable_terms,
        "survives_restart": info.survives_restart,
        "sees_death": info.sees_death,
        "witness": info.witness,
        "hints": info.hints,
        "batch_limit": info.batch_limit,
        "min_ttl_ms": millis(info.min_ttl),
        "fencing": info.fencing,
        "channels": info.channels,
        "ledger": info.ledger,
        "residual": info.residual,
    });
    vec![
        ("store", json!(info.address)),
        ("kind", json!(info.kind)),
        ("exists", json!(true)),
        ("ttl_ms", json!(millis(options.ttl))),
        ("drain_ms", json!(millis(options.drain))),
        ("guarantees", guarantees),
        ("facts", json!(facts)),
        ("round_trip", json!(trips.map(RoundTrips::json))),
        ("findings", report.findings.iter().map(finding::json).collect()),
    ]
}

fn expiry(expiry: Expiry) -> &'static str {
    match expiry {
        Expiry::HostClock => "by the clock of the host, which never steps",
        Expiry::StoreClock => "by the wall clock of the server, which can step",
        Expiry::Connection => "with the connection",
        _ => "in a way that this version does not know",
    }
}

fn yes(is: bool) -> String {
    (if is { "yes" } else { "no" }).to_owned()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
