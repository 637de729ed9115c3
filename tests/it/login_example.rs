//! The example `login`, started as a newcomer starts it.

use reqwest::{Client, Response};

use crate::support::Server;

impl Server {
    async fn log_in(&self, password: &str, forwarded_for: &str) -> Response {
        let request = Client::new().post(format!("{}/login", self.url));
        let request = request.header("X-Forwarded-For", forwarded_for);
        let request = request.header("Content-Type", "application/x-www-form-urlencoded");
        let request = request.body(format!("password={password}"));
        request.send().await.unwrap()
    }
}

#[tokio::test]
async fn the_right_password_uses_nothing_and_the_sixth_failure_blocks_for_an_hour() {
    let server = Server::start("login");
    for client in 0..7 {
        // Nobody is trusted, so nobody buys a fresh counter with a header.
        let response = server
            .log_in("open+sesame", &format!("6.6.6.{client}"))
            .await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["ratelimit"], "\"login\";r=5;t=900");
    }
    for client in 0..5 {
        let response = server.log_in("guess", &format!("6.6.6.{client}")).await;
        assert_eq!(response.status(), 401);
    }
    let refused = server.log_in("open+sesame", "6.6.6.6").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "3600");
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_counted_by_their_own_address() {
    let server = Server::start_with("login", &[("TRUSTED_PROXIES", "127.0.0.0/8 10.0.0.0/8")]);
    for _ in 0..5 {
        let response = server
            .log_in("guess", "6.6.6.6, 198.51.100.7, 10.0.0.1")
            .await;
        assert_eq!(response.status(), 401);
    }
    let refused = server.log_in("guess", "198.51.100.7").await;
    assert_eq!(refused.status(), 429);
    let other = server.log_in("guess", "198.51.100.7, 198.51.100.8").await;
    assert_eq!(other.status(), 401);
}
