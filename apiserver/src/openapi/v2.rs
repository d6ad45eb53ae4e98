//! OpenAPI v2: everything in one document, written piece by piece so that it never stands in memory as a tree.

use super::operations::{Operation, Path, Payload, paths, query_type};
use super::prose::Prose;
use super::schema::{Dialect, closure, definition, identities, named_scalars};
use super::v3::{META, path_parameters, roots, tag, type_name};
use crate::discovery::Document;
use coracle_api::Resource;
use coracle_api::catalogue::groups;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

pub fn document(resources: &[Arc<Resource>]) -> Document {
    let mut out = Members::open("{\"swagger\":\"2.0\"");
    out.add("info", &json!({ "title": "Kubernetes", "version": crate::discovery::GIT_VERSION }));
    out.add(
        "securityDefinitions",
        &json!({ "BearerToken":
        { "type": "apiKey", "name": "authorization", "in": "header" } }),
    );
    out.nest("paths");
    for path in resources.iter().flat_map(|r| paths(r)) {
        out.add(&path.template, &path_item(&path));
    }
    out.close();
    out.nest("definitions");
    definitions(resources, &mut |name, schema| out.add(name, schema));
    out.close();
    Document::new("application/json", out.finish())
}

/// Group by group, so that the descriptions of one only are in memory.
pub(super) fn definitions(resources: &[Arc<Resource>], add: &mut dyn FnMut(&str, &Value)) {
    let identities = identities();
    let mut written = BTreeSet::new();
    for group in groups(resources) {
        for version in group.versions {
            let of_version: Vec<&Arc<Resource>> =
                resources.iter().filter(|r| r.group == group.name && r.version == version).collect();
            let others = of_version.iter().flat_map(|r| &r.subresources).map(|s| (&*s.group, &*s.version));
            let prose = Prose::of([(group.name, version)].into_iter().chain(others));
            let paths: Vec<Path> = of_version.iter().flat_map(|r| paths(r)).collect();
            for (name, ty) in closure(roots(&paths)) {
                if written.insert(name) {
                    add(name, &definition(ty, Dialect::V2, &prose, &identities));
                }
            }
        }
    }
    for (name, schema) in named_scalars(Dialect::V2) {
        add(name, &schema);
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

fn path_item(path: &Path) -> Value {
    let mut item: Map<String, Value> =
        path.operations.iter().map(|o| (o.method.to_owned(), operation(o))).collect();
    let mut parameters: Vec<Value> = path_parameters(&path.template)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "type": "string" }))
        .collect();
    parameters.push(json!({ "name": "pretty", "in": "query", "type": "string" }));
    item.insert("parameters".into(), parameters.into());
    Value::Object(item)
}

fn operation(operation: &Operation) -> Value {
    let query = operation.query.iter();
    let mut parameters: Vec<Value> =
        query.map(|name| json!({ "name": name, "in": "query", "type": query_type(name) })).collect();
    if let Some(body) = &operation.body {
        let required = *body != Payload::DeleteOptions;
        parameters
            .push(json!({ "name": "body", "in": "body", "required": required, "schema": reference(body) }));
    }
    let consumes: &[&str] =
        if operation.body == Some(Payload::Patch) { &super::PATCH_TYPES } else { &["*/*"] };
    let (group, version, kind) = &operation.identity;
    json!({
        "operationId": operation.id,
        "tags": [tag(operation)],
        "schemes": ["https"],
        "consumes": consumes,
        "produces": ["application/json", "application/yaml"],
        "parameters": parameters,
        "responses": {
            "200": { "description": "OK", "schema": reference(&operation.answer) },
            "401": { "description": "Unauthorized" },
        },
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind },
    })
}

fn reference(payload: &Payload) -> Value {
    type_name(payload).map_or(json!({ "type": "string" }), |name| Dialect::V2.reference(&name))
}
