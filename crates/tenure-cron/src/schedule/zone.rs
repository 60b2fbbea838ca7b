//! Time zones by name, and the names that somebody may have meant.

use jiff::tz::TimeZone;
use tenure_core::Error;

/// How many names are offered.
const OFFERS: usize = 3;

/// The zone of this name, and its name as the database writes it.
pub(super) fn find(name: &str) -> Result<(TimeZone, String), Error> {
    let known = jiff::tz::db().get(name).ok().filter(|_| !name.is_empty());
    match known {
        Some(zone) => {
            let written = zone.iana_name().unwrap_or(name).to_owned();
            Ok((zone, written))
        }
        None => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let offers = nearest(name);
    let what = if offers.is_empty() {
        "give one of the IANA database, such as Europe/Berlin or UTC".to_owned()
    } else {
        format!("did you mean {}?", offers.join(", "))
    };
    Error::config(format!("there is no time zone {name:?}; {what}"))
}

/// The names that are nearly this one, the nearest first.
fn nearest(name: &str) -> Vec<String> {
    let wanted = name.to_lowercase().replace(' ', "_");
    let mut ranked: Vec<(usize, String)> = jiff::tz::db()
        .available()
        .map(|known| known.as_str().to_owned())
        .filter_map(|known| {
            let lower = known.to_lowercase();
            // A city is often given without its continent.
            let city = lower.rsplit('/').next().unwrap_or(&lower);
            let given = wanted.rsplit('/').next().unwrap_or(&wanted);
            let whole = distance(&wanted, &lower);
            let far = whole.min(distance(given, city) + usize::from(city != given));
            (far <= 1 + wanted.chars().count() / 4).then_some((far * 100 + whole.min(99), known))
        })
        .collect();
    ranked.sort();
    ranked.dedup();
    ranked.into_iter().take(OFFERS).map(|(_, known)| known).collect()
}

/// How many letters must be changed, added or left out.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = index + 1;
        for (place, known) in other.iter().enumerate() {
            let swap = before + usize::from(letter != *known);
            before = row[place + 1];
            row[place + 1] = swap.min(row[place] + 1).min(before + 1);
        }
    }
    row[other.len()]
}
