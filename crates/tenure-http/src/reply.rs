//! Answers that are no problems, and reading what comes with a request.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;
use tenure::core::url_decoded;

use crate::problem::Problem;

/// The largest body that is read, in bytes. Stores carry less in a message.
pub(crate) const BODY_MAX: usize = 64 * 1024;
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A body of JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    with_type(status, "application/json", body)
}

pub(crate) fn with_type(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The whole body as text, if it is small enough and comes in time.
pub(crate) async fn read(body: Body) -> Result<String, Problem> {
    let collected = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_MAX).collect());
    let Ok(collected) = collected.await else {
        let detail = "the body did not arrive in time; send it within 10 s";
        return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail));
    };
    let bytes = match collected {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is larger than {BODY_MAX} bytes, the maximum");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
                .with("limit_bytes", BODY_MAX.into()));
        }
        Err(_) => {
            let detail = "the body ended before it was complete";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
    };
    String::from_utf8(bytes.to_vec()).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let detail = format!("the body is not UTF-8: byte {place} can't be read");
        Problem::new(StatusCode::BAD_REQUEST, detail).with("byte", place.into())
    })
}

/// The body as JSON; `None` if it is empty.
pub(crate) async fn read_json(body: Body) -> Result<Option<Value>, Problem> {
    let text = read(body).await?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&text).map(Some).map_err(|error| Problem::bad_json(&error))
}

/// The value of a parameter of the query, decoded; a problem if it is not UTF-8.
pub(crate) fn query(query: Option<&str>, name: &str) -> Result<Option<String>, Problem> {
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decoded(key)? == name {
            return decoded(value).map(Some);
        }
    }
    Ok(None)
}

fn decoded(text: &str) -> Result<String, Problem> {
    let spaced = text.replace('+', " ");
    url_decoded(&spaced).ok_or_else(|| {
        let detail = format!("{text:?} in the query is not percent-encoded UTF-8");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_bad_ones_refused() {
        let get = |text: &str| query(Some(text), "redirect").map_err(|_| "refused");
        assert_eq!(get("a=1&redirect=web%20url"), Ok(Some("web url".to_owned())));
        assert_eq!(get("redirect=a+b"), Ok(Some("a b".to_owned())));
        assert_eq!(get("redirect"), Ok(Some(String::new())));
        assert_eq!(get("other=1"), Ok(None));
        assert_eq!(get("%72edirect=%2B%25%e2%82%AC"), Ok(Some("+%€".to_owned())));
        for bad in [
            "redirect=%f",
            "redirect=%",
            "redirect=%zz",
            "redirect=%+1",
            "redirect=%é",
            "redirect=%25%2",
            "redirect=%ff",
            "%ff=1",
        ] {
            assert_eq!(get(bad), Err("refused"), "{bad}");
        }
    }
}
