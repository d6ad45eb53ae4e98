//! What a Job may say of pods that fail, of indexes that suffice, and of who runs it.
//!
//! Limits are upstream's.

use super::rules;
use coracle_api::validation::domain_prefixed_path;
use coracle_requests::value::*;
use serde_json::Value;

const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;
const MAX_PARALLELISM_INDEXED: i64 = 100_000;
const MAX_FAILED_INDEXES: i64 = 100_000;
/// An Indexed Job with more completions than the first may not run more pods at once than the second, and may not fail
/// more indexes.
const MANY_COMPLETIONS: i64 = 100_000;
const MAX_PARALLELISM_MANY: i64 = 10_000;
const MAX_INDEXES_BYTES: usize = 64 * 1024;
const MAX_MANAGER_BYTES: usize = 63;

/// Of the spec of a Job: a pattern of pod conditions means those that are true.
pub fn defaults(spec: &mut Value) {
    for rule in each_mut(spec, "podFailurePolicy.rules") {
        each_mut(rule, "onPodConditions").for_each(|pattern| default_str(pattern, "status", "True"));
    }
}

pub fn check(spec: &Value, path: &Path, errors: &mut Errors) {
    if !has(spec, "backoffLimitPerIndex") && has(spec, "maxFailedIndexes") {
        errors.required(&path.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    manager(spec, path, errors);
    let indexed = str_at(spec, "completionMode") == "Indexed";
    if indexed {
        limits(spec, path, errors);
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"].iter().filter(|field| has(spec, field)) {
            let value = at(spec, field).clone();
            errors.invalid(&path.field(field), value, "requires indexed completion mode");
        }
    }
    if has(spec, "podFailurePolicy") {
        failure_policy(spec, &spec["podFailurePolicy"], path, errors);
    }
    if has(spec, "successPolicy") {
        success_policy(spec, &spec["successPolicy"], indexed, path, errors);
    }
    let replacements: &[&str] =
        if has(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    rules::one_of_if_set(spec, "podReplacementPolicy", replacements, path, errors);
}

fn limits(spec: &Value, path: &Path, errors: &mut Errors) {
    let number = |field: &str| i64_at(spec, field);
    let at_most = |field: &str, limit: i64, why: &str, errors: &mut Errors| {
        if let Some(value) = number(field).filter(|value| *value > limit) {
            errors.invalid(&path.field(field), value, &format!("must be less than or equal to {limit}{why}"));
        }
    };
    if !has(spec, "completions") {
        errors.required(&path.field("completions"), "when completion mode is Indexed");
    }
    at_most("parallelism", MAX_PARALLELISM_INDEXED, " when completion mode is Indexed", errors);
    let failed = number("maxFailedIndexes");
    if let (Some(completions), Some(failed)) = (number("completions"), failed)
        && failed > completions
    {
        let detail = "must be less than or equal to completions";
        errors.invalid(&path.field("maxFailedIndexes"), failed, detail);
    }
    at_most("maxFailedIndexes", MAX_FAILED_INDEXES, "", errors);
    let many = number("completions").is_some_and(|completions| completions > MANY_COMPLETIONS);
    if many && has(spec, "backoffLimitPerIndex") {
        if failed.is_none() {
            let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.required(&path.field("maxFailedIndexes"), &why);
        }
        let why =
            format!(" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index");
        at_most("parallelism", MAX_PARALLELISM_MANY, &why, errors);
        at_most("maxFailedIndexes", MAX_PARALLELISM_MANY, &why, errors);
    }
}

fn failure_policy(spec: &Value, policy: &Value, path: &Path, errors: &mut Errors) {
    let here = path.field("podFailurePolicy").field("rules");
    let all = list_at(policy, "rules");
    if all.len() > MAX_RULES {
        errors.too_many(&here, all.len(), MAX_RULES);
    }
    for (i, rule) in all.iter().enumerate() {
        failure_rule(spec, rule, &here.index(i), errors);
    }
}

fn failure_rule(spec: &Value, rule: &Value, path: &Path, errors: &mut Errors) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let (action, here) = (str_at(rule, "action"), path.field("action"));
    match action {
        "" => errors.required(&here, "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
        "FailIndex" if !has(spec, "backoffLimitPerIndex") => {
            errors.invalid(&here, action, "requires the backoffLimitPerIndex to be set");
        }
        _ if !ACTIONS.contains(&action) => errors.not_supported(&here, action, &ACTIONS),
        _ => {}
    }
    let (codes, patterns) = (has(rule, "onExitCodes"), !list_at(rule, "onPodConditions").is_empty());
    if codes {
        exit_codes(spec, &rule["onExitCodes"], &path.field("onExitCodes"), errors);
    }
    pod_conditions(rule, &path.field("onPodConditions"), errors);
    if codes && patterns {
        errors.invalid_unshown(path, "specifying both OnExitCodes and OnPodConditions is not supported");
    } else if !codes && !patterns {
        errors.invalid_unshown(path, "specifying one of OnExitCodes and OnPodConditions is required");
    }
}

fn exit_codes(spec: &Value, rule: &Value, path: &Path, errors: &mut Errors) {
    let (operator, here) = (str_at(rule, "operator"), path.field("operator"));
    if operator.is_empty() {
        errors.required(&here, "valid values: [\"In\" \"NotIn\"]");
    } else {
        rules::one_of(rule, "operator", &["In", "NotIn"], path, errors);
    }
    let container = str_at(rule, "containerName");
    let named = ["template.spec.containers", "template.spec.initContainers"]
        .iter()
        .flat_map(|list| list_at(spec, list))
        .any(|c| str_at(c, "name") == container);
    if has(rule, "containerName") && !named {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.field("containerName"), container, why);
    }
    let (values, here) = (list_at(rule, "values"), path.field("values"));
    if values.is_empty() {
        errors.invalid(&here, at(rule, "values").clone(), "at least one value is required");
    } else if values.len() > MAX_CODES {
        errors.too_many(&here, values.len(), MAX_CODES);
    }
    let codes: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    for (i, code) in codes.iter().enumerate() {
        if operator == "In" && *code == 0 {
            errors.invalid(&here.index(i), 0, "must not be 0 for the In operator");
        }
        if codes[..i].contains(code) {
            errors.duplicate(&here.index(i), *code);
        }
    }
    if !codes.is_sorted() {
        errors.invalid(&here, values.to_vec(), "must be ordered");
    }
}

fn pod_conditions(rule: &Value, path: &Path, errors: &mut Errors) {
    let patterns = list_at(rule, "onPodConditions");
    if patterns.len() > MAX_PATTERNS {
        errors.too_many(path, patterns.len(), MAX_PATTERNS);
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let (path, type_) = (path.index(i), str_at(pattern, "type"));
        for why in coracle_api::validation::qualified_name(type_) {
            errors.invalid(&path.field("type"), type_, &why);
        }
        if has(pattern, "status") {
            rules::one_of(pattern, "status", &["False", "True", "Unknown"], &path, errors);
        } else {
            errors.required(&path.field("status"), "valid values: [\"False\" \"True\" \"Unknown\"]");
        }
    }
}

fn success_policy(spec: &Value, policy: &Value, indexed: bool, path: &Path, errors: &mut Errors) {
    let path = path.field("successPolicy");
    if !indexed {
        return errors.invalid(&path, policy.clone(), "requires indexed completion mode");
    }
    let (all, here) = (list_at(policy, "rules"), path.field("rules"));
    if all.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&here, detail);
    } else if all.len() > MAX_RULES {
        errors.too_many(&here, all.len(), MAX_RULES);
    }
    let completions = i64_at(spec, "completions").unwrap_or(0);
    for (i, rule) in all.iter().enumerate() {
        success_rule(rule, completions, &here.index(i), errors);
    }
}

fn success_rule(rule: &Value, completions: i64, path: &Path, errors: &mut Errors) {
    let (indexes, count) = (rule["succeededIndexes"].as_str(), i64_at(rule, "succeededCount"));
    if indexes.is_none() && count.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        return errors.required(path, detail);
    }
    let mut named = None;
    if let Some(text) = indexes {
        let here = path.field("succeededIndexes");
        if text.len() > MAX_INDEXES_BYTES {
            errors.too_long(&here, MAX_INDEXES_BYTES);
        }
        let parsed = count_indexes(text, completions);
        if let Err(why) = &parsed {
            errors.invalid(&here, text, &format!("error parsing succeededIndexes: {why}"));
        }
        named = Some(parsed.unwrap_or(0));
    }
    let Some(count) = count else { return };
    let here = path.field("succeededCount");
    rules::non_negative(count, &here, errors);
    let bounds = [
        (Some(completions), "the number of specified completions"),
        (named, "the number of indexes in the specified succeededIndexes field"),
    ];
    for (bound, what) in bounds {
        if let Some(bound) = bound.filter(|bound| count > *bound) {
            errors.invalid(&here, count, &format!("must be less than or equal to {bound} ({what})"));
        }
    }
}

/// How many indexes `1,3-5` names: in order, each once, below `completions`.
pub fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// `3` or `3-5`, below `completions`.
pub fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let number = |text: &str| match text.parse::<i32>().map(i64::from) {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(number) if number >= completions => Err(format!("too large index: {text:?}")),
        Ok(number) => Ok(number),
    };
    match part.split('-').collect::<Vec<_>>().as_slice() {
        [one] => number(one).map(|number| (number, number)),
        [first, end] => match (number(first)?, number(end)?) {
            (first, end) if first >= end => {
                Err(format!("non-increasing order, previous: {first}, current: {end}"))
            }
            both => Ok(both),
        },
        _ => Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        )),
    }
}

fn manager(spec: &Value, path: &Path, errors: &mut Errors) {
    let Some(manager) = spec["managedBy"].as_str() else { return };
    let here = path.field("managedBy");
    for why in domain_prefixed_path(manager) {
        errors.invalid(&here, manager, &why);
    }
    if manager.len() > MAX_MANAGER_BYTES {
        errors.too_long(&here, MAX_MANAGER_BYTES);
    }
}
