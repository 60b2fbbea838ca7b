//! What many candidates of one election cost its store, when nothing happens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure::{BootClock, Candidate, Election};

use crate::ground::{Engine, Ground, block_on};
use crate::many::pass;
use crate::meter::Meter;
use crate::report::Section;

const CANDIDATES: usize = 100;
const TTL: Duration = Duration::from_secs(3);
/// Until everybody has seen who leads, and looks again.
const SETTLE: Duration = Duration::from_secs(10);
const WATCH: Duration = Duration::from_secs(30);

pub(crate) fn on_postgres() -> Result<Section> {
    hundred_candidates(Engine::Postgres)
}

pub(crate) fn on_advisory() -> Result<Section> {
    hundred_candidates(Engine::Advisory)
}

pub(crate) fn on_redis() -> Result<Section> {
    hundred_candidates(Engine::Redis)
}

fn hundred_candidates(engine: Engine) -> Result<Section> {
    let ground = Arc::new(Ground::new(engine)?);
    let meter = Meter::new(&ground)?;
    block_on(async {
        let mut elections: Vec<Election> = Vec::new();
        for number in 0..CANDIDATES {
            let candidate =
                Candidate::builder(ground.open()?).label(format!("c{number}")).build()?;
            elections.push(candidate.election(&ground.election).ttl(TTL).start().await?);
        }
        pass(SETTLE).await?;
        let (before, from) = (meter.read().await?, BootClock::time());
        pass(WATCH).await?;
        let seconds = (BootClock::time() - from).as_secs_f64();
        let after = meter.read().await?;
        let leading = elections.iter().filter(|election| election.is_leader()).count();
        ensure!(leading == 1, "{leading} lead");

        let mut section = Section::new();
        let calls = after.calls.checked_sub(before.calls).context("a counter fell")?;
        section.at_most(meter.unit(), calls as f64 / seconds, 50.0, "");
        section.number("connections", after.connections as f64, "");
        section.note(format!("{CANDIDATES} candidates, ttl {TTL:?}, watched for {seconds:.0} s."));
        Ok(section)
    })
}
