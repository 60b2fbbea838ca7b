//! `cargo xtask test`: runs the steps in order and tells how each ended.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::process::{self, Interrupted, Signals, Stopwatch};
use crate::report::{Counts, Mark, excerpt, step_line};
use crate::steps::{self, STEPS, Step};

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Also run the soaks at full length.
    pub(crate) long: bool,
    /// Run this step alone.
    pub(crate) only: Option<String>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--long" => options.long = true,
                "--only" => {
                    let name = args.next().context("--only needs the name of a step")?;
                    if !STEPS.iter().any(|step| step.name == name) {
                        bail!("there is no step `{name}`; the steps are\n\n{}", steps::list());
                    }
                    options.only = Some(name.clone());
                }
                _ => bail!("unknown argument `{arg}`; `cargo xtask` lists what there is"),
            }
        }
        Ok(options)
    }
}

/// How a step ended.
pub(crate) enum Verdict {
    /// It found nothing wrong. The text, if any, goes on its line.
    Passed(String),
    /// It found something wrong, and its log tells what.
    Failed,
    /// It could not run at all. The skip itself was recorded in the session.
    Skipped,
}

impl Verdict {
    pub(crate) fn of(success: bool) -> Self {
        if success { Self::Passed(String::new()) } else { Self::Failed }
    }
}

/// Something that was not checked, and how to have it checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

/// What the steps of one run share.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) long: bool,
    pub(crate) skips: Vec<Skip>,
    pub(crate) counts: Option<Counts>,
}

/// One step while it runs, with its log.
pub(crate) struct StepRun<'a> {
    pub(crate) session: &'a mut Session,
    name: &'static str,
    log: File,
    log_path: PathBuf,
}

impl StepRun<'_> {
    /// Runs cargo with its output in the log, and says whether it succeeded.
    pub(crate) fn cargo(&mut self, args: &[&str]) -> Result<bool> {
        self.run(cargo::command().args(args).env("CARGO_TERM_COLOR", "never"))
    }

    /// Runs `command` with its output in the log, and says whether it succeeded.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result<bool> {
        self.run_with(Signals::EndIt, command)
    }

    /// Like `run`, but a signal takes effect only when the command has ended.
    pub(crate) fn run_through_signals(&mut self, command: &mut Command) -> Result<bool> {
        self.run_with(Signals::Wait, command)
    }

    fn run_with(&mut self, signals: Signals, command: &mut Command) -> Result<bool> {
        self.write(&command_line(command))?;
        let name = self.name;
        let status = process::run_logged(command, &self.log, signals, |waited| {
            println!("{}", step_line(Mark::Running, name, waited, "still running"));
        })?;
        Ok(status.success())
    }

    /// Adds a line to the log.
    pub(crate) fn write(&mut self, line: &str) -> Result<()> {
        writeln!(self.log, "{line}").context("cannot write to the log")
    }

    /// Notes that something could not be checked.
    pub(crate) fn skip(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.session.skips.push(Skip { what: what.into(), remedy: remedy.into() });
    }

    /// All that the log holds by now.
    pub(crate) fn log_text(&self) -> Result<String> {
        let bytes = fs::read(&self.log_path).context("cannot read the log")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// What a person would type, nearly: without the variables that are set or removed.
fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.fold("$".to_owned(), |line, word| line + " " + &word.to_string_lossy())
}

/// Runs the steps that `options` ask for, and says whether all is well.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut session = Session { long: options.long, ..Session::default() };
    let mut failed: Vec<&str> = Vec::new();
    for step in STEPS {
        if options.only.as_ref().is_some_and(|only| only != step.name) {
            continue;
        }
        // The quick checks are told together, so that one round mends them all.
        if !failed.is_empty() && !step.quick {
            break;
        }
        if !run_step(step, &mut session)? {
            failed.push(step.name);
        }
    }
    Ok(conclude(&session, &failed, is_ci()))
}

/// Runs one step, tells how it ended, and says whether the run may go on.
fn run_step(step: &Step, session: &mut Session) -> Result<bool> {
    let dir = cargo::scratch()?.join("logs");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let log_path = dir.join(format!("{}.log", step.name));
    File::create(&log_path).with_context(|| format!("cannot create {}", log_path.display()))?;
    // Appending keeps our own lines and those of the children in one order.
    let log = File::options().append(true).open(&log_path)?;
    let mut run = StepRun { session, name: step.name, log, log_path };

    let watch = Stopwatch::start();
    let verdict = match (step.run)(&mut run) {
        Ok(verdict) => verdict,
        Err(error) if error.is::<Interrupted>() => return Err(error),
        Err(error) => {
            run.write(&format!("error: {error:#}"))?;
            Verdict::Failed
        }
    };
    let took = watch.elapsed();
    match verdict {
        Verdict::Passed(note) => println!("{}", step_line(Mark::Ok, step.name, took, &note)),
        Verdict::Skipped => println!("{}", step_line(Mark::Skip, step.name, took, "")),
        Verdict::Failed => {
            println!("{}", step_line(Mark::Fail, step.name, took, ""));
            println!("\n{}\n", excerpt(&run.log_text()?));
            let shown = run.log_path.strip_prefix(cargo::root()).unwrap_or(&run.log_path);
            println!("the whole log is in {}\n", shown.display());
            return Ok(false);
        }
    }
    Ok(true)
}

/// Prints what was skipped, what failed and the sums, and says whether all is well.
fn conclude(session: &Session, failed: &[&str], ci: bool) -> bool {
    for skip in &session.skips {
        println!("skipped: {}; {}", skip.what, skip.remedy);
    }
    let skip_fails = ci && !session.skips.is_empty();
    if skip_fails {
        println!("failed: with CI=true nothing may be skipped");
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    if let Some(counts) = session.counts {
        println!("{}", counts.line());
    }
    failed.is_empty() && !skip_fails
}

/// Whether a machine and not a person reads the result.
fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_fails_in_ci_only() {
        let mut session = Session::default();
        assert!(conclude(&session, &[], true));
        session.skips.push(Skip { what: "a".into(), remedy: "do b".into() });
        assert!(conclude(&session, &[], false));
        assert!(!conclude(&session, &[], true));
    }

    #[test]
    fn a_failed_step_fails_the_run() {
        assert!(!conclude(&Session::default(), &["fmt"], false));
    }

    #[test]
    fn logs_tell_the_command() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--locked"]).env("A", "b");
        assert_eq!(command_line(&command), "$ cargo test --locked");
    }

    #[test]
    fn options_are_read_in_any_order() {
        let args = ["--only", "tests", "--long"].map(str::to_owned);
        let options = Options::parse(&args).unwrap();
        assert!(options.long);
        assert_eq!(options.only.as_deref(), Some("tests"));
    }
}
