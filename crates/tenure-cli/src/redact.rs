//! Keeps secrets out of everything that is written.
//!
//! Every line passes through here on its way out, whoever composed it: a URL that found its way
//! into an error of some library is caught too.

use std::borrow::Cow;
use std::sync::OnceLock;

const STARS: &str = "***";

/// Shorter than this a password can't be told from ordinary text; its URL is still recognised.
const SECRET_MIN: usize = 4;

static SECRET: OnceLock<String> = OnceLock::new();

/// Remembers the password of the store's URL, so that it is found outside of URLs as well.
pub(crate) fn remember(url: &str) {
    if let Some(password) = password_in(url).filter(|password| password.len() >= SECRET_MIN) {
        // The first one counts: there is one store per process.
        let _ = SECRET.set(password.to_owned());
    }
}

/// The password in a URL, if it has one.
pub(crate) fn password_in(url: &str) -> Option<&str> {
    let start = url.find("://")? + 3;
    let (from, to) = password_span(&url[start..], is_web(&url[..start]))?;
    Some(&url[start + from..start + to]).filter(|password| !password.is_empty())
}

/// The text without the passwords of URLs in it.
pub(crate) fn redact(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    if let Some(secret) = SECRET.get()
        && text.contains(secret.as_str())
    {
        text = Cow::Owned(text.replace(secret.as_str(), STARS));
    }
    for mark in ["://", "password="] {
        if text.contains(mark) {
            text = Cow::Owned(redact_after(&text, mark));
        }
    }
    text
}

fn redact_after(text: &str, mark: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(found) = rest.find(mark) {
        let (before, after) = rest.split_at(found + mark.len());
        clean.push_str(before);
        rest = after;
        let span =
            if mark == "://" { password_span(after, is_web(before)) } else { value_span(after) };
        if let Some((from, to)) = span {
            clean.push_str(&after[..from]);
            clean.push_str(STARS);
            rest = &after[to..];
        }
    }
    clean.push_str(rest);
    clean
}

/// Whether a text ends in the scheme of a page, which has no user in front of its host.
fn is_web(up_to_scheme: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| up_to_scheme.ends_with(scheme))
}

/// Where the password stands in `user:password@host/...`.
fn password_span(after_scheme: &str, is_web: bool) -> Option<(usize, usize)> {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '`' | '<' | '>');
    let url = &after_scheme[..after_scheme.find(ends).unwrap_or(after_scheme.len())];
    // The last one: a password that was not escaped may have an @ or a / in it.
    let at = url.rfind('@')?;
    let colon = url[..at].find(':')?;
    let port = url[colon + 1..].split(['/', '?', '#', ',']).next().unwrap_or_default();
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    // `http://host:8080/path@x` has an @ but nothing to hide. A password of a store may look like
    // that: `12?x`, not escaped.
    let hides = !(is_web && is_port && colon + 1 + port.len() < at);
    hides.then_some((colon + 1, at))
}

fn value_span(after_mark: &str) -> Option<(usize, usize)> {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '&' | '"' | '\'' | '#');
    let end = after_mark.find(ends).unwrap_or(after_mark.len());
    (end > 0).then_some((0, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_hidden_wherever_they_stand() {
        for (text, clean) in [
            ("postgres://u:hunter2@h/db", "postgres://u:***@h/db"),
            ("see postgres://u:hunter2@h/db, or", "see postgres://u:***@h/db, or"),
            ("redis://:hunter2@h:6379/0", "redis://:***@h:6379/0"),
            ("postgres://u:hun/te@r2@h/db", "postgres://u:***@h/db"),
            ("\"a://u:x1@h\" and b://v:y2@g", "\"a://u:***@h\" and b://v:***@g"),
            ("redis://u:12?hunter2@h/0", "redis://u:***@h/0"),
            ("redis://u:12/hunter2@h:1/0", "redis://u:***@h:1/0"),
            ("redis+sentinel://u:pw@h1:1,h2:2/m/0", "redis+sentinel://u:***@h1:1,h2:2/m/0"),
            ("postgres://h/db?user=a&password=pw&x=1", "postgres://h/db?user=a&password=***&x=1"),
            ("postgres://h/db?sslpassword=pw", "postgres://h/db?sslpassword=***"),
        ] {
            assert_eq!(redact(text), clean);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "",
            "sqlite:/var/lib/x.db",
            "http://10.0.0.7:8080/a@b",
            "postgres://user@host:5432/db",
            "mail a@b.c: hello",
            "://",
            "postgres://u:@h",
        ] {
            let kept = if text.ends_with(":@h") { "postgres://u:***@h" } else { text };
            assert_eq!(redact(text), kept);
        }
    }

    #[test]
    fn the_password_of_a_url_is_found() {
        assert_eq!(password_in("postgres://u:hunter2@h/db"), Some("hunter2"));
        assert_eq!(password_in("postgres://u@h/db"), None);
        assert_eq!(password_in("postgres://u:@h/db"), None);
        assert_eq!(password_in("sqlite:x.db"), None);
    }
}
