//! Units that go back to long logs of events, a page at a time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sqlx::AssertSqlSafe;

use super::events::{charge_at, count_steps, events, fill};
use super::*;
use crate::limit::algorithm::Taken;
use crate::store::suite::part_of;

const WINDOW: i64 = 60_000;

/// Units of an event of a key.
fn of_event(policy: &Policy, key: &str, at: i64, units: u32) -> GiveBack {
    let at = Timestamp::from_unix_millis(at);
    GiveBack {
        part: part_of(policy, &Key::new("user", key)),
        units,
        from: Taken::Event { at },
        taken_at: at,
    }
}

/// Gives back once, and returns what is left.
async fn one_page(backend: &mut Sqlite, units: &[GiveBack], page: u64) -> Vec<GiveBack> {
    let now = Timestamp::from_unix_millis(NOW);
    let database = &mut backend.database;
    let given_back = give_back::give_back(database, units, now, page).await;
    given_back.unwrap().left
}

/// Gives back until nothing is left, and counts the calls.
async fn all_pages(backend: &mut Sqlite, units: &[GiveBack], page: u64) -> usize {
    let mut left = units.to_vec();
    let mut calls = 0;
    while !left.is_empty() {
        left = one_page(backend, &left, page).await;
        calls += 1;
    }
    calls
}

/// What is told as used by a key.
async fn used_at(backend: &mut Sqlite, policy: &Policy, key: &str, millis: i64) -> u64 {
    let look = charge_of(&[(policy, &Key::new("user", key))], 1);
    let clock = Clock::Manual(clock_at(millis));
    let looked = backend.peek(&[look], &clock).await.unwrap();
    looked[0].found.first().state.used(policy, clock.now())
}

/// One event each ten seconds, of a unit each, from `NOW` on: ten of them.
async fn ten_events(backend: &mut Sqlite, policy: &Policy) {
    for n in 0..10 {
        let outcome = charge_at(backend, policy, 1, NOW + n * 10_000).await;
        assert!(outcome.is_admitted());
    }
}

#[tokio::test]
async fn many_refunds_at_once_go_through_a_long_log_once() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(2_500, 60).name("p");
    fill(&mut backend, &policy).await;
    let units: Vec<_> = (0..64)
        .map(|n| of_event(&policy, "a", NOW - 2_499 + n * 30, 1))
        .collect();
    assert_eq!(all_pages(&mut backend, &units, PAGE).await, 3);
    assert_eq!(used_at(&mut backend, &policy, "a", NOW).await, 2_500 - 64);
    let events = events(&path).await;
    assert_eq!(events.len(), 2_500 - 64);
    let totals = events.iter().map(|(_, _, total)| *total);
    assert!(totals.eq(1..=2_500 - 64), "each total is the sum up to it");
}

#[tokio::test]
async fn a_call_costs_no_more_than_a_page_however_long_the_log_is() {
    let mut steps = Vec::new();
    for limit in [100, 4_000] {
        let (_folder, path) = folder();
        let mut backend = backend(&path);
        let policy = Policy::sliding(limit, 60).name("p");
        fill(&mut backend, &policy).await;
        let counted = count_steps(&mut backend).await;
        let first = of_event(&policy, "a", NOW + 1 - i64::from(limit), 1);
        one_page(&mut backend, &[first], 50).await;
        steps.push(counted.load(Ordering::Relaxed));
    }
    assert!(steps[0] > 100, "they are not counted: {steps:?}");
    assert!(10 * steps[1] <= 12 * steps[0], "{steps:?}");
}

#[tokio::test]
async fn until_the_last_page_more_is_told_as_used_and_charges_between_are_counted() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(10, 600).name("p");
    ten_events(&mut backend, &policy).await;
    let now = NOW + 90_000;
    let units = [
        of_event(&policy, "a", NOW, 1),
        of_event(&policy, "a", NOW + 40_000, 1),
    ];
    let left = one_page(&mut backend, &units, 3).await;
    assert_eq!(used_at(&mut backend, &policy, "a", now).await, 10);
    assert!(!charge_at(&mut backend, &policy, 1, now).await.is_admitted());
    let left = one_page(&mut backend, &left, 3).await;
    assert!(
        !charge_at(&mut backend, &policy, 1, now + 1)
            .await
            .is_admitted()
    );
    assert!(all_pages(&mut backend, &left, 3).await > 0);
    assert_eq!(used_at(&mut backend, &policy, "a", now).await, 8);
    assert!(
        charge_at(&mut backend, &policy, 2, now + 2)
            .await
            .is_admitted()
    );
    assert!(
        !charge_at(&mut backend, &policy, 1, now + 3)
            .await
            .is_admitted()
    );
}

#[tokio::test]
async fn a_process_that_ends_between_two_pages_leaves_no_less_used_and_it_mends_itself() {
    let (_folder, path) = folder();
    let policy = Policy::sliding(100, 100).name("p");
    let mut first = backend(&path);
    ten_events(&mut first, &policy).await;
    // The page ends before the event of 40 s.
    let units = [of_event(&policy, "a", NOW + 10_000, 1)];
    let left = one_page(&mut first, &units, 3).await;
    assert_eq!(left.len(), 1);
    drop(first);
    let mut second = backend(&path);
    for (millis, told, is) in [
        (90_000, 10, 9),
        (100_000, 9, 8),
        (129_999, 8, 7),
        (130_000, 6, 6),
        (140_000, 5, 5),
        (190_000, 0, 0),
    ] {
        assert!(told >= is);
        let used = used_at(&mut second, &policy, "a", NOW + millis).await;
        assert_eq!(used, told, "after {millis} ms");
    }
}

#[tokio::test]
async fn what_fails_between_the_two_calls_of_a_page_gives_nothing_back() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    let policy = Policy::sliding(10, 600).name("p");
    ten_events(&mut backend, &policy).await;
    let before = events(&path).await;
    let mut other = other_connection(&path).await;
    let trigger = "CREATE TRIGGER fails BEFORE DELETE ON rate_limit_events
        BEGIN SELECT RAISE(FAIL, 'as the test wants it'); END";
    other.execute(trigger).await.unwrap();
    let units = [of_event(&policy, "a", NOW, 1)];
    let clock = Clock::Manual(clock_at(NOW));
    assert!(backend.give_back(&units, &clock).await.is_err());
    assert_eq!(events(&path).await, before);
    other
        .execute("BEGIN IMMEDIATE; DROP TRIGGER fails; COMMIT")
        .await
        .unwrap();
    assert!(backend.give_back(&units, &clock).await.unwrap().is_empty());
    assert_eq!(events(&path).await.len(), 9);
}

/// What was admitted of each key, by its instant.
#[derive(Default)]
struct Model(BTreeMap<(u8, i64), u32>);

impl Model {
    fn used(&self, key: u8, now: i64) -> u64 {
        let in_force = self.0.range((key, now - WINDOW + 1)..=(key, i64::MAX));
        in_force.map(|(_, units)| u64::from(*units)).sum()
    }

    fn take(&mut self, key: u8, at: i64, units: u32) {
        *self.0.entry((key, at)).or_default() += units;
    }

    fn give_back(&mut self, key: u8, at: i64, units: u32) {
        if let Some(there) = self.0.get_mut(&(key, at)) {
            *there = there.saturating_sub(units);
        }
    }
}

/// What comes next.
#[derive(Clone, Debug)]
enum Step {
    /// A charge of some units, so many milliseconds later.
    Charge { key: u8, cost: u32, wait: i64 },
    /// One call with refunds of so many of the charges; one that is named twice goes back twice.
    Refunds(Vec<prop::sample::Index>),
    /// The next page of what is left.
    Page,
}

fn step() -> impl Strategy<Value = Step> {
    let charge = || {
        // Those that come after a second refund of the same charge must be events of their own.
        let wait = prop_oneof![4 => 1..9_i64, 1 => 1..20_000_i64];
        (0..3_u8, 1..4_u32, wait).prop_map(|(key, cost, wait)| Step::Charge { key, cost, wait })
    };
    let refunds = proptest::collection::vec(any::<prop::sample::Index>(), 1..6);
    prop_oneof![
        6 => charge(),
        2 => refunds.prop_map(Step::Refunds),
        1 => Just(Step::Page),
    ]
}

async fn assert_like_model(
    backend: &mut Sqlite,
    name: &str,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let policy = Policy::sliding(30, 60).name(name);
    let (mut model, mut now) = (Model::default(), NOW);
    let mut charges: Vec<(u8, i64, u32)> = Vec::new();
    let mut left = Vec::new();
    for step in steps {
        match step {
            Step::Charge { key, cost, wait } => {
                now += wait;
                let owner = Key::new("user", key.to_string());
                let charge = charge_of(&[(&policy, &owner)], cost);
                let clock = Clock::Manual(clock_at(now));
                let answers = charge_by(backend, &[charge], &clock).await.unwrap();
                let is_admitted = answers[0].as_ref().unwrap().is_admitted();
                let fits = model.used(key, now) + u64::from(cost) <= 30;
                prop_assert!(fits || !is_admitted, "more than the limit");
                prop_assert!(!left.is_empty() || is_admitted == fits);
                if is_admitted {
                    model.take(key, now, cost);
                    charges.push((key, now, cost));
                }
            }
            Step::Refunds(_) if charges.is_empty() => {}
            Step::Refunds(chosen) => {
                let chosen: Vec<_> = chosen.iter().map(|one| *one.get(&charges)).collect();
                for (key, at, cost) in &chosen {
                    model.give_back(*key, *at, *cost);
                    left.push(of_event(&policy, &key.to_string(), *at, *cost));
                }
                charges.retain(|charge| !chosen.contains(charge));
                left = one_page(backend, &left, 3).await;
            }
            Step::Page => left = one_page(backend, &left, 3).await,
        }
        for key in 0..3 {
            let used = used_at(backend, &policy, &key.to_string(), now).await;
            let expected = model.used(key, now);
            prop_assert!(used >= expected, "{used} of {expected}");
            prop_assert!(!left.is_empty() || used == expected, "{used} of {expected}");
        }
    }
    all_pages(backend, &left, 3).await;
    for key in 0..3 {
        for later in [0, WINDOW / 2, WINDOW - 5, WINDOW] {
            let used = used_at(backend, &policy, &key.to_string(), now + later).await;
            prop_assert_eq!(used, model.used(key, now + later));
        }
    }
    Ok(())
}

#[test]
fn refunds_and_charges_in_any_order_are_like_the_model_page_by_page() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let backend = std::cell::RefCell::new(Sqlite {
        database: Database::new(Location::Memory),
        room: None,
        retention: Arc::default(),
    });
    let case = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 80,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let steps = proptest::collection::vec(step(), 1..60);
    let result = runner.run(&steps, |steps| {
        case.set(case.get() + 1);
        let name = format!("case-{}", case.get());
        runtime.block_on(assert_like_model(&mut backend.borrow_mut(), &name, steps))
    });
    result.unwrap();
}

/// What a statement goes through: the arrays that it is given, and rows of tables by their keys.
#[tokio::test]
async fn no_statement_that_gives_back_goes_through_a_whole_table() {
    let (_folder, path) = folder();
    let mut backend = backend(&path);
    backend.open().await.unwrap();
    let mut searched = 0;
    for statements in give_back::statements() {
        let statements = statements.split(';').map(str::trim);
        for statement in statements.filter(|text| !matches!(*text, "BEGIN IMMEDIATE" | "COMMIT")) {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let plan = backend.database.fetch_all(sqlx::query(explain)).await;
            for row in plan.unwrap() {
                let detail: String = row.get(3);
                let is_bounded = ["VIRTUAL TABLE", "CONSTANT ROW", "(subquery", "SCAN search"];
                let is_bounded = is_bounded.iter().any(|part| detail.contains(part));
                assert!(
                    !detail.starts_with("SCAN") || is_bounded,
                    "{detail}: {statement}"
                );
                searched += usize::from(detail.starts_with("SEARCH"));
            }
        }
    }
    assert!(searched > 8, "no table is searched: {searched}");
}
