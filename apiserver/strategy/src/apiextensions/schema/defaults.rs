//! Defaults must be what their own schema asks for, and have nothing in them that would be pruned.

use super::*;
use coracle_api::structural::{Structural, duplicates, prune, validate};
use coracle_cel::{Budget, rules};

pub fn check(schema: &Structural, path: &Path, errors: &mut Errors) {
    visit(schema, path, true, false, errors);
}

/// Not below `additionalProperties`, where upstream does not look either.
fn visit(schema: &Structural, path: &Path, object: bool, inside: bool, errors: &mut Errors) {
    let inside = inside && !schema.embedded_resource;
    if let Some(default) = &schema.default {
        one(default, schema, path, inside, errors);
    }
    if let Some(items) = &schema.items {
        visit(items, &path.field("items"), false, inside, errors);
    }
    for (name, property) in &schema.properties {
        let of_object = (object || schema.embedded_resource)
            && ["metadata", "apiVersion", "kind"].contains(&name.as_str());
        visit(property, &path.field("properties").key(name), false, inside || of_object, errors);
    }
}

fn one(default: &Value, schema: &Structural, path: &Path, inside_metadata: bool, errors: &mut Errors) {
    let here = path.field("default");
    if !inside_metadata {
        let mut pruned = default.clone();
        if !prune(&mut pruned, schema, schema.embedded_resource).is_empty() {
            errors.invalid(&here, default.clone(), "must not have unknown fields");
        }
    }
    let place: String = (&here).into();
    // Upstream names what is wrong from the default on: ` in body must be ...`.
    let mut wrong = validate(default, None, schema, "");
    for error in &mut wrong {
        let below = error.field.trim_start_matches('.');
        error.field = if below.is_empty() { place.clone() } else { format!("{place}.{below}") };
    }
    duplicates(default, schema, &place, &mut wrong);
    if wrong.is_empty() {
        // Rules that do not compile are told of where they stand.
        let compiled = rules::compile(schema, "").unwrap_or_default();
        let mut budget = Budget::of(rules::OBJECT_LIMIT);
        wrong = compiled.check(default, None, &place, &mut budget).errors;
    }
    errors.0.extend(wrong);
}
