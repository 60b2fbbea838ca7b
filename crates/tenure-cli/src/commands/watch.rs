//! `tenure watch`: who leads, live.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use tenure::{BootClock, Candidate, Clock as _, Election, Event, Leader, Name, Time};
use tenure_core::Store;
use tokio::sync::mpsc;

use super::screen::{Row, Screen, counted_down};
use super::{Narration, open_or_end, read_all};
use crate::exit::{Exit, Failure};
use crate::output::{self, Output, leads, printable};
use crate::signals::Signals;
use crate::sink::stdout_breaks;
use crate::store::StoreChoice;
use crate::wall;

/// How often the countdown moves.
const FRAME: Duration = Duration::from_millis(250);

/// How often the store is asked, for a countdown that is right: renewals are no events.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many changes are shown under the table.
const NEWS_MAX: usize = 5;

/// Shows who leads until a signal asks to end.
pub(crate) async fn run(
    names: &[Name],
    choice: &StoreChoice,
    out: &Output,
    color: bool,
) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let Ok(opened) = open_or_end(choice, None, &mut signals, out).await? else {
        return Ok(Exit::DONE);
    };
    let candidate = Candidate::builder(opened.store.clone()).build()?;
    let mut narration = Narration::new();
    let (changes, news) = mpsc::unbounded_channel();
    let on_screen = !out.json && is_screen();
    let mut elections = Vec::with_capacity(names.len());
    for name in names {
        let election = candidate.election(name.as_str()).build()?;
        if on_screen {
            let (name, changes) = (name.clone(), changes.clone());
            narration.follow(&election, out, move |event| {
                // What can't be sent is of no use any more.
                let _ = sentence(&name, event).map(|sentence| changes.send(sentence));
                None
            });
        } else {
            let name = name.clone();
            let out = out.clone();
            narration.follow(&election, &out.clone(), move |event| {
                // Changes are the data of this command.
                match event {
                    Event::LeaderChanged { .. } => {
                        if let Some(sentence) = sentence(&name, event) {
                            out.data(&format!("{} {sentence}", time()));
                        }
                        None
                    }
                    event => sentence(&name, event),
                }
            });
        }
        elections.push(election);
    }
    drop(changes);
    let mut broken = std::pin::pin!(stdout_breaks());
    tokio::select! {
        observed = observe(&elections) => observed?,
        _ = signals.end() => return Ok(Exit::DONE),
        _ = &mut broken => return Ok(Exit::DONE),
    }
    if on_screen {
        let screen = Screen::new(out.sink.clone(), color);
        Watch { names, store: &*opened.store, screen, news, told: Vec::new() }
            .until_end(&mut signals)
            .await;
    } else {
        tokio::select! {
            _ = signals.end() => {}
            // To show it to nobody is no use. The exit code is seen to where all end.
            _ = &mut broken => {}
        }
    }
    drop(elections);
    narration.finish().await;
    Ok(Exit::DONE)
}

async fn observe(elections: &[Election]) -> Result<(), tenure::Error> {
    for election in elections {
        election.observe().await?;
    }
    Ok(())
}

struct Watch<'a> {
    names: &'a [Name],
    store: &'a dyn Store,
    screen: Screen,
    news: mpsc::UnboundedReceiver<String>,
    told: Vec<String>,
}

impl Watch<'_> {
    async fn until_end(mut self, signals: &mut Signals) {
        let mut leaders = vec![None; self.names.len()];
        // A look that failed tells nothing: what was seen before goes on running out.
        let (mut seen_at, mut looked_at) = (Time::ZERO, Time::ZERO);
        loop {
            if BootClock::time() - looked_at >= LOOK_EVERY {
                looked_at = BootClock::time();
                tokio::select! {
                    read = read_all(self.store, self.names) => if let Ok(read) = read {
                        (leaders, seen_at) = (read, looked_at);
                    },
                    _ = signals.end() => break,
                }
            }
            self.draw(&leaders, BootClock::time() - seen_at);
            tokio::select! {
                () = BootClock.sleep_until(BootClock::time() + FRAME) => {}
                Some(news) = self.news.recv() => {
                    self.note(news);
                    looked_at = Time::ZERO;
                }
                _ = signals.end() => break,
            }
        }
        self.screen.finish();
    }

    fn draw(&mut self, leaders: &[Option<Leader>], ago: Duration) {
        let pairs = self.names.iter().zip(leaders);
        let rows: Vec<Row> =
            pairs.map(|(name, leader)| Row::new(name, &counted_down(leader, ago))).collect();
        self.screen.draw(&rows, &self.told);
    }

    fn note(&mut self, news: String) {
        self.told.push(format!("{} {}", time(), printable(&news)));
        let extra = self.told.len().saturating_sub(NEWS_MAX);
        self.told.drain(..extra);
    }
}

/// What is told of an event in an election that is watched.
fn sentence(name: &Name, event: &Event) -> Option<String> {
    let told = match event {
        Event::LeaderChanged { leader: Some(leader) } => leads(leader),
        event => output::sentence(event)?,
    };
    Some(format!("{name}: {told}"))
}

/// The present time of day, for people.
fn time() -> String {
    format!("{:.0}", wall::now())
}

/// Whether stdout is a terminal on which a cursor can be moved.
fn is_screen() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}
