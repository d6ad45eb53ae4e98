//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use super::super::rules as common;
use super::*;
use crate::Facts;
use std::collections::BTreeSet;

pub struct Webhooks {
    pub mutating: bool,
}

const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const NO_SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];
/// Seconds that a hook has where it says none, and the least and most that it may say.
const TIMEOUT: i64 = 10;
const TIMEOUTS: std::ops::RangeInclusive<i64> = 1..=30;

/// Mistakes that stay allowed in objects that have them already.
struct Known {
    side_effects: bool,
    versions: bool,
    names: bool,
    conditions: bool,
}

fn hooks(object: &Object) -> &[Value] {
    list_at(object, "webhooks")
}

fn knows_a_version(hook: &Value) -> bool {
    strings_at(hook, "admissionReviewVersions").any(|v| REVIEW_VERSIONS.contains(&v))
}

impl Known {
    fn none() -> Self {
        Self { side_effects: false, versions: false, names: false, conditions: false }
    }

    fn of(old: &Object, new: &Object) -> Self {
        let harmless = |hook: &Value| NO_SIDE_EFFECTS.contains(&str_at(hook, "sideEffects"));
        let names: BTreeSet<&str> = hooks(old).iter().map(|h| str_at(h, "name")).collect();
        let conditions = |object: &Object| {
            hooks(object).iter().map(|h| h.get("matchConditions").cloned()).collect::<Vec<_>>()
        };
        Self {
            side_effects: !hooks(old).iter().all(harmless),
            versions: hooks(old)
                .iter()
                .any(|h| !list_at(h, "admissionReviewVersions").is_empty() && !knows_a_version(h)),
            names: names.len() != hooks(old).len(),
            conditions: conditions(old) == conditions(new),
        }
    }
}

impl ResourceFacts for Webhooks {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: false }
    }
}

impl CreateStrategy for Webhooks {
    fn defaults(&self, object: &mut Object) {
        for hook in each_mut(object, "webhooks") {
            default(hook, "failurePolicy", "Fail");
            rules::default_match(hook, &["rules"]);
            default(hook, "timeoutSeconds", TIMEOUT);
            if self.mutating {
                default_str(hook, "reinvocationPolicy", "Never");
            }
            if let Some(service) = at_mut(hook, "clientConfig.service") {
                default(service, "port", 443);
            }
        }
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        self.check(object, &Known::none(), &mut Errors(errors));
    }
}

impl UpdateStrategy for Webhooks {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        self.check(new, &Known::of(old, new), &mut Errors(errors));
    }

    fn changes_generation(&self, new: &Object, old: &Object) -> bool {
        new.get("webhooks") != old.get("webhooks")
    }
}

impl TableConvertor for Webhooks {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::integer("Webhooks", "Number of webhooks"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        vec![name(object).into(), hooks(object).len().into(), table::age(object, now)]
    }
}

crate::usual!(Webhooks: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

impl Webhooks {
    fn check(&self, object: &Object, known: &Known, errors: &mut Errors) {
        let mut names = BTreeSet::new();
        for (i, hook) in hooks(object).iter().enumerate() {
            let path = Path::root("webhooks").index(i);
            self.hook(hook, known, &path, errors);
            review_versions(hook, known, &path.field("admissionReviewVersions"), errors);
            let name = str_at(hook, "name");
            if !known.names && !name.is_empty() && !names.insert(name) {
                errors.duplicate(&path.field("name"), name);
            }
        }
    }

    fn hook(&self, hook: &Value, known: &Known, path: &Path, errors: &mut Errors) {
        rules::fully_qualified_name(str_at(hook, "name"), &path.field("name"), errors);
        for (i, rule) in list_at(hook, "rules").iter().enumerate() {
            rules::rule_with_operations(rule, &path.field("rules").index(i), errors);
        }
        common::one_of_if_there(hook, "failurePolicy", rules::FAILURE_POLICIES, path, errors);
        common::one_of_if_set(hook, "matchPolicy", rules::MATCH_POLICIES, path, errors);
        let allowed = if known.side_effects { SIDE_EFFECTS } else { NO_SIDE_EFFECTS };
        let here = path.field("sideEffects");
        match str_at(hook, "sideEffects") {
            "" if !has(hook, "sideEffects") => {
                errors.required(&here, &format!("must specify one of {}", allowed.join(", ")));
            }
            effects if !allowed.contains(&effects) => errors.not_supported(&here, effects, allowed),
            _ => {}
        }
        if let Some(seconds) = i64_at(hook, "timeoutSeconds").filter(|s| !TIMEOUTS.contains(s)) {
            let here = path.field("timeoutSeconds");
            errors.invalid(&here, seconds, "the timeout value must be between 1 and 30 seconds");
        }
        rules::selectors(hook, path, errors);
        if self.mutating {
            common::one_of_if_set(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
        }
        client_config(at(hook, "clientConfig"), false, &path.field("clientConfig"), errors);
        if !known.conditions {
            rules::match_conditions(list_at(hook, "matchConditions"), &path.field("matchConditions"), errors);
        }
    }
}

fn review_versions(hook: &Value, known: &Known, path: &Path, errors: &mut Errors) {
    let versions = list_at(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.required(path, &format!("must specify one of {}", REVIEW_VERSIONS.join(", ")));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, version) in strings_at(hook, "admissionReviewVersions").enumerate() {
        if !seen.insert(version) {
            errors.invalid(&path.index(i), version, "duplicate version");
            continue;
        }
        for message in validation::dns1035_label(version) {
            errors.invalid(&path.index(i), version, &message);
        }
    }
    if !known.versions && !knows_a_version(hook) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.invalid(path, versions, &detail);
    }
}

/// Where a webhook is called. Upstream has more words for what the service of a custom resource's conversion lacks than
/// for that of admission; `words` asks for them.
pub fn client_config(config: &Value, words: bool, path: &Path, errors: &mut Errors) {
    match (has(config, "url"), has(config, "service")) {
        (true, false) => super::url::check(str_at(config, "url"), &path.field("url"), errors),
        (false, true) => service(at(config, "service"), words, &path.field("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn service(service: &Value, words: bool, path: &Path, errors: &mut Errors) {
    for field in ["name", "namespace"] {
        if str_at(service, field).is_empty() {
            let detail = if words { format!("service {field} is required") } else { String::new() };
            errors.required(&path.field(field), &detail);
        }
    }
    for message in i64_at(service, "port").map(validation::port_number).unwrap_or_default() {
        errors.invalid(
            &path.field("port"),
            at(service, "port").clone(),
            &format!("port is not valid: {message}"),
        );
    }
    service_path(str_at(service, "path"), &path.field("path"), errors);
}

fn service_path(text: &str, path: &Path, errors: &mut Errors) {
    if matches!(text, "" | "/") {
        return;
    }
    if !text.starts_with('/') {
        errors.invalid(path, text, "must start with a '/'");
    }
    // Upstream takes the first byte for the slash, whatever it is.
    let rest = text.get(1..).unwrap_or_default();
    let rest = if text == "//" { rest } else { rest.strip_suffix('/').unwrap_or(rest) };
    for (i, step) in if text == "//" { vec![""] } else { rest.split('/').collect() }.iter().enumerate() {
        if step.is_empty() {
            errors.invalid(path, text, &format!("segment[{i}] may not be empty"));
            continue;
        }
        for message in validation::dns1123_subdomain(step) {
            errors.invalid(path, text, &format!("segment[{i}]: {message}"));
        }
    }
}
