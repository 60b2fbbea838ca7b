//! The servers that a URL names: each tried by itself, so that one that hangs costs its share of
//! the time and not all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode};

use crate::passfile::{Login, Passfile};
use crate::random::random;

/// The port, unless another is given.
const PORT: u16 = 5432;

/// All servers of one URL. A clone takes turns with it.
#[derive(Clone)]
pub(crate) struct Hosts {
    servers: Vec<Config>,
    passfile: Passfile,
    /// Who is tried next.
    next: Arc<AtomicUsize>,
}

impl Hosts {
    /// Takes apart what the driver would try in one go.
    pub(crate) fn new(all: &Config, passfile: Passfile) -> Result<Hosts, Error> {
        let (hosts, ports) = (count(all), all.get_ports().len());
        let addresses = all.get_hostaddrs().len();
        if ports > 1 && ports != hosts || addresses > 0 && addresses != hosts {
            return Err(Error::config(format!(
                "the URL has {hosts} hosts, {ports} ports and {addresses} addresses (hostaddr); \
                 give each host its own"
            )));
        }
        let first = match all.get_load_balance_hosts() {
            LoadBalanceHosts::Random => random() as usize,
            _ => 0,
        };
        let servers = (0..hosts).map(|index| alone(all, index)).collect();
        Ok(Hosts { servers, passfile, next: Arc::new(AtomicUsize::new(first)) })
    }

    pub(crate) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Whose turn it is. The next call gets the one after it, also if this attempt is never
    /// brought to its end.
    pub(crate) fn take_turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.servers.len()
    }

    /// This one will do: it is the first to be tried again.
    pub(crate) fn stay(&self, index: usize) {
        self.next.store(index, Ordering::Relaxed);
    }

    /// How to reach one of them, with its password.
    pub(crate) fn server(&self, index: usize) -> Result<Config, Error> {
        let mut server = self.servers[index].clone();
        if server.get_password().is_none() {
            let usual = std::env::var("USER").unwrap_or_default();
            let user = server.get_user().unwrap_or(&usual);
            let path;
            let hosts = match server.get_hosts().first() {
                Some(Host::Tcp(name)) => vec![name.as_str()],
                Some(Host::Unix(directory)) => {
                    path = directory.display().to_string();
                    vec!["localhost", path.as_str()]
                }
                None => Vec::new(),
            };
            let port = server.get_ports().first().copied().unwrap_or(PORT);
            let database = server.get_dbname().unwrap_or(user);
            let login = Login { hosts, port, database, user };
            if let Some(password) = self.passfile.password(&login)? {
                server.password(password.expose());
            }
        }
        Ok(server)
    }

    /// One of them, for people.
    pub(crate) fn show(&self, index: usize) -> String {
        show(&self.servers[index], 0)
    }
}

/// One of the servers that a configuration names, for people.
pub(crate) fn show(all: &Config, index: usize) -> String {
    let host = match (all.get_hosts().get(index), all.get_hostaddrs().get(index)) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(path)), _) => path.display().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => String::new(),
    };
    let ports = all.get_ports();
    match ports.get(index).or(ports.first()) {
        Some(port) if *port != PORT => format!("{host}:{port}"),
        _ => host,
    }
}

/// How many servers a configuration names.
pub(crate) fn count(all: &Config) -> usize {
    all.get_hosts().len().max(all.get_hostaddrs().len())
}

/// The same configuration with one of its servers only.
fn alone(all: &Config, index: usize) -> Config {
    let mut one = Config::new();
    one.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
    match all.get_hosts().get(index) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        // As with libpq: a socket of this machine is never encrypted, whatever is asked for.
        Some(Host::Unix(path)) => drop(one.host_path(path).ssl_mode(SslMode::Disable)),
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    let ports = all.get_ports();
    if let Some(port) = ports.get(index).or(ports.first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(database) = all.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
    one.target_session_attrs(all.get_target_session_attrs());
    one.channel_binding(all.get_channel_binding());
    one
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    fn hosts(url: &str) -> Result<Hosts, Error> {
        Hosts::new(&Config::from_str(url).unwrap(), Passfile::Nowhere)
    }

    #[test]
    fn each_server_keeps_all_that_the_url_says() {
        let url = "postgres://u:p@a:1,b:2/d?options=-cx%3Dy&application_name=n&connect_timeout=7\
                   &target_session_attrs=read-write&channel_binding=require&keepalives=0\
                   &keepalives_idle=9&keepalives_retries=4&sslmode=require";
        let hosts = hosts(url).unwrap();
        assert_eq!(hosts.count(), 2);
        for (index, url) in [url.replace(",b:2", ""), url.replace("a:1,", "")].iter().enumerate() {
            assert_eq!(hosts.server(index).unwrap(), Config::from_str(url).unwrap());
        }
        assert_eq!((hosts.show(0), hosts.show(1)), ("a:1".to_owned(), "b:2".to_owned()));
    }

    #[test]
    fn turns_go_round_and_the_one_that_worked_is_first_again() {
        let hosts = hosts("postgres://a,b,c/d").unwrap();
        let other = hosts.clone();
        assert_eq!([hosts.take_turn(), other.take_turn(), hosts.take_turn()], [0, 1, 2]);
        hosts.stay(1);
        assert_eq!([other.take_turn(), hosts.take_turn(), hosts.take_turn()], [1, 2, 0]);
    }

    #[test]
    fn hosts_and_ports_that_do_not_go_together_are_told() {
        let error = hosts("postgres://a,b,c/d?hostaddr=1.2.3.4").map(|_| ()).unwrap_err();
        assert!(error.message().contains("3 hosts") && error.message().contains("1 addresses"));
    }
}
