//! The check of types: expressions of a policy against the schemas of what it matches. It warns and decides nothing.
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking>

use super::compiled::{compose, declared, items, text};
use coracle_api::Object;
use coracle_api::catalogue::split_api_version;
use coracle_api::schema::{self, Kind, TypeRef};
use coracle_cel::declare::escape;
use coracle_cel::{Field, ObjectType, Program, Type};
use coracle_requests::ObjectReader;
use coracle_strategy::expression::{Declared, Typing, environment};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Upstream's number of types that one policy is checked against.
const TYPES_MAX: usize = 10;

/// `status.typeChecking.expressionWarnings`.
pub fn check(policy: &Object, read: &dyn ObjectReader) -> Vec<Value> {
    let spec = &policy["spec"];
    let params = param_type(spec, read);
    let kinds: Vec<(String, Typing)> = kinds(spec, read)
        .into_iter()
        .filter_map(|(group, version, kind)| {
            let object = type_of(read, &group, &version, &kind)?;
            let typing = Typing { object, params: params.clone().unwrap_or(Type::Dyn) };
            Some((format!("{group}/{version}, Kind={kind}"), typing))
        })
        .collect();
    let declared = Declared { params: params.is_some(), ..declared(spec, true) };
    let mut warnings = Vec::new();
    for (index, validation) in items(spec, "validations").iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = text(validation, field);
            let found =
                if source.is_empty() { String::new() } else { against(source, spec, declared, &kinds) };
            if !found.is_empty() {
                let place = format!("spec.validations[{index}].{field}");
                warnings.push(json!({ "fieldRef": place, "warning": found }));
            }
        }
    }
    warnings
}

/// What is wrong with an expression for each of the kinds, as upstream shows it.
fn against(source: &str, spec: &Value, declared: Declared, kinds: &[(String, Typing)]) -> String {
    let issues = kinds.iter().filter_map(|(kind, typing)| {
        let env = environment(declared, typing).variable("variables", compose(spec, typing).of());
        let issues = Program::compile(source, &env).err()?;
        Some(format!("{kind}: {issues}\n"))
    });
    issues.collect::<Vec<_>>().join("\n")
}

fn param_type(spec: &Value, read: &dyn ObjectReader) -> Option<Type> {
    let kind = &spec["paramKind"];
    let (group, version) = split_api_version(text(kind, "apiVersion"))?;
    type_of(read, group, version, text(kind, "kind"))
}

/// The kinds that the rules name without a wildcard, in order.
fn kinds(spec: &Value, read: &dyn ObjectReader) -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    for rule in items(&spec["matchConstraints"], "resourceRules") {
        let mut count = 0;
        let parts = [("apiGroups", false), ("apiVersions", false), ("resources", true)];
        let [groups, versions, resources] = parts.map(|(field, skips)| names(rule, field, skips));
        let all = groups.iter().flat_map(|group| versions.iter().map(move |version| (group, version)));
        for (group, version) in all {
            for plural in &resources {
                let Some(resource) = read.resource_of_plural(group, version, plural) else { continue };
                found.insert((group.to_string(), version.to_string(), resource.kind.to_string()));
                count += 1;
                if count == TYPES_MAX {
                    return found;
                }
            }
        }
    }
    found
}

/// The names in order; none at all when one of them is a wildcard, unless those are to be skipped.
fn names<'a>(rule: &'a Value, field: &str, skips: bool) -> Vec<&'a str> {
    let mut names: Vec<&str> = items(rule, field).iter().filter_map(Value::as_str).collect();
    if skips {
        names.retain(|name| !name.contains(['*', '/']));
    } else if names.iter().any(|name| name.contains('*')) {
        names.clear();
    }
    names.sort_unstable();
    names
}

/// `None` for kinds without a schema, and for those whose schema contains itself.
fn type_of(read: &dyn ObjectReader, group: &str, version: &str, kind: &str) -> Option<Type> {
    if let Some(built_in) = schema::root(group, version, kind) {
        return declare(built_in, kind, &mut Vec::new());
    }
    let resource = read.resource_of_kind(group, version, kind)?;
    let custom = read.custom_version(group, version, &resource.plural)?;
    declare(custom.object_type(), kind, &mut Vec::new())
}

/// `within`: the built-in types on the way here.
fn declare<'t>(of: TypeRef<'t>, name: &str, within: &mut Vec<&'static str>) -> Option<Type> {
    let element = |within: &mut Vec<&'static str>, part: &str| {
        of.element().map_or(Some(Type::Dyn), |element| declare(element, &format!("{name}.{part}"), within))
    };
    Some(match of.kind() {
        Kind::Any | Kind::IntOrString => Type::Dyn,
        Kind::String | Kind::Quantity => Type::STRING,
        Kind::Int32 | Kind::Int64 => Type::Int,
        Kind::Bool => Type::Bool,
        Kind::Double => Type::Double,
        Kind::Time | Kind::MicroTime => Type::Timestamp,
        Kind::Bytes => Type::BYTES,
        Kind::List => Type::list(element(within, "@idx")?),
        Kind::Map => Type::map(Type::STRING, element(within, "@elem")?),
        Kind::Struct => {
            if of.preserves_unknown_fields() {
                return Some(Type::Dyn);
            }
            if !of.name().is_empty() && within.contains(&of.name()) {
                return None;
            }
            within.push(of.name());
            let mut fields = BTreeMap::new();
            for field in of.fields() {
                let json = field.name().to_owned();
                let of = declare(field.ty(), &format!("{name}.{json}"), within)?;
                if let Some(escaped) = escape(&json) {
                    fields.insert(escaped, Field { json, of });
                }
            }
            within.pop();
            Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields }))
        }
    })
}
