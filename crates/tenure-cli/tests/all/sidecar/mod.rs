//! `tenure serve` and `tenure doctor` as their users meet them: over HTTP, under systemd, in a
//! browser, and with the leader killed.

mod alerts;
mod browser;
mod deploy;
mod doctor;
mod instance;
mod one_leader;
mod relied;
mod rules;
mod schema;
mod serve;
mod stores;
mod systemd;
mod webdriver;
