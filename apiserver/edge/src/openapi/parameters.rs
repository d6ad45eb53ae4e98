//! Parameters, media types and codes: the sets that operations share.

use super::operations::Payload;
use super::query::{self, Parameter};
use super::schema::Dialect;
use super::v3::META;
use serde_json::{Value, json};

pub type Query = &'static [&'static Parameter];

pub const ANYTHING: &[&str] = &["*/*"];
pub const OBJECTS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
pub const STREAMS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
pub const TEXT_OR_OBJECTS: &[&str] =
    &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
pub const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Of custom resources.
pub const CUSTOM: &[&str] = &["application/json", "application/yaml"];
/// Of reading one. Built-in resources take the parameter too, but upstream describes it for custom ones alone.
pub const CUSTOM_GET: Query = &[&query::PRETTY, &query::RESOURCE_VERSION];
pub const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

pub const OK: &[(&str, &str)] = &[("200", "OK")];
pub const OK_CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created")];
pub const OK_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("202", "Accepted")];
pub const OK_CREATED_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];

pub const PRETTY: Query = &[&query::PRETTY];
pub const CREATE: Query = &[&query::DRY_RUN, &query::FIELD_MANAGER, &query::FIELD_VALIDATION, &query::PRETTY];
pub const PATCH: Query =
    &[&query::DRY_RUN, &query::PATCH_FIELD_MANAGER, &query::FIELD_VALIDATION, &query::FORCE, &query::PRETTY];
pub const DELETE: Query = &[
    &query::DRY_RUN,
    &query::GRACE_PERIOD,
    &query::IGNORE_STORE_READ_ERROR,
    &query::ORPHAN_DEPENDENTS,
    &query::PRETTY,
    &query::PROPAGATION_POLICY,
];
pub const LIST: Query = &[
    &query::ALLOW_WATCH_BOOKMARKS,
    &query::CONTINUE,
    &query::FIELD_SELECTOR,
    &query::LABEL_SELECTOR,
    &query::LIMIT,
    &query::PRETTY,
    &query::RESOURCE_VERSION,
    &query::RESOURCE_VERSION_MATCH,
    &query::SEND_INITIAL_EVENTS,
    &query::SHARD_SELECTOR,
    &query::TIMEOUT,
    &query::WATCH,
];
pub const DELETE_COLLECTION: Query = &[
    &query::CONTINUE,
    &query::DRY_RUN,
    &query::FIELD_SELECTOR,
    &query::GRACE_PERIOD,
    &query::IGNORE_STORE_READ_ERROR,
    &query::LABEL_SELECTOR,
    &query::LIMIT,
    &query::ORPHAN_DEPENDENTS,
    &query::PRETTY,
    &query::PROPAGATION_POLICY,
    &query::RESOURCE_VERSION,
    &query::RESOURCE_VERSION_MATCH,
    &query::SEND_INITIAL_EVENTS,
    &query::SHARD_SELECTOR,
    &query::TIMEOUT,
];
pub const LOG: Query = &[
    &query::LOG_CONTAINER,
    &query::FOLLOW,
    &query::INSECURE,
    &query::LIMIT_BYTES,
    &query::PRETTY,
    &query::PREVIOUS,
    &query::SINCE,
    &query::STREAM,
    &query::TAIL_LINES,
    &query::TIMESTAMPS,
];
const EXEC: Query = &[
    &query::COMMAND,
    &query::EXEC_CONTAINER,
    &query::EXEC_STDERR,
    &query::EXEC_STDIN,
    &query::EXEC_STDOUT,
    &query::EXEC_TTY,
];
const ATTACH: Query = &[
    &query::ATTACH_CONTAINER,
    &query::ATTACH_STDERR,
    &query::ATTACH_STDIN,
    &query::ATTACH_STDOUT,
    &query::ATTACH_TTY,
];

/// Of a connection, by the kind of its options.
pub fn connect_query(kind: &str) -> Query {
    match kind {
        "PodExecOptions" => EXEC,
        "PodAttachOptions" => ATTACH,
        "PodPortForwardOptions" => &[&query::PORTS],
        "NodeProxyOptions" => &[&query::NODE_PATH],
        "ServiceProxyOptions" => &[&query::SERVICE_PATH],
        _ => &[&query::POD_PATH],
    }
}

/// A parameter in the path of an object of this kind, by its name in braces.
pub enum PathParameter<'a> {
    Name(&'a str),
    Shared(&'static Parameter),
}

/// Those of a path, of an object of this kind.
pub fn path_parameters<'a>(template: &'a str, kind: &'a str) -> impl Iterator<Item = PathParameter<'a>> {
    let names = template.split('/').filter_map(|s| s.strip_prefix('{')?.strip_suffix('}'));
    names.map(move |name| match name {
        "namespace" => PathParameter::Shared(&query::NAMESPACE),
        "path" => PathParameter::Shared(&query::REST_OF_PATH),
        _ => PathParameter::Name(kind),
    })
}

impl PathParameter<'_> {
    /// As a dialect says it beside a request. The name of an object is not shared, as the text differs.
    pub fn value(&self, dialect: Dialect) -> Value {
        let kind = match (self, dialect) {
            (Self::Shared(shared), Dialect::V2) => return shared.v2(),
            (Self::Shared(shared), Dialect::V3) => return shared.v3(),
            (Self::Name(kind), _) => kind,
        };
        let mut value = json!({ "name": "name", "in": "path", "required": true,
            "description": format!("The name of the {kind}.") });
        match dialect {
            Dialect::V2 => (value["type"], value["uniqueItems"]) = ("string".into(), true.into()),
            Dialect::V3 => value["schema"] = json!({ "type": "string", "uniqueItems": true }),
        }
        value
    }
}

/// A type of the common group.
pub fn meta(kind: &str) -> Payload {
    Payload::Named(format!("{META}.{kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_requests::stream_options::STREAM_OPTIONS;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_told_of_a_connection_is_what_its_options_have() {
        for (kind, fields) in STREAM_OPTIONS {
            let told: BTreeSet<&str> = connect_query(kind).iter().map(|parameter| parameter.name).collect();
            assert_eq!(told, fields.iter().map(|(name, _)| *name).collect(), "{kind}");
        }
    }
}
