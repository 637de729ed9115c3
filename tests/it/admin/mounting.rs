//! Where it stands in an application.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;

use super::{SECRET, admin};
use crate::support::{login_in_memory, send};

async fn status(router: &Router, target: &str, secret: &str) -> u16 {
    let request = Request::get(target).header("x-admin-key", secret);
    send(router, request.body(Body::empty()).unwrap())
        .await
        .status
}

fn api() -> Router {
    admin()
        .layer(&login_in_memory(3, 60))
        .into_router()
        .unwrap()
}

#[tokio::test]
async fn it_can_be_nested_and_merged_and_leaves_other_paths_alone() {
    let app = || {
        Router::new()
            .route("/hello", get(|| async { "hello" }))
            .fallback(|| async { "mine" })
    };
    let nested = app().nest("/admin", api());
    let merged = app().merge(api());
    let merged_into = api().merge(app());
    for (router, prefix) in [(nested, "/admin"), (merged, ""), (merged_into, "")] {
        let path = |path: &str| format!("{prefix}{path}");
        assert_eq!(status(&router, &path("/policies"), SECRET).await, 200);
        assert_eq!(status(&router, &path("/policies"), "wrong").await, 401);
        for other in ["/hello", "/nowhere", &path("/nowhere")] {
            assert_eq!(status(&router, other, "wrong").await, 200, "{other}");
        }
    }
    let alone = api();
    assert_eq!(status(&alone, "/nowhere", SECRET).await, 404);
}

#[tokio::test]
async fn an_api_that_serves_nothing_says_so() {
    let empty = admin().into_router().unwrap();
    let policies = super::get(&empty, "/policies").await;
    assert_eq!(policies, serde_json::json!({"policies": []}));
    assert_eq!(
        super::get(&empty, "/counters?key=a:b").await["counters"],
        serde_json::json!([])
    );
}
