//! When a job is due: a schedule in a time zone, and what happens when clocks change.
//!
//! `croner` matches civil times and is never told of a zone; which instant a civil time is, and
//! which ones are left out or come twice, is decided here.

mod fields;
mod zone;

use std::fmt;

use croner::Cron;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use tenure_core::Error;

/// How many instants of a long gap are counted one by one.
pub(crate) const COUNT_MAX: usize = 10_000;

/// How often a search may go on to the next change of the zone. Two a year are usual, and a
/// schedule that is due only every 28 years (a 29 February on a Sunday) must be found.
const CHANGES_MAX: usize = 2_000;

/// A cron schedule in a time zone.
///
/// Five fields (minute, hour, day of month, month, weekday) or six (seconds first); `*`, lists,
/// ranges, steps, names, `L` (last), `#` (the n-th weekday), `W` (the nearest working day); or
/// `@yearly`, `@monthly`, `@weekly`, `@daily`, `@hourly`. If both the day of month and the weekday
/// are given, one of them is enough, as in cron.
///
/// # Guarantees
/// A *fixed-time* schedule, one whose minute and hour fields do not start with `*`, is due exactly
/// once for each local time that it names, also on the days on which clocks change: what falls
/// into a gap is due at the first instant after it, and of a time that comes twice the first one
/// counts. Every other schedule is due whenever the clock on the wall shows a time that fits, so
/// `*/15 * * * *` is due every 15 minutes through both changes.
///
/// # Examples
/// ```
/// use tenure_cron::Schedule;
///
/// // Clocks in Berlin go from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC.
/// let nightly = Schedule::new("30 2 * * *", "Europe/Berlin")?;
/// let at = |text: &str| tenure_cron::parse_instant(text, "UTC").unwrap();
/// assert_eq!(nightly.next_after(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T01:00:00Z")));
/// assert_eq!(nightly.next_after(at("2026-03-29T01:00:00Z")), Some(at("2026-03-30T00:30:00Z")));
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Schedule {
    text: String,
    cron: Cron,
    zone: TimeZone,
    zone_name: String,
    fixed: bool,
}

impl Schedule {
    /// Reads a schedule, for a zone of the IANA database such as `Europe/Berlin` or `UTC`.
    ///
    /// # Errors
    /// `Config`, with the field that is wrong, the zones of nearly that name, or that it never
    /// comes due.
    pub fn new(schedule: &str, zone: &str) -> Result<Schedule, Error> {
        let (cron, fixed) = fields::parse(schedule)?;
        let (zone, zone_name) = zone::find(zone)?;
        let text = schedule.trim().to_owned();
        let schedule = Schedule { text, cron, zone, zone_name, fixed };
        // Within 40 years every date and weekday that exist have come together.
        let from = DateTime::constant(2024, 1, 1, 0, 0, 0, 0);
        if schedule.civil_after(from, true).is_none_or(|first| first.year() > 2064) {
            return Err(Error::config(format!(
                "the schedule {:?} never comes due: there is no such day; fix its day and month",
                schedule.text
            )));
        }
        Ok(schedule)
    }

    /// The schedule as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of its zone.
    pub fn zone(&self) -> &str {
        &self.zone_name
    }

    /// The same words for the same schedule, for the ledger to know it by.
    pub(crate) fn words(&self) -> String {
        let fields: Vec<&str> = self.text.split_whitespace().collect();
        format!("{} {}", fields.join(" "), self.zone_name)
    }

    /// Whether it names times of the day, rather than distances.
    pub fn is_fixed_time(&self) -> bool {
        self.fixed
    }

    /// The first instant after this one at which it is due, in milliseconds of Unix time.
    pub fn next_after(&self, unix_ms: i64) -> Option<i64> {
        let after = Timestamp::from_millisecond(unix_ms).ok()?;
        let next = if self.fixed { self.next_fixed(after) } else { self.next_elapsed(after) }?;
        Some(next.as_millisecond())
    }

    /// The instants after `after` and up to `until`, in order: the last `most` of them.
    pub fn last_between(&self, after: i64, until: i64, most: usize) -> Vec<i64> {
        if most == 0 || self.next_after(after).is_none_or(|first| first > until) {
            return Vec::new();
        }
        // From the end backwards in ever longer windows: a gap may be long and ticks many.
        let mut window = 60_000_i64;
        loop {
            let from = until.saturating_sub(window).max(after);
            let mut found = std::collections::VecDeque::new();
            let mut at = from;
            while let Some(next) = self.next_after(at).filter(|next| *next <= until) {
                if found.len() == most {
                    found.pop_front();
                }
                found.push_back(next);
                at = next;
            }
            if found.len() == most || from == after {
                return found.into();
            }
            window = window.saturating_mul(8);
        }
    }

    /// How many instants there are after `after` and up to `until`; more than 10,000 are not
    /// counted.
    pub fn count_between(&self, after: i64, until: i64) -> usize {
        let mut at = after;
        let mut count = 0;
        while let Some(next) = self.next_after(at).filter(|next| *next <= until) {
            at = next;
            count += 1;
            if count == COUNT_MAX {
                break;
            }
        }
        count
    }

    /// Each civil time that fits is one instant: later civil times are never earlier instants.
    fn next_fixed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut civil = self.zone.to_datetime(after);
        loop {
            civil = self.civil_after(civil, false)?;
            let instant = self.instant_of(civil)?;
            if instant > after {
                return Some(instant);
            }
        }
    }

    /// The one instant that a civil time stands for in a fixed-time schedule.
    fn instant_of(&self, civil: DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(civil);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => ambiguous.unambiguous().ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
            // The change itself: by the clock before it, the civil time comes after the change.
            AmbiguousOffset::Gap { before, .. } => {
                let behind = before.to_timestamp(civil).ok()?;
                let change =
                    self.zone.preceding(behind.checked_add(SignedDuration::from_nanos(1)).ok()?);
                change.into_iter().next().map(|change| change.timestamp())
            }
        }
    }

    /// Between two changes of the zone, civil times and instants run in step.
    fn next_elapsed(&self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut inclusive) = (after, false);
        for _ in 0..CHANGES_MAX {
            let offset = self.zone.to_offset(from);
            let change = self.zone.following(from).next().map(|change| change.timestamp());
            let civil = self.civil_after(offset.to_datetime(from), inclusive)?;
            let found = offset.to_timestamp(civil).ok()?;
            match change {
                Some(change) if found >= change => (from, inclusive) = (change, true),
                _ => return Some(found),
            }
        }
        None
    }

    fn civil_after(&self, civil: DateTime, inclusive: bool) -> Option<DateTime> {
        self.cron.find_next_occurrence(&civil, inclusive).ok()
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({:?} in {})", self.text, self.zone_name)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads an instant: RFC 3339 with its offset, or a local time in this zone. In milliseconds of
/// Unix time.
///
/// # Errors
/// `Config` for what is no time, a zone that does not exist, and a local time that does not exist
/// or comes twice.
///
/// # Examples
/// ```
/// use tenure_cron::parse_instant;
///
/// assert_eq!(parse_instant("1970-01-01T01:00:01", "Europe/Berlin")?, 1_000);
/// assert!(parse_instant("2026-03-29T02:30:00", "Europe/Berlin").is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn parse_instant(text: &str, zone: &str) -> Result<i64, Error> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant.as_millisecond());
    }
    let civil: DateTime = text.parse().map_err(|_| {
        Error::config(format!(
            "{text:?} is no time; write it as 2026-03-29T02:30:00, or with an offset, as \
             2026-03-29T02:30:00+01:00"
        ))
    })?;
    let (zone, name) = zone::find(zone)?;
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => ambiguous
            .unambiguous()
            .map(|instant| instant.as_millisecond())
            .map_err(|_| Error::config(format!("{text:?} is out of range"))),
        AmbiguousOffset::Gap { before, after } => Err(Error::config(format!(
            "{text} does not exist in {name}: clocks go from {before} to {after} over it; give \
             another time"
        ))),
        AmbiguousOffset::Fold { before, after } => Err(Error::config(format!(
            "{text} comes twice in {name}; say which with an offset: {text}{before} or \
             {text}{after}"
        ))),
    }
}

/// An instant in RFC 3339, in UTC, as TENURE_SCHEDULED_AT has it.
///
/// # Examples
/// ```
/// assert_eq!(tenure_cron::show_instant(1_000), "1970-01-01T00:00:01Z");
/// ```
pub fn show_instant(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms).map_or_else(|_| unix_ms.to_string(), |at| at.to_string())
}

/// An instant as people in this zone read it: with the offset and the zone.
///
/// # Errors
/// `Config` for a zone that does not exist.
///
/// # Examples
/// ```
/// let shown = tenure_cron::show_local(1_000, "Europe/Berlin")?;
/// assert_eq!(shown, "1970-01-01T01:00:01+01:00[Europe/Berlin]");
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn show_local(unix_ms: i64, zone: &str) -> Result<String, Error> {
    let (zone, _) = zone::find(zone)?;
    let at = Timestamp::from_millisecond(unix_ms)
        .map_err(|_| Error::config(format!("the instant {unix_ms} ms is out of range")))?;
    Ok(at.to_zoned(zone).to_string())
}

#[cfg(test)]
mod tests;
