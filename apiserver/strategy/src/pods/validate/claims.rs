//! Claims of devices (KEP-4381), and resources of the pod as a whole (KEP-2837).

use super::super::super::rules;
use super::super::super::value::*;
use super::resources;
use coracle_api::FieldError;
use coracle_api::pod::{self, Counted};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub fn all(spec: &Value, path: &Path, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (i, claim) in list_at(spec, "resourceClaims").iter().enumerate() {
        let here = path.field("resourceClaims").index(i);
        let name = str_at(claim, "name");
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        } else {
            rules::label(name, &here.field("name"), errors);
        }
        if !name.is_empty() && !names.insert(name) {
            errors.duplicate(&here.field("name"), name);
        }
        source(claim, &here, errors);
    }
    for list in ["initContainers", "containers"] {
        for (i, container) in list_at(spec, list).iter().enumerate() {
            let here = path.field(list).index(i).field("resources").field("claims");
            asked(list_at(container, "resources.claims"), &names, &here, errors);
        }
    }
    whole(spec, path, errors);
}

/// What a container asks for of the pod's claims, which are `names`: each as a whole, or requests in it, and nothing twice.
fn asked(claims: &[Value], names: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let (here, name, request) = (path.index(i), str_at(claim, "name"), str_at(claim, "request"));
        if name.is_empty() {
            errors.required(&here, "");
            continue;
        }
        if !request.is_empty() && !seen.contains(name) {
            rules::label(request, &here.field("request"), errors);
        }
        if let Some(twice) = twice(name, request, &seen) {
            errors.duplicate(&here, twice);
        }
        if !seen.contains(name) {
            seen.insert(key(name, request));
        }
        if !names.contains(name) {
            errors.0.push(unknown(name, names, &here));
        }
    }
}

fn key(name: &str, request: &str) -> String {
    if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") }
}

/// What is asked for again: a claim that was asked for as a whole, the same request, or the whole of which a request was.
fn twice(name: &str, request: &str, seen: &BTreeSet<String>) -> Option<String> {
    let asked = key(name, request);
    let parts = || seen.iter().any(|one| one.split_once('/').is_some_and(|(claim, _)| claim == name));
    if seen.contains(name) || request.is_empty() && parts() {
        return Some(name.to_owned());
    }
    seen.contains(&asked).then_some(asked)
}

fn unknown(name: &str, names: &BTreeSet<&str>, path: &Path) -> FieldError {
    let there = match names.len() {
        0 => " which is empty".to_owned(),
        _ => format!(": {}", names.iter().copied().collect::<Vec<_>>().join(", ")),
    };
    let mut error = FieldError::not_found(path, &name.into());
    error.detail = format!("{}: must be one of the names in pod.spec.resourceClaims{there}", error.detail);
    error
}

fn source(claim: &Value, path: &Path, errors: &mut Errors) {
    let fields = ["resourceClaimName", "resourceClaimTemplateName"];
    let given: Vec<&str> = fields.into_iter().filter(|f| has(claim, f)).collect();
    match given.as_slice() {
        [] => {
            let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            errors.invalid(path, claim.clone(), detail);
        }
        [one] => rules::subdomain(str_at(claim, one), &path.field(one), errors),
        _ => {
            let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
            errors.invalid(path, claim.clone(), detail);
        }
    }
}

/// What the pod says for itself must hold what its containers ask for.
fn whole(spec: &Value, path: &Path, errors: &mut Errors) {
    let own = at(spec, "resources");
    if own.is_null() {
        return;
    }
    let path = path.field("resources");
    if !list_at(own, "claims").is_empty() {
        errors.forbidden(&path.field("claims"), "claims cannot be set for Resources at pod-level");
    }
    let mut bare = spec.clone();
    remove(&mut bare, "resources");
    let containers = json!({ "spec": bare });
    for (name, asked) in pod::requests(&containers, Counted::default()).to_map() {
        let Some(quantity) = at(own, "requests").get(&name) else { continue };
        if rules::parse_quantity(quantity).is_some_and(|own| own < asked) {
            let detail = format!("must be greater than or equal to aggregate container requests of {asked}");
            errors.invalid(&path.field("requests").key(&name), rules::quantity_text(quantity), &detail);
        }
    }
    limits(spec, own, &path, errors);
}

/// A resource that a pod may have as a whole.
pub fn name_for_pods(resource: &str, path: &Path, errors: &mut Errors) {
    let before = errors.0.len();
    resources::known(resource, path, errors);
    let fits = matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-");
    if errors.0.len() == before && !fits {
        errors.not_supported(path, resource, &["cpu", "hugepages-", "memory"]);
    }
}

/// No container may have more than the pod. Upstream's paths lead through what the pod has, which is at `path`.
fn limits(spec: &Value, own: &Value, path: &Path, errors: &mut Errors) {
    for (i, container) in list_at(spec, "containers").iter().enumerate() {
        for (name, quantity) in entries_at(container, "resources.limits") {
            let Some(most) = at(own, "limits").get(name) else { continue };
            if rules::parse_quantity(quantity) > rules::parse_quantity(most) {
                let here = path.field("containers").index(i).key(name).field("limits");
                let detail =
                    format!("must be less than or equal to pod limits of {}", rules::quantity_text(most));
                errors.invalid(&here, rules::quantity_text(quantity), &detail);
            }
        }
    }
}

/// Huge pages need something else to be scheduled by.
pub fn huge_pages(resources: &Value, path: &Path, errors: &mut Errors) {
    let names = || ["limits", "requests"].into_iter().flat_map(|kind| entries_at(resources, kind));
    let huge = names().any(|(name, _)| name.starts_with("hugepages-"));
    if huge && !names().any(|(name, _)| matches!(name.as_str(), "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    for (name, quantity) in names().filter(|(name, _)| name.starts_with("hugepages-")) {
        if name.strip_prefix("hugepages-").is_none_or(|size| size.parse::<coracle_api::Quantity>().is_err()) {
            resources::name(name, &path.key(name), errors);
            errors.invalid(path, quantity.clone(), "must have a valid page size");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_ask_for_claims_of_their_pod_and_for_nothing_twice() {
        let of = |names: &[&str], claims: Value| {
            let mut list = Vec::new();
            let names = names.iter().copied().collect();
            asked(list_at(&claims, "claims"), &names, &Path::root("claims"), &mut Errors(&mut list));
            list.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let one = json!({ "claims": [{ "name": "a" }] });
        assert!(of(&["a"], one.clone()).is_empty());
        let text = "claims[0]: Not found: \"a\": must be one of the names in pod.spec.resourceClaims";
        assert_eq!(of(&[], one.clone()), [format!("{text} which is empty")]);
        assert_eq!(of(&["c", "b"], one), [format!("{text}: b, c")]);
        let requests =
            json!({ "claims": [{ "name": "a", "request": "x" }, { "name": "a", "request": "y" }] });
        assert!(of(&["a"], requests).is_empty());
        let again = json!({ "claims": [{ "name": "a", "request": "x" }, { "name": "a", "request": "x" }, { "name": "a" }, {}] });
        assert_eq!(
            of(&["a"], again),
            [
                "claims[1]: Duplicate value: \"a/x\"",
                "claims[2]: Duplicate value: \"a\"",
                "claims[3]: Required value",
            ]
        );
    }
}
