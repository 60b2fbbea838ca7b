//! Inputs, actions and ops in a few words, for transcripts that people read.

use tenure_core::{Action, Input, Lease, Op, Outcome, Sight, Time};

/// An input in a few words.
pub fn show_input(input: &Input) -> String {
    match input {
        Input::Reply { sent_at, outcome } => {
            format!("reply[{}] {}", show_time(*sent_at), show_outcome(outcome))
        }
        other => format!("{other:?}").to_lowercase(),
    }
}

/// An action in a few words.
pub fn show_action(action: &Action) -> String {
    match action {
        Action::Send(op) => format!("send {}", show_op(op)),
        Action::Lead { term, step_down_at, until } => {
            format!(
                "LEAD {term} step-down {} until {}",
                show_time(*step_down_at),
                show_time(*until)
            )
        }
        Action::Extend { term, until, .. } => format!("extend {term} until {}", show_time(*until)),
        Action::StepDown { term, reason, until } => {
            format!("STEP DOWN {term} {} until {}", reason.as_str(), show_time(*until))
        }
        Action::Abort { term } => format!("abort {term}"),
        Action::Vacated { term, released } => match term {
            Some(term) => format!("vacated {term} released={released}"),
            None => format!("vacated released={released}"),
        },
        Action::Observed(lease) => format!("observed {}", show_lease(lease.as_ref())),
        Action::Report(report) => format!("report {report:?}"),
        Action::Wake { from, to, .. } if from == to => format!("wake {}", show_time(*from)),
        Action::Wake { from, to, .. } => {
            format!("wake {}..{}", show_time(*from), show_time(*to))
        }
        Action::Sleep => "sleep".into(),
    }
}

/// An op in a few words.
pub fn show_op(op: &Op) -> String {
    match op {
        Op::Acquire { seq, above, floor, .. } => {
            let above = above.map(|above| format!(" above={above}")).unwrap_or_default();
            let floor = floor.map(|floor| format!(" floor={floor}")).unwrap_or_default();
            format!("acquire #{seq}{above}{floor}")
        }
        Op::Renew { term, .. } => format!("renew {term}"),
        Op::Release { term: Some(term), seq, .. } => format!("release {term} #{seq}"),
        Op::Release { term: None, seq, .. } => format!("release any #{seq}"),
        Op::Read { .. } => "read".into(),
        Op::Ask { term: Some(term), .. } => format!("ask {term}"),
        Op::Ask { term: None, .. } => "ask any".into(),
    }
}

/// An outcome in a few words.
pub fn show_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Granted(grant) => {
            let asked = if grant.asked { " asked" } else { "" };
            let expired = if grant.expired.is_some() { " expired" } else { "" };
            format!("granted {}{asked}{expired}", grant.term)
        }
        Outcome::Refused(sight) => format!("refused: {}", show_sight(sight)),
        Outcome::Seen(sight) => format!("seen: {}", show_sight(sight)),
        Outcome::Unknown => "unknown".into(),
    }
}

fn show_sight(sight: &Sight) -> String {
    show_lease(sight.lease.as_ref())
}

fn show_lease(lease: Option<&Lease>) -> String {
    match lease {
        Some(lease) => {
            let term = lease.term.map(|term| format!(" {term}")).unwrap_or_default();
            let left_ms = lease.remaining.as_micros() as f64 / 1_000.0;
            format!("{}{term} for {left_ms:.1}ms", lease.holder.label())
        }
        None => "nobody".into(),
    }
}

/// An instant, in seconds of its clock.
pub fn show_time(time: Time) -> String {
    let micros = time.as_nanos() / 1_000;
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
