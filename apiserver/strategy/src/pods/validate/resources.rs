//! Requests and limits of containers, pods and claims.

use super::super::super::rules;
use super::super::super::value::*;
use coracle_api::Quantity;
use coracle_api::validation::is_extended_resource;
use serde_json::Value;

const STANDARD: &[&str] = &["cpu", "memory", "ephemeral-storage"];

/// Requests and limits: names, quantities, and requests not above limits.
pub fn requirements(resources: &Value, path: &Path, errors: &mut Errors) {
    for kind in ["limits", "requests"] {
        let here = path.field(kind);
        for (resource, quantity) in entries_at(resources, kind) {
            name(resource, &here.key(resource), errors);
            non_negative(quantity, &here.key(resource), errors);
            whole_if_extended(resource, quantity, &here.key(resource), errors);
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
    for (i, claim) in list_at(resources, "claims").iter().enumerate() {
        if str_at(claim, "name").is_empty() {
            errors.required(&path.field("claims").index(i), "");
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
    rules::qualified_name(resource, path, errors);
    if !resource.contains('/') && !STANDARD.contains(&resource) && !resource.starts_with("hugepages-") {
        errors.invalid(path, resource, "must be a standard resource for containers");
    }
}

pub fn non_negative(quantity: &Value, path: &Path, errors: &mut Errors) {
    if let Some(message) = rules::quantity_mistake(quantity) {
        errors.invalid(path, quantity.clone(), &message);
    } else if rules::parse_quantity(quantity).is_some_and(Quantity::is_negative) {
        errors.invalid(path, rules::quantity_text(quantity), "must be greater than or equal to 0");
    }
}

fn whole_if_extended(resource: &str, quantity: &Value, path: &Path, errors: &mut Errors) {
    if is_extended_resource(resource) && rules::parse_quantity(quantity).is_some_and(|q| !q.is_integer()) {
        errors.invalid(path, rules::quantity_text(quantity), "must be an integer");
    }
}
