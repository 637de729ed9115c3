//! Who is let in.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use tollgate::{Admin, AdminKey, RateLimitLayer};

use super::{SECRET, admin};
use crate::support::{Answer, capture_log, login_in_memory, send};

const X_ADMIN_KEY: HeaderName = HeaderName::from_static("x-admin-key");

fn router() -> Router {
    admin()
        .layer(&login_in_memory(3, 60))
        .into_router()
        .unwrap()
}

async fn with(router: &Router, headers: &[(HeaderName, &[u8])]) -> Answer {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = "/policies".parse().unwrap();
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name.clone(), value);
    }
    send(router, request).await
}

#[tokio::test]
async fn the_key_is_taken_from_its_header_and_as_a_bearer_token() {
    let router = router();
    let bearer = |scheme: &str| format!("{scheme}{SECRET}").into_bytes();
    let sent: [(HeaderName, Vec<u8>); 4] = [
        (X_ADMIN_KEY, SECRET.into()),
        (AUTHORIZATION, bearer("Bearer ")),
        (AUTHORIZATION, bearer("bEARER ")),
        (AUTHORIZATION, bearer("Bearer   ")),
    ];
    for (name, value) in sent {
        assert_eq!(with(&router, &[(name, &value)]).await.status, 200);
    }
    // A proxy authenticates with the other field.
    let both = [
        (AUTHORIZATION, &b"Basic YTpi"[..]),
        (X_ADMIN_KEY, SECRET.as_bytes()),
    ];
    assert_eq!(with(&router, &both).await.status, 200);
}

#[tokio::test]
async fn whoever_sends_no_key_or_another_one_is_told_how_to_authenticate() {
    let router = router();
    let secret = SECRET.as_bytes();
    let huge = vec![b'x'; 1 << 20];
    let longer = [secret, b"0"].concat();
    let basic = [b"Basic ", secret].concat();
    let glued = [b"Bearer", secret].concat();
    let wrong: Vec<Vec<(HeaderName, &[u8])>> = vec![
        vec![],
        vec![(X_ADMIN_KEY, b"")],
        vec![(X_ADMIN_KEY, &secret[..31])],
        vec![(X_ADMIN_KEY, &longer)],
        vec![(X_ADMIN_KEY, b"\xff\xfe\x80")],
        vec![(X_ADMIN_KEY, &huge)],
        vec![(X_ADMIN_KEY, secret), (X_ADMIN_KEY, secret)],
        vec![(X_ADMIN_KEY, b"wrong"), (AUTHORIZATION, secret)],
        vec![(AUTHORIZATION, secret)],
        vec![(AUTHORIZATION, &basic)],
        vec![(AUTHORIZATION, &glued)],
        vec![(AUTHORIZATION, b"Bearer")],
        vec![(AUTHORIZATION, b"Bearer ")],
        vec![(AUTHORIZATION, b"\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9")],
    ];
    for headers in wrong {
        let refused = with(&router, &headers).await;
        assert_eq!(refused.status, 401);
        assert!(
            refused
                .only("www-authenticate")
                .starts_with("Bearer realm=")
        );
        assert_eq!(refused.only("content-type"), "application/problem+json");
        assert_eq!(refused.only("cache-control"), "no-store");
        assert!(refused.body.len() < 300, "what was sent is not echoed");
    }
    let nothing = with(&router, &[]).await;
    assert!(!nothing.only("www-authenticate").contains("error"));
    let wrong = with(&router, &[(X_ADMIN_KEY, b"wrong")]).await;
    assert!(
        wrong
            .only("www-authenticate")
            .contains(r#"error="invalid_token""#)
    );
}

#[tokio::test]
async fn during_a_rotation_both_keys_are_let_in() {
    let key = AdminKey::new(SECRET).unwrap();
    let key = key.or("the-key-of-last-year").unwrap();
    let router = Admin::new(key).into_router().unwrap();
    for secret in [SECRET, "the-key-of-last-year"] {
        let answer = with(&router, &[(X_ADMIN_KEY, secret.as_bytes())]).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(
        with(&router, &[(X_ADMIN_KEY, b"the-key-of-this-year")])
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn attempts_do_not_fill_the_log() {
    let log = capture_log();
    let router = router();
    for _ in 0..50 {
        assert_eq!(with(&router, &[(X_ADMIN_KEY, b"guess")]).await.status, 401);
    }
    let lines = log.lines_with("admin API");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(!lines[0].contains("guess"));
}

/// Lets pass whom a layer outside knows, and sends others to log in.
async fn staff_only(request: Request, next: Next) -> Response {
    if request.headers().contains_key("x-staff") {
        next.run(request).await
    } else {
        Redirect::to("/login").into_response()
    }
}

#[tokio::test]
async fn an_authentication_of_the_application_s_stands_in_front_of_all_routes() {
    let admin = Admin::behind(from_fn(staff_only)).layer(&login_in_memory(3, 60));
    let router = admin.into_router().unwrap();
    let unknown = with(&router, &[(X_ADMIN_KEY, SECRET.as_bytes())]).await;
    assert_eq!(
        (unknown.status, unknown.only("cache-control")),
        (303, "no-store")
    );
    let staff = with(&router, &[(HeaderName::from_static("x-staff"), b"me")]).await;
    assert_eq!(staff.status, 200);
    assert_eq!(staff.json()["policies"][0]["id"], "login");
}

#[tokio::test]
async fn a_rate_limit_is_no_authentication_but_stands_in_front_of_one() {
    let limit = RateLimitLayer::fixed(1, 60).key(tollgate::key::constant("all"));
    let router = router().layer(limit);
    assert_eq!(with(&router, &[(X_ADMIN_KEY, b"guess")]).await.status, 401);
    assert_eq!(with(&router, &[(X_ADMIN_KEY, b"guess")]).await.status, 429);
}
