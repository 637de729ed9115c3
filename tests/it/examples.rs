//! The examples, started as a newcomer starts them.
//!
//! They run on the system's clock, so a window may end at any moment: nothing here counts on one window.

use reqwest::{Client, Response, StatusCode};
use serde_json::Value;

use crate::support::Server;

impl Server {
    async fn get(&self, path: &str, key: Option<&str>) -> Response {
        let request = Client::new().get(format!("{}{path}", self.url));
        let request = match key {
            Some(key) => request.header("X-Client-Key", key),
            None => request,
        };
        request.send().await.unwrap()
    }

    /// Asks until it is refused. Two windows hold six requests.
    async fn refusal(&self, path: &str, key: Option<&str>) -> Response {
        for _ in 0..7 {
            let response = self.get(path, key).await;
            if response.status() != StatusCode::OK {
                return response;
            }
        }
        panic!("seven requests passed");
    }
}

#[tokio::test]
async fn the_fixed_window_refuses_with_the_callers_key_in_the_detail() {
    let server = Server::start("fixed_window");
    let allowed = server.get("/ping", Some("alice")).await;
    assert_eq!(allowed.status(), StatusCode::OK);
    assert_eq!(allowed.json::<Value>().await.unwrap()["status"], "ok");

    let refused = server.refusal("/ping", Some("alice")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    let wait = refused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .to_owned();
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["type"], "/problems/rate-limit-exceeded");
    assert_eq!(body["title"], "Too Many Requests");
    assert_eq!(
        body["detail"],
        "Rate limit of 3 requests per 60s exceeded for key 'alice'."
    );
    assert_eq!(body["retry_after"].to_string(), wait);
}

#[tokio::test]
async fn callers_without_a_header_share_a_key_that_status_finds() {
    let server = Server::start("fixed_window");
    let body: Value = server.refusal("/ping", None).await.json().await.unwrap();
    assert_eq!(
        body["detail"],
        "Rate limit of 3 requests per 60s exceeded for key '127.0.0.1'."
    );
    let status = server.get("/status?key=127.0.0.1", None).await;
    assert_eq!(status.status(), StatusCode::OK);
    let status: Value = status.json().await.unwrap();
    let members: Vec<_> = status
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut expected = [
        "key",
        "count",
        "limit",
        "remaining",
        "window_seconds",
        "reset_after",
    ];
    expected.sort_unstable();
    assert_eq!(members, expected);
    assert_eq!(
        (&status["limit"], &status["window_seconds"]),
        (&3.into(), &60.into())
    );
    assert!((0..=60).contains(&status["reset_after"].as_u64().unwrap()));
}

#[tokio::test]
async fn status_without_a_key_is_unprocessable_and_creates_nothing() {
    let server = Server::start("fixed_window");
    for path in ["/status", "/status?key=", "/status?key=%20"] {
        let response = server.get(path, None).await;
        assert_eq!(
            response.status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{path}"
        );
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
    }
    for _ in 0..5 {
        let status: Value = server
            .get("/status?key=nobody", None)
            .await
            .json()
            .await
            .unwrap();
        assert_eq!(
            (&status["count"], &status["remaining"]),
            (&0.into(), &3.into())
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_service_manager_ends_it_cleanly() {
    let mut server = Server::start("fixed_window");
    server.get("/ping", Some("alice")).await;
    assert!(server.terminate().success());
}

#[tokio::test]
async fn strict_and_global_count_apart() {
    let server = Server::start("strict_and_global");
    let login = Client::new()
        .post(format!("{}/login", server.url))
        .send()
        .await
        .unwrap();
    let policies: Vec<_> = login.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, ["\"login\";q=5;w=900", "\"global\";q=100;w=60"]);
    let root = server.get("/", None).await;
    assert_eq!(root.headers()["ratelimit-policy"], "\"global\";q=100;w=60");
}

#[tokio::test]
async fn hyper_alone_limits_by_address() {
    let server = Server::start("hyper");
    let refused = server.refusal("/", None).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        refused.headers()["ratelimit-policy"],
        "\"fixed-3-60s\";q=3;w=60"
    );
}
