//! The answer to a gRPC call: a status in the header section, and nothing else ("Trailers-Only").
//!
//! A bare HTTP 429 would reach the caller as UNAVAILABLE, and the gRPC documents tell servers not to choose an HTTP status
//! by that table.

use std::fmt::Write;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::Document;
use super::retry_info::status_with_retry_info;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Whether this is the head of a gRPC call. gRPC-Web has a framing of its own, and is HTTP to us.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    match content_type.as_bytes().split_at_checked(GRPC.len()) {
        Some((start, rest)) => {
            GRPC.as_bytes().eq_ignore_ascii_case(start)
                && matches!(rest.first(), None | Some(b'+' | b';'))
        }
        None => false,
    }
}

/// A problem as a gRPC status, with the wait that it tells.
pub(crate) fn trailers_only(
    problem: &Document<'_>,
    retry_after: Option<Duration>,
) -> Response<Bytes> {
    let code = code(problem.status());
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from(code));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(problem.detail())) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(after) = retry_after {
        let millis = millis_ceil(after);
        headers.insert(GRPC_RETRY_PUSHBACK, HeaderValue::from(pushback(millis)));
        let details = status_with_retry_info(code, problem.detail(), millis);
        if let Ok(details) = HeaderValue::try_from(STANDARD_NO_PAD.encode(details)) {
            headers.insert(GRPC_STATUS_DETAILS, details);
        }
    }
    response
}

/// The gRPC status that means what the HTTP status means.
fn code(status: StatusCode) -> u16 {
    match status {
        StatusCode::BAD_REQUEST => 3,
        StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        _ => 13,
    }
}

/// A wait in whole milliseconds: rounded up, and never "now".
fn millis_ceil(after: Duration) -> u64 {
    let millis = after.as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

/// The milliseconds as clients parse them (gRFC A6): a signed number of 32 bits, so at most 24 days.
fn pushback(millis: u64) -> i32 {
    i32::try_from(millis).unwrap_or(i32::MAX)
}

/// A message as the protocol has it: visible ASCII and the space as they are, but for `%`.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte.into()),
            _ => {
                // Writing to a string doesn't fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_told_by_its_content_type_alone() {
        let is = |content_type| {
            let value = HeaderValue::from_static(content_type);
            is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, value)]))
        };
        for grpc in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;charset=utf-8",
            "Application/GRPC+json",
        ] {
            assert!(is(grpc), "{grpc}");
        }
        for other in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpc-web-text",
            "application/grpcx",
            "application/json",
            "",
        ] {
            assert!(!is(other), "{other}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn a_pushback_rounds_up_is_never_now_and_fits_into_32_bits() {
        let told = |after| pushback(millis_ceil(after));
        assert_eq!(told(Duration::ZERO), 1);
        assert_eq!(told(Duration::from_nanos(1_000_001)), 2);
        assert_eq!(told(Duration::from_millis(2_100)), 2_100);
        assert_eq!(told(Duration::from_hours(31 * 24)), i32::MAX);
        assert_eq!(told(Duration::MAX), i32::MAX);
    }

    #[test]
    fn a_message_keeps_visible_ascii_but_the_percent_sign() {
        assert_eq!(percent_encoded("a b~\"\\"), "a b~\"\\");
        assert_eq!(
            percent_encoded("100 %\r\nü\u{7f}"),
            "100 %25%0D%0A%C3%BC%7F"
        );
    }
}
