use axum::Router;
use axum::routing::get;
use axum_governor::extractor::{Extension, PeerIp};
use axum_governor::{BodyPreset, ConfigError, GovernorConfigBuilder, GovernorLayer, Quota, nz};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserId(pub u64);

pub fn app() -> Result<Router, ConfigError> {
    let config = GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(Quota::requests_per_minute(nz!(100u32)))
        .stack(
            "user",
            Extension::<UserId>::new(),
            Quota::requests_per_hour(nz!(1_000u32)),
        )
        .whitelist_paths(["/health"])
        .body_preset(BodyPreset::ProblemJson)
        .finish()?;
    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/health", get(|| async { "ok\n" }))
        .layer(GovernorLayer::new(config)))
}
