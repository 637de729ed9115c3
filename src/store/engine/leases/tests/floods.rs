//! More keys than are remembered.

use std::sync::Arc;

use super::*;
use crate::limit::few::Few;

/// Has a key ask until it has a lease of so many units.
fn lease(leases: &Leases, charge: &Charge, units: u32) {
    assert!(ahead_of(leases, charge, 0).is_none(), "not seen before");
    let ahead = ahead_of(leases, charge, 0).unwrap();
    let grant = grant(&ahead, units, u64::from(units), 0);
    assert!(leases.install(&ahead, Some(&grant)).is_none());
}

fn charge_of_key(n: usize) -> Charge {
    charge_of(
        &[(&Policy::fixed(1_000, 60).name("p"), &Key::new("user", n))],
        1,
    )
}

#[test]
fn a_flood_of_keys_stays_inside_the_bound_and_what_is_left_of_others_goes_back() {
    let leases = Leases::default();
    leases.set_max_keys(320);
    let mut back = Vec::new();
    for n in 0..1_000 {
        lease(&leases, &charge_of_key(n), 3);
        assert!(leases.table.len() <= 320);
        back.append(&mut leases.take_evicted());
    }
    assert_eq!(back.len() + leases.table.len(), 1_000);
    back.append(&mut leases.take_all());
    let units: u32 = back.iter().map(|back| back.units).sum();
    assert_eq!(units, 3_000);
}

#[test]
fn a_million_keys_stay_inside_the_bound() {
    let leases = Leases::default();
    let rule = Arc::clone(&charge_of_key(0).parts.first().rule);
    for n in 0..1_000_000_u64 {
        let part = Part {
            rule: Arc::clone(&rule),
            key: Key::new("user", n),
        };
        let _ = ahead_of(&leases, &Charge::new(Few::one(part), 1), 0);
    }
    assert!(leases.count() <= 1 << 16);
    assert!(leases.count() > 60_000, "{}", leases.count());
}

#[test]
fn a_key_that_is_charged_again_and_again_outlasts_a_flood() {
    let leases = Leases::default();
    leases.set_max_keys(160);
    let often = charge_of_key(0);
    lease(&leases, &often, 10_000);
    for n in 1..4_000 {
        assert!(spend(&leases, &often, 1).is_some());
        let _ = ahead_of(&leases, &charge_of_key(n), 1);
    }
}

#[test]
fn what_is_granted_to_a_key_that_had_to_go_goes_back() {
    let leases = Leases::default();
    leases.set_max_keys(1);
    let asking = charge_of_key(0);
    assert!(ahead_of(&leases, &asking, 0).is_none());
    let ahead = ahead_of(&leases, &asking, 0).unwrap();
    for n in 1..2_000 {
        let _ = ahead_of(&leases, &charge_of_key(n), 0);
    }
    let back = leases.install(&ahead, Some(&grant(&ahead, 8, 8, 0)));
    let back = back.unwrap();
    assert_eq!((back.units, &back.part.key), (8, &Key::new("user", 0)));
    assert!(!leases.restore(&back), "it is not there");
}

/// What `SqliteStore::max_keys_in_memory` tells of it.
#[test]
fn a_key_takes_no_more_memory_than_is_told() {
    const KEYS: usize = 1 << 16;
    let leases = Leases::default();
    let charges: Vec<_> = (0..KEYS).map(charge_of_key).collect();
    let taken = allocation_counter::measure(|| {
        for charge in &charges {
            let _ = ahead_of(&leases, charge, 0);
        }
    });
    assert!(taken.bytes_current <= i64::try_from(240 * KEYS).unwrap());
}
