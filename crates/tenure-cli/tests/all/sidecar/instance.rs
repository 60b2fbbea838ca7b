//! One `tenure serve`.

use std::net::SocketAddr;

use crate::common::eventually;
use crate::support::{Place, Process};
use tenure_testbed::http::{self, Answer};

pub(crate) const TOKEN: &str = "0123456789abcdef0123";

/// A running instance on a free port. Dropping it kills it.
pub(crate) struct Instance {
    pub(crate) process: Process,
    pub(crate) at: SocketAddr,
}

impl Instance {
    /// Takes part as `label`, with more arguments.
    pub(crate) fn start(place: &Place, label: &str, more: &[&str]) -> Instance {
        Instance::start_on(place, &place.url(), label, more)
    }

    /// The same on another store.
    pub(crate) fn start_on(place: &Place, store: &str, label: &str, more: &[&str]) -> Instance {
        let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--id", label];
        args.extend(more);
        let mut command = place.command(&args);
        let command = command.env("TENURE_STORE", store).env("TENURE_TOKEN", TOKEN);
        Instance::of(Process::new(command), "listening on http://")
    }

    /// A `tenure run` that shows its metrics.
    pub(crate) fn run(place: &Place, election: &str, command: &[&str]) -> Instance {
        let args = ["run", election, "--observe", "127.0.0.1:0", "--"];
        let process = place.spawn(&[&args[..], command].concat());
        Instance::of(process, "metrics and health at http://")
    }

    fn of(mut process: Process, says: &str) -> Instance {
        let line = process.line(says);
        let at = line.rsplit("http://").next().unwrap();
        let at = at.split('"').next().unwrap().trim().parse().unwrap();
        Instance { process, at }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        http::get(self.at, path).unwrap()
    }

    pub(crate) fn resign(&self, election: &str) -> Answer {
        self.post(&format!("/elections/{election}/resign"), "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        let token = format!("authorization: Bearer {TOKEN}\r\n");
        http::request(self.at, "POST", path, &token, body).unwrap()
    }

    pub(crate) fn leads(&self) {
        eventually("it leads", || (self.get("/leader").status == 200).then_some(()));
    }
}
