//! The page for people: one document, with its style and its script in it.
//!
//! It may run that script and no other, and talk to this service alone: the policy names both by
//! their hashes.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::reply;

const DOCUMENT: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

static PAGE: LazyLock<String> =
    LazyLock::new(|| DOCUMENT.replacen("/*STYLE*/", STYLE, 1).replacen("/*SCRIPT*/", SCRIPT, 1));

static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// Answers with the page.
pub(crate) async fn answer() -> Response {
    let mut response = reply::with_type(StatusCode::OK, "text/html; charset=utf-8", PAGE.as_str());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_loads_nothing_from_elsewhere() {
        assert!(PAGE.contains(STYLE) && PAGE.contains(SCRIPT));
        assert!(!PAGE.contains("http://") && !PAGE.contains("https://"), "one document");
        assert!(!PAGE.contains("style=\"") && !PAGE.contains("onclick="), "the policy forbids it");
        assert!(!SCRIPT.contains("innerHTML"), "what others wrote is text, never markup");
    }
}
