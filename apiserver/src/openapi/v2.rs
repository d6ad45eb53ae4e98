//! OpenAPI v2: everything in one document, written piece by piece so that it never stands in memory as a tree.

use super::custom;
use super::operations::{Operation, Path, Payload, is_built_in, paths};
use super::pages::pages;
use super::parameters::query_type;
use super::prose::Prose;
use super::schema::{Dialect, closure, definition, identities, named_values};
use super::v3::{META, common_query, path_parameters, roots, type_name};
use crate::aggregation::merge_v2;
use crate::discovery::Offer;
use coracle_api::Resource;
use coracle_api::catalogue::groups;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

pub fn document(offer: &Offer) -> Vec<u8> {
    let mut out = Members::open("{\"swagger\":\"2.0\"");
    out.add("info", &json!({ "title": "Kubernetes", "version": crate::discovery::GIT_VERSION }));
    out.nest("definitions");
    let mut others = Others::new(offer);
    definitions(offer, &mut |name, schema| {
        others.keep(name, schema);
        out.add(name, schema);
    });
    let theirs = others.merged();
    theirs.definitions.iter().for_each(|(name, schema)| out.add(name, schema));
    out.close();
    out.nest("paths");
    all_paths(&offer.resources, &mut |path| out.add(&path.template, &path_item(path)));
    theirs.paths.iter().for_each(|(template, item)| out.add(template, item));
    out.close();
    out.add(
        "securityDefinitions",
        &json!({ "BearerToken": { "description": "Bearer Token authentication", "type": "apiKey",
            "name": "authorization", "in": "header" } }),
    );
    out.add("security", &json!([{ "BearerToken": [] }]));
    out.finish()
}

/// What other servers add: merged with those of our definitions alone that they have under the same name.
struct Others {
    documents: Vec<Arc<Value>>,
    ours: Map<String, Value>,
}

struct Merged {
    definitions: Map<String, Value>,
    paths: Map<String, Value>,
}

impl Others {
    fn new(offer: &Offer) -> Self {
        Self { documents: offer.foreign.openapi_v2(), ours: Map::new() }
    }

    fn keep(&mut self, name: &str, schema: &Value) {
        if self.documents.iter().any(|document| document["definitions"].get(name).is_some()) {
            self.ours.insert(name.to_owned(), schema.clone());
        }
    }

    /// Their paths lie below their own groups and versions, of which we have none.
    fn merged(self) -> Merged {
        let known: BTreeSet<String> = self.ours.keys().cloned().collect();
        let mut whole = json!({ "definitions": self.ours, "paths": {} });
        self.documents.iter().for_each(|document| merge_v2(&mut whole, document));
        let mut take = |part: &str| match whole[part].take() {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let (mut definitions, paths) = (take("definitions"), take("paths"));
        definitions.retain(|name, _| !known.contains(name));
        Merged { definitions, paths }
    }
}

pub(super) fn all_paths(resources: &[Arc<Resource>], visit: &mut dyn FnMut(&Path)) {
    pages(resources).iter().for_each(|page| visit(&page.path));
    for resource in resources {
        paths(resource).iter().for_each(&mut *visit);
    }
}

pub(super) fn definitions(offer: &Offer, add: &mut dyn FnMut(&str, &Value)) {
    let built_in: Vec<Arc<Resource>> = offer.resources.iter().filter(|r| is_built_in(r)).cloned().collect();
    built_in_definitions(&built_in, add);
    let custom: Vec<_> = offer.all_custom().collect();
    if !custom.is_empty() {
        let prose = Prose::load();
        for custom in custom {
            for (name, schema) in custom::definitions(custom, Dialect::V2, &prose) {
                add(&name, &schema);
            }
        }
    }
}

fn built_in_definitions(resources: &[Arc<Resource>], add: &mut dyn FnMut(&str, &Value)) {
    let (identities, prose) = (identities(), Prose::load());
    let mut written = BTreeSet::new();
    for group in groups(resources) {
        for version in group.versions {
            let of_version: Vec<&Arc<Resource>> =
                resources.iter().filter(|r| r.group == group.name && r.version == version).collect();
            let mut paths: Vec<Path> = of_version.iter().flat_map(|r| paths(r)).collect();
            paths.extend(pages(resources).into_iter().map(|page| page.path));
            for (name, ty) in closure(roots(&paths)) {
                if written.insert(name) {
                    add(name, &definition(ty, Dialect::V2, &prose, &identities));
                }
            }
        }
    }
    for (name, schema) in named_values(Dialect::V2) {
        add(&name, &schema);
    }
    add(&format!("{META}.Patch"), &json!({ "type": "object" }));
}

/// JSON objects within one another, member after member.
struct Members {
    out: Vec<u8>,
    depth: usize,
    first: bool,
}

impl Members {
    fn open(head: &str) -> Self {
        Self { out: head.as_bytes().to_vec(), depth: 1, first: false }
    }

    fn key(&mut self, key: &str) {
        let comma = if self.first { "" } else { "," };
        self.first = false;
        self.out.extend_from_slice(format!("{comma}{}:", Value::from(key)).as_bytes());
    }

    fn add(&mut self, key: &str, value: &Value) {
        self.key(key);
        // Writing a Value to memory cannot fail: its keys are strings and its numbers finite.
        let written = serde_json::to_writer(&mut self.out, value);
        debug_assert!(written.is_ok());
    }

    fn nest(&mut self, key: &str) {
        self.key(key);
        self.out.push(b'{');
        self.depth += 1;
        self.first = true;
    }

    fn close(&mut self) {
        self.out.push(b'}');
        self.depth -= 1;
        self.first = false;
    }

    fn finish(mut self) -> Vec<u8> {
        while self.depth > 0 {
            self.close();
        }
        self.out
    }
}

fn query_parameter(name: &&str) -> Value {
    json!({ "name": name, "in": "query", "type": query_type(name), "uniqueItems": true })
}

pub(super) fn path_item(path: &Path) -> Value {
    let common = common_query(path);
    let mut item: Map<String, Value> =
        path.operations.iter().map(|o| (o.method.to_owned(), operation(o, &common))).collect();
    let of_path = path_parameters(&path.template).map(
        |name| json!({ "name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true }),
    );
    let parameters: Vec<Value> = of_path.chain(common.iter().map(query_parameter)).collect();
    if !parameters.is_empty() {
        item.insert("parameters".into(), parameters.into());
    }
    Value::Object(item)
}

fn operation(operation: &Operation, common: &[&str]) -> Value {
    let own = operation.query.iter().filter(|name| !common.contains(name));
    let mut parameters: Vec<Value> = own.map(query_parameter).collect();
    if let Some(body) = &operation.body {
        let mut parameter = json!({ "name": "body", "in": "body", "schema": reference(body) });
        if *body != super::parameters::meta("DeleteOptions") {
            parameter["required"] = true.into();
        }
        parameters.push(parameter);
    }
    let mut responses: Map<String, Value> = operation
        .codes
        .iter()
        .map(|(code, text)| {
            let schema = operation.answer.as_ref().map(reference);
            ((*code).to_owned(), json!({ "description": text, "schema": schema }))
        })
        .collect();
    responses.insert("401".into(), json!({ "description": "Unauthorized" }));
    let mut value = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "schemes": ["https"],
        "produces": operation.produces,
        "responses": responses,
    });
    if !operation.consumes.is_empty() {
        value["consumes"] = json!(operation.consumes);
    }
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    if let Some(action) = operation.action {
        value["x-kubernetes-action"] = action.into();
    }
    if let Some((group, version, kind)) = &operation.identity {
        value["x-kubernetes-group-version-kind"] =
            json!({ "group": group, "version": version, "kind": kind });
    }
    value
}

fn reference(payload: &Payload) -> Value {
    type_name(payload).map_or(json!({ "type": "string" }), |name| Dialect::V2.reference(&name))
}
