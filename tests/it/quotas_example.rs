//! The example `quotas`, started as a newcomer starts it.

use reqwest::{Client, Method, Response};
use serde_json::{Value, json};

use crate::support::Server;

const KEY: &str = "a key of the admin";

fn start() -> Server {
    Server::start_with("quotas", &[("ADMIN_KEY", KEY)])
}

impl Server {
    async fn quotas(
        &self,
        method: Method,
        path: &str,
        who: (&str, &str),
        body: Option<Value>,
    ) -> Response {
        let request = Client::new().request(method, format!("{}/quotas/{path}", self.url));
        let mut request = request.header(who.0, who.1);
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await.unwrap()
    }

    async fn consume(&self, user: &str, amount: u32) -> Response {
        let path = format!("{user}/exports/consume");
        let body = Some(json!({ "amount": amount }));
        self.quotas(Method::POST, &path, ("X-User-Id", user), body)
            .await
    }

    async fn set(&self, path: &str, limit: Value, period: &str) -> Response {
        let body = Some(json!({ "limit": limit, "period": period }));
        self.quotas(Method::PUT, path, ("X-Admin-Key", KEY), body)
            .await
    }
}

/// What an answer says of the daily quota.
async fn daily(response: Response) -> Value {
    assert_eq!(response.status(), 200);
    let body: Value = response.json().await.unwrap();
    let mut daily = body["quotas"][1].clone();
    assert_eq!(daily["period"], "daily");
    daily.as_object_mut().unwrap().remove("reset_after_seconds");
    daily
}

#[tokio::test]
async fn a_quota_is_set_read_consumed_and_reset() {
    let mut server = start();
    let of = |limit: u32, is_default: bool, used: u32, remaining: u32| json!({"period": "daily", "limit": limit, "is_default": is_default, "used": used, "remaining": remaining});
    assert_eq!(
        daily(server.consume("7", 3).await).await,
        of(1_000, true, 3, 997)
    );
    let set = server.set("7/exports", json!(5), "daily").await;
    assert_eq!(daily(set).await, of(5, false, 3, 2));
    let refused = server.consume("7", 3).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["violated-policies"], json!(["daily"]));
    assert_eq!(
        daily(server.consume("7", 2).await).await,
        of(5, false, 5, 0)
    );
    server.restart();
    let lowered = server.set("7/exports", json!(4), "daily").await;
    assert_eq!(daily(lowered).await, of(4, false, 5, 0));
    let admin = ("X-Admin-Key", KEY);
    let reset = server
        .quotas(Method::DELETE, "7/exports", admin, None)
        .await;
    assert_eq!(daily(reset).await, of(4, false, 0, 4));
    let own = server
        .quotas(Method::GET, "7/exports", ("X-User-Id", "7"), None)
        .await;
    assert_eq!(daily(own).await, of(4, false, 0, 4));
    let removed = server.set("7/exports", Value::Null, "daily").await;
    assert_eq!(daily(removed).await, of(1_000, true, 0, 1_000));
    let other = server.quotas(Method::GET, "7/mails", admin, None).await;
    assert_eq!(daily(other).await, of(1_000, true, 0, 1_000));
}

#[tokio::test]
async fn a_user_sees_and_uses_what_is_his_and_sets_nothing() {
    let server = start();
    let user = ("X-User-Id", "8");
    let amount = Some(json!({"amount": 1}));
    let quota = Some(json!({"limit": 9, "period": "daily"}));
    for (method, path, who, body, status) in [
        (Method::GET, "7/exports", user, None, 403),
        (Method::POST, "7/exports/consume", user, amount.clone(), 403),
        (Method::PUT, "8/exports", user, quota.clone(), 403),
        (Method::DELETE, "8/exports", user, None, 403),
        (
            Method::PUT,
            "8/exports",
            ("X-Admin-Key", "a key of the"),
            quota.clone(),
            403,
        ),
        (
            Method::PUT,
            "8/exports",
            ("X-Admin-Key", ""),
            quota.clone(),
            403,
        ),
        (Method::GET, "8/exports", ("X-User-Id", "-8"), None, 400),
        (
            Method::POST,
            "8/exports/consume",
            ("X-Admin-Key", KEY),
            amount,
            400,
        ),
        (Method::GET, "8/exports", user, None, 200),
    ] {
        let response = server.quotas(method.clone(), path, who, body).await;
        assert_eq!(response.status(), status, "{method} {path}");
    }
    let without = Server::start("quotas");
    let answer = without
        .quotas(Method::PUT, "8/exports", ("X-Admin-Key", ""), quota)
        .await;
    assert_eq!(answer.status(), 403, "no key is set, so nobody is admin");
}

#[tokio::test]
async fn nonsense_is_a_problem_document_and_changes_nothing() {
    let server = start();
    let admin = ("X-Admin-Key", KEY);
    let user = ("X-User-Id", "7");
    let put = |body: Value| (Method::PUT, "7/exports", admin, Some(body), 422);
    let consume = |body: Value| (Method::POST, "7/exports/consume", user, Some(body), 422);
    let long = format!("7/{}", "r".repeat(65));
    for (method, path, who, body, status) in [
        put(json!({"limit": -1, "period": "daily"})),
        put(json!({"limit": 4_294_967_296_u64, "period": "daily"})),
        put(json!({"limit": 1.5, "period": "daily"})),
        put(json!({"limit": 1, "period": "weekly"})),
        put(json!({"limit": 1})),
        put(json!({"limit": 1, "period": "daily", "burst": 3})),
        put(json!([])),
        consume(json!({"amount": 0})),
        consume(json!({"amount": -1})),
        consume(json!({"amount": "1"})),
        consume(json!({})),
        (Method::POST, "7/exports/consume", user, None, 422),
        (Method::GET, "0/exports", admin, None, 404),
        (Method::GET, "x/exports", admin, None, 404),
        (Method::GET, "1234567890123456789/exports", admin, None, 404),
        (Method::GET, "7/%20", admin, None, 422),
        (Method::GET, "7/%FF", admin, None, 404),
        (Method::GET, &long, admin, None, 422),
        (Method::GET, "7", admin, None, 404),
        (Method::PATCH, "7/exports", admin, None, 405),
    ] {
        let told = format!("{method} {path} {body:?}");
        let response = server.quotas(method, path, who, body).await;
        assert_eq!(response.status(), status, "{told}");
        let content_type = &response.headers()["content-type"];
        assert_eq!(content_type, "application/problem+json", "{told}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["status"], status, "{told}");
    }
    let hostile = "7/'; DROP TABLE rate_limit_limits; --";
    let set = server.set(hostile, json!(1), "hourly").await;
    assert_eq!(set.status(), 200);
    let read = server.quotas(Method::GET, "7/exports", user, None).await;
    assert_eq!(daily(read).await["is_default"], true);
}
