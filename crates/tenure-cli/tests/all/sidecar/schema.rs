//! schemathesis makes up requests from the description and looks for answers that it does not name.

use std::fs;
use std::process::Command;

use super::instance::{Instance, TOKEN};
use crate::support::Place;

/// Makes it ask about the election that there is. Whoever was asked to resign answers 503 for a
/// while, which is what it should; any other server error is one.
const KNOWN: &str = r#"
[parameters]
"path.name" = "job"

[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]
"#;

/// Runs it on a new instance, with so many examples for each operation; tells how many cases it
/// made of that.
fn run(examples: u32, known: bool) -> u32 {
    let place = Place::new();
    let metadata = r#"{"url": "http://127.0.0.1:9/x"}"#;
    let more = ["-e", "job", "--ttl", "3s", "--metadata", metadata];
    let instance = Instance::start(&place, "web-1", &more);
    instance.leads();
    let program = std::env::var("TENURE_TEST_SCHEMATHESIS").expect("xtask names the program");
    let mut command = Command::new(program);
    command.args(["run", &format!("http://{}/openapi.json", instance.at)]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    command.args(["--max-examples", &examples.to_string(), "--seed", "7"]);
    command.args(["--generation-database", "none", "--suppress-health-check", "all"]);
    // The stream never ends; other tests read it.
    command.args(["--exclude-path", "/events", "--request-timeout", "20", "--no-color"]);
    if known {
        fs::write(place.path("schemathesis.toml"), KNOWN).unwrap();
        // It takes a wrong name for sent when it was told which one to send.
        command.args(["--exclude-checks", "negative_data_rejection"]);
    }
    let output = command.current_dir(place.dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(instance.get("/healthz").status, 200, "it is unharmed");
    let generated =
        text.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse().ok());
    generated.unwrap_or_else(|| panic!("how many cases there were is not told: {text}"))
}

#[needs(schemathesis)]
#[test]
fn needs_schemathesis_no_answer_is_undocumented() {
    let cases = run(15, false) + run(15, true);
    assert!(cases >= 400, "only {cases} cases were tried");
}

#[needs(long, schemathesis)]
#[test]
fn long_schemathesis_no_answer_is_undocumented_in_5000_cases() {
    let cases = run(500, false) + run(500, true);
    assert!(cases >= 5000, "only {cases} cases were tried");
}
