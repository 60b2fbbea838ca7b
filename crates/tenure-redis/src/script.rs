//! The scripts, and how they are called: by their hash, or in full where the server forgot them.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Script, Value};

use crate::primary::Primary;

/// One of our scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
    Read,
    Ask,
    Forget,
    Hello,
    Ledger,
    LedgerRequest,
    LedgerSteer,
    LedgerRead,
    Once,
    OnceRead,
    MailNotify,
    MailPost,
    MailTake,
    MailAcknowledge,
    MailBacklog,
    MailDead,
    MailExhume,
}

impl Kind {
    const COUNT: usize = 20;

    fn code(self) -> &'static str {
        CODE[self as usize]
    }

    fn hash(self) -> &'static str {
        SCRIPTS[self as usize].get_hash()
    }

    /// What a script needs to know of the server that it runs on.
    fn local(self) -> Local {
        match self {
            Kind::Acquire | Kind::Read => Local::Marker,
            Kind::Release | Kind::Ask => Local::Channel,
            Kind::LedgerRequest | Kind::LedgerSteer => Local::Channel,
            Kind::MailNotify | Kind::MailPost | Kind::MailExhume => Local::Publish,
            Kind::Hello => Local::MarkerAlone,
            Kind::Renew | Kind::Forget | Kind::Ledger | Kind::LedgerRead => Local::Nothing,
            Kind::Once | Kind::OnceRead => Local::Nothing,
            Kind::MailTake | Kind::MailAcknowledge | Kind::MailBacklog | Kind::MailDead => {
                Local::Nothing
            }
        }
    }
}

/// What differs from server to server, so that only the place knows it.
#[derive(Clone, Copy)]
enum Local {
    Nothing,
    /// The marker: the last key, or in a Cluster, where it has a slot of its own, the last
    /// argument.
    Marker,
    /// The marker as the only key.
    MarkerAlone,
    /// The channel and the command that tells something there: the last two arguments.
    Channel,
    /// The command alone: the channel is one of the election's own.
    Publish,
}

/// A file with the common beginning in front of it.
macro_rules! with_common {
    ($file:literal) => {
        concat!(include_str!("lua/common.lua"), include_str!($file))
    };
}

/// In the order of [`Kind`].
const CODE: [&str; Kind::COUNT] = [
    with_common!("lua/acquire.lua"),
    with_common!("lua/renew.lua"),
    with_common!("lua/release.lua"),
    with_common!("lua/read.lua"),
    with_common!("lua/ask.lua"),
    with_common!("lua/forget.lua"),
    include_str!("lua/hello.lua"),
    with_common!("lua/ledger.lua"),
    with_common!("lua/ledger_request.lua"),
    with_common!("lua/ledger_steer.lua"),
    with_common!("lua/ledger_read.lua"),
    with_common!("lua/once.lua"),
    with_common!("lua/once_read.lua"),
    with_common!("lua/mail_notify.lua"),
    with_common!("lua/mail_post.lua"),
    with_common!("lua/mail_take.lua"),
    with_common!("lua/mail_acknowledge.lua"),
    with_common!("lua/mail_backlog.lua"),
    with_common!("lua/mail_dead.lua"),
    with_common!("lua/mail_exhume.lua"),
];

/// In the order of [`Kind`], with their hashes.
static SCRIPTS: LazyLock<[Script; Kind::COUNT]> = LazyLock::new(|| CODE.map(Script::new));

/// One call of a script. Names and identities are arguments, never part of the code.
///
/// In a Cluster it goes to where its first key is; all its keys are in one slot.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<String>,
}

impl Call {
    pub(crate) fn new(kind: Kind, keys: Vec<String>, args: Vec<String>) -> Call {
        Call { kind, keys, args }
    }

    /// Whether leadership may follow from its answer.
    pub(crate) fn grants(&self) -> bool {
        matches!(self.kind, Kind::Acquire | Kind::Renew)
    }

    /// The call by the script's hash.
    fn by_hash(&self, primary: &Primary) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.kind.hash());
        self.with_arguments(cmd, primary)
    }

    /// The call with the whole script, which the server then knows by its hash.
    pub(crate) fn in_full(&self, primary: &Primary) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.kind.code());
        self.with_arguments(cmd, primary)
    }

    fn with_arguments(&self, mut cmd: Cmd, primary: &Primary) -> Cmd {
        let publish = if primary.in_cluster { "SPUBLISH" } else { "PUBLISH" };
        let (key, args): (Option<&str>, &[&str]) = match self.kind.local() {
            Local::Nothing => (None, &[]),
            Local::Marker if primary.in_cluster => (None, &[primary.marker.as_str()]),
            // A server that has no slot yet has no marker either.
            Local::MarkerAlone if primary.marker.is_empty() => (None, &[]),
            Local::Marker | Local::MarkerAlone => (Some(&primary.marker), &[]),
            Local::Channel => (None, &[primary.channel.as_str(), publish]),
            Local::Publish => (None, &[publish]),
        };
        cmd.arg(self.keys.len() + usize::from(key.is_some())).arg(&self.keys).arg(key);
        cmd.arg(&self.args).arg(args);
        cmd
    }
}

/// All calls, by hash.
pub(crate) fn pipeline(calls: &[&Call], primary: &Primary) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        pipeline.add_command(call.by_hash(primary));
    }
    pipeline
}

/// All calls; the first of each script in full, which makes it known to those behind it.
pub(crate) fn teaching_pipeline(calls: &[&Call], primary: &Primary) -> Pipeline {
    let mut taught = [false; Kind::COUNT];
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        let known = std::mem::replace(&mut taught[call.kind as usize], true);
        pipeline.add_command(if known { call.by_hash(primary) } else { call.in_full(primary) });
    }
    pipeline
}

/// A value as an argument; nothing is an empty one.
pub(crate) fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Whether the server did nothing, because it does not know the script by its hash.
pub(crate) fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Stands in for a grant that too few replicas have.
pub(crate) fn too_few_replicas(have: i64, wanted: u32) -> Value {
    let words = ["few".to_owned(), have.to_string(), wanted.to_string()];
    Value::Array(words.map(|word| Value::BulkString(word.into_bytes())).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primary::Node;

    #[test]
    fn each_kind_has_its_own_script() {
        let mut kinds = std::collections::HashSet::new();
        for (kind, word) in [
            (Kind::Acquire, "TENURERANGE"),
            (Kind::Renew, "candidate, term, ttl"),
            (Kind::Release, "late release"),
            (Kind::Read, "Changes nothing"),
            (Kind::Ask, "'asked', '1'"),
            (Kind::Forget, "its last term stays"),
            (Kind::Hello, "first call on each connection"),
            (Kind::Ledger, "steps of one term"),
            (Kind::LedgerRequest, "a job to run now"),
            (Kind::LedgerSteer, "Pauses or resumes a job"),
            (Kind::LedgerRead, "what is in the cron ledger"),
            (Kind::Once, "one run at a time"),
            (Kind::OnceRead, "what is known of one key"),
            (Kind::MailNotify, "those who listen in this election"),
            (Kind::MailPost, "each key once"),
            (Kind::MailTake, "The head of a channel"),
            (Kind::MailAcknowledge, "a message off its channel"),
            (Kind::MailBacklog, "what is dead, by channel"),
            (Kind::MailDead, "dead letters, oldest first"),
            (Kind::MailExhume, "dead letters back"),
        ] {
            assert!(kind.code().contains(word), "{kind:?}");
            assert!(kinds.insert(kind as usize), "{kind:?} twice");
        }
        assert_eq!(kinds.len(), Kind::COUNT, "one of them was not looked at");
    }

    /// A script's keys are all in one slot, and the marker of a Cluster is not.
    #[test]
    fn the_marker_is_a_key_only_outside_a_cluster() {
        let primary = |in_cluster| Primary {
            node: Node { host: "h".to_owned(), port: 1 },
            marker: "the-marker".to_owned(),
            channel: "the-channel".to_owned(),
            in_cluster,
        };
        let words = |kind, in_cluster| {
            let call = Call::new(kind, vec!["k".to_owned()], vec!["a".to_owned()]);
            let packed = call.by_hash(&primary(in_cluster)).get_packed_command();
            let text = String::from_utf8(packed).unwrap();
            let words = text.split("\r\n").skip(6).step_by(2).map(str::to_owned);
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(Kind::Acquire, false), "2 k the-marker a");
        assert_eq!(words(Kind::Acquire, true), "1 k a the-marker");
        assert_eq!(words(Kind::Release, false), "1 k a the-channel PUBLISH");
        assert_eq!(words(Kind::Release, true), "1 k a the-channel SPUBLISH");
        assert_eq!(words(Kind::Renew, true), "1 k a");
        assert_eq!(words(Kind::MailPost, true), "1 k a SPUBLISH");
        assert_eq!(words(Kind::Hello, true), "2 k the-marker a");
    }
}
