//! The answers to what can't be answered: problem documents (RFC 9457).

use std::borrow::Cow;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

use crate::response::{Document, PROBLEM_JSON};
use crate::store::StoreError;

/// What a store needs to come back, as the layer tells it.
const STORE_RETRY_AFTER: u64 = 5;

/// A request that is not answered, and what to do about it.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
    retry_after: Option<u64>,
    /// How to authenticate.
    challenge: Option<&'static str>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            detail: detail.into(),
            retry_after: None,
            challenge: None,
        }
    }

    /// The request can't be read.
    pub(super) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// It can be read, and asks for what is not possible.
    pub(super) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    pub(super) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// No store records what is allowed, as far as this API knows.
    pub(super) fn no_audit() -> Self {
        Self::not_found(
            "No store that records allowed requests was given to the admin API: give it one with .store(&store), and record with \
             .audit(&store) on the layer.",
        )
    }

    #[cfg(test)]
    pub(super) fn into_status(self) -> u16 {
        self.status.as_u16()
    }

    /// Nobody is let in like that.
    pub(super) fn unauthorized(challenge: &'static str, detail: &'static str) -> Self {
        Self {
            challenge: Some(challenge),
            ..Self::new(StatusCode::UNAUTHORIZED, detail)
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        // With what the database said.
        let mut text = format!("{error:?}");
        text.get_mut(..1).map(str::make_ascii_uppercase);
        text.push('.');
        if matches!(error, StoreError::TooManyKeys | StoreError::LongKey) {
            return Self::invalid(text);
        }
        Self {
            retry_after: Some(STORE_RETRY_AFTER),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document::of_status(self.status, self.detail, self.retry_after);
        let mut response = Response::new(Body::from(document.to_bytes()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}
