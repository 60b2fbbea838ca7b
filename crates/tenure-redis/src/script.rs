//! The scripts, and how they are called: by their hash, or in full where the server forgot them.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Script, Value};

/// One of our scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
    Read,
    Ask,
    Hello,
}

impl Kind {
    const COUNT: usize = 6;

    fn code(self) -> &'static str {
        CODE[self as usize]
    }

    fn hash(self) -> &'static str {
        SCRIPTS[self as usize].get_hash()
    }
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
    include_str!("lua/hello.lua"),
];

/// In the order of [`Kind`], with their hashes.
static SCRIPTS: LazyLock<[Script; Kind::COUNT]> = LazyLock::new(|| CODE.map(Script::new));

/// One call of a script. Names and identities are arguments, never part of the code.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<String>,
}

impl Call {
    /// The call by the script's hash.
    fn by_hash(&self) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(self.kind.hash());
        self.with_arguments(cmd)
    }

    /// The call with the whole script, which the server then knows by its hash.
    pub(crate) fn in_full(&self) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(self.kind.code());
        self.with_arguments(cmd)
    }

    fn with_arguments(&self, mut cmd: Cmd) -> Cmd {
        cmd.arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        cmd
    }
}

/// All calls, by hash.
pub(crate) fn pipeline(calls: &[&Call]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        pipeline.add_command(call.by_hash());
    }
    pipeline
}

/// All calls; the first of each script in full, which makes it known to those behind it.
pub(crate) fn teaching_pipeline(calls: &[&Call]) -> Pipeline {
    let mut taught = [false; Kind::COUNT];
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        let known = std::mem::replace(&mut taught[call.kind as usize], true);
        pipeline.add_command(if known { call.by_hash() } else { call.in_full() });
    }
    pipeline
}

/// Whether the server did nothing, because it does not know the script by its hash.
pub(crate) fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_script() {
        for (kind, word) in [
            (Kind::Acquire, "TENURERANGE"),
            (Kind::Renew, "candidate, term, ttl"),
            (Kind::Release, "late release"),
            (Kind::Read, "Changes nothing"),
            (Kind::Ask, "'asked', '1'"),
            (Kind::Hello, "first call on each connection"),
        ] {
            assert!(kind.code().contains(word), "{kind:?}");
        }
    }
}
