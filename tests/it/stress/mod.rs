//! Four processes that contend for the units of a few keys on one file, while they are killed, keys are reset, limits change and
//! clocks step: never more than the limit, in each epoch of each window.
//!
//! Each says what it was told before it goes on, so that what a killed one was told is known, but for what was on its way. Of each
//! unit it says the window and the epoch, so what is counted is exact whatever the timing.
//!
//! `TOLLGATE_STRESS=100` makes the contests a hundred times as long.

mod contest;
mod course;
mod fleet;
mod ledger;
#[cfg(any(feature = "postgres", all(feature = "redis", unix)))]
mod on_servers;

use self::contest::{Clocks, Contest, scale};

#[tokio::test]
async fn kills_and_resets_never_let_more_than_the_limit_through() {
    let contest = Contest::of_kills();
    let ended = contest.run();
    ended.ledger.assert_never_over(1);
    ended.ledger.assert_stored(&ended.path, 1, false).await;
}

/// Whoever was refused has nothing left that was charged ahead, and the others can't have either.
#[tokio::test]
async fn without_kills_each_window_is_exactly_full_when_all_were_refused() {
    let ended = Contest::default().run_in_time();
    ended.ledger.assert_full();
    ended.ledger.assert_stored(&ended.path, 1, true).await;
}

/// Each process holds units that were charged ahead while the others are refused; all of it is given back in the end.
#[tokio::test]
async fn what_comes_back_by_refunds_and_closed_stores_is_there_for_others_and_no_more() {
    let contest = Contest::of_what_comes_back();
    for _ in 0..scale() {
        let ended = contest.run_and_take_the_rest();
        ended.ledger.assert_full();
        ended.ledger.assert_stored(&ended.path, 1, true).await;
    }
}

#[tokio::test]
async fn refunds_and_new_limits_never_let_more_than_the_largest_limit_through() {
    let contest = Contest::of_new_limits();
    let ended = contest.run();
    ended.ledger.assert_never_over(2);
    ended.ledger.assert_stored(&ended.path, 2, false).await;
}

/// A unit of a window before counts less and less, whoever has charged it ahead.
#[tokio::test]
async fn kills_and_resets_never_let_more_through_than_a_sliding_counter_has_room_for() {
    let contest = Contest::of_sliding_counters();
    let ended = contest.run();
    ended.ledger.assert_never_over(1);
    ended.ledger.assert_slides();
    ended.ledger.assert_stored(&ended.path, 1, false).await;
}

/// No window has more than its limit, so who asks in two windows by turns gets one quota more than its own.
#[tokio::test]
async fn clocks_that_step_back_and_forth_never_let_more_than_the_limit_of_a_window_through() {
    let contest = Contest {
        limiters: &[
            "fixed:10:1",
            "fixed:300:1",
            "hourly:300",
            "sliding-counter:100:1",
            "fixed:40:1,hourly:300,sliding-counter:30:1",
        ],
        kills: 1_000,
        resets: 5,
        steps: 50,
        leaves: 5,
        ..Contest::default()
    };
    let ended = contest.run();
    ended.ledger.assert_never_over(1);
    ended.ledger.assert_stored(&ended.path, 1, false).await;
}

/// Here leases also come back since they are idle, or since their window is over, and rows are swept.
#[tokio::test]
async fn by_the_systems_clock_kills_and_resets_never_let_more_than_the_limit_through() {
    let contest = Contest {
        limiters: &[
            "fixed:10:1",
            "fixed:1000:1",
            "sliding-counter:100:1",
            "fixed:50:1,hourly:10000,sliding-counter:60:1",
        ],
        clocks: Clocks::System,
        rounds: 1,
        admitted_a_round: 10_000,
        kills: 1_000,
        resets: 5,
        leaves: 10,
        ..Contest::default()
    };
    let ended = contest.run();
    ended.ledger.assert_never_over(1);
    ended.ledger.assert_stored(&ended.path, 1, false).await;
}

#[cfg(feature = "postgres")]
mod on_postgres {
    super::on_servers::contests_on!(crate::postgres::PostgresServer);
}

#[cfg(all(feature = "redis", unix))]
mod on_redis {
    super::on_servers::contests_on!(crate::redis::RedisServer);
}
