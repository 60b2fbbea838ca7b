//! The description of the routes for programs: OpenAPI 3.1.

use std::sync::LazyLock;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::problem::MEDIA_TYPE;
use crate::reply;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// Answers with the description.
pub(crate) async fn answer() -> Response {
    reply::json(StatusCode::OK, DOCUMENT.as_str())
}

pub(crate) fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tenure",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Who leads each election, and asking the leader to resign.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": {
            "/": { "get": operation("page", "A page for people", [(200, "text/html")]) },
            "/leader": leader_path("leader", &[redirect()], false),
            "/leader/{name}": leader_path("leaderOf", &[name(), redirect()], true),
            "/elections": { "get": reading("elections", "All elections", "#Elections", &[]) },
            "/elections/{name}": {
                "get": reading("election", "One election with its history", "#Election", &[name()]),
            },
            "/elections/{name}/resign": { "post": resign() },
            "/elections/{name}/done": { "post": done() },
            "/elections/{name}/notify/{channel}": { "post": notify() },
            "/events": { "get": events() },
            "/healthz": { "get": check("healthz", "Fails if this process must be ended") },
            "/readyz": { "get": check("readyz", "Fails until it is ready and once it drains") },
            "/metrics": { "get": metrics() },
            "/openapi.json": {
                "get": operation("openapi", "This document", [(200, "application/json")]),
            },
        },
        "components": { "schemas": schemas(), "securitySchemes": {
            "token": { "type": "http", "scheme": "bearer" },
        } },
    })
}

fn operation<const N: usize>(id: &str, summary: &str, answers: [(u16, &str); N]) -> Value {
    let mut responses = json!({});
    for (status, media_type) in answers {
        responses[status.to_string()] = json!({
            "description": reason(status),
            "content": { media_type: { "schema": {} } },
        });
    }
    with_problems(json!({ "operationId": id, "summary": summary, "responses": responses }), &[])
}

fn reading(id: &str, summary: &str, schema: &str, parameters: &[Value]) -> Value {
    let mut value = json!({
        "operationId": id,
        "summary": summary,
        "parameters": parameters,
        "security": [{}, { "token": [] }],
        "responses": { "200": answer_of(200, schema) },
    });
    if parameters.is_empty() {
        return with_problems(value, &[]);
    }
    value["responses"]["404"] = problem(404);
    with_problems(value, &[503])
}

fn summary(suffix: &str) -> &'static str {
    match suffix {
        "Head" => "The status of GET, for showing it: nobody may act on it",
        _ => {
            "200 if this instance leads, else 503; a 200 may be relied on for drain_ms, counted \
              from before it was asked for"
        }
    }
}

fn leader_path(id: &str, parameters: &[Value], named: bool) -> Value {
    let get = |suffix: &str| {
        let mut value = json!({
            "operationId": format!("{id}{suffix}"),
            "summary": summary(suffix),
            "parameters": parameters,
            "security": [{}, { "token": [] }],
            "responses": {
                "200": answer_of(200, "#Leader"),
                "307": { "description": reason(307), "headers": { "location": {
                    "description": "What the leader published",
                    "schema": { "type": "string" },
                } } },
                "404": problem(404),
                "502": problem(502),
                "503": { "description": "Another instance leads, or nobody", "content": {
                    "application/json": { "schema": reference("#Leader") },
                    MEDIA_TYPE: { "schema": reference("#Problem") },
                } },
            },
        });
        if suffix == "Head" {
            for status in ["200", "404", "502", "503"] {
                value["responses"][status] = json!({ "description": "As for GET, without a body" });
            }
        }
        with_problems(value, &[])
    };
    let empty = |status: u16| json!({ "description": reason(status) });
    let mut options = json!({
        "operationId": format!("{id}Options"),
        "summary": "The status of GET, without a body; a 200 may be relied on as well",
        "parameters": if named { vec![name()] } else { vec![] },
        "security": [{}, { "token": [] }],
        "responses": { "200": empty(200), "503": empty(503) },
    });
    if named {
        options["responses"]["404"] = problem(404);
    }
    let options = with_problems(options, &[]);
    json!({ "get": get(""), "head": get("Head"), "options": options })
}

fn term() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 9_007_199_254_740_991_u64 })
}

fn body_with_term() -> Value {
    json!({ "type": "object", "properties": { "term": term() }, "additionalProperties": false })
}

fn done() -> Value {
    let asked = json!({
        "name": "term", "in": "query", "required": true,
        "description": "The term that is done; a body may say the same",
        "schema": term(),
    });
    with_problems(
        json!({
            "operationId": "done",
            "summary": "Says that all work has ended that began because a 200 of /leader said that \
                        this instance leads as this term; its lease is then given back before the \
                        drain is over",
            "parameters": [name(), asked],
            "security": [{ "token": [] }],
            "requestBody": { "required": false, "content": { "application/json": {
                "schema": body_with_term(),
                "example": { "term": 42 },
            } } },
            "responses": { "200": answer_of(200, "#Resigned") },
        }),
        &[404, 408, 409, 413, 503],
    )
}

fn resign() -> Value {
    with_problems(
        json!({
            "operationId": "resign",
            "summary": "Asks the leader to resign",
            "parameters": [name()],
            "security": [{ "token": [] }],
            "requestBody": { "required": false, "content": { "application/json": {
                "schema": body_with_term(),
                "example": {},
            } } },
            "responses": {
                "200": answer_of(200, "#Resigned"),
                "202": answer_of(202, "#Resigned"),
            },
        }),
        &[404, 408, 409, 413, 502, 503],
    )
}

fn notify() -> Value {
    let channel = json!({
        "name": "channel", "in": "path", "required": true,
        "description": "Without control characters; stores may allow more than these",
        "schema": {
            "type": "string", "minLength": 1, "maxLength": 15,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]+$",
        },
    });
    with_problems(
        json!({
            "operationId": "notify",
            "summary": "Sends a message to the leader: at most once, lost if nobody leads",
            "parameters": [name(), channel],
            "security": [{ "token": [] }],
            "requestBody": { "required": true, "content": { "application/json": {
                "schema": {},
                "example": { "wake": true },
            } } },
            "responses": { "202": { "description": reason(202) } },
        }),
        &[404, 408, 413, 501, 502, 503],
    )
}

fn events() -> Value {
    let last = json!({
        "name": "Last-Event-ID", "in": "header", "required": false,
        "description": "The last event that was got; what came after it is sent first",
        "schema": { "type": "string" },
    });
    let only = json!({
        "name": "election", "in": "query", "required": false,
        "description": "The events of this election alone",
        "schema": { "type": "string" },
    });
    let mut value = json!({
        "operationId": "events",
        "summary": "What happens, live",
        "parameters": [only, last],
        "security": [{}, { "token": [] }],
        "responses": { "200": {
            "description": "Server-sent events: a snapshot, then events of elections",
            "content": { "text/event-stream": { "schema": { "type": "string" } } },
        } },
    });
    value["responses"]["404"] = problem(404);
    with_problems(value, &[503])
}

fn check(id: &str, summary: &str) -> Value {
    let value = json!({
        "operationId": id,
        "summary": summary,
        "responses": { "200": answer_of(200, "#Status") },
    });
    with_problems(value, &[503])
}

fn metrics() -> Value {
    let value = json!({
        "operationId": "metrics",
        "summary": "Metrics in the text format of Prometheus",
        "security": [{}, { "token": [] }],
        "responses": { "200": {
            "description": "Metrics",
            "content": { "text/plain": { "schema": { "type": "string" } } },
        } },
    });
    with_problems(value, &[404])
}

/// Every operation may be refused at the gate.
fn with_problems(mut operation: Value, more: &[u16]) -> Value {
    for status in [400, 401, 421].iter().chain(more) {
        operation["responses"][status.to_string()] = problem(*status);
    }
    operation
}

fn answer_of(status: u16, schema: &str) -> Value {
    json!({
        "description": reason(status),
        "content": { "application/json": { "schema": reference(schema) } },
    })
}

fn problem(status: u16) -> Value {
    json!({
        "description": reason(status),
        "content": { MEDIA_TYPE: { "schema": reference("#Problem") } },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": schema.replacen('#', "#/components/schemas/", 1) })
}

fn reason(status: u16) -> &'static str {
    let status = StatusCode::from_u16(status).ok();
    status.and_then(|status| status.canonical_reason()).unwrap_or("Answer")
}

fn name() -> Value {
    json!({
        "name": "name", "in": "path", "required": true,
        "description": "The election, percent-encoded",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
    })
}

fn redirect() -> Value {
    json!({
        "name": "redirect", "in": "query", "required": false,
        "description": "Answer 307 to the URL under this key of the leader's metadata",
        "schema": { "type": "string" },
    })
}

fn schemas() -> Value {
    let maybe = |kind: &str| json!({ "type": [kind, "null"] });
    let leader = json!({
        "election": { "type": "string" },
        "is_leader": { "type": "boolean" },
        "leader": maybe("string"),
        "label": maybe("string"),
        "term": maybe("integer"),
        "since": maybe("string"),
        "remaining_ms": maybe("integer"),
        "drain_ms": maybe("integer"),
        "metadata": maybe("object"),
    });
    let mut state = leader.clone();
    state["candidate"] = json!({ "type": "string" });
    state["store_answers"] = maybe("boolean");
    state["ttl_ms"] = json!({ "type": "integer" });
    state["overdue_ms"] = maybe("integer");
    let mut election = state.clone();
    for field in ["renew_every_ms", "margin_ms", "drain_ms"] {
        election[field] = json!({ "type": "integer" });
    }
    election["history"] = json!({ "type": "array", "maxItems": 100, "items": reference("#Reign") });
    let elections = json!({
        "elections": { "type": "array", "items": reference("#State") },
        "draining": { "type": "boolean" },
        "waiting": { "type": "boolean" },
    });
    let reign = json!({
        "leader": { "type": "string" },
        "label": { "type": "string" },
        "term": maybe("integer"),
        "from": { "type": "string" },
        "to": maybe("string"),
        "reason": maybe("string"),
        "gap_ms": maybe("integer"),
    });
    let resigned = json!({
        "election": { "type": "string" },
        "term": { "type": "integer" },
        "outcome": { "enum": ["resigned", "resigning", "asked", "done"] },
    });
    let problem = json!({
        "type": { "type": "string" },
        "title": { "type": "string" },
        "status": { "type": "integer" },
        "detail": { "type": "string" },
    });
    let mut problem = object(problem);
    problem["additionalProperties"] = json!(true);
    json!({
        "Leader": object(leader),
        "State": object(state),
        "Election": object(election),
        "Elections": object(elections),
        "Reign": object(reign),
        "Resigned": object(resigned),
        "Status": object(json!({ "status": { "const": "ok" } })),
        "Problem": problem,
    })
}

/// An object with exactly these fields.
fn object(properties: Value) -> Value {
    let required: Vec<String> =
        properties.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ROUTES;

    #[test]
    fn the_description_names_exactly_the_routes_that_there_are() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), ROUTES.len());
        for (path, methods) in ROUTES {
            let described: Vec<&String> = paths[path].as_object().unwrap().keys().collect();
            assert_eq!(described, methods.iter().collect::<Vec<_>>(), "{path}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = document().to_string();
        let document = document();
        let references = text.split("\"$ref\":\"#").skip(1);
        let references: Vec<&str> =
            references.map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(references.len() > 20);
        for reference in references {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
    }
}
