//! The files under `deploy/` hand leadership over as they promise, and hold nobody's secret.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Timing;

use super::instance::TOKEN;
use crate::common::LIMIT;
use crate::support::{Place, Process};

/// How long an app takes to end, in the manifest's own example.
const APP_ENDS_WITHIN: Duration = Duration::from_secs(20);

fn deployed(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    // What a comment says counts for people, not for Kubernetes.
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The lines under `key:` that stand further in.
fn block<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().skip_while(|line| line.trim() != format!("{key}:"));
    let head = lines.next().unwrap_or_else(|| panic!("there is no {key}"));
    lines.take_while(|line| depth(line) > depth(head)).collect()
}

/// The number behind `key` in `key VALUEs` or `key=VALUEs`.
fn seconds(text: &str, key: &str) -> Duration {
    let after = text.split_once(key).unwrap_or_else(|| panic!("there is no {key}")).1;
    let digits: String = after
        .trim_start_matches([' ', ':', '='])
        .chars()
        .take_while(|letter| letter.is_ascii_digit())
        .collect();
    Duration::from_secs(digits.parse().unwrap())
}

#[test]
fn in_kubernetes_the_app_has_ended_before_the_sidecar_is_told_to_end() {
    let manifest = deployed("kubernetes/sidecar.yaml");
    let sidecars = block(&manifest, "initContainers").join("\n");
    assert!(sidecars.contains("- name: tenure\n          restartPolicy: Always\n"), "{sidecars}");
    assert!(sidecars.contains("- serve"), "{sidecars}");
    let containers = block(&manifest, "containers").join("\n");
    assert!(containers.contains("- name: app"), "{containers}");
    assert!(!containers.contains("- name: tenure"), "it would be told as the app is: {containers}");
    let grace = seconds(&manifest, "terminationGracePeriodSeconds");
    let needed = APP_ENDS_WITHIN + Timing::default().drain;
    assert!(grace >= needed + Duration::from_secs(5), "{grace:?} for {needed:?}");
}

/// The image of an example can't be pulled, and `latest` is pulled even if it is there.
#[test]
fn compose_and_the_manifest_use_the_image_of_the_dockerfile() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/Dockerfile");
    let text = std::fs::read_to_string(path).unwrap();
    let built = text.split_once("docker build -f deploy/Dockerfile -t ").unwrap().1;
    let built = built.split_whitespace().next().unwrap();
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0;
    assert_eq!(built, format!("tenure:{version}"));
    let manifest = deployed("kubernetes/sidecar.yaml");
    assert!(block(&manifest, "initContainers").join("\n").contains(&format!("image: {built}\n")));
    assert!(!manifest.contains("example.org"), "{manifest}");
    let compose = deployed("compose/compose.yaml");
    let used = compose.lines().filter_map(|line| line.trim().strip_prefix("image: "));
    let used = used.filter(|image| image.starts_with("tenure"));
    assert_eq!(used.collect::<Vec<_>>(), [built, built], "candidates and the migration");
}

#[test]
fn the_manifest_has_no_secret_that_would_work() {
    let manifest = deployed("kubernetes/sidecar.yaml");
    for word in ["kind: Secret", "stringData", "change-me", "password", "postgres://"] {
        assert!(!manifest.contains(word), "{word} in {manifest}");
    }
    let env = block(&manifest, "env");
    for (name, key) in [("TENURE_STORE", "store"), ("TENURE_TOKEN", "token")] {
        let at = env.iter().position(|line| line.trim() == format!("- name: {name}")).unwrap();
        let from = format!("valueFrom: {{ secretKeyRef: {{ name: tenure, key: {key} }} }}");
        assert_eq!(env[at + 1].trim(), from, "{name}");
    }
}

#[test]
fn the_sidecar_of_the_manifest_starts_with_its_arguments() {
    let manifest = deployed("kubernetes/sidecar.yaml");
    let args = block(&manifest, "args").into_iter().map(|line| {
        let arg = line.trim().trim_start_matches("- ").trim_matches('\'');
        arg.replace("$(POD_IP)", "10.0.0.7").replace("0.0.0.0:7070", "127.0.0.1:0")
    });
    let args: Vec<String> = args.collect();
    let place = Place::new();
    let mut command = place.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut process = Process::new(command.env("TENURE_TOKEN", TOKEN));
    process.line("listening on");
    process.signal(Signal::TERM);
    assert_eq!(process.code(), 0);
}

/// The duration behind `key `, as HAProxy writes it.
fn haproxy_time(text: &str, key: &str) -> Duration {
    let after = text.split_once(key).unwrap_or_else(|| panic!("there is no {key}")).1;
    tenure_core::parse_duration(after.split_whitespace().next().unwrap()).unwrap()
}

#[test]
fn the_load_balancer_relies_on_a_200_for_less_than_the_drain() {
    let config = deployed("compose/haproxy.cfg");
    assert!(config.contains("option httpchk GET /leader"), "a HEAD may not be relied on: {config}");
    let probe = haproxy_time(&config, "inter ")
        + haproxy_time(&config, "timeout connect ")
        + haproxy_time(&config, "timeout check ");
    let fall: u32 = config.split_once(" fall ").unwrap().1[..1].parse().unwrap();
    let compose = deployed("compose/compose.yaml");
    assert!(compose.contains("--profile fast"), "{compose}");
    let drain = Timing::profile("fast").unwrap().drain;
    assert!(probe * fall < drain, "{probe:?} x {fall} against {drain:?}");
    let grace = seconds(&compose, "stop_grace_period");
    assert!(grace >= drain + Duration::from_secs(2), "{grace:?} against {drain:?}");
}

const UNITS: [&str; 3] = ["tenure.service", "tenure-run.service", "tenure-cron.service"];

#[test]
fn systemd_waits_for_the_drain() {
    for unit in UNITS {
        let unit = deployed(&format!("systemd/{unit}"));
        let grace = seconds(&unit, "TimeoutStopSec");
        let drain = Timing::default().drain;
        assert!(grace >= drain + Duration::from_secs(2), "{grace:?} against {drain:?}");
    }
}

#[test]
fn nothing_that_is_shipped_elects_on_the_default_store() {
    for unit in UNITS {
        let text = deployed(&format!("systemd/{unit}"));
        assert!(text.contains("\nEnvironmentFile=/etc/tenure/environment\n"), "{unit}: {text}");
        assert!(text.contains("\nEnvironment=TENURE_NO_DEFAULT_STORE=1\n"), "{unit}: {text}");
        assert!(!text.contains("XDG_STATE_HOME"), "{unit}: {text}");
    }
    for file in ["compose/compose.yaml", "kubernetes/sidecar.yaml", "Dockerfile"] {
        assert!(deployed(file).contains("TENURE_NO_DEFAULT_STORE"), "{file}");
    }
}

#[test]
fn the_units_start_with_their_arguments_and_tell_systemd() {
    let place = Place::new();
    let jobs = "[[job]]\nname = \"a\"\nschedule = \"@daily\"\ncommand = \"true\"\n";
    std::fs::write(place.path("jobs.toml"), jobs).unwrap();
    for (unit, code) in [("tenure-run.service", 143), ("tenure-cron.service", 0)] {
        let text = deployed(&format!("systemd/{unit}"));
        assert!(text.contains("\nType=notify\n") && text.contains("\nKillMode=mixed\n"), "{unit}");
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/tenure "));
        let line = line.unwrap().replace("/usr/bin/app-worker", "sleep 99");
        let line = line.replace("/etc/tenure/jobs.toml", &place.path("jobs.toml"));
        let socket = UnixDatagram::bind(place.path(unit)).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut command = place.command(&line.split(' ').collect::<Vec<_>>());
        command.env("NOTIFY_SOCKET", place.path(unit)).env("TENURE_NO_DEFAULT_STORE", "1");
        let mut process = Process::new(command.env("TENURE_OBSERVE", "127.0.0.1:0"));
        let mut told = [0; 256];
        let count = socket.recv(&mut told).unwrap();
        assert!(told[..count].starts_with(b"READY=1"), "{unit}");
        process.signal(Signal::TERM);
        assert_eq!(process.code(), code, "{unit}");
    }
}

#[test]
fn the_database_of_compose_is_ready_only_when_it_can_be_reached() {
    let compose = deployed("compose/compose.yaml");
    assert!(compose.contains("pg_isready -h 127.0.0.1"), "{compose}");
    assert!(compose.contains("dockerfile: deploy/Dockerfile"), "{compose}");
    assert!(deployed("Dockerfile").contains("cargo build --release --locked"));
}
