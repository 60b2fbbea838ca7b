//! What went wrong, as problem details (RFC 9457): for people a sentence that says what to do, for
//! programs the status and a few fields.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tenure::{Error, ErrorKind};

pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// One problem.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    more: Map<String, Value>,
    retry_after_s: Option<u64>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem { status, detail: detail.into(), more: Map::new(), retry_after_s: None }
    }

    /// A field of its own, for programs.
    pub(crate) fn with(mut self, field: &str, value: Value) -> Problem {
        self.more.insert(field.to_owned(), value);
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Problem {
        self.retry_after_s = Some(seconds);
        self
    }

    /// JSON that can't be read, naming the place.
    pub(crate) fn bad_json(error: &serde_json::Error) -> Problem {
        // serde ends its sentence with the place, which we name ourselves.
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
        let (line, column) = (error.line(), error.column());
        let detail = format!("the body is not JSON: {reason}, at line {line}, column {column}");
        Problem::new(StatusCode::BAD_REQUEST, detail)
            .with("line", json!(line))
            .with("column", json!(column))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        tracing::debug!(?error, "a request failed");
        let status = match error.kind() {
            ErrorKind::Config => StatusCode::BAD_REQUEST,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            ErrorKind::Unavailable | ErrorKind::Stopped | ErrorKind::Crashed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::BAD_GATEWAY,
        };
        Problem::new(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut fields = self.more;
        fields.insert("type".to_owned(), json!("about:blank"));
        let title = self.status.canonical_reason().unwrap_or("Problem");
        fields.insert("title".to_owned(), json!(title));
        fields.insert("status".to_owned(), json!(self.status.as_u16()));
        fields.insert("detail".to_owned(), json!(self.detail));
        let mut response = Response::new(Body::from(Value::Object(fields).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"tenure\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_json_names_its_place() {
        let error = serde_json::from_str::<Value>("{\n  \"a\": oh\n}").unwrap_err();
        let problem = Problem::bad_json(&error);
        assert_eq!(problem.status, StatusCode::BAD_REQUEST);
        assert!(problem.detail.ends_with("at line 2, column 8"), "{}", problem.detail);
    }
}
