//! From the text of a file to the objects in it.

use coracle_api::yaml;
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;

/// Where an object without a namespace goes.
const DEFAULT: &str = "default";
/// What a chart's release has for an API version and a kind; nothing that an API serves.
const RELEASES: &str = "helm.sh/v1";
const RELEASE: &str = "Release";

/// What one object is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Id {
    pub api_version: String,
    pub kind: String,
    /// As the document says; empty where it says none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl Id {
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Where it lies, if it lies in any.
    pub fn namespace_or_default(&self) -> &str {
        if self.namespace.is_empty() { DEFAULT } else { &self.namespace }
    }

    /// Of a chart's release, which is no object of the API.
    pub fn of_release(namespace: String, name: String) -> Self {
        Self { api_version: RELEASES.to_owned(), kind: RELEASE.to_owned(), namespace, name }
    }

    pub fn is_release(&self) -> bool {
        self.api_version == RELEASES && self.kind == RELEASE
    }

    /// Whether it is the same object, be it named in another version.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.group(), &self.kind, self.namespace_or_default(), &self.name)
            == (other.group(), &other.kind, other.namespace_or_default(), &other.name)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An archive and how it is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    pub archive: PathBuf,
    /// Of archive and settings.
    pub hash: String,
    pub values: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Object(Value),
    /// What helm makes a release of.
    Chart(Chart),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub id: Id,
    pub body: Body,
}

/// Reads a file's documents; those of a `List` count one by one.
///
/// # Errors
/// What is wrong, with the number of the document. A file with a mistake has no documents at all.
pub fn read(text: &str) -> Result<Vec<Document>, String> {
    let mut all = Vec::new();
    for (number, part) in split(text).into_iter().enumerate() {
        let told = |why: String| format!("document {}: {why}", number + 1);
        let read = yaml::document(part.as_bytes()).map_err(|error| told(error.to_string()))?;
        if let Some(why) = yaml::Document::strict_error(&read.repeated) {
            return Err(told(why));
        }
        take(read.value, &mut all).map_err(told)?;
    }
    let twice = all.iter().enumerate().find(|(at, one): &(usize, &Document)| {
        all.iter().take(*at).any(|earlier| earlier.id.is_same(&one.id))
    });
    match twice {
        Some((_, one)) => Err(format!("{} stands in it twice", one.id)),
        None => Ok(all),
    }
}

/// As kubectl does it: a line that begins with three dashes ends a document.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line
            .strip_prefix("---")
            .is_some_and(|rest| rest.trim().is_empty() || rest.starts_with([' ', '\t']))
        {
            parts.push(String::new());
            // What stands behind the dashes belongs to the document.
            let rest = line.get(3..).unwrap_or_default().trim_start();
            if !rest.is_empty() && !rest.starts_with('#') {
                parts.iter_mut().next_back().into_iter().for_each(|part| part.push_str(rest));
            }
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
        }
    }
    parts
}

fn take(value: Value, all: &mut Vec<Document>) -> Result<(), String> {
    let mut object = match value {
        Value::Null => return Ok(()),
        Value::Object(object) => object,
        _ => return Err("it is no object".to_owned()),
    };
    let kind = text(&object, "kind");
    if kind.ends_with("List")
        && let Some(Value::Array(items)) = object.remove("items")
    {
        return items.into_iter().try_for_each(|item| take(item, all));
    }
    let empty = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let (name, namespace) = (text(metadata, "name"), text(metadata, "namespace"));
    let id = Id { api_version: text(&object, "apiVersion"), kind, namespace, name };
    for (field, value) in [("apiVersion", &id.api_version), ("kind", &id.kind), ("metadata.name", &id.name)] {
        if value.is_empty() {
            return Err(format!("{field} is missing"));
        }
    }
    all.push(Document { id, body: Body::Object(Value::Object(object)) });
    Ok(())
}

fn text(object: &Map<String, Value>, field: &str) -> String {
    object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Result<Vec<String>, String> {
        read(text).map(|all| all.iter().map(|one| format!("{} {}", one.id.api_version, one.id)).collect())
    }

    #[test]
    fn documents_lists_and_json_are_read() {
        let text = "# first\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ns}\ndata:\n  x: |\n    --- no end\n    ---x\n--- # next\n\n---\n{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"d\"}}\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: ns}}\n";
        assert_eq!(ids(text).unwrap(), ["v1 ConfigMap ns/a", "apps/v1 Deployment d", "v1 Namespace ns"]);
        let Body::Object(object) = &read(text).unwrap()[0].body else { panic!("no object") };
        assert_eq!(object["data"]["x"], "--- no end\n---x\n");
        assert!(ids("").unwrap().is_empty() && ids("---\n---\n# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_told_with_their_document() {
        let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let mistakes = [
            (format!("{good}---\nkind: [\n"), "document 2: "),
            (format!("{good}---\njust words\n"), "document 2: it is no object"),
            (
                format!("{good}---\nkind: ConfigMap\nmetadata: {{name: b}}\n"),
                "document 2: apiVersion is missing",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {generateName: b}\n".to_owned(),
                "document 1: metadata.name is missing",
            ),
            (
                format!("{good}data: {{}}\ndata: {{}}\n"),
                "document 1: yaml: unmarshal errors:\n  line 5: key \"data\"",
            ),
            (format!("{good}---\n{good}"), "ConfigMap a stands in it twice"),
        ];
        for (text, told) in mistakes {
            let why = ids(&text).unwrap_err();
            assert!(why.starts_with(told), "{why:?} for {text:?}");
        }
    }
}
