//! SelfSubjectRulesReview: what may I do in a namespace (`kubectl auth can-i --list`)?

use super::text;
use crate::authz::Authorizer;
use crate::authz::rules::Rule;
use coracle_api::{ApiError, Object, UserInfo};
use serde_json::{Value, json};

pub fn self_subject_rules_review(
    review: Object,
    user: &UserInfo,
    authorizer: &dyn Authorizer,
) -> Result<Object, ApiError> {
    let namespace = text(&review["spec"], "namespace").to_owned();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let mut resolved = authorizer.rules_for(user, &namespace);
    if user.in_group(crate::authz::MASTERS) {
        // They are let through without any rule; the answer must not depend on a binding that can be deleted.
        resolved.rules.insert(0, everything());
        resolved.rules.insert(1, every_path());
    }
    let (paths, resources): (Vec<Rule>, Vec<Rule>) =
        resolved.rules.into_iter().partition(|rule| !rule.paths.is_empty());
    let mut review = review;
    let mut status = json!({
        "resourceRules": unique(&resources), "nonResourceRules": unique(&paths), "incomplete": false,
    });
    if !resolved.errors.is_empty() {
        status["incomplete"] = true.into();
        status["evaluationError"] = resolved.errors.join(", ").into();
    }
    review["status"] = status;
    Ok(review)
}

fn star() -> Vec<String> {
    vec!["*".to_owned()]
}

fn everything() -> Rule {
    Rule { verbs: star(), groups: star(), resources: star(), ..Rule::default() }
}

fn every_path() -> Rule {
    Rule { verbs: star(), paths: star(), ..Rule::default() }
}

fn unique(rules: &[Rule]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(rules.len());
    for rule in rules.iter().map(Rule::to_json) {
        if !out.contains(&rule) {
            out.push(rule);
        }
    }
    out
}
