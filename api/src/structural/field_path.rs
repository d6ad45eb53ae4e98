//! Paths that name a field of a schema: `.spec.replicas`, `.labels['a.b/c']`.

use super::Structural;
use serde_json::Value;
use std::fmt::Write;

/// One field of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A property.
    Field(String),
    /// An entry of a map.
    Key(String),
}

/// The fields that a path goes through, and the schema at its end.
pub type Found<'s, S> = (Vec<Step>, &'s S);

/// A schema that can be followed into.
pub trait Fields {
    /// The schema of a field, and whether it is a property or an entry.
    fn into(&self, name: &str) -> Option<(Step, &Self)>;
}

impl Fields for Value {
    fn into(&self, name: &str) -> Option<(Step, &Self)> {
        if let Some(properties) = self["properties"].as_object() {
            return Some((Step::Field(name.to_owned()), properties.get(name)?));
        }
        let additional = &self["additionalProperties"];
        additional.is_object().then(|| (Step::Key(name.to_owned()), additional))
    }
}

impl Fields for Structural {
    fn into(&self, name: &str) -> Option<(Step, &Self)> {
        if !self.properties.is_empty() {
            return Some((Step::Field(name.to_owned()), self.properties.get(name)?));
        }
        Some((Step::Key(name.to_owned()), self.additional.as_deref()?))
    }
}

/// Steps as paths in errors are written: `spec.labels[a]`.
pub fn shown(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let dot = if text.is_empty() { "" } else { "." };
        // Writing into a String does not fail.
        let _ = match step {
            Step::Field(name) => write!(text, "{dot}{name}"),
            Step::Key(key) => write!(text, "[{key}]"),
        };
    }
    text
}

/// Follows a path into a schema. `brackets`: whether a name may be quoted in brackets.
///
/// # Errors
/// What is wrong with the path, in upstream's words.
pub fn follow<'s, S: Fields>(path: &str, schema: &'s S, brackets: bool) -> Result<Found<'s, S>, String> {
    let mut rest = path;
    let (mut steps, mut here) = (Vec::new(), schema);
    while !rest.is_empty() {
        let (token, after) = next(rest);
        let (name, after) = match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => quoted(after)?,
            "." if after.is_empty() => return Err("unexpected end of JSON path".to_owned()),
            "." => {
                let (name, after) = next(after);
                (name.to_owned(), after)
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let (step, below) = here.into(&name).ok_or("does not refer to a valid field")?;
        here = below;
        steps.push(step);
        rest = after;
    }
    Ok((steps, here))
}

/// The three delimiters are tokens, and so is all text between them, a quoted one with its delimiters.
fn next(text: &str) -> (&str, &str) {
    if text.starts_with(['.', '[', ']']) {
        return text.split_at(1);
    }
    let mut escaped = false;
    let quoted = text.starts_with('\'');
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '\'' if quoted => return text.split_at(at + 1),
            '.' | '[' | ']' if !quoted => return text.split_at(at),
            _ => {}
        }
    }
    (text, "")
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    if text.is_empty() {
        return Err("unexpected end of JSON path".to_owned());
    }
    let (token, rest) = next(text);
    let inner = token.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).filter(|_| token.len() > 1);
    let inner = inner.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
    match next(rest) {
        ("]", after) => Ok((inner.replace("\\'", "'").replace("\\\\", "\\"), after)),
        ("", _) => Err("unexpected end of JSON path".to_owned()),
        (other, _) => Err(format!("expected ] but got {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_fields() {
        let schema = json!({ "properties": { "spec": { "properties": {
            "labels": { "additionalProperties": { "type": "string" } }, "a.b": { "type": "integer" } } } } });
        for (path, brackets, want) in [
            (".spec.labels.x", false, Ok("string")),
            (".spec.labels['a.b/c']", true, Ok("string")),
            (".spec['a.b']", true, Ok("integer")),
            (".spec['a.b']", false, Err("array notation is not allowed")),
            (".spec.nothing", true, Err("does not refer to a valid field")),
            ("spec", true, Err("expected [ or . but got: spec")),
            (".spec.", true, Err("unexpected end of JSON path")),
            (".spec[0]", true, Err("expected single quoted string but got 0")),
            (".spec['a.b'", true, Err("unexpected end of JSON path")),
        ] {
            let found = follow(path, &schema, brackets).map(|(_, schema)| schema["type"].as_str().unwrap());
            assert_eq!(found, want.map_err(str::to_owned), "{path}");
            assert_eq!(
                follow(path, &crate::structural::parse(&schema), brackets).err(),
                found.err(),
                "{path}"
            );
        }
    }

    #[test]
    fn steps_are_shown_as_errors_show_them() {
        let schema =
            json!({ "properties": { "a.b": { "additionalProperties": { "properties": { "c": {} } } } } });
        let (steps, _) = follow("['a.b'].x.c", &schema, true).unwrap();
        assert_eq!(shown(&steps), "a.b[x].c");
    }
}
