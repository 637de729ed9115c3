//! One statement, or read, decide, write: a batch of single windows goes either way, and both give the same.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

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
                let merged = Merged::of(charges.iter(), clock.now());
                let applied = upsert::charge(&mut one, &merged).await.unwrap();
                let by_upsert = merged.outcomes(&applied);
                let batch = ledger::charge(&mut other, &charges, &clock, None).await;
                let answers = batch.unwrap().unwrap().answers;
                let by_ledger: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
                prop_assert_eq!(by_upsert, by_ledger);
                prop_assert_eq!(counters(&mut one).await, counters(&mut other).await);
            }
            Ok(())
        })
    });
    result.unwrap();
}
