//! Who may ask for what: the host that is named, the token, and the headers of every answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{self, HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use tenure::core::sync;

use crate::problem::Problem;
use crate::sidecar::Inner;
use crate::token::Token;

/// Who asks; the server of this crate says so with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Ip(IpAddr),
    /// Over a unix socket that only its owner may open: this client may do everything.
    Unix,
    /// Over a unix socket that others may open, too: they may read, as on loopback.
    SharedUnix,
}

/// Whether a request may change something: routes that do ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It has the token, or came over a unix socket of the owner's own.
    Full,
    None,
}

/// The rules.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    token: RwLock<Option<Token>>,
    /// Reading needs the token, too.
    pub(crate) token_for_reading: bool,
    /// Names that this service is reached by, beside addresses and `localhost`.
    pub(crate) hosts: Vec<String>,
    pub(crate) any_host: bool,
}

/// What holds for everybody who may come in without the token.
const OPEN: [&str; 4] = ["/", "/healthz", "/readyz", "/openapi.json"];

const CSP: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Runs before and after every route.
pub(crate) async fn pass(
    State(inner): State<Arc<Inner>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match inner.gate.check(&request, peer(&request)) {
        Ok(trust) => {
            request.extensions_mut().insert(trust);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    };
    harden(&mut response);
    response
}

/// What every answer says to browsers and caches.
pub(crate) fn harden(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert_with(|| HeaderValue::from_static(CSP));
}

impl Gate {
    /// Asks for this token from now on.
    pub(crate) fn set_token(&self, token: Token) {
        *sync::write(&self.token) = Some(token);
    }

    fn token(&self) -> Option<Token> {
        sync::read(&self.token).clone()
    }

    pub(crate) fn check<B>(
        &self,
        request: &http::Request<B>,
        peer: Option<Peer>,
    ) -> Result<Trust, Problem> {
        if peer == Some(Peer::Unix) {
            return Ok(Trust::Full);
        }
        let open = OPEN.contains(&request.uri().path());
        let needed = self.token_for_reading && !open;
        let known = match bearer(request.headers()) {
            // A health check with a token of yesterday gets its answer all the same.
            Some(given) if open => self.check_token(given, peer).unwrap_or(false),
            Some(given) => self.check_token(given, peer)?,
            None => false,
        };
        if needed && !known {
            return Err(self.token_is_missing());
        }
        if known {
            return Ok(Trust::Full);
        }
        // A page of another site that was made to resolve to this address does not know the token.
        if !self.any_host && peer != Some(Peer::SharedUnix) {
            self.check_host(request)?;
        }
        Ok(Trust::None)
    }

    /// What routes that change something ask first.
    pub(crate) fn authorize(&self, trust: Trust) -> Result<(), Problem> {
        match trust {
            Trust::Full => Ok(()),
            Trust::None => Err(self.token_is_missing()),
        }
    }

    fn check_token(&self, given: &str, peer: Option<Peer>) -> Result<bool, Problem> {
        let Some(token) = self.token() else { return Ok(false) };
        if token.matches(given) {
            return Ok(true);
        }
        tracing::info!(?peer, "a request had a wrong token");
        Err(Problem::new(StatusCode::UNAUTHORIZED, "this is not the token of this service"))
    }

    fn token_is_missing(&self) -> Problem {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            match self.token() {
                Some(_) => "this needs the token: send `Authorization: Bearer TOKEN`",
                None => {
                    "this needs a token and none is configured: give the service one, by \
                     TENURE_TOKEN or --token-file, or use a unix socket"
                }
            },
        )
    }

    fn check_host<B>(&self, request: &http::Request<B>) -> Result<(), Problem> {
        let named = match request.uri().authority() {
            Some(authority) => Some(authority.as_str()),
            None => {
                let host = request.headers().get(header::HOST);
                host.map(|host| host.to_str().unwrap_or_default())
            }
        };
        let Some(named) = named else {
            // Every browser names the host; old health checks do not.
            if request.version() < Version::HTTP_11 {
                return Ok(());
            }
            let detail = "the request names no host, as HTTP/1.1 asks for";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        };
        if self.is_ours(named) {
            return Ok(());
        }
        let detail = "this service is not known by that name; reach it by its address or as \
                      localhost, send the token, or allow the name with --allow-host";
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail).with("host", json!(named)))
    }

    /// An address can't be made to mean another one by DNS; a name can.
    fn is_ours(&self, named: &str) -> bool {
        let host = without_port(named);
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        bare.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| host.eq_ignore_ascii_case(known))
    }
}

fn without_port(named: &str) -> &str {
    match named.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => named,
    }
}

fn peer(request: &Request) -> Option<Peer> {
    let extensions = request.extensions();
    let told = extensions.get::<Peer>().copied();
    let axum = || extensions.get::<ConnectInfo<SocketAddr>>().map(|info| Peer::Ip(info.0.ip()));
    told.or_else(axum)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?;
    // What can't be a token is a wrong one, not none.
    let text = value.to_str().unwrap_or("bearer ?");
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_ours_and_names_only_if_allowed() {
        let gate = Gate { hosts: vec!["api.internal".into()], ..Gate::default() };
        for ours in [
            "127.0.0.1",
            "127.0.0.1:7070",
            "[::1]:7070",
            "[::1]",
            "10.1.2.3:80",
            "LOCALHOST:1",
            "Api.Internal:7070",
        ] {
            assert!(gate.is_ours(ours), "{ours}");
        }
        for strange in
            ["evil.example", "127.0.0.1.evil.example:7070", "localhost.evil.example", "", "a:b:c"]
        {
            assert!(!gate.is_ours(strange), "{strange}");
        }
    }

    #[test]
    fn a_token_is_given_as_bearer() {
        let headers = |value: &'static str| {
            HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))])
        };
        assert_eq!(bearer(&headers("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&headers("bearer  abc ")), Some("abc"));
        assert_eq!(bearer(&headers("Basic abc")), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
