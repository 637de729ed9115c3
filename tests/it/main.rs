//! The library through its public API: keys, answers, fields, and the servers and stacks that it stands in.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

#[cfg(feature = "admin")]
mod admin;
mod afterwards;
mod algorithms;
mod allocations;
mod answers;
mod app_pool_example;
mod audit;
mod blocks;
mod client_ip;
mod clocks;
mod concurrency;
mod custom_answers;
mod decisions;
#[cfg(feature = "metrics")]
mod described_metrics;
mod dropping;
mod events;
mod examples;
mod extensions;
mod field_options;
mod fields;
mod grpc;
mod head;
mod hyper_server;
mod keys;
mod limits;
mod locks;
mod login_example;
mod logs;
mod made_keys;
#[cfg(feature = "metrics")]
mod metrics;
mod nesting;
mod outages;
#[cfg(feature = "records")]
mod own_store;
mod passing;
mod peers;
mod places;
mod policies;
mod policies_example;
#[cfg(feature = "postgres")]
mod postgres;
mod process_lock;
mod processes;
mod quotas_example;
mod readiness;
#[cfg(feature = "records")]
mod records;
#[cfg(all(feature = "redis", unix))]
mod redis;
mod refunds;
mod refusals;
mod requests;
mod routes;
mod runtimes;
#[cfg(any(feature = "postgres", all(feature = "redis", unix)))]
mod server_nodes;
#[cfg(any(feature = "postgres", all(feature = "redis", unix)))]
mod servers;
#[cfg(all(feature = "admin", feature = "metrics", unix))]
mod service_example;
mod set_up_mistakes;
mod shadow;
mod sliding_window_example;
mod stacks;
mod store_failures;
mod store_health;
mod stress;
mod support;
mod tidy;
mod told_waits;
mod waiting;
mod web_sockets;
mod x_fields;
