//! Random charges, against a model that keeps every timestamp.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::model::Model;
use super::*;

/// One charge: the milliseconds since the one before, whose it is, its cost, and the limit of then.
type Step = (i64, u8, u32, u32);

pub(super) fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

fn steps(longest_wait: i64) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![Just(0), 0..longest_wait];
    proptest::collection::vec((wait, 0..2_u8, 1..4_u32, 1..9_u32), 1..40)
}

/// The algorithms, over windows of 100 ms and of 7 s, and a calendar hour.
pub(super) fn policies(case: u32) -> Vec<(Policy, i64)> {
    let mut policies = vec![(Policy::hourly(1), 2_000_000)];
    for millis in [100, 7_000] {
        let window = Duration::from_millis(millis);
        let longest_wait = i64::try_from(millis / 3).unwrap();
        for policy in [
            Policy::try_fixed(1, window),
            Policy::try_sliding(1, window),
            Policy::try_sliding_counter(1, window),
            Policy::try_token_bucket(1, window),
        ] {
            policies.push((policy.unwrap(), longest_wait));
        }
    }
    let mut number = 0;
    policies
        .into_iter()
        .map(|(policy, wait)| {
            number += 1;
            (policy.name(&format!("case-{case}-{number}")), wait)
        })
        .collect()
}

/// The policy with another limit, which is on the same counter.
pub(super) fn with_limit(policy: &Policy, limit: u32) -> Policy {
    let window = policy.period();
    match policy.algorithm() {
        crate::limit::Algorithm::FixedWindow => Policy::try_fixed(limit, window),
        crate::limit::Algorithm::SlidingWindow => Policy::try_sliding(limit, window),
        crate::limit::Algorithm::SlidingCounter => Policy::try_sliding_counter(limit, window),
        // Another rate would make the past another one too: only the burst changes.
        crate::limit::Algorithm::TokenBucket => {
            Policy::try_token_bucket(5, window).and_then(|policy| policy.try_burst(limit))
        }
        _ => Ok(Policy::hourly(limit)),
    }
    .unwrap()
    .name(policy.as_name())
}

/// Admitted alike; let in at the exact wait and not a millisecond before; and what a look says is what a charge finds.
pub fn each_algorithm_decides_like_its_model(subject: &Subject) {
    let case = Cell::new(0);
    let kinds = policies(0).len();
    let input = (0..kinds).prop_flat_map(|kind| (Just(kind), steps(policies(0)[kind].1)));
    let result = runner(60).run(&input, |(kind, steps)| {
        case.set(case.get() + 1);
        let (policy, _) = policies(case.get()).swap_remove(kind);
        let mut model = Model::default();
        let mut now = 0;
        let mut largest = [0; 2];
        for (wait, key, cost, limit) in steps {
            now += wait;
            subject.at(now);
            let policy = with_limit(&policy, limit);
            let owner = Key::new("user", key);
            largest[usize::from(key)] = largest[usize::from(key)].max(limit);
            let expected = model.fits(&policy, key, NOON + now, cost);
            let look = subject.look(&policy, &owner, cost);
            let verdict = subject.charge(&policy, &owner, cost);
            prop_assert_eq!(verdict.is_allowed(), expected, "{} at {}", policy, now);
            prop_assert_eq!(look.is_allowed(), expected);
            prop_assert!(verdict.remaining() <= limit);
            prop_assert_eq!(look.retry_after(), verdict.retry_after());
            if expected {
                model.take(&policy, key, NOON + now, cost);
                continue;
            }
            let Some(wait) = verdict.retry_after() else {
                prop_assert!(cost > limit);
                continue;
            };
            let wait = i64::try_from(wait.as_millis()).unwrap();
            subject.at(now + wait);
            prop_assert!(
                subject.look(&policy, &owner, cost).is_allowed(),
                "{} after {}",
                policy,
                wait
            );
            subject.at(now + wait - 1);
            prop_assert!(
                subject.look(&policy, &owner, cost).is_denied(),
                "{} before {}",
                policy,
                wait
            );
        }
        if policy.algorithm() == crate::limit::Algorithm::SlidingWindow {
            for key in 0..2 {
                let most = model.most_in_a_window(&policy, key);
                prop_assert!(most <= u64::from(largest[usize::from(key)]));
            }
        }
        Ok(())
    });
    result.unwrap();
}

/// All or nothing: admitted when every model has room, and then charged to all of them.
pub fn several_policies_decide_like_their_models(subject: &Subject) {
    let case = Cell::new(1_000);
    let charges = proptest::collection::vec((0_i64..900, 1..512_usize, 0..2_u8, 1..4_u32), 1..40);
    let result = runner(30).run(&charges, |charges| {
        case.set(case.get() + 1);
        let policies: Vec<_> = policies(case.get())
            .into_iter()
            .map(|(policy, _)| with_limit(&policy, 6))
            .collect();
        let mut model = Model::default();
        let mut now = 0;
        for (wait, chosen, key, cost) in charges {
            now += wait;
            subject.at(now);
            let owner = Key::new("user", key);
            let chosen = policies
                .iter()
                .enumerate()
                .filter(|(place, _)| chosen >> place & 1 == 1);
            let chosen: Vec<_> = chosen.map(|(_, policy)| policy).collect();
            let parts: Vec<_> = chosen.iter().map(|policy| (*policy, &owner)).collect();
            let fits = |policy: &&&Policy| model.fits(policy, key, NOON + now, cost);
            let violated: Vec<_> = chosen.iter().filter(|policy| !fits(policy)).collect();
            let decision = subject.charge_all(&parts, cost);
            let told: Vec<_> = decision.violated().collect();
            prop_assert_eq!(told.len(), violated.len());
            prop_assert!(
                told.iter()
                    .zip(&violated)
                    .all(|(told, violated)| *told == **violated)
            );
            if violated.is_empty() {
                for policy in chosen {
                    model.take(policy, key, NOON + now, cost);
                }
            } else if let Some(wait) = decision.retry_after() {
                let wait = i64::try_from(wait.as_millis()).unwrap();
                subject.at(now + wait);
                prop_assert!(subject.look_all(&parts, cost).is_allowed());
                subject.at(now + wait - 1);
                prop_assert!(subject.look_all(&parts, cost).is_denied());
            }
        }
        Ok(())
    });
    result.unwrap();
}

/// The store answers a batch as a model answers one charge after another.
pub fn a_batch_is_answered_like_a_sequence(subject: &Subject) {
    let case = Cell::new(2_000);
    let batches = proptest::collection::vec(
        (
            0_i64..3_000,
            proptest::collection::vec((0..9_usize, 0..3_u8, 1..4_u32, 0..9_u32), 1..60),
        ),
        1..4,
    );
    let result = runner(30).run(&batches, |batches| {
        case.set(case.get() + 1);
        let policies = policies(case.get());
        let mut model = Model::default();
        let mut now = 0;
        for (wait, charges) in batches {
            now += wait;
            subject.at(now);
            let mut expected = Vec::new();
            let mut replies = Vec::new();
            for (kind, key, cost, limit) in charges {
                let policy = with_limit(&policies[kind].0, limit);
                let fits = model.fits(&policy, key, NOON + now, cost);
                if fits {
                    model.take(&policy, key, NOON + now, cost);
                }
                expected.push(fits);
                let owner = Key::new("user", key);
                let charge = charge_of(&[(&policy, &owner)], cost);
                replies.push(subject.store.charge(&charge));
            }
            let answers = subject.answers(replies).into_iter();
            let answers = answers.map(|answer| answer.unwrap().is_admitted());
            prop_assert_eq!(answers.collect::<Vec<_>>(), expected);
        }
        Ok(())
    });
    result.unwrap();
}
