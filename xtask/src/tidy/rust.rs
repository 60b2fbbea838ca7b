//! Checks of Rust files: sizes, tests that wait or never run, unfinished code.

use super::source::{block_after, code_only, is_word, line_of, test_items, words};
use super::{Finding, SourceFile};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Calls that make a test wait instead of driving time.
const SLEEPS: [&str; 2] = ["thread::sleep", "time::sleep"];

/// The comment that excuses a sleep.
const SLEEP_EXCUSE: &str = "// tidy: sleep because ";

/// The comment that excuses a place which lets time pass by a timeout of nothing.
const PAUSE_EXCUSE: &str = "// tidy: the one pause of this crate";

/// All checks of one file.
pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    if file.extension() != "rs" {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let mut findings = Vec::new();
    if !file.is_test() {
        findings.extend(check_file_size(file, &code));
        findings.extend(check_function_sizes(file, &code));
        findings.extend(check_cancel_safety(file));
    }
    findings.extend(check_sleeps(file, &code));
    findings.extend(check_pauses(file, &code));
    findings.extend(check_ignores(file, &code));
    findings.extend(check_unfinished(file, &code));
    findings
}

/// Tests at the end of the file do not count.
fn check_file_size(file: &SourceFile, code: &str) -> Option<Finding> {
    let counted = match test_items(code).last() {
        Some(item) if code[item.end..].trim().is_empty() => &code[..item.start],
        _ => code,
    };
    let lines = counted.lines().count();
    (lines > FILE_LINES_MAX).then(|| {
        file.finding(
            FILE_LINES_MAX + 1,
            format!("the file has {lines} lines without its tests; {FILE_LINES_MAX} is the limit"),
        )
    })
}

fn check_function_sizes(file: &SourceFile, code: &str) -> Vec<Finding> {
    let tests = test_items(code);
    let mut findings = Vec::new();
    for start in words(code, "fn") {
        let rest = code[start + 2..].trim_start();
        let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
        // A type such as `fn(u8) -> u8` has no name.
        if name.is_empty() || tests.iter().any(|item| item.contains(&start)) {
            continue;
        }
        let Some(block) = block_after(code, start) else { continue };
        let first = line_of(code, start);
        let lines = line_of(code, block.end) - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let what = format!("`{name}` has {lines} lines; {FUNCTION_LINES_MAX} is the limit");
            findings.push(file.finding(first, what));
        }
    }
    findings
}

/// A caller that drops a future must know what that leaves behind.
fn check_cancel_safety(file: &SourceFile) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !line.starts_with("pub async fn ") {
            continue;
        }
        let is_doc = |line: &&&str| line.starts_with("///") || line.starts_with("#[");
        let mut docs = lines[..index].iter().rev().take_while(is_doc);
        if !docs.any(|line| line.ends_with("# Cancel safety")) {
            let what = "a public async function says `# Cancel safety` in its docs";
            findings.push(file.finding(index + 1, what));
        }
    }
    findings
}

/// Time is driven in tests. Those that must wait for the world say why.
fn check_sleeps(file: &SourceFile, code: &str) -> Vec<Finding> {
    let tests = test_items(code);
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for sleep in SLEEPS {
        for (at, _) in code.match_indices(sleep) {
            let in_test = file.is_test() || tests.iter().any(|item| item.contains(&at));
            let line = line_of(code, at);
            let excused = |line: usize| {
                let text = line.checked_sub(1).and_then(|index| lines.get(index));
                text.is_some_and(|text| text.contains(SLEEP_EXCUSE))
            };
            if in_test && !excused(line) && !excused(line - 1) {
                let what = format!(
                    "`{sleep}` in a test; drive the clock, or say `{SLEEP_EXCUSE}...` beside it"
                );
                findings.push(file.finding(line, what));
            }
        }
    }
    findings
}

/// A timeout around something that never comes is a sleep by another name.
fn check_pauses(file: &SourceFile, code: &str) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for call in ["timeout(", "timeout_at("] {
        for (at, _) in code.match_indices(call) {
            let statement = &code[at..];
            let statement = &statement[..statement.find(';').unwrap_or(statement.len())];
            let line = line_of(code, at);
            let excused = [line.saturating_sub(2), line - 1]
                .iter()
                .any(|index| lines.get(*index).is_some_and(|text| text.contains(PAUSE_EXCUSE)));
            if ["pending()", "pending::<()>()"].iter().any(|never| statement.contains(never))
                && !excused
            {
                let what = format!("a sleep by another name; if it must be, say `{PAUSE_EXCUSE}`");
                findings.push(file.finding(line, what));
            }
        }
    }
    findings
}

fn check_ignores(file: &SourceFile, code: &str) -> Vec<Finding> {
    let is_attribute = |at: &usize| {
        let before = code[..*at].trim_end();
        let after = code[at + "ignore".len()..].trim_start();
        before.ends_with("#[")
            || before.ends_with(',') && (after.starts_with(")]") || after.starts_with('='))
    };
    let what = "a test that can't run anywhere says what it needs: `#[needs(...)]`";
    let found = words(code, "ignore").filter(is_attribute);
    found.map(|at| file.finding(line_of(code, at), what)).collect()
}

fn check_unfinished(file: &SourceFile, code: &str) -> Vec<Finding> {
    let is_macro = |at: &usize| code[at + "todo".len()..].starts_with('!');
    let what = "unfinished code: write it, or open an issue and leave it out";
    words(code, "todo").filter(is_macro).map(|at| file.finding(line_of(code, at), what)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    const LIB: &str = "crates/a/src/lib.rs";
    const TEST: &str = "crates/a/tests/a.rs";

    fn of(path: &str, text: &str) -> Vec<String> {
        findings_of(check, path, text)
    }

    #[test]
    fn files_have_at_most_500_lines() {
        assert!(of(LIB, &"\n".repeat(500)).is_empty());
        assert_eq!(
            of(LIB, &"\n".repeat(501)),
            ["501: the file has 501 lines without its tests; 500 is the limit"]
        );
        assert!(of(TEST, &"\n".repeat(501)).is_empty());
        assert!(of("README.md", &"\n".repeat(501)).is_empty());
    }

    #[test]
    fn tests_at_the_end_of_a_file_do_not_count() {
        let tests = format!("#[cfg(test)]\nmod tests {{{}}}\n", "\n".repeat(400));
        assert!(of(LIB, &format!("{}{tests}", "\n".repeat(490))).is_empty());
        assert_eq!(of(LIB, &format!("{}{tests}", "\n".repeat(501))).len(), 1);
        assert_eq!(of(LIB, &format!("{}{tests}struct A;\n", "\n".repeat(400))).len(), 1);
    }

    #[test]
    fn functions_have_at_most_70_lines() {
        let function = |lines: usize| format!("\nfn f() {{{}}}\n", "\n".repeat(lines - 1));
        assert!(of(LIB, &function(70)).is_empty());
        assert_eq!(of(LIB, &function(71)), ["2: `f` has 71 lines; 70 is the limit"]);
        assert!(of(TEST, &function(71)).is_empty());
        let in_tests = format!("#[cfg(test)]\nmod tests {{{}}}", function(71));
        assert!(of(LIB, &in_tests).is_empty());
    }

    #[test]
    fn braces_in_text_do_not_confuse_the_count() {
        let body = "let a = \"{\"; // {\n".repeat(30);
        let rest = "\n".repeat(100);
        assert!(of(LIB, &format!("fn f() {{\n{body}}}\n{rest}fn g() {{}}\n")).is_empty());
    }

    #[test]
    fn public_async_functions_tell_their_cancel_safety() {
        let silent = "/// Waits.\npub async fn wait() {}\n";
        assert_eq!(of("src/a.rs", silent).len(), 1);
        let told =
            "/// Waits.\n///\n/// # Cancel safety\n/// Yes.\n#[inline]\npub async fn a() {}\n";
        assert!(of("src/a.rs", told).is_empty());
        assert!(of("src/a.rs", "pub(crate) async fn a() {}\n").is_empty());
        assert!(of("tests/a.rs", silent).is_empty());
    }

    #[test]
    fn a_timeout_around_nothing_is_a_sleep() {
        let pause = "async fn a() { let _ = timeout(D, pending::<()>()).await; }";
        assert_eq!(of(LIB, pause).len(), 1);
        assert_eq!(of(TEST, pause).len(), 1);
        assert!(of(LIB, &format!("{PAUSE_EXCUSE}\n{pause}")).is_empty());
        assert!(
            of(LIB, "async fn a() { timeout(D, b()).await; pending::<()>().await }").is_empty()
        );
    }

    #[test]
    fn tests_do_not_sleep() {
        let sleep = "fn a() { std::thread::sleep(D); }";
        assert_eq!(of(TEST, sleep).len(), 1);
        assert_eq!(of(TEST, "async fn a() { tokio::time::sleep(D).await; }").len(), 1);
        assert_eq!(of(LIB, &format!("#[cfg(test)]\nmod tests {{ {sleep} }}")).len(), 1);
        assert!(of(LIB, sleep).is_empty());
        assert!(of(TEST, "// thread::sleep is bad\nfn a() {}").is_empty());
        assert!(of(TEST, &format!("{sleep} // tidy: sleep because it must")).is_empty());
        assert!(of(TEST, &format!("// tidy: sleep because it must\n{sleep}")).is_empty());
    }

    #[test]
    fn ignored_tests_say_what_they_need() {
        assert_eq!(of(TEST, "#[test]\n#[ignore]\nfn a() {}").len(), 1);
        assert_eq!(of(TEST, "#[ignore = \"needs root\"]\nfn a() {}").len(), 1);
        assert_eq!(of(TEST, "#[cfg_attr(unix, ignore)]\nfn a() {}").len(), 1);
        assert_eq!(of(TEST, "#[cfg_attr(unix, ignore = \"a\")]\nfn a() {}").len(), 1);
        assert!(of(TEST, "#[needs(root)]\n#[test]\nfn needs_root_a() {}").is_empty());
        assert!(of(TEST, "fn a() { let ignore = [ignore]; b(c, ignore); }").is_empty());
    }

    #[test]
    fn code_is_finished() {
        assert_eq!(of(LIB, "fn a() {\n    todo!()\n}").len(), 1);
        assert!(of(LIB, "fn a(todo: u8) -> bool { todo != \"todo!\" }").is_empty());
    }
}
