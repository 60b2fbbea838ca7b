//! Durations as people write them: `500ms`, `2s`, `1m30s`.

use std::time::Duration;

use crate::Error;

const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// Reads a duration such as `500ms`, `2s` or `1m30s`; a bare number is refused.
///
/// # Errors
/// `Config`, saying what a duration looks like.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_core::parse_duration;
///
/// assert_eq!(parse_duration("1m30s")?, Duration::from_secs(90));
/// assert!(parse_duration("30").unwrap_err().to_string().contains("30s or 30ms"));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    let bad =
        || Error::config(format!("{text:?} is not a duration; write it as 500ms, 2s or 1m30s"));
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::config(format!(
            "{text:?} has no unit; did you mean {text}s or {text}ms?"
        )));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut coarsest_left = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[..letters];
        rest = &rest[letters..];
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        if *nanos >= coarsest_left {
            return Err(bad());
        }
        coarsest_left = *nanos;
        total = number.checked_mul(*nanos).and_then(|n| total.checked_add(n)).ok_or_else(bad)?;
    }
    if text.is_empty() { Err(bad()) } else { Ok(Duration::from_nanos(total)) }
}

/// Writes a duration the way [`parse_duration`] reads it, in whole units.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_core::show_duration;
///
/// assert_eq!(show_duration(Duration::from_millis(90_500)), "1m30s500ms");
/// assert_eq!(show_duration(Duration::ZERO), "0s");
/// ```
pub fn show_duration(span: Duration) -> String {
    let mut left = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, nanos) in UNITS.iter().rev() {
        if left >= *nanos {
            text.push_str(&format!("{}{unit}", left / nanos));
            left %= nanos;
        }
    }
    text
}

/// Writes a duration to the millisecond, or to a tenth of a second where that is enough.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_core::show_rounded;
///
/// assert_eq!(show_rounded(Duration::from_micros(2_345_678)), "2s300ms");
/// assert_eq!(show_rounded(Duration::from_micros(45_678)), "45ms");
/// ```
pub fn show_rounded(span: Duration) -> String {
    let step_ms = if span >= Duration::from_secs(1) { 100 } else { 1 };
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX) / step_ms * step_ms;
    show_duration(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for nanos in [1, 999, 1_000, 5_000_000, 30_000_000_000, 86_400_000_000_000, u64::MAX] {
            let span = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&show_duration(span)).unwrap(), span);
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        for bad in ["", "s", "5", "-1s", "1.5s", "5x", "1s2m", "1s1s", " 1s", "99999999999h", "5µs"]
        {
            let error = parse_duration(bad).unwrap_err().to_string();
            assert!(error.contains("write it as") || error.contains("did you mean"), "{error}");
        }
    }
}
