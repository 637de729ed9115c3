//! What other layers and functions know as the key.

use http::request::Parts;
use tollgate::key::{self, KeyError, KeyExtractor, KeySource};
use tollgate::{Key, RateLimitLayer};
use tower::Layer;

use crate::support::{Answer, CLIENT, capture_log, clock, from, get, hello, memory, send};

#[derive(Clone)]
struct UserId(u64);

#[derive(Clone)]
struct Session {
    user: Option<String>,
}

fn keyed_by(source: KeySource) -> RateLimitLayer {
    RateLimitLayer::fixed(1, 60)
        .key(source)
        .store(&memory(&clock()))
}

/// Sends a request with this extension, and says how much the key has used then.
async fn used_after<T: Clone + Send + Sync + 'static>(
    source: KeySource,
    extension: T,
    key: Key,
) -> u64 {
    let layer = keyed_by(source);
    let mut request = get("/");
    request.extensions_mut().insert(extension);
    assert_eq!(send(&layer.layer(hello()), request).await.status, 200);
    layer.limiter().peek(&key).await.unwrap().used()
}

async fn answer_to_nothing(source: KeySource) -> Answer {
    send(&keyed_by(source).layer(hello()), get("/")).await
}

#[tokio::test]
async fn a_bare_value_of_an_extension_is_keyed_under_its_type() {
    let source = key::extension(|user: &UserId| user.0);
    let key = Key::qualified("extension", "UserId", 42);
    assert_eq!(used_after(source, UserId(42), key).await, 1);
}

#[tokio::test]
async fn an_extension_may_give_a_whole_key() {
    let source = key::extension(|user: &UserId| Key::new("user", user.0));
    assert_eq!(
        used_after(source, UserId(42), Key::new("user", 42)).await,
        1
    );
}

#[tokio::test]
async fn users_are_counted_apart() {
    let service = keyed_by(key::extension(|user: &UserId| user.0)).layer(hello());
    let mut statuses = Vec::new();
    for user in [1, 2, 1, 12] {
        let mut request = get("/");
        request.extensions_mut().insert(UserId(user));
        statuses.push(send(&service, request).await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 200]);
}

#[tokio::test]
async fn a_missing_extension_is_a_500_that_names_the_cure() {
    let answer = answer_to_nothing(key::extension(|user: &UserId| user.0)).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.only("content-type"), "application/problem+json");
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("UserId") && detail.contains(".or("),
        "{detail}"
    );
}

#[tokio::test]
async fn a_missing_extension_is_logged_once() {
    let log = capture_log();
    let service = keyed_by(key::extension(|user: &UserId| user.0)).layer(hello());
    for _ in 0..3 {
        assert_eq!(send(&service, get("/")).await.status, 500);
    }
    assert_eq!(log.lines_with("UserId").len(), 1);
}

#[tokio::test]
async fn an_extension_that_gives_none_asks_the_next_source() {
    let source = key::extension(|session: &Session| session.user.clone()).or(key::header(CLIENT));
    let layer = keyed_by(source);
    let mut request = from("alice");
    request.extensions_mut().insert(Session { user: None });
    send(&layer.layer(hello()), request).await;
    let key = Key::header(CLIENT, "alice");
    assert_eq!(layer.limiter().peek(&key).await.unwrap().used(), 1);
}

#[tokio::test]
async fn an_empty_text_of_an_extension_is_no_key() {
    let source = key::extension(|session: &Session| session.user.clone());
    let service = keyed_by(source).layer(hello());
    let mut request = get("/");
    let user = Some(" ".to_owned());
    request.extensions_mut().insert(Session { user });
    assert_eq!(send(&service, request).await.status, 500);
}

#[tokio::test]
async fn or_value_of_an_extension_is_of_its_own_kind() {
    let layer = keyed_by(key::extension(|user: &UserId| user.0).or_value("guest"));
    assert_eq!(send(&layer.layer(hello()), get("/")).await.status, 200);
    let key = Key::qualified("extension", "UserId", "guest");
    assert_eq!(layer.limiter().peek(&key).await.unwrap().used(), 1);
}

#[tokio::test]
async fn a_function_may_return_a_key() {
    let source = key::from_fn(|parts: &Parts| Key::new("path", parts.uri.path()));
    assert_eq!(used_after(source, (), Key::new("path", "/")).await, 1);
}

#[tokio::test]
async fn a_function_may_return_text() {
    let source = key::from_fn(|parts: &Parts| parts.uri.path().to_owned());
    assert_eq!(used_after(source, (), Key::new("custom", "/")).await, 1);
}

#[tokio::test]
async fn a_function_that_returns_some_key_is_believed() {
    let source = key::from_fn(|parts: &Parts| {
        parts
            .extensions
            .get::<UserId>()
            .map(|user| Key::new("user", user.0))
    });
    assert_eq!(used_after(source, UserId(7), Key::new("user", 7)).await, 1);
}

#[tokio::test]
async fn a_function_that_returns_none_is_a_400() {
    let answer = answer_to_nothing(key::from_fn(|_: &Parts| None::<Key>)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["status"], 400);
}

#[tokio::test]
async fn a_function_that_returns_none_asks_the_next_source() {
    let source = key::from_fn(|_: &Parts| None::<String>).or(key::constant("all"));
    assert_eq!(used_after(source, (), Key::constant("all")).await, 1);
}

#[tokio::test]
async fn a_client_error_of_a_function_is_a_400_with_its_message_and_no_other_source_is_asked() {
    let source = key::from_fn(|_: &Parts| Err::<Key, _>(KeyError::client("send a tenant")));
    let answer = answer_to_nothing(source.or(key::constant("all"))).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["detail"], "send a tenant");
}

#[tokio::test]
async fn a_server_error_of_a_function_is_a_500_with_its_message() {
    let source = key::from_fn(|_: &Parts| Err::<Key, _>(KeyError::server("add the tenant layer")));
    let answer = answer_to_nothing(source).await;
    assert_eq!(answer.status, 500);
    assert_eq!(answer.json()["detail"], "add the tenant layer");
}

#[tokio::test]
async fn a_constant_is_one_counter_for_all() {
    let service = keyed_by(key::constant("all")).layer(hello());
    assert_eq!(send(&service, from("alice")).await.status, 200);
    assert_eq!(send(&service, from("bob")).await.status, 429);
}

#[tokio::test]
async fn an_extractor_of_ones_own_may_say_what_it_misses() {
    struct Tenant;
    impl KeyExtractor for Tenant {
        fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
            Ok(parts.uri.host().map(|host| Key::new("tenant", host)))
        }
        fn missing(&self) -> KeyError {
            KeyError::client("the request names no host")
        }
    }
    let service = keyed_by(KeySource::new(Tenant)).layer(hello());
    let answer = send(&service, get("/")).await;
    assert_eq!(
        (answer.status, answer.json()["detail"].as_str()),
        (400, Some("the request names no host"))
    );
    assert_eq!(send(&service, get("http://a.example/")).await.status, 200);
    assert_eq!(send(&service, get("http://b.example/")).await.status, 200);
    assert_eq!(send(&service, get("http://a.example/x")).await.status, 429);
}
