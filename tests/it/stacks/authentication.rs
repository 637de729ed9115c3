//! A limit by address outside of authentication, and one by user inside.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get as on_get;
use axum::{Extension, Router};
use http::StatusCode;
use reqwest::RequestBuilder;
use tollgate::{Key, MemoryStore, RateLimitLayer, key};

use super::{answer, client, statuses};
use crate::support::{clock, memory, serve};

#[derive(Clone)]
struct UserId(u64);

/// The token `user-42` is that of user 42.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get("authorization");
    let token = token.and_then(|token| token.to_str().ok()?.strip_prefix("Bearer user-"));
    let user = token.and_then(|user| user.parse().ok());
    let user = user.ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(UserId(user));
    Ok(next.run(request).await)
}

fn router() -> Router {
    let hello = |Extension(user): Extension<UserId>| async move { format!("hello {}", user.0) };
    Router::new().route("/", on_get(hello))
}

fn by_user(store: &MemoryStore) -> RateLimitLayer {
    RateLimitLayer::fixed(2, 60)
        .name("user")
        .key(key::extension(|user: &UserId| Key::new("user", user.0)))
        .store(store)
}

fn by_address(limit: u32, store: &MemoryStore) -> RateLimitLayer {
    RateLimitLayer::fixed(limit, 60)
        .name("address")
        .store(store)
}

fn with_token(server: SocketAddr, token: &str) -> RequestBuilder {
    client().get(format!("http://{server}/")).bearer_auth(token)
}

#[tokio::test]
async fn guesses_use_up_the_address_and_nothing_of_a_user() {
    let store = memory(&clock());
    let (user, address) = (by_user(&store), by_address(5, &store));
    let (users, addresses) = (user.limiter(), address.limiter());
    let router = router()
        .layer(user)
        .layer(from_fn(authenticate))
        .layer(address);
    let server = serve(router).await;
    assert_eq!(statuses(|| with_token(server, "user-42"), 1).await, [200]);
    let guesses = statuses(|| with_token(server, "guess"), 5).await;
    assert_eq!(guesses, [401, 401, 401, 401, 429]);
    let user = users.peek(&Key::new("user", 42)).await.unwrap();
    assert_eq!(user.used(), 1);
    let address = Key::ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(addresses.peek(&address).await.unwrap().used(), 5);
}

#[tokio::test]
async fn each_user_has_a_limit_and_its_refusal_uses_a_unit_of_the_address() {
    let store = memory(&clock());
    let router = router()
        .layer(by_user(&store))
        .layer(from_fn(authenticate))
        .layer(by_address(5, &store));
    let server = serve(router).await;
    let first = statuses(|| with_token(server, "user-1"), 3).await;
    assert_eq!(first, [200, 200, 429]);
    let second = statuses(|| with_token(server, "user-2"), 3).await;
    assert_eq!(second, [200, 200, 429]);
    // The address has none left for anybody.
    let refused = answer(with_token(server, "user-3")).await;
    assert_eq!(refused.headers()["ratelimit"], "\"address\";r=0;t=60");
}

#[tokio::test]
async fn around_authentication_there_is_no_user_to_key_on() {
    let store = memory(&clock());
    let router = router().layer(from_fn(authenticate)).layer(by_user(&store));
    let server = serve(router).await;
    let answer = answer(with_token(server, "user-42")).await;
    assert_eq!(answer.status(), 500);
    assert!(answer.text().await.unwrap().contains("UserId"));
}
