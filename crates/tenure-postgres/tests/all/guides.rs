//! The code in the guides for people who move over, as far as it can be run without their drivers.

use std::fs;
use std::process::Command;

const TABLE: &str = include_str!("../../../../docs/moving-from-table.md");
const ADVISORY: &str = include_str!("../../../../docs/moving-from-advisory.md");

/// The first piece of code in this language.
fn code<'a>(guide: &'a str, language: &str) -> &'a str {
    let begin = format!("```{language}\n");
    let (_, rest) = guide.split_once(&begin).expect("there is some");
    rest.split_once("```").expect("it ends").0
}

#[test]
fn the_python_of_the_guides_outlives_every_error_and_leaves_no_session_open() {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("election.py", code(TABLE, "python")),
        ("bridge.py", code(ADVISORY, "python")),
        ("psycopg.py", include_str!("guides/psycopg.py")),
        ("check.py", include_str!("guides/check.py")),
    ] {
        fs::write(home.path().join(name), text).unwrap();
    }
    let Ok(ran) = Command::new("python3").arg("check.py").current_dir(home.path()).output() else {
        println!("skipped: there is no python3");
        return;
    };
    let says = String::from_utf8_lossy(&ran.stdout);
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && says.contains("the guides are well"), "{says}{error}");
}
