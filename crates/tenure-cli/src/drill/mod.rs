//! `tenure drill`: the drills of `tenure-drill`, whose candidates are this very binary.

pub(crate) mod candidate;
mod host;
mod options;
#[cfg(feature = "sabotage")]
mod sabotage;

use tenure_drill::report::{self, Report};
use tenure_drill::{Drill, Outcome, Target};

use self::host::CommandHost;
pub(crate) use self::options::{DrillOptions, fault_values};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::registry::registry;
use crate::signals::Signals;
use crate::store::StoreChoice;

/// Runs a drill and tells what came out.
pub(crate) async fn run(
    options: &DrillOptions,
    store: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let host = CommandHost::new(out);
    let target = Target { url: store.url.clone(), address: store.address() };
    let drill = Drill::new(&host, &registry().grounds, target, options.drill.clone())?;
    if let Some(dir) = &options.report {
        // Not after an hour of work.
        report::prepare(dir)?;
    }
    let Outcome { report, signal, broken, is_clean } = drill.run(&mut signals).await?;
    let exit = match report {
        Some(report) => {
            tell(&report, out);
            let written = write(&report, options, out);
            if let Some(error) = broken {
                return Err(error.into());
            }
            written?;
            conclude(&report, signal, out)
        }
        None if !is_clean => Exit::FAILED,
        None => signal.map_or(Exit::DONE, Exit::by_signal_number),
    };
    Ok(if exit == Exit::DONE && !is_clean { Exit::FAILED } else { exit })
}

/// Tells what was seen, whatever ended it.
fn tell(report: &Report, out: &Output) {
    if out.json {
        let record = &report.record;
        out.object(record.ended, "drill", &record.election, report.fields());
    } else {
        let lines = [report.table(), report.complaints(), vec![report.verdict()]];
        lines.iter().flatten().for_each(|line| out.data(line));
    }
}

/// Writes down what was told.
fn write(report: &Report, options: &DrillOptions, out: &Output) -> Result<(), Failure> {
    let Some(dir) = &options.report else { return Ok(()) };
    report.write(dir)?;
    out.say(&format!("the report is in {}", dir.join("report.html").display()));
    Ok(())
}

fn conclude(report: &Report, signal: Option<i32>, out: &Output) -> Exit {
    match signal {
        _ if !report.judgement.is_sound() => Exit::NEGATIVE,
        Some(signal) => {
            out.warn("the drill was ended before its time; this is what it had seen");
            Exit::by_signal_number(signal)
        }
        None => Exit::DONE,
    }
}

/// What the fuzz targets may reach.
#[cfg(test)]
pub(crate) mod fuzz {
    use tenure_drill::fleet::CandidateEvent;

    pub(crate) fn read_line(line: &str) {
        if let Some(told) = CandidateEvent::read(0, 0, line) {
            assert_eq!(told.line, line);
        }
    }
}
