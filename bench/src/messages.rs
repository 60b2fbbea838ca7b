//! How fast a leader is told, and how fast posts are kept and handled.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure::{BootClock, Election, Message, Messenger, Post};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ground::{Engine, Ground};
use crate::numbers::Sample;
use crate::report::Section;

/// One after the other, with nothing else going on.
const IDLE: usize = 2_000;
/// At once, by so many senders.
const FLOOD: usize = 40_000;
const SENDERS: usize = 64;
/// Posts, in batches, by so many at once.
const POSTS: usize = 40_000;
const BATCH: usize = 500;
const POSTERS: usize = 4;
/// Posts that a leader handles one by one.
const HANDLED: usize = 2_000;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a notice costs. The bars are for p50 and p99 in milliseconds, and for notices per second.
pub(crate) fn notices(engine: Engine, bars: (Option<f64>, f64), rate: f64) -> Result<Section> {
    let ground = Ground::new(engine)?;
    let runtime = runtime()?;
    let mut section = Section::new();
    runtime.block_on(async {
        let (tell, mut heard) = unbounded_channel();
        let leader = Election::builder(&ground.election, ground.open()?)
            .on_notify("c", move |_| {
                let _measured_enough = tell.send(BootClock::time());
            })
            .start()
            .await?;
        ensure!(leader.is_leader(), "nobody leads");
        let messenger = Messenger::new(&ground.election, ground.open()?)?;
        let payload = "{\"action\": \"refresh\"}";
        let mut latencies = Vec::with_capacity(IDLE);
        for round in 0..IDLE + 50 {
            let sent = BootClock::time();
            messenger.notify("c", payload).await?;
            let came = next(&mut heard).await?;
            // The first few make connections and teach the server.
            if round >= 50 {
                latencies.push(came - sent);
            }
        }
        let latencies = Sample::of_durations(&latencies)?;
        match bars.0 {
            Some(bar) => section.at_most("idle, p50", latencies.median(), bar, "ms"),
            None => section.number("idle, p50", latencies.median(), "ms"),
        }
        section.at_most("idle, p99", latencies.percentile(99), bars.1, "ms");
        let before = leader.message_counts().missed;
        let began = BootClock::time();
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            let messenger = messenger.clone();
            senders.spawn(async move {
                for number in 0..FLOOD / SENDERS {
                    let payload = format!("{{\"sender\": {sender}, \"number\": {number}}}");
                    messenger.notify("c", &payload).await?;
                }
                Ok::<(), tenure::Error>(())
            });
        }
        let mut came = 0;
        let mut last = began;
        while came + usize::try_from(leader.message_counts().missed - before)? < FLOOD {
            last = next(&mut heard).await?;
            came += 1;
        }
        while let Some(sender) = senders.join_next().await {
            sender??;
        }
        let per_second = came as f64 / (last - began).as_secs_f64();
        section.at_least("64 senders", per_second, rate, "notices/s");
        section.never("missed under that load", FLOOD - came);
        leader.stop().await?;
        Ok(section)
    })
}

/// How many posts are kept per second in batches, and how many a leader handles one by one.
pub(crate) fn posts(engine: Engine, rate: Option<f64>) -> Result<Section> {
    let ground = Ground::new(engine)?;
    let runtime = runtime()?;
    let mut section = Section::new();
    runtime.block_on(async {
        let messenger = Messenger::new(&ground.election, ground.open()?)?;
        messenger.post("warm", "{}", "up").await?;
        let began = BootClock::time();
        let mut posters = JoinSet::new();
        for poster in 0..POSTERS {
            let messenger = messenger.clone();
            posters.spawn(async move {
                for batch in 0..POSTS / BATCH / POSTERS {
                    let posts: Vec<Post> = (0..BATCH)
                        .map(|number| Post {
                            channel: format!("channel-{poster}"),
                            payload: format!("{{\"number\": {number}}}"),
                            key: format!("{poster}-{batch}-{number}"),
                        })
                        .collect();
                    messenger.post_all(&posts).await?;
                }
                Ok::<(), tenure::Error>(())
            });
        }
        while let Some(poster) = posters.join_next().await {
            poster??;
        }
        let per_second = POSTS as f64 / (BootClock::time() - began).as_secs_f64();
        match rate {
            Some(bar) => section.at_least("kept, in batches of 500", per_second, bar, "posts/s"),
            None => section.number("kept, in batches of 500", per_second, "posts/s"),
        }
        handle_some(&ground, &mut section).await?;
        Ok(section)
    })
}

async fn handle_some(ground: &Ground, section: &mut Section) -> Result<()> {
    let (tell, mut heard) = unbounded_channel();
    let leader = Election::builder(&ground.election, ground.open()?)
        .on_post("channel-0", move |_: Message| {
            let _measured_enough = tell.send(BootClock::time());
            async { Ok::<(), String>(()) }
        })
        .start()
        .await?;
    let first = next(&mut heard).await?;
    let mut last = first;
    for _ in 0..HANDLED {
        last = next(&mut heard).await?;
    }
    let per_second = HANDLED as f64 / (last - first).as_secs_f64();
    section.number("handled one by one, in one channel", per_second, "posts/s");
    Ok(leader.stop().await?)
}

async fn next<T>(heard: &mut UnboundedReceiver<T>) -> Result<T> {
    let came = timeout(PATIENCE, heard.recv()).await.context("nothing came for a minute")?;
    came.context("the leader is gone")
}

fn runtime() -> Result<Arc<Runtime>> {
    Ok(Arc::new(Builder::new_multi_thread().enable_all().build()?))
}
