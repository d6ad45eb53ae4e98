//! Which variables there are, and of which types.

use coracle_cel::{Env, Field, ObjectType, Type};
use std::sync::{Arc, LazyLock};

/// Which of the optional variables an expression may name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    pub params: bool,
    pub authorizer: bool,
    /// `Object{...}`, `JSONPatch{...}` and `jsonpatch.escapeKey`: mutations.
    pub patches: bool,
}

/// Types of what is dynamic when it runs; only the check of types asks for more than [`Type::Dyn`].
#[derive(Clone, Debug)]
pub struct Typing {
    pub object: Type,
    pub params: Type,
}

impl Default for Typing {
    fn default() -> Self {
        Self { object: Type::Dyn, params: Type::Dyn }
    }
}

fn object(name: &str, fields: Vec<(&str, Type)>) -> Type {
    let field = |(json, of): (&str, Type)| (json.to_owned(), Field { json: json.to_owned(), of });
    Type::Object(Arc::new(ObjectType {
        name: name.to_owned(),
        fields: fields.into_iter().map(field).collect(),
    }))
}

/// Of an AdmissionRequest: without `uid`, `object` and `oldObject`.
pub static REQUEST: LazyLock<Type> = LazyLock::new(|| {
    let texts = |names: &[&'static str]| names.iter().map(|name| (*name, Type::STRING)).collect::<Vec<_>>();
    let kind = object("kubernetes.GroupVersionKind", texts(&["group", "version", "kind"]));
    let resource = object("kubernetes.GroupVersionResource", texts(&["group", "version", "resource"]));
    let mut user = texts(&["username", "uid"]);
    user.push(("groups", Type::list(Type::STRING)));
    user.push(("extra", Type::map(Type::STRING, Type::list(Type::STRING))));
    let mut fields = texts(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
    fields.extend([
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("requestKind", kind),
        ("requestResource", resource),
        ("userInfo", object("kubernetes.UserInfo", user)),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ]);
    object("kubernetes.AdmissionRequest", fields)
});

/// Of a Namespace: without owners and managers. Upstream declares its uid as `UID` and serves it as `uid`; both names
/// check here, and the second one has a value.
pub static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
    let texts = |names: &[&'static str]| names.iter().map(|name| (*name, Type::STRING)).collect::<Vec<_>>();
    let mut condition = texts(&["status", "type", "message", "reason"]);
    condition.push(("lastTransitionTime", Type::Timestamp));
    let mut metadata = texts(&["name", "generateName", "namespace", "UID", "uid", "resourceVersion"]);
    let labels = Type::map(Type::STRING, Type::STRING);
    metadata.extend([
        ("labels", labels.clone()),
        ("annotations", labels),
        ("creationTimestamp", Type::Timestamp),
        ("deletionTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("generation", Type::Int),
        ("finalizers", Type::list(Type::STRING)),
    ]);
    let conditions = Type::list(object("kubernetes.NamespaceCondition", condition));
    let status = vec![("conditions", conditions), ("phase", Type::STRING)];
    let spec = vec![("finalizers", Type::list(Type::STRING))];
    let parts = vec![
        ("metadata", object("kubernetes.NamespaceMetadata", metadata)),
        ("spec", object("kubernetes.NamespaceSpec", spec)),
        ("status", object("kubernetes.NamespaceStatus", status)),
    ];
    object("kubernetes.Namespace", parts)
});

/// The environment without `variables`.
pub fn environment(declared: Declared, typing: &Typing) -> Env {
    let mut env = Env::default()
        .variable("object", typing.object.clone())
        .variable("oldObject", typing.object.clone())
        .variable("request", REQUEST.clone())
        .variable("namespaceObject", NAMESPACE.clone());
    if declared.params {
        env = env.variable("params", typing.params.clone());
    }
    if declared.authorizer {
        env = env
            .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
            .variable("authorizer.requestResource", Type::Opaque("kubernetes.authorization.ResourceCheck"));
    }
    if declared.patches { with_patches(env) } else { env }
}

/// `Object...` of any name, its fields unchecked, and `JSONPatch`.
fn with_patches(mut env: Env) -> Env {
    env.free_structures = true;
    let fields =
        vec![("op", Type::STRING), ("path", Type::STRING), ("from", Type::STRING), ("value", Type::Dyn)];
    match object("JSONPatch", fields) {
        Type::Object(patch) => env.structure(patch),
        _ => env,
    }
}
