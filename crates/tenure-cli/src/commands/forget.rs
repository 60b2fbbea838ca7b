//! `tenure forget`: takes an election that nobody needs any more out of the lists.

use clap::Args;
use serde_json::json;
use tenure::Name;
use tenure_core::{Error, ErrorKind, Forgotten};

use super::in_time;
use crate::exit::{Exit, Failure};
use crate::output::{Output, boot_now};
use crate::store::StoreChoice;

/// Forget elections that nobody needs any more
///
/// They are not listed any more, and messages that wait for their leaders are gone. The last term
/// stays: if such a name is used again, its terms go on, so that no fence takes an old term for a
/// new one. The history of cron and the keys of `once` stay, too. An election that somebody leads
/// is left alone. Exit code 1 if one was, or was not known.
#[derive(Debug, Args)]
#[command(after_help = FORGET_EXAMPLES)]
pub(crate) struct ForgetArgs {
    /// The elections
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

const FORGET_EXAMPLES: &str = "\
Examples:
  tenure forget preview-1234
  tenure forget preview-1234 preview-1235 --json";

/// Forgets one after the other, and says what came of each.
pub(crate) async fn run(
    names: &[Name],
    choice: &StoreChoice,
    out: &Output,
) -> Result<Exit, Failure> {
    if choice.is_missing() {
        names.iter().for_each(|name| say(name, Forgotten::NotKnown, out));
        return Ok(Exit::NEGATIVE);
    }
    let opened = choice.open()?;
    let Some(elections) = opened.store.elections() else {
        let message = "this store keeps no list of elections, so there is nothing to forget";
        return Err(Error::new(ErrorKind::Unsupported, message).into());
    };
    let mut all = true;
    for name in names {
        let forgotten = in_time(elections.forget(name)).await??;
        all &= forgotten == Forgotten::Done;
        say(name, forgotten, out);
    }
    Ok(if all { Exit::DONE } else { Exit::NEGATIVE })
}

fn say(name: &Name, forgotten: Forgotten, out: &Output) {
    let (outcome, sentence) = match forgotten {
        Forgotten::Done => ("forgotten", format!("{name} is forgotten; its last term is kept")),
        Forgotten::Led => ("led", format!("{name} has a leader, and stays; end that first")),
        _ => ("unknown", format!("{name} is not known here")),
    };
    if out.json {
        let nobody = ("candidate", json!(null));
        let fields = vec![nobody, ("term", json!(null)), ("outcome", json!(outcome))];
        out.object(boot_now(), "forget", name, fields);
    } else {
        out.say(&sentence);
    }
}
