//! Each operation of the file, and each status that it names, made by a request.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use tempfile::TempDir;
use tollgate::{
    Limit, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, SqliteStore, Store,
};
use tower::Layer;

use super::schema::OpenApi;
use super::{SECRET, admin, charge, user};
use crate::support::{Answer, CLIENT, clock, hello, send, sqlite, statuses};

/// Routers that can give each answer.
struct Sites {
    /// With a policy of each kind, stores that answer and one that does not, and records of two days.
    full: Router,
    /// Without records.
    bare: Router,
    /// On a store that is closed.
    closed: Router,
    _folder: TempDir,
}

fn blocking(store: &impl Store) -> Limiter {
    let policy = Policy::sliding(2, 60).name("login");
    Limiter::new(policy.block_after(1, Duration::from_millis(1_500))).store(store)
}

async fn recorded(store: &SqliteStore, clock: &ManualClock) -> RateLimitLayer {
    let layer = RateLimitLayer::fixed(100, 60)
        .name("api")
        .key(tollgate::key::header(CLIENT))
        .store(store)
        .audit(store);
    let service = layer.layer(hello());
    for client in ["alice", "bob"] {
        assert_eq!(statuses(&service, client, 3).await, [200; 3]);
        clock.advance(Duration::from_hours(24));
    }
    layer
}

impl Sites {
    async fn new() -> Self {
        let clock = clock();
        let folder = tempfile::tempdir().unwrap();
        let file = SqliteStore::open(folder.path().join("limits.db"))
            .await
            .unwrap();
        let file = file.deadline(Duration::from_mins(1)).clock(&clock);
        let api = recorded(&file, &clock).await;
        let login = blocking(&file);
        let small = MemoryStore::new().max_keys(1).clock(&clock);
        let full = Limiter::new(Policy::fixed(1, 60).name("small")).store(&small);
        let bucket = Policy::token_bucket(10, 1).burst(50).name("bucket");
        let other = Limiter::new(Policy::fixed(7, 60).name("api")).store(&file);
        let exempt = Limit::EXEMPT.ends_after(Duration::from_hours(1));
        for id in [7, 8] {
            login.set_limit("login", &user(id), exempt).await.unwrap();
        }
        let admin = admin()
            .layer(&api)
            .layer(&RateLimitLayer::new(bucket).store(&file).shadow(true))
            .limiter(&login)
            .limiter(&other)
            .limiter(&full)
            .store(&file);
        assert_eq!(charge(&login, &user(42), 4).await, 2);
        assert_eq!(charge(&full, &user(1), 2).await, 1);
        assert!(full.check(&user(2)).await.is_err(), "there is room");

        let closed = sqlite(&clock);
        let unanswered = super::admin().limiter(&blocking(&closed)).store(&closed);
        closed.close().await.unwrap();
        Self {
            full: admin.into_router().unwrap(),
            bare: super::admin().limiter(&login).into_router().unwrap(),
            closed: unanswered.into_router().unwrap(),
            _folder: folder,
        }
    }

    /// The requests that get this answer.
    fn requests(&self, method: &str, path: &str, status: u16) -> Vec<(&Router, String)> {
        let key = if matches!(path, "/counters" | "/limit") {
            "&key=user:42"
        } else {
            ""
        };
        let queries: &[&str] = match (status, method, path) {
            (200, _, "/policies" | "/usage/days") => &["", "limit=1"],
            (200, "GET", "/policy") => &["policy=login", "policy=shadow;bucket", "policy=api"],
            (200, _, "/limits") => &["policy=login", "policy=login&limit=1"],
            (200, "GET", "/limit") | (413, ..) => &["policy=login&key=user:7"],
            (200, _, "/limit") => &["policy=login&key=user:8", "policy=small&all=true"],
            (200, "GET", "/counters") => &[
                "key=user:7",
                "key=user:42",
                "key=user:42&policy=login",
                "key=user:0",
            ],
            (200, "DELETE", "/counters") => {
                &["key=user:1", "under=user:2", "all=true&policy=small"]
            }
            (400, ..) => &["%"],
            (200 | 401, ..) => &[""],
            (404, _, usage) if usage.starts_with("/usage") => {
                return vec![(&self.bare, path.to_owned())];
            }
            (404, ..) => return vec![(&self.full, format!("{path}?policy=nobody{key}"))],
            (414, ..) => return vec![(&self.full, format!("{path}?{}", "a".repeat(8_193)))],
            (422, ..) => &["nonsense=1"],
            (503, _, "/limit" | "/limits") => {
                return vec![(&self.closed, format!("{path}?policy=login{key}"))];
            }
            (503, ..) => return vec![(&self.closed, format!("{path}?{key}"))],
            _ => panic!("{method} {path} {status} has no request"),
        };
        let targets = queries.iter();
        targets
            .map(|query| (&self.full, format!("{path}?{query}")))
            .collect()
    }
}

async fn request(router: &Router, method: &str, target: &str, status: u16) -> Answer {
    let has_key = status != 401;
    let mut request = Request::builder().method(method).uri(target);
    if has_key {
        request = request.header("x-admin-key", SECRET);
    }
    let body = match (method, status) {
        ("PUT", 413) => "x".repeat(4_097),
        ("PUT", _) => r#"{"limit": "blocked", "ends_after_seconds": 60}"#.to_owned(),
        _ => String::new(),
    };
    send(router, request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn each_operation_gives_each_answer_that_the_file_names_and_shows_each_property() {
    let (sites, file) = (Sites::new().await, OpenApi::read());
    let mut seen = BTreeSet::new();
    let mut answers = 0;
    let operations = file.operations();
    for operation in &operations {
        let (method, path) = (&*operation.method, operation.path);
        for &status in &operation.statuses {
            for (router, target) in sites.requests(method, path, status) {
                let answer = request(router, method, &target, status).await;
                assert_eq!(
                    answer.status,
                    status,
                    "{method} {target}: {}",
                    answer.text()
                );
                seen.extend(file.check(method, &target, &answer));
                answers += 1;
            }
        }
    }
    assert!(operations.len() >= 17 && answers > 90, "{answers} answers");
    let unseen: Vec<_> = file
        .properties()
        .into_iter()
        .filter(|property| !seen.contains(property))
        .collect();
    assert!(unseen.is_empty(), "no answer has {unseen:?}");
}

#[tokio::test]
async fn the_file_is_served_as_it_is_and_is_of_this_version() {
    let (sites, file) = (Sites::new().await, OpenApi::read());
    let served = request(&sites.bare, "GET", "/openapi.json", 200).await;
    assert_eq!(served.json(), *file.file());
    assert_eq!(file.file()["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn other_methods_are_a_405_that_says_which_there_are() {
    let sites = Sites::new().await;
    for operation in OpenApi::read().operations() {
        for method in ["POST", "PATCH", "OPTIONS"] {
            let answer = request(&sites.full, method, operation.path, 405).await;
            OpenApi::read().check(method, operation.path, &answer);
            assert!(
                answer.only("allow").contains(&operation.method),
                "{answer:?}"
            );
            let unknown = request(&sites.full, method, operation.path, 401).await;
            assert_eq!(unknown.status, 401);
        }
    }
}

#[tokio::test]
async fn each_example_of_a_body_is_accepted_as_it_is_written() {
    let (sites, file) = (Sites::new().await, OpenApi::read());
    let body = &file.file()["paths"]["/limit"]["put"]["requestBody"]["content"]["application/json"];
    let examples = body["examples"].as_object().unwrap();
    assert!(examples.len() > 1);
    for (name, example) in examples {
        let target = "/limit?policy=login&key=user:9";
        let request = Request::put(target).header("x-admin-key", SECRET);
        let request = request.body(Body::from(example["value"].to_string()));
        let answer = send(&sites.full, request.unwrap()).await;
        file.check("PUT", target, &answer);
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(answer.json()["limit"], example["value"]["limit"]);
    }
}
