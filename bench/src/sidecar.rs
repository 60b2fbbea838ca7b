//! What the sidecar carries: requests beside a route that does nothing, and listeners.

use std::env;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::fleet::{self, Ended};
use crate::ground::{Engine, Ground};
use crate::interrupt;
use crate::many::resident_mb;
use crate::numbers::Sample;
use crate::report::{Section, say};

/// The program that this bench has started: a route with a fixed body, and nothing else.
const BARE: &str = "__bare";
/// About as long as what `/leader` answers.
const BODY: &str = r#"{"election":"bench","is_leader":true,"leader":"host:12345#01a1e1c40a9275c2",
"label":"host:12345","term":1,"since":"2026-11-16T00:31:23.798Z","metadata":null,"remaining_ms":2}
"#;

const ROUNDS: usize = 5;
const LISTENERS: usize = 1000;

/// Plays the bare route, if that is what this process is for.
pub(crate) fn is_bare() -> Result<bool> {
    if env::args().nth(1).as_deref() != Some(BARE) {
        return Ok(false);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let routes = Router::new().route("/leader", get(|| async { BODY }));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        say(&format!("listening on http://{}", listener.local_addr()?));
        axum::serve(listener, routes).await
    })?;
    Ok(true)
}

pub(crate) fn requests() -> Result<Section> {
    if Command::new("wrk").arg("-v").output().is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        bail!("install wrk (Debian's package wrk)");
    }
    let ground = Ground::new(Engine::Sqlite)?;
    let mut bare = Command::new(env::current_exe()?);
    let (_bare, bare_at) = start(bare.arg(BARE))?;
    let (_serve, serve_at) = start(&mut serve(&ground)?)?;
    let (mut bare, mut leader, mut trust_ms) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        interrupt::check()?;
        bare.push(wrk(bare_at, &mut |_| ())?);
        leader.push(wrk(serve_at, &mut |remaining_ms| trust_ms.push(remaining_ms))?);
    }
    let text = ask(serve_at, "/metrics")?;
    let failures = text.lines().filter(|line| line.starts_with("leader_renewal_failures_total{"));
    let failed = failures.filter(|line| !line.ends_with(" 0")).count();
    let (bare, leader) = (Sample::new(bare)?.median(), Sample::new(leader)?.median());
    let least_trust = trust_ms.iter().copied().fold(f64::INFINITY, f64::min);
    let mut section = Section::new();
    section.number("a bare route, requests per second", bare, "");
    section.number("/leader, requests per second", leader, "");
    section.at_least("/leader against the bare route", leader / bare * 100.0, 80.0, "%");
    // Renewed every second of three: nearly two are left when a renewal is in time.
    section.at_least("least trust while it is asked, ttl 3 s", least_trust, 1700.0, "ms");
    section.never("renewals that failed", failed);
    section.note(format!("Medians of {ROUNDS} turns of 4 s each, wrk with 32 connections."));
    Ok(section)
}

pub(crate) fn listeners() -> Result<Section> {
    let ground = Ground::new(Engine::Sqlite)?;
    let (process, at) = start(&mut serve(&ground)?)?;
    let id = process.0.id().to_string();
    let before = resident_mb(&id)?;
    let mut streams = Vec::with_capacity(LISTENERS);
    for _ in 0..LISTENERS {
        interrupt::check()?;
        let mut stream = TcpStream::connect(at)?;
        stream.write_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        streams.push(stream);
    }
    // Each has got its snapshot, and one event after it.
    for stream in &mut streams {
        read_until(stream, "event: seen")?;
    }
    let after = resident_mb(&id)?;
    let mut section = Section::new();
    section.number("resident without listeners", before, "MB");
    section.at_most(&format!("resident with {LISTENERS} listeners"), after, 60.0, "MB");
    Ok(section)
}

fn serve(ground: &Ground) -> Result<Command> {
    let mut command = Command::new(fleet::tenure()?);
    command.args(["serve", "--election", "bench", "--ttl", "3s", "--listen", "127.0.0.1:0"]);
    command.arg("--store");
    command.arg(format!("sqlite:{}", ground.directory().join("tenure.db").display()));
    Ok(command)
}

/// Starts a server that says where it listens.
fn start(command: &mut Command) -> Result<(Ended, SocketAddr)> {
    let mut child: Child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (sender, lines) = std::sync::mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] =
        [out.map(|out| Box::new(out) as _), err.map(|err| Box::new(err) as _)];
    for pipe in pipes.into_iter().flatten() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let _gone = sender.send(line);
            }
        });
    }
    drop(sender);
    let process = Ended(child);
    loop {
        let line = lines.recv_timeout(fleet::LIMIT).context("the server does not start")?;
        if let Some((_, at)) = line.split_once("listening on http://") {
            return Ok((process, at.trim().parse()?));
        }
    }
}

/// Requests per second; `meanwhile` gets what is left of the trust, now and then.
fn wrk(at: SocketAddr, meanwhile: &mut dyn FnMut(f64)) -> Result<f64> {
    let mut wrk = Command::new("wrk")
        .args(["--threads", "1", "--connections", "32", "--duration", "4s"])
        .arg(format!("http://{at}/leader"))
        .stdout(Stdio::piped())
        .spawn()?;
    while wrk.try_wait()?.is_none() {
        interrupt::check()?;
        if let Some(text) = ask(at, "/leader").ok().filter(|text| text.contains(" 200 ")) {
            let remaining = text.rsplit("\"remaining_ms\":").next().unwrap_or_default();
            meanwhile(remaining.trim_end_matches('}').parse().unwrap_or_default());
        }
        fleet::pause(Duration::from_millis(50));
    }
    let mut text = String::new();
    wrk.stdout.take().context("it has output")?.read_to_string(&mut text)?;
    ensure!(!text.contains("Non-2xx"), "not everything was answered with 200:\n{text}");
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    Ok(rate.context("wrk tells no rate")?.trim().parse()?)
}

fn ask(at: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(at)?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn read_until(stream: &mut TcpStream, mark: &str) -> Result<()> {
    stream.set_read_timeout(Some(fleet::LIMIT))?;
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !text.contains(mark) {
        let count = stream.read(&mut part)?;
        ensure!(count > 0, "the stream ended: {text}");
        text.push_str(&String::from_utf8_lossy(&part[..count]));
    }
    Ok(())
}
