//! Names, scopes and amounts of resource quotas and limit ranges (upstream's `ValidateResourceQuota` and
//! `ValidateLimitRange`).

use super::super::pods::validate::resources;
use super::super::rules;
use super::super::value::*;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

const OPERATORS: &[&str] = &["DoesNotExist", "Exists", "In", "NotIn"];

pub fn amounts(map: &Value, path: &Path, errors: &mut Errors) {
    for (name, quantity) in map.as_object().into_iter().flatten() {
        let here = path.key(name);
        resources::known(name, &here, errors);
        if !name.contains('/') && !resources::is_of_quotas(name) {
            errors.invalid(&here, name.as_str(), "must be a standard resource for quota");
        }
        resources::non_negative(quantity, &here, errors);
        resources::whole(name, quantity, &here, errors);
    }
}

/// Whether a scope goes together with an amount in `hard`. Names that only some clusters know go with any.
fn fits(scope: &str, name: &str) -> bool {
    const COMPUTE: [&str; 6] =
        ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    if !resources::is_of_quotas(name) {
        return true;
    }
    match scope {
        "BestEffort" => name == "pods",
        "CrossNamespacePodAffinity"
        | "NotBestEffort"
        | "NotTerminating"
        | "PriorityClass"
        | "Terminating" => name == "pods" || COMPUTE.contains(&name),
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

pub fn scopes(spec: &Value, path: &Path, errors: &mut Errors) {
    let hard: BTreeSet<&String> = entries_at(spec, "hard").map(|(name, _)| name).collect();
    let misfits = |scope: &str| hard.iter().filter(|name| !fits(scope, name)).count();
    let mut seen = HashSet::new();
    for scope in strings_at(spec, "scopes") {
        let here = path.field("scopes");
        if !SCOPES.contains(&scope) {
            errors.invalid(&here, at(spec, "scopes").clone(), "unsupported scope");
        }
        for _ in 0..misfits(scope) {
            errors.invalid(&here, at(spec, "scopes").clone(), "unsupported scope applied to resource");
        }
        seen.insert(scope);
    }
    conflicts(&seen, &path.field("scopes"), spec, errors);
    let (selector, terms) =
        (at(spec, "scopeSelector"), path.field("scopeSelector").field("matchExpressions"));
    let mut selected = HashSet::new();
    for term in list_at(selector, "matchExpressions") {
        let scope = str_at(term, "scopeName");
        if !SCOPES.contains(&scope) {
            errors.invalid(&terms.field("scopeName"), scope, "unsupported scope");
        }
        for _ in 0..misfits(scope) {
            let shown = rules::internal::shown(selector, rules::internal::SCOPE_SELECTOR);
            errors.invalid_as(&terms, &shown, "unsupported scope applied to resource");
        }
        selected.insert(scope);
        term_of(term, scope, &terms, errors);
    }
    conflicts(&selected, &terms, spec, errors);
}

/// Upstream quotes `scopes` in either place.
fn conflicts(scopes: &HashSet<&str>, path: &Path, spec: &Value, errors: &mut Errors) {
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if scopes.contains(one) && scopes.contains(other) {
            errors.invalid(path, at(spec, "scopes").clone(), "conflicting scopes");
        }
    }
}

fn term_of(term: &Value, scope: &str, path: &Path, errors: &mut Errors) {
    let (operator, values) = (str_at(term, "operator"), list_at(term, "values"));
    let bare = matches!(
        scope,
        "BestEffort" | "CrossNamespacePodAffinity" | "NotBestEffort" | "NotTerminating" | "Terminating"
    );
    if bare && operator != "Exists" {
        let detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, \
            ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
            ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.invalid(&path.field("operator"), operator, detail);
    }
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.required(&path.field("values"), detail);
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.invalid(&path.field("values"), at(term, "values").clone(), detail);
        }
        other if !OPERATORS.contains(&other) => {
            errors.invalid(&path.field("operator"), other, "not a valid selector operator");
        }
        _ => {}
    }
}

/// A limit range says nothing of pods' defaults, and of claims only sizes. The amounts may be any.
pub fn limit(item: &Value, path: &Path, errors: &mut Errors) {
    let kind = str_at(item, "type");
    for field in AMOUNTS {
        let unused = kind == "Pod" && matches!(field, "default" | "defaultRequest");
        for (name, _) in entries_at(item, field).filter(|_| !unused) {
            limited(kind, name, &path.field(field).key(name), errors);
        }
    }
    if kind == "Pod" {
        for field in ["default", "defaultRequest"] {
            if entries_at(item, field).next().is_some() {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.forbidden(&path.field(field), detail);
            }
        }
    }
    if kind == "PersistentVolumeClaim" {
        let sized = |field: &str| at(item, field).get("storage").is_some();
        if !sized("min") && !sized("max") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&path.field("limits"), detail);
        }
    }
    for name in AMOUNTS
        .iter()
        .flat_map(|field| entries_at(item, field))
        .map(|(name, _)| name)
        .collect::<BTreeSet<_>>()
    {
        bounds(item, name, path, errors);
        ratio(item, name, path, errors);
    }
}

const AMOUNTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// A resource that containers have or, for the limits of other things, that quotas know.
fn limited(kind: &str, name: &str, path: &Path, errors: &mut Errors) {
    if matches!(kind, "Pod" | "Container") {
        return resources::name(name, path, errors);
    }
    resources::known(name, path, errors);
}

/// (where it is said, which value is shown, the lower and the upper bound with their names)
type Bound = (&'static str, &'static str, (&'static str, &'static str), (&'static str, &'static str));

const BOUNDS: [Bound; 6] = [
    ("min", "min", ("min", "min"), ("max", "max")),
    ("defaultRequest", "defaultRequest", ("min", "min"), ("defaultRequest", "default request")),
    ("defaultRequest", "defaultRequest", ("defaultRequest", "default request"), ("max", "max")),
    ("defaultRequest", "defaultRequest", ("defaultRequest", "default request"), ("default", "default limit")),
    ("default", "min", ("min", "min"), ("default", "default")),
    ("default", "max", ("default", "default"), ("max", "max")),
];

/// min <= defaultRequest <= default <= max, of one resource.
fn bounds(item: &Value, name: &str, path: &Path, errors: &mut Errors) {
    let amount = |field: &str| at(item, field).get(name);
    for (place, value, (lower, low_name), (upper, high_name)) in BOUNDS {
        let (Some(low), Some(high), Some(value)) = (amount(lower), amount(upper), amount(value)) else {
            continue;
        };
        if rules::parse_quantity(low) > rules::parse_quantity(high) {
            let (low, high) = (rules::quantity_text(low), rules::quantity_text(high));
            let detail = format!("{low_name} value {low} is greater than {high_name} value {high}");
            errors.invalid(&path.field(place).key(name), rules::quantity_text(value), &detail);
        }
    }
}

/// A ratio below one can never hold, and one above that of the bounds never matters.
fn ratio(item: &Value, name: &str, path: &Path, errors: &mut Errors) {
    let Some(ratio) = at(item, "maxLimitRequestRatio").get(name) else { return };
    let (here, one) = (path.field("maxLimitRequestRatio").key(name), coracle_api::Quantity::from_units(1));
    let Some(wanted) = rules::parse_quantity(ratio) else { return };
    let shown = rules::quantity_text(ratio);
    if wanted < one {
        errors.invalid(&here, shown.as_str(), &format!("ratio {shown} is less than 1"));
    }
    let bound = |field: &str| at(item, field).get(name).and_then(rules::parse_quantity);
    if let (Some(least), Some(most)) = (bound("min"), bound("max"))
        && !least.is_zero()
        && wanted.nanos().saturating_mul(least.nanos()) > most.nanos().saturating_mul(one.nanos())
    {
        let most_ratio = most.nanos().saturating_mul(1000) / least.nanos();
        let (whole, rest) = (most_ratio / 1000, most_ratio % 1000);
        let detail = format!("ratio {shown} is greater than max/min = {whole}.{rest:03}000");
        errors.invalid(&here, shown.as_str(), &detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(check: impl FnOnce(&mut Errors)) -> Vec<String> {
        let mut list = Vec::new();
        check(&mut Errors(&mut list));
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_and_amounts() {
        let of = |map: Value| texts(|errors| amounts(&map, &Path::root("spec").field("hard"), errors));
        let fine = json!({ "pods": "1", "requests.nvidia.com/gpu": 1, "count/jobs.batch": "3", "hugepages-2Mi": "4Mi" });
        assert!(of(fine).is_empty());
        assert_eq!(
            of(json!({ "cups": "1" })),
            [
                "spec.hard[cups]: Invalid value: \"cups\": must be a standard resource type or fully qualified",
                "spec.hard[cups]: Invalid value: \"cups\": must be a standard resource for quota",
            ]
        );
        assert_eq!(
            of(json!({ "pods": "1500m" })),
            ["spec.hard[pods]: Invalid value: \"1500m\": must be an integer"]
        );
        assert_eq!(
            of(json!({ "cpu": "-1" })),
            ["spec.hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"]
        );
    }

    #[test]
    fn scopes_fit_what_they_limit() {
        let of = |spec: Value| texts(|errors| scopes(&spec, &Path::root("spec"), errors));
        assert!(of(json!({ "hard": { "pods": "1" }, "scopes": ["BestEffort", "Terminating"] })).is_empty());
        let wrong = of(json!({ "hard": { "requests.cpu": "1" }, "scopes": ["BestEffort"] }));
        assert!(wrong[0].ends_with("unsupported scope applied to resource"), "{wrong:?}");
        let foreign = json!({ "count/jobs.batch": "1", "requests.nvidia.com/gpu": "1", "x.y/z": "1" });
        assert!(of(json!({ "hard": foreign, "scopes": ["Terminating", "NotBestEffort"] })).is_empty());
        let disk = json!({ "requests.ephemeral-storage": "1", "hugepages-2Mi": "2Mi", "cpu": "1" });
        assert_eq!(of(json!({ "hard": disk, "scopes": ["NotTerminating"] })).len(), 2);
        assert_eq!(
            of(json!({ "hard": { "services": "1" }, "scopeSelector": { "matchExpressions": [
                { "scopeName": "Terminating", "operator": "In" }, { "scopeName": "Whole", "operator": "Exists" }] } })),
            [
                "spec.scopeSelector.matchExpressions: Invalid value: {\"MatchExpressions\":[{\"ScopeName\":\"Terminating\",\"Operator\":\"In\",\"Values\":null},{\"ScopeName\":\"Whole\",\"Operator\":\"Exists\",\"Values\":null}]}: unsupported scope applied to resource",
                "spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                "spec.scopeSelector.matchExpressions.scopeName: Invalid value: \"Whole\": unsupported scope",
            ]
        );
        let both = of(json!({ "hard": { "pods": "1" }, "scopes": ["BestEffort", "NotBestEffort"] }));
        assert!(both[0].ends_with("conflicting scopes"), "{both:?}");
        let term = |operator: &str, values: Value| {
            of(json!({ "hard": { "pods": "1" }, "scopeSelector": { "matchExpressions": [
                { "scopeName": "PriorityClass", "operator": operator, "values": values }] } }))
        };
        assert!(term("In", json!(["high"])).is_empty());
        assert!(term("In", json!([]))[0].contains("must be at least one value"));
        assert!(term("Exists", json!(["x"]))[0].contains("must be no value"));
        assert!(term("Has", json!([]))[0].contains("not a valid selector operator"));
    }

    #[test]
    fn limit_ranges() {
        let of = |item: Value| texts(|errors| limit(&item, &Path::root("l"), errors));
        assert_eq!(
            of(json!({ "type": "Pod", "default": { "cpu": "1" } })),
            ["l.default: Forbidden: may not be specified when `type` is 'Pod'"]
        );
        assert!(of(json!({ "type": "PersistentVolumeClaim" }))[0].contains("either minimum or maximum"));
        let ratio = |ratio: &str| {
            of(json!({ "type": "Container", "min": { "cpu": "1" }, "max": { "cpu": "2" },
                "maxLimitRequestRatio": { "cpu": ratio } }))
        };
        assert!(ratio("2").is_empty());
        assert!(ratio("500m")[0].contains("is less than 1"));
        assert!(ratio("3")[0].contains("ratio 3 is greater than max/min = 2.000000"), "{:?}", ratio("3"));
    }
}
