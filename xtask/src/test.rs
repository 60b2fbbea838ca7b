//! `cargo xtask test`: runs the steps in order and tells how each ended.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::binaries::Binary;
use crate::cargo::{self, Package};
use crate::changed;
use crate::process::{self, Interrupted, Signals, Stopwatch};
use crate::report::{Counts, Mark, excerpt, step_line, times};
use crate::steps::{self, STEPS, Step};

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Also run the soaks at full length.
    pub(crate) long: bool,
    /// Test only the packages that differ from `main`, and those that depend on them.
    pub(crate) changed: bool,
    /// Run these steps alone; all if there are none.
    pub(crate) only: Vec<String>,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--long" => options.long = true,
                "--changed" => options.changed = true,
                "--only" => {
                    let names = args.next().context("--only needs the name of a step")?;
                    options.only.extend(names.split(',').map(str::to_owned));
                }
                _ => bail!("unknown argument `{arg}`; `cargo xtask` lists what there is"),
            }
        }
        let known = |name: &&String| STEPS.iter().any(|step| step.name == **name);
        if let Some(name) = options.only.iter().find(|name| !known(name)) {
            bail!("there is no step `{name}`; the steps are\n\n{}", steps::list());
        }
        Ok(options)
    }

    fn wants(&self, step: &Step) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == step.name)
    }
}

/// How a step ended.
pub(crate) enum Verdict {
    /// It found nothing wrong. The text, if any, goes on its line.
    Passed(String),
    /// It found something wrong, and its log tells what.
    Failed,
    /// It could not run at all. The step noted the skip itself.
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
    /// The packages of the workspace.
    pub(crate) packages: Vec<Package>,
    /// The names of those to test; all of them if nothing is said.
    selected: Option<BTreeSet<String>>,
    /// The test binaries, once they are built.
    pub(crate) binaries: OnceLock<Vec<Binary>>,
}

impl Session {
    fn new(options: &Options) -> Result<Self> {
        let packages = cargo::members()?;
        let selected = if options.changed { Some(changed::packages(&packages)?) } else { None };
        if let Some(selected) = &selected {
            let names: Vec<&str> = selected.iter().map(String::as_str).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            println!("crates that changed, and those that depend on them: {names}");
        }
        Ok(Self { long: options.long, packages, selected, ..Self::default() })
    }

    /// Whether the tests of this package are to run.
    pub(crate) fn selects(&self, package: &str) -> bool {
        self.selected.as_ref().is_none_or(|selected| selected.contains(package))
    }
}

/// A command for [`StepRun::run_all`], and the line that announces it in the log.
pub(crate) struct Job {
    pub(crate) title: String,
    pub(crate) command: Command,
}

/// One step while it runs, with its log.
pub(crate) struct StepRun<'a> {
    pub(crate) session: &'a Session,
    /// Tests that ran, and tests that a later step may run.
    pub(crate) counts: Counts,
    skips: Vec<Skip>,
    name: &'static str,
    log: File,
    log_path: PathBuf,
}

impl<'a> StepRun<'a> {
    fn begin(step: &Step, session: &'a Session) -> Result<Self> {
        let dir = cargo::scratch()?.join("logs");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let log_path = dir.join(format!("{}.log", step.name));
        File::create(&log_path).with_context(|| format!("cannot create {}", log_path.display()))?;
        // Appending keeps our own lines and those of the children in one order.
        let log = File::options().append(true).open(&log_path)?;
        let counts = Counts::default();
        Ok(Self { session, counts, skips: Vec::new(), name: step.name, log, log_path })
    }

    /// Runs cargo with its output in the log, and says whether it succeeded.
    pub(crate) fn cargo(&mut self, args: &[&str]) -> Result<bool> {
        self.run(cargo::command().args(args).env("CARGO_TERM_COLOR", "never"))
    }

    /// Runs cargo and returns what it wrote to stdout; nothing if it failed.
    pub(crate) fn cargo_answer(&mut self, args: &[&str]) -> Result<Option<String>> {
        let mut command = cargo::command();
        command.args(args).env("CARGO_TERM_COLOR", "never");
        self.write(&command_line(&command))?;
        let path = self.log_path.with_extension("answer");
        command.stdout(File::create(&path)?).stderr(self.log.try_clone()?);
        let status = process::run(&mut command, Signals::EndIt, self.heartbeat())?;
        let answer = fs::read_to_string(&path).context("cannot read the answer of cargo")?;
        fs::remove_file(&path)?;
        Ok(status.success().then_some(answer))
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
        let status = process::run_logged(command, &self.log, signals, self.heartbeat())?;
        Ok(status.success())
    }

    /// Runs all jobs to their end, some of them at once, and says whether all succeeded. Their
    /// output goes to the log in the order of the jobs.
    pub(crate) fn run_all(&mut self, jobs: Vec<Job>, at_once: usize) -> Result<bool> {
        let queue = Mutex::new(jobs.into_iter().enumerate());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || -> Result<Vec<Ended>> {
            let mut ended = Vec::new();
            while let Some((number, job)) = next() {
                ended.push(self.run_apart(number, job)?);
            }
            Ok(ended)
        };
        let workers = join_all((0..at_once).map(|_| &work)).into_iter().collect::<Result<Vec<_>>>();
        let mut ended: Vec<Ended> = workers?.into_iter().flatten().collect();
        ended.sort_by_key(|job| job.number);
        for job in &ended {
            self.write(&format!("{}: {:.1} s", job.title, job.took.as_secs_f64()))?;
            self.log.write_all(&fs::read(&job.log_path)?).context("cannot write to the log")?;
            fs::remove_file(&job.log_path)?;
        }
        Ok(ended.iter().all(|job| job.success))
    }

    /// Runs one of several jobs, with a log of its own.
    fn run_apart(&self, number: usize, mut job: Job) -> Result<Ended> {
        let log_path = self.log_path.with_extension(format!("{number}.log"));
        let log = File::create(&log_path)?;
        let watch = Stopwatch::start();
        let status = process::run_logged(&mut job.command, &log, Signals::EndIt, |_| ())?;
        let (title, success) = (job.title, status.success());
        Ok(Ended { number, title, took: watch.elapsed(), success, log_path })
    }

    /// Says once a minute that the step is alive.
    fn heartbeat(&self) -> impl FnMut(Duration) + use<> {
        let name = self.name;
        move |waited| println!("{}", step_line(Mark::Running, name, waited, "still running"))
    }

    /// Adds a line to the log.
    pub(crate) fn write(&mut self, line: &str) -> Result<()> {
        writeln!(self.log, "{line}").context("cannot write to the log")
    }

    /// Notes that something could not be checked.
    pub(crate) fn skip(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.skips.push(Skip { what: what.into(), remedy: remedy.into() });
    }

    /// All that the log holds by now.
    pub(crate) fn log_text(&self) -> Result<String> {
        let bytes = fs::read(&self.log_path).context("cannot read the log")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// How one of several jobs ended.
struct Ended {
    number: usize,
    title: String,
    took: Duration,
    success: bool,
    log_path: PathBuf,
}

/// Runs all of these at once, and returns what each returned.
fn join_all<T: Send>(work: impl Iterator<Item = impl FnOnce() -> T + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let running: Vec<_> = work.map(|one| scope.spawn(one)).collect();
        let ended = running.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|ended| ended.unwrap_or_else(|panic| panic::resume_unwind(panic))).collect()
    })
}

/// What a person would type, nearly: without the variables that are set or removed.
fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.fold("$".to_owned(), |line, word| line + " " + &word.to_string_lossy())
}

/// How a step ended, and what it found out.
struct Outcome {
    name: &'static str,
    took: Duration,
    failed: bool,
    skips: Vec<Skip>,
    counts: Counts,
}

/// Runs the steps that `options` ask for, and says whether all is well.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let watch = Stopwatch::start();
    let session = Session::new(options)?;
    let steps: Vec<&Step> = STEPS.iter().filter(|step| options.wants(step)).collect();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for group in steps.chunk_by(|a, b| a.beside && b.beside) {
        // The quick checks are told together, so that one round fixes them all.
        let failed = outcomes.iter().any(|outcome| outcome.failed);
        if failed && group.iter().any(|step| !step.quick) {
            break;
        }
        let ended = join_all(group.iter().map(|step| || run_step(step, &session)));
        outcomes.extend(ended.into_iter().collect::<Result<Vec<_>>>()?);
    }
    Ok(conclude(&outcomes, watch.elapsed(), is_ci()))
}

/// Runs one step, and tells how it ended.
fn run_step(step: &Step, session: &Session) -> Result<Outcome> {
    let mut run = StepRun::begin(step, session)?;
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
    match &verdict {
        Verdict::Passed(note) => println!("{}", step_line(Mark::Ok, step.name, took, note)),
        Verdict::Skipped => println!("{}", step_line(Mark::Skip, step.name, took, "")),
        Verdict::Failed => {
            let shown = run.log_path.strip_prefix(cargo::root()).unwrap_or(&run.log_path);
            println!(
                "{}\n\n{}\n\nthe whole log is in {}\n",
                step_line(Mark::Fail, step.name, took, ""),
                excerpt(&run.log_text()?),
                shown.display()
            );
        }
    }
    let failed = matches!(verdict, Verdict::Failed);
    Ok(Outcome { name: step.name, took, failed, skips: run.skips, counts: run.counts })
}

/// Prints the times, what was skipped, what failed and the sums, and says whether all is well.
fn conclude(outcomes: &[Outcome], total: Duration, ci: bool) -> bool {
    print!("\n{}\n", times(outcomes.iter().map(|outcome| (outcome.name, outcome.took)), total));
    let mut may_skip = true;
    for skip in outcomes.iter().flat_map(|outcome| &outcome.skips) {
        println!("skipped: {}; {}", skip.what, skip.remedy);
        may_skip = !ci;
    }
    if !may_skip {
        println!("failed: with CI=true nothing may be skipped");
    }
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| outcome.failed).map(|outcome| outcome.name).collect();
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    let counts = outcomes.iter().fold(Counts::default(), |sum, outcome| sum.and(outcome.counts));
    if counts != Counts::default() {
        println!("{}", counts.line());
    }
    failed.is_empty() && may_skip
}

/// Whether a machine and not a person reads the result.
fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(failed: bool, skips: Vec<Skip>) -> Outcome {
        let counts = Counts::default();
        Outcome { name: "fmt", took: Duration::ZERO, failed, skips, counts }
    }

    fn parse(args: &[&str]) -> Result<Options> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Options::parse(&args)
    }

    #[test]
    fn a_skip_fails_in_ci_only() {
        assert!(conclude(&[outcome(false, vec![])], Duration::ZERO, true));
        let skip = Skip { what: "a".into(), remedy: "do b".into() };
        let outcomes = [outcome(false, vec![skip]), outcome(false, vec![])];
        assert!(conclude(&outcomes, Duration::ZERO, false));
        assert!(!conclude(&outcomes, Duration::ZERO, true));
    }

    #[test]
    fn a_failed_step_fails_the_run() {
        let outcomes = [outcome(false, vec![]), outcome(true, vec![])];
        assert!(!conclude(&outcomes, Duration::ZERO, false));
    }

    #[test]
    fn logs_tell_the_command() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--locked"]).env("A", "b");
        assert_eq!(command_line(&command), "$ cargo test --locked");
    }

    #[test]
    fn options_are_read_in_any_order() {
        let options = parse(&["--only", "tests", "--long"]).unwrap();
        assert!(options.long && !options.changed);
        assert_eq!(options.only, ["tests"]);
        assert!(parse(&["--changed"]).unwrap().changed);
    }

    #[test]
    fn several_steps_can_be_asked_for() {
        let options = parse(&["--only", "postgres,redis", "--only", "fmt"]).unwrap();
        let wanted = STEPS.iter().filter(|step| options.wants(step)).map(|step| step.name);
        assert_eq!(wanted.collect::<Vec<_>>(), ["fmt", "postgres", "redis"]);
        assert!(STEPS.iter().all(|step| Options::default().wants(step)));
        assert!(parse(&["--only", "postgres,tset"]).is_err());
    }

    #[test]
    fn packages_are_selected_by_name_or_all_of_them() {
        let mut session = Session::default();
        assert!(session.selects("tenure"));
        session.selected = Some(BTreeSet::from(["tenure".to_owned()]));
        assert!(session.selects("tenure") && !session.selects("tenure-cli"));
    }

    #[test]
    fn jobs_run_at_once_and_tell_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let log_path = dir.path().join("jobs.log");
        let session = Session::default();
        let mut step = StepRun {
            session: &session,
            counts: Counts::default(),
            skips: Vec::new(),
            name: "jobs",
            log: File::options().create(true).append(true).open(&log_path).unwrap(),
            log_path,
        };
        // The first waits for what the second makes.
        let mark = dir.path().join("mark");
        let scripts = ["while [ ! -e \"$0\" ]; do :; done; echo one", "touch \"$0\"; echo two"];
        let job = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).arg(&mark);
            Job { title: script.to_owned(), command }
        };
        assert!(step.run_all(scripts.iter().map(|script| job(script)).collect(), 2).unwrap());
        let text = step.log_text().unwrap();
        let said: Vec<&str> = text.lines().filter(|line| ["one", "two"].contains(line)).collect();
        assert_eq!(said, ["one", "two"]);
        assert!(!step.run_all(vec![job("true"), job("false"), job("true")], 1).unwrap());
    }
}
