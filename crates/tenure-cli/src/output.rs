//! What people and programs are told: short sentences on stderr, data and events on stdout.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{BootClock, CandidateId, Event, Leader, Name, Reason, Time};
pub(crate) use tenure_core::show_rounded as show_short;

use crate::args::{Color, GlobalArgs, LogFormat};
use crate::sink::Sink;
use crate::wall;

/// How and where to say things.
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) json: bool,
    quiet: bool,
    log_format: LogFormat,
    color: bool,
    pub(crate) sink: Sink,
}

impl Output {
    /// As the flags say.
    pub(crate) fn new(args: &GlobalArgs, sink: Sink) -> Output {
        let GlobalArgs { json, quiet, log_format, .. } = *args;
        let color = is_colored(args.color, io::stderr().is_terminal());
        Output { json, quiet, log_format, color, sink }
    }

    /// A sentence for people.
    pub(crate) fn say(&self, sentence: &str) {
        if !self.quiet {
            self.message("INFO", "", sentence);
        }
    }

    /// A sentence for people in place of the one before, which was said to a terminal.
    pub(crate) fn say_over(&self, sentence: &str) {
        if !self.quiet {
            self.sink.err(&format!("\x1b[1A\r\x1b[Ktenure: {}", printable(sentence)));
        }
    }

    /// Whether messages are for people to read.
    pub(crate) fn is_for_people(&self) -> bool {
        !self.quiet && self.log_format == LogFormat::Text
    }

    /// A sentence about something that wants to be looked at.
    pub(crate) fn warn(&self, sentence: &str) {
        if !self.quiet {
            self.message("WARN", "33", sentence);
        }
    }

    /// A sentence about what went wrong; said even if nothing else is.
    pub(crate) fn error(&self, sentence: &str) {
        self.message("ERROR", "31", sentence);
    }

    /// A line of data.
    pub(crate) fn data(&self, line: &str) {
        self.sink.out(line);
    }

    /// One object on a line of its own.
    pub(crate) fn object(&self, at: Time, event: &str, election: &Name, rest: Fields) {
        self.data(&object(at, event, Some(election), rest));
    }

    /// The same for what is about no election in particular.
    pub(crate) fn general_object(&self, event: &str, rest: Fields) {
        self.data(&object(boot_now(), event, None, rest));
    }

    /// An event of an election that this candidate takes part in or watches.
    pub(crate) fn event(&self, at: Time, election: &Name, candidate: &CandidateId, event: &Event) {
        let mut fields = vec![("candidate", json!(candidate.as_str()))];
        fields.extend(event_fields(event));
        self.object(at, event.name(), election, fields);
    }

    fn message(&self, level: &str, color: &str, sentence: &str) {
        let sentence = printable(sentence);
        self.sink.err(&match self.log_format {
            LogFormat::Json => json!({
                "timestamp": wall::rfc3339(wall::now()),
                "level": level,
                "fields": { "message": sentence },
                "target": "tenure",
            })
            .to_string(),
            LogFormat::Text if self.color && !color.is_empty() => {
                format!("\x1b[{color}mtenure:\x1b[0m {sentence}")
            }
            LogFormat::Text => format!("tenure: {sentence}"),
        });
    }
}

pub(crate) type Fields = Vec<(&'static str, Value)>;

/// One object as all commands write it. The first six fields are always there, in this order; of
/// these, `candidate` and `term` are taken from the rest.
pub(crate) fn object(at: Time, event: &str, election: Option<&Name>, mut rest: Fields) -> String {
    let mut take = |name: &'static str| {
        let found = rest.iter().position(|(field, _)| *field == name);
        found.map_or((name, Value::Null), |index| rest.remove(index))
    };
    let mut fields = vec![
        ("at", json!(wall::rfc3339(wall::at(at)))),
        ("boot_ns", json!(at.as_nanos())),
        ("event", json!(event)),
        ("election", json!(election.map(Name::as_str))),
        take("candidate"),
        take("term"),
    ];
    fields.extend(rest);
    // By hand, because the order helps whoever reads it.
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    format!("{{{}}}", fields.join(","))
}

/// Whether to use colours there.
pub(crate) fn is_colored(wish: Color, is_terminal: bool) -> bool {
    match wish {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()),
    }
}

/// Logs to the sink, if somebody wants to read it.
pub(crate) fn start_log(args: &GlobalArgs, sink: &Sink) {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::prelude::*;
    use tracing_subscriber::{Registry, fmt};

    let level = match args.verbose {
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let color = is_colored(args.color, io::stderr().is_terminal());
    let sink = sink.clone();
    let log = fmt::layer::<Registry>().with_ansi(color).with_writer(move || sink.clone());
    let log = match args.log_format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    // Ours alone: what drivers write into a log, nobody has looked at for secrets.
    let ours = Targets::new().with_target("tenure", level);
    let log = (level != LevelFilter::OFF).then(|| log.with_filter(ours));
    #[cfg(feature = "otel")]
    let spans = crate::otel::layer();
    #[cfg(not(feature = "otel"))]
    let spans: Option<LevelFilter> = None;
    if log.is_none() && spans.is_none() {
        return;
    }
    // It fails if there is a logger already, and there is none.
    let _ = Registry::default().with(log).with(spans).try_init();
}

fn event_fields(event: &Event) -> Fields {
    match event {
        Event::Elected { term } => vec![("term", json!(term.get()))],
        Event::RenewalFailed { term, error } | Event::ListenFailed { term, error } => {
            vec![("term", json!(term.get())), ("error", json!(error.to_string()))]
        }
        Event::Draining { term, reason, left } => vec![
            ("term", json!(term.get())),
            ("reason", json!(reason.as_str())),
            ("left_ms", millis(*left)),
        ],
        Event::SteppedDown { term, reason } => {
            vec![("term", json!(term.get())), ("reason", json!(reason.as_str()))]
        }
        Event::LeaderChanged { leader } => leader_fields(leader.as_ref()),
        Event::StoreLost { error } => vec![NO_TERM, ("error", json!(error.to_string()))],
        Event::Settling { left } => vec![NO_TERM, ("left_ms", millis(*left))],
        Event::StoreClockStepped { by, ahead } => {
            vec![NO_TERM, ("by_ms", millis(*by)), ("ahead", json!(ahead))]
        }
        Event::DuplicateLabel { holder } => vec![NO_TERM, ("other", json!(holder.as_str()))],
        Event::TermFell { granted, least } => {
            vec![("term", json!(granted.get())), ("least", json!(least.get()))]
        }
        Event::Missed { count } => vec![NO_TERM, ("count", json!(count))],
        _ => vec![NO_TERM],
    }
}

const NO_TERM: (&str, Value) = ("term", Value::Null);

/// Who leads, for programs.
pub(crate) fn leader_fields(leader: Option<&Leader>) -> Fields {
    let since = leader.and_then(|leader| leader.since_unix_ms).and_then(wall::from_unix_ms);
    let metadata = leader.and_then(|leader| leader.metadata.as_ref());
    vec![
        ("term", json!(leader.and_then(|leader| leader.term).map(|term| term.get()))),
        ("leader", json!(leader.map(|leader| leader.holder.as_str()))),
        ("label", json!(leader.map(|leader| leader.holder.label()))),
        ("since", json!(since.map(wall::rfc3339))),
        ("remaining_ms", leader.map_or(Value::Null, |leader| millis(leader.remaining))),
        ("metadata", metadata.map_or(Value::Null, |m| m.as_str().parse().unwrap_or_default())),
    ]
}

/// Now, on the clock that `boot_ns` counts.
pub(crate) fn boot_now() -> Time {
    BootClock::time()
}

/// What people are told of an event, if anything; what a program did by its own wish goes without
/// saying.
pub(crate) fn sentence(event: &Event) -> Option<String> {
    Some(match event {
        Event::Elected { term } => format!("leading as term {term}"),
        Event::RenewalFailed { term, error } => {
            format!("a renewal failed, term {term} goes on while it may be trusted: {error}")
        }
        Event::ListenFailed { error, .. } => {
            format!("not leading, because messages could not be heard: {error}")
        }
        Event::Draining { reason: Reason::Resigned, .. } => return None,
        Event::Draining { term, reason, left } => format!(
            "stepping down from term {term} ({}), {} to wind up",
            because(*reason),
            show_short(*left)
        ),
        Event::SteppedDown { term, reason } => {
            format!("leading no more, term {term} is over ({})", because(*reason))
        }
        Event::LeaderChanged { leader: Some(leader) } => format!("following: {}", leads(leader)),
        Event::LeaderChanged { leader: None } => "nobody leads".to_owned(),
        Event::StoreLost { error } => format!("the store can't be used, trying again: {error}"),
        Event::StoreBack => "the store is back".to_owned(),
        Event::Settling { left } => format!(
            "nobody can be elected for {}: the store may have forgotten a leader that still works",
            show_short(*left)
        ),
        Event::StoreClockStepped { by, ahead } => format!(
            "the store's clock was set {} by {}; leases are treated as fresh",
            if *ahead { "ahead" } else { "back" },
            show_short(*by)
        ),
        Event::DuplicateLabel { holder } => format!(
            "another live process calls itself {} too ({holder}); give each its own --id",
            holder.label()
        ),
        Event::TermFell { granted, least } => format!(
            "the store granted term {granted} though {least} is the least it may grant; it was \
             not led; was the store restored from a copy?"
        ),
        Event::Missed { count } => format!("{count} events were missed"),
        _ => return None,
    })
}

/// Whether an event wants to be looked at.
pub(crate) fn is_worrying(event: &Event) -> bool {
    matches!(
        event,
        Event::RenewalFailed { .. }
            | Event::ListenFailed { .. }
            | Event::StoreLost { .. }
            | Event::StoreClockStepped { .. }
            | Event::DuplicateLabel { .. }
            | Event::TermFell { .. }
    )
}

/// `web-2 leads as term 7`.
pub(crate) fn leads(leader: &Leader) -> String {
    match leader.term {
        Some(term) => format!("{} leads as term {term}", leader.holder.label()),
        None => format!("{} leads", leader.holder.label()),
    }
}

fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Resigned => "resigned",
        Reason::Asked => "asked to resign",
        Reason::NotRenewed => "the lease could not be renewed in time",
        Reason::RenewalFailed => "a renewal failed",
        Reason::Deposed => "the store says that the lease is not ours any more",
        _ => "lost",
    }
}

fn millis(span: Duration) -> Value {
    json!(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// The text without anything that a terminal would take for a command, and without letters that
/// turn the rest of the line around or break it: they are shown as such.
pub(crate) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut clean, letter| {
        if letter.is_control() || turns_around(letter) {
            clean.extend(letter.escape_default());
        } else {
            clean.push(letter);
        }
        clean
    })
}

/// Unicode's controls of direction, and its line breaks.
fn turns_around(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use tenure::{Error, ErrorKind, Holder, Term};

    use super::*;

    #[test]
    fn every_event_has_a_term_in_json_even_if_it_is_null() {
        let (term, error) = (Term::FIRST, Error::new(ErrorKind::Unavailable, "away"));
        let holder = Holder::new("web-2#0");
        for event in [
            Event::Campaigning,
            Event::Elected { term },
            Event::RenewalFailed { term, error: error.clone() },
            Event::Draining { term, reason: Reason::Asked, left: Duration::ZERO },
            Event::SteppedDown { term, reason: Reason::Asked },
            Event::LeaderChanged { leader: None },
            Event::StoreLost { error },
            Event::StoreBack,
            Event::Settling { left: Duration::ZERO },
            Event::StoreClockStepped { by: Duration::ZERO, ahead: true },
            Event::DuplicateLabel { holder },
            Event::TermFell { granted: term, least: term },
            Event::Missed { count: 1 },
        ] {
            let fields = event_fields(&event);
            assert_eq!(fields[0].0, "term", "{event:?}");
        }
    }

    /// What happens, and for how long: nobody has to know what settling is.
    #[test]
    fn people_are_told_how_long_nobody_can_be_elected() {
        let said = sentence(&Event::Settling { left: Duration::from_millis(2_900) }).unwrap();
        assert!(said.starts_with("nobody can be elected for 2s900ms: the store"), "{said}");
    }

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        assert_eq!(printable("a\x1b[2J\u{9b}b\n"), "a\\u{1b}[2J\\u{9b}b\\n");
        assert_eq!(printable("a\u{202e}b\u{2067}\u{2028}請"), "a\\u{202e}b\\u{2067}\\u{2028}請");
    }

    #[test]
    fn colours_are_for_terminals_unless_wished_otherwise() {
        assert!(is_colored(Color::Always, false));
        assert!(!is_colored(Color::Never, true));
        assert!(!is_colored(Color::Auto, false));
    }
}
