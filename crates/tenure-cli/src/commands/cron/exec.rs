//! One run of a job's command.

use std::sync::Arc;

use tenure_cron::{Outcome, Run};

use super::super::command_set::{CommandSet, CommandSpec, NotRun};
use super::options::CommandJob;
use crate::process::{End, OnLoss};

/// What a command is told when leadership is lost: that its tick is not done is recorded, and the
/// next leader decides about it.
pub(super) const ON_LOSS: OnLoss = OnLoss::Signal;

/// Runs the command for one tick.
pub(super) async fn run(commands: Arc<CommandSet>, job: Arc<CommandJob>, run: Run) -> Outcome {
    let command = CommandSpec {
        label: run.job().to_owned(),
        argv: job.command.clone(),
        envs: vec![
            ("TENURE_JOB", run.job().to_owned()),
            ("TENURE_ATTEMPT", run.attempt().to_string()),
            ("TENURE_SCHEDULED_AT", run.scheduled_at()),
        ],
        stdin: None,
        timeout: job.timeout,
    };
    match commands.run(run.clone(), command).await {
        Ok(end) => outcome(end),
        Err(NotRun::Cannot(cannot)) => {
            Outcome::Failed { code: i32::from(cannot.code()), reason: cannot.to_string() }
        }
        Err(NotRun::Lost) => not_begun(run.tenure().is_leader()),
    }
}

/// How a run ends that never began. Without leadership it did not fail: the next leader decides
/// about the tick.
fn not_begun(leads: bool) -> Outcome {
    if !leads {
        return Outcome::Lost;
    }
    Outcome::Failed { code: 125, reason: "the guardian is gone".to_owned() }
}

fn outcome(end: End) -> Outcome {
    match end {
        End::Gone { timed_out: true, .. } => Outcome::TimedOut,
        End::Gone { code: 0, .. } => Outcome::Ok,
        End::Gone { lost: None, code, .. } => Outcome::Failed { code, reason: String::new() },
        End::Gone { .. } | End::Stuck => Outcome::Lost,
    }
}

#[cfg(test)]
mod tests {
    use tenure::Reason;

    use super::*;

    #[test]
    fn a_run_that_never_began_has_failed_only_under_a_leader() {
        let failed = Outcome::Failed { code: 125, reason: "the guardian is gone".to_owned() };
        assert_eq!(not_begun(true), failed);
        assert_eq!(not_begun(false), Outcome::Lost);
    }

    #[test]
    fn a_run_failed_by_its_own_code_only() {
        let gone = |code, lost, timed_out| outcome(End::Gone { code, lost, timed_out });
        assert_eq!(gone(0, Some(Reason::Resigned), false), Outcome::Ok);
        assert_eq!(gone(7, None, false), Outcome::Failed { code: 7, reason: String::new() });
        assert_eq!(gone(143, Some(Reason::Resigned), false), Outcome::Lost);
        assert_eq!(gone(0, None, true), Outcome::TimedOut);
        assert_eq!(outcome(End::Stuck), Outcome::Lost);
    }
}
