//! The fields at moments whose values follow by hand.

use std::time::Duration;

use tollgate::{ManualClock, Policy, Timestamp};
use tower::Layer;

use super::{layer_of, stores};
use crate::support::{START, get, hello, send};

/// So many requests so many milliseconds later; and of the last of them the status, `RateLimit` without the name, and
/// `Retry-After`.
type Moment = (u64, usize, u16, &'static str, &'static str);

/// From `start` on, both stores tell the same at each of these moments, which follow one another.
async fn assert_tells(policy: &Policy, policy_field: &str, start: Timestamp, moments: &[Moment]) {
    let name = policy.as_name();
    let clock = ManualClock::new(start);
    for store in stores(&clock) {
        clock.set(start);
        let service = layer_of(policy.clone(), &*store).layer(hello());
        for (place, (later, requests, status, limit, retry_after)) in moments.iter().enumerate() {
            clock.advance(Duration::from_millis(*later));
            for _ in 1..*requests {
                send(&service, get("/")).await;
            }
            let answer = send(&service, get("/")).await;
            let at = format!("moment {place} of {name} in {store:?}");
            assert_eq!(answer.status, *status, "{at}");
            assert_eq!(answer.only("ratelimit-policy"), policy_field, "{at}");
            assert_eq!(
                answer.only("ratelimit"),
                format!("\"{name}\";{limit}"),
                "{at}"
            );
            assert_eq!(answer.header("retry-after"), *retry_after, "{at}");
            if *status == 429 {
                let told = answer.json()["retry_after"].to_string();
                assert_eq!(told, *retry_after, "{at}");
            }
        }
    }
}

#[tokio::test]
async fn a_fixed_window_tells_its_end() {
    let policy = Policy::fixed(2, 60).name("login");
    let moments = [
        (57_900, 1, 200, "r=1;t=3", ""),
        (1_000, 1, 200, "r=0;t=2", ""),
        (0, 1, 429, "r=0;t=2", "2"),
        (1_099, 1, 429, "r=0;t=1", "1"),
        (1, 1, 200, "r=1;t=60", ""),
    ];
    assert_tells(&policy, "\"login\";q=2;w=60", START, &moments).await;
}

#[tokio::test]
async fn a_sliding_window_tells_when_the_first_of_its_units_leaves() {
    let policy = Policy::sliding(10, 60).name("login");
    let moments = [
        (0, 1, 200, "r=9;t=60", ""),
        // One leaves in 45 s, but 8 at the policy's pace take 48.
        (15_000, 1, 200, "r=8;t=48", ""),
        (0, 7, 200, "r=1;t=45", ""),
        (0, 1, 200, "r=0;t=45", ""),
        (10_000, 1, 429, "r=0;t=35", "35"),
        (34_500, 1, 429, "r=0;t=1", "1"),
        (499, 9, 429, "r=0;t=1", "1"),
        (1, 1, 200, "r=0;t=15", ""),
        (14_999, 1, 429, "r=0;t=1", "1"),
        // Nine have left at once.
        (1, 1, 200, "r=8;t=48", ""),
    ];
    assert_tells(&policy, "\"login\";q=10;w=60", START, &moments).await;
}

#[tokio::test]
async fn a_sliding_counter_tells_when_enough_of_the_window_before_has_gone() {
    let policy = Policy::sliding_counter(10, 60).name("login");
    let moments = [
        // In the next window ten count whole at first, and nine after a tenth of it.
        (0, 10, 200, "r=0;t=66", ""),
        (0, 1, 429, "r=0;t=66", "66"),
        (65_999, 1, 429, "r=0;t=1", "1"),
        // 9 of the window before and this one.
        (1, 1, 200, "r=0;t=6", ""),
        // 7.5 and two.
        (9_000, 1, 200, "r=0;t=3", ""),
        (0, 1, 429, "r=0;t=3", "3"),
        // 2.5 and three, in which half a unit is no whole one.
        (30_000, 1, 200, "r=4;t=24", ""),
    ];
    assert_tells(&policy, "\"login\";q=10;w=60", START, &moments).await;
}

#[tokio::test]
async fn a_sliding_counter_with_something_left_tells_no_time_longer_than_its_window() {
    let policy = Policy::sliding_counter(10, 60).name("login");
    let moments = [(0, 9, 200, "r=1;t=60", "")];
    assert_tells(&policy, "\"login\";q=10;w=60", START, &moments).await;
}

#[tokio::test]
async fn a_token_bucket_tells_its_burst_and_the_time_to_fill() {
    let policy = Policy::token_bucket(10, 1).burst(50).name("api");
    let moments = [
        // 49 at the pace of the policy take 4.9 s.
        (0, 1, 200, "r=49;t=5", ""),
        (0, 24, 200, "r=25;t=3", ""),
        (0, 25, 200, "r=0;t=1", ""),
        (0, 1, 429, "r=0;t=1", "1"),
        (99, 1, 429, "r=0;t=1", "1"),
        (1, 1, 200, "r=0;t=1", ""),
        // Two and a half have come back.
        (250, 1, 200, "r=1;t=1", ""),
        (5_000, 1, 200, "r=49;t=5", ""),
    ];
    assert_tells(&policy, "\"api\";q=50;w=5", START, &moments).await;
}

#[tokio::test]
async fn a_slow_token_bucket_tells_when_the_next_unit_comes() {
    let policy = Policy::token_bucket(1, 60).burst(3).name("mails");
    let moments = [
        (0, 1, 200, "r=2;t=120", ""),
        (0, 1, 200, "r=1;t=60", ""),
        (0, 1, 200, "r=0;t=60", ""),
        (10_000, 1, 429, "r=0;t=50", "50"),
        (49_001, 1, 429, "r=0;t=1", "1"),
        (999, 1, 200, "r=0;t=60", ""),
        (180_000, 1, 200, "r=2;t=120", ""),
    ];
    assert_tells(&policy, "\"mails\";q=3;w=180", START, &moments).await;
}

#[tokio::test]
async fn a_time_with_a_fraction_of_a_millisecond_is_rounded_up_too() {
    let policy = Policy::try_token_bucket(3, Duration::from_millis(3_001))
        .unwrap()
        .name("api");
    // Two of three units take 2.000667 s to come back.
    let moments = [(0, 1, 200, "r=2;t=3", "")];
    assert_tells(&policy, "\"api\";q=3;w=4", START, &moments).await;
}

#[tokio::test]
async fn a_token_bucket_without_a_burst_of_its_own_has_its_rate_as_the_limit() {
    let policy = Policy::token_bucket(5, 60).name("api");
    let moments = [
        (0, 1, 200, "r=4;t=48", ""),
        (0, 4, 200, "r=0;t=12", ""),
        (0, 1, 429, "r=0;t=12", "12"),
    ];
    assert_tells(&policy, "\"api\";q=5;w=60", START, &moments).await;
}

#[tokio::test]
async fn an_hourly_quota_tells_the_end_of_the_hour() {
    let policy = Policy::hourly(2).name("hourly");
    let moments = [
        (1_200_000, 1, 200, "r=1;t=2400", ""),
        (0, 1, 200, "r=0;t=2400", ""),
        (0, 1, 429, "r=0;t=2400", "2400"),
        (2_399_999, 1, 429, "r=0;t=1", "1"),
        (1, 1, 200, "r=1;t=3600", ""),
    ];
    assert_tells(&policy, "\"hourly\";q=2;w=3600", START, &moments).await;
}

#[tokio::test]
async fn a_daily_quota_tells_midnight() {
    let policy = Policy::daily(2).name("daily");
    // It is 4 in the morning.
    let moments = [
        (0, 1, 200, "r=1;t=72000", ""),
        (0, 2, 429, "r=0;t=72000", "72000"),
        (71_999_999, 1, 429, "r=0;t=1", "1"),
        (1, 1, 200, "r=1;t=86400", ""),
    ];
    assert_tells(&policy, "\"daily\";q=2;w=86400", START, &moments).await;
}

#[tokio::test]
async fn a_monthly_quota_tells_a_window_of_31_days_and_the_end_of_the_month() {
    let policy = Policy::monthly(2).name("monthly");
    // It is the 15th of January 2027, at 4 in the morning.
    let moments = [
        (0, 1, 200, "r=1;t=1454400", ""),
        (0, 2, 429, "r=0;t=1454400", "1454400"),
        (1_454_399_999, 1, 429, "r=0;t=1", "1"),
        // February has 28 days.
        (1, 1, 200, "r=1;t=2419200", ""),
        (2_419_200_000, 1, 200, "r=1;t=2678400", ""),
    ];
    assert_tells(&policy, "\"monthly\";q=2;w=2678400", START, &moments).await;
}

#[tokio::test]
async fn a_leap_day_belongs_to_february() {
    let policy = Policy::monthly(1).name("monthly");
    // The first second of the 29th of February 2028.
    let leap_day = Timestamp::from_unix_millis(1_835_395_200_000);
    let moments = [
        (0, 1, 200, "r=0;t=86400", ""),
        (86_399_999, 1, 429, "r=0;t=1", "1"),
        (1, 1, 200, "r=0;t=2678400", ""),
    ];
    assert_tells(&policy, "\"monthly\";q=1;w=2678400", leap_day, &moments).await;
}

#[tokio::test]
async fn windows_below_a_second_are_told_as_one() {
    let window = Duration::from_millis(100);
    for policy in [
        Policy::try_fixed(2, window),
        Policy::try_sliding(2, window),
        Policy::try_sliding_counter(2, window),
        Policy::try_token_bucket(2, window),
    ] {
        let policy = policy.unwrap().name("burst");
        let moments = [
            (0, 1, 200, "r=1;t=1", ""),
            (0, 1, 200, "r=0;t=1", ""),
            (0, 1, 429, "r=0;t=1", "1"),
            (1_000, 1, 200, "r=1;t=1", ""),
        ];
        assert_tells(&policy, "\"burst\";q=2;w=1", START, &moments).await;
    }
}
