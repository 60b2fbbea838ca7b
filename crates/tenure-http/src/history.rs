//! The last changes of hands of one election, as this instance saw them.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure::{Event, Leader, Reason, Term};

use crate::wall;

/// How many are kept.
pub(crate) const KEPT: usize = 100;

/// One reign.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PastReign {
    who: String,
    label: String,
    term: Option<Term>,
    from: Timestamp,
    to: Option<Timestamp>,
    /// Known of this instance's own reigns only.
    reason: Option<Reason>,
    /// How long nobody led before it, if somebody was seen to lead before.
    gap: Option<Duration>,
}

/// The reigns, oldest first. The last one may be going on.
#[derive(Debug, Default)]
pub(crate) struct History {
    reigns: VecDeque<PastReign>,
}

impl History {
    /// Takes in what happened here at this instant; `me` is this candidate, whole and label.
    pub(crate) fn take(&mut self, at: Timestamp, me: (&str, &str), event: &Event) {
        match event {
            Event::Elected { term } => self.begin(at, at, me.0, me.1, Some(*term)),
            Event::Draining { term, reason, .. } => {
                if let Some(reign) = self.current(*term) {
                    reign.reason = Some(*reason);
                }
            }
            Event::SteppedDown { term, reason } => {
                if let Some(reign) = self.current(*term) {
                    reign.reason = Some(*reason);
                    reign.to = Some(at);
                }
            }
            _ => {}
        }
    }

    /// Somebody is seen to lead, perhaps for the first time.
    pub(crate) fn seen(&mut self, at: Timestamp, leader: &Leader) {
        let same =
            |reign: &PastReign| reign.who == leader.holder.as_str() && reign.term == leader.term;
        if self.reigns.back().is_some_and(|reign| reign.to.is_none() && same(reign)) {
            return;
        }
        let since = leader.since_unix_ms.and_then(wall::from_unix_ms);
        // By another machine's wall clock: believed only where it makes sense here.
        let after = self.reigns.back().map(|reign| reign.to.unwrap_or(reign.from));
        let makes_sense = |since: &Timestamp| after.is_none_or(|after| *since >= after);
        let from = since.filter(|since| *since <= at).filter(makes_sense).unwrap_or(at);
        let holder = &leader.holder;
        self.begin(from, at, holder.as_str(), holder.label(), leader.term);
    }

    fn begin(
        &mut self,
        from: Timestamp,
        at: Timestamp,
        who: &str,
        label: &str,
        term: Option<Term>,
    ) {
        self.end(from.min(at));
        let before = self.reigns.back().and_then(|reign| reign.to);
        let gap = before.map(|to| Duration::try_from(from - to).unwrap_or_default());
        let (who, label) = (who.to_owned(), label.to_owned());
        self.reigns.push_back(PastReign { who, label, term, from, to: None, reason: None, gap });
        if self.reigns.len() > KEPT {
            self.reigns.pop_front();
        }
    }

    /// Whatever reign is on ended at this instant.
    pub(crate) fn end(&mut self, at: Timestamp) {
        if let Some(reign) = self.reigns.back_mut()
            && reign.to.is_none()
        {
            reign.to = Some(at.max(reign.from));
        }
    }

    fn current(&mut self, term: Term) -> Option<&mut PastReign> {
        self.reigns.back_mut().filter(|reign| reign.term == Some(term) && reign.to.is_none())
    }

    /// As JSON, the latest first.
    pub(crate) fn json(&self) -> Value {
        self.reigns.iter().rev().map(PastReign::json).collect()
    }
}

impl PastReign {
    fn json(&self) -> Value {
        json!({
            "leader": self.who,
            "label": self.label,
            "term": self.term.map(Term::get),
            "from": wall::text(self.from),
            "to": self.to.map(wall::text),
            "reason": self.reason.map(Reason::as_str),
            "gap_ms": self.gap.map(|gap| u64::try_from(gap.as_millis()).unwrap_or(u64::MAX)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: (&str, &str) = ("me#1", "me");

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn term(number: u64) -> Term {
        Term::new(number).unwrap()
    }

    fn elected(history: &mut History, second: i64, number: u64) {
        history.take(at(second), ME, &Event::Elected { term: term(number) });
    }

    fn stepped_down(history: &mut History, second: i64, number: u64, reason: Reason) {
        let event = Event::SteppedDown { term: term(number), reason };
        history.take(at(second), ME, &event);
    }

    #[test]
    fn reigns_have_a_beginning_an_end_a_reason_and_a_gap_before_them() {
        let mut history = History::default();
        elected(&mut history, 0, 1);
        stepped_down(&mut history, 10, 1, Reason::NotRenewed);
        elected(&mut history, 12, 2);
        let json = history.json();
        assert_eq!(json[0]["term"], 2);
        assert_eq!((&json[0]["gap_ms"], &json[0]["to"]), (&json!(2000), &Value::Null));
        assert_eq!(json[1]["reason"], "not_renewed");
        assert_eq!(json[1]["to"], "2023-11-14T22:13:30.000Z");
        assert_eq!(json[1]["gap_ms"], Value::Null, "nobody was seen before the first");
    }

    #[test]
    fn a_reign_of_another_ends_when_nobody_is_seen_or_the_next_one_is() {
        let mut history = History::default();
        history.begin(at(0), at(0), "a#1", "a", Some(term(1)));
        history.end(at(5));
        history.begin(at(6), at(6), "b#1", "b", Some(term(2)));
        elected(&mut history, 9, 3);
        let json = history.json();
        assert_eq!(json[1]["to"], json[0]["from"]);
        assert_eq!((&json[0]["gap_ms"], &json[1]["gap_ms"]), (&json!(0), &json!(1000)));
        assert_eq!(json[2]["reason"], Value::Null, "why others ended is not known");
    }

    #[test]
    fn only_the_last_hundred_are_kept() {
        let mut history = History::default();
        for number in 1..=250 {
            elected(&mut history, number, number as u64);
            stepped_down(&mut history, number, number as u64, Reason::Resigned);
        }
        let json = history.json();
        assert_eq!(json.as_array().unwrap().len(), KEPT);
        assert_eq!((&json[0]["term"], &json[99]["term"]), (&json!(250), &json!(151)));
    }
}
