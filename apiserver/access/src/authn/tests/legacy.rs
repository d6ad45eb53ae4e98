//! Which uses of Secrets' tokens are told.

use super::*;
use crate::authn::legacy::{LAST_USED, LegacyUse};

#[test]
fn a_use_is_told_until_the_label_is_of_today() {
    let setup = Setup::new();
    let mut uses = setup.tokens.follow_legacy_uses().expect("nobody else follows");
    assert!(setup.tokens.follow_legacy_uses().is_none(), "one follower");
    let token = setup.tokens.issue_legacy("a", &reference("bot", "u1"), "box").unwrap();
    let secret = |label: Option<&str>| {
        json!({
            "metadata": { "namespace": "a", "name": "box", "uid": "s1", "labels": { LAST_USED: label } },
            "data": { "token": STANDARD.encode(&token) },
        })
    };
    let today = setup.time().strftime("%Y-%m-%d").to_string();
    let expected = LegacyUse {
        namespace: "a".to_owned(),
        secret: "box".to_owned(),
        uid: "s1".to_owned(),
        day: today.clone(),
    };
    for (label, told) in [(None, true), (Some("2026-01-01"), true), (Some(today.as_str()), false)] {
        setup.world.put("secrets.", secret(label));
        setup.verify(&token).unwrap();
        assert_eq!(uses.try_recv().ok(), told.then(|| expected.clone()), "{label:?}");
    }
    setup.now.fetch_sub(24 * 3600, Ordering::SeqCst);
    setup.verify(&token).unwrap();
    assert!(uses.try_recv().is_err(), "another server's clock is ahead");
    setup.verify(&setup.issue(3600, &[], Bound::default())).unwrap();
    assert!(uses.try_recv().is_err(), "bound tokens are another matter");
}
