//! What upstream's documents do not say where the facts were taken from: possible values and defaults, by their number, and
//! that each fits its place.

use super::tests::{references, respond};
use coracle_api::catalogue::catalogue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn get(path: &str) -> Value {
    let document =
        respond(path, "application/json", catalogue()).unwrap_or_else(|| panic!("nothing at {path}"));
    serde_json::from_slice(&document.unwrap().body).unwrap()
}

/// By name, all documents of version 3.
fn documents() -> BTreeMap<String, Value> {
    let index = get("/openapi/v3");
    let names = index["paths"].as_object().unwrap().keys();
    names.map(|name| (name.clone(), get(&format!("/openapi/v3/{name}")))).collect()
}

/// A schema and those in it, each with whether it is that of what a list or map holds.
fn walk<'a>(schema: &'a Value, held: bool, visit: &mut dyn FnMut(&'a Value, bool)) {
    visit(schema, held);
    schema["properties"].as_object().into_iter().flatten().for_each(|(_, inner)| walk(inner, false, visit));
    for inner in [&schema["items"], &schema["additionalProperties"]].into_iter().filter(|s| s.is_object()) {
        walk(inner, true, visit);
    }
}

fn walk_all<'a>(schemas: &'a Value, visit: &mut dyn FnMut(&'a Value, bool)) {
    schemas.as_object().unwrap().values().for_each(|schema| walk(schema, false, visit));
}

/// How many fields have a keyword, and how many of what lists and maps hold.
fn count<'a>(all: impl IntoIterator<Item = &'a Value>, keyword: &str) -> [usize; 2] {
    let mut found = [0, 0];
    for schemas in all {
        walk_all(schemas, &mut |schema, held| {
            found[usize::from(held)] += usize::from(schema.get(keyword).is_some());
        });
    }
    found
}

#[test]
fn so_many_parameters_values_and_defaults() {
    let old = get("/openapi/v2");
    assert_eq!(old["parameters"].as_object().unwrap().len(), 47);
    assert_eq!(count([&old["definitions"]], "enum"), [88, 10]);
    assert_eq!(count([&old["definitions"]], "default"), [0, 0]);
    let documents = documents();
    let schemas = || documents.values().map(|document| &document["components"]["schemas"]);
    assert_eq!(count(schemas(), "enum"), [153, 15]);
    assert_eq!(count(schemas(), "default"), [1336, 846]);
}

/// Of the type, and one of the values where there are some, or empty, which is to say that none was chosen.
fn assert_fits(schema: &Value, document: &str) {
    let default = &schema["default"];
    let fits = match schema["type"].as_str() {
        None => schema["allOf"].is_array() && *default == json!({}),
        Some("string") => default.is_string(),
        Some("boolean") => default.is_boolean(),
        Some("integer" | "number") => default.is_number(),
        Some(_) => false,
    };
    assert!(fits, "{document}: {schema}");
    if let Some(values) = schema["enum"].as_array() {
        assert!(*default == "" || values.contains(default), "{document}: {schema}");
    }
}

#[test]
fn every_default_fits_and_every_wrapped_reference_has_company() {
    for (name, document) in documents() {
        walk_all(&document["components"]["schemas"], &mut |schema, _| {
            if schema.get("default").is_some() {
                assert_fits(schema, &name);
            }
            let wrapped = schema["allOf"].is_array();
            assert!(!wrapped || schema.as_object().unwrap().len() > 1, "{name}: {schema}");
        });
    }
}

#[test]
fn possible_values_are_told_in_the_description() {
    walk_all(&get("/openapi/v2")["definitions"], &mut |schema, held| {
        let values = schema["enum"].as_array().filter(|_| !held).into_iter().flatten();
        let text = schema["description"].as_str().unwrap_or_default();
        values.for_each(|value| assert!(text.contains(&format!("\n - `{value}`")), "{schema}"));
    });
}

/// Nothing stands in a document that its requests do not lead to, and what all groups have is said of its group alone.
#[test]
fn documents_keep_to_their_own() {
    for (name, document) in documents() {
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let group = name.split('/').nth(1).filter(|_| name.starts_with("apis/")).unwrap_or_default();
        for (schema, definition) in document["components"]["schemas"].as_object().unwrap() {
            assert!(found.contains(&format!("#/components/schemas/{schema}")), "{name}: {schema}");
            let identities = definition["x-kubernetes-group-version-kind"].as_array();
            if let Some(several) = identities.filter(|list| list.len() > 1) {
                assert!(several.iter().all(|identity| identity["group"] == group), "{name}: {schema}");
            }
        }
    }
}
