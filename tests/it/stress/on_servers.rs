//! The same on servers: each contest has one of its own.

use super::contest::{Clocks, Contest, Ended};
use crate::servers::RunningServer;

/// Makes a test of each contest, on servers of a kind.
macro_rules! contests_on {
    ($server:ty) => {
        $crate::stress::on_servers::contests_on!($server;
            kills_and_resets_never_let_more_than_the_limit_through,
            without_kills_each_window_is_exactly_full_when_all_were_refused,
            what_comes_back_by_refunds_and_closed_stores_is_there_for_others_and_no_more,
            kills_and_resets_never_let_more_through_than_a_sliding_counter_has_room_for,
            refunds_and_new_limits_never_let_more_than_the_largest_limit_through,
            by_the_servers_clock_kills_and_resets_never_let_more_than_the_limit_through,
        );
    };
    ($server:ty; $($contest:ident,)*) => { $(
        #[test]
        fn $contest() {
            $crate::stress::on_servers::$contest::<$server>();
        }
    )* };
}
pub(super) use contests_on;

pub(super) fn kills_and_resets_never_let_more_than_the_limit_through<S: RunningServer>() {
    let server = S::start();
    let contest = Contest {
        url: Some(server.url()),
        ..Contest::of_kills()
    };
    contest.run().ledger.assert_never_over(1);
}

pub(super) fn without_kills_each_window_is_exactly_full_when_all_were_refused<S: RunningServer>() {
    in_time::<S>(Contest::run, Contest::default);
}

pub(super) fn what_comes_back_by_refunds_and_closed_stores_is_there_for_others_and_no_more<
    S: RunningServer,
>() {
    in_time::<S>(
        Contest::run_and_take_the_rest_once,
        Contest::of_what_comes_back,
    );
}

/// Each window is exactly full; on another server once more when it was late, since what is counted then is told to nobody.
fn in_time<S: RunningServer>(run: impl Fn(&Contest) -> Ended, contest: impl Fn() -> Contest) {
    for _ in 0..5 {
        let server = S::start();
        let url = Some(server.url());
        let ended = run(&Contest { url, ..contest() });
        ended.ledger.assert_never_over(1);
        if !ended.was_late {
            return ended.ledger.assert_full();
        }
    }
    panic!("five contests were late");
}

pub(super) fn kills_and_resets_never_let_more_through_than_a_sliding_counter_has_room_for<
    S: RunningServer,
>() {
    let server = S::start();
    let contest = Contest {
        url: Some(server.url()),
        ..Contest::of_sliding_counters()
    };
    let ended = contest.run();
    ended.ledger.assert_never_over(1);
    ended.ledger.assert_slides();
}

pub(super) fn refunds_and_new_limits_never_let_more_than_the_largest_limit_through<
    S: RunningServer,
>() {
    let server = S::start();
    let contest = Contest {
        url: Some(server.url()),
        ..Contest::of_new_limits()
    };
    contest.run().ledger.assert_never_over(2);
}

/// By the server's clock: leases also come back since they are idle, or since their window is over, and rows are swept.
pub(super) fn by_the_servers_clock_kills_and_resets_never_let_more_than_the_limit_through<
    S: RunningServer,
>() {
    let server = S::start();
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
        url: Some(server.url()),
        ..Contest::default()
    };
    contest.run().ledger.assert_never_over(1);
}
