//! Charges of a batch that go wrong, and the others beside them.

use super::*;

/// Keys that are odd as text, as parts of names, and by their length.
fn odd_keys() -> Vec<Key> {
    let values: [&[u8]; 14] = [
        b"",
        b"\0",
        b"\t\n\r\x1b",
        b" a  b ",
        b"\xff\xfe\xc3",
        b"'; DROP TABLE rate_limit_windows; --",
        b"{tag}",
        b"a}b{c",
        b"%00%s%d$1?1:1@1",
        b"a|b:c/d#e",
        b"*?[a-z]\\",
        "\u{202e}\u{feff}\u{1f980}\u{10ffff}".as_bytes(),
        "\u{e9}e\u{301}".as_bytes(),
        &[b'x'; 10_000],
    ];
    let mut keys: Vec<_> = values
        .iter()
        .map(|value| Key::new("user", *value))
        .collect();
    // A store may have no room for the name of such a key, and says so.
    let long = (0..60).fold(Key::new("user", 1), |key, n| {
        key.and("part", format!("{n}").repeat(30))
    });
    keys.push(long);
    keys
}

pub fn an_odd_key_is_a_key_or_an_error_and_harms_no_other(subject: &Subject) {
    let odd = odd_keys();
    for policy in one_of_each(2) {
        for key in &odd {
            // One batch, when the store is busy with the first of them.
            let keys = [&alice(), key, &Key::new("user", "bob"), key, key];
            let charges = keys.map(|key| charge_of(&[(&policy, key)], 1));
            let replies = charges.map(|charge| subject.store.charge(&charge));
            let answers = subject.answers(replies.into_iter().collect());
            assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
            let own: Vec<_> = [1, 3, 4].map(|place| answers[place].as_ref()).into();
            if own.iter().all(Result::is_ok) {
                let admitted = own.iter().map(|answer| answer.unwrap().is_admitted());
                let admitted: Vec<_> = admitted.collect();
                assert_eq!(admitted, [true, true, false], "{policy} {}", key.as_str());
                assert_eq!(subject.look(&policy, key, 1).used(), 2);
                assert_eq!(subject.reset(&policy, key, false), 2);
            } else {
                assert!(own.iter().all(Result::is_err), "{answers:?}");
            }
        }
        assert!(subject.look(&policy, &alice(), 1).is_denied());
    }
}

/// The same beside another policy: what can't be charged is charged nowhere.
pub fn an_odd_key_of_one_policy_charges_no_other(subject: &Subject) {
    if subject.store.decides_by_key() {
        return;
    }
    let quota = Policy::hourly(1_000).name("quota");
    let mut admitted = 0;
    for policy in one_of_each(2) {
        let policy = policy.name("odd");
        for key in odd_keys() {
            let charge = charge_of(&[(&quota, &alice()), (&policy, &key)], 1);
            let answer = subject.answers(vec![subject.store.charge(&charge)]).pop();
            admitted += u64::from(answer.unwrap().is_ok_and(|answer| answer.is_admitted()));
        }
    }
    assert_eq!(subject.look(&quota, &alice(), 1).used(), admitted);
}
