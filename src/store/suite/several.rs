//! Several policies in one charge: all or nothing.

use super::*;

pub fn a_refused_policy_uses_nothing_of_the_others(subject: &Subject) {
    for other in one_of_each(30) {
        let narrow = Policy::sliding(10, 60).name("narrow");
        let key = Key::new("other", other.as_name());
        let parts = [(&other, &key), (&narrow, &key)];
        let served = (0..31).filter(|_| subject.charge_all(&parts, 1).is_allowed());
        assert_eq!(served.count(), 10, "{other}");
        let refused = subject.charge_all(&parts, 1);
        let violated: Vec<_> = refused.violated().map(Policy::as_name).collect();
        assert_eq!(violated, ["narrow"]);
        assert_eq!(subject.look(&other, &key, 1).used(), 10, "{other}");
        assert_eq!(subject.look(&other, &key, 1).attempts(), 10, "{other}");
        // One that was refused from the start leaves no row.
        let nobody = Key::new("nobody", other.as_name());
        let closed = Policy::sliding(0, 60).name("closed");
        assert!(
            subject
                .charge_all(&[(&other, &nobody), (&closed, &nobody)], 1)
                .is_denied()
        );
        assert_eq!(subject.look(&other, &nobody, 1).used(), 0, "{other}");
    }
}

pub fn several_policies_wait_for_the_slowest(subject: &Subject) {
    let [minute, hour] = [("minute", 60), ("hour", 3_600)]
        .map(|(name, seconds)| Policy::sliding(2, seconds).name(name));
    let parts = [(&minute, &alice()), (&hour, &alice())];
    assert!(subject.charge_all(&parts, 2).is_allowed());
    let refused = subject.charge_all(&parts, 1);
    assert_eq!(refused.policy().as_name(), "hour");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(3_600)));
    assert_eq!(refused.violated().count(), 2);
    subject.at(3_599_999);
    let refused = subject.charge_all(&parts, 1);
    assert_eq!(refused.violated().count(), 1);
    subject.at(3_600_000);
    assert!(subject.charge_all(&parts, 1).is_allowed());
}

pub fn several_policies_may_have_keys_of_their_own(subject: &Subject) {
    let by_address = Policy::fixed(2, 60).name("address");
    let by_account = Policy::sliding(3, 60).name("account");
    let account = Key::new("user", 1);
    let from = |n: u32| {
        let address = Key::new("ip", n);
        subject.charge_all(&[(&by_address, &address), (&by_account, &account)], 1)
    };
    assert!(from(1).is_allowed() && from(1).is_allowed());
    let refused = from(1);
    assert_eq!(refused.key(), &Key::new("ip", 1));
    assert!(from(2).is_allowed());
    let refused = from(3);
    assert_eq!((refused.key(), refused.policy()), (&account, &by_account));
    assert_eq!(subject.look(&by_address, &Key::new("ip", 3), 1).used(), 0);
}

pub fn exactly_the_limit_passes_of_several_policies(subject: &Subject) {
    let policies = one_of_each(20).map(|policy| {
        let name = format!("several-{}", policy.as_name());
        policy.name(&name)
    });
    let narrow = Policy::daily(13).name("narrow");
    let admitted = subject.runtime.block_on(async {
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                let alice = alice();
                let mut parts: Vec<_> = policies.iter().map(|policy| (policy, &alice)).collect();
                parts.rotate_left(n % policies.len());
                parts.push((&narrow, &alice));
                let (store, charge) = (subject.store.clone(), charge_of(&parts, 1));
                tokio::spawn(async move { store.charge(&charge).await })
            })
            .collect();
        let mut admitted = 0;
        for task in tasks {
            admitted += usize::from(task.await.unwrap().unwrap().is_admitted());
        }
        admitted
    });
    assert_eq!(admitted, 13);
    for policy in &policies {
        assert_eq!(subject.look(policy, &alice(), 1).used(), 13, "{policy}");
    }
}
