//! What those commands take that run a program of the user's while they lead.

use clap::Args;
use tenure_core::{Error, parse_duration};
use tenure_http::{Listen, Token};

use crate::commands::serve::token_from_environment;
use crate::exit::Failure;
use crate::process::{Signal, StopBy};

/// Signals that may ask a program to end.
const SIGNALS: [(&str, Signal); 9] = [
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("HUP", Signal::HUP),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ABRT", Signal::ABORT),
    ("ALRM", Signal::ALARM),
    ("WINCH", Signal::WINCH),
];

/// How long to wait while another instance leads.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Do not wait while another instance leads: exit with 75
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Wait this long while another instance leads, then exit with 75 [default: as long as it
    /// takes]
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<String>,
}

/// How the command is told to end.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The signal that asks the command to end, as INT [default: the one that tenure got, or TERM]
    #[arg(long, value_name = "SIGNAL", env = "TENURE_STOP_SIGNAL", hide_env_values = true)]
    stop_signal: Option<String>,

    /// Ask its main process alone to end, and not all that it has started; KILL is for all
    #[arg(long)]
    stop_main_only: bool,

    /// If tenure is killed: how long to keep the lease after the command is dead
    ///
    /// A killed tenure is succeeded as soon as nothing of its command is left. What the command had
    /// sent to a server by then is still carried out there. A fence stops that for certain; where
    /// there is none, a linger gives it time.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        env = "TENURE_LINGER",
        hide_env_values = true
    )]
    linger: String,
}

/// Where a candidate can be watched.
#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    /// Serve /metrics, /healthz and /readyz there: an address with a port, or unix:/path
    ///
    /// An address that others can reach needs a token in TENURE_TOKEN, as `tenure serve` does.
    #[arg(long, value_name = "ADDRESS", env = "TENURE_OBSERVE", hide_env_values = true)]
    observe: Option<String>,
}

/// Where to serve, and to whom.
#[derive(Clone, Debug)]
pub(crate) struct Observe {
    pub(crate) listen: Listen,
    pub(crate) token: Option<Token>,
}

impl TryFrom<&StopArgs> for StopBy {
    type Error = Failure;

    fn try_from(args: &StopArgs) -> Result<StopBy, Failure> {
        let signal = args.stop_signal.as_deref().map(signal).transpose()?;
        let about = |error: Error| Failure::from(error).about("--linger");
        let linger = parse_duration(&args.linger).map_err(about)?;
        Ok(StopBy { signal, main_only: args.stop_main_only, linger })
    }
}

/// A signal by its name, with or without SIG.
fn signal(name: &str) -> Result<Signal, Failure> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = SIGNALS.iter().find(|(known, _)| *known == short);
    found.map(|(_, signal)| *signal).ok_or_else(|| {
        let known: Vec<&str> = SIGNALS.iter().map(|(known, _)| *known).collect();
        Failure::usage(format!("--stop-signal: {name:?} is none of {}", known.join(", ")))
    })
}

impl ObserveArgs {
    /// What was asked for, if anything.
    pub(crate) fn checked(&self) -> Result<Option<Observe>, Failure> {
        let Some(address) = &self.observe else { return Ok(None) };
        let about = |error| Failure::from(error).about("--observe");
        let listen: Listen = address.parse().map_err(about)?;
        let token = token_from_environment()?;
        if !listen.is_private() && token.is_none() {
            return Err(Failure::usage(format!(
                "--observe: {listen} can be reached by others; set TENURE_TOKEN, or use an address \
                 of this machine alone"
            )));
        }
        Ok(Some(Observe { listen, token }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_and_kill_is_none_of_them() {
        assert_eq!(signal("sigint").expect("a signal"), Signal::INT);
        assert_eq!(signal("TERM").expect("a signal"), Signal::TERM);
        for name in ["KILL", "STOP", "9", ""] {
            assert!(signal(name).is_err(), "{name}");
        }
    }
}
