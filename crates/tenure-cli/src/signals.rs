//! Signals that ask tenure to end, and those that are passed on to the command.

use std::fs;
use std::io;

use tokio::signal::unix::{self, SignalKind};

use crate::output::Output;
use crate::process::Signal;

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// End, and what runs with you.
    End(Signal),
    /// For the command; it means nothing to tenure.
    Pass(Signal),
}

/// The signals that tenure listens to.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    had_terminal: bool,
    /// Told when somebody wants to suspend a process that must not be.
    out: Option<Output>,
}

const LISTENED: [Signal; 7] = [
    Signal::TERM,
    Signal::INT,
    Signal::QUIT,
    Signal::HUP,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
];

impl Signals {
    /// Listens from now on. A signal that was ignored when we were started (`nohup`, a background
    /// job) stays ignored, for us and for the command.
    ///
    /// # Errors
    /// The operating system has no descriptor left.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O driver on.
    pub(crate) fn listen() -> io::Result<Signals> {
        Signals::of(&LISTENED, None)
    }

    /// The same for a process that takes part in an election. Ctrl-Z does not suspend it: it would
    /// lose its lease, and its command, which Ctrl-Z does not reach, would be killed for that.
    ///
    /// # Errors
    /// As for [`Signals::listen`].
    ///
    /// # Panics
    /// As for [`Signals::listen`].
    pub(crate) fn of_candidate(out: &Output) -> io::Result<Signals> {
        Signals::of(&[&LISTENED[..], &[Signal::TSTP]].concat(), Some(out.clone()))
    }

    fn of(listened: &[Signal], out: Option<Output>) -> io::Result<Signals> {
        let ignored = ignored_mask(&fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut streams = Vec::new();
        for signal in listened.iter().copied() {
            let is_ignored = ignored & (1 << (signal.as_raw() - 1)) != 0;
            if signal == Signal::TERM || !is_ignored {
                streams.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            }
        }
        Ok(Signals { streams, had_terminal: has_terminal(), out })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Cancel safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> Told {
        let mut signal = self.any().await;
        while signal == Signal::TSTP {
            if let Some(out) = &self.out {
                out.warn(
                    "not suspended: a candidate that stands still loses its lease, and its command \
                     is killed; Ctrl-C ends both",
                );
            }
            signal = self.any().await;
        }
        match signal {
            Signal::TERM | Signal::INT | Signal::QUIT => Told::End(signal),
            // The terminal was closed: nobody is left who could end us.
            Signal::HUP if self.had_terminal && !has_terminal() => Told::End(signal),
            _ => Told::Pass(signal),
        }
    }

    async fn any(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            let mut ready = self
                .streams
                .iter_mut()
                .filter_map(|(signal, stream)| stream.poll_recv(cx).is_ready().then_some(*signal));
            ready.next().map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }

    /// The next signal that asks to end.
    ///
    /// # Cancel safety
    /// Cancel safe: no signal that asks to end is lost.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            if let Told::End(signal) = self.next().await {
                return signal;
            }
        }
    }
}

/// Whether there is a terminal whose Ctrl-C reaches us.
fn has_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok()
}

/// The signals that are ignored, one bit each, from `/proc/PID/status`.
fn ignored_mask(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert_eq!(ignored_mask("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), 0x1001);
        assert_eq!(ignored_mask(""), 0);
    }
}
