//! Scenarios: short stories of a few candidates and one store, as text that people read.
//!
//! A line that begins with a number is a command: the instant in milliseconds, who, what. The
//! indented lines below it say what came of it. `#` begins a remark. All clocks agree, the ttl is
//! 3 s. [`play`] carries the commands out and returns the story with its outcomes written anew.
//!
//! ```text
//! 0 a campaign        give an input: campaign, observe, resign, withdraw, drained, hint, tick
//! 1 a arrive          a's request reaches the store; its reply is on its way
//! 2 a answer          the reply reaches a
//! 2 a unknown         a waits no longer: the outcome is unknown; what is on its way stays so
//! 3 a late            the request that a gave up waiting for reaches the store
//! 4 store ask         somebody asks whoever leads to resign
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tenure_core::{
    Action, Actions, CandidateId, Input, Machine, Name, Op, Outcome, Settings, Time, Timing,
};

use crate::store::{Shelf, StoreFault};
use crate::transcript::{show_action, show_op, show_outcome};

/// Carries out the commands of a scenario.
///
/// # Errors
/// A sentence about the first line that makes no sense.
pub fn play(text: &str) -> Result<String, String> {
    let mut stage = Stage::new()?;
    let mut told = String::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("  ") {
            continue;
        }
        told.push_str(line);
        told.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let came = stage.command(line).map_err(|why| format!("line {}: {why}", index + 1))?;
        for line in came {
            let _ = writeln!(told, "  {line}");
        }
    }
    Ok(told)
}

struct Stage {
    now: Time,
    election: Name,
    shelf: Shelf,
    actors: BTreeMap<String, Actor>,
}

struct Actor {
    machine: Machine,
    flight: Option<Flight>,
    /// Requests that it gave up waiting for and that have not reached the store.
    late: Vec<Op>,
}

struct Flight {
    sent_at: Time,
    op: Op,
    answer: Option<Outcome>,
}

impl Stage {
    fn new() -> Result<Stage, String> {
        let election = Name::new("jobs").map_err(|error| error.to_string())?;
        let (shelf, actors) = (Shelf::default(), BTreeMap::new());
        Ok(Stage { now: Time::ZERO, election, shelf, actors })
    }

    fn command(&mut self, line: &str) -> Result<Vec<String>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at_ms, who, what] = words[..] else { return Err("want: instant who what".into()) };
        let at_ms: u64 = at_ms.parse().map_err(|_| format!("{at_ms:?} is no instant"))?;
        let now = Time::ZERO + Duration::from_millis(at_ms);
        if now < self.now {
            return Err("time does not go back".into());
        }
        self.now = now;
        match (who, what) {
            ("store", "ask") => {
                let ask = Op::Ask { election: self.election.clone(), term: None };
                let outcome = self.shelf.apply(now, &ask, StoreFault::None);
                Ok(vec![format!("store: ask -> {}", show_outcome(&outcome))])
            }
            (_, "arrive") => self.arrive(who),
            (_, "late") => self.late(who),
            (_, "answer") => {
                let flight = self.flight(who)?;
                let outcome = flight.answer.ok_or("no answer is on its way")?;
                self.give(who, Input::Reply { sent_at: flight.sent_at, outcome })
            }
            (_, "unknown") => {
                let flight = self.flight(who)?;
                if flight.answer.is_none() {
                    self.actor(who)?.late.push(flight.op);
                }
                let outcome = Outcome::Unknown;
                self.give(who, Input::Reply { sent_at: flight.sent_at, outcome })
            }
            _ => self.give(who, input(what)?),
        }
    }

    fn flight(&mut self, who: &str) -> Result<Flight, String> {
        self.actor(who)?.flight.take().ok_or_else(|| format!("{who} waits for nothing"))
    }

    fn arrive(&mut self, who: &str) -> Result<Vec<String>, String> {
        let now = self.now;
        let actor = self.actors.get_mut(who).ok_or("who is that?")?;
        let flight = actor.flight.as_mut().ok_or("nothing is on its way")?;
        let outcome = self.shelf.apply(now, &flight.op, StoreFault::None);
        let told = format!("store: {} -> {}", show_op(&flight.op), show_outcome(&outcome));
        flight.answer = Some(outcome);
        Ok(vec![told])
    }

    fn late(&mut self, who: &str) -> Result<Vec<String>, String> {
        let actor = self.actors.get_mut(who).ok_or("who is that?")?;
        if actor.late.is_empty() {
            return Err("nothing is late".into());
        }
        let op = actor.late.remove(0);
        let outcome = self.shelf.apply(self.now, &op, StoreFault::None);
        Ok(vec![format!("store: {} -> {}", show_op(&op), show_outcome(&outcome))])
    }

    fn give(&mut self, who: &str, input: Input) -> Result<Vec<String>, String> {
        let now = self.now;
        let actor = self.actor(who)?;
        let mut out = Actions::new();
        actor.machine.handle(now, input, &mut out);
        let mut told = Vec::new();
        for action in out.drain() {
            told.push(format!("{who}: {}", show_action(&action)));
            if let Action::Send(op) = action {
                actor.flight = Some(Flight { sent_at: now, op, answer: None });
            }
        }
        Ok(told)
    }

    fn actor(&mut self, who: &str) -> Result<&mut Actor, String> {
        if !self.actors.contains_key(who) {
            let candidate = CandidateId::new(who, 1).map_err(|error| error.to_string())?;
            let timing = Timing::new(Duration::from_secs(3));
            let settings = Settings::new(self.election.clone(), candidate, timing);
            let machine = Machine::new(settings);
            self.actors.insert(who.into(), Actor { machine, flight: None, late: Vec::new() });
        }
        self.actors.get_mut(who).ok_or_else(|| "who is that?".into())
    }
}

fn input(word: &str) -> Result<Input, String> {
    Ok(match word {
        "campaign" => Input::Campaign,
        "observe" => Input::Observe,
        "resign" => Input::Resign,
        "withdraw" => Input::Withdraw,
        "drained" => Input::Drained,
        "hint" => Input::Hint,
        "tick" => Input::Tick,
        _ => return Err(format!("there is no command {word:?}")),
    })
}
