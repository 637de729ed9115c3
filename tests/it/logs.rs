//! What the layers log.

use tollgate::{Key, Limiter, Policy, RateLimitLayer, key};
use tower::Layer;

use crate::support::{
    capture_log, clock, from, hello, login, login_in_memory, memory, send, sqlite, statuses,
};

#[tokio::test]
async fn a_policy_says_once_what_it_is_and_where_it_counts() {
    let log = capture_log();
    let service = login(5, 900, &memory(&clock())).layer(hello());
    statuses(&service, "alice", 3).await;
    statuses(&service.clone(), "bob", 3).await;
    let lines = log.lines_with("login");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let said = "login: 5 per 900 s, fixed window, key header x-client-key, store ";
    assert!(lines[0].contains(said), "{}", lines[0]);
    assert!(lines[0].trim_start().starts_with("INFO"), "{}", lines[0]);
}

#[tokio::test]
async fn every_kind_of_key_is_named_in_the_line() {
    let store = sqlite(&clock());
    for (name, source, said) in [
        ("a", key::constant("all"), "key constant, store "),
        (
            "b",
            key::header("X-Api-Key").or_value("none"),
            "key header x-api-key or ",
        ),
        (
            "c",
            key::header("x-user").or(key::constant("all")),
            "key header x-user or constant",
        ),
    ] {
        let log = capture_log();
        let layer = RateLimitLayer::fixed(5, 60)
            .name(name)
            .key(source)
            .store(&store);
        send(&layer.layer(hello()), from("alice")).await;
        assert_eq!(log.lines_with(said).len(), 1, "{said}");
    }
}

#[tokio::test]
async fn a_file_is_named_without_its_folder() {
    let log = capture_log();
    let folder = tempfile::tempdir().unwrap();
    let store = tollgate::SqliteStore::open(folder.path().join("limits.db"))
        .await
        .unwrap();
    send(&login(5, 900, &store).layer(hello()), from("alice")).await;
    let lines = log.lines_with("login");
    assert!(lines[0].contains("limits.db"), "{}", lines[0]);
    assert!(
        !lines[0].contains(folder.path().to_str().unwrap()),
        "{}",
        lines[0]
    );
}

#[tokio::test]
async fn a_switched_off_limit_says_nothing() {
    let log = capture_log();
    let service = login_in_memory(5, 900).enabled(false).layer(hello());
    send(&service, from("alice")).await;
    assert_eq!(log.lines_with(""), Vec::<String>::new());
}

#[tokio::test]
async fn two_equal_limits_without_a_name_on_one_store_are_warned_about_once() {
    let log = capture_log();
    let store = sqlite(&clock());
    let limit = || {
        RateLimitLayer::fixed(3, 60)
            .key(key::header("x-client-key"))
            .store(&store)
    };
    for service in [limit(), limit(), limit()].map(|layer| layer.layer(hello())) {
        statuses(&service, "alice", 2).await;
    }
    let lines = log.lines_with(".name(");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("WARN") && lines[0].contains("3 per 60 s"),
        "{}",
        lines[0]
    );
}

#[tokio::test]
async fn clones_named_limits_and_other_stores_are_not_warned_about() {
    let log = capture_log();
    let (store, other) = (memory(&clock()), memory(&clock()));
    let limit = |store| {
        RateLimitLayer::fixed(3, 60)
            .key(key::header("x-client-key"))
            .store(store)
    };
    let first = limit(&store);
    let layers = [
        first.clone(),
        first,
        limit(&other),
        limit(&store).name("a"),
        limit(&store).name("a"),
        RateLimitLayer::fixed(4, 60)
            .key(key::header("x-client-key"))
            .store(&store),
    ];
    for layer in layers {
        send(&layer.layer(hello()), from("alice")).await;
    }
    assert_eq!(log.lines_with(".name("), Vec::<String>::new());
}

#[tokio::test]
async fn no_line_holds_a_key() {
    let log = capture_log();
    let service = login_in_memory(1, 60).layer(hello());
    statuses(&service, "alice-s-api-key", 3).await;
    let limiter = Limiter::new(Policy::fixed(1, 60)).store(&memory(&clock()));
    for _ in 0..2 {
        let _ = limiter
            .check(&Key::new("user", "alice-s-api-key"))
            .await
            .unwrap();
    }
    assert!(!log.lines_with("").is_empty());
    assert_eq!(log.lines_with("alice"), Vec::<String>::new());
}

#[tokio::test]
async fn a_limiter_says_once_what_it_is() {
    let log = capture_log();
    let limiter = Limiter::new(Policy::fixed(10, 3_600).name("mails")).store(&memory(&clock()));
    for _ in 0..3 {
        let _ = limiter.check(&Key::new("user", 42)).await.unwrap();
    }
    let lines = log.lines_with("mails: 10 per 3600 s, fixed window, store ");
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[tokio::test]
async fn layers_made_of_one_layer_each_tell_what_their_set_up_lacks() {
    #[derive(Clone)]
    struct User(u64);
    #[derive(Clone)]
    struct Tenant(u64);

    let log = capture_log();
    let base = login_in_memory(5, 60);
    let by_user = base.clone().key(key::extension(|user: &User| user.0));
    let by_tenant = base.key(key::extension(|tenant: &Tenant| tenant.0));
    for layer in [by_user, by_tenant] {
        assert_eq!(send(&layer.layer(hello()), from("alice")).await.status, 500);
    }
    assert_eq!(log.lines_with("from a User").len(), 1);
    assert_eq!(log.lines_with("from a Tenant").len(), 1);
}

#[tokio::test]
async fn what_debug_prints_of_a_layer_and_its_limiter_holds_no_key_and_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = tollgate::SqliteStore::open(folder.path().join("limits.db"))
        .await
        .unwrap();
    let layer = login(5, 900, &store).key(key::header("x-client-key").or_value("secret"));
    let limiter = layer.limiter();
    let decision = limiter.check(&Key::new("user", "secret")).await.unwrap();
    let service = layer.layer(());
    let debug = format!("{store:?} {layer:?} {limiter:?} {decision:?} {service:?}");
    assert!(debug.contains("login"), "{debug}");
    assert!(!debug.contains("secret"), "{debug}");
    assert!(!debug.contains(folder.path().to_str().unwrap()), "{debug}");
}
