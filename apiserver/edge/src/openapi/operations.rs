//! The requests that a resource answers, neutral of the version of OpenAPI.

use super::parameters::*;
use coracle_api::{Resource, Subresource};

/// A body or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Group, version, kind.
    Kind(String, String, String),
    /// By the full name of the definition.
    Named(String),
    Text,
}

#[derive(Clone, Debug)]
pub struct Operation {
    /// Lower case.
    pub method: &'static str,
    /// As in `x-kubernetes-action`; `None` where no object is meant.
    pub action: Option<&'static str>,
    pub id: String,
    pub tag: String,
    /// What it does, in a sentence.
    pub description: String,
    pub query: Query,
    pub body: Option<Payload>,
    pub consumes: &'static [&'static str],
    pub produces: &'static [&'static str],
    /// Of every code of success but 401, which they all have.
    pub answer: Option<Payload>,
    pub codes: &'static [(&'static str, &'static str)],
    /// Group, version and kind of the object that is meant.
    pub identity: Option<(String, String, String)>,
}

#[derive(Clone, Debug)]
pub struct Path {
    /// With `{namespace}`, `{name}` and `{path}` where they apply.
    pub template: String,
    /// The kind of the object that `{name}` is of.
    pub kind: String,
    pub operations: Vec<Operation>,
}

/// `apps`, `rbacAuthorization`, `core`: what operations of a group are named after.
pub fn group_word(group: &str) -> String {
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    let mut parts = group.split('.');
    let head = parts.next().filter(|head| !head.is_empty()).unwrap_or("core").to_owned();
    parts.fold(head, |word, part| word + &capitalized(part))
}

pub fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

/// Whether this program knows the type; it knows none of custom resources.
pub fn is_built_in(resource: &Resource) -> bool {
    coracle_api::schema::root(&resource.group, &resource.version, &resource.kind).is_some()
}

struct Builder<'a> {
    resource: &'a Resource,
    /// Custom resources speak no protobuf, know no strategic merge, and have none of the paths of old.
    custom: bool,
    /// `AppsV1`
    group: String,
    /// `apps_v1`
    tag: String,
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

    /// `verb` with a capital.
    fn describe(&self, verb: &str, what: &str) -> String {
        format!("{verb} {what}{}.", self.resource.kind)
    }

    fn operation(&self, method: &'static str, action: &'static str, id: String) -> Operation {
        Operation {
            method,
            description: String::new(),
            action: Some(action),
            id,
            tag: self.tag.clone(),
            query: PRETTY,
            body: None,
            consumes: ANYTHING,
            produces: OBJECTS,
            answer: None,
            codes: OK,
            identity: Some(self.own()),
        }
    }

    fn collection(&self, verb: &str) -> Option<Operation> {
        let (group, version, kind) = self.own();
        let object = Payload::Kind(group.clone(), version.clone(), kind);
        Some(match verb {
            "list" => Operation {
                description: self.describe("Lists or watches", "objects of kind "),
                query: LIST,
                produces: STREAMS,
                answer: Some(Payload::Kind(group, version, self.resource.list_kind.to_string())),
                ..self.operation("get", "list", self.id("list", "", ""))
            },
            "create" => Operation {
                description: self.describe("Creates", "one "),
                query: CREATE,
                body: Some(object.clone()),
                answer: Some(object),
                codes: OK_CREATED_ACCEPTED,
                ..self.operation("post", "post", self.id("create", "", ""))
            },
            "deletecollection" => Operation {
                description: self.describe("Deletes", "the selected objects of kind "),
                query: DELETE_COLLECTION,
                body: Some(meta("DeleteOptions")),
                answer: Some(meta("Status")),
                ..self.operation("delete", "deletecollection", self.id("delete", "Collection", ""))
            },
            _ => return None,
        })
    }

    /// On an object or on a subresource of it; `after` names the latter.
    fn item(&self, verb: &str, after: &str, identity: (String, String, String)) -> Option<Operation> {
        let object = Payload::Kind(identity.0.clone(), identity.1.clone(), identity.2.clone());
        let (of_verb, what) = match (verb, after) {
            ("get", _) => ("Reads", ""),
            ("update", _) => ("Replaces", ""),
            ("patch", _) => ("Changes", "parts of "),
            ("create", _) => ("Creates", ""),
            _ => ("Deletes", ""),
        };
        let part = if after.is_empty() { String::new() } else { format!("{} of ", after.to_lowercase()) };
        let new = |method, action, name| Operation {
            description: self.describe(of_verb, &format!("{what}{part}one ")),
            answer: Some(object.clone()),
            identity: Some(identity.clone()),
            ..self.operation(method, action, self.id(name, "", after))
        };
        Some(match verb {
            "get" => new("get", "get", "read"),
            "update" => Operation {
                query: CREATE,
                body: Some(object.clone()),
                codes: OK_CREATED,
                ..new("put", "put", "replace")
            },
            "patch" => Operation {
                query: PATCH,
                body: Some(meta("Patch")),
                consumes: PATCHES,
                codes: OK_CREATED,
                ..new("patch", "patch", "patch")
            },
            "create" => Operation {
                query: CREATE,
                body: Some(object.clone()),
                codes: OK_CREATED_ACCEPTED,
                ..new("post", "post", "create")
            },
            "delete" => {
                let strategy = coracle_strategy::for_resource(&self.resource.group, &self.resource.plural);
                let with_object = strategy.facts().returns_deleted;
                Operation {
                    query: DELETE,
                    body: Some(meta("DeleteOptions")),
                    answer: Some(if with_object { object.clone() } else { meta("Status") }),
                    codes: OK_ACCEPTED,
                    ..new("delete", "delete", "delete")
                }
            }
            _ => return None,
        })
    }

    fn of_subresource(&self, subresource: &Subresource, suffix: &str) -> Vec<Operation> {
        let s = subresource;
        let after = capitalized(&s.name) + suffix;
        let identity = (s.group.to_string(), s.version.to_string(), s.kind.to_string());
        if s.kind.ends_with("Options") {
            let proxied: &[&str] = if s.name == "proxy" { &["head", "options"] } else { &[] };
            let verbs = s.verbs.iter().map(AsRef::as_ref).chain(proxied.iter().copied());
            return verbs.filter_map(|verb| self.connect(verb, &after, &identity)).collect();
        }
        let mut operations: Vec<Operation> =
            s.verbs.iter().filter_map(|verb| self.item(verb, &after, identity.clone())).collect();
        if s.name == "log" {
            for operation in &mut operations {
                operation.answer = Some(Payload::Text);
                operation.query = LOG;
                operation.produces = TEXT_OR_OBJECTS;
            }
        }
        operations
    }

    /// `exec`, `proxy` and the like, which carry no objects.
    fn connect(&self, verb: &str, after: &str, identity: &(String, String, String)) -> Option<Operation> {
        let (method, name) = match verb {
            "get" => ("get", "Get"),
            "create" => ("post", "Post"),
            "update" => ("put", "Put"),
            "patch" => ("patch", "Patch"),
            "delete" => ("delete", "Delete"),
            "head" => ("head", "Head"),
            "options" => ("options", "Options"),
            _ => return None,
        };
        Some(Operation {
            description: self.describe("Connects", &format!("with {} of one ", after.to_lowercase())),
            query: connect_query(&identity.2),
            produces: ANYTHING,
            answer: Some(Payload::Text),
            identity: Some(identity.clone()),
            ..self.operation(method, "connect", self.id("connect", name, after))
        })
    }

    /// The paths of old, which watch without a parameter.
    fn watches(&self, root: &str, collection: &str, item: &str) -> Vec<Path> {
        let watch = |path: &str, action, after: &str, scope| {
            let kind = &self.resource.kind;
            let what = if action == "watch" { "one " } else { "objects of kind " };
            let operation = Operation {
                description: format!(
                    "Watches {what}{kind}. The parameter `watch` of a list does the same and is to be preferred."
                ),
                query: LIST,
                produces: STREAMS,
                answer: Some(meta("WatchEvent")),
                ..self.operation("get", action, format!("watch{}{scope}{kind}{after}", self.group))
            };
            let template = path.replacen(root, &format!("{root}/watch"), 1);
            Path { template, kind: kind.to_string(), operations: vec![operation] }
        };
        let mut paths =
            vec![watch(collection, "watchlist", "List", self.scope), watch(item, "watch", "", self.scope)];
        if self.resource.namespaced {
            let everywhere = format!("{root}/{}", self.resource.plural);
            paths.push(watch(&everywhere, "watchlist", "ListForAllNamespaces", ""));
        }
        paths
    }
}

/// To what is said of custom resources: forms, parameters, and the kind itself where a subresource is meant.
fn restrict(operation: &mut Operation, own: &(String, String, String)) {
    operation.produces = CUSTOM;
    operation.consumes = CUSTOM;
    operation.identity = Some(own.clone());
    match operation.action {
        Some("get") => operation.query = CUSTOM_GET,
        Some("patch") => (operation.consumes, operation.codes) = (CUSTOM_PATCHES, OK),
        Some("deletecollection") => (operation.query, operation.body) = (LIST, None),
        _ => {}
    }
}

/// All paths of a resource.
pub fn paths(resource: &Resource) -> Vec<Path> {
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let (word, version) = (group_word(&resource.group), &*resource.version);
    let builder = Builder {
        resource,
        custom: !is_built_in(resource),
        group: capitalized(&word) + &capitalized(version),
        tag: format!("{word}_{version}"),
        scope: if resource.namespaced { "Namespaced" } else { "" },
    };
    let plural = &resource.plural;
    let collection = match resource.namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{plural}"),
        false => format!("{root}/{plural}"),
    };
    let item = format!("{collection}/{{name}}");
    let of_collection = resource.verbs.iter().filter_map(|verb| builder.collection(verb)).collect();
    let of_item = resource.verbs.iter().filter(|verb| *verb != "create");
    let of_item = of_item.filter_map(|verb| builder.item(verb, "", builder.own())).collect();
    let path = |template: &str, operations| Path {
        template: template.to_owned(),
        kind: resource.kind.to_string(),
        operations,
    };
    let mut paths = vec![path(&collection, of_collection), path(&item, of_item)];
    if resource.namespaced && resource.supports("list") {
        let mut list = builder.collection("list");
        if let Some(list) = &mut list {
            list.id = format!("list{}{}ForAllNamespaces", builder.group, resource.kind);
        }
        paths.push(path(&format!("{root}/{plural}"), list.into_iter().collect()));
    }
    for subresource in &resource.subresources {
        let template = format!("{item}/{}", subresource.name);
        let operations = builder.of_subresource(subresource, "");
        paths.push(path(&template, operations));
        if subresource.name == "proxy" {
            let operations = builder.of_subresource(subresource, "WithPath");
            paths.push(path(&format!("{template}/{{path}}"), operations));
        }
    }
    if resource.supports("watch") && !builder.custom {
        paths.extend(builder.watches(&root, &collection, &item));
    }
    paths.retain(|path| !path.operations.is_empty());
    if builder.custom {
        let (own, all) = (builder.own(), paths.iter_mut().flat_map(|path| &mut path.operations));
        all.for_each(|operation| restrict(operation, &own));
    }
    paths
}
