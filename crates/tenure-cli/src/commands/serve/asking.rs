//! Asks the store, for as long as it takes, beside everything else.

use std::time::Duration;

use tenure::{BootClock, Name};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::{OPEN_AGAIN, in_time, open_aside, pause};
use crate::exit::Failure;
use crate::output::Output;
use crate::store::{Opened, StoreChoice};

/// How often the store is asked which elections there are.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// How much longer the pause is than the answer took: to list all elections costs some stores a
/// look at all their keys.
const REST: u32 = 20;

/// What came of asking.
pub(super) enum News {
    Opened(Opened),
    /// The store does not answer yet.
    Waiting,
    /// All elections that it knows of.
    Listed(Vec<Name>),
}

/// Somebody who asks. Dropping it ends that.
pub(super) struct Asking {
    news: mpsc::Receiver<Result<News, Failure>>,
    _task: JoinSet<()>,
}

impl Asking {
    /// Opens the store; if `lists`, then asks for its elections again and again.
    pub(super) fn start(choice: &StoreChoice, lists: bool, out: &Output) -> Asking {
        let (tell, news) = mpsc::channel(1);
        let mut task = JoinSet::new();
        let (choice, out) = (choice.clone(), out.clone());
        task.spawn(async move {
            if let Err(failure) = ask(&choice, lists, &tell, &out).await {
                let _nobody_listens = tell.send(Err(failure)).await;
            }
        });
        Asking { news, _task: task }
    }

    /// The next thing that is known.
    ///
    /// # Errors
    /// What is wrong with the store and does not get better by waiting.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Result<News, Failure> {
        match self.news.recv().await {
            Some(news) => news,
            // All is said.
            None => std::future::pending().await,
        }
    }
}

type Tell = mpsc::Sender<Result<News, Failure>>;

async fn ask(choice: &StoreChoice, lists: bool, tell: &Tell, out: &Output) -> Result<(), Failure> {
    let mut doubt = Doubt { tell, out, told: false };
    let opened = loop {
        match open_aside(choice).await {
            Err(error) if error.is_retryable() => {
                doubt.tell(&format!("the store can't be used, trying again: {error}")).await;
                pause(OPEN_AGAIN).await;
            }
            opened => break opened?,
        }
    };
    doubt.told = false;
    let _gone = tell.send(Ok(News::Opened(opened.clone()))).await;
    if !lists {
        return Ok(());
    }
    let mut listed = false;
    loop {
        let began = BootClock::time();
        match in_time(opened.elections()).await.flatten() {
            Ok(names) => {
                (listed, doubt.told) = (true, false);
                let _gone = tell.send(Ok(News::Listed(names))).await;
            }
            Err(error) if listed || error.is_retryable() => {
                let sentence = "the store does not tell its elections; trying again";
                doubt.tell(&format!("{sentence}: {error}")).await;
            }
            Err(error) => return Err(error.into()),
        }
        let every = if listed { LIST_EVERY } else { OPEN_AGAIN };
        pause(every.max((BootClock::time() - began) * REST)).await;
    }
}

/// Says once that the store does not answer, until it did.
struct Doubt<'a> {
    tell: &'a Tell,
    out: &'a Output,
    told: bool,
}

impl Doubt<'_> {
    async fn tell(&mut self, sentence: &str) {
        if !std::mem::replace(&mut self.told, true) {
            self.out.warn(sentence);
            let _gone = self.tell.send(Ok(News::Waiting)).await;
        }
    }
}
