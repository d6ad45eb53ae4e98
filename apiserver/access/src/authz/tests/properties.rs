//! What holds for all rules.

use super::*;
use proptest::prelude::*;

fn words(all: &'static [&'static str], least: usize) -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(all, least..=all.len())
        .prop_map(|v| v.into_iter().map(str::to_owned).collect())
}

prop_compose! {
    fn rule()(
        verbs in words(&["get", "list", "*"], 1),
        groups in words(&["", "apps", "*"], 1),
        resources in words(&["pods", "pods/log", "*/scale", "deployments", "*"], 1),
        resource_names in words(&["a", "b"], 0),
    ) -> rules::Rule {
        rules::Rule { verbs, groups, resources, resource_names, paths: Vec::new() }
    }
}

proptest! {
    #[test]
    fn a_rule_holds_all_of_itself(rules in proptest::collection::vec(rule(), 1..4)) {
        prop_assert!(rules::missing(&rules, &rules).is_empty());
    }

    /// Whoever passes the escalation check could do everything that the new rules allow.
    #[test]
    fn what_is_covered_is_allowed(
        owned in proptest::collection::vec(rule(), 0..4),
        wanted in rule(),
        verb in proptest::sample::select(vec!["get", "list", "delete"]),
        group in proptest::sample::select(vec!["", "apps", "other"]),
        resource in proptest::sample::select(vec!["pods", "deployments", "x"]),
        subresource in proptest::sample::select(vec!["", "log", "scale"]),
        name in proptest::sample::select(vec!["", "a", "b", "c"]),
    ) {
        let jane = user("jane");
        let asked = Attributes { subresource, name, ..Attributes::resource(&jane, verb, group, resource, "") };
        let lacking = rules::missing(&owned, std::slice::from_ref(&wanted));
        if lacking.is_empty() && wanted.allows(&asked) {
            prop_assert!(owned.iter().any(|o| o.allows(&asked)), "{owned:?} {wanted:?} {asked:?}");
        }
    }
}
