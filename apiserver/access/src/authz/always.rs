//! The authorizers that need not think: `AlwaysAllow` and `AlwaysDeny`.

use super::rules::{Resolved, Rule};
use super::{Attributes, Authorizer, Decision};
use coracle_api::UserInfo;

pub(super) struct AlwaysAllow;

impl Authorizer for AlwaysAllow {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::Allow(String::new())
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> Resolved {
        let star = || vec!["*".to_owned()];
        let resources = Rule { verbs: star(), groups: star(), resources: star(), ..Rule::default() };
        let paths = Rule { verbs: star(), paths: star(), ..Rule::default() };
        Resolved { rules: vec![resources, paths], errors: Vec::new() }
    }
}

/// Upstream's name; it has no opinion, so that whoever stands behind it is still asked.
pub(super) struct AlwaysDeny;

impl Authorizer for AlwaysDeny {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        Decision::NoOpinion("Everything is forbidden.".to_owned())
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> Resolved {
        Resolved::default()
    }
}
