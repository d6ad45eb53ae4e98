//! Claims of devices (KEP-4381), and resources of the pod as a whole (KEP-2837).

use super::super::super::rules;
use super::super::super::value::*;
use super::resources;
use coracle_api::pod::{self, Counted};
use serde_json::{Value, json};
use std::collections::HashSet;

pub fn all(spec: &Value, path: &Path, errors: &mut Errors) {
    let mut names = HashSet::new();
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
            let mut seen = HashSet::new();
            for (j, claim) in list_at(container, "resources.claims").iter().enumerate() {
                let (name, request) = (str_at(claim, "name"), str_at(claim, "request"));
                let at_claim = here.index(j).field("name");
                if name.is_empty() {
                    errors.required(&at_claim, "");
                } else if !names.contains(name) {
                    errors.not_found(&at_claim, name);
                } else if !seen.insert((name, request)) {
                    errors.duplicate(&here.index(j), if request.is_empty() { name } else { request });
                }
            }
        }
    }
    whole(spec, path, errors);
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
        errors.forbidden(&path.field("claims"), "claims may not be set for Resources at pod-level");
    }
    for kind in ["limits", "requests"] {
        for (name, _) in entries_at(own, kind) {
            if !matches!(name.as_str(), "cpu" | "memory") && !name.starts_with("hugepages-") {
                let here = path.field(kind).key(name);
                errors.not_supported(&here, name, &["cpu", "hugepages-", "memory"]);
            }
        }
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
    limits(spec, own, errors);
}

/// No container may have more than the pod.
fn limits(spec: &Value, own: &Value, errors: &mut Errors) {
    for list in ["initContainers", "containers"] {
        for (i, container) in list_at(spec, list).iter().enumerate() {
            for (name, quantity) in entries_at(container, "resources.limits") {
                let Some(most) = at(own, "limits").get(name) else { continue };
                if rules::parse_quantity(quantity) > rules::parse_quantity(most) {
                    let here =
                        Path::root("spec").field(list).index(i).field("resources").field("limits").key(name);
                    let most = rules::quantity_text(most);
                    let detail = format!("must be less than or equal to pod limits of {most}");
                    errors.invalid(&here, rules::quantity_text(quantity), &detail);
                }
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
