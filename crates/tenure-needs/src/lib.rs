//! `#[needs(...)]`: how a test says that it needs more than Rust. Never published.
//!
//! A plain `cargo test` must pass anywhere, so a test that needs root, a program, a server or a
//! long time is ignored. `cargo xtask test` provides what it needs and runs it. It chooses tests by
//! their names, because names are all that a test binary lists: `needs_postgres_...`, `long_...`.
//! So the attribute and the name say the same, or the test does not compile.
//!
//! A test binary has `#[macro_use] extern crate tenure_needs;` once, in its `main.rs`.

use proc_macro::{Delimiter, Ident, Span, TokenStream, TokenTree};

/// What a test can need, and how the reason for ignoring it calls that.
const NEEDS: [(&str, &str); 11] = [
    ("browser", "Chromium and chromedriver"),
    ("faketime", "libfaketime (Debian package faketime)"),
    ("netns", "root, network namespaces, nft and a Redis server"),
    ("postgres", "a PostgreSQL server"),
    ("postgrest", "a PostgreSQL server and PostgREST"),
    ("promtool", "promtool"),
    ("redis", "a Redis server"),
    ("root", "root"),
    ("schemathesis", "schemathesis"),
    ("stores", "a PostgreSQL server and a Redis server"),
    ("wrk", "wrk (Debian package wrk)"),
];

/// The word of a test that takes minutes. It comes first.
const LONG: &str = "long";

/// Ignores a test that needs one of: `browser`, `faketime`, `netns`, `postgres`, `postgrest`,
/// `promtool`, `redis`, `root`, `schemathesis`, `stores`, `wrk`; or that takes minutes: `long`,
/// alone or before one of these. It stands above the attribute that makes the function a test.
///
/// ```
/// use tenure_needs::needs;
///
/// #[needs(postgres)]
/// #[test]
/// fn needs_postgres_a_row_is_locked() {}
///
/// #[needs(long, redis)]
/// #[test]
/// fn long_redis_a_thousand_rounds() {}
/// ```
///
/// The name must say the same:
///
/// ```compile_fail
/// # use tenure_needs::needs;
/// #[needs(postgres)]
/// #[test]
/// fn needs_redis_a_row_is_locked() {}
/// ```
///
/// A function that is no test is refused, and so is one with `#[test]` above, which would have been
/// made a test before it is ignored:
///
/// ```compile_fail
/// # use tenure_needs::needs;
/// # fn main() {}
/// #[needs(postgres)]
/// fn needs_postgres_a_row_is_locked() {}
/// ```
#[allow(clippy::test_attr_in_doctest, reason = "it shows how a test is written")]
#[proc_macro_attribute]
pub fn needs(words: TokenStream, item: TokenStream) -> TokenStream {
    let words: Vec<String> = words
        .into_iter()
        .filter(|token| !matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','))
        .map(|token| token.to_string())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(name) = name(&item) else {
        return refusal("`#[needs(...)]` belongs on a test function", Span::call_site());
    };
    if !is_test(&item) {
        return refusal("put `#[needs(...)]` above the attribute `#[test]`", name.span());
    }
    match reason(&words, &name.to_string()) {
        Ok(reason) => [code(&format!("#[ignore = {reason:?}]")), item].into_iter().collect(),
        Err(why) => refusal(&why, name.span()),
    }
}

/// Why a test that needs this is ignored, or what is wrong with its words or its name.
fn reason(words: &[&str], name: &str) -> Result<String, String> {
    let (long, need) = match words {
        [LONG] => (true, None),
        [LONG, need] => (true, Some(*need)),
        [need] => (false, Some(*need)),
        _ => return Err("`#[needs(...)]` takes one need, `long`, or `long` and one need".into()),
    };
    let known = |word: &str| NEEDS.iter().find(|(known, _)| *known == word);
    let what = match need {
        None => None,
        Some(need) => Some(known(need).ok_or_else(|| {
            let known: Vec<&str> = NEEDS.iter().map(|(word, _)| *word).collect();
            format!("`{need}` is no need; there are {LONG}, {}", known.join(", "))
        })?),
    };
    let mut prefix = if long { "long_" } else { "needs_" }.to_owned();
    if let Some(need) = need {
        prefix += &format!("{need}_");
    }
    let Some(rest) = name.strip_prefix(&prefix) else {
        return Err(format!("the name of this test must start with `{prefix}`"));
    };
    if need.is_none()
        && let Some((also, _)) = rest.split_once('_').and_then(|(word, _)| known(word))
    {
        return Err(format!(
            "by its name this test needs {also}: write `#[needs({LONG}, {also})]`"
        ));
    }
    Ok(match (long, what) {
        (true, Some((_, what))) => format!("takes minutes, and needs {what}"),
        (false, Some((_, what))) => format!("needs {what}"),
        (_, None) => "takes minutes".to_owned(),
    })
}

/// The name of the function that `item` is.
fn name(item: &TokenStream) -> Option<Ident> {
    let mut tokens = item.clone().into_iter();
    tokens.find(|token| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn"))?;
    match tokens.next() {
        Some(TokenTree::Ident(name)) => Some(name),
        _ => None,
    }
}

/// Whether an attribute that is still to come makes a test of `item`: `#[test]`, `#[tokio::test]`.
fn is_test(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
            let path = group.stream().into_iter();
            let path = path.take_while(|token| !matches!(token, TokenTree::Group(_)));
            path.last().is_some_and(|word| word.to_string() == "test")
        }
        _ => false,
    })
}

/// An error of the compiler at `span`.
fn refusal(why: &str, span: Span) -> TokenStream {
    let at_span = |mut token: TokenTree| {
        token.set_span(span);
        token
    };
    code(&format!("compile_error! {{ {why:?} }}")).into_iter().map(at_span).collect()
}

fn code(text: &str) -> TokenStream {
    text.parse().expect("the text is written here and is Rust")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_says_what_is_needed() {
        let cases: [(&[&str], &str, &str); 4] = [
            (&["root"], "needs_root_a_disk_is_full", "needs root"),
            (&["postgres"], "needs_postgres_a", "needs a PostgreSQL server"),
            (&["long"], "long_soak", "takes minutes"),
            (&["long", "redis"], "long_redis_a", "takes minutes, and needs a Redis server"),
        ];
        for (words, name, said) in cases {
            assert_eq!(reason(words, name).as_deref(), Ok(said), "{name}");
        }
    }

    #[test]
    fn a_test_whose_name_says_something_else_is_refused() {
        let cases: [(&[&str], &str, &str); 8] = [
            (&["postgres"], "needs_redis_a", "must start with `needs_postgres_`"),
            (&["postgres"], "a_row_is_locked", "must start with `needs_postgres_`"),
            (&["postgres"], "long_postgres_a", "must start with `needs_postgres_`"),
            (&["long", "postgres"], "needs_postgres_a", "must start with `long_postgres_`"),
            (&["long"], "long_redis_a", "write `#[needs(long, redis)]`"),
            (&["rediss"], "needs_rediss_a", "`rediss` is no need"),
            (&["redis", "long"], "needs_redis_a", "takes one need"),
            (&[], "needs_a", "takes one need"),
        ];
        for (words, name, said) in cases {
            let why = reason(words, name).unwrap_err();
            assert!(why.contains(said), "{name}: {why}");
        }
    }
}
