//! The routes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use serde_json::{Value, json};
use tenure::Term;

use crate::gate::Trust;
use crate::hub::{Hub, Watched, millis};
use crate::problem::Problem;
use crate::reply;
use crate::sidecar::Inner;
use crate::stream::EventBody;
use crate::{openapi, page};

/// How long a driver may take to answer before it counts as hanging.
const DRIVER_WITHIN: Duration = Duration::from_secs(2);
/// How long a resignation is waited for; after that it goes on by itself.
const RESIGN_WITHIN: Duration = Duration::from_secs(10);

type Answer = Result<Response, Problem>;
type Shared = State<Arc<Inner>>;
type Named = Result<Path<String>, PathRejection>;

/// All paths, with the methods that each knows. The description is held against this by a test.
pub(crate) const ROUTES: [(&str, &[&str]); 13] = [
    ("/", &["get"]),
    ("/leader", &["get", "head", "options"]),
    ("/leader/{name}", &["get", "head", "options"]),
    ("/elections", &["get"]),
    ("/elections/{name}", &["get"]),
    ("/elections/{name}/resign", &["post"]),
    ("/elections/{name}/done", &["post"]),
    ("/elections/{name}/notify/{channel}", &["post"]),
    ("/events", &["get"]),
    ("/healthz", &["get"]),
    ("/readyz", &["get"]),
    ("/metrics", &["get"]),
    ("/openapi.json", &["get"]),
];

/// Those that tell nothing about who leads.
const HEALTH: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

pub(crate) fn routes(health_only: bool) -> Router<Arc<Inner>> {
    let mut router = Router::new();
    for (path, _) in ROUTES {
        if !health_only || HEALTH.contains(&path) {
            router = router.route(path, handler(path));
        }
    }
    router
}

fn handler(path: &str) -> MethodRouter<Arc<Inner>> {
    let handler = match path {
        "/" => get(page::answer),
        "/leader" => get(leader).options(leader_options),
        "/leader/{name}" => get(leader_of).options(leader_of_options),
        "/elections" => get(elections),
        "/elections/{name}" => get(election),
        "/elections/{name}/resign" => post(resign),
        "/elections/{name}/done" => post(done),
        "/elections/{name}/notify/{channel}" => post(notify),
        "/events" => get(events),
        "/healthz" => get(healthz),
        "/readyz" => get(readyz),
        "/metrics" => get(metrics),
        _ => get(openapi::answer),
    };
    handler.fallback(method_not_allowed)
}

pub(crate) async fn not_found(State(inner): Shared, request: Request) -> Problem {
    let all = ROUTES.iter().map(|(path, _)| *path);
    let paths: Vec<&str> = all.filter(|path| !inner.health_only || HEALTH.contains(path)).collect();
    let detail = format!("there is nothing at {}", request.uri().path());
    Problem::new(StatusCode::NOT_FOUND, detail).with("known", json!(paths))
}

async fn method_not_allowed(request: Request) -> Problem {
    let detail = format!("{} is not for {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

async fn leader(State(inner): Shared, method: Method, uri: Uri) -> Answer {
    leader_answer(&inner.hub, &*only_one(&inner.hub)?, &method, &uri)
}

async fn leader_of(State(inner): Shared, method: Method, name: Named, uri: Uri) -> Answer {
    leader_answer(&inner.hub, &*named(&inner.hub, name)?, &method, &uri)
}

async fn leader_options(State(inner): Shared) -> Answer {
    Ok(leader_status(&inner.hub, &*only_one(&inner.hub)?))
}

async fn leader_of_options(State(inner): Shared, name: Named) -> Answer {
    Ok(leader_status(&inner.hub, &*named(&inner.hub, name)?))
}

fn leader_answer(hub: &Hub, watched: &Watched, method: &Method, uri: &Uri) -> Answer {
    let redirected_by = match uri.query() {
        Some(_) => reply::query(uri.query(), "redirect")?,
        None => None,
    };
    if !hub.is_draining() {
        if let Some(key) = redirected_by {
            hub.interest();
            return redirect(watched, &key);
        }
        // HEAD is asked to show who leads: a hand-over does not wait for that.
        let shown = method == Method::HEAD;
        let body = if shown { watched.shown_body() } else { watched.vouched_body() };
        if let Some(body) = body {
            return Ok(reply::json(StatusCode::OK, body));
        }
    }
    hub.interest();
    // While draining it may still lead, but is not to be sent to any more.
    let body = watched.shown_body().unwrap_or_else(|| watched.following_json().to_string());
    Ok(reply::json(StatusCode::SERVICE_UNAVAILABLE, body))
}

/// As a GET, because it is the usual probe of HAProxy: its 200 is relied upon (I8).
fn leader_status(hub: &Hub, watched: &Watched) -> Response {
    let leads = !hub.is_draining() && watched.election.is_leader();
    let status = if leads { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let allow = (header::ALLOW, HeaderValue::from_static("GET,HEAD,OPTIONS"));
    (status, [allow]).into_response()
}

/// To where the leader said, and nowhere else: only what it published whole, and only the web.
fn redirect(watched: &Watched, key: &str) -> Answer {
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    let Some(metadata) = watched.metadata() else {
        let detail = "nobody is seen to lead, or the leader published nothing; ask again";
        return Err(Problem::new(unavailable, detail).retry_after(1));
    };
    let keys: Vec<&String> = metadata.as_object().map(|o| o.keys().collect()).unwrap_or_default();
    let Some(published) = metadata.get(key) else {
        let detail = format!("the leader published no {key:?} in its metadata");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail).with("known", json!(keys)));
    };
    let Some(location) = published.as_str().and_then(web_url) else {
        let detail = format!("what the leader published as {key:?} is no http or https URL");
        return Err(Problem::new(StatusCode::BAD_GATEWAY, detail));
    };
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

fn web_url(text: &str) -> Option<HeaderValue> {
    let uri: Uri = text.parse().ok()?;
    let scheme = uri.scheme_str()?;
    let web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let authority = uri.authority()?;
    // `http://good.example@evil.example/` reads as one site and leads to another.
    let plain = !authority.host().is_empty() && !authority.as_str().contains('@');
    let plain = plain && !text.contains('\\');
    (web && plain).then(|| HeaderValue::from_str(text).ok()).flatten()
}

async fn elections(State(inner): Shared) -> Response {
    inner.hub.interest();
    reply::json(StatusCode::OK, inner.hub.snapshot(None).to_string())
}

async fn election(State(inner): Shared, name: Named) -> Answer {
    inner.hub.interest();
    let watched = named(&inner.hub, name)?;
    Ok(reply::json(StatusCode::OK, watched.json_with_history().to_string()))
}

async fn events(State(inner): Shared, headers: HeaderMap, uri: Uri) -> Answer {
    let only = reply::query(uri.query(), "election")?;
    if let Some(only) = &only {
        find(&inner.hub, only)?;
    }
    let last_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let snapshot = || inner.hub.snapshot(only.as_deref());
    let subscribed = inner.hub.clients.subscribe(only.clone(), last_id, snapshot);
    let Some(subscription) = subscribed else {
        let detail = "too many listen to events already; ask again later";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(5));
    };
    let body = Body::new(EventBody::from(subscription));
    let mut response = reply::with_type(StatusCode::OK, "text/event-stream", body);
    // nginx would keep events back until it has a buffer full of them.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Fails when this process ought to have stepped down and has not: a supervisor then ends it.
async fn healthz(State(inner): Shared) -> Answer {
    let list = inner.hub.list();
    for watched in &list.all {
        let election = &watched.election;
        if let Some(overdue) = election.overdue().filter(|o| o.by > election.timing().margin) {
            let detail = format!(
                "term {} of {} was to be stepped down from {} ms ago, and was not",
                overdue.term,
                election.name(),
                millis(overdue.by)
            );
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                .with("election", json!(election.name().as_str())));
        }
    }
    for watched in &list.all {
        let answers = tokio::time::timeout(DRIVER_WITHIN, watched.election.driver_answers());
        if answers.await.is_err() {
            let detail = format!("what renews {} hangs", watched.election.name());
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
    }
    Ok(reply::json(StatusCode::OK, r#"{"status":"ok"}"#))
}

/// Ready once every election was looked at, until the end begins.
async fn readyz(State(inner): Shared) -> Answer {
    if inner.hub.is_draining() {
        let detail = "this instance is about to end";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    if inner.hub.is_new() {
        return Err(waiting());
    }
    let list = inner.hub.list();
    let new = list.all.iter().find(|watched| watched.election.store_answers().is_none());
    if let Some(new) = new {
        let detail = format!("the store has not been asked about {} yet", new.election.name());
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    }
    Ok(reply::json(StatusCode::OK, r#"{"status":"ok"}"#))
}

async fn metrics(State(inner): Shared) -> Answer {
    let Some(render) = &inner.metrics else {
        let detail = "this service renders no metrics";
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    tenure::refresh_metrics();
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    Ok(reply::with_type(StatusCode::OK, media_type, render()))
}

async fn resign(
    State(inner): Shared,
    Extension(trust): Extension<Trust>,
    name: Named,
    body: Body,
) -> Answer {
    inner.gate.authorize(trust)?;
    let watched = named(&inner.hub, name)?;
    let term = wanted_term(reply::read_json(body).await?)?;
    let election = &watched.election;
    let own = election.peek().map(|standing| standing.term);
    let (status, asked, outcome) = if own.is_some() && (term.is_none() || term == own) {
        let resigned = tokio::time::timeout(RESIGN_WITHIN, election.resign()).await;
        match resigned {
            Ok(resigned) => {
                resigned?;
                (StatusCode::OK, own, "resigned")
            }
            Err(_) => (StatusCode::ACCEPTED, own, "resigning"),
        }
    } else {
        let asked = election.ask_to_resign(term).await?;
        (StatusCode::ACCEPTED, asked, "asked")
    };
    let Some(asked) = asked else {
        let detail = match term {
            Some(term) => format!("nobody leads {} as term {term}", election.name()),
            None => format!("nobody leads {}", election.name()),
        };
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    };
    let body = json!({
        "election": election.name().as_str(),
        "term": asked.get(),
        "outcome": outcome,
    });
    Ok(reply::json(status, body.to_string()))
}

/// A client that was told by a 200 that this instance leads has ended all that it began for it: the
/// lease is given back without waiting for the drain (I8).
async fn done(
    State(inner): Shared,
    Extension(trust): Extension<Trust>,
    name: Named,
    uri: Uri,
    body: Body,
) -> Answer {
    inner.gate.authorize(trust)?;
    let watched = named(&inner.hub, name)?;
    let told = wanted_term(reply::read_json(body).await?)?;
    let asked = match reply::query(uri.query(), "term")? {
        Some(text) => Some(text.parse().ok().and_then(Term::new).ok_or_else(no_term)?),
        None => None,
    };
    let term = match (told, asked) {
        (Some(told), Some(asked)) if told != asked => {
            let detail = "the body and the query name different terms; name one";
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        (told, asked) => told.or(asked).ok_or_else(|| {
            let detail = "say which term is done: {\"term\": 42} in the body, or ?term=42";
            Problem::new(StatusCode::BAD_REQUEST, detail)
        })?,
    };
    let election = &watched.election;
    let led = election.peek().map(|standing| standing.term);
    let kept = election.winding_up();
    if led != Some(term) && kept != Some(term) {
        let now = led.or(kept).map(Term::get);
        let detail = match now {
            Some(now) => {
                format!("this instance is not at term {term} of {}, but at {now}", election.name())
            }
            None => format!("this instance holds no lease of {} as term {term}", election.name()),
        };
        return Err(Problem::new(StatusCode::CONFLICT, detail).with("term", json!(now)));
    }
    election.done(term)?;
    let body = json!({
        "election": election.name().as_str(),
        "term": term.get(),
        "outcome": "done",
    });
    Ok(reply::json(StatusCode::OK, body.to_string()))
}

fn no_term() -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "a term is a whole number, as in ?term=42")
}

/// `{"term": 42}`, or nothing.
fn wanted_term(body: Option<Value>) -> Result<Option<Term>, Problem> {
    let bad = |detail: &str| Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    let fields = match body {
        None => return Ok(None),
        Some(Value::Object(fields)) => fields,
        Some(_) => return bad("the body must be an object, such as {\"term\": 42}, or empty"),
    };
    if let Some(odd) = fields.keys().find(|key| *key != "term") {
        return bad(&format!("{odd:?} means nothing here; only \"term\" does"));
    }
    match fields.get("term") {
        None => Ok(None),
        Some(term) => match whole(term).and_then(Term::new) {
            Some(term) => Ok(Some(term)),
            None => bad("\"term\" must be a whole number from 1 to 2^53 - 1"),
        },
    }
}

/// JSON knows one kind of number: `42.0` is as whole as `42`.
fn whole(number: &Value) -> Option<u64> {
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && *float >= 0.0);
    number.as_u64().or_else(|| float.map(|float| float as u64))
}

async fn notify(
    State(inner): Shared,
    Extension(trust): Extension<Trust>,
    path: Result<Path<(String, String)>, PathRejection>,
    body: Body,
) -> Answer {
    inner.gate.authorize(trust)?;
    let Path((name, channel)) = path.map_err(bad_path)?;
    let watched = find(&inner.hub, &name)?;
    let payload = reply::read(body).await?;
    serde_json::from_str::<Value>(&payload).map_err(|error| Problem::bad_json(&error))?;
    let limit = watched.election.messenger()?.limits()?.notice_bytes;
    if payload.len() > limit {
        let detail = format!(
            "a message here has at most {limit} bytes; put it elsewhere and send \
                              a link"
        );
        return Err(
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).with("limit_bytes", json!(limit))
        );
    }
    watched.election.notify(&channel, &payload).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// The election that `/leader` means if there is only one.
fn only_one(hub: &Hub) -> Result<Arc<Watched>, Problem> {
    match &hub.list().all[..] {
        [one] => Ok(one.clone()),
        [] if hub.is_waiting() => Err(waiting()),
        _ => {
            let detail = "there is not exactly one election here; name it, as in /leader/NAME";
            Err(Problem::new(StatusCode::BAD_REQUEST, detail).with("known", known(hub)))
        }
    }
}

fn named(hub: &Hub, name: Named) -> Result<Arc<Watched>, Problem> {
    let Path(name) = name.map_err(bad_path)?;
    find(hub, &name)
}

fn find(hub: &Hub, name: &str) -> Result<Arc<Watched>, Problem> {
    hub.list().find(name).cloned().ok_or_else(|| {
        if hub.is_waiting() {
            return waiting();
        }
        let detail = format!("there is no election {name:?} here");
        Problem::new(StatusCode::NOT_FOUND, detail).with("known", known(hub))
    })
}

/// Without the reason, which is for those who may read the log.
fn waiting() -> Problem {
    let detail = "the store does not answer, so not all elections are known; ask again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).retry_after(1)
}

fn known(hub: &Hub) -> Value {
    hub.list().all.iter().map(|watched| Value::from(watched.election.name().as_str())).collect()
}

fn bad_path(rejection: PathRejection) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, format!("the path can't be read: {rejection}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_of_the_web_are_redirected_to() {
        for good in ["http://10.0.0.7:8080", "https://a.example/x?y=1", "HTTP://a.example"] {
            assert!(web_url(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "a.example",
            "/leader",
            "//evil.example",
            "javascript:alert(1)",
            "ftp://a.example",
            "http://good.example@evil.example/",
            "http://good.example\\@evil.example/",
            "http://",
            "http:///x",
            "http://a.example/\r\nset-cookie: a=b",
        ] {
            assert_eq!(web_url(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_term_is_a_whole_number_or_left_out() {
        let read = |value: Value| wanted_term(Some(value)).map_err(|_| ());
        assert_eq!(read(json!({ "term": 7 })), Ok(Some(Term::new(7).unwrap())));
        assert_eq!(read(json!({ "term": 7.0 })), Ok(Some(Term::new(7).unwrap())));
        assert_eq!(read(json!({})), Ok(None));
        for bad in [json!([]), json!({ "term": "7" }), json!({ "term": 7.5 }), json!({ "x": 1 })] {
            assert_eq!(read(bad.clone()), Err(()), "{bad}");
        }
    }
}
