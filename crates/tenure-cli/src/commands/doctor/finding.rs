//! One thing that was found: what, why it matters, what to do.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Two may lead at once, or a term may be issued twice, or nobody can lead at all.
    Safety,
    /// It works, but worse than it could.
    Advice,
}

/// One finding.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) level: Level,
    what: String,
    why: String,
    todo: String,
}

impl Finding {
    pub(super) fn new(level: Level, what: impl Into<String>) -> Finding {
        Finding { level, what: what.into(), why: String::new(), todo: String::new() }
    }

    pub(super) fn because(mut self, why: impl Into<String>) -> Finding {
        self.why = why.into();
        self
    }

    pub(super) fn so(mut self, todo: impl Into<String>) -> Finding {
        self.todo = todo.into();
        self
    }

    /// The same, with where it was found.
    #[cfg(feature = "redis")]
    pub(super) fn at(mut self, place: &str) -> Finding {
        self.what = format!("{place}: {}", self.what);
        self
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mark = match self.level {
            Level::Safety => "SAFETY",
            Level::Advice => "advice",
        };
        vec![
            format!("  {mark}: {}", self.what),
            format!("    why: {}", self.why),
            format!("    do:  {}", self.todo),
        ]
    }

    pub(super) fn json(&self) -> Value {
        let level = match self.level {
            Level::Safety => "safety",
            Level::Advice => "advice",
        };
        json!({ "level": level, "what": self.what, "why": self.why, "do": self.todo })
    }
}
