//! Lines on stdin, for a command that must never wait for them.
//!
//! A thread of its own reads, and ends with the process: waiting for the end of a reign must not
//! mean waiting for a line. On a terminal it reads only while this process is in the foreground; a
//! read in the background would stop the whole process, and with it the renewals.

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tenure::Term;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often a terminal is looked at for whether it is ours again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The longest line that means something; of longer ones only the beginning is kept.
const LINE_MAX: usize = 256;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// `done TERM`: all work that began under this term, because we said that it leads, has ended.
    Done(Term),
    /// Anything else; the number of the line.
    Nonsense(u64),
}

/// What is said on stdin, from now on.
pub(super) struct Input(Option<UnboundedReceiver<Said>>);

impl Input {
    /// Begins to read. Without a thread for it nothing is ever said.
    pub(super) fn listen() -> Input {
        let (sender, receiver) = unbounded_channel();
        let reading = thread::Builder::new().name("stdin".to_owned()).spawn(move || read(&sender));
        Input(reading.is_ok().then_some(receiver))
    }

    /// The next line that is not empty; never comes after the end of the input.
    ///
    /// # Cancel safety
    /// Cancel safe: no line is lost.
    pub(super) async fn next(&mut self) -> Said {
        if let Some(lines) = &mut self.0
            && let Some(said) = lines.recv().await
        {
            return said;
        }
        // The end of the input says nothing about anybody's work.
        self.0 = None;
        std::future::pending().await
    }
}

fn read(said: &UnboundedSender<Said>) {
    let (mut lines, mut bytes) = (Lines::default(), [0; 1024]);
    loop {
        wait_for_turn();
        // Without a buffer in between, in which lines could wait unseen.
        let more = match rustix::io::read(rustix::stdio::stdin(), &mut bytes) {
            Ok(0) => return,
            Ok(count) => lines.take(&bytes[..count]),
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        for line in more {
            if said.send(line).is_err() {
                return;
            }
        }
    }
}

/// Waits until there is something to read that is ours to read.
fn wait_for_turn() {
    let stdin = rustix::stdio::stdin();
    let pause = Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN.as_nanos() as _ };
    while io::stdin().is_terminal() {
        let ours = tcgetpgrp(stdin).is_ok_and(|foreground| foreground == getpgrp());
        if ours && poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&pause)) != Ok(0) {
            return;
        }
        if !ours {
            let _passed = poll(&mut [], Some(&pause));
        }
    }
}

/// Puts lines together.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// What these bytes complete.
    fn take(&mut self, bytes: &[u8]) -> Vec<Said> {
        let mut said = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                if self.line.len() <= LINE_MAX {
                    self.line.push(*byte);
                }
                continue;
            }
            self.number += 1;
            said.extend(meaning(&self.line, self.number));
            self.line.clear();
        }
        said
    }
}

fn meaning(line: &[u8], number: u64) -> Option<Said> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.split_whitespace();
    let said = match (words.next(), words.next(), words.next()) {
        (None, _, _) => return None,
        (Some("done"), Some(term), None) => term.parse().ok().and_then(Term::new).map(Said::Done),
        _ => None,
    };
    Some(said.unwrap_or(Said::Nonsense(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces_and_only_done_with_a_term_means_something() {
        let mut lines = Lines::default();
        let done = |term| Said::Done(Term::new(term).unwrap());
        assert_eq!(lines.take(b"do"), []);
        assert_eq!(lines.take(b"ne 7\n\n  \n done  8 \r\nd"), [done(7), done(8)]);
        assert_eq!(lines.take(b"one\n"), [Said::Nonsense(5)]);
        let odd = b"done\ndone x\ndone 0\ndone -1\ndone 7 8\n\xff\xfe\nDONE 7\n";
        assert_eq!(lines.take(odd), (6..13).map(Said::Nonsense).collect::<Vec<_>>());
        assert_eq!(lines.take(&[b'x'; 100_000]), []);
        assert!(lines.line.len() <= LINE_MAX + 1, "a line without an end fills no memory");
        assert_eq!(lines.take(b"\ndone 9\ndone 9"), [Said::Nonsense(13), done(9)]);
        let long = [b"done 7".as_slice(), &[b' '; 1000], b"\n"].concat();
        assert_eq!(Lines::default().take(&long), [done(7)], "spaces after it say nothing else");
        let longer = [b"done ".as_slice(), &[b'1'; 1000], b"\n"].concat();
        assert_eq!(Lines::default().take(&longer), [Said::Nonsense(1)]);
    }
}
