use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{BoxError, Router};
use tower::ServiceBuilder;

pub fn app() -> Router {
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(|_: BoxError| async {
            StatusCode::INTERNAL_SERVER_ERROR
        }))
        .buffer(1_024)
        .rate_limit(5, Duration::from_secs(1));
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limit)
}
