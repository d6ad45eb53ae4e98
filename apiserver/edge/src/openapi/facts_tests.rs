//! Our documents against upstream's facts, line by line; `api/generate.py` writes the same lines of upstream's document.

use super::tests::respond;
use super::v3::META;
use coracle_api::catalogue::catalogue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const PATHS: &str = include_str!("upstream_paths.txt");
const DEFINITIONS: &str = include_str!("upstream_definitions.txt");
const DIFFERENCES: &str = include_str!("differences.txt");
const SHORT: [(&str, &str); 2] = [("io.k8s.apimachinery.pkg.apis.meta.v1.", "^"), ("io.k8s.api.", "~")];

/// What is said of each thing: of a path, an operation, a definition or a field.
type Facts = BTreeMap<String, String>;

fn get(path: &str) -> Value {
    let document =
        respond(path, "application/json", catalogue()).unwrap_or_else(|| panic!("nothing at {path}"));
    serde_json::from_slice(&document.unwrap().body).unwrap()
}

/// Reads indented lines; values of the form `$n` are those of the lines `$n=value` at the top.
fn read(text: &str) -> Facts {
    let (mut marks, mut facts, mut owner) = (BTreeMap::new(), Facts::new(), "");
    for line in text.lines() {
        if let Some((mark, value)) = line.split_once('=').filter(|_| line.starts_with('$')) {
            marks.insert(mark, value);
            continue;
        }
        let (first, rest) = line.trim_start().split_once(' ').unwrap_or((line.trim_start(), ""));
        let key = if line.starts_with(' ') { format!("{owner} {first}") } else { first.to_owned() };
        if !line.starts_with(' ') {
            owner = first;
        }
        let cells = rest.split(' ').filter(|cell| !cell.is_empty()).map(|cell| match cell.split_once("=$") {
            Some((name, mark)) => format!("{name}={}", marks[format!("${mark}").as_str()]),
            None => cell.to_owned(),
        });
        facts.insert(key, cells.collect::<Vec<_>>().join(" "));
    }
    facts
}

/// (values, paths) that are left out on purpose.
fn differences() -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let of = |kind: &str| {
        let lines = DIFFERENCES.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
        lines.map(|line| line.split_once(' ').expect("a reason").0).collect()
    };
    (of("value"), of("path"))
}

/// Upstream's facts about paths without the differences.
fn wanted_paths() -> Facts {
    let (values, paths) = differences();
    let mut facts = read(PATHS);
    facts.retain(|key, _| !paths.contains(key.split(' ').next().unwrap()));
    for text in facts.values_mut() {
        let cells: Vec<String> = text.split(' ').map(|cell| without(cell, &values)).collect();
        *text = cells.join(" ");
    }
    facts
}

fn without(cell: &str, values: &BTreeSet<&str>) -> String {
    let Some((name, list)) = cell.split_once('=') else { return cell.to_owned() };
    let kept: Vec<&str> = list.split(',').filter(|value| !values.contains(value)).collect();
    format!("{name}={}", kept.join(","))
}

fn short(name: &str) -> String {
    let found = SHORT.iter().find_map(|(prefix, mark)| Some(format!("{mark}{}", name.strip_prefix(prefix)?)));
    found.unwrap_or_else(|| name.to_owned())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// References of both versions of OpenAPI, bare or wrapped.
fn type_text(schema: &Value) -> String {
    let wrapped = schema["allOf"].get(0).unwrap_or(schema);
    if let Some(reference) = wrapped["$ref"].as_str() {
        return format!(">{}", short(reference.rsplit('/').next().unwrap()));
    }
    match schema["type"].as_str().unwrap_or("any") {
        "array" => format!("[{}]", type_text(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("{{{}}}", type_text(&schema["additionalProperties"]))
        }
        kind => match text(schema, "format") {
            "" => kind.to_owned(),
            format => format!("{kind}:{format}"),
        },
    }
}

fn sorted(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.collect();
    items.sort();
    items.join(",")
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn keys(value: &Value) -> impl Iterator<Item = String> + '_ {
    value.as_object().into_iter().flatten().map(|(key, _)| key.clone())
}

/// With the end of the name that version 2 shares it under.
fn parameter_text(parameter: &Value, shared: &Value) -> String {
    let key = text(parameter, "$ref").strip_prefix("#/parameters/");
    let parameter = key.map_or(parameter, |key| &shared[key]);
    let schema = if parameter["schema"].is_object() { &parameter["schema"] } else { parameter };
    let mark = if parameter["required"] == true { "!" } else { "" };
    let name = text(parameter, "name");
    let hash = key.and_then(|key| key.strip_prefix(name)).map(|hash| hash.replacen('-', "#", 1));
    format!("{name}@{}:{}{mark}{}", text(parameter, "in"), type_text(schema), hash.unwrap_or_default())
}

/// The body of version 3 is a parameter in version 2.
fn parameters(holder: &Value, shared: &Value) -> String {
    let body = each(&Value::Array(vec![holder["requestBody"].clone()])).find_map(|body| {
        let content = body["content"].as_object()?.values().next()?;
        let mark = if body["required"] == true { "!" } else { "" };
        Some(format!("body@body:{}{mark}", type_text(&content["schema"])))
    });
    sorted(each(&holder["parameters"]).map(|one| parameter_text(one, shared)).chain(body))
}

fn gvk(identity: &Value) -> String {
    format!("{}/{}/{}", text(identity, "group"), text(identity, "version"), text(identity, "kind"))
}

fn cells(pairs: &[(&str, String)]) -> String {
    let set = pairs.iter().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// The media types and the schema of an answer or body, of version 3.
fn content(holder: &Value) -> (String, Option<String>) {
    let schema =
        holder["content"].as_object().and_then(|c| c.values().next()).map(|c| type_text(&c["schema"]));
    (sorted(keys(&holder["content"])), schema)
}

fn operation_text(operation: &Value, shared: &Value) -> String {
    let (mut produces, mut answers) = (sorted(each(&operation["produces"]).map(plain)), Vec::new());
    for (code, answer) in operation["responses"].as_object().unwrap() {
        let (media, schema) = content(answer);
        if !media.is_empty() {
            produces = media;
        }
        let schema = schema.or_else(|| answer["schema"].is_object().then(|| type_text(&answer["schema"])));
        answers.push(format!("{code}:{}", schema.unwrap_or_else(|| "-".to_owned())));
    }
    let consumes = match sorted(each(&operation["consumes"]).map(plain)) {
        none if none.is_empty() => content(&operation["requestBody"]).0,
        consumes => consumes,
    };
    let identity = &operation["x-kubernetes-group-version-kind"];
    cells(&[
        ("id", text(operation, "operationId").to_owned()),
        ("action", text(operation, "x-kubernetes-action").to_owned()),
        ("gvk", if identity.is_object() { gvk(identity) } else { String::new() }),
        ("tags", sorted(each(&operation["tags"]).map(plain))),
        ("consumes", consumes),
        ("produces", produces),
        ("params", parameters(operation, shared)),
        ("answers", sorted(answers.into_iter())),
    ])
}

fn plain(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn path_facts(document: &Value, facts: &mut Facts) {
    let shared = &document["parameters"];
    for (path, item) in document["paths"].as_object().unwrap() {
        facts.insert(path.clone(), cells(&[("params", parameters(item, shared))]));
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            assert_ne!(text(operation, "description"), "", "{path} {method}");
            facts.insert(format!("{path} {method}"), operation_text(operation, shared));
        }
    }
}

fn extensions(schema: &Value) -> Vec<String> {
    const KEYS: [&str; 5] = ["list-map-keys", "list-type", "map-type", "patch-merge-key", "patch-strategy"];
    let cell = |key: &&str| match &schema[format!("x-kubernetes-{key}")] {
        Value::Null => None,
        list @ Value::Array(_) => {
            Some(format!("{key}={}", each(list).map(plain).collect::<Vec<_>>().join(",")))
        }
        value => Some(format!("{key}={}", plain(value))),
    };
    let described = (!text(schema, "description").is_empty()).then(|| DESCRIBED.to_owned());
    KEYS.iter().filter_map(cell).chain(described).collect()
}

/// The cell of what has a description.
const DESCRIBED: &str = "+";

/// Takes the marks away; what upstream describes is described here, and the rest may be.
fn assert_described(mut wanted: Facts, mut ours: Facts) -> [Facts; 2] {
    let marked = |facts: &mut Facts| -> BTreeSet<String> {
        let marked = facts.iter_mut().filter_map(|(key, line)| {
            let rest = line.strip_suffix(DESCRIBED)?.trim_end().to_owned();
            *line = rest;
            Some(key.clone())
        });
        marked.collect()
    };
    let (all, described) = (marked(&mut wanted), marked(&mut ours));
    let missing: Vec<&String> = all.difference(&described).collect();
    assert!(missing.is_empty(), "without a description: {missing:?}");
    [wanted, ours]
}

fn definition_facts(definitions: &Value, facts: &mut Facts) {
    for (name, schema) in definitions.as_object().unwrap() {
        let name = short(name);
        let mut line = vec![type_text(schema)];
        let required = sorted(each(&schema["required"]).map(plain));
        line.extend(Some(required).filter(|r| !r.is_empty()).map(|r| format!("required={r}")));
        if let Some([identity]) = schema["x-kubernetes-group-version-kind"].as_array().map(Vec::as_slice) {
            line.push(format!("gvk={}", gvk(identity)));
        }
        for union in each(&schema["x-kubernetes-unions"]) {
            let empty = Map::new();
            let members = union["fields-to-discriminateBy"].as_object().unwrap_or(&empty);
            let members = sorted(members.iter().map(|(field, value)| format!("{field}:{}", plain(value))));
            line.push(format!("union={}/{members}", text(union, "discriminator")));
        }
        line.extend(extensions(schema));
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let line: Vec<String> = [type_text(property)].into_iter().chain(extensions(property)).collect();
            facts.insert(format!("{name} {field}"), line.join(" "));
        }
        facts.insert(name, line.join(" "));
    }
}

fn assert_same(wanted: &Facts, ours: &Facts) {
    let keys: BTreeSet<&String> = wanted.keys().chain(ours.keys()).collect();
    let show = |facts: &Facts, key: &str| facts.get(key).cloned().unwrap_or_else(|| "(nothing)".to_owned());
    let different: Vec<String> = keys
        .into_iter()
        .filter(|key| wanted.get(*key) != ours.get(*key))
        .map(|key| format!("{key}\n  upstream {}\n  ours     {}", show(wanted, key), show(ours, key)))
        .collect();
    assert!(different.is_empty(), "{} differences:\n{}", different.len(), different.join("\n"));
}

#[test]
fn version_2_is_upstreams_but_for_the_listed_differences() {
    let document = get("/openapi/v2");
    let (mut paths, mut definitions) = (Facts::new(), Facts::new());
    path_facts(&document, &mut paths);
    definition_facts(&document["definitions"], &mut definitions);
    assert_same(&wanted_paths(), &paths);
    let [wanted, definitions] = assert_described(read(DEFINITIONS), definitions);
    assert_same(&wanted, &definitions);
}

/// Upstream publishes the same facts in both versions; what version 3 cannot say is what a request without a body
/// consumes, it shares no parameters, and it says otherwise what a quantity is.
#[test]
fn version_3_is_upstreams_but_for_the_listed_differences() {
    let (mut paths, mut definitions) = (Facts::new(), Facts::new());
    for entry in get("/openapi/v3")["paths"].as_object().unwrap().values() {
        let mut document = get(text(entry, "serverRelativeURL").split('?').next().unwrap());
        path_facts(&document, &mut paths);
        let schemas = &mut document["components"]["schemas"];
        for name in ["DeleteOptions", "WatchEvent"].map(|kind| format!("{META}.{kind}")) {
            if let Some(schema) = schemas.get_mut(name).and_then(Value::as_object_mut) {
                drop(schema.remove("x-kubernetes-group-version-kind"));
            }
        }
        definition_facts(schemas, &mut definitions);
    }
    let mut wanted = wanted_paths();
    wanted.values_mut().for_each(|line| *line = unshared(line));
    for line in wanted.values_mut().filter(|line| !line.contains("body@body:")) {
        let cells: Vec<&str> = line.split(' ').filter(|cell| !cell.starts_with("consumes=")).collect();
        *line = cells.join(" ");
    }
    assert_same(&wanted, &paths);
    let [mut wanted, mut definitions] = assert_described(read(DEFINITIONS), definitions);
    for name in
        ["io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    {
        assert!(wanted.remove(name).is_some() && definitions.remove(name).is_some());
    }
    assert_same(&wanted, &definitions);
}

/// Without the ends of names.
fn unshared(line: &str) -> String {
    let ends = |part: &str| part.split_once('#').map_or(part, |(name, _)| name).to_owned();
    let cell = |cell: &str| cell.split(',').map(ends).collect::<Vec<_>>().join(",");
    line.split(' ').map(cell).collect::<Vec<_>>().join(" ")
}

#[test]
fn no_difference_is_listed_in_vain() {
    let (values, left_out) = differences();
    assert_eq!(DIFFERENCES.lines().filter(|l| !l.starts_with('#')).count(), values.len() + left_out.len());
    let upstream = read(PATHS);
    let mut ours = Facts::new();
    path_facts(&get("/openapi/v2"), &mut ours);
    let has = |facts: &Facts, value: &str| {
        facts.values().flat_map(|line| line.split([' ', ',', '='])).any(|part| part == value)
    };
    for value in values {
        assert!(has(&upstream, value) && !has(&ours, value), "{value} is no difference");
    }
    for path in left_out {
        assert!(upstream.contains_key(path) && !ours.contains_key(path), "{path} is no difference");
    }
}
