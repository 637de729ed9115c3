//! What was used, by key, day, route and policy.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get as on_get;
use tollgate::{Day, Days, Key, RateLimitLayer, Usage, key};

use super::Recorded;
use crate::support::{CLIENT, from, memory, send};

/// Three days with requests of two keys, to two routes, under two policies: 2083-01-15 to 17.
async fn three_days() -> Recorded {
    let recorded = Recorded::open().await;
    let limit = |name: &str, cost: u32| {
        RateLimitLayer::fixed(1_000, 60)
            .name(name)
            .key(key::header(CLIENT))
            .store(&memory(&recorded.clock))
            .cost(move |_| cost)
            .audit(&recorded.store)
    };
    let app = Router::new()
        .route("/list", on_get(|| async {}).layer(limit("api", 1)))
        .route(
            "/export/{id}",
            on_get(|| async {}).layer(limit("exports", 10)),
        );
    for day in 0..3 {
        for (client, path, count) in [
            ("alice", "/list", 2),
            ("alice", "/export/1", day),
            ("bob", "/list", 1),
        ] {
            for _ in 0..count {
                let mut request = from(client);
                *request.uri_mut() = path.parse().unwrap();
                assert_eq!(send::<_, Body, _>(&app, request).await.status, 200);
            }
        }
        recorded.clock.advance(Duration::from_secs(86_400));
    }
    recorded
}

fn days(first: &str, last: &str) -> Days {
    Days::parse(first, last).unwrap()
}

fn alice() -> Key {
    Key::header(CLIENT, "alice")
}

fn counts(usage: Usage) -> (u64, u64) {
    (usage.requests(), usage.units())
}

fn told<T: ToString>(sums: Vec<(T, Usage)>) -> Vec<(String, (u64, u64))> {
    let told = sums.into_iter();
    told.map(|(label, usage)| (label.to_string(), counts(usage)))
        .collect()
}

fn expected(sums: &[(&str, (u64, u64))]) -> Vec<(String, (u64, u64))> {
    let sums = sums.iter();
    sums.map(|(label, counts)| ((*label).to_owned(), *counts))
        .collect()
}

#[tokio::test]
async fn a_total_is_of_the_days_that_are_asked_for() {
    let recorded = three_days().await;
    let total = async |first, last| {
        let usage = recorded.store.usage(days(first, last));
        counts(usage.total().await.unwrap())
    };
    assert_eq!(total("2083-01-15", "2083-01-17").await, (12, 39));
    assert_eq!(total("2083-01-16", "2083-01-16").await, (4, 13));
    assert_eq!(total("2083-01-18", "2083-01-31").await, (0, 0));
    assert_eq!(total("2074-01-18", "2084-01-18").await, (12, 39));
}

#[tokio::test]
async fn a_key_a_policy_and_a_route_can_be_asked_for_alone() {
    let recorded = three_days().await;
    let usage = recorded.store.usage(days("2083-01-01", "2083-12-31"));
    let total = async |usage: tollgate::UsageQuery| counts(usage.total().await.unwrap());
    assert_eq!(total(usage.clone().key(&alice())).await, (9, 36));
    assert_eq!(total(usage.clone().policy("api")).await, (9, 9));
    assert_eq!(total(usage.clone().route("/export/{id}")).await, (3, 30));
    assert_eq!(
        total(usage.clone().key(&alice()).policy("api")).await,
        (6, 6)
    );
    assert_eq!(
        total(usage.clone().key(&alice()).route("/list")).await,
        (6, 6)
    );
    assert_eq!(total(usage.clone().key(&Key::new("user", 1))).await, (0, 0));
    let of_another = usage.policy("api").route("/export/{id}");
    assert_eq!(total(of_another).await, (0, 0));
}

#[tokio::test]
async fn usage_is_broken_down_by_day_route_policy_and_key() {
    let recorded = three_days().await;
    let usage = recorded.store.usage(days("2083-01-15", "2083-12-31"));
    let by_day = usage.clone().key(&alice()).by_day().await.unwrap();
    assert_eq!(
        told(by_day),
        expected(&[
            ("2083-01-15", (2, 2)),
            ("2083-01-16", (3, 12)),
            ("2083-01-17", (4, 22)),
        ])
    );
    let by_route = usage.by_route().await.unwrap();
    let routes = [("/export/{id}", (3, 30)), ("/list", (9, 9))];
    assert_eq!(told(by_route), expected(&routes));
    let by_policy = usage.by_policy().await.unwrap();
    let policies = [("exports", (3, 30)), ("api", (9, 9))];
    assert_eq!(told(by_policy), expected(&policies));
    let by_key = usage.by_key(10).await.unwrap();
    assert_eq!(by_key.len(), 2);
    assert_eq!(by_key[0].0, alice());
    assert_eq!(counts(by_key[0].1), (9, 36));
    assert_eq!(usage.by_key(1).await.unwrap(), by_key[..1]);
}

#[tokio::test]
async fn days_are_those_of_the_utc_calendar() {
    let recorded = Recorded::open().await;
    let limit = crate::support::login(9, 60, &memory(&recorded.clock)).audit(&recorded.store);
    let service = tower::Layer::layer(&limit, crate::support::hello::<Body>());
    // A millisecond before midnight, and at midnight.
    recorded
        .clock
        .advance(Duration::from_millis(20 * 3_600_000 - 1));
    send(&service, from("alice")).await;
    recorded.clock.advance(Duration::from_millis(1));
    send(&service, from("alice")).await;
    let usage = recorded.store.usage(days("2083-01-15", "2083-01-16"));
    let by_day = usage.by_day().await.unwrap();
    let expected = expected(&[("2083-01-15", (1, 1)), ("2083-01-16", (1, 1))]);
    assert_eq!(told(by_day), expected);
}

#[tokio::test]
async fn sums_of_many_keys_are_read_page_by_page_and_none_twice() {
    let recorded = Recorded::open().await;
    let mut connection = recorded.connection().await;
    // Days 20,000 to 20,002, with 3,000 keys on each of them, each with two routes.
    let rows = "
        WITH RECURSIVE n (n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM n WHERE n < 17999)
        INSERT INTO api_usage (day, key, policy, route, requests, units)
        SELECT 20000 + n / 6000, 'user:' || (n / 2 % 3000), 'api', '/' || (n % 2), 1, n % 3000 FROM n";
    sqlx::Executor::execute(&mut connection, rows)
        .await
        .unwrap();
    let first = Day::of(tollgate::Timestamp::from_unix_millis(20_000 * 86_400_000));
    let last = Day::of(tollgate::Timestamp::from_unix_millis(20_002 * 86_400_000));
    let usage = recorded.store.usage(Days::new(first, last).unwrap());
    let units = 6 * (0..3_000).sum::<u64>();
    assert_eq!(counts(usage.total().await.unwrap()), (18_000, units));
    let by_day = usage.by_day().await.unwrap();
    assert!(by_day.iter().all(|(_, usage)| usage.requests() == 6_000));
    assert_eq!(by_day.len(), 3);
    let keys = usage.by_key(usize::MAX).await.unwrap();
    assert_eq!(keys.len(), 3_000);
    assert!(keys.iter().all(|(_, usage)| usage.requests() == 6));
    let of_first = recorded.store.usage(first).total().await.unwrap();
    assert_eq!(of_first.requests(), 6_000);
}
