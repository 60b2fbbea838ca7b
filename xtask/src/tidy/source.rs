//! Rust source without its comments and literals, and where its tests are.
//!
//! This is no parser. It knows enough of the language to tell code from text, and to find the end
//! of a block.

use std::ops::Range;

/// `text` with comments, strings and characters blanked. Lines keep their numbers.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let Some(end) = end_of_text(&chars, at) else {
            code.push(chars[at]);
            at += 1;
            continue;
        };
        let end = end.min(chars.len());
        code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    code
}

/// If a comment or a literal starts at `at`, where it ends.
fn end_of_text(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => Some(find(chars, at, &['\n']).unwrap_or(chars.len())),
        '/' if next == Some('*') => Some(end_of_block_comment(chars, at)),
        '"' => Some(end_of_string(chars, at)),
        'r' | 'b' | 'c' if at == 0 || !is_word(chars[at - 1]) => end_of_raw_string(chars, at),
        // `'a'` is a character, `'a` a lifetime.
        '\'' if next == Some('\\') => find(chars, at + 3, &['\'']).map(|end| end + 1),
        '\'' if chars.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            }
            _ => at += 1,
        }
    }
    at
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The end of `r"…"`, `r#"…"#`, `br"…"` and so on, if one starts at `start`.
fn end_of_raw_string(chars: &[char], start: usize) -> Option<usize> {
    let after_prefix = match (chars[start], chars.get(start + 1)) {
        ('r', _) => start + 1,
        ('b' | 'c', Some('r')) => start + 2,
        _ => return None,
    };
    let hashes = chars[after_prefix..].iter().take_while(|c| **c == '#').count();
    let quote = after_prefix + hashes;
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let mut end: Vec<char> = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    Some(find(chars, quote + 1, &end).map_or(chars.len(), |at| at + end.len()))
}

/// Where `what` first occurs at or after `start`.
fn find(chars: &[char], start: usize, what: &[char]) -> Option<usize> {
    let rest = chars.get(start..)?;
    rest.windows(what.len()).position(|window| window == what).map(|at| start + at)
}

/// Whether `c` can be part of a name.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The number of the line that holds `offset`, counted from 1.
pub(super) fn line_of(code: &str, offset: usize) -> usize {
    code[..offset].matches('\n').count() + 1
}

/// Where the word `word` stands in `code`.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The block that belongs to an item whose text starts at `start`: from its `{` to behind its `}`.
/// Nothing if the item ends with a semicolon.
pub(super) fn block_after(code: &str, start: usize) -> Option<Range<usize>> {
    let mut open_at = None;
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if open_at.is_none() && brackets == 0 => return None,
            '{' => {
                open_at = open_at.or(Some(start + at));
                braces += 1;
            }
            '}' => {
                braces = braces.checked_sub(1)?;
                if braces == 0 {
                    return open_at.map(|open| open..start + at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The items that exist for tests only, each from its attribute to its end.
pub(super) fn test_items(code: &str) -> Vec<Range<usize>> {
    let attributes = code.match_indices("#[").map(|(at, _)| at);
    let mut items: Vec<Range<usize>> = Vec::new();
    for start in attributes {
        let Some(length) = code[start..].find(']') else { break };
        let end = start + length + 1;
        let inside_another = items.last().is_some_and(|item| item.contains(&start));
        if !inside_another && is_for_tests(&code[start..end]) {
            let block = block_after(code, end);
            items.extend(block.map(|block| start..block.end));
        }
    }
    items
}

fn is_for_tests(attribute: &str) -> bool {
    let is_cfg = attribute.starts_with("#[cfg(") && !attribute.contains("not(test)");
    attribute == "#[test]" || (is_cfg && words(attribute, "test").next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_nothing_else() {
        for (text, words) in [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            (r#"f("}\"{", 1)"#, "f( , 1)"),
            (r##"r#"}"{"# + r#fn"##, "+ r#fn"),
            ("br\"{\" b'{' b\"{\" c", "b b c"),
            ("<'a> '{' '\\'' '\\u{7b}' 'b", "<'a> 'b"),
            ("for x in var\"{\"", "for x in var"),
        ] {
            let code = code_only(text);
            assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), words, "{text}");
            assert_eq!(code.chars().count(), text.chars().count(), "{text}");
            assert_eq!(code.find('\n'), text.find('\n'), "{text}");
        }
    }

    #[test]
    fn unfinished_text_reaches_to_the_end() {
        for text in ["\"abc", "/* abc", "r#\"abc\"", "\"abc\\", "'\\"] {
            assert_eq!(code_only(text).chars().count(), text.chars().count(), "{text}");
        }
    }

    #[test]
    fn a_block_is_found_behind_arrays_and_not_for_declarations() {
        let code = "fn f(a: [u8; 2]) -> [u8; 2] { { } } fn g();";
        let block = block_after(code, 0).unwrap();
        assert_eq!(&code[block], "{ { } }");
        assert_eq!(block_after(code, code.find("fn g").unwrap()), None);
    }

    #[test]
    fn items_for_tests_are_found_with_their_attributes() {
        for (code, count) in [
            ("#[cfg(test)]\nmod tests { #[test] fn a() {} }", 1),
            ("#[cfg(all(test, unix))]\n#[allow(x)]\nmod tests { }", 1),
            ("#[test]\nfn a() {}", 1),
            ("#[cfg(test)]\nmod tests;\nfn a() {}", 0),
            ("#[cfg(not(test))]\nmod real { }", 0),
            ("#[cfg(feature)]\nmod attested { }", 0),
        ] {
            assert_eq!(test_items(code).len(), count, "{code}");
        }
    }
}
