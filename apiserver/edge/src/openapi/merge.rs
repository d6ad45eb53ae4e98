//! Swagger documents of several servers in one.

use serde_json::{Map, Value};

/// Adds another server's Swagger document to ours: its paths where we have none, its definitions under their own names,
/// or, where we have another of that name, under the name with `_v2` (`_v3`, ...) behind it, as upstream renames them.
pub fn merge_v2(ours: &mut Value, theirs: &Value) {
    let renamed = add_definitions(ours, theirs);
    let Some(paths) = theirs["paths"].as_object() else { return };
    let mut paths = paths.clone();
    rename(&mut paths, &renamed);
    let known = ours["paths"].as_object_mut();
    if let Some(known) = known {
        for (path, item) in paths {
            known.entry(path).or_insert(item);
        }
    }
}

const DEFINITION: &str = "#/definitions/";

/// Pairs of references, as they are in `theirs` and as they must be.
fn add_definitions(ours: &mut Value, theirs: &Value) -> Vec<(String, String)> {
    let (Some(known), Some(new)) = (ours["definitions"].as_object_mut(), theirs["definitions"].as_object())
    else {
        return Vec::new();
    };
    let mut renamed = Vec::new();
    let mut added = Vec::new();
    for (name, definition) in new {
        let mut free = name.clone();
        for n in 2_u32.. {
            match known.get(&free) {
                Some(same) if alike(same, definition) => break,
                None => {
                    added.push((free.clone(), definition));
                    break;
                }
                Some(_) => free = format!("{name}_v{n}"),
            }
        }
        if free != *name {
            renamed.push((format!("{DEFINITION}{name}"), format!("{DEFINITION}{free}")));
        }
    }
    for (name, definition) in added {
        let mut definition = Map::from_iter([(name, definition.clone())]);
        rename(&mut definition, &renamed);
        known.extend(definition);
    }
    renamed
}

/// Upstream's comparison leaves prose and extensions out, which servers of other releases word otherwise.
fn alike(a: &Value, b: &Value) -> bool {
    let told = |key: &String| key != "description" && !key.starts_with("x-");
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let count = |map: &Map<String, Value>| map.keys().filter(|k| told(k)).count();
            let same = |(key, value): (&String, &Value)| b.get(key).is_some_and(|other| alike(value, other));
            count(a) == count(b) && a.iter().filter(|(key, _)| told(key)).all(same)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        _ => a == b,
    }
}

fn rename(map: &mut Map<String, Value>, renamed: &[(String, String)]) {
    if !renamed.is_empty() {
        map.values_mut().for_each(|value| rename_in(value, renamed));
    }
}

fn rename_in(value: &mut Value, renamed: &[(String, String)]) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some((_, new)) = renamed.iter().find(|(old, _)| old == reference)
            {
                reference.clone_from(new);
            }
            map.values_mut().for_each(|value| rename_in(value, renamed));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename_in(value, renamed)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn definitions_of_the_same_name_live_side_by_side() {
        let mut ours = json!({
            "paths": { "/apis/a/v1/": { "get": "ours" } },
            "definitions": { "Meta": { "type": "object", "description": "one" }, "Kept": { "type": "string" } },
        });
        let theirs = json!({
            "paths": { "/apis/a/v1/": { "get": "theirs" }, "/apis/b/v1/x": { "schema": { "$ref": "#/definitions/Kept" } } },
            "definitions": {
                "Meta": { "type": "object", "description": "other words", "x-y": 1 },
                "Kept": { "type": "integer" },
                "New": { "items": [{ "$ref": "#/definitions/Kept" }, { "$ref": "#/definitions/Meta" }] },
            },
        });
        merge_v2(&mut ours, &theirs);
        assert_eq!(ours["paths"]["/apis/a/v1/"]["get"], "ours");
        assert_eq!(ours["paths"]["/apis/b/v1/x"]["schema"]["$ref"], "#/definitions/Kept_v2");
        assert_eq!(ours["definitions"]["Kept"]["type"], "string");
        assert_eq!(ours["definitions"]["Kept_v2"]["type"], "integer");
        assert_eq!(ours["definitions"]["New"]["items"][0]["$ref"], "#/definitions/Kept_v2");
        assert_eq!(ours["definitions"]["New"]["items"][1]["$ref"], "#/definitions/Meta");
        assert_eq!(ours["definitions"]["Meta"]["description"], "one");
        assert!(ours["definitions"].get("Meta_v2").is_none());
    }
}
