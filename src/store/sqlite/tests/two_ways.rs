//! One statement, or read, decide, write: a batch of single windows goes either way, and both give the same.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::store::Part;
use crate::store::engine::{Ahead, Batch, Charged};

/// What both ways leave in the table, without what belongs to the last statement.
async fn counters(database: &mut Database) -> Vec<String> {
    let query = "SELECT policy || ' ' || key || ' ' || window_start || ' ' || used || ' ' || denied || ' ' || epoch
        || ' ' || expires_at || ' ' || last_limit || ' ' || last_cost
        FROM rate_limit_windows ORDER BY policy, key, window_start";
    let rows = database.fetch_all(sqlx::query(query)).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn by_upsert(database: &mut Database, batch: Batch<'_>, clock: &Clock) -> Charged {
    let merged = Merged::of(batch.charges.iter(), batch.ahead, clock.now());
    let applied = upsert::charge(database, &merged).await.unwrap();
    merged.charged(&applied)
}

async fn by_ledger(database: &mut Database, batch: Batch<'_>, clock: &Clock) -> Charged {
    let applied = ledger::charge(database, batch, clock, None).await;
    let applied = applied.unwrap().unwrap();
    Charged::of(applied.answers, applied.grants)
}

#[test]
fn both_ways_give_the_same_answers_and_leave_the_same_rows() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let charge = (0..4_u8, 0..4_u8, 1..5_u32, 0..12_u32);
    let batch = (0_i64..90_000, proptest::collection::vec(charge, 1..50));
    let batches = proptest::collection::vec(batch, 1..6);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&batches, |batches| {
        runtime.block_on(async {
            let mut one = Database::new(Location::Memory);
            let mut other = Database::new(Location::Memory);
            let mut now = NOW;
            for (wait, charges) in batches {
                now += wait;
                let clock = Clock::Manual(clock_at(now));
                let charges: Vec<_> = charges
                    .into_iter()
                    .map(|(kind, key, cost, limit)| {
                        let policy = match kind {
                            0 => Policy::fixed(limit, 60).name("minute"),
                            1 => Policy::fixed(limit, 7).name("short"),
                            2 => Policy::hourly(limit).name("hour"),
                            _ => Policy::monthly(limit).name("month"),
                        };
                        charge_of(&[(&policy, &Key::new("user", key))], cost)
                    })
                    .collect();
                let batch = Batch {
                    charges: &charges,
                    ahead: &[],
                };
                assert!(upsert::can_charge(batch));
                let by_upsert = by_upsert(&mut one, batch, &clock).await;
                let by_ledger = by_ledger(&mut other, batch, &clock).await;
                let both = by_upsert.answers.into_iter().zip(by_ledger.answers);
                for (by_upsert, by_ledger) in both {
                    prop_assert_eq!(by_upsert.unwrap(), by_ledger.unwrap());
                }
                prop_assert_eq!(counters(&mut one).await, counters(&mut other).await);
            }
            Ok(())
        })
    });
    result.unwrap();
}

/// What is granted ahead is an eighth of what the charges leave, and comes after all of them.
#[test]
fn charges_grants_and_what_is_given_back_are_those_of_a_plain_count() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limits = proptest::sample::select(vec![0, 1, 7, 8, 9, 16, 17, 100, 1_000, u32::MAX]);
    let runs = proptest::collection::vec((1..20_u32, 1..30_usize), 0..4);
    let step = (runs, 1..1_u32 << 20, 0..50_u32, any::<bool>());
    let batches = proptest::collection::vec(step, 1..8);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&(limits, batches), |(limit, batches)| {
        runtime.block_on(async {
            let mut database = Database::new(Location::Memory);
            let policy = Policy::fixed(limit, 60).name("p");
            let charge = |cost| charge_of(&[(&policy, &Key::new("user", "a"))], cost);
            let mut used = 0_u64;
            for (runs, units, given_back, is_one_statement) in batches {
                let runs = runs.into_iter();
                let charges = runs.flat_map(|(cost, length)| vec![charge(cost); length]);
                let charges: Vec<_> = charges.collect();
                let part = charge(1).parts.first().clone();
                let at = Timestamp::from_unix_millis(NOW);
                let clock = Clock::Manual(clock_at(NOW));
                let batch = Batch {
                    charges: &charges,
                    ahead: &[ahead(&part, units)],
                };
                let applied = if is_one_statement {
                    by_upsert(&mut database, batch, &clock).await
                } else {
                    by_ledger(&mut database, batch, &clock).await
                };
                for (charge, answer) in charges.iter().zip(applied.answers) {
                    let outcome = answer.unwrap();
                    let fits = used + u64::from(charge.cost) <= u64::from(limit);
                    prop_assert_eq!(outcome.is_admitted(), fits);
                    used += if fits { u64::from(charge.cost) } else { 0 };
                    prop_assert_eq!(outcome.found.first().state.used(&policy, at), used);
                }
                let grant = applied.grants[0].unwrap();
                let left = u64::from(limit) - used;
                prop_assert_eq!(u64::from(grant.units), u64::from(units).min(left / 8));
                used += u64::from(grant.units);
                prop_assert_eq!(grant.state.used(&policy, at), used);
                let back = GiveBack {
                    part,
                    units: given_back.min(grant.units),
                    taken_at: at,
                    from: grant.state.taken(&policy, at),
                };
                used -= u64::from(back.units);
                give_back::give_back(&mut database, &[back], at, PAGE)
                    .await
                    .unwrap();
            }
            Ok(())
        })
    });
    result.unwrap();
}

fn ahead(part: &Part, units: u32) -> Ahead {
    Ahead {
        part: part.clone(),
        units,
    }
}

#[tokio::test]
async fn a_sliding_counter_is_granted_an_eighth_of_what_both_windows_leave() {
    let mut database = Database::new(Location::Memory);
    let policy = Policy::sliding_counter(100, 60).name("p");
    let charge = charge_of(&[(&policy, &Key::new("user", "a"))], 40);
    let clock = clock_at(NOW - NOW % 60_000);
    let asked = [ahead(charge.parts.first(), 1_000)];
    let charges = [charge];
    let batch = Batch {
        charges: &charges,
        ahead: &asked,
    };
    assert!(!upsert::can_charge(batch));
    let mut units = Vec::new();
    for _ in 0..2 {
        let applied = by_ledger(&mut database, batch, &Clock::Manual(clock.clone())).await;
        assert!(applied.answers[0].as_ref().unwrap().is_admitted());
        units.push(applied.grants[0].unwrap().units);
        clock.advance(Duration::from_secs(90));
    }
    // 60 are left, then half of 47 counts beside 40: 36.5 are left.
    assert_eq!(units, [7, 4]);
}
