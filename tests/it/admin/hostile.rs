//! Nothing that is sent makes it panic, or take long, or grow.

use axum::body::Body;
use axum::extract::Request;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tollgate::{AdminKey, Limiter, Policy, RateLimitLayer};

use super::schema::OpenApi;
use super::{SECRET, admin, ask, encoded, percent};
use crate::support::{clock, login, memory, on_the_wire, send, serve, sqlite};

fn router() -> (axum::Router, tollgate::SqliteStore) {
    let store = sqlite(&clock());
    let admin = admin().layer(&login(3, 60, &store)).store(&store);
    (admin.into_router().unwrap(), store)
}

/// Each of them is answered as the file says.
#[tokio::test]
async fn no_query_makes_it_panic() {
    let (router, _store) = router();
    let targets = std::cell::RefCell::new(Vec::new());
    let names = prop_oneof![
        Just("key"),
        Just("under"),
        Just("all"),
        Just("policy"),
        Just("limit"),
        Just("after"),
        Just("from"),
        Just("to"),
        Just("route"),
        Just("%00"),
        Just(""),
    ];
    let value = prop_oneof![
        "[ -~]{0,12}".prop_map(|text| encoded(&text)),
        proptest::collection::vec(any::<u8>(), 0..9).prop_map(percent),
        "[0-9]{0,40}",
        "user:[0-9]{1,3}",
        Just("login".to_owned()),
        Just("true".to_owned()),
        Just("2083-01-15".to_owned()),
        "[%a-f]{0,5}",
    ];
    let query = proptest::collection::vec((names, value), 0..4);
    let paths: Vec<_> = OpenApi::read()
        .operations()
        .into_iter()
        .map(|operation| (operation.method, operation.path))
        .collect();
    TestRunner::deterministic()
        .run(
            &(proptest::sample::select(paths), query),
            |((method, path), query)| {
                let query: Vec<_> = query
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                targets
                    .borrow_mut()
                    .push((method, format!("{path}?{}", query.join("&"))));
                Ok(())
            },
        )
        .unwrap();
    assert!(targets.borrow().len() > 200);
    for (method, target) in targets.into_inner() {
        let answer = ask(&router, &method, &target).await;
        assert!(answer.status < 500, "{method} {target} {}", answer.text());
    }
}

#[tokio::test]
async fn what_is_refused_is_not_said_again_and_sql_is_text() {
    let (router, _store) = router();
    for text in [
        "user:'; DROP TABLE rate_limit_windows; --",
        "x:<script>alert(1)</script>",
    ] {
        let answer = ask(
            &router,
            "DELETE",
            &format!("/counters?key={}", encoded(text)),
        )
        .await;
        assert_eq!((answer.status, &answer.json()["units"]), (200, &0.into()));
    }
    for target in [
        "/policy?policy=%3Cscript%3E",
        "/counters?key=%3Cscript%3E",
        "/policies?%3Cscript%3E=1",
    ] {
        let answer = ask(&router, "GET", target).await;
        assert!(
            answer.status >= 400 && !answer.text().contains("script"),
            "{}",
            answer.text()
        );
    }
}

async fn with_body(router: &axum::Router, method: &str, target: &str, body: Body) -> u16 {
    let request = Request::builder().method(method).uri(target);
    let request = request.header("x-admin-key", SECRET);
    let answer = send(router, request.body(body).unwrap()).await;
    OpenApi::read().check(method, target, &answer);
    answer.status
}

/// `curl -X DELETE -d policy=login` without `-G` would have reset the key under all policies.
#[tokio::test]
async fn parameters_that_are_sent_in_a_body_are_refused_and_not_overlooked() {
    let (router, _store) = router();
    for (method, target) in [
        ("DELETE", "/counters?key=user:1"),
        ("DELETE", "/limit?policy=login&key=user:1"),
        ("GET", "/refused"),
        ("GET", "/stores"),
    ] {
        let form = Body::from("policy=login");
        assert_eq!(with_body(&router, method, target, form).await, 422);
        let endless =
            futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("x".repeat(1 << 16)));
        let endless = Body::from_stream(endless);
        assert_eq!(with_body(&router, method, target, endless).await, 422);
        let nothing = futures_util::stream::iter([Ok::<_, std::io::Error>("")]);
        let nothing = Body::from_stream(nothing);
        assert_eq!(with_body(&router, method, target, nothing).await, 200);
    }
}

#[tokio::test]
async fn on_a_server_of_its_own_it_answers_as_in_a_test_and_head_has_no_body() {
    let (router, _store) = router();
    let address = serve(router).await;
    let head = on_the_wire(
        address,
        &format!("HEAD /policies HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Admin-Key: {SECRET}\r\n\r\n"),
    )
    .await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let junk = on_the_wire(
        address,
        &format!("GET /counters?key=%zz\u{e9} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Admin-Key: {SECRET}\r\n\r\n"),
    )
    .await;
    assert!(junk.starts_with("HTTP/1.1 400 "), "{junk}");
}

#[test]
fn debug_shows_neither_key_nor_secret() {
    let key = AdminKey::new(SECRET).unwrap();
    let layer = RateLimitLayer::fixed(3, 60).name("login");
    let shown = format!("{key:?} {:?}", admin().layer(&layer));
    assert_eq!(
        shown,
        r#"AdminKey { .. } Admin { policies: ["login"], .. }"#
    );
}

/// It would keep nobody out, and say that it does.
#[tokio::test]
async fn a_key_that_no_request_has_is_refused_with_the_one_that_is_meant() {
    let limiter = Limiter::new(Policy::fixed(1, 60).name("login")).store(&memory(&clock()));
    let router = admin().limiter(&limiter).into_router().unwrap();
    let long = format!("header/x-api-key:{}", "f".repeat(65));
    for (typed, meant) in [
        ("header/X-API-Key:evil", "header/x-api-key:"),
        ("user:1|header/X-Key:evil", "header/x-key:"),
        ("ip:2001:db8::1", "ip:2001:db8::/64"),
        ("ip:::ffff:192.0.2.1", "ip:192.0.2.1"),
        (&long, "stored as a hash"),
    ] {
        for target in ["/counters?key=", "/counters?policy=login&key="] {
            let answer = ask(&router, "GET", &format!("{target}{}", encoded(typed))).await;
            assert_eq!(answer.status, 422, "{typed}");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(meant), "{detail}");
        }
    }
    for stored in [
        "ip:192.0.2.1",
        "ip:2001:db8::/64",
        "ip:2001:db8::1/128",
        "header/x-key:EVIL",
        "User:A",
    ] {
        let answer = ask(
            &router,
            "GET",
            &format!("/counters?key={}", encoded(stored)),
        )
        .await;
        assert_eq!(answer.status, 200, "{stored}");
    }
}
