//! Where the URL of a store leads, and the same URL by another way.
//!
//! The candidates of a drill reach the store through a proxy of the drill's own, so each gets a
//! URL of its own. Everything but the way stays as it was: user, password, database, options, and
//! where the driver can keep them apart, the name that the server's certificate is checked for.

use std::fmt;
use std::net::SocketAddr;

use tenure_core::Secret;

/// One server that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As it stands in the URL.
    name: String,
    /// Its port.
    pub port: u16,
    /// Where to connect to: another address than the name says, if the URL has one.
    pub address: String,
}

/// A URL in its parts.
#[derive(Clone, PartialEq, Eq)]
pub struct Route {
    style: UrlStyle,
    scheme: String,
    /// With its `@`, as it was given.
    user: Secret,
    /// The hosts, as they were given.
    place: String,
    /// `None` if there is nothing to connect to by TCP: a socket file, or hosts among the options.
    hosts: Option<Vec<Host>>,
    /// The database, with its `/`.
    path: String,
    options: Vec<String>,
}

/// How a driver reads URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlStyle {
    /// The user ends at the last `@` before the path, and a host is what is connected to.
    Plain,
    /// As libpq does: the user ends at the first `@`, and the option `hostaddr` says what is
    /// connected to while certificates are checked for the host.
    Libpq,
}

impl Route {
    /// Takes a URL apart; `None` if it is none with a host in it.
    pub fn new(url: &str, default_port: u16, style: UrlStyle) -> Option<Route> {
        let (scheme, rest) = url.split_once("://")?;
        let user_end = match style {
            UrlStyle::Libpq => rest.find('@'),
            UrlStyle::Plain => rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())].rfind('@'),
        };
        let (user, rest) = rest.split_at(user_end.map_or(0, |at| at + 1));
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, path) = place.split_at(place.find('/').unwrap_or(place.len()));
        let options: Vec<String> =
            query.split('&').filter(|option| !option.is_empty()).map(str::to_owned).collect();
        let (scheme, user, place) = (scheme.to_owned(), Secret::new(user), place.to_owned());
        let path = path.to_owned();
        let mut route = Route { style, scheme, user, place, hosts: None, path, options };
        route.hosts = route.tcp_hosts(default_port);
        Some(route)
    }

    fn tcp_hosts(&self, default_port: u16) -> Option<Vec<Host>> {
        if self.option("host").is_some() || self.option("port").is_some() {
            return None;
        }
        let addresses: Vec<&str> =
            self.option("hostaddr").map(|list| list.split(',').collect()).unwrap_or_default();
        let host = |(index, host): (usize, &str)| {
            let mut host = host_and_port(host, default_port)?;
            if let Some(address) = addresses.get(index) {
                host.address = (*address).to_owned();
            }
            Some(host)
        };
        self.place.split(',').enumerate().map(host).collect()
    }

    /// What stands before the `://`.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The servers, if they are reached by TCP.
    pub fn hosts(&self) -> Option<&[Host]> {
        self.hosts.as_deref()
    }

    /// The value of an option as it stands there, if it has one.
    pub fn option(&self, key: &str) -> Option<&str> {
        let mut pairs = self.options.iter().filter_map(|option| option.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The same, with this option; one of the same name is replaced.
    #[must_use]
    pub fn with_option(mut self, key: &str, value: &str) -> Route {
        self = self.without_option(key);
        self.options.push(format!("{key}={value}"));
        self
    }

    /// The same, without this option.
    #[must_use]
    pub fn without_option(mut self, key: &str) -> Route {
        let is_it = |option: &String| option.split('=').next() == Some(key);
        self.options.retain(|option| !is_it(option));
        self
    }

    /// The same, by another scheme.
    #[must_use]
    pub fn with_scheme(mut self, scheme: &str) -> Route {
        scheme.clone_into(&mut self.scheme);
        self
    }

    /// The URL. It may hold a password.
    pub fn url(&self) -> Secret {
        let Route { scheme, place, path, options, .. } = self;
        let user = self.user.expose();
        let question = if options.is_empty() { "" } else { "?" };
        Secret::new(format!("{scheme}://{user}{place}{path}{question}{}", options.join("&")))
    }

    /// The URL by way of these addresses, one for each host.
    pub fn url_through(&self, proxies: &[SocketAddr]) -> Secret {
        let keeps_names = self.style == UrlStyle::Libpq;
        let hosts = self.hosts.iter().flatten().zip(proxies);
        let place: Vec<String> = hosts
            .map(|(host, proxy)| match keeps_names {
                // The certificate is checked for the name; the address is another option.
                true => format!("{}:{}", host.name, proxy.port()),
                false => proxy.to_string(),
            })
            .collect();
        let mut route = Route { place: place.join(","), ..self.clone() };
        if keeps_names {
            let addresses: Vec<String> =
                proxies.iter().take(place.len()).map(|proxy| proxy.ip().to_string()).collect();
            route = route.with_option("hostaddr", &addresses.join(","));
        }
        route.url()
    }
}

/// Without what may be a password: its user and its options.
impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Route { scheme, place, .. } = self;
        f.debug_tuple("Route").field(&format_args!("{scheme}://{place}")).finish()
    }
}

fn host_and_port(text: &str, default_port: u16) -> Option<Host> {
    let (name, port) = match text.rsplit_once(':') {
        // `[::1]` has colons of its own.
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()?),
        _ => (text, default_port),
    };
    let name = if name.is_empty() { "localhost" } else { name };
    // A socket file, with its slashes escaped.
    if name.starts_with('%') || name.starts_with('/') {
        return None;
    }
    let address = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Host { name: name.to_owned(), port, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(url: &str, default_port: u16) -> Option<Route> {
        let style = if url.starts_with("postgres") { UrlStyle::Libpq } else { UrlStyle::Plain };
        Route::new(url, default_port, style)
    }

    fn proxies(count: u16) -> Vec<SocketAddr> {
        (0..count).map(|number| SocketAddr::from(([127, 0, 0, 1], 9000 + number))).collect()
    }

    #[test]
    fn a_url_leads_through_the_doors_and_keeps_all_the_rest() {
        for (url, through) in [
            (
                "postgres://u:p%40w@db.example/shop?sslmode=verify-full&schema=s",
                "postgres://u:p%40w@db.example:9000/shop?sslmode=verify-full&schema=s\
                 &hostaddr=127.0.0.1",
            ),
            (
                "postgresql://u:a?b/c@h1:6000,h2/d",
                "postgresql://u:a?b/c@h1:9000,h2:9001/d?hostaddr=127.0.0.1,127.0.0.1",
            ),
            ("postgres://[::1]:7/d", "postgres://[::1]:9000/d?hostaddr=127.0.0.1"),
            ("postgres://", "postgres://localhost:9000?hostaddr=127.0.0.1"),
            ("redis://:p@h/2?prefix=a:", "redis://:p@127.0.0.1:9000/2?prefix=a:"),
            ("redis://h:7", "redis://127.0.0.1:9000"),
        ] {
            let route = route(url, 5432).unwrap();
            assert_eq!(route.url_through(&proxies(2)).expose(), through);
        }
    }

    #[test]
    fn the_hosts_are_found_wherever_they_stand() {
        let hosts = |url: &str| {
            let route = route(url, 5432).unwrap();
            let host = |host: &Host| format!("{} {}", host.address, host.port);
            route.hosts().unwrap().iter().map(host).collect::<Vec<_>>()
        };
        assert_eq!(hosts("postgres://u:p@a:1,b/d"), ["a 1", "b 5432"]);
        assert_eq!(hosts("postgres://a/d?hostaddr=10.0.0.7"), ["10.0.0.7 5432"]);
        assert_eq!(hosts("redis://u:p@[fe80::1]:9/0"), ["fe80::1 9"]);
    }

    #[test]
    fn what_is_not_reached_by_tcp_has_no_hosts() {
        for url in [
            "postgres://%2Fvar%2Frun%2Fpostgresql/d",
            "postgres:///d?host=/var/run/postgresql",
            "redis://h:port/0",
        ] {
            let route = route(url, 1).unwrap();
            assert_eq!((route.hosts(), route.url().expose()), (None, url));
        }
        assert_eq!(route("sqlite:x.db", 1), None);
    }

    #[test]
    fn a_route_is_shown_without_its_secrets() {
        let route = route("postgres://u:hunter2@h:1/d?password=hunter2", 5432).unwrap();
        assert_eq!(format!("{route:?}"), "Route(postgres://h:1)");
    }

    #[test]
    fn options_are_replaced_and_read() {
        let route = route("redis://h/0?prefix=a:&settle=1s", 6379).unwrap();
        assert_eq!((route.option("prefix"), route.option("pre")), (Some("a:"), None));
        let route = route.with_option("prefix", "b:").without_option("settle");
        assert_eq!(route.url().expose(), "redis://h/0?prefix=b:");
    }
}
