//! Requests and limits of containers, pods and claims.

use super::super::super::rules;
use super::super::super::value::*;
use coracle_api::validation::is_extended_resource;
use coracle_api::{Quantity, quota};
use serde_json::Value;

/// Names that stand without a domain in a quota.
const QUOTA_NAMES: &[&str] = &[
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

const STANDARD: &[&str] = &["cpu", "memory", "ephemeral-storage"];

/// Says what is wrong with the name of a resource.
pub type NameRule = fn(&str, &Path, &mut Errors);

/// Requests and limits of a container: names, quantities, and requests not above limits.
pub fn requirements(resources: &Value, path: &Path, errors: &mut Errors) {
    requirements_of(resources, name, path, errors);
}

/// As [`requirements`], of something else, whose resources have names that `name` allows.
pub fn requirements_of(resources: &Value, name: NameRule, path: &Path, errors: &mut Errors) {
    for kind in ["limits", "requests"] {
        let here = path.field(kind);
        for (resource, quantity) in entries_at(resources, kind) {
            name(resource, &here.key(resource), errors);
            non_negative(quantity, &here.key(resource), errors);
            whole(resource, quantity, &here.key(resource), errors);
            whole_pages(resource, quantity, errors);
        }
    }
    for (resource, request) in entries_at(resources, "requests") {
        let limit = at(resources, "limits").get(resource);
        match limit {
            Some(limit) => against_limit(resource, request, limit, &path.field("requests"), errors),
            None if is_extended_resource(resource) || resource.starts_with("hugepages-") => {
                errors.required(&path.field("limits"), "Limit must be set for non overcommitable resources");
            }
            None => {}
        }
    }
}

/// Upstream says this without the place, which it then prints as `[]`.
fn whole_pages(resource: &str, quantity: &Value, errors: &mut Errors) {
    let Some(page) = resource.strip_prefix("hugepages-") else { return };
    let page = rules::parse_quantity(&page.into()).filter(|page| page.is_integer()).map(Quantity::milli);
    let amount = rules::parse_quantity(quantity).map(Quantity::milli);
    if !matches!((amount, page), (Some(amount), Some(page)) if page > 0 && amount % page == 0) {
        let text = rules::quantity_text(quantity);
        let detail = format!("{text} is not positive integer multiple of {resource}");
        errors.invalid(&Path::root("[]"), text, &detail);
    }
}

fn against_limit(resource: &str, request: &Value, limit: &Value, path: &Path, errors: &mut Errors) {
    let (Some(asked), Some(most)) = (rules::parse_quantity(request), rules::parse_quantity(limit)) else {
        return;
    };
    let text = rules::quantity_text(limit);
    let exact = is_extended_resource(resource) || resource.starts_with("hugepages-");
    if exact && asked != most {
        let detail = format!("must be equal to {resource} limit of {text}");
        errors.invalid(path, rules::quantity_text(request), &detail);
    } else if asked > most {
        let detail = format!("must be less than or equal to {resource} limit of {text}");
        errors.invalid(path, rules::quantity_text(request), &detail);
    }
}

/// A resource that a container may have: a standard one, or a fully qualified name.
pub fn name(resource: &str, path: &Path, errors: &mut Errors) {
    known(resource, path, errors);
    if !resource.contains('/') && !STANDARD.contains(&resource) && !resource.starts_with("hugepages-") {
        errors.invalid(path, resource, "must be a standard resource for containers");
    }
}

/// A resource of anything: one that quotas, claims or containers know, or a fully qualified name.
pub fn known(resource: &str, path: &Path, errors: &mut Errors) {
    let before = errors.0.len();
    rules::qualified_name(resource, path, errors);
    let plain = errors.0.len() == before && !resource.contains('/');
    if plain && resource != "storage" && !is_of_quotas(resource) {
        errors.invalid(path, resource, "must be a standard resource type or fully qualified");
    }
}

/// Whether quotas know the name without a domain.
pub fn is_of_quotas(resource: &str) -> bool {
    let huge = resource.starts_with("hugepages-") || resource.starts_with("requests.hugepages-");
    huge || QUOTA_NAMES.contains(&resource)
}

pub fn non_negative(quantity: &Value, path: &Path, errors: &mut Errors) {
    if let Some(message) = rules::quantity_mistake(quantity) {
        errors.invalid(path, quantity.clone(), &message);
    } else if rules::parse_quantity(quantity).is_some_and(Quantity::is_negative) {
        errors.invalid(path, rules::quantity_text(quantity), "must be greater than or equal to 0");
    }
}

/// Amounts that count objects or extended resources have no fractions.
pub fn whole(resource: &str, quantity: &Value, path: &Path, errors: &mut Errors) {
    let counts = quota::counts_objects(resource) || is_extended_resource(resource);
    if counts && rules::parse_quantity(quantity).is_some_and(|q| !q.is_integer()) {
        errors.invalid(path, rules::quantity_text(quantity), "must be an integer");
    }
}
