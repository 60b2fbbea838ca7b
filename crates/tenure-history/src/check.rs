//! The checker: one function per invariant, each over the events of one election in the order
//! of time.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{Name, Term, Time};

use super::{Event, Kind, Request, Violation};

/// All violations in one election; `events` are sorted by time.
pub(super) fn election(election: &Name, events: &[Event]) -> Vec<Violation> {
    let events: Vec<&Event> = events.iter().filter(|event| event.election == *election).collect();
    let mut found = Found { election, violations: Vec::new() };
    let reigns = reigns(&events, &mut found);
    one_trusts_itself(&reigns, &mut found);
    terms_rise(&events, &reigns, &mut found);
    trust_is_earned(&events, &mut found);
    trust_is_shown_in_time(&events, &reigns, &mut found);
    stale_requests_change_nothing(&events, &mut found);
    leases_do_not_overlap(&events, &mut found);
    fenced_writes_never_go_back(&events, &mut found);
    found.violations
}

struct Found<'a> {
    election: &'a Name,
    violations: Vec<Violation>,
}

impl Found<'_> {
    fn add(&mut self, invariant: &'static str, sentence: String) {
        self.violations.push(Violation { invariant, election: self.election.clone(), sentence });
    }
}

/// One candidate's trust in one term.
struct TrustSpan<'a> {
    candidate: &'a str,
    term: Term,
    from: Time,
    /// The end of trust, as far as the history shows.
    until: Time,
    stepped_down: Option<Stepped>,
    /// Released or killed: `until` is final.
    over: bool,
}

struct Stepped {
    at: Time,
    resigning: bool,
}

/// Reads the reigns off the events; what is out of order breaks I6.
fn reigns<'a>(events: &[&'a Event], found: &mut Found<'_>) -> Vec<TrustSpan<'a>> {
    let mut reigns: Vec<TrustSpan<'a>> = Vec::new();
    let mut current: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events {
        let (at, candidate) = (event.at, event.candidate.as_str());
        let known = current.get(candidate).copied();
        let mut reign = known.and_then(|index| reigns.get_mut(index));
        match &event.kind {
            Kind::Lead { term, until } => {
                if let Some(open) = reign.filter(|reign| reign.is_open()) {
                    let former = open.term;
                    found.add("I6", format!(
                        "{candidate} leads term {term} from {at:?}, and never stepped down from \
                         term {former}"
                    ));
                }
                current.insert(candidate, reigns.len());
                reigns.push(TrustSpan::new(candidate, *term, at, *until));
            }
            Kind::Extend { until } => match reign {
                Some(reign) if !reign.over => reign.extend(at, *until, found),
                _ => found.add(
                    "I6",
                    format!("{candidate} extends its trust at {at:?}, and does not lead"),
                ),
            },
            Kind::StepDown { reason, until, resigning } => match reign {
                Some(reign) if reign.is_open() => {
                    reign.until = reign.until.min(*until);
                    reign.stepped_down = Some(Stepped { at, resigning: *resigning });
                }
                _ => found.add(
                    "I6",
                    format!("{candidate} steps down at {at:?} ({reason}), and does not lead"),
                ),
            },
            Kind::Released { .. } | Kind::Killed => {
                if matches!(event.kind, Kind::Released { .. })
                    && let Some(open) = reign.as_ref().filter(|reign| reign.is_open())
                {
                    let term = open.term;
                    found.add(
                        "I6",
                        format!(
                            "{candidate} releases term {term} at {at:?} before it stepped down"
                        ),
                    );
                }
                if let Some(reign) = reign.as_mut() {
                    reign.until = reign.until.min(at);
                    reign.over = true;
                }
            }
            _ => {}
        }
    }
    never_stepped_down(events, &reigns, found);
    reigns
}

impl<'a> TrustSpan<'a> {
    fn new(candidate: &'a str, term: Term, from: Time, until: Time) -> TrustSpan<'a> {
        TrustSpan { candidate, term, from, until, stepped_down: None, over: false }
    }

    /// Whether it still waits for its step-down.
    fn is_open(&self) -> bool {
        self.stepped_down.is_none() && !self.over
    }

    fn extend(&mut self, at: Time, until: Time, found: &mut Found<'_>) {
        let (candidate, term) = (self.candidate, self.term);
        match &self.stepped_down {
            Some(stepped) if !stepped.resigning => found.add("I3", format!(
                "{candidate} extends its trust in term {term} at {at:?}, though its step-down at \
                 {:?} was final", stepped.at
            )),
            _ if at >= self.until => found.add("I3", format!(
                "{candidate} revives its trust in term {term} at {at:?}, though it had ended at \
                 {:?}", self.until
            )),
            _ => self.until = until,
        }
    }
}

/// I6: a reign whose trust has ended must have seen a step-down.
fn never_stepped_down(events: &[&Event], reigns: &[TrustSpan<'_>], found: &mut Found<'_>) {
    let Some(last) = events.last() else { return };
    let mut newest: BTreeMap<&str, &TrustSpan<'_>> = BTreeMap::new();
    newest.extend(reigns.iter().map(|reign| (reign.candidate, reign)));
    for TrustSpan { candidate, term, until, .. } in
        newest.into_values().filter(|reign| reign.is_open() && reign.until < last.at)
    {
        found.add("I6", format!(
            "{candidate} never stepped down from term {term}, though its trust ended at {until:?} \
             and the history goes on until {:?}", last.at
        ));
    }
}

/// I1: no two reigns share an instant. A reign ends where the next may begin.
fn one_trusts_itself(reigns: &[TrustSpan<'_>], found: &mut Found<'_>) {
    for (index, one) in reigns.iter().enumerate() {
        // Reigns stand in the order in which they begin.
        let later = reigns[index + 1..].iter().take_while(|other| other.from < one.until);
        for other in later {
            let (from, until) = (other.from, one.until.min(other.until));
            if one.candidate != other.candidate && from < until {
                found.add(
                    "I1",
                    format!(
                        "{} (term {}) and {} (term {}) both trust themselves from {from:?} to \
                     {until:?}",
                        one.candidate, one.term, other.candidate, other.term
                    ),
                );
            }
        }
    }
}

/// I2: each reign has a higher term than all before; a term once granted is nobody else's, and
/// one granted later is higher.
fn terms_rise(events: &[&Event], reigns: &[TrustSpan<'_>], found: &mut Found<'_>) {
    for pair in reigns.windows(2) {
        let [before, after] = pair else { continue };
        if after.term <= before.term {
            found.add(
                "I2",
                format!(
                    "{} leads term {} from {:?}, after {} led term {} from {:?}",
                    after.candidate,
                    after.term,
                    after.from,
                    before.candidate,
                    before.term,
                    before.from
                ),
            );
        }
    }
    let acquired: Vec<Granted<'_>> =
        granted(events).filter(|granted| granted.request == Request::Acquire).collect();
    let mut owners: BTreeMap<Term, &Granted<'_>> = BTreeMap::new();
    // Requests in the order of sending against grants in the order of arrival.
    let mut arrived = acquired.iter().peekable();
    let mut highest: Option<&Granted<'_>> = None;
    let mut sent: Vec<&Granted<'_>> = acquired.iter().collect();
    sent.sort_by_key(|granted| granted.sent_at);
    for granted in sent {
        while let Some(before) = arrived.next_if(|before| before.at < granted.sent_at) {
            if highest.is_none_or(|highest| before.term > highest.term) {
                highest = Some(before);
            }
        }
        let Granted { candidate, term, at, .. } = *granted;
        if let Some(owner) = owners.get(&term).filter(|owner| owner.candidate != candidate) {
            found.add(
                "I2",
                format!(
                    "term {term} was granted to {} at {:?} and to {candidate} at {at:?}",
                    owner.candidate, owner.at
                ),
            );
        }
        if let Some(highest) = highest.filter(|highest| term < highest.term) {
            found.add("I2", format!(
                "{candidate} was granted term {term} at {at:?}, after {} had been granted term {} \
                 at {:?}", highest.candidate, highest.term, highest.at
            ));
        }
        owners.entry(term).or_insert(granted);
    }
}

/// I3 and I7: every `until` is covered by a grant of that candidate that had arrived, at most
/// its `sent_at + ttl - margin`.
fn trust_is_earned(events: &[&Event], found: &mut Found<'_>) {
    if granted(events).next().is_none() {
        return;
    }
    let mut earned: BTreeMap<(&str, Term), Time> = BTreeMap::new();
    let mut unknown: BTreeMap<&str, Time> = BTreeMap::new();
    let mut leading: BTreeMap<&str, Term> = BTreeMap::new();
    for event in events {
        let (at, candidate) = (event.at, event.candidate.as_str());
        let (term, until) = match event.kind {
            Kind::Granted { term, sent_at, ttl, margin, .. } => {
                let bound = earned.entry((candidate, term)).or_default();
                *bound = (*bound).max(trust_end(sent_at, ttl, margin));
                continue;
            }
            Kind::Unknown { sent_at, ttl, margin } => {
                unknown.insert(candidate, trust_end(sent_at, ttl, margin));
                continue;
            }
            Kind::Lead { term, until } => {
                leading.insert(candidate, term);
                (term, until)
            }
            Kind::Extend { until } => match leading.get(candidate) {
                Some(term) => (*term, until),
                None => continue,
            },
            _ => continue,
        };
        let bound = earned.get(&(candidate, term)).copied();
        if bound.is_some_and(|bound| until <= bound) {
            continue;
        }
        let invariant = match unknown.get(candidate) {
            Some(end) if until <= *end => "I7",
            _ => "I3",
        };
        let earned = match bound {
            Some(bound) => format!("its grants last until {bound:?} only"),
            None => "no grant of it had arrived".to_owned(),
        };
        found.add(
            invariant,
            format!(
                "{candidate} trusts itself at {at:?} in term {term} until {until:?}, but {earned}"
            ),
        );
    }
}

fn trust_end(sent_at: Time, ttl: Duration, margin: Duration) -> Time {
    sent_at + ttl - margin
}

/// I3: a candidate that is seen to trust itself is inside its reign of that term.
fn trust_is_shown_in_time(events: &[&Event], reigns: &[TrustSpan<'_>], found: &mut Found<'_>) {
    for event in events {
        let Kind::Trusts { term } = event.kind else { continue };
        let (at, candidate) = (event.at, &event.candidate);
        let inside = reigns.iter().any(|reign| {
            reign.candidate == candidate
                && reign.term == term
                && (reign.from..reign.until).contains(&at)
        });
        if !inside {
            found.add("I3", format!(
                "{candidate} was seen to trust itself in term {term} at {at:?}, outside its reign"
            ));
        }
    }
}

/// I4: no renewal or release is granted that was sent after a newer term had been granted.
fn stale_requests_change_nothing(events: &[&Event], found: &mut Found<'_>) {
    let acquired: Vec<Granted<'_>> =
        granted(events).filter(|granted| granted.request == Request::Acquire).collect();
    for event in events {
        let (verb, term, sent_at) = match event.kind {
            Kind::Granted { request: Request::Renew, term, sent_at, .. } => {
                ("renewal", term, sent_at)
            }
            Kind::ReleaseGranted { term, sent_at } => ("release", term, sent_at),
            _ => continue,
        };
        let newer = acquired.iter().find(|newer| newer.term > term && newer.at < sent_at);
        if let Some(newer) = newer {
            found.add("I4", format!(
                "a {verb} of term {term} by {}, sent at {sent_at:?}, was granted, though {} had \
                 been granted term {} at {:?}",
                event.candidate, newer.candidate, newer.term, newer.at
            ));
        }
    }
}

/// A lease lasts at least `ttl` from the instant its request was sent, unless its holder died or
/// sent a release; nothing that others ask for once it is known to be held is granted before.
fn leases_do_not_overlap(events: &[&Event], found: &mut Found<'_>) {
    struct Lease {
        term: Term,
        known_since: Time,
        until: Time,
    }
    let mut leases: BTreeMap<&str, Lease> = BTreeMap::new();
    for event in events {
        let (at, candidate) = (event.at, event.candidate.as_str());
        match event.kind {
            Kind::Released { .. } | Kind::Killed => {
                leases.remove(candidate);
            }
            Kind::Granted { request, term, sent_at, ttl, .. } => {
                for (holder, lease) in &leases {
                    if *holder != candidate
                        && request == Request::Acquire
                        && lease.known_since <= sent_at
                        && at < lease.until
                    {
                        found.add("lease", format!(
                            "{candidate} was granted term {term} at {at:?}, though {holder} held \
                             term {} until {:?} at least", lease.term, lease.until
                        ));
                    }
                }
                let until = sent_at + ttl;
                let new = Lease { term, known_since: at, until };
                match leases.get_mut(candidate).filter(|lease| lease.term == term) {
                    Some(lease) => lease.until = lease.until.max(until),
                    None => drop(leases.insert(candidate, new)),
                }
            }
            _ => {}
        }
    }
}

/// The fence: once a write of a term has passed, none of an older term does.
fn fenced_writes_never_go_back(events: &[&Event], found: &mut Found<'_>) {
    let mut highest: Option<(Term, &Event)> = None;
    for event in events {
        let Kind::WriteFenced { term, accepted: true } = event.kind else { continue };
        match highest {
            Some((newer, by)) if term < newer => found.add("fence", format!(
                "a write of term {term} by {} passed at {:?}, after one of term {newer} by {} at \
                 {:?}", event.candidate, event.at, by.candidate, by.at
            )),
            _ => highest = Some((term, event)),
        }
    }
}

/// A `Kind::Granted` with its event.
struct Granted<'a> {
    candidate: &'a str,
    at: Time,
    request: Request,
    term: Term,
    sent_at: Time,
}

fn granted<'a>(events: &[&'a Event]) -> impl Iterator<Item = Granted<'a>> {
    events.iter().filter_map(|event| match event.kind {
        Kind::Granted { request, term, sent_at, .. } => {
            Some(Granted { candidate: &event.candidate, at: event.at, request, term, sent_at })
        }
        _ => None,
    })
}
