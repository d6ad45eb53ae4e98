//! The requests that a resource answers, neutral of the version of OpenAPI.

use coracle_api::{Resource, Subresource};

/// A body or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Group, version, kind.
    Kind(String, String, String),
    /// Any of the patch types.
    Patch,
    Status,
    DeleteOptions,
    Text,
}

#[derive(Clone, Debug)]
pub struct Operation {
    /// Lower case.
    pub method: &'static str,
    /// As in `x-kubernetes-action`.
    pub action: &'static str,
    pub id: String,
    pub query: &'static [&'static str],
    pub body: Option<Payload>,
    pub answer: Payload,
    /// Group, version and kind of the object that is meant.
    pub identity: (String, String, String),
}

#[derive(Clone, Debug)]
pub struct Path {
    /// With `{namespace}`, `{name}` and `{path}` where they apply.
    pub template: String,
    pub operations: Vec<Operation>,
}

const CREATE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];

/// The JSON type of a query parameter.
pub fn query_type(name: &str) -> &'static str {
    match name {
        "limit" | "timeoutSeconds" | "gracePeriodSeconds" => "integer",
        "watch"
        | "allowWatchBookmarks"
        | "sendInitialEvents"
        | "orphanDependents"
        | "force"
        | "ignoreStoreReadErrorWithClusterBreakingPotential" => "boolean",
        _ => "string",
    }
}

/// `AppsV1`, `RbacAuthorizationV1`, `CoreV1`: the part of operation ids that generated clients are named after.
fn group_part(resource: &Resource) -> String {
    let group = resource.group.strip_suffix(".k8s.io").unwrap_or(&resource.group);
    let group = if group.is_empty() { "core" } else { group };
    group.split('.').chain([&*resource.version]).map(capitalized).collect()
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

struct Builder<'a> {
    resource: &'a Resource,
    group: String,
    /// `Namespaced` or nothing.
    scope: &'static str,
}

impl Builder<'_> {
    fn own(&self) -> (String, String, String) {
        let r = self.resource;
        (r.group.to_string(), r.version.to_string(), r.kind.to_string())
    }

    fn id(&self, verb: &str, between: &str, after: &str) -> String {
        format!("{verb}{}{between}{}{}{after}", self.group, self.scope, self.resource.kind)
    }

    fn collection(&self, verb: &str) -> Option<Operation> {
        let (group, version, kind) = self.own();
        let object = Payload::Kind(group.clone(), version.clone(), kind);
        let list = Payload::Kind(group, version, self.resource.list_kind.to_string());
        let (method, action, id, query, body, answer) = match verb {
            "list" => ("get", "list", self.id("list", "", ""), LIST, None, list),
            "create" => ("post", "post", self.id("create", "", ""), CREATE, Some(object.clone()), object),
            "deletecollection" => (
                "delete",
                "deletecollection",
                self.id("delete", "Collection", ""),
                DELETE_COLLECTION,
                Some(Payload::DeleteOptions),
                Payload::Status,
            ),
            _ => return None,
        };
        Some(Operation { method, action, id, query, body, answer, identity: self.own() })
    }

    /// On an object or on a subresource of it; `after` names the latter.
    fn item(&self, verb: &str, after: &str, identity: (String, String, String)) -> Option<Operation> {
        let object = Payload::Kind(identity.0.clone(), identity.1.clone(), identity.2.clone());
        let (method, action, name, query, body, answer) = match verb {
            "get" => ("get", "get", "read", &[][..], None, object),
            "update" => ("put", "put", "replace", CREATE, Some(object.clone()), object),
            "patch" => ("patch", "patch", "patch", PATCH, Some(Payload::Patch), object),
            "create" => ("post", "post", "create", CREATE, Some(object.clone()), object),
            "delete" => ("delete", "delete", "delete", DELETE, Some(Payload::DeleteOptions), Payload::Status),
            _ => return None,
        };
        Some(Operation { method, action, id: self.id(name, "", after), query, body, answer, identity })
    }

    fn of_subresource(&self, subresource: &Subresource, suffix: &str) -> Vec<Operation> {
        let s = subresource;
        let after = capitalized(&s.name) + suffix;
        let identity = (s.group.to_string(), s.version.to_string(), s.kind.to_string());
        let operation = |verb: &str| match s.kind.ends_with("Options") {
            true => self.connect(verb, &after, identity.clone()),
            false => self.item(verb, &after, identity.clone()),
        };
        let mut operations: Vec<Operation> = s.verbs.iter().filter_map(|v| operation(v)).collect();
        if s.name == "log" {
            operations.iter_mut().for_each(|o| o.answer = Payload::Text);
        }
        operations
    }

    /// `exec`, `proxy` and the like, which carry no objects.
    fn connect(&self, verb: &str, after: &str, identity: (String, String, String)) -> Option<Operation> {
        let (method, name) = match verb {
            "get" => ("get", "Get"),
            "create" => ("post", "Post"),
            "update" => ("put", "Put"),
            "patch" => ("patch", "Patch"),
            "delete" => ("delete", "Delete"),
            _ => return None,
        };
        let id = self.id("connect", name, after);
        let (body, answer, action) = (None, Payload::Text, "connect");
        Some(Operation { method, action, id, query: &[], body, answer, identity })
    }
}

/// All paths of a resource. The watch paths of old (`/watch/...`) are not served and not listed.
pub fn paths(resource: &Resource) -> Vec<Path> {
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    let builder = Builder { resource, group: group_part(resource), scope };
    let plural = &resource.plural;
    let collection = match resource.namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{plural}"),
        false => format!("{root}/{plural}"),
    };
    let item = format!("{collection}/{{name}}");
    let of_collection = resource.verbs.iter().filter_map(|verb| builder.collection(verb)).collect();
    let of_item = resource.verbs.iter().filter(|verb| *verb != "create");
    let of_item = of_item.filter_map(|verb| builder.item(verb, "", builder.own())).collect();
    let mut paths = vec![
        Path { template: collection, operations: of_collection },
        Path { template: item.clone(), operations: of_item },
    ];
    if resource.namespaced && resource.supports("list") {
        let mut list = builder.collection("list");
        if let Some(list) = &mut list {
            list.id = format!("list{}{}ForAllNamespaces", builder.group, resource.kind);
        }
        paths.push(Path { template: format!("{root}/{plural}"), operations: list.into_iter().collect() });
    }
    for subresource in &resource.subresources {
        let template = format!("{item}/{}", subresource.name);
        let operations = builder.of_subresource(subresource, "");
        paths.push(Path { template: template.clone(), operations });
        if subresource.name == "proxy" {
            let operations = builder.of_subresource(subresource, "WithPath");
            paths.push(Path { template: format!("{template}/{{path}}"), operations });
        }
    }
    paths.retain(|p| !p.operations.is_empty());
    paths
}
