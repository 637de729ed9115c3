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
use http::request::Parts;
use http::{Response, StatusCode, Version};

use super::Document;
use super::retry_info::status_with_retry_info;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// What a client's header section has room for beside the rest: they take some 8 KiB in all. The message is in it twice.
const LONGEST_MESSAGE: usize = 1_024;
/// "Do not retry" (gRFC A6).
const NEVER: i32 = -1;

/// Whether this is the head of a gRPC call. It is one over HTTP/2 alone: who claims the content type over HTTP/1.1 gets the answers
/// of HTTP. gRPC-Web has a framing of its own, and is HTTP to us.
pub(crate) fn is_grpc(head: &Parts) -> bool {
    head.version >= Version::HTTP_2 && has_grpc_content(&head.headers)
}

/// What the status of a gRPC call means, when it is in the header section: the HTTP status that google.rpc.Code names for it. A
/// call that has begun to answer tells its status in the trailers.
pub(crate) fn status_of(headers: &HeaderMap) -> Option<StatusCode> {
    let status = headers.get(GRPC_STATUS)?;
    if !has_grpc_content(headers) {
        return None;
    }
    Some(match status.as_bytes() {
        b"0" => StatusCode::OK,
        b"3" | b"9" | b"11" => StatusCode::BAD_REQUEST,
        b"4" => StatusCode::GATEWAY_TIMEOUT,
        b"5" => StatusCode::NOT_FOUND,
        b"6" | b"10" => StatusCode::CONFLICT,
        b"7" => StatusCode::FORBIDDEN,
        b"8" => StatusCode::TOO_MANY_REQUESTS,
        b"12" => StatusCode::NOT_IMPLEMENTED,
        b"14" => StatusCode::SERVICE_UNAVAILABLE,
        b"16" => StatusCode::UNAUTHORIZED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    })
}

fn has_grpc_content(headers: &HeaderMap) -> bool {
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
    let message = shortened(problem.detail());
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(GRPC_STATUS, HeaderValue::from(code));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(after) = retry_after {
        let millis = millis_ceil(after);
        headers.insert(GRPC_RETRY_PUSHBACK, HeaderValue::from(pushback(millis)));
        let details = status_with_retry_info(code, message, millis);
        if let Ok(details) = HeaderValue::try_from(STANDARD_NO_PAD.encode(details)) {
            headers.insert(GRPC_STATUS_DETAILS, details);
        }
    } else if problem.status() == StatusCode::TOO_MANY_REQUESTS {
        // Without it a client with a retry policy comes back at its own pace.
        headers.insert(GRPC_RETRY_PUSHBACK, HeaderValue::from(NEVER));
    }
    response
}

/// A message that leaves room for the status, whatever was put into it.
fn shortened(message: &str) -> &str {
    &message[..message.floor_char_boundary(LONGEST_MESSAGE)]
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
            has_grpc_content(&HeaderMap::from_iter([(CONTENT_TYPE, value)]))
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
        assert!(!has_grpc_content(&HeaderMap::new()));
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
