//! The example `policies`, started as a newcomer starts it.
//!
//! It runs on the system's clock, so units may come back at any moment: nothing here counts on one window.

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::support::Server;

impl Server {
    fn search(&self, key: &str) -> RequestBuilder {
        let request = Client::new().get(format!("{}/search", self.url));
        request.header("X-Api-Key", key)
    }

    fn login(&self, account: &str) -> RequestBuilder {
        let request = Client::new().post(format!("{}/login", self.url));
        request.header("X-Account", account)
    }
}

/// Sends it until it is refused.
async fn refusal(request: RequestBuilder) -> Response {
    for _ in 0..30 {
        let response = request.try_clone().unwrap().send().await.unwrap();
        if response.status() != StatusCode::OK {
            return response;
        }
    }
    panic!("thirty requests passed");
}

async fn violated(response: Response) -> Value {
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let problem: Value = response.json().await.unwrap();
    problem["violated-policies"].clone()
}

#[tokio::test]
async fn a_search_tells_both_policies_and_is_refused_by_one_of_them() {
    let server = Server::start("policies");
    let first = server.search("acme-key").send().await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    assert_eq!(
        first.headers()["ratelimit-policy"],
        "\"burst\";q=3;w=5, \"daily\";q=10;w=86400"
    );
    let violated = violated(refusal(server.search("acme-key")).await).await;
    // On a machine that is too busy for a burst it is the quota.
    assert!(["burst", "daily"].iter().any(|one| violated[0] == *one));
    let other = server.search("globex-key").send().await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_key_that_nobody_has_is_forbidden_and_not_counted() {
    let server = Server::start("policies");
    for key in ["", "nobody", "acme-key-2"] {
        let response = server.search(key).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{key}");
        assert!(!response.headers().contains_key("ratelimit"), "{key}");
    }
}

#[tokio::test]
async fn log_ins_are_refused_by_the_account_and_then_by_the_address() {
    let server = Server::start("policies");
    let refused = refusal(server.login("alice")).await;
    assert_eq!(violated(refused).await, serde_json::json!(["account"]));
    let bob = server.login("bob").send().await.unwrap();
    assert_eq!(bob.status(), StatusCode::OK);
    let refused = refusal(server.login("bob")).await;
    assert_eq!(violated(refused).await, serde_json::json!(["address"]));
}

#[tokio::test]
async fn a_log_in_without_an_account_is_a_bad_request() {
    let server = Server::start("policies");
    let url = format!("{}/login", server.url);
    let response = Client::new().post(url).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let problem: Value = response.json().await.unwrap();
    assert_eq!(
        problem["detail"],
        "the header x-account is missing or empty: send it"
    );
}

#[tokio::test]
async fn a_restart_forgets_nothing() {
    let mut server = Server::start("policies");
    violated(refusal(server.login("alice")).await).await;
    server.restart();
    let again = server.login("alice").send().await.unwrap();
    assert_eq!(violated(again).await, serde_json::json!(["account"]));
}

#[cfg(unix)]
#[tokio::test]
async fn a_service_manager_ends_it_cleanly() {
    let mut server = Server::start("policies");
    server.search("acme-key").send().await.unwrap();
    assert!(server.terminate().success());
}
