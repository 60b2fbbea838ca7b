//! schemathesis makes up requests from the description and looks for answers that it does not name.

use std::fs;
use std::process::Command;

use crate::instance::{Instance, TOKEN};
use crate::support::Place;

/// Runs it on a new instance; `known` makes it ask about the election that there is.
fn run(cases: u32, known: bool) {
    let place = Place::new();
    let metadata = r#"{"url": "http://127.0.0.1:9/x"}"#;
    let more = ["-e", "job", "--ttl", "3s", "--metadata", metadata];
    let instance = Instance::start(&place, "web-1", &more);
    instance.leads();
    let program = std::env::var("TENURE_TEST_SCHEMATHESIS").expect("xtask names the program");
    let mut command = Command::new(program);
    command.args(["run", &format!("http://{}/openapi.json", instance.at)]);
    command.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    command.args(["--max-examples", &cases.to_string(), "--seed", "7"]);
    command.args(["--generation-database", "none", "--suppress-health-check", "all"]);
    // The stream never ends; other tests read it.
    command.args(["--exclude-path", "/events", "--request-timeout", "20", "--no-color"]);
    if known {
        // Whoever was asked to resign answers 503 for a while, which is what it should.
        fs::write(place.path("schemathesis.toml"), "[parameters]\n\"path.name\" = \"job\"\n")
            .unwrap();
        command.args(["--exclude-checks", "not_a_server_error,negative_data_rejection"]);
    }
    let output = command.current_dir(place.dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(instance.get("/healthz").status, 200, "it is unharmed");
}

#[test]
#[ignore = "needs schemathesis"]
fn needs_schemathesis_no_answer_is_undocumented() {
    run(15, false);
    run(15, true);
}

#[test]
#[ignore = "needs schemathesis, takes minutes"]
fn long_schemathesis_no_answer_is_undocumented_in_5000_cases() {
    run(300, false);
    run(300, true);
}
