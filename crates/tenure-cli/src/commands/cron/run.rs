//! `tenure cron`: commands by a schedule, while this instance leads.

use std::cell::Cell;
use std::sync::Arc;

use serde_json::json;
use tenure::Name;
use tenure_cron::{Cron, CronEvent, Job, Outcome, show_instant};

use super::super::command_set::CommandSet;
use super::super::presence::Presence;
use super::super::{Narration, build, note_default_store, open_or_end, stop};
use super::exec::{self, ON_LOSS};
use super::options::{CommandJob, CronOptions, ELECTION, JobFile};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, boot_now, printable, show_short};
use crate::process::Signal;
use crate::signals::{Signals, Told};
use crate::store::StoreChoice;

/// Runs jobs until it is told to end.
pub(crate) async fn run(
    options: &CronOptions,
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    let mut signals = Signals::of_candidate(out)?;
    note_default_store(choice, out);
    let mut presence = Presence::new(options.observe.as_ref())?;
    let Ok(opened) = open_or_end(choice, None, &mut signals, out).await? else {
        return Ok(Exit::DONE);
    };
    let election = build(&options.candidacy, &opened)?;
    let told = (ON_LOSS, options.stop);
    let note = opened.release_note(&election, options.stop.linger)?;
    let commands = CommandSet::new(&election, told, (choice, note), out)?;
    presence.show(&election, out)?;
    let (told, name) = (out.clone(), election.name().clone());
    let cron = Cron::builder(&election)
        .jobs(jobs(&options.jobs, &commands))
        .on_event(move |event| tell(&told, &name, event))
        .build()?;
    let mut narration = Narration::new();
    narration.follow(&election, out, output::sentence);
    // As with `run`: what no waiting can fix, a wrong password for example, ends it at its start.
    let ending = Cell::new(false);
    let mut running = std::pin::pin!(async {
        election.start().await?;
        if ending.get() { Ok(()) } else { cron.run().await }
    });
    let told = tokio::select! {
        ran = running.as_mut() => Err(ran),
        signal = until_told(&mut signals, options, &cron, &commands, out) => Ok(signal),
    };
    let exit = match told {
        Err(ran) => {
            commands.all_gone().await;
            ran.map(|()| Exit::DONE).map_err(Failure::from)
        }
        Ok(signal) => {
            presence.stopping();
            ending.set(true);
            let stopping = async {
                let ((), ran) = tokio::join!(stop(&election, out), running);
                if let Err(error) = ran {
                    out.warn(&error.to_string());
                }
            };
            Ok(commands.wind_up(signal, &mut signals, stopping).await)
        }
    };
    drop(presence);
    narration.finish().await;
    exit
}

/// Waits until somebody wants us to end; reads the file again when asked to.
async fn until_told(
    signals: &mut Signals,
    options: &CronOptions,
    cron: &Cron,
    commands: &Arc<CommandSet>,
    out: &Output,
) -> Signal {
    loop {
        match (signals.next().await, &options.file) {
            (Told::End(signal), _) => return signal,
            (Told::Pass(Signal::HUP), Some(path)) => {
                let replaced = JobFile::read(path).and_then(|file| {
                    cron.replace(jobs(&file.jobs, commands))?;
                    Ok(file)
                });
                match replaced {
                    Ok(file) => {
                        let (path, count) = (path.display(), file.jobs.len());
                        out.say(&format!("read {path} again: {count} jobs"));
                        let now = commands.election.name().as_str();
                        let other = file.election.as_deref().unwrap_or(ELECTION);
                        if !options.is_named && other != now {
                            out.warn(&format!(
                                "{path} names the election {other:?} now; the jobs stay in \
                                 {now:?} until this is started anew"
                            ));
                        }
                    }
                    Err(failure) => {
                        out.error(&format!("{:#}; the jobs stay as they were", failure.error));
                    }
                }
            }
            (Told::Pass(_), _) => {}
        }
    }
}

fn jobs(all: &[CommandJob], commands: &Arc<CommandSet>) -> Vec<Job> {
    all.iter().map(|job| engine_job(job, commands)).collect()
}

fn engine_job(job: &CommandJob, commands: &Arc<CommandSet>) -> Job {
    let (commands, command) = (commands.clone(), Arc::new(job.clone()));
    let mut made = Job::new(job.name.clone(), job.schedule.clone(), move |run| {
        exec::run(commands.clone(), command.clone(), run)
    })
    .delivery(job.delivery)
    .missed(job.missed)
    .jitter(job.jitter)
    .retries(job.retries);
    if let Some(backoff) = job.backoff {
        made = made.backoff(backoff);
    }
    if let Some(overlap) = job.overlap {
        made = made.overlap(overlap);
    }
    if let Some(grace) = job.grace {
        made = made.grace(grace);
    }
    if let Some(keep) = job.keep {
        made = made.keep(keep);
    }
    made
}

/// Tells what happened to a tick: as an event, or as a sentence where people want to know.
fn tell(out: &Output, election: &Name, event: &CronEvent) {
    let tick = event.tick();
    if out.json {
        let mut fields = vec![
            ("job", json!(tick.job)),
            ("scheduled_at", json!(show_instant(tick.scheduled_unix_ms))),
        ];
        match event {
            CronEvent::Started { term, attempt, .. } => {
                fields.extend([("term", json!(term.get())), ("attempt", json!(attempt))]);
            }
            CronEvent::Ended { term, attempt, outcome, recorded, retry_in, .. } => {
                fields.extend([
                    ("term", json!(term.get())),
                    ("attempt", json!(attempt)),
                    ("outcome", json!(outcome.to_string())),
                    ("recorded", json!(recorded)),
                ]);
                let retry = retry_in.map(|wait| ("retry_in_ms", json!(wait.as_millis() as u64)));
                fields.extend(retry);
            }
            CronEvent::Skipped { count, through_unix_ms, .. } => fields.extend([
                ("count", json!(count)),
                ("through", json!(show_instant(*through_unix_ms))),
            ]),
            CronEvent::Refused { term, .. } => fields.push(("term", json!(term.get()))),
            CronEvent::Ahead { now_unix_ms, .. } => {
                fields.push(("now", json!(show_instant(*now_unix_ms))));
            }
            _ => {}
        }
        return out.object(boot_now(), event.name(), election, fields);
    }
    let which = format!("{} of {}", printable(&tick.job), show_instant(tick.scheduled_unix_ms));
    match event {
        CronEvent::Started { attempt: 1, .. } => out.say(&format!("started {which}")),
        CronEvent::Started { attempt, .. } => {
            out.say(&format!("started {which}, attempt {attempt}"));
        }
        CronEvent::Ended { outcome: Outcome::Ok, .. } => {}
        CronEvent::Ended { outcome, retry_in: Some(wait), .. } => {
            out.warn(&format!("{which}: {outcome}; it is tried again in {}", show_short(*wait)));
        }
        CronEvent::Ended { outcome, .. } => out.warn(&format!("{which}: {outcome}")),
        CronEvent::Skipped { count: 1, .. } => out.say(&format!("left out {which}")),
        CronEvent::Skipped { count, .. } => {
            out.say(&format!("left out {which} and {} after it", count - 1));
        }
        CronEvent::Ahead { .. } => out.warn(&format!(
            "{which} was claimed by a clock that was ahead; the job is not due before that. Set \
             the clocks, then run `tenure cron from-now` for this job"
        )),
        CronEvent::Unknown { .. } => out.warn(&format!(
            "{which} is open, and this instance has no such job; it is left to one that has"
        )),
        CronEvent::Abandoned { .. } => out.warn(&format!("{which} will not be run again")),
        _ => {}
    }
}
