use axum::Router;
use axum::http::Method;
use axum::routing::post;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::SmartIpKeyExtractor;

pub fn app() -> Router {
    let config = GovernorConfigBuilder::default()
        .per_second(6)
        .burst_size(10)
        .methods(vec![Method::POST])
        .key_extractor(SmartIpKeyExtractor)
        .use_headers()
        .finish()
        .expect("neither is 0");
    Router::new()
        .route("/login", post(|| async { "welcome\n" }))
        .layer(GovernorLayer::new(config))
}
