//! What `serve` takes, and what comes of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tenure::Name;
use tenure_core::parse_duration;
use tenure_http::{Listen, Token};

use crate::args::CandidateArgs;
use crate::exit::Failure;
use crate::options::{Candidacy, names};

/// Take part in elections and answer over HTTP who leads
///
/// Programs in any language ask /leader, load balancers probe it, Prometheus scrapes /metrics, and
/// people look at the page. It listens on this machine only, unless told otherwise. Calls that
/// change something need a token, except over a unix socket, which only its owner can open.
///
/// A 200 of /leader may be relied on for the drain, counted from before it was asked for. So after
/// a 200 the lease is kept for the drain when leadership is given up, unless the client says
/// that it is done: POST /elections/NAME/done.
///
/// It answers from its start on, also if the store is away then.
///
/// TERM or Ctrl-C: /leader answers 503, then leadership is given up, then it ends. HUP reads the
/// token file again. Under systemd it tells when it is ready and that it is alive, and takes the
/// sockets that systemd opened.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// An election to take part in; may be given several times
    #[arg(long = "election", short = 'e', value_name = "NAME")]
    elections: Vec<String>,

    /// An election to watch without taking part [default without --election: all that the store
    /// knows, also those that begin later]
    #[arg(long = "observe", value_name = "NAME")]
    observed: Vec<String>,

    /// Where to listen: an address with a port, or unix:/path; may be given several times
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TENURE_LISTEN",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "127.0.0.1:7070"
    )]
    listen: Vec<String>,

    /// A file with the token, which not everybody may read [default: the variable TENURE_TOKEN]
    #[arg(long, value_name = "FILE", env = "TENURE_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,

    /// Listen on an address that others can reach without asking for a token to read
    #[arg(long)]
    insecure: bool,

    /// A name by which this service is reached; addresses and localhost always work
    #[arg(long = "allow-host", value_name = "NAME")]
    hosts: Vec<String>,

    /// Give the lease back at once when told to end: for those who have stopped their work by then
    #[arg(long)]
    at_once: bool,

    /// How long to answer 503 before giving leadership up; the drain comes after it
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    grace: String,

    /// Count each election by a label of its own, for those who have few
    #[arg(long)]
    metrics_per_election: bool,

    #[command(flatten)]
    candidate: CandidateArgs,
}

const EXAMPLES: &str = "\
Examples:
  tenure serve --election reports
  tenure serve -e reports -e queue --listen 127.0.0.1:7070 --listen unix:/run/tenure.sock
  TENURE_TOKEN=... tenure serve -e api --listen 0.0.0.0:7070 --metadata '{\"url\": \"http://...\"}'
  curl -f http://127.0.0.1:7070/leader && echo this instance leads";

/// What `serve` is to do.
pub(crate) struct ServeOptions {
    pub(crate) elections: Vec<Name>,
    pub(crate) observed: Vec<Name>,
    /// Its name means nothing.
    pub(crate) candidacy: Candidacy,
    pub(crate) listen: Vec<Listen>,
    pub(crate) token: Option<Token>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) hosts: Vec<String>,
    pub(crate) grace: Duration,
    pub(crate) metrics_per_election: bool,
}

impl TryFrom<ServeArgs> for ServeOptions {
    type Error = Failure;

    fn try_from(args: ServeArgs) -> Result<ServeOptions, Failure> {
        let elections = names(&args.elections)?;
        let mut observed = names(&args.observed)?;
        observed.retain(|name| !elections.contains(name));
        for name in elections.iter().chain(&observed) {
            check_reachable(name)?;
        }
        let candidacy = Candidacy::new("any", args.candidate)?;
        let candidacy = Candidacy { at_once: args.at_once, ..candidacy };
        let grace =
            parse_duration(&args.grace).map_err(|error| Failure::from(error).about("--grace"))?;
        let token = match &args.token_file {
            Some(path) => Some(Token::from_file(path)?),
            None => token_from_environment()?,
        };
        let mut listen = Vec::with_capacity(args.listen.len());
        for address in &args.listen {
            listen.push(
                address
                    .parse::<Listen>()
                    .map_err(|error| Failure::from(error).about("--listen"))?,
            );
        }
        let options = ServeOptions {
            elections,
            observed,
            candidacy,
            listen,
            token,
            token_file: args.token_file,
            insecure: args.insecure,
            hosts: args.hosts,
            grace,
            metrics_per_election: args.metrics_per_election,
        };
        for at in &options.listen {
            options.check_reach(at)?;
        }
        Ok(options)
    }
}

impl ServeOptions {
    /// Whether everything that the store knows of is to be watched.
    pub(crate) fn discovers(&self) -> bool {
        self.elections.is_empty() && self.observed.is_empty()
    }

    /// An address that others can reach needs a token, or somebody who says that it does not.
    pub(crate) fn check_reach(&self, at: &Listen) -> Result<(), Failure> {
        if at.is_private() || self.token.is_some() || self.insecure {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{at} can be reached by others; give it a token by --token-file or TENURE_TOKEN, or \
             say --insecure"
        )))
    }

    /// Whether reading needs the token.
    pub(crate) fn guards_reading(&self, listening: &[&Listen]) -> bool {
        self.token.is_some() && !self.insecure && listening.iter().any(|at| !at.is_private())
    }
}

/// Clients and proxies take these for steps in a path, percent-encoded or not, so nobody could ask
/// for them.
pub(crate) fn check_reachable(name: &Name) -> Result<(), Failure> {
    if [".", ".."].contains(&name.as_str()) {
        return Err(Failure::usage(format!(
            "the election {:?} can't be asked for over HTTP; give it another name",
            name.as_str()
        )));
    }
    Ok(())
}

/// Never from the arguments: everybody on the machine can read those.
pub(crate) fn token_from_environment() -> Result<Option<Token>, Failure> {
    match std::env::var("TENURE_TOKEN") {
        Ok(secret) if !secret.is_empty() => {
            Ok(Some(Token::new(&secret).map_err(|e| Failure::from(e).about("TENURE_TOKEN"))?))
        }
        _ => Ok(None),
    }
}
