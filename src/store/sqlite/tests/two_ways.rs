//! One statement, or read, decide, write: a batch of single windows goes either way, and both give the same.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::limit::algorithm::Taken;
use crate::store::engine::Ahead;

/// What both ways leave in the table, without what belongs to the last statement.
async fn counters(database: &mut Database) -> Vec<String> {
    let query = "SELECT policy || ' ' || key || ' ' || window_start || ' ' || used || ' ' || denied || ' ' || epoch
        || ' ' || expires_at || ' ' || last_limit || ' ' || last_cost
        FROM rate_limit_windows ORDER BY policy, key, window_start";
    let rows = database.fetch_all(sqlx::query(query)).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
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
                assert!(upsert::can_charge(&charges));
                let merged = Merged::of(charges.iter(), &[], clock.now());
                let applied = upsert::charge(&mut one, &merged).await.unwrap();
                let by_upsert = merged.charged(&applied).answers;
                let batch = ledger::charge(&mut other, &charges, &clock, None).await;
                let answers = batch.unwrap().unwrap().answers;
                let both = by_upsert.into_iter().zip(answers);
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
    let batches = proptest::collection::vec((runs, 1..1_u32 << 20, 0..50_u32), 1..8);
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
            for (runs, units, given_back) in batches {
                let runs = runs.into_iter();
                let charges = runs.flat_map(|(cost, length)| vec![charge(cost); length]);
                let charges: Vec<_> = charges.collect();
                let part = charge(1).parts.first().clone();
                let ahead = [Ahead {
                    part: part.clone(),
                    units,
                }];
                let at = Timestamp::from_unix_millis(NOW);
                let merged = Merged::of(charges.iter(), &ahead, at);
                let applied = upsert::charge(&mut database, &merged).await.unwrap();
                let batch = merged.charged(&applied);
                for (charge, answer) in charges.iter().zip(batch.answers) {
                    let outcome = answer.unwrap();
                    let fits = used + u64::from(charge.cost) <= u64::from(limit);
                    prop_assert_eq!(outcome.is_admitted(), fits);
                    used += if fits { u64::from(charge.cost) } else { 0 };
                    prop_assert_eq!(outcome.found.first().state.used(&policy, at), used);
                }
                let grant = batch.grants[0];
                let left = u64::from(limit) - used;
                prop_assert_eq!(u64::from(grant.units), u64::from(units).min(left / 8));
                used += u64::from(grant.units);
                prop_assert_eq!(grant.usage.used, used);
                let back = GiveBack {
                    part,
                    units: given_back.min(grant.units),
                    taken_at: at,
                    from: Taken::Window {
                        start: grant.span.start,
                        epoch: grant.usage.epoch,
                    },
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
