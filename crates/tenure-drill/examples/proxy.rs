//! The drill's proxy for fleets that are written in other languages.
//!
//! ```text
//! proxy HOST PORT LANES
//! ```
//! Prints the port of each lane, one a line, then does what it reads from stdin, one order a line,
//! and says `done` after each:
//!
//! ```text
//! LANE open      everything passes
//! LANE cut       connections are closed, new ones too
//! LANE hold      nothing arrives in either direction, and nobody is told
//! LANE mute      requests arrive, replies do not
//! LANE reset     all connections are reset; new ones work
//! ```
//! It ends when stdin does.
#![allow(clippy::print_stdout, reason = "it talks to the program that started it")]

use std::io::{self, stdin};
use std::process::ExitCode;
use std::sync::Arc;

use tenure::BootClock;
use tenure_drill::proxy::{LinkState, Proxy};
use tenure_drill::route::{Route, UrlStyle};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match serve(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("{what}");
            ExitCode::from(2)
        }
    }
}

fn serve(args: &[String]) -> Result<(), String> {
    let [host, port, lanes] = args else { return Err("give HOST PORT LANES".to_owned()) };
    let lanes: usize = lanes.parse().map_err(|_| format!("{lanes:?} is no number of lanes"))?;
    let url = format!("redis://{host}:{port}");
    let route = Route::new(&url, 1, UrlStyle::Plain);
    let route = route.ok_or_else(|| format!("{url} is no address"))?;
    let hosts = route.hosts().ok_or_else(|| format!("{url} names no host"))?;
    let proxy = Proxy::start(Arc::new(BootClock), lanes, hosts).map_err(|e| e.to_string())?;
    for lane in 0..lanes {
        println!("{}", proxy.addresses(lane).first().map_or(0, std::net::SocketAddr::port));
    }
    for order in stdin().lines() {
        let order = order.map_err(|error: io::Error| error.to_string())?;
        obey(&proxy, &order).ok_or_else(|| format!("{order:?} is no order"))?;
        println!("done");
    }
    Ok(())
}

fn obey(proxy: &Proxy, order: &str) -> Option<()> {
    let (lane, word) = order.split_once(' ')?;
    let lane = lane.parse().ok()?;
    let state = match word {
        "open" => LinkState::Open,
        "cut" => LinkState::Cut,
        "hold" => LinkState::Held { requests: true, replies: true },
        "mute" => LinkState::Held { requests: false, replies: true },
        "reset" => {
            proxy.reset(lane);
            return Some(());
        }
        _ => return None,
    };
    proxy.set(lane, state);
    Some(())
}
